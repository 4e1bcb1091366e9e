'use strict';

/* Draws plots when they come into sight, one in each idle moment; for paper, all that are not folded. */
{
    const AHEAD = '600px';
    const figures = [...document.querySelectorAll('.figure')].filter(figure => figure.querySelector('.plot'));
    const waiting = new Set();
    let busy = false;

    const observer = new IntersectionObserver(seen, {rootMargin: AHEAD});

    function seen(entries) {
        for (const {target, isIntersecting} of entries) {
            if (isIntersecting && isStale(target)) {
                waiting.add(target);
            } else {
                waiting.delete(target);
            }
        }
        goOn();
    }

    function goOn() {
        if (busy || !waiting.size) {
            return;
        }
        busy = true;
        page.idle(async () => {
            const [figure] = waiting;
            waiting.delete(figure);
            if (figure) {
                await draw(figure);
            }
            busy = false;
            goOn();
        });
    }

    function isStale(figure) {
        const folded = figure.querySelector('.plot').closest('details:not([open])');
        return figure.dataset.drawnIn !== page.theme.name && figure.offsetParent !== null && !folded;
    }

    async function draw(figure) {
        if (!isStale(figure)) {
            return;
        }
        const theme = figure.dataset.drawnIn = page.theme.name;
        const place = figure.querySelector('.plot');
        const failed = figure.querySelector('.failed');
        const fresh = document.createElement('div');
        // The place says what is in it.
        fresh.setAttribute('aria-hidden', 'true');
        place.hidden = false;
        place.append(fresh);
        try {
            const {view, finalize} = await page.embed(figure, fresh, place.clientWidth);
            if (figure.dataset.drawnIn !== theme) {
                // Another theme has been asked for meanwhile.
                finalize();
                fresh.remove();
                return;
            }
            place.finalize?.();
            Object.assign(place, {view, finalize});
            place.replaceChildren(fresh);
            figure.dataset.drawn = 'true';
        } catch (error) {
            console.warn(figure.id, error);
            place.replaceChildren();
            figure.dataset.drawn = 'failed';
            figure.querySelector('details')?.setAttribute('open', '');
        }
        place.style.minHeight = '';
        place.hidden = figure.dataset.drawn === 'failed';
        failed.hidden = !place.hidden;
    }

    /* Vega goes on after what went wrong, and only says so. */
    function listening(errors) {
        const log = {
            level: () => log,
            error: (...said) => { errors.push(said.join(' ')); return log; },
            warn: () => log,
            info: () => log,
            debug: () => log,
        };
        return log;
    }

    // Without a message, for Vega would take that for an image's address.
    const nobody = () => Promise.reject(new Error());
    // A point leads to another of these pages, and nowhere else.
    const PAGE = /^[\w./-]+\.html$/;
    const link = address => PAGE.test(address) ? Promise.resolve({href: address}) : nobody();

    /* The libraries are packed to a half. */
    async function unpack() {
        for (const library of document.querySelectorAll('.library')) {
            const bytes = Uint8Array.from(atob(library.textContent), letter => letter.charCodeAt(0));
            const script = document.createElement('script');
            const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
            script.textContent = await new Response(stream).text();
            library.replaceWith(script);
        }
    }
    const unpacked = unpack();

    /* Vega's view of a figure in an element. Rejects what cannot be drawn. */
    page.embed = async (figure, place, width, changes = {}) => {
        await unpacked;
        const colours = page.theme.colours;
        const rows = page.rowsOf(figure);
        const spec = page.withVerdicts(page.json(figure.querySelector('.spec')), rows, colours);
        delete spec.usermeta;
        // What was chosen below a plot stays chosen.
        const {view} = figure.querySelector('.plot');
        for (const choice of (view && spec.params) || []) {
            choice.value = view.signal(choice.name);
        }
        Object.assign(spec, {data: {name: 'table', values: rows}}, changes);
        const errors = [];
        const result = await vegaEmbed(place, spec, {
            mode: 'vega-lite',
            actions: false,
            ast: true,
            config: page.vegaConfig(colours, width, spec, rows),
            defaultStyle: false,
            loader: {load: nobody, sanitize: link, http: nobody, file: nobody},
            logger: listening(errors),
            patch: page.withLegends,
            renderer: 'svg',
            tooltip: {disableDefaultStyle: true},
        });
        if (errors.length) {
            result.finalize();
            throw new Error(errors.join('; '));
        }
        return result;
    };

    page.plots = {
        start() {
            for (const figure of figures) {
                const plot = figure.querySelector('.plot');
                plot.style.minHeight = `${Number(plot.dataset.height) + 40}px`;
            }
            this.look();
            return unpacked.catch(() => page.say('This browser is too old to draw plots'));
        },
        /* Sees anew which are in sight, and draws those that are not as they should be. */
        look() {
            observer.disconnect();
            waiting.clear();
            figures.forEach(figure => observer.observe(figure));
        },
        all() {
            return Promise.all(figures.map(draw));
        },
    };

    page.theme.onChange(() => page.plots.look());
    document.addEventListener('toggle', event => {
        if (event.target.open && event.target.querySelector('.plot')) {
            page.plots.look();
            // Plots measure their place when the window changes, and a folded one may have no width.
            dispatchEvent(new Event('resize'));
        }
    }, true);
    let unfolded = [];
    addEventListener('beforeprint', () => {
        unfolded = [...document.querySelectorAll('details.printed:not([open])')];
        unfolded.forEach(fold => { fold.open = true; });
        page.theme.paper(true);
        page.plots.all();
    });
    addEventListener('afterprint', () => {
        unfolded.forEach(fold => { fold.open = false; });
        page.theme.paper(false);
    });
}
