"""`--propose-thresholds FILE`: thresholds for this machine, from what a session has measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.judge.outcome import Outcome
from hvdperf.machine.host import Machine
from hvdperf.machine.placement import Slot
from hvdperf.plan.thresholds import case_of, propose
from hvdperf.toml_file import shown
from hvdperf.verdict import FEWEST_ROUNDS, Verdict


def check_place(path: Path) -> None:
    """Before anything is measured. Raises UserError where no new file can be written."""
    if os.path.lexists(path):
        why = "is there already; give the name of a new file, and take from it what you want"
    elif not path.parent.is_dir():
        why = f"there is no directory {shown(path.parent)}"
    elif not os.access(path.parent, os.W_OK):
        why = f"{shown(path.parent)} cannot be written"
    else:
        return
    raise UserError(f"--propose-thresholds {path}: {why}")


def propose_into(
    path: Path, outcomes: Iterable[Outcome], slots: Sequence[Slot], machine: Machine, rounds: int
) -> str:
    """Write thresholds that what was measured would PASS, in a file that --thresholds takes; in
    words, what was done. rounds: how many a session can afford. Raises OSError, and UserError where
    no threshold can be proposed."""
    measured = {
        case_of(outcome.comparison, slots): outcome.observations
        for outcome in outcomes
        if len(outcome.observations) >= FEWEST_ROUNDS and _is_sound(outcome)
    }
    if not measured:
        return f"no thresholds proposed: no case has {FEWEST_ROUNDS} rounds that can be trusted"
    write_whole(path, propose(measured, rounds, machine))
    return f"thresholds for {len(measured)} cases proposed in {path}"


def _is_sound(outcome: Outcome) -> bool:
    """Nothing was planted, and the evidence is not against it; that nobody has set a threshold yet
    is no reason."""
    invalid = outcome.judgement.verdict is Verdict.INVALID and not outcome.threshold_line
    return not (invalid or outcome.comparison.is_trial)
