"""Rounds of configurations in turn, until every case has its verdict or time is up.

A group is what shares rounds: the comparisons of a network in a session, or a script and another
version of it. Each round measures every configuration of the group once. `in_turn` takes the rounds
of several groups side by side. Sessions, comparisons of scripts and the simulated sessions of bench
run in this loop, with these decisions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import ceil, sqrt
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from hvdperf.interim import EARLY_LOOKS, is_failing, next_look
from hvdperf.plan.profile import MOST_ROUNDS, Sampling
from hvdperf.stats import Row, turn_variance, turns_worth
from hvdperf.verdict import UNKNOWN_LAUNCH_SD, Noise, Rule

Case = TypeVar("Case")

# Turns of a round that is only shown, or whose verdict does not depend on more turns.
FEW_TURNS = 2
# Rounds of every group before any group gets more: the fewest that can decide a case.
BREADTH = EARLY_LOOKS[0]


class Budget(NamedTuple):
    """Time for work. began: when it began, by the clock `now`. seconds: how long it lasts. now: a
    monotonic clock in seconds; one that stands still while the session is stopped (Hub.now) does
    not count that time."""

    began: float
    seconds: float
    now: Callable[[], float] = time.monotonic

    def left(self) -> float:
        """Return the seconds that are left; negative past the end."""
        return self.began + self.seconds - self.now()

    def allows(self, seconds: float) -> bool:
        """Return whether work of this many seconds from now on would end in time."""
        return seconds <= self.left()


class Group(ABC, Generic[Case]):
    """Cases that are judged from common rounds.

    cases: all of them. left: those without a verdict yet. rows: for each case with turns, one row a
    round that counts: the ln ratios of its turns. done: number of rounds. seconds: of the last
    round; 0 before the first one. turn_seconds: of one of its turns; 0 if unknown.
    """

    def __init__(self, cases: Sequence[Case], sampling: Sampling, budget: Budget) -> None:
        self.cases = tuple(cases)
        self.left = list(cases)
        self.rows: dict[Case, list[Row]] = {}
        self.done = 0
        self.seconds, self.turn_seconds = 0.0, 0.0
        self.budget = budget
        self.sampling = sampling
        # If precision is asked for, the rounds that each case is likely to need.
        self.needed: dict[Case, float] = {}
        self._cost, self._turns_taken = 1.0, 0

    # What a kind of group says --------------------------------------------------------------------

    @abstractmethod
    def measure(self, wanted: Sequence[Case], turns: int) -> Mapping[Case, Row]:
        """Take a round; return the ln ratios of each case that takes turns. An empty row does not
        count, because other programs disturbed it."""

    @abstractmethod
    def judge(self, wanted: Sequence[Case]) -> None:
        """Judge these cases, and take those that need no more rounds out of `left`."""

    @abstractmethod
    def finish(self) -> None:
        """Decide the cases that are left from the rounds so far."""

    def rule(self, case: Case) -> Rule | None:
        """Return the rule of a case; None if it is only shown."""
        return None

    def noise(self, case: Case) -> Noise | None:
        """Return the noise that early looks assume; None without early looks."""
        return None

    def cost(self, wanted: Sequence[Case]) -> float:
        """Return how long a round of these cases takes, in any unit."""
        return 1.0

    def is_attributed(self, case: Case) -> bool:
        """Return whether the turns also say why a case FAILs."""
        return False

    def counted(self, case: Case) -> int:
        """Return how many rounds the verdict on a case can rest on."""
        return len(self.rows.get(case, ()))

    @property
    def may_pass_early(self) -> bool:
        return self.sampling.early

    @property
    def undecided(self) -> Sequence[Case]:
        """Return the cases that need rounds."""
        return self.left

    @property
    def shown(self) -> Sequence[Case]:
        """Return the cases without a verdict that have not been measured yet."""
        return ()

    @property
    def is_disturbed(self) -> bool:
        """Return whether other programs disturb too many rounds for a verdict."""
        return False

    def companions(self, undecided: Sequence[Case]) -> Sequence[Case]:
        """Return the cases that cost little beside those that are undecided."""
        return ()

    # The next round -------------------------------------------------------------------------------

    @property
    def is_failing(self) -> bool:
        """Return whether all undecided cases with turns would FAIL already, if an early look could
        FAIL them."""
        known = [case for case in self.undecided if case in self.rows]
        return not self.sampling.precision and bool(known) and all(map(self._fails_early, known))

    @property
    def ends_in_time(self) -> bool:
        """Return whether another round would end in time. The duration of the first round
        is unknown, and taken as 0."""
        return self.budget.allows(self._round_seconds())

    @property
    def seconds_to_look(self) -> float:
        """Return the seconds until the next look, if rounds take as long as the last one."""
        return (self.next_look() - self.count()) * self._round_seconds()

    @property
    def reaches_look(self) -> bool:
        return self.budget.allows(self.seconds_to_look)

    def take_round(self) -> None:
        """Measure one more round of the undecided cases, or of those that are only shown, and
        judge."""
        wanted, turns = self.wanted(), self.turns()
        began = self.budget.now()
        rows = self.measure(wanted, turns)
        self.seconds = self.budget.now() - began
        self._turns_taken, self._cost = turns, self.cost(wanted)
        self.done += 1
        self.keep(rows)
        self.judge(wanted)

    def keep(self, rows: Mapping[Case, Row]) -> None:
        """Add the rows of a round to those before."""
        for case, row in rows.items():
            self.rows.setdefault(case, []).extend([row] if row else [])

    def wanted(self) -> list[Case]:
        """Return the undecided cases, with those that cost little beside them. If there are none,
        return those that are only shown."""
        undecided = self.undecided
        return [*undecided, *self.companions(undecided)] if undecided else [*self.shown]

    def turns(self) -> int:
        """Return the number of turns of the next round: the fewest in the first rounds, then the
        best number for the undecided cases that are not failing (hvdperf.stats.turns_worth).

        If all cases are failing or only shown, FEW_TURNS are enough. But a failing case that is
        attributed gets the fewest of the sampling, because its turns serve that, too."""
        sampling, undecided = self.sampling, self.undecided
        few = min(FEW_TURNS, sampling.turns_min)
        if not undecided:
            return few
        if self.is_failing:
            return sampling.turns_min if any(map(self.is_attributed, undecided)) else few
        rows = [self.rows[c] for c in undecided if c in self.rows and not self._fails_early(c)]
        if self.done < BREADTH or not rows or self.turn_seconds <= 0:
            return sampling.turns_min
        apart = max(self.seconds - self._turns_taken * self.turn_seconds, 0.0)
        turn_sd = sqrt(median(map(turn_variance, rows)))
        noise = self.noise(undecided[0])
        launch_sd = noise.launch_sd if noise is not None else UNKNOWN_LAUNCH_SD
        worth = turns_worth(turn_sd, launch_sd, apart, self.turn_seconds, sampling.turns_max)
        return max(sampling.turns_min, worth)

    def next_look(self) -> int:
        """Return the number of rounds that count after which a case may be decided next. If all are
        failing, only a full look can decide."""
        looks = self.sampling.looks
        if self.sampling.precision:
            # Before the first look an interval says little of how many rounds are needed.
            if self.count() < looks[0]:
                return looks[0]
            needed = min((self.needed.get(each, 0.0) for each in self.undecided), default=0.0)
            return max(self.count() + 1, ceil(min(needed, MOST_ROUNDS)))
        return next_look(self.count(), looks, self.may_pass_early and not self.is_failing)

    def count(self) -> int:
        """Return the largest number of rounds of an undecided case, without those that other
        programs disturbed."""
        return max(map(self.counted, self.undecided), default=self.done)

    def is_final(self, case: Case) -> bool:
        """Return whether a case is at its last look, or past it."""
        return not self.sampling.precision and self.counted(case) >= self.sampling.looks[-1]

    def _fails_early(self, case: Case) -> bool:
        rule, noise = self.rule(case), self.noise(case)
        return rule is not None and noise is not None and is_failing(self.rows[case], rule, noise)

    def _round_seconds(self) -> float:
        """Return the expected seconds of the next round, in proportion to what it costs; 0 before
        the first round."""
        return self.seconds * self.cost(self.wanted()) / self._cost


def in_turn(groups: Sequence[Group[Case]], wanted: Callable[[], bool] = lambda: True) -> None:
    """Take rounds as long as there is something to decide that can be decided in time: first
    BREADTH of each group, then one of the group whose next look takes the fewest seconds. Cases
    that are only shown come last. Then decide what is left. wanted: returns whether more rounds are
    wanted; if not, what is left stays open."""
    while wanted():
        group = _next(groups)
        if group is None:
            for each in groups:
                each.finish()
            return
        group.take_round()


def _next(groups: Sequence[Group[Case]]) -> Group[Case] | None:
    """Return the group that takes the next round. Return None if no round is wanted, if none would
    end in time, or if other programs disturb every undecided group."""
    undecided = [group for group in groups if group.undecided]
    if undecided and all(group.is_disturbed for group in undecided):
        return None
    in_time = [group for group in undecided if group.ends_in_time]
    first = [group for group in in_time if group.done < BREADTH]
    if first:
        return first[0]
    if in_time:
        reaching = [group for group in in_time if group.reaches_look]
        # A failing group comes first, because its look is the surest to decide.
        return min(reaching or in_time, key=lambda it: (not it.is_failing, it.seconds_to_look))
    return next((group for group in groups if group.shown and group.ends_in_time), None)
