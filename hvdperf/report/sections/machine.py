"""The machine and its stack: what disturbed it, what changed, and throughput over releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from hvdperf.machine.disturbance import DISTURBED_ABOVE, Disturbance, together
from hvdperf.records.documents import CULPRITS_KEPT, SessionDocument
from hvdperf.records.fingerprint import Fingerprint, differences, readable
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.report.words import plural, several, slug
from hvdperf.stats import spread
from hvdperf.timeline.lines import Line
from hvdperf.timeline.releases.by_release import Series, series_of
from hvdperf.timeline.releases.raw import Axis, RawResult, machine_label, order


def section(
    fingerprint: Fingerprint, session: SessionDocument | None, earlier: SessionDocument | None
) -> Section:
    """Return the section. fingerprint: of the session. session: its session.json. earlier: that of
    the last session before it with the same profile and settings. Both are None if missing."""
    figures = [_fingerprint(fingerprint, earlier)]
    if session is not None and session.changed:
        figures.append(_stacks(session.changed))
    if session is not None and earlier is not None:
        figures += _verdicts(session, earlier)
    return Section(
        "machine",
        "Machine",
        "Figures are comparable only if all of these facts are equal; a change of any of them "
        "begins a new series.",
        tuple(figures),
    )


def _fingerprint(fingerprint: Fingerprint, earlier: SessionDocument | None) -> Figure:
    before: Mapping[str, object] = fingerprint if earlier is None else earlier.fingerprint
    rows = [
        {
            "field": name,
            "value": readable(name, fingerprint),
            "before": readable(name, before),
            "changed": "changed" if name not in before or before[name] != value else "",
        }
        for name, value in fingerprint.items()
    ]
    columns = [Column("field", "field"), Column("value", "this session")]
    says = "There is no earlier session with the same settings."
    if earlier is not None:
        columns += [Column("before", f"session {earlier.session}"), Column("changed", "changed")]
        changed = differences(before, fingerprint)
        says = f"Against session {earlier.session}: "
        says += "; ".join(changed) if changed else "nothing changed"
        says += "."
    return Figure("fingerprint", "Fingerprint", says, Table(tuple(columns), tuple(rows)))


def _stacks(changed: Sequence[str]) -> Figure:
    """Return the differences between this stack and the one that it was compared with."""
    rows = tuple({"change": line} for line in changed)
    return Figure(
        "stacks",
        "Differences between the two stacks",
        f"{plural(len(rows), 'package differs', 'packages differ')}: {'; '.join(changed)}.",
        Table((Column("change", "package: there -> here"),), rows),
    )


def _verdicts(session: SessionDocument, earlier: SessionDocument) -> list[Figure]:
    """Return the cases whose verdict differs from that of the session before, in one figure."""
    then, now = earlier.verdicts or {}, session.verdicts or {}
    rows = tuple(
        {"case": name, "before": then[name].value, "verdict": word.value}
        for name, word in now.items()
        if name in then and then[name] != word
    )
    if not rows:
        return []
    said = several(f"{row['case']} {row['before']} -> {row['verdict']}" for row in rows)
    columns = (
        Column("case", "case"),
        Column("before", f"session {earlier.session}"),
        Column("verdict", "this session"),
    )
    title = "Verdicts that changed since the last session with the same settings"
    return [Figure("changed-verdicts", title, f"{title}: {said}.", Table(columns, rows))]


# The shares of the cores that are drawn over time, with names for people, by column.
SHARES = {
    "foreign": "used by other programs",
    "taken": "taken from the ranks",
    "wait": "ranks waited",
    "steal": "stolen by the hypervisor",
}
ROUNDS = (
    Column("minute", "begun", "min", 1),
    *(Column(key, title, "", 3) for key, title in SHARES.items()),
    Column("throttled", "stopped by a quota", "s", 2),
    Column("mhz", "frequency", "MHz", 0),
)
CULPRITS = (
    Column("name", "program"),
    Column("pid", "process id"),
    Column("core_share", "of one core", "", 2),
    Column("cores", "seen on cores"),
)


def disturbance(session: SessionDocument | None) -> Section | None:
    """Return the section; return None if nothing was recorded. session: its session.json."""
    rounds = session.disturbances if session is not None else ()
    whole = together(rounds)
    if whole is None:
        return None
    figures = [_over_time(whole, rounds)]
    if whole.culprits:
        figures.append(_culprits(whole))
    return Section(
        "disturbance",
        "Disturbance",
        "Use of the session's cores by other programs during timed blocks, on the host of its "
        "driver. A pair of blocks is measured again if other programs, or the CPU quota of the "
        f"session's cgroup, took more than {100 * DISTURBED_ABOVE:.0f} % of the cores from "
        "ranks that wanted to run.",
        tuple(figures),
    )


def _over_time(whole: Disturbance, rounds: Sequence[Disturbance]) -> Figure:
    rows: list[Row] = [
        {
            "minute": each.at / 60,
            "foreign": each.foreign_share,
            "taken": each.taken_share,
            "wait": each.wait_share,
            "steal": each.steal_share,
            "throttled": each.usage.throttled_seconds,
            "mhz": each.mhz,
        }
        for each in rounds
    ]
    disturbed = sum(each.is_disturbed for each in rounds)
    says = f"Other programs used {100 * whole.foreign_share:.0f} % of the cores; "
    says += f"{100 * whole.taken_share:.0f} % were taken from the ranks, and more than allowed in "
    says += f"{disturbed} of {plural(len(rounds), 'round')}."
    table = Table(ROUNDS, tuple(rows))
    return Figure("disturbance", "Cores used by others, round by round", says, table, _shares())


def _shares() -> Plot:
    y = plots.percent("value", "share of the cores")
    x = plots.field("minute", "quantitative", "minutes since the session began")
    channel = plots.distinguished(SHARES.values())
    lines = plots.curves(y, channel)
    return plots.layered(*lines, transform=plots.side_by_side(SHARES), encoding={"x": x})


def _culprits(whole: Disturbance) -> Figure:
    most = whole.culprits[:CULPRITS_KEPT]
    rows: list[Row] = [
        {
            "name": each.name,
            "pid": each.pid,
            "core_share": whole.core_share(each),
            "cores": ", ".join(map(str, each.cores)),
        }
        for each in most
    ]
    says = f"{most[0].name}, pid {most[0].pid}, used {100 * whole.core_share(most[0]):.0f} % of "
    says += "a core."
    return Figure("culprits", "Programs that used the CPU most", says, Table(CULPRITS, tuple(rows)))


RELEASES = (
    Column("horovod", "Horovod"),
    Column("tensorflow", "TensorFlow"),
    Column("replica", "each replica"),
    Column("launches", "launches"),
    Column("samples_per_second", "throughput", "samples/s", digits=1),
    Column("spread", "standard deviation, robust", "samples/s", digits=1),
)


def releases(fingerprint: Mapping[str, Any], history: Sequence[RawResult]) -> Section:
    """Return the section. fingerprint: of the session, whose machine's history is shown."""
    machine = machine_label(fingerprint)
    own = [result for result in history if result.machine == machine]
    groups: dict[tuple[str, str, int], list[tuple[Series, Line]]] = {}
    replicas: dict[str, set[str]] = {}
    for series in series_of(own):
        for line in series.lines if series.axis is Axis.HOROVOD else ():
            key = (line.model, line.replica, line.world_size)
            groups.setdefault(key, []).append((series, line))
            replicas.setdefault(line.model, set()).add(line.replica)
    return Section(
        "releases",
        "Releases",
        f"Median throughput of all replicas by release, from the raw results of {machine}; "
        "asv's pages (make history) show more.",
        tuple(
            _of_releases(alike, several_replicas=len(replicas[model]) > 1)
            for (model, _, _), alike in sorted(groups.items())
        ),
        f"The history has no results of this machine, {machine}; make backfill measures "
        "releases, make history imports sessions.",
    )


