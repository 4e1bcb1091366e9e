"""The recordings of the truth table, and the rules that are tried on them: when a performance gate
says that something is slower.

A recording is one network of one session of the profile `truth`: in every round a healthy arm, a
second healthy one, and an arm for each fault, side by side. results/truth/ has the documents of
these sessions.

Each rule but ours is written anew from its public document, which the page of the table names. A
rule is tried at every round of a recording, on every arm: the arm is the candidate, and what the
rule compares it with are healthy runs (launches of the arm `none`). A trial that needs more rounds
than are left goes on with the first ones of the same recording.
"""

from __future__ import annotations

import lzma
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import ClassVar, NamedTuple

from hvdperf.errors import UserError, refusing
from hvdperf.interim import EARLY_LOOKS, judge_rounds
from hvdperf.paths import ROOT, shown
from hvdperf.plan.arms import AA, BlockKind
from hvdperf.plan.questions import fault_cases
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import ROUNDS, SESSION_FILE, SessionDocument
from hvdperf.records.rounds import Block, Launch, Round, back_to_back
from hvdperf.stats import Row, turn_correlation
from hvdperf.verdict import REGRESSION, UNKNOWN_LAUNCH_SD, Noise, Verdict
from hvdperf.work.blocks import Blocks

DATA = ROOT / "results" / "truth"
ENDING = ".tar.xz"
# The arms without a fault: the one that all others are compared with, and one as good.
NONE, SAME = "none", AA
# With fewer rounds, a rule that needs several would only see the same ones again.
FEWEST_ROUNDS = 12

# Looks of the profile `nightly`, which leaves the least undecided.
LOOKS = (8, 12, 24)
# Healthy runs that a rule with a history has on file.
HISTORY = 8


# Recordings -------------------------------------------------------------------------------------


def add(directory: Path, data: Path) -> str:
    """Add the documents of a session to the data set, and return its name. directory: such as
    results/runs/20260131T235959Z-4711. Raises UserError and OSError."""
    archive = read_session(directory)
    recordings(archive)
    data.mkdir(parents=True, exist_ok=True)
    with tarfile.open(data / f"{archive.name}{ENDING}", "w:xz") as packed:
        for name in (SESSION_FILE, ROUNDS):
            packed.add(directory / name, f"{archive.name}/{name}")
    return archive.name


def read(data: Path) -> list[Recorded]:
    """Return all recordings of a data set, by the names of their sessions and of their networks.
    Raises UserError."""
    paths, found = sorted(data.glob(f"*{ENDING}")), list[Recorded]()
    if not paths:
        raise UserError(f"{shown(data)}: there is no recording in it")
    for path in paths:
        with (
            TemporaryDirectory() as scratch,
            refusing(f"{shown(path)}: ", tarfile.TarError),
            refusing(f"{shown(path)}: ", lzma.LZMAError),
            tarfile.open(path) as packed,
        ):
            packed.extractall(scratch, filter="data")
            found += recordings(read_session(Path(scratch) / path.name.removesuffix(ENDING)))
    return known_to_each_other(found)


def recordings(archive: Archive) -> list[Recorded]:
    """Return the recordings of a session, one for each of its networks that had faults. Raises
    UserError if the session has not ended, has too few rounds, or if no fault was planted."""
    session, place = archive.session, shown(archive.directory)
    if archive.unfinished:
        raise UserError(archive.unfinished)
    count = sum(len(each.launches) for of in archive.rounds.values() for each in of.values())
    found = []
    for group, rounds in archive.rounds.items():
        arms = {launch.arm for each in rounds.values() for launch in each.launches if launch.blocks}
        if not any(arm.injected for arm in arms):
            continue
        whole = [
            each
            for _, each in sorted(rounds.items())
            if sum(bool(launch.blocks) for launch in each.launches) == len(arms)
        ]
        if len(whole) < FEWEST_ROUNDS:
            raise UserError(
                f"{place}: {group.workload.model} has {len(whole)} whole rounds, fewer than "
                f"{FEWEST_ROUNDS}"
            )
        found.append(Recorded(session, whole, count))
    if not found:
        raise UserError(f"{place}: no fault was planted in its rounds")
    return found


# What rules see ---------------------------------------------------------------------------------


class Figures(NamedTuple):
    """What rules see of one run: its blocks, one a turn.

    step: mean seconds of a step. steps: seconds of each step, of the slowest rank. seconds: that
    the run took, with its start.
    """

    step: float
    steps: Sequence[float]
    seconds: float


class Pair(NamedTuple):
    """A round of two arms as our rule sees it. row: ln speed of the candidate over that of the
    healthy arm, one a turn; () if other programs disturbed the round. seconds: that both took."""

    row: Row
    seconds: float


