"""The machine and its stack, and the other programs that used its cores."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from hvdperf.machine.disturbance import DISTURBED_ABOVE, Disturbance, together
from hvdperf.records.documents import CULPRITS_KEPT
from hvdperf.records.fingerprint import Fingerprint, readable
from hvdperf.report import plots, words
from hvdperf.report.content import Field, Figure, Section, Table, value


def section(fingerprint: Fingerprint, rounds: Sequence[Disturbance]) -> Section:
    """Return the section of a session. rounds: the disturbances that it recorded."""
    fields: tuple[Field[str], ...] = (
        value("field", "field", str),
        value("value", "this session", lambda name: readable(name, fingerprint)),
    )
    table = Table.of(fingerprint, *fields)
    figures = [Figure("fingerprint", "Fingerprint", "", table)]
    whole = together(rounds)
    if whole is not None:
        figures.append(_over_time(whole, rounds))
    return Section(
        "machine",
        "Machine",
        "Results are comparable only if all facts of the fingerprint are equal; a change of any of "
        "them begins a new series. hvdperf compare shows the differences between two sessions. "
        "Other programs' use of the cores is that during timed blocks, on the host of the "
        "session's driver. A pair of blocks is measured again if other programs, or the CPU quota "
        f"of the session's cgroup, took more than {100 * DISTURBED_ABOVE:.0f} % of the cores from "
        "ranks that wanted to run.",
        tuple(figures),
    )


# Disturbance -----------------------------------------------------------------------------------

# The shares of the cores that are drawn over time, with names for people, by column.
SHARES = {
    "foreign": "used by other programs",
    "taken": "taken from the ranks",
    "wait": "ranks waited",
    "steal": "stolen by the hypervisor",
}


ROUNDS: tuple[Field[Disturbance], ...] = (
    value("minute", "begun", lambda each: each.at / 60, "min", 1),
    *(value(key, title, attrgetter(f"{key}_share"), digits=3) for key, title in SHARES.items()),
    value("throttled", "stopped by a quota", lambda each: each.usage.throttled_seconds, "s", 2),
    value("mhz", "frequency", lambda each: each.mhz, "MHz", 0),
)


def _over_time(whole: Disturbance, rounds: Sequence[Disturbance]) -> Figure:
    disturbed = sum(each.is_disturbed for each in rounds)
    rows = Table.of(rounds, *ROUNDS)
    most = words.several(
        f"{each.name} (pid {each.pid}) {100 * whole.core_share(each):.0f} % of a core"
        for each in whole.culprits[:CULPRITS_KEPT]
    )
    return Figure(
        "disturbance",
        "Cores used by others, round by round",
        f"Other programs used {100 * whole.foreign_share:.0f} % of the cores; "
        f"{100 * whole.taken_share:.0f} % were taken from the ranks, and more than allowed in "
        f"{disturbed} of {words.plural(len(rounds), 'round')}."
        + (f" Programs that used the CPU most: {most}." if most else ""),
        rows,
        plots.curve(
            rows,
            plots.axis(rows, "minute", "minutes since the session began"),
            plots.field("value", title="share of the cores", axis={"format": ".0%"}),
            sides=tuple(SHARES),
        ),
    )
