"""Runs a command so that it cannot change the user's files: `python -I -S FILE COMMAND ...`.

HVDPERF_PRIVATE holds a plan (`plan`). The kernel enforces it, for the command and all that it
starts, in one of two ways:

- a mount namespace, in a user namespace unless this is root. Every file system has an overlay, so
  files can be changed anywhere, and nobody else ever sees that;
- Landlock. The command runs in a copy of the script's directory, and nothing else can be written.

Neither reaches processes that a daemon starts, such as ranks on other hosts: each of those
restricts itself by Landlock (`restrict_rank`). Where neither works the command is refused.

This needs nothing but the standard library, in Python 3.9 and later.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import shutil
import stat
import struct
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLE = "HVDPERF_PRIVATE"
# The exit status of a command that was refused, and files in the directory of its records: one says
# why, and the other that Landlock restricts it.
REFUSED, WHY, BY_LANDLOCK = 125, "refused", "landlock"
# A larger file is data or a checkpoint. A copy of a directory has a link in its place.
LINKED = 16 << 20
# A copy holds at most so many bytes and files.
MOST_BYTES, MOST_FILES = 256 << 20, 20_000
# In the directory of a revision: its files, and the names of those that it replaces.
ARCHIVE, REPLACED = "revision.tar", "replaced"
_CONSENT = "to run the command unprotected, give hvdperf run --writable DIR, or HVDPERF_WRITABLE"

# Shown as they are: devices, and interfaces of the kernel.
_KEPT = ("/dev", "/proc", "/sys")
# Files in memory: shared by the ranks, and some of them the user's own.
_MEMORY = "/dev/shm"
# Shown without an overlay, through which nobody can connect to a socket.
_OF_SOCKETS = ("/run", "/var/lib/sss")
# A smaller file beside what cannot have an overlay is copied; others can only be read there.
_SMALL = 1 << 20

_NEW_NAMESPACE, _NEW_USER = 0x20000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE, _DETACH = 0x1000, 0x4000, 0x40000, 2
_AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = -100, 0x8000, 1
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203}.get(platform.machine(), -1)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _GIVE_VERSION, _NO_NEW_PRIVILEGES = 1, 1, 38
# Writing, removing, making, moving between directories, and truncating, which ABI 3 has brought.
_CHANGES = 1 << 1 | 0x7FF << 4
_ABI = 3
# Caches that are only there for speed; others may hold what the script needs.
_CACHES = ("CUDA_CACHE_PATH", "MPLCONFIGDIR", "NUMBA_CACHE_DIR")
# Open MPI and UCX read the memory of other ranks, which the kernel forbids between ranks that have
# restricted themselves.
_OF_MEMORY = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "UCX_TLS": "^cma"}
# Container engines. The first one starts its containers by a daemon, the others mount.
_DAEMON, _CONTAINERS = "docker", ("apptainer", "bwrap", "enroot", "podman", "singularity")


class Refused(Exception):
    """The command cannot be run without a risk for the user's files; the message says why."""


class TooLarge(ValueError):
    """A directory holds more than is copied for a run."""


def plan(
    top: Path,
    place: Path,
    scratch: str,
    record: Path,
    without: Path,
    revision: str = "",
    changed: Sequence[str] = (),
) -> str:
    """Return a plan as JSON.

    top: directory that the script belongs to. place: the command's working directory. scratch: an
    empty directory for all that the command writes elsewhere. record: directory that takes the
    records, and `WHY`. without: directory that is not copied. revision: directory with `ARCHIVE`
    and `REPLACED`; "" to run the files as they are. changed: names of Python files that differ in
    the revision. Besides these it has `writable`, directories that the user allows to be changed,
    and `at`: where `top` is for the command, once that is known."""
    Path(scratch, "inside").touch()
    given: dict[str, Any] = {
        "top": top,
        "place": place,
        "record": record,
        "without": without,
        "scratch": scratch,
    }
    paths = {name: os.path.abspath(path) for name, path in given.items()}
    writable = list(map(os.path.abspath, _list(os.environ.get("HVDPERF_WRITABLE", ""))))
    others = {"revision": revision, "at": "", "changed": list(changed), "writable": writable}
    return json.dumps({**paths, **others})


