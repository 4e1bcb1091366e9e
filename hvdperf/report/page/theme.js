'use strict';

/* Light or dark: as the machine prefers, until somebody chooses; light on paper. */
{
    const KEPT_AS = 'hvdperf.theme';
    const root = document.documentElement;
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const told = [];
    let chosen = kept();
    let onPaper = false;

    /* A page from a file may be refused a memory. */
    function kept() {
        try {
            return localStorage.getItem(KEPT_AS);
        } catch {
            return null;
        }
    }

    function keep() {
        try {
            localStorage.setItem(KEPT_AS, chosen);
        } catch {
            // It is chosen until the page is left.
        }
    }

    function change() {
        if (chosen === 'light' || chosen === 'dark') {
            root.dataset.theme = chosen;
        }
        told.forEach(tell => tell());
    }

    page.theme = {
        get name() {
            if (onPaper) {
                return 'light';
            }
            return root.dataset.theme ?? (dark.matches ? 'dark' : 'light');
        },
        get colours() {
            return page.json(document.getElementById('pageThemes'))[this.name];
        },
        /* Vega's configuration, in which "$NAME" is a colour. */
        chart(colours) {
            const chart = document.getElementById('pageChart').textContent;
            const known = {...colours, first: colours.categories[0]};
            return JSON.parse(chart.replace(/"\$(\w+)"/g, (_, name) => JSON.stringify(known[name])));
        },
        toggle() {
            chosen = this.name === 'dark' ? 'light' : 'dark';
            keep();
            change();
        },
        paper(is) {
            onPaper = is;
            change();
        },
        onChange(tell) {
            told.push(tell);
        },
    };

    dark.addEventListener('change', change);
    change();
}
