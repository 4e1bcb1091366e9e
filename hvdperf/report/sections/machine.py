"""The machine and its stack: what disturbed it, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from hvdperf.machine.disturbance import DISTURBED_ABOVE, Disturbance, together
from hvdperf.records.documents import CULPRITS_KEPT, SessionDocument
from hvdperf.records.fingerprint import Fingerprint, differences, readable
from hvdperf.report import plots, words
from hvdperf.report.content import Field, Figure, Section, Table, value


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


def _of_itself(key: str, title: str) -> Field[str]:
    """Return the field of a text that is a row's subject."""
    return value(key, title, str)


def _fingerprint(fingerprint: Fingerprint, earlier: SessionDocument | None) -> Figure:
    fields: list[Field[str]] = [
        _of_itself("field", "field"),
        value("value", "this session", lambda name: readable(name, fingerprint)),
    ]
    says = "There is no earlier session with the same settings."
    if earlier is not None:
        now: Mapping[str, object] = fingerprint
        before: Mapping[str, object] = earlier.fingerprint

        def changed(name: str) -> str:
            return "changed" if name not in before or before[name] != now[name] else ""

        fields += [
            value("before", f"session {earlier.session}", lambda name: readable(name, before)),
            value("changed", "changed", changed),
        ]
        differs = "; ".join(differences(before, fingerprint)) or "nothing changed"
        says = f"Against session {earlier.session}: {differs}."
    return Figure("fingerprint", "Fingerprint", says, Table.of(fingerprint, *fields))


def _stacks(changed: Sequence[str]) -> Figure:
    """Return the differences between this stack and the one that it was compared with."""
    many = words.plural(len(changed), "package differs", "packages differ")
    return Figure(
        "stacks",
        "Differences between the two stacks",
        f"{many}: {'; '.join(changed)}.",
        Table.of(changed, _of_itself("change", "package: there -> here")),
    )


def _verdicts(session: SessionDocument, earlier: SessionDocument) -> Iterator[Figure]:
    """Yield the cases whose verdict differs from that of the session before, in one figure."""
    then, now = earlier.verdicts or {}, session.verdicts or {}
    changed = [name for name, word in now.items() if then.get(name, word) != word]
    if not changed:
        return
    said = words.several(f"{name} {then[name].value} -> {now[name].value}" for name in changed)
    rows = Table.of(
        changed,
        _of_itself("case", "case"),
        value("before", f"session {earlier.session}", lambda name: then[name].value),
        value("verdict", "this session", lambda name: now[name].value),
    )
    title = "Verdicts that changed since the last session with the same settings"
    yield Figure("changed-verdicts", title, f"{title}: {said}.", rows)


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
    disturbed = sum(each.is_disturbed for each in rounds)
    rows = Table.of(rounds, *ROUNDS)
    return Figure(
        "disturbance",
        "Cores used by others, round by round",
        f"Other programs used {100 * whole.foreign_share:.0f} % of the cores; "
        f"{100 * whole.taken_share:.0f} % were taken from the ranks, and more than allowed in "
        f"{disturbed} of {words.plural(len(rounds), 'round')}.",
        rows,
        plots.curve(
            rows,
            plots.axis(rows, "minute", "minutes since the session began"),
            plots.field("value", title="share of the cores", axis={"format": ".0%"}),
            sides=tuple(SHARES),
        ),
    )


def _culprits(whole: Disturbance) -> Figure:
    most = whole.culprits[:CULPRITS_KEPT]
    return Figure(
        "culprits",
        "Programs that used the CPU most",
        f"{most[0].name}, pid {most[0].pid}, used {100 * whole.core_share(most[0]):.0f} % of "
        "a core.",
        Table.of(
            most,
            value("name", "program", lambda each: each.name),
            value("pid", "process id", lambda each: each.pid),
            value("core_share", "of one core", whole.core_share, digits=2),
            value("cores", "seen on cores", lambda each: ", ".join(map(str, each.cores))),
        ),
    )
