"""Recordings of the truth table as made-up machines would have measured them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from bench.truth_rules import NONE, Recorded, recordings
from hvdperf.files import write_record
from hvdperf.plan.arms import BlockKind, Schedule
from hvdperf.plan.comparisons import RoundGroup
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.records.archive import Archive
from hvdperf.records.documents import FORMAT, ROUNDS, SESSION_FILE, RoundsDocument
from hvdperf.records.rounds import Block, BlockReport, Launch, Round, Turns
from tests.support.rounds import HOROVOD_2, WORKLOAD, usage
from tests.support.stores import SESSION, session_of_cases

STEPS, TURNS, STEP_SECONDS = 11, 4, 0.03
# The steps of a block as shares of their mean.
SCATTER = [*[1.05, 0.95] * (STEPS // 2), 1.0]
ARMS = (NONE, "aa", "slow10", "late15", "cycle")
VGG = replace(HOROVOD_2, workload=replace(WORKLOAD, model="vgg_16_s"))
GROUP = RoundGroup(VGG.workload, "blocks", "trust")
OTHER_SESSION = "20260201T235959Z-4711"
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


def archive(
    rounds: int = 24,
    noise: float = 0.002,
    slower: Mapping[str, float] = SLOWER,
    session: str = SESSION,
    speed: float = 1.0,
    foreign: float = 0.0,
    arms: Iterable[str] = ARMS,
) -> Archive:
    """Return a session. noise: the standard deviation of a run's step, as a share. speed: of the
    machine."""
    arms = list(arms)
    generator = random.Random(session)

    def step(arm: str) -> float:
        return STEP_SECONDS / speed * slower.get(arm, 1.0) * (1 + generator.gauss(0, noise))

    measured = {
        number: Round(
            number,
            Schedule.ALTERNATE,
            [launch(number, arm, step(arm), slower.get(arm, 1.0), foreign) for arm in arms],
        )
        for number in range(rounds)
    }
    seconds = 5.0 * rounds * len(arms)
    document = replace(session_of_cases(), session=session, elapsed_seconds=seconds)
    return Archive(Path(session), document, (), (), {GROUP: measured})


def recording(**kinds: object) -> Recorded:
    """Return the recording of such a session."""
    (found,) = recordings(archive(**kinds))  # type: ignore[arg-type]
    return found


def write(runs: Path, archive: Archive) -> Path:
    """Write the documents of a session below runs, and return its directory."""
    document = archive.session
    assert document is not None
    directory = runs / document.session
    (directory / ROUNDS).mkdir(parents=True)
    write_record(directory / SESSION_FILE, document)
    for group, rounds in archive.rounds.items():
        head = FORMAT, document.session, document.written_at, group
        path = directory / ROUNDS / f"{group.name}.json"
        write_record(path, RoundsDocument(*head, tuple(rounds.values())))
    return directory
