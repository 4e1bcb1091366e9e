"""One round: every arm of a workload once, in one of the two schedules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hvdperf.launch.arm_launcher import SEED
from hvdperf.launch.launchers import LaunchError
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.launch.processes import is_slot_gone
from hvdperf.models.inputs import DataError
from hvdperf.plan.arms import Arm, Schedule
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import Correctness, Evidence, Launch, Metadata, Round, StampedRun
from hvdperf.work.base import LiveLaunches, RoundRequest, RoundSettings, Work
from hvdperf.worker.protocol import Phase

# Steps of the reproducible training by which two strategies are compared. From the second step on,
# the last bit in which two orders of summation differ grows without bounds in deep networks:
# inception_v4_s at 2 replicas agreed to 3e-5 of the update after 1 step, to 1e-1 after 2 (at a
# hundredth of the learning rate, too), and not at all after 3.
CORRECTNESS_STEPS = 1


@dataclass
class RoundRunner:
    """A runner of the rounds of one workload.

    work: of the launches. check: arms that are to train reproducibly in one launch. seed:
    of training runs. last_phase: of a start-up. failures: arms that have failed; they are not
    started again. correctness: the launch in which each arm trained reproducibly.
    """

    work: Work
    schedule: Schedule
    check: Collection[Arm] = ()
    seed: int = 0
    last_phase: Phase = Phase.BROADCAST
    failures: dict[Arm, Failure] = field(default_factory=dict)
    correctness: dict[Arm, Launch] = field(default_factory=dict)

    @property
    def settings(self) -> RoundSettings:
        return self.work.settings

    def run(self, request: RoundRequest) -> Round:
        """Launch every arm of the request that has not failed."""
        result = Round(request.number, self.schedule)
        living = [arm for arm in request.arms if arm not in self.failures]
        self.settings.order.shuffle(living)
        self.work.turn_seconds = 0.0
        launcher, progress = self.settings.arm_launcher, self.settings.progress
        with launcher.forking(progress) if self.work.forks else nullcontext():
            together = [living] if self.schedule is Schedule.ALTERNATE else [[a] for a in living]
            for arms in together:
                self._measure(LiveLaunches(result, self.failures, progress), request, arms)
        return result

    def weights(self, arm: Arm) -> Path:
        """Return the path of the arm's reproducibly trained weights."""
        return self.settings.arm_launcher.scratch / f"{arm.workload.model}-{arm.label}.npz"

    def _measure(self, live: LiveLaunches, request: RoundRequest, arms: Sequence[Arm]) -> None:
        """Launch arms that live side by side; in Schedule.FRESH, one arm."""
        try:
            self._start(live, request, arms)
            self.work.measure(live, request)
            for arm in list(live.groups):
                live.guard(arm, partial(self._finish, live.result.of(arm)))
        finally:
            live.end()

    def _start(self, live: LiveLaunches, request: RoundRequest, arms: Sequence[Arm]) -> None:
        """Start the arms, as many processes at a time as there are cores, because further ones
        would only wait for each other and poll. Stop each group once it is ready."""
        deadline = self.settings.arm_launcher.startup_deadline
        self.settings.progress(_start_of(arms))
        waiting, starting = list(arms), set[Arm]()
        while waiting or starting:
            # Start any arm that fits beside those that are starting, so that no core is idle.
            while arm := next((a for a in waiting if self._has_cores_for(a, starting)), None):
                waiting.remove(arm)
                self._start_one(live, request, arm, share_startup=len(arms) > 1)
                if arm in live.groups:
                    starting.add(arm)
            self.settings.arm_launcher.hub.pump(0.1)
            for arm in list(starting):
                if live.groups[arm].settled(deadline(arm)):
                    starting.remove(arm)
                    if left := [each for each in arms if each in starting or each in waiting]:
                        self.settings.doing(_start_of(left))
                    live.guard(arm, partial(self._on_ready, live.result, arm))

    def _has_cores_for(self, arm: Arm, starting: Collection[Arm]) -> bool:
        """Return whether the arm may start beside these arms; alone it always may."""
        processes = arm.processes + sum(each.processes for each in starting)
        return not starting or processes <= self.settings.arm_launcher.cores

    def _start_one(
        self, live: LiveLaunches, request: RoundRequest, arm: Arm, share_startup: bool
    ) -> None:
        """Start an arm without waiting for it."""
        drawn = request.number + (self.seed if self.work.draws_seeds else 0)
        try:
            live.groups[arm] = self.settings.arm_launcher.start(
                arm,
                request.kinds[arm],
                data_seed=1 + drawn,
                share_startup=share_startup,
                seed=SEED + drawn if self.work.draws_seeds else SEED,
                last_phase=self.last_phase,
                common_order=self.work.validates,
            )
        except (LaunchError, DataError, OSError) as error:
            started = not is_slot_gone(error)
            live.fail(arm, Failure(arm.name, None, Phase.LAUNCH.value, str(error), started=started))

    def _on_ready(self, result: Round, arm: Arm, group: LiveLaunch) -> None:
        group.wait_ready(self.settings.arm_launcher.startup_deadline(arm))
        # The group would burn CPU time that the others need to start.
        group.pause()
        launch = Launch(
            arm,
            result.number,
            startup_seconds=group.startup_seconds(),
            metadata=group.metadata(Metadata),
        )
        result.launches.append(launch)

    def _finish(self, launch: Launch, group: LiveLaunch) -> None:
        arm = launch.arm
        deadline_s = self.settings.arm_launcher.startup_deadline(arm)
        self.settings.doing(f"check {arm.label}")
        group.resume()
        # Use the longer deadline: every rank reads all files of the data set, maybe over a network.
        launch.evidence = group.reports(Evidence, "evidence", deadline_s)
        if arm in self.check and arm not in self.correctness:
            launch.correctness = group.reports(
                Correctness,
                "correctness",
                deadline_s,
                steps=CORRECTNESS_STEPS,
                path=str(self.weights(arm)),
            )
            self.correctness[arm] = launch
        group.close(leave_group=isinstance(launch.work, StampedRun))
        if isinstance(launch.work, StampedRun):
            launch.work.timestamps = group.timestamps()


def read_weights(path: Path) -> dict[str, Any]:
    """Return the trained weights that an arm has written to path, by tensor."""
    with np.load(path) as arrays:
        return dict(arrays)


def _start_of(arms: Iterable[Arm]) -> str:
    return "start " + ", ".join(arm.label for arm in arms)
