"""What the verdicts of a session mean for pytest: its exit status, and why a case failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hvdperf.columns import figure_text
from hvdperf.records.outcome import Outcome
from hvdperf.verdict import Verdict, confidence, must_be

# Exit statuses; the worst verdict of a session decides, in the order of hvdperf.verdict.Verdict.
EXIT_STATUS = {
    Verdict.FAIL: 1,
    Verdict.INVALID: 7,
    Verdict.NOT_RUN: 10,
    Verdict.INCONCLUSIVE: 6,
    Verdict.PASS: 0,
}
NOTHING_MEASURED = 5
# The machine is not fit to measure, and --require-fit was given; also that of `hvdperf doctor`.
UNFIT = 9
# Instead of 0, if something could not be written.
NOT_WRITTEN = 8
_MEANINGS = {
    Verdict.FAIL: "missed their limit or crashed",
    Verdict.INVALID: "cannot be trusted",
    Verdict.NOT_RUN: "could not be started",
    Verdict.INCONCLUSIVE: "could not be decided",
}
_STATUSES = {
    1: "something other than a case failed (see above)",
    2: "interrupted; the cases decided so far are kept",
    4: "bad input (see the error)",
    NOTHING_MEASURED: "no case was judged",
    UNFIT: "this machine is not fit to measure, so nothing was measured (--require-fit)",
    NOT_WRITTEN: "all PASS, but some results were not written (see above)",
}


def exit_status(verdicts: Sequence[Verdict], inconclusive_is_ok: bool = False) -> int:
    """Return the exit status of the worst verdict. It is 0 only if at least one case was judged and
    all judged cases PASS, or are INCONCLUSIVE where that is allowed."""
    for verdict, status in EXIT_STATUS.items():
        if verdict in verdicts:
            return 0 if inconclusive_is_ok and verdict is Verdict.INCONCLUSIVE else status
    return NOTHING_MEASURED


def ending(status: int, verdicts: Sequence[Verdict]) -> str:
    """Return the meaning of the session's exit status, in one line. verdicts: on all of its
    cases."""
    count = Counter(verdicts)
    word = next((word for word, each in EXIT_STATUS.items() if each == status), None)
    told = _STATUSES.get(status, "pytest itself failed")
    if status == 0:
        told = f"{count[Verdict.PASS]} PASS"
        if count[Verdict.INCONCLUSIVE]:
            told += f", {count[Verdict.INCONCLUSIVE]} INCONCLUSIVE, which --inconclusive=ok allows"
    elif word is not None and count[word]:
        judged = sum(count[each] for each in EXIT_STATUS)
        told = f"{word.value}, {count[word]} of {judged} cases {_MEANINGS[word]} (see above)"
    return f"exit status {status}: {told}"


def explanation(outcome: Outcome) -> str:
    """Return the explanation of a case that did not pass: its reason, and the end of the rank's
    stderr if a launch failed."""
    judgement, failure = outcome.judgement, outcome.failure
    parts = [f"{judgement.verdict.value}  {outcome.comparison.name}"]
    if judgement.figure is not None:
        covered = 100 * confidence(judgement.figure, judgement.rule, judgement.fail_alpha)
        held_to = f", limit {must_be(judgement)}" if judgement.rule else ""
        parts.append(
            f"  figure {figure_text(judgement.figure)} ({covered:.0f} % interval, "
            f"{judgement.rounds} rounds){held_to}"
        )
    if judgement.reason:
        parts.append(f"  {judgement.reason}")
    if failure is not None and failure.tail:
        parts.append("  the end of its stderr:")
        parts += [f"    {text}" for text in failure.tail]
    return "\n".join(parts)
