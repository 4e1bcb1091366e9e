"""What a paper shows of a session: a few figures whose captions stand alone, as SVG or PDF of a
physical width, and a table of the main results. Every number and every word on how it was measured
is of the session's documents.

vl-convert draws the same Vega-Lite specifications as the page, without a browser. The colours
differ in lightness too, so that they can be told apart on grey paper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvdperf.errors import UserError
from hvdperf.inline import PAGE, themes
from hvdperf.plan.comparisons import Question
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots, words
from hvdperf.report.cases import asked, at_95, number
from hvdperf.report.content import Field, Figure, Plot, Row, Table, Value, cells_of, interval, value
from hvdperf.report.sections import scaling, wall_time


@dataclass(frozen=True)
class Caption:
    """A figure of a paper. name: of its file. figure: the report's. questions: of its cases; () for
    the throughput of all. low: key of the lower bounds in its table. text: with fields."""

    name: str
    figure: str
    questions: tuple[Question, ...]
    low: str
    text: str


# Whole trainings have a steady-state speed in their breakdown.
_WEAK = (Question.WALL_TIME_WEAK, Question.WEAK_SCALING)
_BATCH = "{networks} Every rank has a batch of {batch}."
_IDEAL = "The dashed line is the ideal. {intervals}"
# Those first that a reader asks for first.
CAPTIONS = (
    Caption(
        "throughput",
        "scaling-throughput",
        (),
        "samples_per_second_low",
        f"Throughput of training with Horovod over the number of ranks. {_BATCH} Thin dashed lines "
        "are the ideal, n times the throughput of one rank. {intervals}",
    ),
    Caption(
        "speedup",
        "scaling-weak-steady_state",
        _WEAK,
        "speedup_low",
        "Speedup of weak scaling: samples/s of n ranks over samples/s of one rank. "
        f"{_BATCH} {_IDEAL}",
    ),
    Caption(
        "speedup-strong",
        "scaling-strong-split",
        (Question.STRONG_SCALING,),
        "speedup_low",
        "Speedup of strong scaling: samples/s of n ranks over samples/s of one rank, where a batch "
        f"of {{batch}} is divided among the ranks. {{networks}} {_IDEAL}",
    ),
    Caption(
        "parity",
        "parity",
        (Question.PARITY,),
        "ratio_low",
        f"Speed of Horovod over that of MirroredStrategy on the same devices. {_BATCH} Right of "
        "the dashed line Horovod is faster. {intervals}",
    ),
    Caption(
        "communication",
        "communication",
        (Question.COMMUNICATION,),
        "share_low",
        "Share of a training step that communication takes and computation does not hide. It is 1 "
        "- the speed with the exchange of gradients / the speed without it. "
        f"{_BATCH} {{intervals}}",
    ),
    Caption(
        "wall-time",
        "wall_time-shares",
        (Question.WALL_TIME_WEAK,),
        "",
        "Where the wall time of a training goes, from the launch of its processes to their end. "
        "{networks} Every rank trains for {steps} steps with a batch of {batch}. Means over the "
        "ranks and {observations}.",
    ),
)


def paper_figures(archive: Archive) -> list[Figure]:
    """Return the figures. What each says is its caption: it names the networks, the machine, the
    rounds and the confidence of intervals."""
    measured = _measured(archive)
    cases = measured.cases
    trained = [case for case in asked(cases, _WEAK[0]) if case.outcome.breakdown is not None]
    labels = words.workload_labels((case.workload for case in trained), words.published_name)
    found = [
        *scaling.figures(measured),
        *_by_network(cases),
        wall_time.shares(trained, labels),
    ]
    figures = {each.name: each for each in found if each.plot is not None and each.table.rows}
    drawn = []
    for caption in CAPTIONS:
        if figure := figures.get(caption.figure):
            # Of sessions that were put together, each is one observation.
            fields = _fields(caption, figure, cases, "session" if archive.sessions else "round")
            says = f"{caption.text.format_map(fields)} {measured_on(archive)}"
            drawn.append(replace(figure, name=caption.name, says=says))
    return drawn


def _fields(caption: Caption, figure: Figure, cases: Sequence[Case], one: str) -> Mapping[str, str]:
    """Return the fields of a caption. cases: of all figures. one: an observation, a session or a
    round."""
    rows = figure.table.rows
    found = [case for question in caption.questions for case in asked(cases, question)]
    own = {(case.session, case.workload, case.world_size): case for case in found}.values()
    labels = words.workload_labels((case.workload for case in own), words.published_name)
    # The bars of the wall time have no column for the network.
    every = [row["model"] for row in rows if "model" in row] or [labels[c.workload] for c in own]
    names = list(dict.fromkeys(map(str, every)))
    batches = {case.workload.batch for case in own}
    counts = [each.outcome.judgement.rounds for each in own]
    if one == "session":
        counts = [case.figure.observations for case in own if case.figure is not None]
    if not own:
        batches = {workload.batch for workload, _ in throughputs(cases)}
        counts = [int(number(row["launches"])) for row in rows]
        one = "launch" if one == "round" else one
    steps = {case.outcome.breakdown.candidate.steps for case in own if case.outcome.breakdown}
    many = "launches" if one == "launch" else f"{one}s"
    observations = f"{words.span(counts)} {one if set(counts) == {1} else many}"
    return {
        "networks": f"{'Network' if len(names) == 1 else 'Networks'}: {'; '.join(names)}.",
        "batch": f"{words.span(batches)} samples",
        "observations": observations,
        "intervals": _intervals([row.get(caption.low) for row in rows], observations),
        "steps": words.span(steps) if steps else "",
    }


def _intervals(bounds: Sequence[Value], observations: str) -> str:
    """Return a sentence on the bars of a plot. bounds: the lower one of each point."""
    if not any(bound is not None for bound in bounds):
        return f"Points are of {observations}, too few for an interval."
    left = " Points without a bar have too few of them." if None in bounds else ""
    return f"Bars are 95 % intervals over {observations}.{left}"


def _measured(archive: Archive) -> scaling.Measured:
    sound = [case for case in archive.cases if case.is_sound]
    return scaling.Measured(sound, words.published_name, [each.cases for each in archive.sessions])


def measured_on(archive: Archive) -> str:
    """Return a sentence on the machine and the stack."""
    known, hosts = archive.fingerprint, len(archive.session.hosts)
    return f"Measured with {words.stack(known)} on {words.machine(known, hosts)}."


# Figures ---------------------------------------------------------------------------------------


def _by_network(cases: Sequence[Case]) -> list[Figure]:
    """Return the figures of parity, and of exposed communication: 1 - the ratio of the speeds with
    and without the exchange of gradients."""
    speeds = interval("ratio", "speed of Horovod / speed of MirroredStrategy", at_95)
    exposed = interval("share", "exposed communication, % of a step", at_95, digits=1)
    return [
        _figure(
            "parity",
            asked(cases, Question.PARITY),
            speeds,
            plots.line("ideal", x={"datum": 1}),
        ),
        _figure(
            "communication",
            asked(cases, Question.COMMUNICATION),
            replace(exposed, cells=_exposed),
        ),
    ]


def _exposed(case: Case) -> Row:
    # A high ratio is a small share.
    ratio = cells_of(at_95(case), "share", "share_high", "share_low")
    return {key: None if end is None else 100 * (1 - number(end)) for key, end in ratio.items()}


def _figure(name: str, cases: Sequence[Case], result: Field[Case], *behind: plots.Layer) -> Figure:
    """Return a figure with a row per case, ordered by network and size."""
    labels = words.workload_labels((case.workload for case in cases), words.published_name)
    found = Table.of(
        sorted(cases, key=lambda case: (labels[case.workload], case.world_size)),
        value("model", "network", lambda case: labels[case.workload]),
        value("world_size", "ranks", lambda case: case.world_size),
        result,
    )
    x = plots.axis(found, result.columns[0].key, scale={"zero": not behind})
    return Figure(name, name, "", found, plots.interval(found, "model", x, "world_size", *behind))


# Tables ----------------------------------------------------------------------------------------


def paper_tables(archive: Archive) -> list[Figure]:
    """Return the tables of the main results, of weak and of strong scaling, without plots."""
    curves = {figure.name: figure for figure in scaling.figures(_measured(archive))}
    where = measured_on(archive)
    return [
        _results(figure, f"results-{name}", f"{title} and efficiency", speeds, where)
        for name, title, figure, speeds in (
            (
                "weak",
                "Weak scaling: throughput, speedup",
                curves.get("scaling-weak-steady_state"),
                "scaling-throughput" in curves,
            ),
            # The ratios are not those of the throughputs, which are of whole batches.
            ("strong", "Strong scaling: speedup", curves.get("scaling-strong-split"), False),
        )
        if figure is not None
    ]


def _results(figure: Figure, name: str, title: str, speeds: bool, where: str) -> Figure:
    """Return the table of a figure of speedups. speeds: whether it has the throughputs."""
    # The ratios of one replica to itself have no interval.
    alone = dict.fromkeys(f"{key}{end}" for key in _RATIOS for end in ("_low", "_high"))
    rows = tuple({**row, **alone} if row["world_size"] == 1 else row for row in figure.table.rows)
    several_nodes = any(not str(row["layout"]).startswith("1 x ") for row in rows)
    keys = ("model", "world_size", *(["layout"] if several_nodes else []))
    results = ("samples_per_second", *_RATIOS) if speeds else _RATIOS
    shown = (*keys, *(f"{key}{end}" for key in results for end in ("", "_low", "_high")))
    columns = {column.key: column for column in figure.table.columns}
    return Figure(
        name,
        title,
        f"Speedup is S_n / S_1, the throughput of n ranks over that of one rank; efficiency is "
        f"speedup / n. {words.INTERVALS} {where}",
        Table(tuple(columns[key] for key in shown), rows),
    )


_RATIOS = ("speedup", "efficiency")

# Drawings --------------------------------------------------------------------------------------

FORMATS = ("svg", "pdf")
# The width of a column of many two-column papers.
USUAL_WIDTH = "88mm"
# Points (1/72 in) of a unit of length.
_POINTS = {"mm": 72 / 25.4, "cm": 72 / 2.54, "in": 72.0, "pt": 1.0}
# Between them a plot has room for its labels, and fits a sheet of paper. In points.
_NARROWEST, _WIDEST = 40 * _POINTS["mm"], 1000 * _POINTS["mm"]
# A plot is drawn with the sizes of the page, in pixels, and then scaled: 11 pixels become 7 pt.
LABEL_PIXELS = 11
SCALE = 7 / LABEL_PIXELS
# The release of Vega-Lite, of those that vl-convert brings, that is nearest to page/vendor.toml.
VEGA_LITE = "6.4"
# Neighbours differ by at least 15 in lightness: L* is 18, 66, 42, 74, 26, 58, 34, 50.
CATEGORIES = (
    "#152a55",
    "#ed8620",
    "#147060",
    "#7bbdec",
    "#721c39",
    "#a37bc0",
    "#285a1e",
    "#cc4d34",
)
_INK = {
    "categories": CATEGORIES,
    "sizes": ("#8fc1e3", "#0b2f52"),
    "text": "#000000",
    "muted": "#000000",
    "line": "#dddddd",
    "edge": "#666666",
    "ideal": "#666666",
    "interval": "#333333",
}
# Pixels of a letter, of a legend's symbol with its gaps, and of the margins.
_LETTER, _SYMBOL, _MARGINS = 6.5, 34, 30


def points_of(width: str) -> float:
    """Return a width such as 88mm, 8.8cm, 3.5in or 250pt in points. Raises UserError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(mm|cm|in|pt)", width.strip())
    points = float(found[1]) * _POINTS[found[2]] if found else 0.0
    if not _NARROWEST <= points <= _WIDEST:
        raise UserError(
            f"--width {width}: give a number from 40mm to 1000mm with its unit: mm, cm, in or pt"
        )
    return points


