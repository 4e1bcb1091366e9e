'use strict';

/* A figure to take along: its plot as SVG or PNG, its table as CSV. */
{
    const LEAST_WIDTH = 720;
    const MARGIN = 16;
    const PIXELS = 2;

    function save(blob, name) {
        const link = document.createElement('a');
        link.href = URL.createObjectURL(blob);
        link.download = name;
        document.body.append(link);
        link.click();
        link.remove();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
        page.say(`${name} is saved`);
    }

    /* Drawn anew, with all that the page says around it: a title, a background, a width. */
    async function alone(figure, use) {
        const place = figure.querySelector('.plot');
        const width = Math.max(LEAST_WIDTH, place.clientWidth);
        const spec = page.json(figure.querySelector('.spec'));
        const changes = {
            title: figure.querySelector('h3').textContent,
            background: page.theme.colours.panel,
            padding: MARGIN,
            ...(spec.width === 'container' ? {width} : {}),
        };
        const {view, finalize} = await page.embed(figure, document.createElement('div'), width, changes);
        try {
            return await use(view);
        } finally {
            finalize();
        }
    }

    async function svg(figure) {
        const text = await alone(figure, view => view.toSVG());
        save(new Blob([text], {type: 'image/svg+xml'}), `${figure.id}.svg`);
    }

    async function png(figure) {
        const canvas = await alone(figure, view => view.toCanvas(PIXELS));
        const blob = await new Promise(done => canvas.toBlob(done, 'image/png'));
        save(blob, `${figure.id}.png`);
    }

    function csv(figure) {
        save(new Blob([page.csvOf(figure)], {type: 'text/csv;charset=utf-8'}), `${figure.id}.csv`);
    }

    /* A page from a file may be refused the clipboard; then it is copied as a selection is. */
    async function copy(figure) {
        const text = page.csvOf(figure);
        try {
            await navigator.clipboard.writeText(text);
        } catch {
            if (!copiedAsSelection(text)) {
                page.say('This browser lets nothing be copied; save the CSV instead');
                return;
            }
        }
        page.say('The table is copied as CSV');
    }

    function copiedAsSelection(text) {
        const back = document.activeElement;
        const field = document.createElement('textarea');
        field.value = text;
        field.className = 'skip';
        document.body.append(field);
        field.select();
        // A text field turns CR LF into LF.
        const whole = event => {
            event.clipboardData.setData('text/plain', text);
            event.preventDefault();
        };
        document.addEventListener('copy', whole);
        const copied = document.execCommand('copy');
        document.removeEventListener('copy', whole);
        field.remove();
        back?.focus();
        return copied;
    }

    const DO = {svg, png, csv, copy};

    page.downloads = {
        start() {
            document.addEventListener('click', async event => {
                const button = event.target.closest('button[data-do]');
                if (!button) {
                    return;
                }
                try {
                    await DO[button.dataset.do](button.closest('.figure'));
                } catch {
                    page.say('This plot could not be drawn');
                }
            });
        },
    };
}
