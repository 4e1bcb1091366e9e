"""Runs a command with the recorder in each of its ranks, and shows how it goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hvdperf.cli import complain
from hvdperf.errors import UserError
from hvdperf.programs import NotStarted, TooLong
from hvdperf.programs import run as probed
from hvdperf.script.recorded import last_job, read_ranks
from hvdperf.script.stalls import stall_of
from hvdperf.timeline.processes import ended
from hvdperf.worker.script.tap import _hvdperf_recorder

TAP = Path(_hvdperf_recorder.__file__).parent
# Steps of the slowest rank behind the fastest one that are told.
_BEHIND = 2
_VERSION_S = 20.0
# Ranks on mpirun's own host have its environment; those on others what -x names. horovodrun and
# srun hand on all of it.
_MPIRUN = ("mpirun", "mpiexec", "orterun")
_HOSTS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
_OPEN_MPI = ("Open MPI", "OpenRTE")
_OURS = ("PYTHONPATH", "HVDPERF_RECORD", "HVDPERF_STEPS")


def is_mpirun(program: str) -> bool:
    return os.path.basename(program) in _MPIRUN


def on_all_hosts(command: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """Return the command with what an mpirun on several hosts needs to hand on the recorder.
    others: variables that it has to hand on besides."""
    has_hosts = any(word.partition("=")[0] in _HOSTS for word in command)
    if not is_mpirun(command[0]) or not has_hosts:
        return list(command)
    with suppress(NotStarted, TooLong):
        output = probed([command[0], "--version"], within_s=_VERSION_S).output
        if any(name in output for name in _OPEN_MPI):
            names = (*_OURS, *others)
            return [command[0], *(word for name in names for word in ("-x", name)), *command[1:]]
    return list(command)


def environment(
    directory: Path, steps: int | None, given: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of the command. directory: takes what ranks write. steps: after which
    it ends; None for its own end."""
    found = dict(given)
    rest = [found["PYTHONPATH"]] if found.get("PYTHONPATH") else []
    found["PYTHONPATH"] = os.pathsep.join([str(TAP), *rest])
    found["HVDPERF_RECORD"] = str(directory)
    found["HVDPERF_STEPS"] = f"{steps or 0}"
    return found


def run(command: Sequence[str], directory: Path, steps: int | None) -> int:
    """Run the command to its end, and return its exit status; 128 and the number of the signal that
    ended it. Raises UserError if it does not start."""
    live = Live(directory)
    try:
        status = ended(
            on_all_hosts(command),
            cwd=None,
            env=environment(directory, steps),
            meanwhile=live.look,
        )
    except OSError as error:
        raise UserError(f"{command[0]}: does not start: {error.strerror}") from None
    finally:
        live.clear()
    return status if status >= 0 else 128 - status


@dataclass
class Live:
    """The line that says how the command goes on, on stderr if that is a terminal. directory: where
    ranks write. seen: of each rank, steps, samples and time when the line was written before."""

    directory: Path
    seen: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    shown: int = 0
    stall: str = ""

    def line(self) -> str:
        """Return steps, samples a second since the last line, and who is slowest; "" before the
        first step."""
        found = {}
        for path in self.directory.glob("now-*"):
            with suppress(OSError, ValueError):
                rank, count, samples, at = json.loads(path.read_bytes())
                found[rank] = (count, samples, at)
        if not any(count for count, _, _ in found.values()):
            return ""
        speed = 0.0
        for rank, (_, samples, at) in found.items():
            _, before, then = self.seen.get(rank, (0, samples, at))
            speed += (samples - before) / (at - then) if at > then else 0.0
        self.seen = found
        counts = {rank: count for rank, (count, _, _) in found.items()}
        told = f"step {max(counts.values())}"
        if speed:
            told += f", {speed:.0f} samples/s on {len(found)} ranks"
        slowest = min(counts, key=counts.__getitem__)
        if max(counts.values()) - counts[slowest] > _BEHIND:
            told += f", rank {slowest} is at step {counts[slowest]}"
        return told

    def look(self) -> None:
        """Show how the command goes on, and say once that it has stopped."""
        self.show_on_terminal()
        if not self.stall and any(self.directory.glob("stalled-*")):
            ranks, _ = read_ranks(self.directory)
            self.stall = stall_of(last_job(ranks)[0])
            if self.stall:
                self.clear()
                complain(f"no step finishes any more: {self.stall}")

    def show_on_terminal(self) -> None:
        if not sys.stderr.isatty():
            return
        text = self.line()
        if text:
            print(f"\r{text:<{self.shown}}", end="", file=sys.stderr, flush=True)
            self.shown = len(text)

    def clear(self) -> None:
        if self.shown:
            print(f"\r{'':<{self.shown}}\r", end="", file=sys.stderr, flush=True)
            self.shown = 0
