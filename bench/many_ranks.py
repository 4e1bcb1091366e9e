"""`python -m bench.many_ranks [RANKS ...]`: judging, documents and page of a session of 256 ranks.

Nothing is launched. A recorded session of two replicas is widened: every rank gets the reports of a
recorded rank, with its times multiplied by a factor of its own, and rounds are repeated until there
are as many as a whole session has. The rounds are judged, written as documents, and shown by
`hvdperf report`.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from bench.noise import Generator
from hvdperf.judge.judge import Judge
from hvdperf.judge.rules import Rules
from hvdperf.paths import ROOT
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.options import Profile
from hvdperf.plan.questions import communication, strong_scaling, weak_scaling
from hvdperf.plan.thresholds import Line, Thresholds
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import Block, BlockReport, Launch, Round, Turns
from hvdperf.verdict import Floor
from tests.support.recorded import recorded_sessions
from tests.support.stores import case_of, placed, write_session

SEED = 20282
RANKS = 256
PER_NODE = 8
ROUNDS = 12
# Limits of the page.
PAGE_S, PAGE_MB = 10.0, 8.0
# The recorded session, and its replicas.
RECORDED = "20261124T061623Z-4940"
REPLICAS = 2
QUESTIONS = (weak_scaling, strong_scaling, communication)
# Standard deviation of ln seconds between ranks, and between the blocks of one rank.
RANK_SD, BLOCK_SD = 0.02, 0.03
# Floors that do not decide anything: what is measured here is the cost of judging.
THRESHOLDS = Thresholds(
    "made up", Path("made-up.toml"), (Line(("*", "*", "*", "*"), Floor.at(0.5)),)
)

Item = TypeVar("Item")


@dataclass(frozen=True)
class Cost:
    """The cost of one session: seconds of each part, and the sizes of its files in bytes."""

    cases: int
    judge_seconds: float
    write_seconds: float
    document_bytes: int
    report_seconds: float
    page_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {self.judge_seconds:.2f} s to judge, "
            f"{self.write_seconds:.2f} s to write {self.document_bytes / 1e6:.0f} MB of documents, "
            f"{self.report_seconds:.2f} s to read them and write a page of "
            f"{self.page_bytes / 1e6:.2f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many_ranks", description=__doc__)
    parser.add_argument("ranks", type=int, nargs="*", metavar="RANKS", help=f"({RANKS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of the session ({ROUNDS})")
    options = parser.parse_args()
    for ranks in options.ranks or [RANKS]:
        with TemporaryDirectory(prefix="hvdperf-ranks-") as scratch:
            cost = session_cost(ranks, options.rounds, Path(scratch))
        print(f"{ranks} ranks, {options.rounds} rounds, {cost}", flush=True)
        for name, found, limit in (
            ("seconds of the page", cost.report_seconds, PAGE_S),
            ("MB of the page", cost.page_bytes / 1e6, PAGE_MB),
        ):
            word = "within" if found <= limit else "BEYOND"
            print(f"  {name}: {found:.2f}, {word} the limit of {limit:g}")


def session_cost(ranks: int, rounds: int, results: Path) -> Cost:
    """Write a session of that many ranks and its page below `results`, and return the cost."""
    measured = {
        comparison: wide_rounds(case, comparison, rounds)
        for comparison, case in recorded_cases(ranks).items()
    }
    began = time.perf_counter()
    outcomes = [judged(comparison, each, ranks) for comparison, each in measured.items()]
    judge_seconds = time.perf_counter() - began
    began = time.perf_counter()
    cases = [case_of(outcome, ranks, PER_NODE) for outcome in outcomes]
    directory = write_session(results / "runs", *cases, world_sizes=(1, ranks))
    write_seconds = time.perf_counter() - began
    page = results / "page.html"
    command = [sys.executable, "-m", "hvdperf", "report", str(directory), "--out", str(page)]
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    report_seconds = time.perf_counter() - began
    return Cost(
        len(cases),
        judge_seconds,
        write_seconds,
        sum(path.stat().st_size for path in directory.iterdir()),
        report_seconds,
        page.stat().st_size,
    )


def judged(comparison: Comparison, rounds: Sequence[Round], ranks: int) -> Outcome:
    """Return the outcome of a comparison after its last round, on that many slots."""
    workload = comparison.workload
    profile = Profile(
        "made-up", (workload.model,), workload.dataset, batch=workload.batch, budget_s=1.0
    )
    rules = Rules(profile, THRESHOLDS, placed(ranks, PER_NODE))
    judge = Judge(rules, {}, {}, lambda arm: {}, lambda comparison: None)
    return judge.outcome(comparison, rounds, final=True)


# Recorded rounds with more ranks ---------------------------------------------------------------


def recorded_cases(ranks: int) -> dict[Comparison, Case]:
    """Return recorded cases by the comparison of `ranks` replicas that each is widened to."""
    (session,) = (each for each in recorded_sessions() if each.directory.name == RECORDED)
    of_comparison = {case.comparison: case for case in session.cases}
    found = {}
    for ask in QUESTIONS:
        for comparison, case in of_comparison.items():
            if comparison == ask(case.workload, REPLICAS):
                found[ask(case.workload, ranks)] = case
    return found


def wide_rounds(case: Case, comparison: Comparison, rounds: int) -> list[Round]:
    """Return that many rounds of the comparison, made of the rounds of a recorded case."""
    generator = np.random.default_rng(SEED)
    found = []
    for number in range(rounds):
        recorded = case.rounds[number % len(case.rounds)]
        launches = [
            wide(launch, comparison.world_size, number, generator) for launch in recorded.launches
        ]
        found.append(Round(number, recorded.schedule, launches))
    return found


def wide(launch: Launch, ranks: int, number: int, generator: Generator) -> Launch:
    """Return the launch with `ranks` replicas if it has REPLICAS, and else with as many as before.
    number: of its round."""
    if launch.arm.world_size != REPLICAS:
        return replace(launch, round=number)
    arm: Arm = replace(launch.arm, world_size=ranks)
    factors = np.exp(RANK_SD * generator.standard_normal(ranks)).tolist()

    def of_block(block: Block) -> Block:
        noise = np.exp(BLOCK_SD * generator.standard_normal(ranks)).tolist()
        reports = [
            slower(report, factor * own)
            for report, factor, own in zip(many(block.ranks, ranks), factors, noise, strict=True)
        ]
        if block.kind is BlockKind.SPLIT:
            reports = shared(reports, block.samples)
        return replace(block, ranks=reports)

    return replace(
        launch,
        arm=arm,
        round=number,
        startup_seconds=many(launch.startup_seconds, ranks),
        metadata=[
            replace(each, rank=rank, world_size=ranks)
            for rank, each in enumerate(many(launch.metadata, ranks))
        ],
        work=Turns(
            [of_block(block) for block in launch.warm_up],
            [of_block(block) for block in launch.blocks],
            [replace(each, ranks=many(each.ranks, ranks)) for each in launch.series],
        ),
        evidence=[replace(each, world_size=ranks) for each in many(launch.evidence, ranks)],
        correctness=many(launch.correctness, ranks),
    )


def many(recorded: Sequence[Item], ranks: int) -> list[Item]:
    """Return the recorded items again and again; [] if there is none."""
    return [recorded[rank % len(recorded)] for rank in range(ranks)] if recorded else []


def slower(report: BlockReport, factor: float) -> BlockReport:
    """Return the report with all times multiplied by the factor."""
    return replace(
        report,
        seconds=factor * report.seconds,
        step_seconds=[factor * each for each in report.step_seconds],
        input_seconds=[factor * each for each in report.input_seconds],
        inside_seconds=factor * report.inside_seconds,
        cpu_seconds=factor * report.cpu_seconds,
    )


def shared(reports: Sequence[BlockReport], samples: int) -> list[BlockReport]:
    """Return the reports with the samples shared out, because a split batch does not grow with the
    ranks."""
    ends = [math.floor(samples * (rank + 1) / len(reports)) for rank in range(len(reports))]
    return [
        replace(report, samples=end - begin)
        for report, begin, end in zip(reports, [0, *ends], ends, strict=False)
    ]


if __name__ == "__main__":
    main()
