"""Processes of this host: their start, what they have written, their signals and end; the agent of
a slot, which starts them for launches; and the process that forks ranks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from hvdperf.errors import first_of
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import ROOT
from hvdperf.programs import fate_of
from hvdperf.worker import fork_stub
from hvdperf.worker.process import is_stopped, stat_fields
from hvdperf.worker.protocol import DRIVER_VARIABLE

# Variables of a process by name. None stands for one of the session's that it does not get.
Variables = Mapping[str, str | None]
# Escape sequences of a terminal (ECMA-48: a control sequence, a string, or two characters), and
# other control characters.
_CONTROLS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x1b\\|\x07)|[ -/]*[0-~])|[\x00-\x08\x0e-\x1f\x7f]"
)
# Lines at the end of a process's stderr that a failure shows.
TAIL_LINES = 20
# Lines of Horovod's diagnosis before them that it shows, too.
DIAGNOSIS_LINES = 10
# What TensorFlow logs of a GPU each time: that it found one, and that parts of it register twice.
_USUAL = re.compile(
    r"(\[\d+,\d+\]<stderr>:)?"
    r"(\d{4}-\d\d-\d\d [\d:.]+: I |I\d{4} |WARNING: All log messages before absl::|"
    r".*Attempting to register factory for plugin cu\w+ when one has already been registered)"
)
# Seconds that processes have to end after a signal.
TERM_S = 5.0


def with_defaults(variables: Variables, defaults: Mapping[str, str]) -> Variables:
    """Return the variables, and those of the defaults that have no value in them."""
    missing = {name: text for name, text in defaults.items() if variables.get(name) is None}
    return {**variables, **missing}


def start_process(
    command: Sequence[str],
    interpreter: str,
    environment: Variables,
    directory: Path,
    pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in the environment of a rank.

    interpreter: that of the ranks. environment: variables on top of the ranks' usual ones.
    directory: created for the output and the temporary files, some of which TensorFlow never
    removes. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in environment.items() if value is not None}
    session = {name: value for name, value in os.environ.items() if name not in environment}
    with open(directory / "stdout", "wb") as stdout, open(directory / "stderr", "wb") as stderr:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**rank_environment(interpreter, session), **own, "TMPDIR": str(directory)},
            cwd=ROOT,
            pass_fds=pass_fds,
            # Ctrl-C must reach pytest only, which ends the launches itself.
            start_new_session=True,
        )


def lines_of(output: Path) -> list[str]:
    """Return the lines of a process's output, with their ends and without what controls a terminal,
    such as colours; [] if the file is gone."""
    try:
        text = output.read_text(errors="replace")
    except FileNotFoundError:
        return []
    return _CONTROLS.sub("", text).splitlines(keepends=True)


def tail_of(output: Path) -> list[str]:
    """Return the lines of a process's output that a failure shows."""
    return shown_of([line.rstrip() for line in lines_of(output) if line.strip()])


def shown_of(lines: Sequence[str]) -> list[str]:
    """Return the last lines, after those before them in which Horovod says which rank is missing,
    without what TensorFlow says each time."""
    lines = [line for line in lines if not _USUAL.match(line)]
    end = max(0, len(lines) - TAIL_LINES)
    earlier = [i for i in diagnosis_lines(lines) if i < end][-DIAGNOSIS_LINES:]
    return [*(lines[i] for i in earlier), *lines[end:]]


def is_running(pid: int) -> bool:
    """Return whether the process, or a thread of it, still runs. A process that only waits to be
    reaped has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        state = stat_fields(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X") or len(threads) > 1


def signal_processes(signum: int, pids: Iterable[int]) -> None:
    """Send a signal to processes of this host that the caller owns; skip those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


def wait_until_ended(pids: Collection[int]) -> None:
    """Wait until processes of this host that are about to die have ended, for TERM_S at most."""
    deadline = time.monotonic() + TERM_S
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)


class SlotGone(OSError):
    """A slot cannot be used any more. rank: its rank in the session. host: its host, or "" if that
    is not known. reason: a sentence about the slot without its full stop."""

    def __init__(self, rank: int, host: str, reason: str) -> None:
        self.rank, self.host = rank, host
        where = f" on {host}" if host else ""
        super().__init__(f"the slot of rank {rank}{where} is gone: {reason}")


def is_slot_gone(error: BaseException) -> bool:
    """Return whether an error means that a slot is gone."""
    return isinstance(error, SlotGone) or isinstance(error.__cause__, SlotGone)


