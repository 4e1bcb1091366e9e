"""A pytest plugin with which a session starts no ranks: `python -m pytest -p` and this module.

Its rounds are made up, and take a moment each. All else of the session is real: options, plan,
budget, verdicts, documents, report, terminal. Of the environment, MADE_UP_PAIR is by what factor
the first group of an A/A pair is faster than the other one, and MADE_UP_SECONDS a round's time.
"""

from __future__ import annotations

import os
import time
from typing import Any

from hvdperf.plan.arms import AA, Arm, Schedule, Side
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import Launch, Round
from hvdperf.session import scheduler
from hvdperf.work.base import RoundRequest, Work
from hvdperf.work.blocks import turns_of
from hvdperf.worker.protocol import Phase
from tests.support.rounds import launch_without_model, series
from tests.support.sessions import MadeUpRunner, Script, level

ROUND_S = float(os.environ.get("MADE_UP_SECONDS", "0.4"))


def speed(side: Side, number: int) -> float:
    """Return samples per second."""
    twin = float(os.environ.get("MADE_UP_PAIR", "1")) if side.arm.injected == AA else 1.0
    return level(side, number) * twin


class Runner(MadeUpRunner):
    """A stand-in for hvdperf.work.round_runner.RoundRunner. Of injected faults it knows `hang`,
    and all others as an exception."""

    def __init__(self, work: Work, schedule: Schedule, **given: Any) -> None:
        launcher = work.settings.arm_launcher
        self._fault: Any = launcher.fault
        self._transfers = work.settings.transfers
        script = Script(launcher.scratch, speed=speed, spoil=self._exchange)
        super().__init__(script, work, schedule, **given)

    def run(self, request: RoundRequest) -> Round:
        self.turns, self.kinds = request.turns, request.kinds
        living = [arm for arm in request.arms if arm not in self.failures]
        self._say("start " + ", ".join(arm.label for arm in living))
        struck = [arm for arm in living if self._strikes(arm)]
        hangs = struck and self._fault.kind == "hang"
        time.sleep(60 if hangs else ROUND_S)
        for arm in struck:
            self.failures[arm] = Failure(
                arm.name, self._fault.rank, Phase.BLOCK.value, "InjectedFault: made up"
            )
        launches = [self._launch(arm, request.number) for arm in living if arm not in struck]
        return Round(request.number, self.schedule, launches)

    def _strikes(self, arm: Arm) -> bool:
        fault = self._fault
        return fault is not None and fault.strikes(arm) and fault.rank < arm.processes

    def _exchange(self, launched: Launch) -> None:
        transfers = self._transfers.get(launched.arm, ())
        if not launched.blocks and transfers:
            bare = launch_without_model(launched.arm)
            launched.startup_seconds, launched.metadata = bare.startup_seconds, bare.metadata
        turns_of(launched).series = [
            series(0.01, transfer, turn, launched.arm.processes)
            for turn in range(max(1, self.turns))
            for transfer in transfers
        ]


scheduler.RoundRunner = Runner  # type: ignore[assignment, attr-defined]
