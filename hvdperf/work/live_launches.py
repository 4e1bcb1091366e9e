"""Groups that live side by side in a round, and run one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.plan.arms import Arm
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import Launch, Round

Progress = Callable[[str], None]
Act = Callable[[LiveLaunch, Launch], None]


@dataclass
class LiveLaunches:
    """The groups that live side by side. If one fails, the others go on without it.

    result: the round whose launches they are. failures: takes the arms that fail. progress: is
    called with a line for each of them.
    """

    result: Round
    failures: dict[Arm, Failure]
    progress: Progress
    groups: dict[Arm, LiveLaunch] = field(default_factory=dict)

    def run(self, arm: Arm, act: Act) -> None:
        """Resume the arm's group for act(), then stop it again, because an idle group burns CPU
        time that the others need. Do nothing if the arm has failed."""

        def awake(group: LiveLaunch) -> None:
            group.resume()
            act(group, self.result.of(arm))
            group.pause()

        self.guard(arm, awake)

    def run_each(self, act: Act) -> None:
        """Resume one group after the other for act()."""
        for arm in list(self.groups):
            self.run(arm, act)

    def guard(self, arm: Arm, act: Callable[[LiveLaunch], None]) -> None:
        """Call act() with the arm's group. If the group fails, end it. Do nothing if the arm has
        failed."""
        if arm not in self.groups:
            return
        try:
            act(self.groups[arm])
        except LaunchFailed as failed:
            group = self.groups.pop(arm)
            if group.was_stopped:
                # Its next launch may do better: it is missing in this round only.
                self.progress(f"left out of this round, as the session was stopped: {failed}")
                launches = self.result.launches
                launches[:] = [launch for launch in launches if launch.arm != arm]
            else:
                self.fail(arm, failed.failure)
            group.end()

    def fail(self, arm: Arm, failure: Failure) -> None:
        """Note that the arm has failed."""
        self.failures[arm] = failure
        self.progress(f"FAILED {failure}")

    def end(self) -> None:
        """End all groups at once: after Ctrl-C mpirun gives the whole session one second."""
        for group in self.groups.values():
            group.kill()
        for group in self.groups.values():
            group.end()
