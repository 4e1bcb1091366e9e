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

    /* The commands of a place, or its table. Some pages are refused the clipboard. */
    async function copy(place) {
        try {
            await navigator.clipboard.writeText(place.querySelector(':scope > pre')?.textContent ?? page.csvOf(place));
            page.say('Copied');
        } catch {
            page.say('This browser lets nothing be copied: select it, or save the CSV');
        }
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
                    await DO[button.dataset.do](button.closest('.figure, .next'));
                } catch {
                    page.say('This plot could not be drawn');
                }
            });
        },
    };
}
