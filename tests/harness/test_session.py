"""Sessions whose rounds are made up: what is decided, when, and which arms are launched for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.simulation import Looks, session_verdict
from harness.collectives import SWEEP_BYTES, Collective
from harness.launch.group import GroupFailed
from harness.measurement import Launch, Round
from harness.placement import Offer, place
from harness.plan import Arm, BlockKind, Comparison, Profile, Question, Sampling, Schedule, Side
from harness.questions import (
    against,
    at_gradient_sizes,
    bound,
    communication,
    fixed_epochs,
    fixed_time,
    memory,
    parity,
    same,
    startup,
    strong_scaling,
    sweep,
    trials,
    wall_time,
    weak_scaling,
)
from harness.session import (
    SWEEP_TURNS,
    Doing,
    Outcome,
    Session,
    kinds_of,
    last_phase,
    sampling_of,
    transfers_of,
)
from harness.thresholds import Line, Thresholds
from harness.transport_tools.figures import ToolRun
from harness.verdict import Band, Ceiling, Floor, Verdict
from harness.wire import Phase
from tests.support.marked import marked
from tests.support.rounds import (
    GRADIENTS,
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    WORKLOAD,
    evidence_report,
    exchanging_round,
    launch,
    run_report,
)

WEAK, STRONG = weak_scaling(WORKLOAD, 2), strong_scaling(WORKLOAD, 2)
COMMUNICATION, PARITY = communication(WORKLOAD, 2), parity(WORKLOAD, 2)
OTHER = replace(WORKLOAD, model="vgg_16_s")
ALL = (WEAK, STRONG, COMMUNICATION, PARITY)

Speed = Callable[[Side, int], float]


def level(side: Side, number: int) -> float:
    """Samples per second: no overhead at all, so that every figure is 1."""
    replicas = side.arm.world_size
    return 1000.0 * replicas


def noisy(ratio: float, spread: float) -> Speed:
    """Horovod on two replicas at a ratio that goes up and down by the spread."""
    offsets = (1.0, 1 + spread, 1 - spread, 1 + spread / 2, 1 - spread / 2, 1 + spread / 3)

    def speed(side: Side, number: int) -> float:
        own = ratio * offsets[number % len(offsets)] if side.arm == HOROVOD_2 else 1.0
        return level(side, number) * (own if side.kind is not BlockKind.LOCAL else 1.0)

    return speed


@dataclass
class Script:
    """What the made-up machine does. Seconds pass only while a round is measured."""

    scratch: Path
    speed: Speed = level
    round_seconds: float = 10.0
    turn_seconds: float = 1.0
    failing: dict[Arm, int] = field(default_factory=dict)
    spoil: Callable[[Launch], None] = lambda launched: None
    trained: dict[Arm, list[float]] = field(default_factory=dict)
    digests: dict[Arm, list[str]] = field(default_factory=dict)
    clock: float = 0.0
    launched: list[list[Arm]] = field(default_factory=list)
    schedules: set[Schedule] = field(default_factory=set)
    turns: list[int] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.clock


class MadeUpRunner:
    """In place of harness.rounds.Runner."""

    def __init__(self, script: Script, **arguments: Any) -> None:
        self._script = script
        self.kinds = arguments["kinds"]
        self.check = arguments["check"]
        self.schedule = arguments["schedule"]
        script.schedules.add(self.schedule)
        self.failures: dict[Arm, GroupFailed] = {}
        self.correctness: dict[Arm, Launch] = {}
        self.turns = 0
        self.turn_seconds = 0.0
        self._say = arguments["progress"]
        self._note = arguments["doing"]

    def run(self, number: int, arms: Sequence[Arm]) -> Round:
        script = self._script
        self._say("start")
        self._note("turn 1 of 3")
        living = [arm for arm in arms if arm not in self.failures]
        script.launched.append(living)
        script.turns.append(self.turns)
        script.clock += script.round_seconds + self.turns * script.turn_seconds
        self.turn_seconds = script.turn_seconds
        return Round(number, self.schedule, {a: self._launch(a, number) for a in living})

    def _launch(self, arm: Arm, number: int) -> Launch:
        script = self._script
        if script.failing.get(arm) == number:
            self.failures[arm] = GroupFailed(arm.name, 1, "block", "it broke", ["last words"])
            broken: Launch = launch(arm, {}, number)
            return broken
        speeds = {kind: script.speed(Side(arm, kind), number) for kind in self.kinds[arm]}
        launched: Launch = launch(arm, speeds, number, turns=max(1, self.turns))
        if arm in self.check and arm not in self.correctness:
            digests = script.digests.get(arm, ["c0de"] * arm.world_size)
            launched.correctness = [{"loss": 0.5, "digests": [digest]} for digest in digests]
            np.savez(self.weights(arm), a0=np.array(script.trained.get(arm, [1.0, 2.0])))
            self.correctness[arm] = launched
        script.spoil(launched)
        return launched

    def weights(self, arm: Arm) -> Path:
        return self._script.scratch / f"{arm.label}.npz"


LINES = (
    Line(("*_scaling", "*", "*", "*"), Floor.at(0.9)),
    Line(("communication", "*", "*", "*"), Floor.at(0.5)),
    Line(("parity", "*", "*", "*"), Band(0.9, 1.1)),
)
ENOUGH = 1e6
# Of a profile that names none.
FIRST_LOOK, SECOND_LOOK, LAST_LOOK = Sampling().looks


@dataclass
class Stage:
    """Measures comparisons on the made-up machine."""

    script: Script
    cores: int = 2
    gpus: tuple[str, ...] = ()
    budget_s: float = ENOUGH
    sampling: Sampling = field(default_factory=Sampling)
    lines: tuple[Line, ...] = LINES
    later: tuple[Comparison, ...] = ()
    oversubscribed: tuple[str, ...] = ()
    tools: Callable[[Collective, int], list[ToolRun]] | None = None
    said: list[str] = field(default_factory=list)
    noted: list[Doing] = field(default_factory=list)
    session: Session = field(init=False)

    def measure(self, *comparisons: Comparison) -> dict[Comparison, Outcome]:
        cores = tuple(range(self.cores))
        offers = [Offer(rank, "host", cores, self.gpus) for rank in range(2)]
        starter: Any = SimpleNamespace(slots=place(offers), scratch=self.script.scratch)
        kept: dict[Comparison, Outcome] = {}
        self.session = Session(
            starter=starter,
            profile=Profile(
                "made-up",
                (WORKLOAD.model, OTHER.model),
                WORKLOAD.dataset,
                batch=32,
                budget_s=self.budget_s,
                sampling=self.sampling,
                oversubscribed=self.oversubscribed,
            ),
            thresholds=Thresholds("made up", Path("cpu-made-up.toml"), self.lines),
            progress=self.said.append,
            doing=self.noted.append,
            seed=1,
            tools=self.tools,
            decided=lambda outcome: kept.update({outcome.comparison: outcome}),
            began=self.script.clock,
        )
        self.session.measure(comparisons, self.later)
        assert set(kept) == set(comparisons), "every case is decided in the end"
        return kept


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    script = Script(tmp_path)
    monkeypatch.setattr("harness.session.Runner", lambda **given: MadeUpRunner(script, **given))
    monkeypatch.setattr("harness.session.time", script)
    return Stage(script)


def verdicts(outcomes: dict[Comparison, Outcome]) -> dict[Comparison, Verdict]:
    return {comparison: outcome.judgement.verdict for comparison, outcome in outcomes.items()}


# Looks -----------------------------------------------------------------------------------------


def test_what_is_clear_passes_at_the_first_look(stage):
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == dict.fromkeys(ALL, Verdict.PASS)
    assert all(outcome.judgement.rounds == FIRST_LOOK for outcome in outcomes.values())
    assert len(stage.script.launched) == FIRST_LOOK
    assert all(outcome.passed for outcome in outcomes.values())


def test_what_is_clearly_below_fails_at_the_first_look(stage):
    stage.script.speed = noisy(0.7, 0.01)
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.FAIL
    assert outcome.judgement.rounds == FIRST_LOOK
    assert outcome.judgement.figure.estimate == pytest.approx(0.7, rel=0.01)
    assert not outcome.passed


def test_what_is_too_close_to_call_is_looked_at_again_and_then_left_open(stage):
    stage.script.speed = noisy(0.9, 0.05)
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
    assert outcome.judgement.rounds == len(stage.script.launched) == LAST_LOOK


def test_a_second_look_decides_what_the_first_could_not(stage):
    # One of the first rounds is far below, which alone holds the lower bound down.
    def speed(side: Side, number: int) -> float:
        slow = side.arm == HOROVOD_2 and number == 2
        return level(side, number) * (0.5 if slow else 1.0)

    stage.script.speed = speed
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.judgement.rounds == SECOND_LOOK


def test_no_verdict_is_taken_between_looks(stage):
    stage.sampling = Sampling(looks=(8, 9))
    assert stage.measure(WEAK)[WEAK].judgement.rounds == 8


@pytest.mark.parametrize("looks", list(Looks))
@pytest.mark.parametrize("seed", range(10))
def test_a_session_ends_as_the_simulation_of_error_rates_has_it(stage, seed, looks):
    noise = np.random.default_rng(seed).normal(np.log(0.93), 0.06, looks.value[-1])

    def speed(side: Side, number: int) -> float:
        return level(side, number) * (np.exp(noise[number]) if side.arm == HOROVOD_2 else 1.0)

    stage.script.speed = speed
    stage.sampling = Sampling(looks=looks.value)
    outcome = stage.measure(PARITY)[PARITY]
    expected = session_verdict(noise.tolist(), looks.value, Band(0.9, 1.1))
    assert outcome.judgement.verdict is expected
    assert outcome.observations == pytest.approx(noise[: outcome.judgement.rounds])
    ended_early = outcome.judgement.rounds < looks.value[-1]
    assert (expected is Verdict.INCONCLUSIVE) <= (not ended_early)


# Which arms are launched -----------------------------------------------------------------------


def test_arms_of_what_is_decided_are_not_launched_again(stage):
    def speed(side: Side, number: int) -> float:
        if side.arm == MIRRORED_2:
            return level(side, number) * (1.3, 1.0, 0.75)[number % 3]
        return level(side, number)

    stage.script.speed = speed
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes)[PARITY] is Verdict.INCONCLUSIVE
    assert set(stage.script.launched[FIRST_LOOK - 1]) == {HOROVOD_1, HOROVOD_2, MIRRORED_2}
    assert len(stage.script.launched) == LAST_LOOK
    later = stage.script.launched[FIRST_LOOK:]
    assert all(set(arms) == {HOROVOD_2, MIRRORED_2} for arms in later)
    assert outcomes[WEAK].judgement.rounds == FIRST_LOOK


def test_an_arm_is_launched_once_a_round_however_many_need_it(stage):
    stage.measure(*ALL)
    assert [len(arms) for arms in stage.script.launched] == [3] * FIRST_LOOK


def test_split_blocks_are_taken_only_where_they_are_judged():
    kinds = kinds_of(ALL, lambda comparison: comparison is not STRONG)
    assert kinds == {
        HOROVOD_1: {BlockKind.FULL},
        HOROVOD_2: {BlockKind.FULL, BlockKind.LOCAL},
        MIRRORED_2: {BlockKind.FULL},
    }


def test_replicas_that_share_a_core_are_judged_by_communication_alone(stage):
    stage.cores = 1
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == {
        WEAK: Verdict.NOT_JUDGED,
        STRONG: Verdict.NOT_JUDGED,
        COMMUNICATION: Verdict.PASS,
        PARITY: Verdict.NOT_JUDGED,
    }
    assert outcomes[WEAK].judgement.figure is not None
    assert outcomes[WEAK].judgement.rounds == 1
    assert outcomes[STRONG].judgement.figure is None
    assert set(stage.script.launched[0]) == {HOROVOD_1, HOROVOD_2, MIRRORED_2}
    assert all(arms == [HOROVOD_2] for arms in stage.script.launched[1:])
    assert len(stage.script.launched) == FIRST_LOOK


def test_a_profile_may_name_whose_communication_is_judged_where_replicas_share_a_core(stage):
    stage.oversubscribed = (OTHER.model,)
    assert verdicts(stage.measure(COMMUNICATION)) == {COMMUNICATION: Verdict.PASS}
    stage.cores = 1
    shown = stage.measure(COMMUNICATION)[COMMUNICATION]
    assert shown.judgement.verdict is Verdict.NOT_JUDGED
    assert shown.judgement.figure is not None
    other = communication(OTHER, 2)
    assert verdicts(stage.measure(other)) == {other: Verdict.PASS}


def test_a_start_up_is_judged_from_launches_of_its_own(stage):
    stage.lines = (Line(("startup_*", "*", "*", "*"), Ceiling(2.0)),)
    outcomes = stage.measure(*startup(WORKLOAD, 2))
    # Those of tests/support/rounds.py: a trace of 2.5 s and 54 tensors, a first step of 1.1 s.
    assert {o.comparison.question.phase: o.judgement.verdict for o in outcomes.values()} == {
        "init": Verdict.PASS,
        "trace": Verdict.PASS,
        "first step": Verdict.PASS,
        "broadcast": Verdict.PASS,
    }
    figures = {o.comparison.question.phase: o.judgement.figure for o in outcomes.values()}
    assert figures["trace"].estimate == pytest.approx(2.5 / 54)
    assert stage.script.schedules == {Schedule.FRESH}
    assert stage.script.launched == [[HOROVOD_2]] * FIRST_LOOK


def test_a_start_up_above_its_ceiling_fails(stage):
    stage.lines = (Line(("startup_*", "*", "*", "*"), Ceiling(1.0)),)
    words = {c.question.phase: v for c, v in verdicts(stage.measure(*startup(WORKLOAD, 2))).items()}
    assert words["first step"] is Verdict.FAIL
    assert words["init"] is Verdict.PASS


def trained(loss: Callable[[Launch], float], growth: float = 0.0) -> Callable[[Launch], None]:
    """Gives every launch a run that ends with such a validation loss."""

    def train(launched: Launch) -> None:
        arm = launched.arm
        report = run_report(samples=100 * arm.workload.batch, loss=loss(launched), growth=growth)
        launched.run = [report] * arm.processes

    return train


def test_trainings_that_end_alike_are_equivalent(stage):
    stage.lines = (Line(("convergence_*", "*", "*", "*"), Band(0.9, 1.1)),)
    asked = [c for c in fixed_epochs(WORKLOAD, 2) if c.variant == "loss-single"]
    stage.script.spoil = trained(lambda launched: 1.0 + 0.01 * launched.round)
    (outcome,) = stage.measure(*asked).values()
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.judgement.figure.alpha == 0.05
    assert stage.script.schedules == {Schedule.FRESH}


def test_a_training_that_ends_worse_fails(stage):
    stage.lines = (Line(("convergence_*", "*", "*", "*"), Band(0.9, 1.1)),)
    asked = [c for c in fixed_epochs(WORKLOAD, 2) if c.variant == "loss-single"]
    stage.script.spoil = trained(lambda launched: 1.3 if launched.arm.world_size == 2 else 1.0)
    assert set(verdicts(stage.measure(*asked)).values()) == {Verdict.FAIL}


def test_a_rank_that_grows_fails(stage):
    stage.lines = (Line(("memory", "*", "*", "*"), Ceiling(1.02, unit="")),)
    asked = memory(WORKLOAD, 2)
    stage.script.spoil = trained(lambda launched: 1.0, growth=5e4)
    assert verdicts(stage.measure(asked)) == {asked: Verdict.FAIL}
    stage.script.spoil = trained(lambda launched: 1.0)
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}


def test_what_is_no_speed_is_judged_where_replicas_share_a_core_too(stage):
    stage.cores = 1
    stage.lines = (Line(("memory", "*", "*", "*"), Ceiling(1.02, unit="")),)
    stage.script.spoil = trained(lambda launched: 1.0)
    asked = memory(WORKLOAD, 2)
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}


def test_what_is_only_traced_starts_no_further():
    asked = {comparison.question: comparison for comparison in startup(WORKLOAD, 2)}
    assert last_phase([asked[Question.STARTUP_TRACE]]) is Phase.TRACE
    assert last_phase(list(asked.values())) is Phase.BROADCAST


# Collective operations -------------------------------------------------------------------------

CEILINGS = (
    Line(("framework_tax", "*", "*", "*"), Ceiling(5.0, unit="")),
    Line(("bound", "*", "*", "*"), Ceiling(1.5, unit="")),
)
GRADIENTS_OF, BOUND = at_gradient_sizes(WORKLOAD, 2), bound(WORKLOAD, 2)


def exchanged(asked: Comparison, ratio: float, **other: Any) -> Callable[[Launch], None]:
    """Have every launch exchange as in a round whose figure is the ratio."""

    def spoil(launched: Launch) -> None:
        made = exchanging_round(asked, ratio).launches[launched.arm]
        launched.series, launched.blocks, launched.facts = made.series, made.blocks, made.facts
        if other and launched.arm == asked.reference.arm:
            ranks = [{**rank, **other} for rank in launched.series[0].ranks]
            launched.series[0] = replace(launched.series[0], ranks=ranks)

    return spoil


@pytest.mark.parametrize("asked", [sweep(WORKLOAD, 2)[2], GRADIENTS_OF, BOUND], ids=str)
@pytest.mark.parametrize(("ratio", "verdict"), [(1.2, Verdict.PASS), (8.0, Verdict.FAIL)])
def test_time_through_horovod_is_held_against_a_ceiling(stage, asked, ratio, verdict):
    stage.lines = CEILINGS
    stage.script.spoil = exchanged(asked, ratio)
    (outcome,) = stage.measure(asked).values()
    assert outcome.judgement.verdict is verdict
    assert outcome.judgement.figure.estimate == pytest.approx(ratio)
    assert stage.script.schedules == {Schedule.ALTERNATE}


def test_wrong_numbers_are_invalid_at_once(stage):
    stage.lines = CEILINGS
    wrong = "number 0 is 3 instead of 2"
    stage.script.spoil = exchanged(GRADIENTS_OF, 1.2, problem=wrong)
    (outcome,) = stage.measure(GRADIENTS_OF).values()
    assert outcome.judgement.verdict is Verdict.INVALID
    assert wrong in outcome.judgement.reason
    assert len(stage.script.launched) == 1


def test_another_mpi_is_no_transport_to_compare_with(stage):
    stage.lines = CEILINGS
    stage.script.spoil = exchanged(GRADIENTS_OF, 1.2, library="MPICH 4.2")
    (outcome,) = stage.measure(GRADIENTS_OF).values()
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "mpi4py over MPICH 4.2 and Open MPI v4.1.8" in outcome.judgement.reason


def test_a_step_faster_than_its_longer_part_is_invalid(stage):
    stage.lines = CEILINGS
    # 28 of 40 ms, and computing alone takes 30: that is noise. 26 is not.
    stage.script.spoil = exchanged(BOUND, 0.72)
    assert verdicts(stage.measure(BOUND)) == {BOUND: Verdict.PASS}
    stage.script.spoil = exchanged(BOUND, 0.65)
    (outcome,) = stage.measure(BOUND).values()
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "a step takes 0.867 of its longer part" in outcome.judgement.reason


def test_where_replicas_share_a_core_a_bound_is_neither_judged_nor_invalid(stage):
    stage.lines, stage.cores = CEILINGS, 1
    stage.script.spoil = exchanged(BOUND, 0.1)
    (outcome,) = stage.measure(BOUND).values()
    assert outcome.judgement.verdict is Verdict.NOT_JUDGED
    assert outcome.judgement.reason == "more replicas than cores or devices"


def test_on_gpus_host_memory_is_no_transport_to_judge_by(stage):
    stage.lines, stage.gpus = CEILINGS, ("GPU-0", "GPU-1")
    stage.script.spoil = exchanged(GRADIENTS_OF, 3.0)
    (outcome,) = stage.measure(GRADIENTS_OF).values()
    assert outcome.judgement.verdict is Verdict.NOT_JUDGED
    assert outcome.judgement.reason.endswith("the bare transport what is in host memory")
    assert outcome.judgement.figure.estimate == pytest.approx(3.0)


def test_a_sweep_takes_few_turns_for_they_are_long(stage):
    stage.lines = CEILINGS
    stage.sampling = Sampling(turns_min=8, turns_max=8)
    asked = sweep(WORKLOAD, 2)[0]
    stage.script.spoil = exchanged(asked, 1.2)
    # Rounds of 10 s and three turns of 1 s.
    stage.budget_s = FIRST_LOOK * 13.0
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}
    assert stage.script.turns == [SWEEP_TURNS] * FIRST_LOOK
    assert sampling_of([GRADIENTS_OF], stage.sampling) == stage.sampling
    assert sampling_of([asked], Sampling(turns_min=1, turns_max=2)).turns_min == 1


def test_other_tools_are_asked_once_and_judge_nothing(stage):
    asked = sweep(WORKLOAD, 2)[0]
    calls = []

    def tools(collective: Collective, world_size: int) -> list[ToolRun]:
        calls.append((collective, world_size, len(stage.script.launched)))
        return [ToolRun("osu", "/opt/osu", collective, world_size, problem="it broke")]

    stage.lines, stage.tools = CEILINGS, tools
    stage.script.spoil = exchanged(asked, 1.2)
    outcomes = stage.measure(asked)
    assert verdicts(outcomes) == {asked: Verdict.PASS}
    # Before the rounds.
    assert calls == [(Collective.ALLREDUCE, 2, 0)]
    assert [run.problem for run in outcomes[asked].tools] == ["it broke"]


@pytest.mark.parametrize("asked", [GRADIENTS_OF, BOUND, WEAK], ids=str)
def test_other_tools_are_asked_about_sweeps_only(stage, asked):
    stage.lines = (*LINES, *CEILINGS)
    stage.tools = pytest.fail
    assert [outcome.tools for outcome in stage.measure(asked).values()] == [()]


def test_other_tools_are_left_out_where_time_is_up(stage):
    stage.tools, stage.budget_s = pytest.fail, 0.0
    (outcome,) = stage.measure(sweep(WORKLOAD, 2)[0]).values()
    assert outcome.tools == ()


def test_a_start_up_goes_as_far_as_what_is_exchanged_takes():
    assert last_phase(sweep(WORKLOAD, 2)) is Phase.INIT
    assert last_phase([GRADIENTS_OF]) is Phase.BUILD
    assert last_phase([GRADIENTS_OF, BOUND]) is Phase.BROADCAST


def test_blocks_are_taken_where_steps_are_asked_about():
    def kinds(*asked: Comparison) -> list[set[BlockKind]]:
        found = kinds_of(asked, lambda comparison: True)
        return [found[asked[0].candidate.arm], found[asked[0].reference.arm]]

    assert kinds(*sweep(WORKLOAD, 2)) == [set(), set()]
    assert kinds(GRADIENTS_OF) == [set(), set()]
    assert kinds(GRADIENTS_OF, BOUND) == [{BlockKind.FULL, BlockKind.LOCAL}, set()]


def test_both_arms_exchange_every_size_that_is_asked_about():
    two = sweep(WORKLOAD, 2)[:2]
    wanted = transfers_of(two)
    assert set(wanted) == set(two[0].arms)
    (horovod, bare) = wanted.values()
    assert horovod == bare
    assert [t.tensor_bytes for t in horovod if t.collective is Collective.ALLGATHER] == [
        (size,) for size in SWEEP_BYTES
    ]
    assert len(horovod) == 2 * len(SWEEP_BYTES)
    assert set(map(tuple, transfers_of([GRADIENTS_OF, BOUND]).values())) == {(GRADIENTS,)}
    assert transfers_of([WEAK]) == {}


def test_what_is_only_shown_needs_no_second_round(stage):
    stage.cores = 1
    assert verdicts(stage.measure(WEAK)) == {WEAK: Verdict.NOT_JUDGED}
    assert len(stage.script.launched) == 1


# Against another stack -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.0, Verdict.PASS), (0.93, Verdict.FAIL), (0.958, Verdict.INCONCLUSIVE)],
)
def test_another_stack_is_held_against_margins_that_need_no_threshold(stage, ratio, verdict):
    asked = against(WEAK)
    assert asked is not None
    stage.script.speed = noisy(ratio, 0.04)
    stage.sampling = Sampling(looks=(6,))
    stage.lines = ()
    outcome = stage.measure(asked)[asked]
    assert outcome.judgement.verdict is verdict
    assert outcome.judgement.rule == Floor(fail_below=0.98, pass_from=0.95)
    assert outcome.judgement.figure.estimate == pytest.approx(ratio, rel=0.01)


# Wall time -------------------------------------------------------------------------------------

WALL_WEAK, WALL_STRONG = wall_time(WORKLOAD, 2)
WALL_LINES = (Line(("wall_*", "*", "*", "*"), Floor.at(0.8)),)


def accounted_for(**of_two: Any) -> Callable[[Launch], None]:
    """Launches with a ledger; of_two: of those with two replicas."""

    def spoil(launched: Launch) -> None:
        own = marked(launched.arm, launched.round, **(of_two if launched.arm == HOROVOD_2 else {}))
        for name in ("startup_seconds", "blocks", "run", "marks", "met_run", "timeline"):
            setattr(launched, name, getattr(own, name))

    return spoil


def test_a_case_on_wall_time_has_its_account(stage):
    stage.script.spoil, stage.lines = accounted_for(exchange=0.001), WALL_LINES
    outcome = stage.measure(WALL_WEAK)[WALL_WEAK]
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.account is not None
    assert outcome.account.efficiency.estimate == pytest.approx(0.95)
    assert stage.script.schedules == {Schedule.FRESH}


def test_a_run_that_is_too_short_for_its_floor_is_refused(stage):
    """3.5 s fixed, 0.8 s of steps: two replicas cannot be done in 0.8 / 2 of the time."""
    stage.script.spoil, stage.lines = accounted_for(), WALL_LINES
    outcomes = stage.measure(WALL_WEAK, WALL_STRONG)
    assert outcomes[WALL_WEAK].judgement.verdict is Verdict.PASS
    refused = outcomes[WALL_STRONG]
    assert refused.judgement.verdict is Verdict.INCONCLUSIVE
    assert "even perfect scaling would not reach 0.8; it takes 553 steps" in (
        refused.judgement.reason
    )
    assert refused.judgement.figure.estimate == pytest.approx(0.55, abs=0.02)
    assert refused.account is not None


def test_a_ledger_that_does_not_close_is_no_evidence(stage):
    stage.script.spoil, stage.lines = accounted_for(unexplained=1.0), WALL_LINES
    outcome = stage.measure(WALL_WEAK)[WALL_WEAK]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "its ledger leaves 1.00 s of" in outcome.judgement.reason
    assert outcome.account is None


# Budget ----------------------------------------------------------------------------------------


def test_no_round_begins_that_would_end_past_the_budget(stage):
    # A round takes 10 s and three turns of 1 s.
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 60.0
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
    assert outcome.judgement.rounds == len(stage.script.launched) == 4
    assert "4 rounds bound nothing" in outcome.judgement.reason


def test_one_round_is_measured_however_small_the_budget(stage):
    stage.budget_s = 1.0
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.rounds == len(stage.script.launched) == 1


def test_workloads_share_what_is_left_of_the_budget(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 120.0
    stage.later = (weak_scaling(OTHER, 2),)
    stage.measure(WEAK)
    assert len(stage.script.launched) == 4


def test_a_workload_that_starts_more_processes_gets_more_of_the_budget(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 120.0
    stage.later = (parity(OTHER, 2), weak_scaling(OTHER, 2))  # 4 processes to our 3
    stage.measure(WEAK)
    assert len(stage.script.launched) == 3


def test_a_training_run_gets_more_of_the_budget_than_a_start(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 120.0
    stage.later = (fixed_time(OTHER, 2),)  # 3 processes and two runs, 9 starts to our 3
    stage.measure(WEAK)
    assert len(stage.script.launched) == 2


def test_what_is_only_shown_takes_nothing_of_the_budget(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.cores = 1
    stage.budget_s = 120.0
    stage.oversubscribed = (WORKLOAD.model,)
    stage.later = (communication(OTHER, 2), communication(OTHER, 1))
    stage.measure(COMMUNICATION)  # 2 processes to the other's 1
    assert len(stage.script.launched) == 6


@pytest.mark.parametrize(
    ("budget_s", "expected"),
    [
        # The first round takes turns_min, the others what is left: 7 rounds of 10 s and turns.
        (13 + 7 * (10 + 6), [3, 6, 6, 6, 6, 6, 6, 6]),
        (13 + 7 * (10 + 5), [3, 5, 5, 5, 5, 5, 5, 5]),
        (13 + 7 * (10 + 3), [3, 3, 3, 3, 3, 3, 3, 3]),
        (ENOUGH, [3, 6, 6, 6, 6, 6, 6, 6]),
    ],
)
def test_a_launch_takes_as_many_turns_as_the_budget_allows(stage, budget_s, expected):
    stage.budget_s = budget_s
    assert stage.measure(WEAK)[WEAK].judgement.verdict is Verdict.PASS
    assert stage.script.turns == expected


def test_the_fewest_turns_are_kept_where_the_budget_is_short(stage):
    stage.budget_s = 40.0
    stage.measure(WEAK)
    assert stage.script.turns == [3, 3, 3]


def test_progress_names_round_and_next_look(stage):
    stage.measure(WEAK)
    assert stage.said[0] == "resnet_50_s  round 1 of 8: start"
    assert stage.said[1].startswith("resnet_50_s  round 2 of 8, about 91 s to the next look")


def test_whoever_wants_to_know_more_is_told_what_passes_between_two_lines(stage):
    stage.budget_s = 1000.0
    began = stage.script.clock
    stage.measure(WEAK)
    assert len(stage.noted) == 2 * len(stage.said), "every line, too"
    first, turn, *_ = stage.noted
    assert (first.where, first.what) == ("resnet_50_s  round 1 of 8", "start")
    assert turn.what == "turn 1 of 3"
    assert first.next_look is None
    assert first.budget_ends == began + 1000.0
    second = stage.noted[2]
    assert second.where == "resnet_50_s  round 2 of 8"
    # The first round took 13 s, and seven more are to come; none of the clock passes in a round.
    assert second.next_look == pytest.approx(began + 8 * 13.0)


# Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "hurt"),
    [
        (MIRRORED_2, {PARITY}),
        (HOROVOD_1, {WEAK, STRONG}),
        (HOROVOD_2, set(ALL)),
    ],
)
@pytest.mark.parametrize("number", [0, 2])
def test_a_launch_that_fails_fails_what_needs_it_and_nothing_else(stage, arm, hurt, number):
    stage.script.failing[arm] = number
    outcomes = stage.measure(*ALL)
    for comparison, outcome in outcomes.items():
        if comparison in hurt:
            assert outcome.judgement.verdict is Verdict.FAIL
            assert outcome.failure is not None
            assert outcome.failure.rank == 1
            assert "rank 1 failed in phase 'block': it broke" in outcome.judgement.reason
        else:
            assert outcome.judgement.verdict is Verdict.PASS
            assert outcome.failure is None


def test_other_arms_of_what_has_failed_are_not_launched_again(stage):
    stage.script.failing[MIRRORED_2] = 1
    stage.measure(WEAK, PARITY)
    assert all(MIRRORED_2 not in arms for arms in stage.script.launched[2:])
    stage.script.launched.clear()
    stage.measure(PARITY)
    assert len(stage.script.launched) == 2


# Evidence --------------------------------------------------------------------------------------


def test_bad_evidence_is_invalid_at_once(stage):
    def spoil(launched: Launch) -> None:
        if launched.arm == HOROVOD_2 and launched.round == 1:
            launched.evidence = [evidence_report(digests=[digest]) for digest in "ab"]

    stage.script.spoil = spoil
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "replicas differ" in outcome.judgement.reason
    assert outcome.judgement.rounds == len(stage.script.launched) == 2


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0])
def test_a_clock_that_reads_nonsense_is_invalid(stage, seconds):
    def spoil(launched: Launch) -> None:
        if launched.arm == HOROVOD_2:
            first = launched.blocks[0]
            ranks = [{**rank, "seconds": seconds} for rank in first.ranks]
            launched.blocks[0] = replace(first, ranks=ranks)

    stage.script.spoil = spoil
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "not finite" in outcome.judgement.reason


def test_a_missing_threshold_is_invalid_with_a_line_to_paste(stage):
    stage.lines = ()
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert outcome.judgement.rounds == FIRST_LOOK
    assert outcome.threshold_line == '"weak_scaling/resnet_50_s/np2/one-node" = 0.97'
    assert outcome.judgement.reason == (
        f"no threshold; add to cpu-made-up.toml: {outcome.threshold_line}"
    )
    assert outcome.judgement.figure is not None


def test_strategies_that_train_alike_are_compared(stage):
    # The tolerance is 1e-5 relative.
    stage.script.trained = {HOROVOD_2: [1.0, 2.0], MIRRORED_2: [1.0, 2.00001]}
    assert verdicts(stage.measure(PARITY)) == {PARITY: Verdict.PASS}


def test_strategies_that_train_other_weights_are_not_compared(stage):
    stage.script.trained = {HOROVOD_2: [1.0, 2.0], MIRRORED_2: [1.0, 2.1]}
    outcomes = stage.measure(WEAK, PARITY)
    assert verdicts(outcomes) == {WEAK: Verdict.PASS, PARITY: Verdict.INVALID}
    assert outcomes[PARITY].judgement.reason.startswith(
        "horovod@2 and mirrored@2 trained different weights: tensor a0 differs by 0.1"
    )


@pytest.mark.parametrize("arm", [HOROVOD_2, MIRRORED_2])
def test_replicas_that_differ_after_reproducible_training_are_invalid(stage, arm):
    stage.script.digests = {arm: ["c0de", "dead"]}
    outcome = stage.measure(PARITY)[PARITY]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert f"{arm.name}: replicas differ after reproducible training" in outcome.judgement.reason


def test_rounds_of_a_case_are_those_with_all_of_its_arms(stage):
    outcome = stage.measure(*ALL)[PARITY]
    assert [measured.number for measured in outcome.rounds] == list(range(FIRST_LOOK))
    assert all(set(PARITY.arms) <= set(measured.launches) for measured in outcome.rounds)
    assert len(outcome.observations) == FIRST_LOOK


def test_timed_seconds_are_those_of_all_blocks(stage):
    outcome = stage.measure(WEAK)[WEAK]
    blocks = itertools.chain.from_iterable(
        launched.blocks for measured in outcome.rounds for launched in measured.launches.values()
    )
    assert stage.session.timed_seconds == pytest.approx(sum(block.seconds for block in blocks))


TRIALS = {each.variant: each for each in trials(WORKLOAD, 2)}
SAME = same(WORKLOAD, 2)


def struck(arm: Arm, factor: float) -> Speed:
    """That arm by so much faster than everything else."""
    return lambda side, number: level(side, number) * (factor if side.arm == arm else 1.0)


def test_what_is_planted_and_noticed_but_blamed_on_others_has_failed(stage):
    slow = TRIALS["slow10"]
    stage.script.speed = struck(slow.candidate.arm, 0.9)
    outcome = stage.measure(slow)[slow]
    # All ranks are slower here, and not rank 1.
    assert outcome.judgement.verdict is Verdict.FAIL
    assert outcome.noticed.called is Verdict.FAIL
    assert outcome.judgement.reason.startswith("planted slow:rank=1,factor=1.10: FAIL, for exposed")


def test_what_is_planted_and_blamed_on_the_right_rank_has_passed(stage):
    slow = TRIALS["slow10"]
    stage.script.speed = struck(slow.candidate.arm, 0.9)

    def waits(launched):
        if launched.arm != slow.candidate.arm:
            return
        for block in launched.blocks:
            # A tenth of its step is spent between steps by rank 1.
            block.ranks[1]["inside_seconds"] *= 0.9

    stage.script.spoil = waits
    outcome = stage.measure(slow)[slow]
    assert outcome.judgement.verdict is Verdict.PASS
    assert (outcome.noticed.blame.term, outcome.noticed.blame.rank) == ("between steps", 1)
    assert outcome.judgement.rounds == FIRST_LOOK


def test_what_makes_a_launch_invalid_is_caught_in_the_first_round(stage):
    other = TRIALS["data"]

    def misread(launched):
        if launched.arm == other.candidate.arm:
            launched.evidence[1]["data"] = "other"

    stage.script.spoil = misread
    outcome = stage.measure(other)[other]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.PASS, 1)
    assert outcome.noticed.called is Verdict.INVALID


def test_nothing_is_planted_and_nothing_is_found(stage):
    nothing = TRIALS["twin"]
    outcomes = stage.measure(nothing)
    assert verdicts(outcomes) == {nothing: Verdict.PASS}
    stage.script.speed = struck(nothing.candidate.arm, 0.9)
    assert verdicts(stage.measure(nothing)) == {nothing: Verdict.FAIL}, "a false alarm"


def test_two_groups_of_one_arm_that_differ_make_nothing_valid(stage):
    stage.lines = (Line(("same", "*", "*", "*"), Band(0.9, 1.1)),)
    assert verdicts(stage.measure(SAME)) == {SAME: Verdict.PASS}
    stage.script.speed = struck(SAME.candidate.arm, 1.3)
    outcome = stage.measure(SAME)[SAME]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert outcome.judgement.reason.startswith("two groups of the same arm differ")
    assert outcome.noticed is None


def test_computing_and_exchange_are_told_apart_only_where_that_is_asked():
    kinds = kinds_of(list(TRIALS.values()), lambda comparison: True)
    local = {arm.planted for arm, wanted in kinds.items() if BlockKind.LOCAL in wanted}
    assert local == {"", "busy", "cycle", "nofuse"}


def test_what_is_planted_is_not_judged_on_gpus(stage):
    stage.gpus = ("0", "1")
    slow = TRIALS["slow10"]
    outcome = stage.measure(slow)[slow]
    assert outcome.judgement.verdict is Verdict.NOT_JUDGED
    assert "where the processor waits" in outcome.judgement.reason


def test_a_trial_without_a_threshold_to_notice_it_by_is_not_judged(stage):
    leak = TRIALS["leak"]

    def grown(launched):
        launched.run = [run_report(), run_report()]

    stage.script.spoil = grown
    outcome = stage.measure(leak)[leak]
    assert outcome.judgement.verdict is Verdict.NOT_JUDGED
    assert outcome.threshold_line == "", "that of a fault is no threshold"
