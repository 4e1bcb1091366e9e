'use strict';

/* Hides the cases, and the figures, that are not about what is chosen. */
{
    const form = document.getElementById('pageFilters');
    const choose = document.getElementById('pageChoose');
    const count = document.getElementById('pageCount');
    const tiles = [...document.querySelectorAll('.tiles button')];
    const board = document.querySelector('.board');
    const lines = [...board.querySelectorAll('tbody tr')];
    const figures = [...document.querySelectorAll('.figure:not(.board)')];
    const parts = [...document.querySelectorAll('.part')];
    const names = [...form.querySelectorAll('select')].map(select => select.name);
    const texts = new Map();
    const shownAs = new Map();

    function cellText(cell) {
        return cell.textContent;
    }

    /* Of a row, what the choices are compared with. */
    function learn() {
        const keys = page.keysOf(board);
        for (const line of lines) {
            shownAs.set(line, Object.fromEntries(
                [...line.cells].map((cell, place) => [keys[place], cellText(cell)])
            ));
        }
        figures.forEach(figure => shownAs.set(figure, JSON.parse(figure.dataset.tags)));
    }

    function textOf(element) {
        if (!texts.has(element)) {
            const parts = element.matches('tr')
                ? [...element.cells].map(cellText)
                : [...element.querySelectorAll('h3, .says, td, tbody th')].map(cellText).concat(element.dataset.tags);
            texts.set(element, parts.join(' ').toLowerCase());
        }
        return texts.get(element);
    }

    /* What says nothing of a kind is not contradicted; a row says everything. */
    function fits(element, chosen, words) {
        const own = shownAs.get(element);
        return names.every(name => !chosen[name] || own[name] === undefined || own[name] === chosen[name])
            && words.every(word => textOf(element).includes(word));
    }

    function chosenInForm() {
        return Object.fromEntries(new FormData(form));
    }

    function apply() {
        const chosen = chosenInForm();
        const words = chosen.text.toLowerCase().split(/\s+/).filter(Boolean);
        let reappears = false;
        for (const element of [...lines, ...figures]) {
            const fit = fits(element, chosen, words);
            reappears ||= fit && element.hidden && element.dataset.drawn !== undefined;
            element.hidden = !fit;
        }
        for (const part of parts) {
            const nothing = part.querySelector('.nothing');
            if (nothing) {
                const inside = part.contains(board) ? lines : figures.filter(figure => part.contains(figure));
                nothing.hidden = inside.some(element => !element.hidden);
            }
        }
        tell(chosen);
        page.plots.look();
        if (reappears) {
            // Plots measure their place when the window changes, and a hidden one has no width.
            dispatchEvent(new Event('resize'));
        }
    }

    function tell(chosen) {
        const of = (elements, word) => {
            const left = elements.filter(element => !element.hidden).length;
            return `${left} of ${elements.length} ${word}`;
        };
        count.textContent = `${of(lines, 'cases')}, ${of(figures, 'figures')}`;
        for (const field of form.elements) {
            field.classList.toggle('chosen', Boolean(field.name && field.value));
        }
        choose.classList.toggle('chosen', Object.values(chosen).some(Boolean));
        for (const tile of tiles) {
            tile.setAttribute('aria-pressed', String(tile.dataset.verdict === chosen.verdict));
        }
    }

    function applyAndKeep() {
        apply();
        page.address.write(chosenInForm());
    }

    page.filters = {
        start() {
            learn();
            choose.addEventListener('click', () => {
                choose.setAttribute('aria-expanded', String(choose.getAttribute('aria-expanded') !== 'true'));
            });
            form.addEventListener('input', applyAndKeep);
            form.addEventListener('submit', event => event.preventDefault());
            // The fields are empty only after this.
            form.addEventListener('reset', () => setTimeout(applyAndKeep));
            for (const tile of tiles) {
                tile.addEventListener('click', () => {
                    const select = form.elements.verdict;
                    select.value = select.value === tile.dataset.verdict ? '' : tile.dataset.verdict;
                    applyAndKeep();
                });
            }
            this.follow();
        },
        /* What the address says; what it says wrongly is not chosen. */
        follow() {
            const chosen = page.address.read();
            for (const name of names) {
                const select = form.elements[name];
                const known = [...select.options].some(option => option.value === chosen[name]);
                select.value = known ? chosen[name] : '';
            }
            form.elements.text.value = chosen.text ?? '';
            apply();
        },
    };
}