class Agent(Protocol):
    """The worker processes of one slot: one for each launch, several at a time. launch: its
    name."""

    def start(self, launch: str, environment: Variables, command: Sequence[str]) -> None:
        """Start a worker process. environment: as in Order. command: begins with the interpreter.
        Raises OSError."""

    def status(self, launch: str) -> int | None:
        """Return the exit status, negative for a signal; return None while the process runs. Raises
        SlotGone if nobody can know."""

    def signal(self, launch: str, signum: int) -> None: ...

    def tail(self, launch: str) -> list[str]: ...

    def end(self, launch: str) -> None: ...


class LocalAgent:
    """An agent whose worker processes are children of this process. scratch: directory for their
    output. settings: variables that they get unless the launch has others."""

    def __init__(self, scratch: Path, settings: Mapping[str, str] = {}) -> None:
        self._scratch = scratch
        self._settings = settings
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, launch: str, environment: Variables, command: Sequence[str]) -> None:
        # The worker asks the kernel to kill it when this process ends (see hvdperf.worker.process).
        self._processes[launch] = start_process(
            command,
            command[0],
            with_defaults(environment, self._settings),
            self._scratch / launch,
        )

    def status(self, launch: str) -> int | None:
        return self._processes[launch].poll()

    def statuses(self) -> dict[str, int | None]:
        """Return `status` by launch."""
        return {launch: process.poll() for launch, process in self._processes.items()}

    def signal(self, launch: str, signum: int) -> None:
        signal_processes(signum, [self._processes[launch].pid])

    def tail(self, launch: str) -> list[str]:
        return tail_of(self._scratch / launch / "stderr")

    def end(self, launch: str) -> None:
        process = self._processes.pop(launch, None)
        if process is not None:
            # The process group also holds the processes that the worker has started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._scratch / launch, ignore_errors=True)

    def end_all(self) -> None:
        for launch in list(self._processes):
            self.end(launch)


# As Horovod 0.28.1 prints it (common/stall_inspector.cc): a warning with the local time, `Missing
# ranks:`, and a line such as `1!: [gradient_0, gradient_1 ...]` for each; the mark is that of the
# shutdown. Over Gloo this release prints nothing: its list of ranks stays empty there
# (GlooController reserves room for it, and does not resize it).
_WARNING = "submitted to be reduced, gathered or broadcasted by subset of ranks"
_WHEN = re.compile(r"\[([\d-]+ [\d:]+)\.\d+: \w .* for more than (\d+) seconds")
_HEADING = "Missing ranks:"
_MISSING = re.compile(r"(\d+)(!?): \[(.*)\]?$")
# A stall is over if no report has followed for this many intervals of the check.
_INTERVALS = 3
_SHUTDOWN = re.compile(r"One or more rank \(marked by .*Will shutdown")
# As its controller reports it, within an error of TensorFlow's.
_MISMATCH = re.compile(r"Mismatched .*?(?=\s*(?:\[\[|\[Op:|$))")
_NODE = re.compile(r"\bname: (\S+)|\{\{node ([^}]+)\}\}")


@dataclass(frozen=True)
class Stall:
    """The stall inspector's last report.

    tensors: those that a rank has not submitted, by the missing rank. gave_up: whether Horovod has
    shut down because of it. ends: time of day, in seconds, after which the stall is over if no
    report has followed; None if the report has no time.
    """

    tensors: dict[int, tuple[str, ...]] = field(default_factory=dict)
    gave_up: bool = False
    ends: float | None = None

    @property
    def lasts(self) -> bool:
        """Return whether the stall is not over. A rank that was only slow has caught up since."""
        return self.gave_up or self.ends is None or time.time() < self.ends

    def rank_at_fault(self, ranks: int) -> int | None:
        """Return the first missing rank. If every rank is missing, return the only one without
        which all others wait for the same tensors; None if there is none."""
        if len(self.tensors) < ranks:
            return min(self.tensors)
        alone = [
            rank
            for rank, names in self.tensors.items()
            if not any(
                set(names) & set(self.tensors[other]) for other in self.tensors.keys() - {rank}
            )
        ]
        return alone[0] if len(alone) == 1 else None

    def __str__(self) -> str:
        parts = []
        for rank, names in sorted(self.tensors.items()):
            parts.append(f"rank {rank} has not submitted {first_of(names)}")
        return f"Horovod reports that {'; '.join(parts)}"


