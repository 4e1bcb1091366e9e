'use strict';

/* How plots look: colours and widths of a theme for Vega, and the styles that marks name. */
{
    const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';
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

    /* The channels of these names in a plot and its layers. */
    function channels(part, names) {
        if (!part || typeof part !== 'object') {
            return [];
        }
        const own = part.encoding && !Array.isArray(part) ? names.map(name => part.encoding[name]) : [];
        return [...own.filter(Boolean), ...Object.values(part).flatMap(each => channels(each, names))];
    }

    /* How many names the channels have to show, and the width of the longest in pixels. */
    function labels(found, rows) {
        // What transforms make is in no row; its domain tells it.
        const names = new Set(found.flatMap(({datum, field, scale}) => scale?.domain
            ? scale.domain.map(String)
            : field ? rows.map(row => String(row[field])) : [String(datum)]
        ));
        return {count: names.size, width: LETTER * Math.max(1, ...[...names].map(name => name.length))};
    }

    /* Names along x lie, unless they would lie on each other. */
    function angle(spec, rows, width) {
        const named = channels(spec, ['x']).filter(each => ['nominal', 'ordinal'].includes(each.type));
        const {count, width: each} = labels(named, rows);
        return count * (each + 10) > 0.85 * width ? -35 : 0;
    }

    const labelLimit = width => Math.max(150, width * 0.34);

    /* The width of the names along y; numbers are short. */
    function beside(spec, rows) {
        const named = channels(spec, ['y']).filter(each => ['nominal', 'ordinal'].includes(each.type));
        return named.length ? labels(named, rows).width : NUMBERS;
    }

    /* Of the title below: a longer one than the axis begins below the names on the left. */
    function titleWidth(spec) {
        const titles = channels(spec, ['x']).map(each => String(each.axis?.title ?? each.title ?? ''));
        return TITLE_LETTER * Math.max(0, ...titles.map(title => title.length));
    }

    /* width: in pixels, of what the plot has; legends take as many columns as fit. */
    page.vegaConfig = (colours, width, spec, rows) => {
        const longest = labels(channels(spec, LEGENDS), rows).width;
        // Beside names on the left there is less room than a plot would like.
        const inside = width - Math.min(labelLimit(width), beside(spec, rows)) - MARGINS;
        const columns = Math.max(1, Math.floor(inside / (longest + SYMBOL)));
        for (const {legend} of channels(spec, LEGENDS)) {
            if (legend?.columns > columns) {
                legend.columns = columns;
            }
        }
        const text = {labelColor: colours.muted, titleColor: colours.text};
        const [first] = colours.categories;
        return {
            background: 'transparent',
            font: FONT,
            padding: {left: 2, right: 8, top: 6, bottom: 2},
            view: {stroke: null},
            axis: {
                ...text,
                labelFontSize: 11,
                titleFontSize: 12,
                titleFontWeight: 500,
                titlePadding: 8,
                titleLimit: width - MARGINS,
                labelLimit: labelLimit(width),
                gridColor: colours.line,
                domainColor: colours.edge,
                tickColor: colours.edge,
                tickSize: 4,
            },
            axisX: {...(titleWidth(spec) > inside ? {titleAnchor: 'end'} : {}), labelOverlap: true, tickCount: Math.min(10, Math.max(3, Math.round(width / 90)))},
            axisXDiscrete: {labelAngle: angle(spec, rows, width), labelOverlap: false},
            axisY: {domain: false, ticks: false, labelPadding: 6, tickCount: 6},
            legend: {
                ...text,
                orient: 'top',
                labelFontSize: 11,
                titleFontSize: 12,
                titleFontWeight: 500,
                columns,
                columnPadding: 14,
                labelLimit: Math.min(320, width - 40),
                symbolStrokeWidth: 2,
            },
            header: {...text, labelFontSize: 12, labelFontWeight: 600},
            title: {color: colours.text, anchor: 'start', fontSize: 15, fontWeight: 600, offset: 12,
                subtitleColor: colours.muted},
            range: {
                category: colours.categories,
                ordinal: {scheme: colours.sizes},
                ramp: {scheme: colours.sizes},
                heatmap: {scheme: colours.sizes},
            },
            mark: {color: first, opacity: 1, tooltip: true},
            arc: {stroke: colours.panel},
            area: {fillOpacity: 0.5, line: false},
            bar: {cornerRadiusEnd: 2},
            line: {strokeWidth: 2, strokeJoin: 'round', strokeCap: 'round'},
            trail: {size: 2},
            point: {filled: true, size: 55},
            circle: {size: 55},
            square: {size: 50},
            rect: {stroke: colours.panel},
            rule: {color: colours.interval},
            tick: {thickness: 2},
            text: {color: colours.text, fontSize: 11},
            boxplot: {median: {color: colours.panel}},
            style: styles(colours),
        };
    };

    /* Those of hvdperf/report/plots.py. */
    function styles(colours) {
        return {
            ideal: {color: colours.ideal, strokeDash: [5, 4], strokeWidth: 1.5},
            band: {color: colours.band, fillOpacity: colours.band_opacity, strokeWidth: 0},
            limit: {color: colours.limit, strokeWidth: 1.5},
            interval: {strokeWidth: 2, strokeCap: 'round'},
            named: {color: colours.named, strokeWidth: 2.5, fontWeight: 600},
            quiet: {color: colours.quiet, strokeWidth: 1.5},
        };
    }

    /* What stands for a faint area in a legend is not faint. */
    page.withLegends = compiled => {
        for (const legend of compiled.legends ?? []) {
            const symbols = legend.encode?.symbols?.update;
            delete symbols?.opacity;
            delete symbols?.fillOpacity;
        }
        return compiled;
    };

    /* Wherever a plot tells verdicts apart without saying how, by colours and shapes of the page. */
    page.withVerdicts = (spec, rows, colours) => {
        const present = Object.keys(VERDICTS).filter(
            word => rows.some(row => row.verdict === word)
        );
        const range = {
            colour: present.map(word => colours[VERDICTS[word].colour]),
            shape: present.map(word => VERDICTS[word].shape),
        };
        walk(spec);
        return spec;

        function walk(part) {
            if (!part || typeof part !== 'object') {
                return;
            }
            if (part.encoding && !Array.isArray(part)) {
                scale(part);
            }
            Object.values(part).forEach(walk);
        }

        function scale(part) {
            const channels = part.encoding;
            const coloured = COLOURED.filter(name => isVerdict(channels[name]));
            coloured.forEach(name => {
                channels[name].scale = {domain: present, range: range.colour};
            });
            const mark = part.mark?.type ?? part.mark;
            if (mark === 'point' && coloured.length && !channels.shape) {
                channels.shape = {...channels[coloured[0]]};
                delete channels.shape.scale;
            }
            if (isVerdict(channels.shape)) {
                channels.shape.scale = {domain: present, range: range.shape};
            }
        }

        function isVerdict(channel) {
            return channel?.field === 'verdict' && channel.scale === undefined;
        }
    };
}
