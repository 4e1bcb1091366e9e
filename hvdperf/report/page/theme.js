'use strict';

/* Light or dark, as the machine prefers; light on paper. */
{
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const told = [];
    let onPaper = false;

    const change = () => told.forEach(tell => tell());

    page.theme = {
        get name() {
            return dark.matches && !onPaper ? 'dark' : 'light';
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
        paper(is) {
            onPaper = is;
            change();
        },
        onChange(tell) {
            told.push(tell);
        },
    };

    dark.addEventListener('change', change);
}
