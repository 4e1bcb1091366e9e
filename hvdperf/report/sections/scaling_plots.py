"""Plots of efficiencies by world size, of all networks, from the columns of sections/scaling.py."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.report import plots
from hvdperf.report.content import Column, Plot

# Columns of each way to count: by samples per second, by the wall time of the training, and by
# that of the whole job, with the start of its processes.
WEAK = {"speed": "by speed", "time": "by wall time", "job": "by wall time of the job"}
# There is no wall time with a divided batch. The other ways are of divided steps, in which every
# replica has a whole batch.
STRONG = {"split": "by speed of a divided batch", **WEAK, "speed": "by speed of divided steps"}

# With more networks, their lines cannot be told apart: there are as many colours in the palette.
MOST_LINES = 8
# If replicas share cores, there is no ideal to compare an efficiency with. A line does not go
# through points whose evidence is unsound.
_DRAWN = {"filter": "datum.drawn == 'yes'"}
_TIP = (
    Column("model", "network"),
    Column("world_size", "replicas"),
    Column("speedup", "speedup", digits=2),
    Column("efficiency", "efficiency", digits=3),
    Column("efficiency_low", "from", digits=3),
    Column("efficiency_high", "to", digits=3),
    Column("confidence", "confidence", "%", digits=1),
)
_BOUNDS = ("efficiency_low", "efficiency_high")


def efficiency(networks: Sequence[str], sizes: Sequence[int]) -> Plot:
    """Return a plot of efficiencies: a line per network; a row per network if the lines would have
    only two points, or if there are too many of them. sizes: the world sizes, which are marked."""
    if len(sizes) > 2 and len(networks) <= MOST_LINES:
        return _lines(networks, sizes)
    return _rows(len(networks), len(sizes) - 1)


def _lines(networks: Sequence[str], sizes: Sequence[int]) -> Plot:
    scale = {"zero": False}
    y = plots.field("efficiency", "quantitative", "efficiency", axis={"format": ".0%"}, scale=scale)
    apart = plots.field("model", "nominal", scale={"domain": list(networks)}, legend=plots.LEGEND)
    x = plots.field(
        "world_size",
        "quantitative",
        "replicas",
        scale={"type": "log", "base": 2},
        axis={"values": list(sizes), "format": "d", "labelFlush": False, "grid": False},
    )
    return plots.layered(
        plots.line("ideal", x=None, y={"datum": 1}),
        plots.interval(*_BOUNDS, color=apart),
        *plots.curves(y, apart, tooltip=plots.tooltip(_TIP)),
        encoding={"x": x},
        transform=[_DRAWN],
    )


def _rows(networks: int, sizes: int) -> Plot:
    """Return a plot with a row per network, in which each world size above one has a line."""
    at = {
        "y": plots.row_names("model"),
        "yOffset": {"field": "world_size", "type": "ordinal"},
    }
    scale = {"zero": False}
    replicas = plots.field("world_size", "ordinal", "replicas")
    return plots.estimates(
        at,
        plots.field(
            "efficiency", "quantitative", "efficiency", axis={"format": ".0%"}, scale=scale
        ),
        _BOUNDS,
        plots.line("ideal", x={"datum": 1}),
        rows=networks,
        each=max(22, 14 * sizes),
        point={"color": replicas, "shape": replicas, "tooltip": plots.tooltip(_TIP)},
        transform=[_DRAWN, {"filter": "datum.world_size > 1"}],
    )
