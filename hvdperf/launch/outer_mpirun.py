"""Run the mpirun of a session, such that a session survives the loss of a host.

Open MPI ends all ranks when it loses one of its daemons. With its recovery enabled it goes on, but
then returns 0 whatever happens, and waits for the lost daemon at its end. Therefore rank 0 writes
its exit status into a file, and this process returns it and ends mpirun.

It is a separate script (`python -I -S outer_mpirun.py MPIRUN ARGUMENTS ...`) of the standard
library only, which `mpirun` in the environment starts if the command runs pytest.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

# The path of the file into which rank 0 writes RUNNING, and at its end its exit status.
STATUS_VARIABLE = "HVDPERF_STATUS_FILE"
RUNNING = "running"
# Seconds that mpirun has to end after rank 0, and after SIGTERM.
END_S = 5.0
# What pytest ends with if it is interrupted.
INTERRUPTED = 2
SETTINGS = {
    "orte_enable_recovery": "1",
    # If all processes get SIGTERM, as from a scheduler, a session has twice as many seconds to
    # write its results before Open MPI kills it. During them it shows no output.
    "odls_base_sigkill_timeout": "2",
    # A daemon whose host is cut off ends its ranks after 25 s instead of 8 minutes.
    "oob_tcp_keepalive_time": "10",
    "oob_tcp_keepalive_intvl": "5",
    "oob_tcp_keepalive_probes": "3",
}
_SHELL = "OMPI_MCA_plm_rsh_agent"
_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PASSED_ON = (*_TO_END, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2)


def main(mpirun: str, arguments: list[str]) -> int:
    """Return rank 0's exit status, or that of mpirun if rank 0 has left none: INTERRUPTED after a
    signal, whatever mpirun says."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    # It is of the standard library, too.
    from hvdperf.launch import helpers

    directory = helpers.scratch_directory("hvdperf-mpirun-")
    status_file = os.path.join(directory, "status")
    open(status_file, "w").close()
    # SIGHUP is ignored under nohup, and stays so.
    handled = {each for each in _PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN}
    awaited = {signal.SIGCHLD, *handled}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

    def in_the_background() -> None:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    process = subprocess.Popen(
        helpers.guarded([mpirun, *arguments]),
        env={**_environment(status_file, arguments), STATUS_VARIABLE: status_file},
        # Ctrl-C and the end of a terminal reach this process only, which tells rank 0: mpirun
        # would kill its ranks. In the background it must not read from the terminal.
        stdin=subprocess.DEVNULL if os.isatty(0) else None,
        preexec_fn=in_the_background,
    )
    status, received = _until_rank_0_ends(process, status_file, awaited)
    own = process.returncode if process.returncode is not None else _end(process)
    status = _of_orphan(status_file) if status is None else status
    if status is not None:
        return status
    # Below all that Open MPI says: which hosts could not be reached (helpers.py).
    with contextlib.suppress(FileNotFoundError), open(f"{status_file}.problems") as problems:
        sys.stderr.write(problems.read())
    if received:
        return INTERRUPTED
    return own if own > 0 else 128 - own if own < 0 else 1


def _environment(status_file: str, arguments: "list[str]") -> "dict[str, str]":
    """Return the environment of mpirun, whose own files are beside that file unless the user names
    a directory. Pytest uses no colours unless the output is shown at a terminal: it sees one of
    mpirun's in any case."""
    from hvdperf.launch.helpers import helper

    directory = os.path.dirname(status_file)
    environment = {f"OMPI_MCA_{name}": value for name, value in SETTINGS.items()} | os.environ
    if not os.isatty(1) and "FORCE_COLOR" not in environment:
        environment.setdefault("PY_COLORS", "0")
    if not any("tmpdir_base" in word for word in (*environment, *arguments)):
        environment["OMPI_MCA_orte_local_tmpdir_base"] = directory
    shell = environment.get(_SHELL) or ("ssh" if shutil.which("ssh") else "")
    # Open MPI divides the command at blanks, so that a path with blanks needs another name.
    agent = os.path.join(directory, "agent")
    if shell and " " not in agent:
        words = helper("shell", status_file, str(len(shell.split())))
        with open(agent, "w") as file:
            file.write(f'#!/bin/sh\nexec {shlex.join(words)} {shell} "$@"\n')
        os.chmod(agent, 0o700)
        environment[_SHELL] = agent
    return environment


def _until_rank_0_ends(
    process: "subprocess.Popen[bytes]", status_file: str, awaited: "set[signal.Signals]"
) -> "tuple[int | None, bool]":
    """Pass signals on until mpirun has ended, or END_S after rank 0 has. Return rank 0's exit
    status, which is None if it has left none, and whether a signal to end has come."""
    written_at, to_end = None, False
    while True:
        status, _ = _left(status_file)
        if process.poll() is not None:
            return status, to_end
        if status is not None:
            written_at = written_at or time.monotonic()
            if time.monotonic() > written_at + END_S:
                return status, to_end
        received = signal.sigtimedwait(awaited, 0.2)
        # After a stop of this process, Python 3.11 returns what it has not filled in.
        if received is None or received.si_signo not in awaited - {signal.SIGCHLD}:
            continue
        if received.si_signo in _TO_END:
            # To rank 0 alone: the other ranks leave when it does, and mpirun shows its last output.
            if not (to_end or _end_session(status_file)):
                process.send_signal(received.si_signo)
            to_end = True
        elif received.si_signo == signal.SIGTSTP:  # Ctrl-Z
            process.send_signal(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
        else:
            process.send_signal(received.si_signo)


def _end_session(status_file: str) -> bool:
    """Have rank 0 end as after Ctrl-C. Return False if it does not run on this host."""
    _, pid = _left(status_file)
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            is_rank_0 = os.fsencode(f"{STATUS_VARIABLE}={status_file}") in environment.read()
        if is_rank_0:
            os.kill(pid, signal.SIGTERM)
        return is_rank_0
    except OSError:
        return False


def _left(status_file: str) -> "tuple[int | None, int]":
    """Return the exit status that rank 0 has left, or None, and the id of its process while it
    runs, or 0."""
    words: list[str] = []
    with contextlib.suppress(OSError, ValueError), open(status_file) as written:
        words = written.read().split()
    if not words or not words[-1].isdecimal():
        return None, 0
    number = int(words[-1])
    return (number, 0) if len(words) == 1 else (None, number)


def _of_orphan(status_file: str) -> "int | None":
    """Return the exit status of a rank 0 that goes on without its mpirun, as after a second Ctrl-C:
    the kernel sends it SIGTERM (pytest_command.py). Return None if it leaves none."""
    deadline = time.monotonic() + END_S
    while (left := _left(status_file))[1] and time.monotonic() < deadline:
        if not os.path.exists(f"/proc/{left[1]}"):
            break
        time.sleep(0.05)
    return _left(status_file)[0]


def _end(process: "subprocess.Popen[bytes]") -> int:
    """End an mpirun that waits for a host that is gone, or before it kills."""
    process.terminate()
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
