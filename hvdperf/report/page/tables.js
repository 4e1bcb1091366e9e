'use strict';

/* The numbers of a figure, read from its table: there is no other copy of them. */
{
    const NEEDS_QUOTES = /[",\r\n]/;
    // How a formula begins in a spreadsheet, as hvdperf/report/markup.py has it.
    const FORMULA = /^[=+\-@\uff1d\uff0b\uff0d\uff20]/;

    function value(cell) {
        const number = cell.querySelector('data');
        if (number) {
            return Number(number.value);
        }
        // A cell of an empty text has an element in it, one without a value has nothing.
        return cell.firstChild ? cell.textContent : null;
    }

    /* With all the digits that there are. */
    function field(cell) {
        const number = cell.querySelector('data');
        return quoted(number ? number.value : harmless(cell.textContent));
    }

    /* In one line, and with an apostrophe where a spreadsheet would calculate it. */
    function harmless(text) {
        const line = text.replace(/\s+/g, ' ').trim();
        return FORMULA.test(line) ? `'${line}` : line;
    }

    function quoted(text) {
        return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    }

    function title(head) {
        const name = head.querySelector('.name').textContent;
        const unit = head.querySelector('.unit');
        return quoted(harmless(unit ? `${name} (${unit.textContent})` : name));
    }

    function parts(figure) {
        const table = figure.querySelector('table');
        return {heads: [...table.tHead.rows[0].cells], lines: [...table.tBodies[0].rows]};
    }

    /* Of a row of the table, by the keys of the columns. */
    page.rowOf = (line, keys) => Object.fromEntries(
        [...line.cells].map((cell, place) => [keys[place], value(cell)])
    );

    page.keysOf = figure => parts(figure).heads.map(head => head.dataset.key);

    /* What the table shows: without the rows that are not chosen. */
    page.rowsOf = figure => {
        const keys = page.keysOf(figure);
        return parts(figure).lines.filter(line => !line.hidden).map(line => page.rowOf(line, keys));
    };

    /* RFC 4180. */
    page.csvOf = figure => {
        const {heads, lines} = parts(figure);
        const shown = lines.filter(line => !line.hidden);
        const records = [heads.map(title), ...shown.map(line => [...line.cells].map(field))];
        return records.map(record => `${record.join(',')}\r\n`).join('');
    };
}