class Recorded:
    """A network of a session, as rules see it. rounds: in each, all arms lived side by side.
    launches: their number in the whole session. others: recordings of the same network at other
    times."""

    def __init__(self, session: SessionDocument, rounds: Sequence[Round], launches: int) -> None:
        self.session, self.rounds, self.count = session, rounds, len(rounds)
        self.network = rounds[0].launches[0].arm.workload.model
        self.launches = [{_arm_of(each): each for each in of.launches} for of in rounds]
        self.share = self.count * len(self.launches[0]) / launches
        self.others: Sequence[Recorded] = ()

    @property
    def candidates(self) -> list[str]:
        return [arm for arm in self.launches[0] if arm != NONE]

    @cached_property
    def rest_seconds(self) -> float:
        """Seconds of a launch that are neither its start nor its timed steps: its processes start
        and end. They are what the session took beyond all of these, shared by all launches."""
        launches = [launch for of_round in self.launches for launch in of_round.values()]
        recorded = sum(_start_seconds(each) + each.timed_seconds for each in launches)
        return max(0.0, self.share * self.session.elapsed_seconds - recorded) / len(launches)

    @cached_property
    def runs(self) -> Mapping[str, Sequence[Figures]]:
        """Return the figures of every run, by arm and round."""
        return {
            arm: [_figures(of_round[arm], self.rest_seconds) for of_round in self.launches]
            for arm in self.launches[0]
        }

    def some(self, arm: str, begin: int, count: int) -> list[Figures]:
        """Return the figures of that many runs from a round on; after the last comes the first."""
        return [self.runs[arm][number % self.count] for number in range(begin, begin + count)]

    @cached_property
    def pairs(self) -> Mapping[str, Sequence[Pair]]:
        """Return the pairs of a candidate and a healthy run, by candidate and round."""
        return {arm: [self._pair(arm, n) for n in range(self.count)] for arm in self.candidates}

    def _pair(self, arm: str, number: int) -> Pair:
        ours, theirs = (self.launches[number][name] for name in (arm, NONE))
        asked = fault_cases(ours.arm.workload, ours.arm.world_size)
        comparison = next(each for each in asked if each.candidate.arm == ours.arm)
        timed = back_to_back(_timed(ours), _timed(theirs))
        seconds = sum(one.seconds + other.seconds for one, other in timed)
        starts = sum(_start_seconds(each) + self.rest_seconds for each in (ours, theirs))
        return Pair(Blocks.observe(comparison, self.rounds[number]), starts + seconds)


def _arm_of(launch: Launch) -> str:
    return launch.arm.injected or NONE


def _timed(launch: Launch) -> list[Block]:
    """Return the blocks of whole steps."""
    return launch.of_kind(BlockKind.FULL)


def _start_seconds(launch: Launch) -> float:
    """Return the seconds of the start of the slowest rank, with the warm-up."""
    warm_up = sum(block.seconds for block in launch.warm_up)
    return max(sum(phases.values()) for phases in launch.startup_seconds) + warm_up


def _figures(launch: Launch, rest_seconds: float) -> Figures:
    # The healthy arm is compared with several others, so it has several blocks a turn.
    blocks = list({block.turn: block for block in reversed(_timed(launch))}.values())[::-1]
    seconds = sum(block.seconds for block in blocks)
    return Figures(
        seconds / sum(block.steps for block in blocks),
        [
            max(of_step)
            for block in blocks
            for of_step in zip(*(rank.step_seconds for rank in block.ranks), strict=True)
        ],
        _start_seconds(launch) + rest_seconds + seconds,
    )


# Where a rule's healthy runs come from: of a recording, that many for a round -------------------

Healthy = Callable[[Recorded, int, int], list[Figures] | None]


def before(recorded: Recorded, number: int, count: int) -> list[Figures] | None:
    """Return the healthy runs of the rounds before."""
    return recorded.some(NONE, number - count, count)


def another_session(recorded: Recorded, number: int, count: int) -> list[Figures] | None:
    """Return healthy runs of another session of the network, the next one in order; None if there
    is none."""
    return recorded.others[0].some(NONE, number, count) if recorded.others else None


# Rules ------------------------------------------------------------------------------------------


class Said(Enum):
    """What a rule says of a candidate."""

    SLOWER = "slower"
    FINE = "fine"
    NOTHING = "no verdict"


class Decision(NamedTuple):
    """What a rule said, after how many seconds of measuring, and from how many rounds of the
    candidate."""

    said: Said
    seconds: float
    rounds: int


@dataclass(frozen=True)
class Rule(ABC):
    """A gate. The page of the truth table has its source, and what it is given."""

    # Whether it is this suite's own.
    ours: ClassVar[bool] = False

    name: str

    @abstractmethod
    def decide(self, recorded: Recorded, arm: str, number: int) -> Decision | None:
        """Decide on a candidate in a round; None if the recording has no such trial."""