def command(words: Sequence[str]) -> list[str]:
    """Return the words of a command that runs by the plan in its environment."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *words]


def top_of(place: Path) -> Path:
    """Return the directory that a script in `place` belongs to: the top of its git repository, if
    it is in one, and not in a hidden directory there."""
    tops = (top for top in (place, *place.parents) if (top / ".git").exists())
    top = next(tops, place)
    hidden = any(part.startswith(".") for part in place.relative_to(top).parts)
    return place if hidden else top


def is_below(path: str, directory: str) -> bool:
    return path.startswith(os.path.join(directory, "")) or path == directory


def restrict_rank() -> str:
    """Restrict this process, unless a namespace or Landlock of its launcher does that, and return
    the directory that stands for `top` here; "" if there is no plan. Ends the process where it
    cannot be restricted."""
    if VARIABLE not in os.environ:
        return ""
    own = json.loads(os.environ[VARIABLE])
    if not own["at"] or not _is_inside(own["scratch"]):
        own["scratch"] = tempfile.mkdtemp(prefix="hvdperf-")
        Path(own["scratch"], "inside").touch()
        _remove_at_end(own["scratch"])
        for name, value in _OF_MEMORY.items():
            os.environ.setdefault(name, value)
        _restricted(own, _by_landlock)
    at: str = own["at"]
    return at


def _remove_at_end(path: str) -> None:
    """Remove a directory after the end of this process, by one that is not restricted, nor a child
    for which the script would wait."""
    end, _ = os.pipe()
    if child := os.fork():
        os.close(end)
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    os.dup2(end, 0)
    os.closerange(1, 1 << 16)
    os.read(0, 1)
    shutil.rmtree(path, ignore_errors=True)
    os._exit(0)


def _is_inside(scratch: str) -> bool:
    """Return whether this process runs under the restrictions of its launcher: in its namespace a
    file has another content, and under Landlock it cannot be opened."""
    try:
        with open(os.path.join(scratch, "inside"), "r+") as stream:
            return bool(stream.read())
    except PermissionError:
        return True
    except OSError:
        return False


def _run(words: list[str]) -> None:
    """Become a command, restricted."""
    own = json.loads(os.environ[VARIABLE])

    def restrict(own: Any) -> None:
        _check(words)
        if _works(_by_namespace, own):
            return _by_namespace(own)
        names = {os.path.basename(word) for word in words}
        if found := sorted(names & set(_CONTAINERS)):
            raise Refused(f"{found[0]} mounts file systems, which Landlock forbids")
        return _by_landlock(own)

    _restricted(own, restrict)
    words = [_moved(own, word) for word in words]
    try:
        os.execvp(words[0], words)
    except OSError as error:
        _refuse(own, f"{words[0]}: {error.strerror}")


def _restricted(own: Any, way: Any) -> None:
    """Restrict this process in a way, or leave it unprotected in a copy if the user has consented
    to that. Ends it otherwise."""
    try:
        way(own)
    except Refused as error:
        if not own["writable"]:
            _refuse(own, f"{platform.node()}: {error}; {_CONSENT}")
        if not own["at"]:
            _in_copy(own)
        # What this process starts is not asked again.
        Path(own["scratch"], "inside").write_text("unprotected")
    except (OSError, TooLarge) as error:
        _refuse(own, f"{platform.node()}: {own['top']}: {error}")


def _refuse(own: Any, why: str) -> None:
    with suppress(OSError):
        Path(own["record"], WHY).write_text(why)
    print(f"hvdperf: {why}", file=sys.stderr, flush=True)
    os._exit(REFUSED)


def _check(words: Sequence[str]) -> None:
    """Raise Refused for a program that does not run as it should, or out of reach."""
    if _DAEMON in map(os.path.basename, words):
        raise Refused(f"{_DAEMON} runs a container by its daemon, whose writes nothing restricts")
    program = shutil.which(words[0])
    if program and os.geteuid() and os.stat(program).st_mode & stat.S_ISUID:
        raise Refused(f"{program} is a setuid program, which has no privileges when restricted")


def _works(way: Any, own: Any) -> bool:
    """Return whether a way to restrict a process works, in one that ends then: when it fails
    halfway, its process is of no use."""
    child = os.fork()
    if not child:
        with suppress(BaseException):
            way(own)
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _put_revision(own: Any) -> None:
    """Replace the tracked files by those of the revision."""
    if not own["revision"]:
        return
    for name in filter(None, Path(own["revision"], REPLACED).read_text().split("\0")):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(own["at"], name))
    with tarfile.open(os.path.join(own["revision"], ARCHIVE)) as opened:
        # Python 3.14 would change modes otherwise; git has made this archive.
        opened.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        opened.extractall(own["at"])


def _call(name: str, *arguments: Any) -> int:
    """Call a function of the C library. Raises OSError."""
    whole = [os.fsencode(each) if isinstance(each, str) else each for each in arguments]
    result: int = getattr(_libc, name)(*whole)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


_libc = ctypes.CDLL(None, use_errno=True)


# A namespace with overlays -----------------------------------------------------------------------


def _by_namespace(own: Any) -> None:
    """Move this process to a mount namespace of its own, where all that it changes is private."""
    scratch = tempfile.mkdtemp(dir=own["scratch"])
    identities = (("uid_map", os.geteuid()), ("gid_map", os.getegid()))
    try:
        _call("unshare", _NEW_NAMESPACE)
    except OSError:
        _call("unshare", _NEW_USER | _NEW_NAMESPACE)
        Path("/proc/self/setgroups").write_text("deny")
        for name, number in identities:
            Path("/proc/self", name).write_text(f"{number} {number} 1")
    _mount("none", "/", _PRIVATE | _RECURSIVE)
    with open("/proc/self/mountinfo") as stream:
        fields = [line.split()[4] for line in stream]
    points = [re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), each) for each in fields]
    root = os.path.join(scratch, "root")
    os.mkdir(root)
    _mount(root, root, _BIND)
    _show("/", root, [*points, own["scratch"]], own["scratch"], scratch)
    agent = os.path.dirname(os.environ.get("SSH_AUTH_SOCK", ""))
    for path in filter(os.path.isdir, (*_OF_SOCKETS, agent)):
        _show_read_only(path, root + path)
    if os.path.isdir(_MEMORY):
        memory = tempfile.mkdtemp(dir=scratch)
        _mount("tmpfs", memory, 0, "tmpfs")
        try:
            _overlay(_MEMORY, root + _MEMORY, memory)
        except OSError:
            _mount(memory, root + _MEMORY, _BIND)
    for path in (own["record"], *own["writable"]):
        _mount(path, root + path, _BIND | _RECURSIVE)
    before = os.open("/", os.O_RDONLY)
    os.chdir(root)
    _call("syscall", _PIVOT_ROOT, ".", ".")
    os.fchdir(before)
    _call("umount2", ".", _DETACH)
    os.close(before)
    own["at"] = own["top"]
    _put_revision(own)
    os.environ[VARIABLE] = json.dumps(own)
    os.chdir(own["place"])


def _show(path: str, target: str, points: Sequence[str], hidden: str, scratch: str) -> None:
    """Show a path below the new root. points: paths above which no overlay can be: where file
    systems are mounted, and where the overlays keep what is changed, which is `hidden`. scratch:
    takes what is changed."""
    if path in _KEPT:
        os.mkdir(target)
        _mount(path, target, _BIND | _RECURSIVE)
    elif path == hidden:
        os.mkdir(target)
        Path(target, "inside").write_text("yes")
    elif os.path.islink(path):
        os.symlink(os.readlink(path), target)
    elif not os.path.isdir(path):
        _show_file(path, target)
    elif any(point.startswith(f"{path.rstrip('/')}/") for point in points if point != path):
        os.makedirs(target, exist_ok=True)
        _be_like(path, target)
        try:
            names = os.listdir(path)
        except PermissionError:
            return _show_read_only(path, target)
        for name in names:
            with suppress(FileNotFoundError):
                _show(os.path.join(path, name), os.path.join(target, name), points, hidden, scratch)
    else:
        os.mkdir(target)
        try:
            _overlay(path, target, scratch)
        except OSError:
            return _show_read_only(path, target)
    return None


def _overlay(path: str, target: str, scratch: str) -> None:
    """Show a directory with an overlay. Raises OSError."""
    changed, work = (tempfile.mkdtemp(dir=scratch) for _ in range(2))
    _be_like(path, changed)
    lower = re.sub(r"([\\:,])", r"\\\1", path)
    options = f"lowerdir={lower},upperdir={changed},workdir={work},userxattr"
    _mount("overlay", target, 0, "overlay", options)
    with suppress(OSError):
        # Only then can this be removed by somebody who is not root.
        os.chmod(os.path.join(work, "work"), 0o700)


def _show_file(path: str, target: str) -> None:
    about = os.lstat(path)
    if stat.S_ISREG(about.st_mode) and about.st_size <= _SMALL and os.access(path, os.R_OK):
        shutil.copy2(path, target)
        _be_like(path, target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        _show_read_only(path, target)


def _be_like(path: str, target: str) -> None:
    """Give a path the owner and the mode of another one, as far as that is allowed."""
    about = os.stat(path)
    with suppress(OSError):
        os.chown(target, about.st_uid, about.st_gid)
    os.chmod(target, stat.S_IMODE(about.st_mode))


def _show_read_only(path: str, target: str) -> None:
    _mount(path, target, _BIND | _RECURSIVE)
    attributes = struct.pack("4Q", _READ_ONLY, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, target, _AT_RECURSIVE, attributes, size)


def _mount(source: str, target: str, flags: int, kind: str = "none", options: str = "") -> None:
    _call("mount", source, target, kind, ctypes.c_ulong(flags), options)


# A copy, and Landlock ----------------------------------------------------------------------------


def _by_landlock(own: Any) -> None:
    """Move this process to a copy of the script's directory, and have the kernel refuse changes
    elsewhere. Raises Refused, OSError and TooLarge."""
    _in_copy(own)
    with suppress(OSError):
        Path(own["record"], BY_LANDLOCK).touch()
    writable = [os.path.join(own["scratch"], name) for name in ("copy", "tmp")]
    # That of Open MPI or Slurm, which have made it for this rank.
    writable += filter(None, [os.environ.get("PMIX_SERVER_TMPDIR")])
    try:
        _restrict([*writable, own["record"], *own["writable"], "/dev", "/proc"])
    except OSError as error:
        raise Refused(
            "nothing here keeps the command from changing your files: the system allows no "
            f"namespaces, and Landlock does not work ({error.strerror})"
        ) from None


def _restrict(writable: Sequence[str]) -> None:
    """Have the kernel refuse this process all changes of files but in these directories. Raises
    OSError."""
    version = _call("syscall", _CREATE_RULESET, None, ctypes.c_size_t(0), _GIVE_VERSION)
    if version < _ABI:
        raise OSError(errno.ENOSYS, f"it is of version {version}, and {_ABI} is needed")
    rules = struct.pack("Q", _CHANGES)
    ruleset = _call("syscall", _CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    for path in filter(os.path.isdir, writable):
        place = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", _CHANGES, place)
        _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        os.close(place)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _in_copy(own: Any) -> None:
    """Go to a copy of the script's directory. Raises OSError and TooLarge."""
    copy_of_top, temporary = (os.path.join(own["scratch"], name) for name in ("copy", "tmp"))
    os.makedirs(temporary, exist_ok=True)
    copy(Path(own["top"]), Path(copy_of_top), Path(own["without"]))
    own["at"] = copy_of_top
    _put_revision(own)
    os.environ[VARIABLE] = json.dumps(own)
    os.environ["TMPDIR"], tempfile.tempdir = temporary, None
    for name in _CACHES:
        os.environ.setdefault(name, temporary)
    paths = _list(os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(_moved(own, each) for each in paths)
    place = _moved(own, own["place"])
    os.environ["PWD"] = place
    os.chdir(place)


def _list(text: str) -> list[str]:
    return [each for each in text.split(os.pathsep) if each]


def _moved(own: Any, word: str) -> str:
    """Return a word of a command, which may be a path below the script's directory, for the copy,
    which has no installed environment."""
    is_installed = any((parent / "pyvenv.cfg").exists() for parent in Path(word).parents)
    if is_installed or own["at"] == own["top"] or not os.path.isabs(word):
        return word
    # A link may lead there.
    path = word if is_below(word, own["top"]) else os.path.realpath(word)
    if not is_below(path, own["top"]):
        return word
    return os.path.normpath(os.path.join(own["at"], os.path.relpath(path, own["top"])))


def copy(source: Path, target: Path, without: Path) -> None:
    """Copy a directory, so that each run begins with the same checkpoints and logs. Large files and
    installed environments are links, and hidden directories, such as .git and .cache, are left out.
    without: a directory that is left out. Raises TooLarge, and OSError."""
    environments: list[Path] = []
    copied: list[str] = []
    size = Counter[str]()  # of the files that are copied, by entry of the source

    def left_out(directory: str, names: list[str]) -> set[str]:
        paths = [path for path in (Path(directory, name) for name in names) if path.is_dir()]
        installed = [path for path in paths if (path / "pyvenv.cfg").exists()]
        environments.extend(installed)
        others = (each for each in paths if each.name[0] == "." or each == without)
        return {"__pycache__", *(path.name for path in (*installed, *others))}

    def put(path: str, place: str) -> None:
        about = os.stat(path)
        if about.st_size > LINKED:
            os.symlink(path, place)
        elif stat.S_ISREG(about.st_mode):
            copied.append(path)
            size[Path(path).relative_to(source).parts[0]] += about.st_size
            if sum(size.values()) > MOST_BYTES or len(copied) > MOST_FILES:
                ((largest, _),) = size.most_common(1)
                raise TooLarge(
                    f"{source} holds more than is copied for a run ({MOST_BYTES >> 20} MiB in "
                    f"files of up to {LINKED >> 20} MiB, {MOST_FILES} files), most of it in "
                    f"{largest}; start the script in a directory that holds the script alone, and "
                    "name its data by an absolute path"
                )
            shutil.copy2(path, place)

    shutil.copytree(source, target, True, left_out, put, dirs_exist_ok=True)
    for path in environments:
        (target / path.relative_to(source)).symlink_to(path)


if __name__ == "__main__":
    _run(sys.argv[1:])
