"""Noise as simulations draw it, and whole sessions that have it, judged by the real rule.

Noise has parts that add up, each of which differs over some axes, such as turns, rounds, nights and
nodes, and may resemble its neighbours along them.

Arms of a workload are launched once a round and take turns, and comparisons share arms, as in the
default profile on two cores. hvdperf.interim judges each comparison at every look. The noise that
it assumes comes from the turns of the whole session and from the noise record of earlier sessions
of the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hvdperf import verdict
from hvdperf.interim import judge_pair, judge_rounds
from hvdperf.judge.trust import is_outside
from hvdperf.machine.noise_record import LATEST, Load, MachineRecord, Sessions, Variances
from hvdperf.plan import questions
from hvdperf.plan.arms import Arm, Workload
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.profile import Sampling
from hvdperf.session.scheduler import launch_variances, starts_of
from hvdperf.stats import Row, turn_correlation
from hvdperf.verdict import Judgement, Verdict
from hvdperf.work.in_turn import BREADTH, Budget, Group, in_turn

Array = npt.NDArray[np.float64]
Generator = np.random.Generator
Values = Callable[[Generator, tuple[int, ...]], Array]

SEED = 20281
# The share of values that are outliers, and the factor on their standard deviation.
OUTLIERS, OUTLIER_FACTOR = 0.05, 5.0


def normal(generator: Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape)


def student(freedom: int) -> Values:
    """Return what draws values of Student's t with variance 1; turns were measured to follow that
    with 5 degrees of freedom."""
    sd = math.sqrt(freedom / (freedom - 2))
    return lambda generator, shape: generator.standard_t(freedom, shape) / sd


def outliers(generator: Generator, shape: tuple[int, ...]) -> Array:
    wild = generator.random(shape) < OUTLIERS
    values: Array = normal(generator, shape) * np.where(wild, OUTLIER_FACTOR, 1.0)
    return values


@dataclass(frozen=True)
class Part:
    """A part of the noise. over: the axes along which it differs; along all others it is the same.
    near: by axis, the correlation between a value and the next one."""

    sd: float
    over: tuple[str, ...]
    values: Values = normal
    near: Mapping[str, float] = field(default_factory=dict)


def drawn(generator: Generator, shape: Mapping[str, int], *parts: Part) -> Array:
    """Return the sum of the parts. shape: the length of each axis; it is 1 in the sum if no part
    differs over it."""
    found = np.zeros([1] * len(shape))
    for part in parts:
        sizes = tuple(size if axis in part.over else 1 for axis, size in shape.items())
        values = part.values(generator, sizes)
        for axis, rho in part.near.items():
            values = _autoregression(values, rho, list(shape).index(axis))
        found = found + part.sd * values
    return found


def _autoregression(shocks: Array, rho: float, axis: int) -> Array:
    """Return the shocks with a correlation of rho between neighbours, of the same variance."""
    if rho == 0:
        return shocks
    values = np.moveaxis(shocks, axis, 0).copy()
    for at in range(1, len(values)):
        values[at] = rho * values[at - 1] + math.sqrt(1 - rho**2) * values[at]
    return np.moveaxis(values, 0, axis)


# A burst slows an arm: in what share of its launches, by how many standard deviations of a turn,
# and with what probability it goes on in the next turn.
BURSTS, BURST_LOSS, BURST_GOES_ON = 0.25, 3.0, 0.7


@dataclass(frozen=True)
class Noise:
    """A kind of noise. values: draws the values of launches or blocks by themselves. rounds, turns:
    the correlation between a round and the next one, and between a turn and the next one of the
    same launch. bursts: whether bursts slow arms of several ranks. launches: the standard deviation
    between launches, in multiples of the assumed one; None for the machine's own."""

    values: Values = normal
    rounds: float = 0.0
    turns: float = 0.0
    bursts: bool = False
    launches: float | None = None

    def part(self, sd: float, *over: str) -> Part:
        """Return the part that differs over these axes by so much."""
        near = {"turn": self.turns, "round": self.rounds}
        return Part(sd, over, self.values, {axis: near[axis] for axis in near if axis in over})


NOISES = {
    "normal": Noise(),
    "Student t5": Noise(student(5)),
    "5 % outliers x5": Noise(outliers),
    "bursts on one side": Noise(bursts=True),
    "rounds AR(1) 0.5": Noise(rounds=0.5),
    "turns AR(1) 0.5": Noise(turns=0.5),
    "both AR(1) 0.5": Noise(rounds=0.5, turns=0.5),
    "launches three times tau0": Noise(launches=3.0),
}


