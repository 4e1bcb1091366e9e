"""Commands that cannot change the user's files, by each of the ways in which the kernel enforces
that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hvdperf.paths import ROOT
from hvdperf.worker.script.tap import _hvdperf_private as private
from tests.support.leftovers import eventually

# Runs a command as in a container: without capabilities, and where no namespace can be made.
_SANDBOX = (
    *("unshare", "-Ur", "sh", "-c"),
    "echo 0 > /proc/sys/user/max_user_namespaces && "
    'exec setpriv --bounding-set=-all --inh-caps=-all "$@"',
    "sandbox",
)
# Runs a command as a user who is not root.
_WITHOUT_RIGHTS = ("unshare", "-U", "--map-user=1000", "--map-group=1000")
# Runs a command under as many layers of Landlock as there can be, so that another one fails.
_NO_LANDLOCK = (
    *(sys.executable, "-c"),
    """\
import ctypes, os, struct, sys
call = ctypes.CDLL(None).syscall
call(157, 38, 1, 0, 0, 0)
rules = struct.pack("Q", 1 << 12)
for _ in range(16):
    ruleset = call(444, rules, ctypes.c_size_t(8), 0)
    rule = struct.pack("=Qi", 1 << 12, os.open("/", os.O_PATH))
    call(445, ruleset, 1, rule, 0)
    call(446, ruleset, 0)
os.execvp(sys.argv[1], sys.argv[1:])
""",
)
# Writes in each of the ways in which programs do.
_WRITES = """\
echo new > kept.txt; echo new > "$TOP/absolute.txt"; rm -f gone.txt; echo more >> "$OTHER/data.txt"
rm -rf checkpoints; mkdir -p checkpoints; echo new > checkpoints/1; echo new > link.bin
truncate -s 0 "$OTHER/large.bin"; mv "$OTHER/data.txt" "$OTHER/moved.txt"
rmdir "$OTHER/empty"; mkdir "$OTHER/made"; ln -s data.txt "$OTHER/link"; mkfifo "$OTHER/pipe"
"$PYTHON" -c "import sqlite3; sqlite3.connect('$OTHER/base').execute('create table t (a)')"
echo "$HVDPERF_PRIVATE" > "$RECORD/plan"; pwd > "$RECORD/place"; cat kept.txt > "$RECORD/kept"
true
"""


class Users:
    """A user's files: those of a script, and others. record, scratch: of a run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.top, self.other = directory / "top", directory / "other"
        self.record, self.scratch = directory / "record", directory / "scratch"
        for path in (self.top, self.other, self.record, self.scratch):
            path.mkdir()
        (self.top / "checkpoints").mkdir()
        for name in ("kept.txt", "gone.txt", "absolute.txt", "checkpoints/1"):
            (self.top / name).write_text("old")
        (self.other / "empty").mkdir()
        (self.other / "data.txt").write_text("old")
        (self.other / "large.bin").write_bytes(bytes(17 << 20))
        (self.top / "link.bin").symlink_to(self.other / "large.bin")

    def contents(self) -> dict[str, bytes]:
        paths = [path for each in (self.top, self.other) for path in each.rglob("*")]
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}

    def environment(self, revision: str = "") -> dict[str, str]:
        """Return the environment of a run, with its plan."""
        shutil.rmtree(self.scratch)
        self.scratch.mkdir()
        without, scratch = self.directory / "results", str(self.scratch)
        plan = private.plan(self.top, self.top, scratch, self.record, without, revision)
        places = {"TOP": str(self.top), "OTHER": str(self.other), "RECORD": str(self.record)}
        return {**os.environ, **places, "PYTHON": sys.executable, private.VARIABLE: plan}

    def run(
        self,
        *words: str,
        within: Sequence[str] = (),
        revision: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*within, *private.command(words)],
            env={**self.environment(revision), **(environment or {})},
            cwd=self.top,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    made = Users(tmp_path)
    before = made.contents()
    yield made
    assert made.contents() == before, "a file of the user's was changed"


def needs(command: Sequence[str]) -> None:
    """Skip the test where this machine does not run such a command."""
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine permits no namespaces: {tried.stderr.strip()}")


@pytest.mark.parametrize("within", [(), _WITHOUT_RIGHTS], ids=["as it is", "without rights"])
def test_in_a_namespace_all_writes_succeed_and_nobody_sees_them(
    users: Users, within: Sequence[str]
) -> None:
    needs([*within, "unshare", *([] if os.geteuid() == 0 and not within else ["-Ur"]), "-m"])
    small, large = users.directory / "small", users.directory / "large"
    small.touch()
    large.write_bytes(bytes(2 << 20))
    # Beside the scratch directory no overlay can be: there a large file can only be read.
    beside = "cd ..; echo new > small; ! echo new > large"
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
        in_memory = f"; echo new > {shared.name}; cat {shared.name}"
        done = users.run("sh", "-ec", _WRITES + beside + in_memory, within=within)
        assert Path(shared.name).stat().st_size == 0, "so are those of other programs in memory"
    assert done.returncode == 0, done.stderr
    assert done.stdout == "new\n"
    assert (small.stat().st_size, large.stat().st_size) == (0, 2 << 20)
    assert (users.record / "place").read_text().strip() == str(users.top)
    assert (users.record / "kept").read_text() == "new\n"
    assert json.loads((users.record / "plan").read_text())["at"] == str(users.top)