def decided(slower: bool, seconds: float, rounds: int = 1) -> Decision:
    return Decision(Said.SLOWER if slower else Said.FINE, seconds, rounds)


@dataclass(frozen=True)
class Compared(Rule):
    """A rule that compares the mean steps of `count` runs with those of `known` healthy ones.
    slower: its test, of the values of both. on_file: whether the healthy runs are there, and not
    measured for it. by_step: whether it compares all steps of the runs."""

    slower: Callable[[Sequence[float], Sequence[float]], bool]
    healthy: Healthy
    known: int = 1
    count: int = 1
    on_file: bool = False
    by_step: bool = False

    def decide(self, recorded: Recorded, arm: str, number: int) -> Decision | None:
        references = self.healthy(recorded, number, self.known)
        if references is None:
            return None
        runs = recorded.some(arm, number, self.count)
        seconds = sum(run.seconds for run in [*runs, *(() if self.on_file else references)])
        ours, theirs = (
            [value for run in side for value in (run.steps if self.by_step else [run.step])]
            for side in (runs, references)
        )
        return decided(self.slower(ours, theirs), seconds, self.count)


def ratio_above(limit: float) -> Callable[[Sequence[float], Sequence[float]], bool]:
    """Return the test whether steps take `limit` times as long as the healthy ones, or longer."""
    return lambda ours, theirs: fmean(ours) >= limit * fmean(theirs)


def welch(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return whether ours are longer by Welch's t-test, at 5 % two-sided."""
    from scipy.stats import ttest_ind  # imported here, because the import takes seconds

    return bool(ttest_ind(ours, theirs, equal_var=False, alternative="greater").pvalue < 0.025)


def mann_whitney(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return whether ours are longer by the test of Mann and Whitney, at 5 % two-sided."""
    from scipy.stats import mannwhitneyu

    return bool(mannwhitneyu(ours, theirs, alternative="greater").pvalue < 0.025)


def beyond_3_sds(ours: Sequence[float], past: Sequence[float]) -> bool:
    """Return whether a step is longer than the mean by more than three standard deviations."""
    return ours[0] > fmean(past) + 3 * stdev(past)


@dataclass(frozen=True)
class OfRounds(Rule):
    """Our rule: pairs of launches in rounds, until a look decides. most: rounds after which it has
    to end; None for as many as the recording has."""

    ours: ClassVar[bool] = True

    most: int | None = None

    def decide(self, recorded: Recorded, arm: str, number: int) -> Decision | None:
        rows: list[Row] = []
        seconds, rounds = 0.0, min(self.most or recorded.count, recorded.count)
        for taken in range(1, rounds + 1):
            pair = recorded.pairs[arm][(number + taken - 1) % recorded.count]
            seconds += pair.seconds
            rows += [pair.row] if pair.row else []
            last = taken == rounds
            if not rows or not (last or len(rows) in (*EARLY_LOOKS, *LOOKS)):
                continue
            noise = Noise(UNKNOWN_LAUNCH_SD, turn_correlation([rows]))
            verdict = judge_rounds(rows, REGRESSION, LOOKS, noise, forced=last).verdict
            if verdict in (Verdict.PASS, Verdict.FAIL):
                return decided(verdict is Verdict.FAIL, seconds, taken)
        return Decision(Said.NOTHING, seconds, rounds)


GOLDEN = Compared("golden, 5 %", ratio_above(1.05), another_session, on_file=True)
SDS = Compared("mean + 3 sd", beyond_3_sds, before, HISTORY, on_file=True)
T_TEST = Compared("t-test on steps", welch, before, by_step=True)
BENCHSTAT, BENCHSTAT_T = (
    Compared(f"benchstat, {LOOKS[0]} runs{words}", test, before, LOOKS[0], LOOKS[0])
    for test, words in ((mann_whitney, ""), (welch, ", t-test"))
)
TRACEML_3, TRACEML_8 = (
    Compared(f"TraceML compare, {percent} %", ratio_above(1 + percent / 100), before)
    for percent in (3, 8)
)
OURS = OfRounds("hvdperf, in its own time")
CUT = tuple(
    OfRounds(f"hvdperf, cut to {rounds} round{'s' * (rounds > 1)}", rounds) for rounds in (1, 3, 8)
)
RULES: Sequence[Rule] = (
    *(GOLDEN, SDS, T_TEST, BENCHSTAT, BENCHSTAT_T, TRACEML_3, TRACEML_8),
    *(OURS, *CUT),
)


def known_to_each_other(found: list[Recorded]) -> list[Recorded]:
    """Return recordings, of which each knows the others of its network, the next one first."""
    for network in {each.network for each in found}:
        same = [each for each in found if each.network == network]
        for place, each in enumerate(same):
            each.others = [*same[place + 1 :], *same[:place]]
    return found