def drawing(figure: Figure, form: str, points: float) -> bytes:
    """Return the plot of a figure, which has one, as SVG or PDF. points: its width. Raises
    UserError if it cannot be drawn."""
    try:
        import vl_convert  # imported here, because it loads 80 MB
    except ImportError as error:
        raise UserError(f"--figures: {error}; install vl-convert-python") from None

    assert figure.plot is not None
    spec = specification(figure.plot, figure.table.rows, points / SCALE)
    try:
        # Nothing is loaded from any address.
        svg = vl_convert.vegalite_to_svg(spec, VEGA_LITE, allowed_base_urls=[])
    except ValueError as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"figure {figure.name} cannot be drawn: {why}") from None
    if form == "pdf":
        # The unit of a page of PDF is the point.
        return vl_convert.svg_to_pdf(_sized(svg, "pt", ""))
    return _sized(svg, "mm", "mm").encode()


def specification(plot: Plot, rows: Sequence[Row], pixels: float) -> dict[str, Any]:
    """Return the plot as a whole Vega-Lite specification: with its data, width and style."""
    longest = max((len(str(name)) for name in _legend(plot)), default=1)
    columns = int((pixels - _MARGINS) / (_LETTER * longest + _SYMBOL))
    # The title of x has the room below the names of the rows, too.
    is_named = plot.get("encoding", {}).get("y", {}).get("type") == "nominal"
    return {
        **plot,
        "data": {"values": [dict(row) for row in rows]},
        "width": pixels,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _config(pixels, max(1, columns), {"titleAnchor": "end"} if is_named else {}),
    }