def of_bursts(generator: Generator, sessions: int, rounds: int) -> Array:
    """Return the loss of an arm of several ranks to bursts, [sessions, rounds, turns]."""
    begins = generator.integers(0, MOST_TURNS, (sessions, rounds))
    begins[generator.random((sessions, rounds)) > BURSTS] = MOST_TURNS
    ends = begins + generator.geometric(1 - BURST_GOES_ON, (sessions, rounds))
    turn = np.arange(MOST_TURNS)
    hit = (turn >= begins[:, :, None]) & (turn < ends[:, :, None])
    return np.where(hit, BURST_LOSS, 0.0)


# Turns of a launch, as in the profiles.
FEWEST_TURNS, MOST_TURNS = Sampling.turns_min, Sampling.turns_max
# By network of the default profile, on two cores and with cheap starts: seconds of a round apart
# from its turns, and seconds of a turn.
SECONDS = {"vgg_16_s": (16.0, 2.65), "resnet_50_s": (16.5, 2.45), "googlenet_s": (12.2, 2.0)}
# The number of sessions from whose variances a machine's record is drawn.
RECORDED = 60


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
    rule: verdict.Rule
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


def identical() -> Comparison:
    return questions.aa(Workload("vgg_16_s", "cifar10", 32, batch=32), 2)


# One session -----------------------------------------------------------------------------------


@dataclass
class Session:
    """A made-up session, which takes rounds until every case is decided, or until the last look.

    drawn: by case, the ln ratios of all possible turns, [rounds, turns]. looks: the full ones.
    known: the known noise of the machine, by load. ends: number of rounds of each network after
    which the clock ends the session; 0 for the last look. parts: numbers of rounds after which the
    clock ends a part of the session; undecided cases are then resumed. precision: as of Sampling.
    """

    drawn: Mapping[Case, Array]
    looks: tuple[int, ...]
    known: Mapping[Load, verdict.Noise]
    ends: int = 0
    parts: Collection[int] = ()
    precision: float = 0.0
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
        return judge(self.rows[case], case.rule, self.looks, known, forced)


class Network(Group[Case]):
    """The cases of one network of a made-up session."""

    def __init__(self, session: Session, cases: Sequence[Case]) -> None:
        sampling = Sampling(session.looks, precision=session.precision)
        super().__init__(cases, sampling, Budget(0.0, math.inf, lambda: session.seconds))
        self.session = session

    def measure(self, wanted: Sequence[Case], turns: int) -> dict[Case, Row]:
        apart, turn_seconds = SECONDS[wanted[0].comparison.workload.model]
        share = self.cost(wanted) / self.cost(self.cases)
        self.turn_seconds = turn_seconds * share
        self.session.seconds += apart * share + turns * self.turn_seconds
        return {case: self.session.drawn[case][self.done, :turns].tolist() for case in wanted}

    def judge(self, wanted: Sequence[Case]) -> None:
        for case in wanted:
            precise = self.sampling.precision and self.counted(case) >= self.sampling.looks[0]
            forced = bool(precise) or self.done in self.session.parts
            judgement = self.session.judge(case, forced)
            if self._settles(case, judgement):
                self._decide(case, judgement)

    def _settles(self, case: Case, judgement: Judgement) -> bool:
        if precision := self.sampling.precision:
            figure, rounds = judgement.figure, judgement.rounds
            self.needed[case] = verdict.rounds_until_precise(figure, rounds, precision)
            return rounds >= self.sampling.looks[0] and verdict.is_precise(figure, precision)
        if self.is_final(case) or judgement.verdict is Verdict.FAIL:
            return True
        if case.is_pair:
            return self.done >= BREADTH and not is_outside(judgement)
        return judgement.verdict is not Verdict.INCONCLUSIVE

    def finish(self) -> None:
        for case in list(self.left):
            self._decide(case, self.session.judge(case, forced=True))

    def _decide(self, case: Case, judgement: Judgement) -> None:
        self.session.judged[case] = judgement
        self.left.remove(case)

    @property
    def ends_in_time(self) -> bool:
        return self.done < (self.session.ends or self.session.looks[-1])

    def rule(self, case: Case) -> verdict.Rule:
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
    """The conditions of simulated sessions. known: the assumed standard deviation between launches,
    whatever the machine; None for the record that earlier sessions have left. by_clock: whether the
    clock ends every session, after a number of rounds that is drawn. parts: as in Session."""

    machine: Machine
    noise: Noise = NOISES["normal"]
    looks: tuple[int, ...] = (8, 12)
    known: float | None = verdict.UNKNOWN_LAUNCH_SD
    by_clock: bool = False
    parts: tuple[int, ...] = ()


