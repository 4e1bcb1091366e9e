"""The machine and the stack that were measured, and their differences from the session before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdperf.records.documents import SessionDocument
from hvdperf.records.fingerprint import Fingerprint, differences, readable
from hvdperf.report.cases import plural, several
from hvdperf.report.content import Column, Figure, Section, Table


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
    said = several([f"{row['case']} {row['before']} -> {row['verdict']}" for row in rows])
    columns = (
        Column("case", "case"),
        Column("before", f"session {earlier.session}"),
        Column("verdict", "this session"),
    )
    title = "Verdicts that changed since the last session with the same settings"
    return [Figure("changed-verdicts", title, f"{title}: {said}.", Table(columns, rows))]
