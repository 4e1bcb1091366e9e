"""Compares a script with itself under other settings, in another environment, or at another
revision: short runs of both in turn, and a verdict on each of two figures.

Each run is cut after the same number of steps on all ranks, in a copy of the directory in which
the script is started (hvdperf.script.scratch). A pair of runs is a round, judged by the suite's
rule for one stack against another.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, log
from pathlib import Path
from statistics import fmean

from hvdperf.columns import Columns, wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.interim import judge_rounds
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import shown
from hvdperf.plan.terms import Term
from hvdperf.script import scratch
from hvdperf.script.checks import problems
from hvdperf.script.recorded import Rank, last_job, read_ranks
from hvdperf.script.run import environment, on_all_hosts
from hvdperf.script.tap._hvdperf_recorder import FIRST
from hvdperf.script.terms import TERMS, parts_of
from hvdperf.timeline.processes import ended
from hvdperf.verdict import REGRESSION, Judgement, Verdict, must_be, worst

# Rounds after which a verdict is tried.
LOOKS = (8, 12, 24)
# The first run of each arm, which is not counted, and says how many steps take SECONDS.
FIRST_STEPS, LEAST_STEPS, MOST_STEPS, SECONDS = 30, 40, 2000, 4.0
# Of the steps of a run; others are disturbed more often.
LOW = 0.1
_SETTING = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_MS = 1000.0
# Exit statuses of a command that Ctrl-C or SIGTERM ended.
_INTERRUPTED = (-2, -15, 130, 143)

Say = Callable[[str], None]


class Figure(Enum):
    """What is judged."""

    USUAL = "usual step"
    MEAN = "all steps"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison. name: in words. settings: variables that are set besides.
    interpreter: of the environment that it runs in; None for the one of the command. revision: of
    the repository; "" for the files as they are."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    interpreter: Path | None = None
    revision: str = ""


AS_IT_IS = Arm("the command")


def other_arm(wanted: str, place: Path) -> Arm:
    """Return what --against names. place: the directory in which the script is started. Raises
    UserError."""
    words = wanted.split()
    if words and all(_SETTING.fullmatch(word) for word in words):
        return Arm(wanted, dict(word.split("=", 1) for word in words))
    interpreter = Path(wanted).expanduser()
    if interpreter.is_file() and os.access(interpreter, os.X_OK):
        return Arm(shown(interpreter.absolute()), interpreter=interpreter.absolute())
    if scratch.is_revision(place, wanted):
        return Arm(f"revision {wanted}", revision=wanted)
    raise UserError(
        f"--against {wanted}: this is neither settings (NAME=VALUE), nor the Python of an "
        "environment, nor a revision of the git repository in which the script is"
    )


@dataclass(frozen=True)
class Run:
    """A run of an arm. job: what its ranks wrote."""

    job: Sequence[Rank]

    def seconds(self, figure: Figure, by_sample: bool) -> float:
        """Return the seconds of a step, on average over the ranks; of a sample if `by_sample`."""
        found = []
        for rank in self.job:
            steps = rank.steps
            assert steps is not None
            assert steps.period is not None
            seconds = steps.period
            if figure is Figure.USUAL:
                periods = sorted(row.period for row in steps.rows if row.number > FIRST)
                seconds = periods[int(LOW * len(periods))]
            found.append(seconds / (steps.samples / steps.count if by_sample else 1.0))
        return fmean(found)

    @property
    def has_samples(self) -> bool:
        return all(rank.steps is not None and rank.steps.samples for rank in self.job)


class Interrupted(Exception):
    """Somebody has ended a run."""


@dataclass
class Comparison:
    """Runs of two arms in turn. pairs: the command's run and the other one's."""

    other: Arm
    pairs: list[tuple[Run, Run]] = field(default_factory=list)
    wrong: str = ""

    @property
    def by_sample(self) -> bool:
        return all(run.has_samples for pair in self.pairs for run in pair)

    def judged(self, is_over: bool) -> dict[Figure, Judgement]:
        """Return the verdict on each figure: the speed of the command over that of the other arm.
        is_over: whether no further round will come."""
        found = {}
        for figure in Figure:
            rows = [
                [log(other.seconds(figure, self.by_sample) / own.seconds(figure, self.by_sample))]
                for own, other in self.pairs
            ]
            judgement = judge_rounds(rows, REGRESSION, LOOKS, None, is_over)
            if self.wrong:
                judgement = Judgement(
                    Verdict.INVALID, judgement.figure, REGRESSION, len(rows), self.wrong
                )
            found[figure] = judgement
        return found


def compare(
    command: Sequence[str],
    other: Arm,
    directory: Path,
    steps: int | None,
    budget_s: float,
    say: Say,
) -> Comparison:
    """Run both arms in turn until both figures are decided, or time is up. directory: takes what is
    recorded. steps: of a run; None for as many as take SECONDS. say: takes a line for each pair.
    Ctrl-C ends it early. Raises UserError if a run does not train."""
    ends = time.monotonic() + budget_s
    runner = _Runner(command, directory)
    found = Comparison(other)
    arms = (AS_IT_IS, other)
    if steps is None:
        runs = [runner.run(arm, f"first-{at}", FIRST_STEPS) for at, arm in enumerate(arms)]
        longest = max(run.seconds(Figure.MEAN, False) for run in runs)
        steps = min(MOST_STEPS, max(LEAST_STEPS, ceil(SECONDS / longest)))
        say(f"each run has {steps} steps")
    longest = 0.0
    while len(found.pairs) < LOOKS[-1]:
        begun = time.monotonic()
        if found.pairs and begun + longest > ends:
            break
        number = len(found.pairs)
        order = (0, 1) if number % 2 == 0 else (1, 0)
        try:
            done = {at: runner.run(arms[at], f"{number + 1}-{at}", steps) for at in order}
        except Interrupted:
            break
        found.pairs.append((done[0], done[1]))
        longest = max(longest, time.monotonic() - begun)
        own, its = (_MS * done[at].seconds(Figure.USUAL, False) for at in (0, 1))
        say(f"pair {number + 1}: a usual step takes {own:.2f} ms, with {other.name} {its:.2f} ms")
        found.wrong = found.wrong or _wrong(arms, done)
        if found.wrong:
            break
        if len(found.pairs) in LOOKS:
            verdicts = {each.verdict for each in found.judged(is_over=False).values()}
            if Verdict.INCONCLUSIVE not in verdicts:
                break
    return found


def _wrong(arms: Sequence[Arm], done: Mapping[int, Run]) -> str:
    """Return which check of a run fails, since the speed of such a training means nothing."""
    for at, run in sorted(done.items()):
        for problem in problems(run.job):
            return f"{arms[at].name}: {problem.what}; {problem.mend}"
    return ""


class _Runner:
    """Runs an arm. directory: takes what is recorded."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.place = Path.cwd()
        self.top = scratch.repository(self.place) or self.place
        self.command = command
        self.directory = directory

    def run(self, arm: Arm, name: str, steps: int) -> Run:
        """Run an arm for so many steps. Raises UserError if it ends otherwise."""
        place = self.directory / name
        work = place / "work"
        output = place / "output.txt"
        work.mkdir(parents=True)
        try:
            with refusing(f"{self.top}: ", OSError, "; it is copied for every run"):
                scratch.copy(self.top, work, self.directory.parent)
            if arm.revision:
                scratch.put_revision(self.top, arm.revision, work)
            given = {
                **environment(place, steps, self._environment(arm)),
                "HVDPERF_SCRATCH": os.pathsep.join([str(work), str(self.top)]),
            }
            command = on_all_hosts(self._command(arm, work), (*arm.settings, "HVDPERF_SCRATCH"))
            status = self._ended(command, output, work / self.place.relative_to(self.top), given)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        ranks, _ = read_ranks(place)
        job, _ = last_job(ranks)
        outside = sorted({each.outside for each in ranks} - {""})
        if outside:
            raise UserError(
                f"the script writes to {outside[0]}, which is outside of the directory in which it "
                "is started: that would be your file in every run; give it a relative path"
            )
        if arm.interpreter is not None:
            own = arm.interpreter.parent.parent.resolve()
            strange = sorted({rank.prefix for rank in job if Path(rank.prefix).resolve() != own})
            if strange:
                raise UserError(
                    f"the ranks ran with the Python of {strange[0]}, not of {own}: give the "
                    "command the programs' names alone (horovodrun, python), not their paths"
                )
        ended_early = [
            rank for rank in job if rank.steps is None or rank.steps.count < min(steps, FIRST + 2)
        ]
        if status != 0 or not job or ended_early:
            said = output.read_text(errors="replace").strip().splitlines() or ["nothing"]
            why = f"it ended with status {status}" if status else "no rank trained long enough"
            raise UserError(f"{arm.name}: {why}, and said: {said[-1]}; see {shown(output)}")
        return Run(job)

    def _environment(self, arm: Arm) -> dict[str, str]:
        found = {**os.environ, **arm.settings}
        if arm.interpreter is None:
            return found
        # Open MPI would look for its files in the environment that is active here.
        found.pop("OPAL_PREFIX", None)
        found = rank_environment(arm.interpreter, found)
        found["PATH"] = os.pathsep.join([str(arm.interpreter.parent), found.get("PATH", "")])
        return found

    def _command(self, arm: Arm, work: Path) -> list[str]:
        """Return the words of the command for an arm: files below the directory are those of its
        copy, and programs of an environment are those of the arm's own."""
        here = shutil.which(self.command[0])
        found = []
        for word in self.command:
            path = Path(word)
            program = Path(shutil.which(word) or "") if word == self.command[0] else path
            if arm.interpreter is not None and here is not None:
                own = arm.interpreter.parent / program.name
                beside = program.parent in (Path(here).parent, Path(sys.executable).parent)
                if program.is_absolute() and beside and own.exists():
                    found.append(str(own))
                    continue
            if path.is_absolute() and path.is_relative_to(self.top) and not _is_installed(path):
                found.append(str(work / path.relative_to(self.top)))
            else:
                found.append(word)
        return found

    @staticmethod
    def _ended(command: Sequence[str], output: Path, place: Path, given: Mapping[str, str]) -> int:
        shell = ["sh", "-c", 'exec "$@" 2>&1', "sh", *command]
        with open(output, "w") as stream:
            status = ended(shell, stream, place, given)
        if status in _INTERRUPTED:
            raise Interrupted
        return status


