"""Run the mpirun of a session, such that a session survives the loss of a host.

Open MPI ends all ranks when it loses one of its daemons. With its recovery enabled it goes on, but
then returns 0 whatever happens, and waits for the lost daemon at its end. Therefore rank 0 writes
its exit status into a file, and this process returns it and ends mpirun.

It is a separate script (`python -I -S outer_mpirun.py MPIRUN ARGUMENTS ...`) of the standard
library only, which `mpirun` in the environment starts if the command runs pytest.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# The path of the file into which rank 0 writes RUNNING, and at its end its exit status.
STATUS_VARIABLE = "HVDPERF_STATUS_FILE"
RUNNING = "running"
# Seconds that mpirun has to end after rank 0, and after SIGTERM.
END_S = 5.0
SETTINGS = {
    "orte_enable_recovery": "1",
    # A daemon whose host is cut off ends its ranks after 25 s instead of 8 minutes.
    "oob_tcp_keepalive_time": "10",
    "oob_tcp_keepalive_intvl": "5",
    "oob_tcp_keepalive_probes": "3",
}
_SHELL = "OMPI_MCA_plm_rsh_agent"
_SI_USER = 0
_HERE = os.path.dirname(os.path.abspath(__file__))
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(mpirun: str, arguments: list[str]) -> int:
    """Return rank 0's exit status, or that of mpirun if rank 0 has left none."""
    descriptor, status_file = tempfile.mkstemp(prefix="hvdperf-status-")
    os.close(descriptor)
    # SIGHUP is ignored under nohup, and stays so.
    handled = {each for each in _PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN}
    awaited = {signal.SIGCHLD, *handled}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    guard = [sys.executable, "-I", "-S", os.path.join(_HERE, "guard.py"), str(os.getpid())]
    try:
        process = subprocess.Popen(
            [*guard, mpirun, *arguments],
            env={**_environment(), STATUS_VARIABLE: status_file},
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        status = _until_rank_0_ends(process, status_file, awaited)
        own = process.returncode if process.returncode is not None else _end(process)
        if status is None:
            _show_problems(status_file)
    finally:
        for file in (status_file, f"{status_file}.problems"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
    if status is not None:
        return status
    return own if own > 0 else 128 - own if own < 0 else 1


def _environment() -> "dict[str, str]":
    """Return the environment of mpirun."""
    environment = {f"OMPI_MCA_{name}": value for name, value in SETTINGS.items()} | os.environ
    shell = environment.get(_SHELL) or ("ssh" if shutil.which("ssh") else "")
    if shell:
        script = os.path.join(_HERE, "remote_shell.py")
        words = len(shell.split())
        environment[_SHELL] = f"{sys.executable} -I -S {script} {words} {shell}"
    return environment


def _until_rank_0_ends(
    process: "subprocess.Popen[bytes]", status_file: str, awaited: "set[signal.Signals]"
) -> "int | None":
    """Pass signals on to mpirun until it has ended, or END_S after rank 0 has. Return rank 0's exit
    status; None if it has left none."""
    written_at = None
    while True:
        status = _read(status_file)
        if process.poll() is not None:
            return status
        if status is not None:
            written_at = written_at or time.monotonic()
            if time.monotonic() > written_at + END_S:
                return status
        received = signal.sigtimedwait(awaited, 0.2)
        if received is None or received.si_signo == signal.SIGCHLD:
            continue
        # The terminal sends Ctrl-C to mpirun, too, which would not clean up after a second one.
        if received.si_code == _SI_USER:
            process.send_signal(received.si_signo)


def _read(status_file: str) -> "int | None":
    try:
        with open(status_file) as written:
            return int(written.read())
    except (OSError, ValueError):
        return None


def _show_problems(status_file: str) -> None:
    """Show, below all that Open MPI says, which hosts could not be reached (remote_shell.py)."""
    with contextlib.suppress(FileNotFoundError), open(f"{status_file}.problems") as problems:
        sys.stderr.write(problems.read())


def _end(process: "subprocess.Popen[bytes]") -> int:
    """End an mpirun that waits for a host that is gone."""
    process.terminate()
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