def _legend(part: Any) -> Iterator[Any]:
    """Yield the names in the legends of a plot."""
    if isinstance(part, Mapping):
        if "field" in part:
            yield from part.get("scale", {}).get("domain", ())
        part = part.values()
    if not isinstance(part, str | int | float | None):
        for each in part:
            yield from _legend(each)


def _sized(svg: str, unit: str, written: str) -> str:
    """Return the drawing with its physical size; its content keeps its own pixels. written: the
    unit as it is written."""

    def size(found: re.Match[str]) -> str:
        width, height = (float(each) * SCALE / _POINTS[unit] for each in found.groups())
        return f'width="{width:.2f}{written}" height="{height:.2f}{written}"'

    return re.sub(r'width="([\d.]+)" height="([\d.]+)"', size, svg, count=1)


def _config(pixels: float, columns: int, of_x: Mapping[str, str]) -> dict[str, Any]:
    """Return the page's style in black on white. columns: of legends. of_x: more of the x-axis."""
    colours = {**themes()["light"], **_INK, "first": CATEGORIES[0]}
    chart = (PAGE / "chart.json").read_text(encoding="utf-8")
    text = re.sub(r'"\$(\w+)"', lambda found: json.dumps(colours[found[1]]), chart)
    config: dict[str, Any] = json.loads(text)
    config["axis"] |= {"titleLimit": pixels - _MARGINS, "labelLimit": max(150, pixels * 0.45)}
    config["axisX"] |= {**of_x, "tickCount": max(3, min(10, round(pixels / 70)))}
    config["legend"]["columns"] = columns
    return {
        **config,
        "background": "white",
        "font": "Helvetica, Arial, Liberation Sans, sans-serif",
        "padding": {"left": 1, "right": 6, "top": 3, "bottom": 1},
    }
