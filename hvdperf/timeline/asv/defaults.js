'use strict';

/* How a graph is opened.

   asv opens it with up to eight combinations of a benchmark's parameters, each in every
   environment: too many lines to see which release changed a figure. Here a graph that is opened
   without a choice in its address shows one combination, which leaves one line an environment (a
   version of the other framework). The choice goes into the address, where asv's selectors look
   for it.

   A line's colour is that of its place among the lines. asv orders them by how the file system
   listed the results, and by whose figures arrive first. Here their order is the selectors'.

   asv keeps six graphs' figures, and hands out none if it drops them at the wrong moment, which
   loses a line. Here all are kept. */
$(document).ready(function() {
    var register_page = $.asv.register_page;
    var load_graph_data = $.asv.load_graph_data;
    var asked_for = {};
    var last_asked_for = $.when();

    $.asv.register_page = function(name, show) {
        register_page(name, name === 'graphdisplay' ? with_default(show) : show);
    };

    $.asv.load_graph_data = function(url) {
        var figures = asked_for[url] = asked_for[url] || load_graph_data(url);
        function in_turn() { return figures; }
        last_asked_for = last_asked_for.then(in_turn, in_turn);
        return last_asked_for;
    };

    function with_default(show) {
        return function(params) {
            $.asv.main_json.graph_param_list.sort(by_values);
            var benchmark = $.asv.main_json.benchmarks[params.benchmark];
            var chosen = Object.keys(params).length > 1;
            if (chosen || !benchmark || !benchmark.params.length) {
                show(params);
            }
            else {
                choose_most_measured(benchmark);
            }
        };
    }

    function by_values(one, other) {
        var difference = 0;
        $.each($.asv.main_json.params, function(name, values) {
            difference = difference || values.indexOf(one[name]) - values.indexOf(other[name]);
        });
        return difference;
    }

    /* Of the combinations that were measured most often the last one: that of the most replicas. */
    function choose_most_measured(benchmark) {
        var asked = window.location.hash;
        var graphs = $.map($.asv.main_json.graph_param_list, function(environment) {
            return points(benchmark, environment);
        });
        $.when.apply($, graphs).done(function() {
            var count = $.map(new Array(combinations(benchmark)), function() { return 0; });
            $.each(arguments, function(i, graph) {
                $.each(graph, function(j, point) {
                    $.each(point[1] || [], function(index, value) {
                        count[index] += value !== null;
                    });
                });
            });
            var index = count.lastIndexOf(Math.max.apply(null, count));
            /* Unless somebody has gone elsewhere meanwhile. */
            if (window.location.hash === asked) {
                window.location.replace($.asv.format_hash_string({
                    location: [benchmark.name],
                    params: selection(benchmark, index)
                }));
            }
        });
    }

    /* A promise of [[revision, [a value or null for each combination]], ...]. */
    function points(benchmark, environment) {
        var path = $.asv.graph_to_path(benchmark.name, environment);
        return $.asv.load_graph_data(path).then(null, function() { return $.when([]); });
    }

    function combinations(benchmark) {
        return benchmark.params.reduce(function(n, values) { return n * values.length; }, 1);
    }

    /* The combination as asv writes it into an address. */
    function selection(benchmark, index) {
        var chosen = {};
        var places = $.asv.param_selection_from_flat_idx(benchmark.params, index).slice(1);
        $.each(places, function(i, at) {
            chosen['p-' + benchmark.param_names[i]] = [benchmark.params[i][at[0]]];
        });
        return chosen;
    }
});
