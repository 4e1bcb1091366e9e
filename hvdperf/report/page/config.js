'use strict';

/* How plots look: chart.json, and what depends on the plot and on its width. */
{
    const VERDICTS = {
        'FAIL': {colour: 'fail', shape: 'cross'},
        'INVALID': {colour: 'invalid', shape: 'triangle-up'},
        'NOT RUN': {colour: 'not_run', shape: 'triangle-down'},
        'INCONCLUSIVE': {colour: 'inconclusive', shape: 'diamond'},
        'PASS': {colour: 'pass', shape: 'circle'},
        'INFO': {colour: 'info', shape: 'square'},
    };
    const COLOURED = ['color', 'fill', 'stroke'];
    const LEGENDS = [...COLOURED, 'shape', 'strokeDash', 'size'];
    const LETTER = 6.5;
    const TITLE_LETTER = 7;
    const SYMBOL = 34;
    const NUMBERS = 60;
    const MARGINS = 30;

    /* A plot and its layers, as far as they have channels. */
    function parts(part) {
        if (!part || typeof part !== 'object') {
            return [];
        }
        const own = part.encoding && !Array.isArray(part) ? [part] : [];
        return [...own, ...Object.values(part).flatMap(parts)];
    }

    /* The channels of these names in a plot and its layers. */
    const channels = (spec, names) =>
        parts(spec).flatMap(part => names.map(name => part.encoding[name])).filter(Boolean);

    /* The width in pixels of the longest name that the channels have to show. */
    function widest(found, rows) {
        // What transforms make is in no row; its domain tells it.
        const names = found.flatMap(({datum, field, scale}) =>
            scale?.domain ?? (field ? rows.map(row => row[field]) : [datum]));
        return LETTER * names.reduce((most, name) => Math.max(most, String(name).length), 1);
    }

    const labelLimit = width => Math.max(180, width * 0.34);

    /* The width of the names along y; numbers are short. */
    function beside(spec, rows) {
        const named = channels(spec, ['y']).filter(each => ['nominal', 'ordinal'].includes(each.type));
        return named.length ? widest(named, rows) : NUMBERS;
    }

    /* Of the title below: a longer one than the axis begins below the names on the left. */
    function titleWidth(spec) {
        const titles = channels(spec, ['x']).map(each => String(each.axis?.title ?? each.title ?? ''));
        return TITLE_LETTER * Math.max(0, ...titles.map(title => title.length));
    }

    /* width: in pixels, of what the plot has; legends take as many columns as fit. */
    page.vegaConfig = (colours, width, spec, rows) => {
        const longest = widest(channels(spec, LEGENDS), rows);
        // Beside names on the left there is less room than a plot would like.
        const inside = width - Math.min(labelLimit(width), beside(spec, rows)) - MARGINS;
        const columns = Math.max(1, Math.floor(inside / (longest + SYMBOL)));
        const config = page.theme.chart(colours);
        Object.assign(config.axis, {titleLimit: width - MARGINS, labelLimit: labelLimit(width)});
        Object.assign(config.axisX, titleWidth(spec) > inside ? {titleAnchor: 'end'} : {}, {
            tickCount: Math.min(10, Math.max(3, Math.round(width / 90))),
        });
        Object.assign(config.legend, {columns, labelLimit: Math.min(320, width - 40)});
        return config;
    };

    /* What stands for a faint area in a legend is not faint. */
    page.withLegends = compiled => {
        for (const legend of compiled.legends ?? []) {
            const symbols = legend.encode?.symbols?.update;
            delete symbols?.opacity;
            delete symbols?.fillOpacity;
        }
        return compiled;
    };

    /* Verdicts have the colours and shapes of the page. */
    page.withVerdicts = (spec, rows, colours) => {
        const domain = Object.keys(VERDICTS).filter(word => rows.some(row => row.verdict === word));
        const own = names => channels(spec, names).filter(each => each.field === 'verdict');
        for (const channel of own(COLOURED)) {
            channel.scale = {domain, range: domain.map(word => colours[VERDICTS[word].colour])};
        }
        for (const channel of own(['shape'])) {
            channel.scale = {domain, range: domain.map(word => VERDICTS[word].shape)};
        }
        return spec;
    };
}
