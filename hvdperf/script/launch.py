"""Launches a command with the recorder in each of its ranks: as it is, or for a short run, which is
cut after the same number of steps on all ranks, and cannot change the user's files
(hvdperf.worker.script.tap._hvdperf_private)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from math import ceil
from pathlib import Path
from statistics import fmean

from hvdperf import programs
from hvdperf.cli import complain
from hvdperf.errors import UserError, first_of, refusing
from hvdperf.launch.helpers import scratch_directory
from hvdperf.machine import stack, starting
from hvdperf.paths import shown
from hvdperf.script.checks import stall_of
from hvdperf.script.recorded import Rank, last_job, read_ranks
from hvdperf.timeline.processes import Git, run_to_end
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.script.tap import _hvdperf_recorder as recorder

TAP = Path(recorder.__file__).parent
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
# Ranks on mpirun's own host have its environment; those on others what -x names. horovodrun and
# srun hand on all of it.
_MPIRUN = ("mpirun", "mpiexec", "orterun")
_HOSTS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
_OPEN_MPI = re.compile(r"Open MPI|OpenRTE")
_OURS = ("PYTHONPATH", "HVDPERF_RECORD", "HVDPERF_STEPS")


@dataclass(frozen=True)
class Command:
    """A command with its environment. words: as they are typed. name: in messages. settings:
    variables that are set besides. interpreter: of the environment that it runs in; None for its
    own. revision: of the repository; "" for the files as they are."""

    words: Sequence[str]
    name: str = "the command"
    settings: Mapping[str, str] = field(default_factory=dict)
    interpreter: Path | None = None
    revision: str = ""

    def against(self, wanted: str) -> Command:
        """Return what --against names. Raises UserError."""
        # A value may have blanks.
        words = _BEFORE_SETTING.split(wanted.strip())
        if words and all(SETTING.fullmatch(word) for word in words):
            settings = dict(word.split("=", 1) for word in words)
            return replace(self, name=wanted, settings=settings)
        interpreter = Path(wanted).expanduser()
        if interpreter.is_file():
            with refusing(f"--against {wanted}: ", UserError):
                stack.check_python(interpreter.absolute())
            interpreter = interpreter.absolute()
            return replace(self, name=shown(interpreter), interpreter=interpreter)
        revision = ("--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
        git = repository()
        if git is not None and git.tried("rev-parse", *revision).returncode == 0:
            return replace(self, name=f"revision {wanted}", revision=wanted)
        raise UserError(
            f"--against {wanted}: this is neither settings (NAME=VALUE), nor the Python of an "
            "environment, nor a revision of the git repository that this directory is in"
        )

    def environment(self, directory: Path, steps: int | None) -> dict[str, str]:
        """Return the variables that it is run with. directory: takes what ranks write. steps: after
        which it ends; None for its own end."""
        found = {**os.environ, **self.settings}
        if self.interpreter is not None:
            found = starting.rank_environment(self.interpreter, found)
            # The suite's own ranks find its modules by that; a script needs none of them.
            found["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
            found["PATH"] = os.pathsep.join([str(self.interpreter.parent), found.get("PATH", "")])
        paths = [str(TAP), *filter(None, [found.get("PYTHONPATH")])]
        found["PYTHONPATH"] = os.pathsep.join(paths)
        return {**found, "HVDPERF_RECORD": str(directory), "HVDPERF_STEPS": f"{steps or 0}"}

    def check_programs(self) -> None:
        """Raise UserError if the program that it starts is missing in its interpreter's
        environment."""
        here = shutil.which(self.words[0])
        if self.interpreter is None or here is None or _is_mpirun(here):
            return
        own, program = self.interpreter.parent, Path(here)
        if program.parent == _ACTIVE and not (own / program.name).exists():
            raise UserError(
                f"there is no {program.name} in {own}, and the one in {program.parent} "
                "starts another environment; install what the command starts there, too"
            )

    @property
    def changed(self) -> list[str]:
        """Return the Python files in which its revision differs from the files as they are. Raises
        UserError."""
        git = repository()
        if git is None or not self.revision:
            return []
        names = git.run("diff", "--name-only", "-z", "--end-of-options", self.revision, "--")
        return [name for name in names.split("\0") if name.endswith(".py")]


def repository() -> Git | None:
    """Return the git repository that this directory is in; None without one."""
    top = private.top_of(Path.cwd())
    return Git(top / ".git", str(top), top) if (top / ".git").exists() else None


def keep_revision(name: str, directory: Path) -> None:
    """Write the files of a revision to a directory, and the names of those that are tracked now.
    Raises UserError."""
    git = repository()
    if git is not None and name:
        (directory / private.REPLACED).write_text(git.run("ls-files", "-z"))
        git.run("archive", f"--output={directory / private.ARCHIVE}", "--end-of-options", name)


def _is_mpirun(program: str) -> bool:
    return os.path.basename(program) in _MPIRUN


def on_all_hosts(command: Sequence[str], *others: str) -> list[str]:
    """Return the command with what an mpirun on several hosts needs to hand on the recorder.
    others: variables that it has to hand on besides."""
    if not _is_mpirun(command[0]) or not any(word.partition("=")[0] in _HOSTS for word in command):
        return list(command)
    with suppress(UserError):
        if _OPEN_MPI.search(stack.mpirun_version(Path(command[0]))):
            names = (*_OURS, *others)
            return [command[0], *(word for name in names for word in ("-x", name)), *command[1:]]
    return list(command)


def run(command: Command, directory: Path, steps: int | None) -> int:
    """Run the command to its end, and return its exit status; 128 and the number of the signal that
    ended it. Raises UserError if it does not start."""
    words, environment = on_all_hosts(command.words), command.environment(directory, steps)
    with refusing(f"{command.words[0]}: does not start: ", OSError):
        status = run_to_end(
            words, cwd=None, env=environment, meanwhile=partial(_look, directory, set())
        )
    return status if status >= 0 else 128 - status


def _look(directory: Path, reported: set[str]) -> None:
    """Report each stall once. directory: where ranks write. reported: the stall that is on."""
    if not any(directory.glob("stalled-*")):
        reported.clear()
    elif not reported and (stall := stall_of(last_job(read_ranks(directory)[0])[0])):
        reported.add(stall)
        complain(f"no step finishes any more: {stall}")


# Short runs --------------------------------------------------------------------------------------


class Figure(Enum):
    """What is judged of the seconds of steps."""

    LOW = "10th percentile"
    MEAN = "mean"


@dataclass(frozen=True)
class Run:
    """A run of a command. job: what its ranks wrote. asked: the number of steps after which it was
    to be cut."""

    command: Command
    job: Sequence[Rank]
    asked: int = 0

    def seconds(self, figure: Figure, by_sample: bool = False) -> float:
        """Return the figure of a step, on average over the ranks; of a sample if `by_sample`."""
        found = []
        for rank in self.job:
            steps = rank.steps
            assert steps is not None
            assert steps.period is not None
            seconds = steps.period
            if figure is Figure.LOW and steps.are_told_apart:
                periods = sorted(row.period for row in steps.rows if row.number > recorder.FIRST)
                seconds = periods[int(_FASTER * len(periods))]
            found.append(seconds / (steps.samples / steps.count if by_sample else 1.0))
        return fmean(found)

    @property
    def has_samples(self) -> bool:
        return all(rank.steps is not None and rank.steps.samples for rank in self.job)

    @property
    def count(self) -> int:
        """Return the steps of the rank that did fewest."""
        return min(rank.count for rank in self.job)

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

    @property
    def code(self) -> str:
        """Return which code its ranks ran, in words."""
        code = self.job[0].code
        if code is None:
            return ""
        names = first_of(code.files, _NAMED) or "none"
        return (
            f"{self.command.name} ran {names} of {code.top}{self._commit} "
            f"(sha256 {code.sha256[:12]})"
        )

    @property
    def _commit(self) -> str:
        """Return its commit, and whether the files have changes; "" without a repository."""
        git, revision = repository(), self.command.revision
        if git is None:
            return ""
        words = ("--verify", "--short", "--end-of-options", revision or "HEAD")
        commit = git.run("rev-parse", *words).strip()
        has_changes = not revision and git.run("status", "--porcelain", "-uno")
        return f", commit {commit}{' with changes' * bool(has_changes)}"


class Interrupted(UserError):
    """Somebody has ended a run, which does not count."""

    def __init__(self) -> None:
        super().__init__("interrupted; the last run does not count")


def short_run(command: Command, directory: Path, steps: int) -> Run:
    """Run a command for so many steps. directory: new; takes what is recorded. Raises UserError if
    the run ends otherwise."""
    command.check_programs()
    directory.mkdir(parents=True)
    output = directory / "output.txt"
    with refusing("temporary files: ", OSError, "; set TMPDIR"):
        scratch = scratch_directory("hvdperf-")
    try:
        place, all_runs = Path.cwd(), directory.parent.parent
        keep_revision(command.revision, directory)
        revision = str(directory) if command.revision else ""
        paths = (private.top_of(place), place, scratch, directory, all_runs)
        plan = private.plan(*paths, revision, command.changed)
        environment = {**command.environment(directory, steps), private.VARIABLE: plan}
        words = on_all_hosts(command.words, *command.settings, private.VARIABLE)
        shell = ["sh", "-c", 'exec "$@" 2>&1', "sh", *private.command(words)]
        with open(output, "w") as stream:
            status = run_to_end(shell, stream, place, environment)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if status in _INTERRUPTED:
        raise Interrupted
    if (directory / private.WHY).exists():
        raise UserError((directory / private.WHY).read_text())
    run = Run(command, last_job(read_ranks(directory)[0])[0], steps)
    _check_place(run)
    if status:
        why = f"it ended with status {status}"
    elif not run.job:
        why = "no rank was seen (does the command set PYTHONPATH? Let it extend that)"
    elif run.count < min(steps, recorder.FIRST + 2):
        why = "no rank trained long enough"
    else:
        return run
    said = programs.last_line(output.read_text(errors="replace")) or "nothing"
    if (directory / private.BY_LANDLOCK).exists():
        said += (
            f" (Landlock lets it write to a copy of {paths[0]} and to TMPDIR only, and to no file "
            f"there of more than {private.LINKED >> 20} MB)"
        )
    raise UserError(f"{command.name}: {why}, and said: {said}; see {shown(output)}")


def _check_place(run: Run) -> None:
    """Raise UserError if a rank ran in another environment, or other code."""
    if run.command.interpreter is not None:
        own = run.command.interpreter.parent.resolve()
        others = {Path(rank.interpreter).parent.resolve() for rank in run.job} - {own}
        if others:
            raise UserError(
                f"the ranks ran with the Python in {min(others)}, not in {own}: give the "
                "command the programs' names alone (horovodrun, python), not their paths"
            )
    elsewhere = sorted({rank.code.elsewhere for rank in run.job if rank.code is not None} - {""})
    if elsewhere:
        raise UserError(
            f"{run.command.name} did not run: a rank imported {elsewhere[0]}; give the command "
            "relative paths, take it off PYTHONPATH, or install the project by pip install -e"
        )


def check_code(own: Run, other: Run) -> None:
    """Raise UserError if a command and its other revision ran the same code, though they differ in
    Python files."""
    changed, codes = other.command.changed, [run.job[0].code for run in (own, other)]
    first, second = ("" if code is None else code.sha256 for code in codes)
    if changed and first and first == second:
        raise UserError(
            f"both sides ran the same code: {other.command.name} differs in {changed[0]}"
            f"{f' and {len(changed) - 1} more' if changed[1:] else ''}, and no rank imported "
            f"that from {private.top_of(Path.cwd())}; {own.code}"
        )


def steps_of(runs: Sequence[Run]) -> int:
    """Return how many steps take SECONDS, of the slowest of these runs."""
    longest = max(run.seconds(Figure.MEAN) for run in runs)
    return min(MOST_STEPS, max(LEAST_STEPS, ceil(SECONDS / longest)))