def _of_releases(alike: Sequence[tuple[Series, Line]], several_replicas: bool) -> Figure:
    """Return the figure of one network, replica and world size. several_replicas: whether the
    network was also measured with other replicas, which names must distinguish."""
    line = alike[0][1]
    model, world_size = line.model, line.world_size
    apart = (line.replica,) if several_replicas else ()
    named = ", each: ".join((f"{model} on {plural(world_size, 'replica')}", *apart))
    rows = tuple(row for series, line in alike for row in _by_version(series, line))
    newest = rows[-1]
    releases = {str(row["horovod"]) for row in rows}
    stacks = list(dict.fromkeys(str(row["tensorflow"]) for row in rows))
    return Figure(
        slug("releases", model, *apart, f"np{world_size}"),
        named,
        f"{named}, over {plural(len(releases), 'release')} of Horovod under "
        f"{plural(len(stacks), 'TensorFlow')}; with Horovod {newest['horovod']} and TensorFlow "
        f"{newest['tensorflow']} {newest['samples_per_second']:.1f} samples/s.",
        Table(RELEASES, rows),
        _releases_plot(sorted(releases, key=order(Axis.HOROVOD).__getitem__), stacks),
        {"model": model, "world_size": str(world_size)},
    )


def _by_version(series: Series, line: Line) -> Iterator[Row]:
    """Yield a row for each release, oldest first."""
    for version, speeds in series.by_version(line).items():
        yield {
            "horovod": version,
            "tensorflow": series.at,
            "replica": line.replica,
            "launches": len(speeds),
            "samples_per_second": median(speeds),
            "spread": spread(speeds),
        }


def _releases_plot(releases: Sequence[str], stacks: Sequence[str]) -> Plot:
    """Return a plot. releases, stacks: oldest first, whatever the order of the table's rows."""
    x = plots.field("horovod", "ordinal", "Horovod", sort=list(releases), axis={"labelAngle": 0})
    lines = plots.curves(
        plots.field("samples_per_second", "quantitative", "samples/s", scale={"zero": False}),
        plots.field("tensorflow", "nominal", "TensorFlow", sort=list(stacks)),
        60,
        tooltip=plots.tooltip((*RELEASES[:2], RELEASES[4], RELEASES[3])),
    )
    return plots.layered(*lines, encoding={"x": x})
