'use strict';

/* Hides the cases that lack one of the words. Of a row, hidden columns count, too. */
if (document.querySelector('.board')) {
    const form = document.getElementById('pageFilters');
    const field = form.elements.text;
    const count = document.getElementById('pageCount');
    const tiles = [...document.querySelectorAll('.tiles button')];
    const board = document.querySelector('.board');
    const texts = new Map([...board.querySelectorAll('tbody tr')].map(
        line => [line, [...line.cells].map(cell => cell.textContent).join(' ').toLowerCase()]
    ));

    function apply() {
        const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
        let left = 0;
        for (const [line, text] of texts) {
            line.hidden = !words.every(word => text.includes(word));
            left += !line.hidden;
        }
        board.querySelector('.nothing').hidden = left > 0;
        count.textContent = `${left} of ${texts.size} cases`;
        field.classList.toggle('chosen', words.length > 0);
        for (const tile of tiles) {
            tile.setAttribute('aria-pressed', String(tile.dataset.verdict === field.value));
        }
    }

    function choose(text) {
        field.value = text;
        apply();
        page.address.write({text});
    }

    page.filters = {
        start() {
            form.addEventListener('input', () => choose(field.value));
            form.addEventListener('submit', event => event.preventDefault());
            for (const tile of tiles) {
                const word = tile.dataset.verdict;
                tile.addEventListener('click', () => choose(field.value === word ? '' : word));
            }
            this.follow();
        },
        /* What the address says. */
        follow() {
            field.value = page.address.read().text ?? '';
            apply();
        },
    };
}