def stall_in(lines: Sequence[str]) -> Stall | None:
    """Return the last report of the stall inspector among the lines of a rank; None without one."""
    tensors: dict[int, tuple[str, ...]] = {}
    gave_up = False
    ends = announced = None
    for text in (lines[at].strip() for at in diagnosis_lines(lines)):
        if _WARNING in text:
            announced = _end_of(text)
        if text.endswith(_HEADING):
            tensors, gave_up, ends = {}, False, announced
        elif missing := _MISSING.match(text):
            names = missing[3].rstrip("]").removesuffix(" ...").split(", ")
            tensors[int(missing[1])] = tuple(filter(None, names))
            gave_up |= bool(missing[2])
    return Stall(tensors, gave_up, ends) if tensors else None


def _end_of(warning: str) -> float | None:
    """Return the time after which a stall is over if no warning has followed this one."""
    found = _WHEN.match(warning)
    if found is None:
        return None
    written = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").astimezone()
    return written.timestamp() + _INTERVALS * int(found[2])


def diagnosis_lines(lines: Sequence[str]) -> list[int]:
    """Return the indices of the lines that are reports of the stall inspector."""
    chosen, inside = [], False
    for i, line in enumerate(lines):
        text = line.strip()
        if text.endswith(_HEADING):
            inside = True
        elif not (inside and _MISSING.match(text)):
            inside = False
        if inside or _WARNING in text or _SHUTDOWN.match(text):
            chosen.append(i)
    return chosen


def mismatch_in(message: str) -> str:
    """Return which tensor the ranks disagree on and how, in words; "" if the message of an error
    does not say that they do."""
    text = " ".join(message.split())
    found = _MISMATCH.search(text)
    if found is None:
        return ""
    named = _NODE.search(text, found.end()) or _NODE.search(text)
    tensor = f" (tensor {named[1] or named[2]})" if named else ""
    return f"{found[0].rstrip(' .')}{tensor}"


class ForkServer:
    """A process that forks ranks. It starts at once, and makes its imports while the first
    launchers start.

    scratch: gets a directory for the socket and the output of the process. hub: address of the
    session's hub. cores: CPU cores that the process runs on. Raises OSError if the process cannot
    be started. The process ends with this one.
    """

    def __init__(self, interpreter: str, scratch: Path, hub: str, cores: Iterable[int]) -> None:
        self.interpreter = interpreter
        scratch.mkdir(parents=True, exist_ok=True)
        self.directory = directory = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
                try:
                    listener.bind(fork_stub.address_in(directory_fd))
                finally:
                    os.close(directory_fd)
                # Stubs that connect during the server's imports wait in this queue.
                listener.listen(1024)
                arguments = [str(listener.fileno()), str(os.getpid()), ",".join(map(str, cores))]
                self._process = start_process(
                    [interpreter, "-u", "-m", "hvdperf.worker.fork_server", *arguments],
                    interpreter,
                    # Marks the process as this session's; ranks get their address from stubs.
                    {DRIVER_VARIABLE: f"{hub}:"},
                    directory,
                    pass_fds=[listener.fileno()],
                )
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def command(self) -> list[str]:
        """Command line that a launcher starts in place of each rank."""
        return [self.interpreter, "-I", "-S", fork_stub.__file__, str(self.directory)]

    @property
    def ended(self) -> str:
        """Return how the process has ended, in words; return "" while it runs."""
        status = self._process.poll()
        return "" if status is None else f"hvd-server, which forks ranks, ended {fate_of(status)}"

    @property
    def is_importing(self) -> bool:
        """Return whether the process has not finished its imports."""
        return not self.ended and self._readiness is None

    @property
    def refusal(self) -> str:
        """Return why the process cannot fork, so that ranks are fresh processes; return "" if it
        can, or if it still imports."""
        return self._readiness or ""

    @property
    def standing(self) -> str:
        """Return the state of the process, in words."""
        if self.ended:
            return self.ended
        if is_stopped(self.pid):
            return "hvd-server, which forks ranks, is stopped"
        if self.is_importing:
            return "hvd-server, which forks ranks, still imports TensorFlow and Horovod"
        return "hvd-server, which forks ranks, has not forked this rank"

    @property
    def _readiness(self) -> str | None:
        """Return the text behind READY: the reason why the process cannot fork, or "". Return None
        before the end of its imports."""
        # A library may print something while it is imported.
        ready, lines = fork_stub.READY, lines_of(self.directory / "stdout")
        said = next((line for line in lines if line.startswith(ready)), None)
        return None if said is None else said.removeprefix(ready).rstrip("\n")

    def dump_stacks(self) -> None:
        """Have the process write its threads' call stacks to its stderr."""
        if not self.ended:
            self._process.send_signal(signal.SIGUSR1)

    def tail(self) -> list[str]:
        """Return the last lines of the process's stderr."""
        return tail_of(self.directory / "stderr")

    def close(self) -> None:
        """Kill the process and every rank that it has forked, and remove its directory."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
