"""The summary of a report, readable in ten seconds: a headline, and the cases that did not PASS."""

from __future__ import annotations

from collections.abc import Mapping

from hvdperf.report.cases import plural
from hvdperf.report.content import CaseNote, Report
from hvdperf.verdict import Verdict, counted

MEANINGS: Mapping[Verdict, str] = {
    Verdict.FAIL: "outside the limit, or crashed",
    Verdict.INVALID: "failed a validity check",
    Verdict.NOT_RUN: "could not be started",
    Verdict.INCONCLUSIVE: "too few measurements to decide",
    Verdict.PASS: "within the limit",
    Verdict.NOT_JUDGED: "shown without a limit",
}
# The verdicts that need a person's attention.
_NOT_PASSED = (Verdict.FAIL, Verdict.INVALID, Verdict.NOT_RUN, Verdict.INCONCLUSIVE)


def headline(report: Report) -> str:
    """Return a line such as "2 of 28 cases FAIL"."""
    total = sum(report.counts.values())
    if not total:
        return "Nothing was measured"
    if report.verdict is Verdict.NOT_JUDGED:
        if total > report.counts.get(Verdict.NOT_JUDGED, 0):
            return f"{plural(total, 'case')}, shown side by side"
        return f"None of {plural(total, 'case')} was judged"
    count = report.counts.get(report.verdict, 0)
    if report.verdict is Verdict.PASS:
        judged = "judged " if count < total else ""
        return f"All {count} {judged}cases PASS" if count > 1 else f"The only {judged}case: PASS"
    word = report.verdict.value
    if report.verdict is Verdict.FAIL:
        return f"{count} of {plural(total, 'case')} {word}"
    return f"{count} of {plural(total, 'case')} {'is' if count == 1 else 'are'} {word}"


def others(report: Report) -> str:
    """Return the counts that the headline leaves out, such as "3 INCONCLUSIVE, 23 PASS"; return ""
    if there are none."""
    return counted(
        {
            verdict: n
            for verdict, n in report.counts.items()
            if verdict is not report.verdict or verdict is Verdict.NOT_JUDGED
        }
    )


def blames(report: Report) -> dict[Verdict, list[CaseNote]]:
    """Return the notes of the cases that did not pass, by verdict, the worst first; a case without
    a note gets an empty one."""
    noted = {note.case for note in report.notes}
    bare = [
        CaseNote(str(row["case"]), Verdict(row["verdict"]), ())
        for row in report.board.table.rows
        if row["case"] not in noted and row["verdict"] in {each.value for each in _NOT_PASSED}
    ]
    every = [*report.notes, *bare]
    found = {
        verdict: [note for note in every if note.verdict is verdict] for verdict in _NOT_PASSED
    }
    return {verdict: notes for verdict, notes in found.items() if notes}


def neutral(report: Report) -> list[CaseNote]:
    """Return the notes of cases that need nobody's attention."""
    return [note for note in report.notes if note.verdict not in _NOT_PASSED]
