'use strict';

/* asv draws seconds well. A figure of any other unit it draws from its smallest value up, as if
   zoomed, and rounds every number to three digits: a tick at 112.5 reads 113, and 2370 reads
   2.37e+3. Here such a figure is drawn as asv draws seconds, its numbers as they are. */
$(document).ready(function() {
    var plot = $.plot;
    var pretty_unit = $.asv.pretty_unit;

    $.plot = $.extend(function(placeholder, data, options) {
        return plot(placeholder, data, has_own_unit(options) ? as_seconds_are(options) : options);
    }, plot);

    $.asv.pretty_unit = function(x, unit) {
        if (is_scaled(unit) || !unit || unit === 'unit') {
            return pretty_unit(x, unit);
        }
        return Number(x.toPrecision(4)) + ' ' + unit;
    };

    /* Seconds and bytes, which asv scales and labels by names of its own. */
    function is_scaled(unit) {
        return $.asv.time_units.concat($.asv.mem_units).some(function(known) {
            return known[1] === unit;
        });
    }

    /* Ticks are given where the scale is logarithmic or relative, and in the small overviews. */
    function has_own_unit(options) {
        var y = options.yaxis;
        return y.axisLabel && !y.ticks && !is_scaled(y.axisLabel);
    }

    function as_seconds_are(options) {
        var zoomed = $('#zoom-y-axis').hasClass('active');
        var range = zoomed ? {} : {min: 0, max: options.yaxis.max * 1.3};
        return $.extend(true, {}, options, {yaxis: range}, {yaxis: {tickFormatter: null}});
    }
});