def _is_installed(path: Path) -> bool:
    """Return whether a file belongs to an installed environment, which is not copied."""
    return any((parent / "pyvenv.cfg").exists() for parent in path.parents)


_TABLE = Columns(
    ("figure", -12), ("speed", 6), ("interval", -16), ("limit", -10), ("n", 3), ("verdict", -12)
)


def told(found: Comparison) -> list[str]:
    """Return the result in lines."""
    unit = "samples" if found.by_sample else "steps"
    lines = wrapped(f"Speed in {unit} a second of the command over that of: {found.other.name}")
    lines += ["", _TABLE.header]
    judged = found.judged(is_over=True)
    for figure, each in judged.items():
        interval = (
            "-" if each.figure is None else f"[{each.figure.lower:.3f}, {each.figure.upper:.3f}]"
        )
        ratio = "-" if each.figure is None else f"{each.figure.estimate:.3f}"
        cells = (ratio, interval, must_be(each), each.rounds, each.verdict.value)
        lines.append(_TABLE.row(figure.value, *cells))
    for reason in dict.fromkeys(each.reason for each in judged.values() if each.reason):
        lines += wrapped(reason)
    lines += ["", *_by_term(found)]
    return lines


def _by_term(found: Comparison) -> list[str]:
    """Return where the two differ: the mean of a usual step by term and rank."""
    sums: tuple[dict[tuple[int, Term], list[float]], ...] = ({}, {})
    for pair in found.pairs:
        for own, run in zip(sums, pair, strict=True):
            parts = parts_of(run.job)
            for each in parts.by_rank if parts is not None else ():
                for term, seconds in each.terms.items():
                    own.setdefault((each.rank, term), []).append(seconds)
    if not sums[0] or sums[0].keys() != sums[1].keys():
        return []
    more = {key: fmean(sums[0][key]) - fmean(sums[1][key]) for key in sums[0]}
    table = Columns(("ms of a usual step", -34), ("command", 9), ("other", 9), ("more", 9))
    lines = [table.header]
    ranks = {rank for rank, _ in more}
    for term in (term for term in TERMS if any(key[1] is term for key in more)):
        both = [_MS * fmean(fmean(own[rank, term]) for rank in ranks) for own in sums]
        lines.append(
            table.row(term.value, *(f"{ms:.2f}" for ms in both), f"{both[0] - both[1]:+.2f}")
        )
    # Waiting for another rank is that rank's time.
    changed = {key: each for key, each in more.items() if key[1] is not Term.STRAGGLER}
    rank, term = max(changed, key=lambda key: abs(changed[key]))
    alone = all(
        abs(seconds) < abs(changed[rank, term]) / 2
        for (other, its), seconds in changed.items()
        if its is term and other != rank
    )
    where = f"on rank {rank}" if alone and len(ranks) > 1 else "on all ranks"
    lines += wrapped(
        f"largest difference: {term.value} {where}, {_MS * changed[rank, term]:+.2f} ms a step"
    )
    return lines


def verdict_of(found: Comparison) -> Verdict:
    """Return the verdict that decides for both figures."""
    return worst([each.verdict for each in found.judged(is_over=True).values()])