def test_where_no_overlay_can_be_files_can_only_be_read(users: Users) -> None:
    needs(["unshare", "-Urm"])
    # The kernel stacks no more than two overlays.
    thrice = private.command(private.command([]))
    done = users.run("sh", "-c", "cat kept.txt; echo new > kept.txt", within=thrice)
    assert (done.stdout, done.returncode) == ("old", 2)


def test_a_sandbox_without_namespaces_has_a_copy_and_landlock(users: Users) -> None:
    needs(_SANDBOX)
    done = users.run("sh", "-c", _WRITES, within=_SANDBOX)
    assert done.returncode == 0
    assert str(users.other / "data.txt") in done.stderr, "another place is refused"
    assert (users.record / "kept").read_text() == "new\n"
    assert Path((users.record / "place").read_text().strip()) == users.scratch / "copy"


@pytest.mark.parametrize("consents", [False, True])
def test_where_nothing_can_be_enforced_the_user_must_consent(
    users: Users, consents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(_SANDBOX)
    if consents:
        monkeypatch.setenv("HVDPERF_WRITABLE", str(users.directory))
    # A rank is asked no more.
    rank = 'pwd; PYTHONPATH="$TAP" "$PYTHON" -c "import os; print(os.getcwd())"'
    environment = {"TAP": str(Path(private.__file__).parent)}
    within = (*_SANDBOX, *_NO_LANDLOCK)
    done = users.run("sh", "-c", rank, within=within, environment=environment)
    if consents:
        assert done.stdout.split() == [str(users.scratch / "copy")] * 2, done.stderr
    else:
        assert done.returncode == private.REFUSED
        assert "--writable DIR" in (users.record / private.WHY).read_text()
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("within", [(), _SANDBOX], ids=["namespace", "Landlock"])
def test_a_revision_stands_in_place_of_the_files_and_an_allowed_directory_is_written(
    users: Users, within: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(within or ["unshare", "-Urm"])
    allowed = users.directory / "allowed"
    allowed.mkdir()
    monkeypatch.setenv("HVDPERF_WRITABLE", str(allowed))
    (users.directory / "kept.txt").write_text("of a revision")
    with tarfile.open(users.record / private.ARCHIVE, "w") as archive:
        archive.add(users.directory / "kept.txt", "kept.txt")
    (users.record / private.REPLACED).write_text("gone.txt\0kept.txt\0")
    (users.directory / "link").symlink_to(users.top)
    words = [str(users.directory / name / "kept.txt") for name in ("top", "link")]
    command = f'cat "$0" "$1"; ls; echo kept > {allowed}/log'
    done = users.run("sh", "-c", command, *words, within=within, revision=str(users.record))
    assert done.stdout.startswith("of a revision" * 2), done.stderr
    assert "gone.txt" not in done.stdout
    assert (allowed / "log").read_text() == "kept\n"


def test_a_rank_that_a_daemon_starts_restricts_itself(users: Users) -> None:
    # Not a child of the command, as on another host, but with its environment.
    environment = users.environment()
    plan = {**json.loads(environment[private.VARIABLE]), "at": str(users.top)}
    tap = str(Path(private.__file__).parent)
    rank = """\
import os, subprocess, sys, tempfile
tempfile.NamedTemporaryFile().close()
print(os.getcwd(), os.environ["OMPI_MCA_btl_vader_single_copy_mechanism"])
subprocess.run(["sh", "-c", sys.argv[1]])
subprocess.run([sys.executable, "-c", "import os; print(os.getcwd())"])
"""
    done = subprocess.run(
        [sys.executable, "-c", rank, _WRITES],
        env={**environment, "PYTHONPATH": tap, private.VARIABLE: json.dumps(plan)},
        cwd=users.top,
        capture_output=True,
        text=True,
        check=False,
    )
    (place, copying), again = (line.split() for line in done.stdout.splitlines())
    assert Path(place).name == "copy"
    assert again == [place], "what the rank starts is restricted already"
    assert copying == "none", "ranks of one host have Landlock each, and see no other's memory"
    deadline = time.monotonic() + 30
    while Path(place).parent.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(place).parent.exists(), "its copy is removed after its end"
    assert "Permission denied" in done.stderr
    assert (users.record / "kept").read_text() == "new\n"


@pytest.mark.parametrize(("program", "within"), [("docker", ()), ("apptainer", _SANDBOX)])
def test_containers_out_of_reach_are_refused(
    users: Users, program: str, within: Sequence[str]
) -> None:
    if within:
        needs(within)
    done = users.run(program, "run", "train.py", within=within)
    assert done.returncode == private.REFUSED
    assert program in done.stderr


def test_a_setuid_launcher_of_a_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o4755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(private.Refused, match="setuid"):
        private._check([str(launcher)])


def test_a_scratch_directory_is_there_until_its_process_ends(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = f"import os, sys, {private.__name__} as p; p._remove_at_end(sys.argv[1])"
    # The process has no child to wait for.
    code += "\ntry: os.wait()\nexcept ChildProcessError: sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, scratch], stdin=subprocess.PIPE, cwd=ROOT
    ) as process:
        # Whoever removes it has left the process's session and waits.
        assert not eventually(lambda: not scratch.exists(), 1.0)
        assert process.stdin is not None
        process.stdin.close()
    assert eventually(lambda: not scratch.exists())


def test_a_program_that_does_not_exist_is_one_line(users: Users) -> None:
    done = users.run("no-such-program")
    assert (done.returncode, len(done.stderr.splitlines())) == (private.REFUSED, 1)
    assert "no-such-program" in (users.record / private.WHY).read_text()
