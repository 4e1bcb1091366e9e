"""Short runs of a script, each cut after the same number of steps on all ranks, none of which can
change the user's files (hvdperf.worker.script.tap._hvdperf_private)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from pathlib import Path
from statistics import fmean

from hvdperf.errors import UserError, refusing
from hvdperf.launch.launchers import own_settings
from hvdperf.launch.scratch import scratch_directory
from hvdperf.machine.stack import check_python
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import shown
from hvdperf.programs import last_line
from hvdperf.script import revisions
from hvdperf.script.recorded import Rank, last_job, read_ranks
from hvdperf.script.run import environment, is_mpirun, on_all_hosts
from hvdperf.timeline.processes import ended
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.script.tap._hvdperf_recorder import FIRST

# The first run, which is not counted, says how many steps take SECONDS.
FIRST_STEPS, LEAST_STEPS, MOST_STEPS, SECONDS = 30, 40, 2000, 4.0
# The share of steps that are faster than Figure.LOW; slower ones are disturbed more often.
_FASTER = 0.1
SETTING = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BEFORE_SETTING = re.compile(r"\s+(?=[A-Za-z_]\w*=)")
# Of more files only the number is shown.
_NAMED = 6
# The programs of the environment that is active here.
_ACTIVE = Path(sys.executable).parent
# Exit statuses of a command that Ctrl-C or SIGTERM ended.
_INTERRUPTED = (-2, -15, 130, 143)


class Figure(Enum):
    """What is judged of the seconds of steps."""

    LOW = "10th percentile"
    MEAN = "mean"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison. name: in words. settings: variables that are set besides.
    interpreter: of the environment that it runs in; None for the one of the command. revision: of
    the repository; "" for the files as they are. The settings of LAUNCH are known after the first
    run."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    interpreter: Path | None = None
    revision: str = ""


AS_IT_IS = Arm("the command")
# What --against names for the settings with which the suite launches its own networks.
LAUNCH = "launch"


def launch_settings(job: Sequence[Rank], cores: int, has_gpus: bool) -> dict[str, str]:
    """Return the variables with which the suite would launch the ranks of a job. cores: of a
    host."""
    ranks = max(Counter(rank.host for rank in job).values())
    return own_settings(0 if has_gpus else max(1, cores // ranks))


def other_arm(wanted: str, place: Path) -> Arm:
    """Return what --against names. place: the directory in which the script is started. Raises
    UserError."""
    # A value may have blanks.
    words = _BEFORE_SETTING.split(wanted.strip())
    if wanted == LAUNCH:
        return Arm(LAUNCH)
    if words and all(SETTING.fullmatch(word) for word in words):
        return Arm(wanted, dict(word.split("=", 1) for word in words))
    interpreter = Path(wanted).expanduser()
    if interpreter.is_file():
        with refusing(f"--against {wanted}: ", UserError):
            check_python(interpreter.absolute())
        return Arm(shown(interpreter.absolute()), interpreter=interpreter.absolute())
    repository = revisions.repository(place)
    if repository is not None and revisions.is_revision(repository, wanted):
        return Arm(f"revision {wanted}", revision=wanted)
    raise UserError(
        f"--against {wanted}: this is neither settings (NAME=VALUE), nor the Python of an "
        f"environment, nor a revision of the git repository in which the script is, nor {LAUNCH}"
    )


@dataclass(frozen=True)
class Run:
    """A run of an arm. job: what its ranks wrote. asked: the number of steps after which it was
    to be cut."""

    job: Sequence[Rank]
    asked: int = 0

    def seconds(self, figure: Figure, by_sample: bool) -> float:
        """Return the figure of a step, on average over the ranks; of a sample if `by_sample`."""
        found = []
        for rank in self.job:
            steps = rank.steps
            assert steps is not None
            assert steps.period is not None
            seconds = steps.period
            if figure is Figure.LOW and steps.are_told_apart:
                periods = sorted(row.period for row in steps.rows if row.number > FIRST)
                seconds = periods[int(_FASTER * len(periods))]
            found.append(seconds / (steps.samples / steps.count if by_sample else 1.0))
        return fmean(found)

    @property
    def has_samples(self) -> bool:
        return all(rank.steps is not None and rank.steps.samples for rank in self.job)

    @property
    def count(self) -> int:
        """Return the steps of the rank that did fewest."""
        return min(rank.steps.count if rank.steps is not None else 0 for rank in self.job)

    @property
    def short(self) -> str:
        """Return in words that it ended before so many steps; "" if it did not."""
        if self.count >= self.asked:
            return ""
        return (
            f"the script ended by itself after {self.count} of {self.asked} steps. If it resumes "
            "from a checkpoint, only the rest is measured: move the checkpoint away, or use a "
            "smaller --steps"
        )


def steps_of(runs: Sequence[Run]) -> int:
    """Return how many steps take SECONDS, of the slowest of these runs."""
    longest = max(run.seconds(Figure.MEAN, by_sample=False) for run in runs)
    return min(MOST_STEPS, max(LEAST_STEPS, ceil(SECONDS / longest)))


class Interrupted(UserError):
    """Somebody has ended a run, which does not count."""

    def __init__(self) -> None:
        super().__init__("interrupted; the last run does not count")


class Runner:
    """Runs an arm. directory: takes what is recorded."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.place = Path.cwd()
        self.repository = revisions.repository(self.place)
        self.top = private.top_of(self.place)
        self.command = command
        self.directory = directory

    def run(self, arm: Arm, name: str, steps: int) -> Run:
        """Run an arm for so many steps. Raises UserError if it ends otherwise."""
        place = self.directory / name
        output = place / "output.txt"
        place.mkdir(parents=True)
        with refusing("temporary files: ", OSError, "; set TMPDIR"):
            scratch = scratch_directory("hvdperf-")
        try:
            changed = self._changed(arm)
            if arm.revision and self.repository is not None:
                revisions.keep_revision(self.repository, arm.revision, place)
            revision = str(place) if arm.revision else ""
            plan = private.plan(
                *(self.top, self.place, scratch, place, self.directory.parent), revision, changed
            )
            given = {**environment(place, steps, self._environment(arm)), private.VARIABLE: plan}
            command = on_all_hosts(self._command(arm), (*arm.settings, private.VARIABLE))
            status = self._ended(private.command(command), output, given)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if (place / private.WHY).exists():
            raise UserError((place / private.WHY).read_text())
        ranks, _ = read_ranks(place)
        job, _ = last_job(ranks)
        if arm.interpreter is not None:
            own = arm.interpreter.parent.resolve()
            used = {Path(rank.interpreter).parent.resolve() for rank in job}
            if used - {own}:
                raise UserError(
                    f"the ranks ran with the Python in {min(used - {own})}, not in {own}: give the "
                    "command the programs' names alone (horovodrun, python), not their paths"
                )
        elsewhere = sorted({rank.code.elsewhere for rank in job if rank.code is not None} - {""})
        if elsewhere:
            raise UserError(
                f"{arm.name} did not run: a rank imported {elsewhere[0]}; take it off PYTHONPATH, "
                "or install the project by pip install -e"
            )
        ended_early = [
            rank for rank in job if rank.steps is None or rank.steps.count < min(steps, FIRST + 2)
        ]
        if status != 0 or not job or ended_early:
            said = last_line(output.read_text(errors="replace")) or "nothing"
            why = "no rank trained long enough"
            if not job:
                why = "no rank was seen (does the command set PYTHONPATH? Let it extend that)"
            if status:
                why = f"it ended with status {status}"
            if (place / private.BY_LANDLOCK).exists():
                said += (
                    f" (Landlock lets it write to a copy of {self.top} and to TMPDIR only, and to "
                    f"no file there of more than {private.LINKED >> 20} MB)"
                )
            raise UserError(f"{arm.name}: {why}, and said: {said}; see {shown(output)}")
        return Run(job, steps)

    def _changed(self, arm: Arm) -> list[str]:
        """Return the Python files in which an arm's revision differs from the files as they are.
        Raises UserError."""
        if self.repository is None or not arm.revision:
            return []
        return revisions.changed_python(self.repository, arm.revision)

    def check_code(self, other: Arm, own: Run, its: Run) -> None:
        """Raise UserError if the command and its other revision ran the same code, though they
        differ in Python files."""
        changed, codes = self._changed(other), [run.job[0].code for run in (own, its)]
        first, second = ("" if code is None else code.sha256 for code in codes)
        if changed and first and first == second:
            raise UserError(
                f"both sides ran the same code: {other.name} differs in {changed[0]}"
                f"{f' and {len(changed) - 1} more' if changed[1:] else ''}, and no rank imported "
                f"that from {self.top}; {self.code(AS_IT_IS, own)}"
            )

    def code(self, arm: Arm, run: Run) -> str:
        """Return which code the ranks of a run ran, in words."""
        code = run.job[0].code
        if code is None:
            return ""
        commit = revisions.commit_of(self.repository, arm.revision) if self.repository else ""
        names = ", ".join(code.files[:_NAMED]) or "none"
        more = f" and {len(code.files) - _NAMED} more" if code.files[_NAMED:] else ""
        at = f", commit {commit}" if commit else ""
        return f"{arm.name} ran {names}{more} of {code.top}{at} (sha256 {code.sha256[:12]})"

    def _environment(self, arm: Arm) -> dict[str, str]:
        found = {**os.environ, **arm.settings}
        if arm.interpreter is None:
            return found
        found = rank_environment(arm.interpreter, found)
        # The suite's own ranks find its modules by that; a script needs none of them.
        found["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        found["PATH"] = os.pathsep.join([str(arm.interpreter.parent), found.get("PATH", "")])
        return found

    def _command(self, arm: Arm) -> list[str]:
        """Return the words of the command for an arm: programs of an environment are those of the
        arm's own."""
        here = shutil.which(self.command[0])
        if arm.interpreter is not None and here is not None and not is_mpirun(here):
            own = arm.interpreter.parent / Path(here).name
            if Path(here).parent == _ACTIVE and not own.exists():
                raise UserError(
                    f"there is no {own.name} in {own.parent}, and the one in {Path(here).parent} "
                    "starts another environment; install what the command starts there, too"
                )
        found = []
        for word in self.command:
            path = Path(word)
            program = Path(shutil.which(word) or "") if word == self.command[0] else path
            if arm.interpreter is not None and here is not None:
                own = arm.interpreter.parent / program.name
                beside = program.parent in (Path(here).parent, _ACTIVE)
                if program.is_absolute() and beside and own.exists():
                    found.append(str(own))
                    continue
            found.append(word)
        return found

    def _ended(self, command: Sequence[str], output: Path, given: Mapping[str, str]) -> int:
        shell = ["sh", "-c", 'exec "$@" 2>&1', "sh", *command]
        with open(output, "w") as stream:
            status = ended(shell, stream, self.place, given)
        if status in _INTERRUPTED:
            raise Interrupted
        return status