def simulated(
    setting: Setting,
    cases: Sequence[Case],
    sessions: int,
    seed: int = SEED,
    left: Sequence[Variances] = (),
) -> Iterator[Session]:
    """Yield sessions that have run. left: the variances that earlier sessions left, of which each
    session knows some; by default those that the setting asks for."""
    generator = np.random.default_rng(seed)
    left = left or _left_by_earlier(setting)
    ratios = _draw(setting, cases, sessions, generator)
    for number in range(sessions):
        chosen = generator.integers(0, len(left), LATEST)
        earlier = Sessions({str(at): left[which] for at, which in enumerate(chosen)})
        ends = int(generator.integers(3, setting.looks[-1] + 1)) if setting.by_clock else 0
        of_this = {case: ratios[case.comparison][number] + math.log(case.figure) for case in cases}
        known = {load: MachineRecord(Path(), earlier).noise(load, 0.0) for load in Load}
        session = Session(of_this, setting.looks, known, ends, setting.parts)
        session.run()
        yield session


def _draw(
    setting: Setting, cases: Sequence[Case], sessions: int, generator: Generator
) -> dict[Comparison, Array]:
    """Return ln ratios of all turns, [sessions, rounds, turns], around 0."""
    noise, machine, rounds = setting.noise, setting.machine, setting.looks[-1]
    axes = {"session": sessions, "round": rounds, "turn": MOST_TURNS}
    sides = dict.fromkeys(side for case in cases for side in case.comparison.sides)
    # A ratio has the noise of two sides.
    launches = {
        arm: drawn(
            generator, axes, noise.part(_launch_sd(setting, arm) / math.sqrt(2), "session", "round")
        )
        for arm in dict.fromkeys(side.arm for side in sides)
    }
    blocks = {}
    for side in sides:
        sd = machine.turns[side.arm.world_size] / math.sqrt(2)
        blocks[side] = drawn(generator, axes, noise.part(sd, *axes))
        if noise.bursts and side.arm.world_size > 1:
            blocks[side] -= sd * of_bursts(generator, sessions, rounds)
    found = {}
    for case in cases:
        ours, theirs = case.comparison.sides
        ratios = launches[ours.arm] - launches[theirs.arm] + blocks[ours] - blocks[theirs]
        if noise.bursts:
            # With skewed noise, the true figure is the median of rounds, which is shifted to 0.
            ratios -= np.median(np.median(ratios[:, :, :FEWEST_TURNS], axis=2))
        found[case.comparison] = ratios
    return found


def _launch_sd(setting: Setting, arm: Arm) -> float:
    """Return the standard deviation of a ratio between launches."""
    if setting.noise.launches is not None:
        return setting.noise.launches * (setting.known or verdict.UNKNOWN_LAUNCH_SD)
    return setting.machine.launches[arm.world_size]


# The machine's record --------------------------------------------------------------------------


def _left_by_earlier(setting: Setting) -> tuple[Variances, ...]:
    if setting.known is not None:
        return (dict.fromkeys(Load, setting.known**2),)
    return _recorded(setting.machine, setting.noise, setting.looks)


@cache
def _recorded(machine: Machine, noise: Noise, looks: tuple[int, ...]) -> tuple[Variances, ...]:
    """Return the variances that ordinary sessions leave in the record. A first generation of
    sessions knows nothing of the machine; the second, whose variances are returned, knows it from
    the first."""
    setting = Setting(machine, noise, looks)
    cases = [ordinary(comparison) for comparison in asked(tuple(machine.turns), tuple(SECONDS))]
    left = _left_by_earlier(setting)
    for generation in range(2):
        earlier = simulated(setting, cases, RECORDED, SEED + 1 + generation, left)
        left = tuple(
            launch_variances((case.load, rows) for case, rows in session.rows.items())
            for session in earlier
        )
    return left


def ordinary(comparison: Comparison) -> Case:
    """Return the case of the default profile on a CPU machine without thresholds of its own, with
    the figure of vgg_16_s on two quiet cores."""
    parity = 1.026 if comparison.world_size == 1 else 1.067
    rules: Mapping[str, tuple[verdict.Rule, float]] = {
        "parity": (verdict.Band(0.75, 1.3333), parity),
        "weak_scaling": (verdict.Floor.at(0.55), 0.80),
        "strong_scaling": (verdict.Floor.at(0.35), 0.52),
        "communication": (verdict.Floor.at(0.60), 0.86),
    }
    return Case(comparison, *rules[comparison.question.value])
