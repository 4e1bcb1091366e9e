"""Whole sessions with made-up noise, judged by the real rule: how often their verdicts err, and how
long they take. Nothing is measured, so the figures do not depend on the machine.

Arms of a workload are launched once a round and take turns, and comparisons share arms, as in the
default profile on two cores. hvdperf.interim judges each comparison at every look. The noise that
it assumes comes from the turns of the whole session and from the noise record of earlier sessions
of the same machine. `python -m bench rates simulation` prints the tables on which
docs/error_rates.md is based.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import numpy as np

from bench import simulator
from bench.simulator import Array, Generator, Part, Table, drawn
from hvdperf import verdict
from hvdperf.interim import judge_pair, judge_rounds
from hvdperf.judge.trust import is_outside
from hvdperf.machine.noise_record import LEAST_LAUNCH_SD, Load, MachineRecord, Sessions, Variances
from hvdperf.plan import questions
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.profile import Sampling
from hvdperf.session.scheduler import launch_variances, starts_of
from hvdperf.stats import Row, turn_correlation
from hvdperf.verdict import Band, Floor, Judgement, Rule, Verdict
from hvdperf.work.in_turn import BREADTH, Budget, Group, in_turn

# Kinds of noise: whatever has a standard deviation is drawn like this.
NOISES = {
    "normal": Part(1.0, ()),
    "Student t5": Part(1.0, (), simulator.student(5)),
    "5 % outliers x5": Part(1.0, (), simulator.outliers),
    "rounds AR(1) 0.5": Part(1.0, (), near={"round": 0.5}),
    "turns AR(1) 0.5": Part(1.0, (), near={"turn": 0.5}),
    "both AR(1) 0.5": Part(1.0, (), near={"turn": 0.5, "round": 0.5}),
}

# Turns of a launch, at most, as in the profiles.
MOST_TURNS = Sampling.turns_max
# By network of the default profile, on two cores and with cheap starts: seconds of a round apart
# from its turns, and seconds of a turn.
SECONDS = {"vgg_16_s": (16.0, 2.65), "resnet_50_s": (16.5, 2.45), "googlenet_s": (12.2, 2.0)}


@dataclass(frozen=True, eq=False)
class Machine:
    """The scatter of ratios of two arms on a machine. turns, launches: by number of replicas, the
    standard deviation of ln ratio from turn to turn, and from launch to launch beyond it."""

    name: str
    turns: Mapping[int, float]
    launches: Mapping[int, float]


# Measured in thirteen quiet sessions; in one session beside other programs; and in one session of
# four slots on two cores beside other programs.
QUIET = Machine("quiet", {1: 0.038, 2: 0.038}, {1: 0.015, 2: 0.015})
BUSY = Machine("A", {1: 0.087, 2: 0.179}, {1: 0.0, 2: 0.0})
CONTENDED = Machine("B", {1: 0.059, 2: 0.182, 4: 0.218}, {1: 0.019, 2: 0.108, 4: 0.077})
MACHINES = (QUIET, BUSY, CONTENDED)


@dataclass(frozen=True, eq=False)
class Case:
    """A comparison, its rule, and its true figure."""

    comparison: Comparison
    rule: Rule
    figure: float = 1.0

    @cached_property
    def load(self) -> Load:
        """Return the load of this comparison on two cores."""
        loads = {1: Load.ONE_REPLICA, 2: Load.SEVERAL}
        return loads.get(self.comparison.world_size, Load.OVERSUBSCRIBED)

    @property
    def is_pair(self) -> bool:
        return self.comparison.judged_as is JudgedAs.AA_PAIR


def asked(sizes: Sequence[int], models: Sequence[str] = ("vgg_16_s",)) -> list[Comparison]:
    """Return the judged comparisons of the default profile."""
    several = questions.weak_scaling, questions.strong_scaling, questions.communication
    found = []
    for model in models:
        workload = Workload(model, "cifar10", 32, batch=32)
        found += [questions.parity(workload, size) for size in sizes]
        found += [ask(workload, size) for size in sizes if size > 1 for ask in several]
    return found


def asked_against(sizes: Sequence[int]) -> list[Comparison]:
    """Return the judged comparisons of two stacks."""
    return [found for each in asked(sizes) if (found := questions.against(each)) is not None]


def identical(sizes: Sequence[int]) -> list[Comparison]:
    return [questions.aa(Workload("vgg_16_s", "cifar10", 32, batch=32), size) for size in sizes]


# One session -----------------------------------------------------------------------------------


@dataclass
class Session:
    """A made-up session, which takes rounds until every case is decided, or until the last look.

    drawn: by case, the ln ratios of all possible turns, [rounds, turns]. looks: the full ones.
    known: the known noise of the machine, by load. ends: number of rounds of each network after
    which the clock ends the session; 0 for the last look. parts: numbers of rounds after which the
    clock ends a part of the session; undecided cases are then resumed.
    """

    drawn: Mapping[Case, Array]
    looks: tuple[int, ...]
    known: Mapping[Load, verdict.Noise]
    ends: int = 0
    parts: Collection[int] = ()
    judged: dict[Case, Judgement] = field(default_factory=dict)
    seconds: float = 0.0
    networks: Sequence[Network] = ()

    def run(self) -> None:
        of_models: dict[str, list[Case]] = {}
        for case in self.drawn:
            of_models.setdefault(case.comparison.workload.model, []).append(case)
        self.networks = [Network(self, cases) for cases in of_models.values()]
        in_turn(self.networks)

    @property
    def rows(self) -> dict[Case, list[Row]]:
        return {case: rows for each in self.networks for case, rows in each.rows.items()}

    def judge(self, case: Case, forced: bool) -> Judgement:
        correlation = turn_correlation(list(self.rows.values()))
        known = replace(self.known[case.load], correlation=correlation)
        judge = judge_pair if case.is_pair else judge_rounds
        self.judged[case] = judge(self.rows[case], case.rule, self.looks, known, forced)
        return self.judged[case]


class Network(Group[Case]):
    """The cases of one network of a made-up session."""

    def __init__(self, session: Session, cases: Sequence[Case]) -> None:
        budget = Budget(0.0, math.inf, lambda: session.seconds)
        super().__init__(cases, Sampling(session.looks), budget)
        self.session = session

    def measure(self, wanted: Sequence[Case], turns: int) -> dict[Case, Row]:
        apart, turn_seconds = SECONDS[wanted[0].comparison.workload.model]
        share = self.cost(wanted) / self.cost(self.cases)
        self.turn_seconds = turn_seconds * share
        self.session.seconds += apart * share + turns * self.turn_seconds
        return {case: self.session.drawn[case][self.done, :turns].tolist() for case in wanted}

    def judge(self, wanted: Sequence[Case]) -> None:
        for case in wanted:
            judgement = self.session.judge(case, self.done in self.session.parts)
            settles = judgement.verdict is not Verdict.INCONCLUSIVE
            if case.is_pair and judgement.verdict is not Verdict.FAIL:
                settles = self.done >= BREADTH and not is_outside(judgement)
            if settles or self.is_final(case):
                self.left.remove(case)

    def finish(self) -> None:
        for case in self.left:
            self.session.judge(case, forced=True)

    @property
    def ends_in_time(self) -> bool:
        return self.done < (self.session.ends or self.session.looks[-1])

    def rule(self, case: Case) -> Rule:
        return case.rule

    def noise(self, case: Case) -> verdict.Noise:
        return self.session.known[case.load]

    def cost(self, wanted: Sequence[Case]) -> float:
        return starts_of(case.comparison for case in wanted)

    def is_attributed(self, case: Case) -> bool:
        return case.comparison.judged_as is not JudgedAs.THRESHOLD


# Many of them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """The conditions of simulated sessions. launches: the standard deviation between launches; None
    for the machine's own. known: the assumed one; None for the record that the sessions before have
    left. by_clock: whether the clock ends every session, after a number of rounds that is drawn.
    parts: as in Session."""

    machine: Machine
    noise: Part = NOISES["normal"]
    looks: tuple[int, ...] = (8, 12)
    launches: float | None = None
    known: float | None = verdict.UNKNOWN_LAUNCH_SD
    by_clock: bool = False
    parts: Collection[int] = ()


def simulated(setting: Setting, cases: Sequence[Case], sessions: int) -> Iterator[Session]:
    """Yield sessions that have run."""
    generator = np.random.default_rng(simulator.SEED)
    ratios = _draw(setting, cases, sessions, generator)
    left: dict[str, Variances] = {}
    record = MachineRecord(Path(), Sessions(left))
    for number in range(sessions):
        ends = int(generator.integers(3, setting.looks[-1] + 1)) if setting.by_clock else 0
        of_this = {case: ratios[case.comparison][number] + math.log(case.figure) for case in cases}
        known = {
            load: record.noise(load, 0.0) if setting.known is None else verdict.Noise(setting.known)
            for load in Load
        }
        session = Session(of_this, setting.looks, known, ends, setting.parts)
        session.run()
        yield session
        left[f"{number}"] = launch_variances((c.load, rows) for c, rows in session.rows.items())


def _draw(
    setting: Setting, cases: Sequence[Case], sessions: int, generator: Generator
) -> dict[Comparison, Array]:
    """Return ln ratios of all turns, [sessions, rounds, turns], around 0."""
    axes = {"session": sessions, "round": setting.looks[-1], "turn": MOST_TURNS}
    machine, sides = (
        setting.machine,
        {side: None for case in cases for side in case.comparison.sides},
    )

    def noise(sd: float, *over: str) -> Array:
        # A ratio has the noise of two sides.
        return drawn(generator, axes, replace(setting.noise, sd=sd / math.sqrt(2), over=over))

    launches = {
        arm: noise(
            machine.launches[arm.world_size] if setting.launches is None else setting.launches,
            *("session", "round"),
        )
        for arm in dict.fromkeys(side.arm for side in sides)
    }
    speeds = {
        side: launches[side.arm] + noise(machine.turns[side.arm.world_size], *axes)
        for side in sides
    }
    return {
        case.comparison: speeds[case.comparison.candidate] - speeds[case.comparison.reference]
        for case in cases
    }


def ordinary(comparison: Comparison) -> Case:
    """Return the case of the default profile on a CPU machine without thresholds of its own, with
    the figure of vgg_16_s on two quiet cores."""
    parity = 1.026 if comparison.world_size == 1 else 1.067
    rules: Mapping[str, tuple[Rule, float]] = {
        "parity": (Band(0.75, 1.3333), parity),
        "weak_scaling": (Floor.at(0.55), 0.80),
        "strong_scaling": (Floor.at(0.35), 0.52),
        "communication": (Floor.at(0.60), 0.86),
    }
    return Case(comparison, *rules[comparison.question.value])


# How often verdicts err --------------------------------------------------------------------------

# Full looks of the profiles.
LOOKS = {"smoke": (8,), "default": (8, 12), "nightly": (8, 12, 24)}
FLOOR = Floor.at(1.0)
ON_CPUS, ON_GPUS, IDENTICAL = (Band(low, 1 / low) for low in (0.75, 0.95, 0.9))
# The assumed standard deviation between launches, by the contents of the noise record: nothing, in
# a fresh clone; earlier sessions with this noise; and earlier quiet sessions of a machine that is
# no longer quiet.
KNOWN_LEAST = {"known": LEAST_LAUNCH_SD}
BY_KNOWN: Mapping[str, Mapping[str, Any]] = {
    "of launches is known nothing: 5 %": {},
    "of launches are known 20 such sessions": {"known": None},
    "of launches are known 20 quiet sessions: 2 %": KNOWN_LEAST,
}


@dataclass(frozen=True)
class Compared:
    """Comparisons that all have the same rule and the same true figure. asked: by world sizes.
    times: so many sessions are simulated for each that is asked for."""

    asked: Callable[[Sequence[int]], Iterable[Comparison]]
    rule: Rule
    figure: float = 1.0
    times: int = 1

    def judged(self, setting: Setting, count: int) -> list[Judgement]:
        """Return the judgements of all of these comparisons."""
        asked = self.asked(tuple(setting.machine.turns))
        cases = [Case(each, self.rule, self.figure) for each in asked]
        found = simulated(setting, cases, count * self.times)
        return [judgement for session in found for judgement in session.judged.values()]

    def __call__(self, setting: Setting, count: int) -> str:
        """Return the shares that PASS and FAIL, and the mean number of rounds."""
        found = self.judged(setting, count)
        words = [each.verdict for each in found]
        both = (100 * words.count(each) / len(words) for each in (Verdict.PASS, Verdict.FAIL))
        rounds = fmean(each.rounds for each in found)
        return f"{' / '.join(f'{percent:.2f}' for percent in both)}; {rounds:.1f}"


# At a floor of 1, and of one stack against another.
AT_FLOOR = Compared(asked, FLOOR)
AS_FAST = Compared(asked_against, verdict.REGRESSION)
BELOW_FLOOR = replace(AT_FLOOR, figure=0.9)
BOTH = {"at the floor": AT_FLOOR, "as fast": AS_FAST}
SLOWER = {f"{n} % slower": replace(AS_FAST, figure=1 - n / 100) for n in (5, 10, 15)}
BANDS = {
    "alike, in 0.75": Compared(asked, ON_CPUS),
    "at 0.75": Compared(asked, ON_CPUS, 0.75),
    "alike, in 0.95": Compared(asked, ON_GPUS),
}
OTHER: Mapping[str, Mapping[str, Any]] = {
    **{name: {"noise": noise, **KNOWN_LEAST} for name, noise in NOISES.items()},
    "launches three times tau0": {"launches": 3 * LEAST_LAUNCH_SD, **KNOWN_LEAST},
    "ended by the clock": {"by_clock": True},
}


def table(
    title: str,
    rows: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Callable[[Setting, int], str]],
    machines: Iterable[Machine] = MACHINES,
) -> Table[Setting]:
    """Return a table. rows: fields of the setting on each machine. columns: return a cell from so
    many sessions."""
    return Table(
        ("noise", *columns),
        {
            "; ".join(filter(None, (machine.name, name))): Setting(machine, **fields)
            for machine, (name, fields) in product(machines, rows.items())
        },
        lambda setting, count: (cell(setting, count) for cell in columns.values()),
        title,
    )


BY_LOOKS = {f"looks at {looks[-1]} at last": {"looks": looks} for looks in LOOKS.values()}
# After how many rounds the parts of sessions end that are resumed. The last look of `default` is
# at 12, so the next one is at 24.
PARTS = {"not": (), "at 5 rounds": (5,), "at 10": (10,), "every third": range(3, 24, 3)} | {
    "every": range(3, 24)
}
BY_PARTS = {name: {"looks": LOOKS["nightly"], "parts": parts} for name, parts in PARTS.items()}

# The noise of pairs. The standard deviation of a round is 2.6, 7.1 and 13 %. The noise record is
# empty, so the noise of launches is assumed to be 5 %.
PAIR_MACHINES = (
    Machine("quiet", {2: 0.038}, {2: 0.015}),
    Machine("A", {2: 0.127}, {2: 0.0}),
    Machine("B", {2: 0.125}, {2: 0.108}),
)
# The second group of real pairs has trained longer, and is a little faster (docs/notebook.md).
HEALTHY = Compared(identical, IDENTICAL, 0.993, times=50)
PAIRS = {f"of a true ratio of {n:g}": replace(HEALTHY, figure=n, times=5) for n in (0.7, 1.3)}


def ordinary_sessions(setting: Setting, count: int) -> list[Session]:
    """Return sessions of at most two slots: of more, the default profile judges only communication,
    and only of one network."""
    sizes = [size for size in setting.machine.turns if size <= 2]
    cases = [ordinary(each) for each in asked(sizes, tuple(SECONDS))]
    return list(simulated(setting, cases, count))


def decided_within(found: Iterable[Session], rounds: int) -> float:
    """Return the share of cases that were decided within so many rounds."""
    judged = [each for session in found for each in session.judged.values()]
    open_ = (each.verdict is Verdict.INCONCLUSIVE or each.rounds > rounds for each in judged)
    return 1 - fmean(open_)


def minutes(setting: Setting, count: int) -> str:
    """Return the minutes, median and 90 %, of sessions of the default profile that end when all is
    decided, and the shares of cases that are decided within so many rounds."""
    found = ordinary_sessions(setting, count)
    taken = [session.seconds / 60 for session in found]
    shares = (f"{100 * decided_within(found, rounds):.1f}" for rounds in (3, 4, 6, 8, 12))
    return f"{median(taken):.1f} ({quantiles(taken, n=10)[-1]:.1f}); {', '.join(shares)}"


MINUTES = {"minutes (90 %); % decided within 3, 4, 6, 8, 12 rounds": minutes}
# Cells of the others are the shares of PASS and FAIL, in %, and the mean number of rounds.
TABLES: Sequence[Table[Setting]] = (
    table("minutes until all is decided", BY_KNOWN, MINUTES),
    table("at a floor", BY_KNOWN, {"at the floor": AT_FLOOR, "10 % below": BELOW_FLOOR}),
    table("by looks", BY_LOOKS, BOTH | SLOWER),
    table("in a band", {"": {}}, BANDS),
    table("of other noise", OTHER, BOTH),
    table("of sessions that are resumed", BY_PARTS, BOTH),
    table("two identical groups", {"": {}}, {"healthy": HEALTHY} | PAIRS, PAIR_MACHINES),
)
