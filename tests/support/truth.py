"""Recordings of the truth table as made-up machines would have measured them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from bench.truth_rules import FORMAT, NONE, Recording
from hvdperf.plan.arms import BlockKind, Schedule
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.records.rounds import Block, BlockReport, Launch, Round, Turns
from tests.support.rounds import HOROVOD_2, WORKLOAD, usage

STEPS, TURNS, STEP_SECONDS = 11, 4, 0.03
# The steps of a block as shares of their mean.
SCATTER = [*[1.05, 0.95] * (STEPS // 2), 1.0]
ARMS = (NONE, "aa", "slow10", "late15", "cycle")
VGG = replace(HOROVOD_2, workload=replace(WORKLOAD, model="vgg_16_s"))
SLOWER = {"slow10": 1.1, "late15": 1.15, "cycle": 1.5}


def rank_times(step: float, late: float, of_input: bool) -> BlockReport:
    """Return the times of a rank. late: by how much it comes late to a step; negative for the rank
    that waits for it."""
    own_input = 0.002 + (late if of_input and late > 0 else 0.0)
    outside = own_input if of_input or late <= 0 else own_input + late
    return BlockReport(
        step * STEPS,
        [step * share for share in SCATTER],
        [own_input] * STEPS,
        (step - outside) * STEPS,
        STEPS,
        step * STEPS,
        math.nan,
    )


def launch(number: int, arm: str, step: float, slower: float, foreign: float = 0.0) -> Launch:
    """Return a launch of two ranks, in which rank 1 is late if the arm has such a fault. slower: a
    step over a healthy one. foreign: the share of the cores that other programs used."""
    is_late = arm != NONE and FAULT_CASES[arm].rank is not None
    late = (slower - 1) * step / slower if is_late else 0.0
    ranks = [rank_times(step, one, arm == "late15") for one in (-late, late)]
    blocks = [
        Block(BlockKind.FULL, turn, STEPS, ranks, turn, usage(foreign)) for turn in range(TURNS)
    ]
    made = replace(VGG, injected="" if arm == NONE else arm)
    return Launch(made, number, [{"start": 2.0}] * 2, work=Turns(blocks=blocks))


def recording(
    rounds: int = 24,
    noise: float = 0.002,
    slower: Mapping[str, float] = SLOWER,
    session: str = "20260131T235959Z",
    speed: float = 1.0,
    foreign: float = 0.0,
    arms: Iterable[str] = ARMS,
) -> Recording:
    """Return a recording. noise: the standard deviation of a run's step, as a share. speed: of the
    machine."""
    arms = list(arms)
    generator = random.Random(session)

    def step(arm: str) -> float:
        return STEP_SECONDS / speed * slower.get(arm, 1.0) * (1 + generator.gauss(0, noise))

    measured = [
        Round(
            number,
            Schedule.ALTERNATE,
            [launch(number, arm, step(arm), slower.get(arm, 1.0), foreign) for arm in arms],
        )
        for number in range(rounds)
    ]
    launches = rounds * len(arms)
    return Recording(
        FORMAT,
        session,
        "0.2.0",
        {"cpu_model": "made up", "cores": 2},
        {"tensorflow": "2.20.0", "horovod": "0.28.1", "mpi_library": "Open MPI v4.1.8"},
        5.0 * launches,
        launches,
        {arm: FAULT_CASES[arm].fault if arm != NONE else "" for arm in arms},
        measured,
    )
