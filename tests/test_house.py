"""Rules of the code base, checked on its text and imports."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("hvdperf", "models", "bench", "perf")
FRAMEWORKS = {"tensorflow", "keras", "horovod"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def sources(*rooms: str) -> list[Path]:
    """Return the Python files of these rooms, relative to the checkout."""
    found = []
    for room in rooms:
        path = ROOT / room
        files = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
        found += [file.relative_to(ROOT) for file in files]
    return found


def module_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sources(*ROOMS)}


def at_the_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module outside of functions and classes."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from at_the_top([*node.body, *getattr(node, "orelse", [])])


def imports(path: Path, lazy: bool = True) -> set[str]:
    """Return the full names of the modules that a file imports, also if only for types. lazy:
    whether those inside functions count, too."""
    nodes = ast.walk(tree(ROOT / path)) if lazy else at_the_top(tree(ROOT / path).body)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            base = node.module or ""
            names = {f"{base}.{alias.name}" for alias in node.names}
            own = {name for name in names if name in MODULES}
            found |= own or {base}
    return found


def packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)} - {"__future__"}


def inside(path: Path, *rooms: str) -> bool:
    return any(path == Path(room) or path.is_relative_to(room) for room in rooms)


# Imports ---------------------------------------------------------------------------------------

# The rooms of hvdperf: each imports those before it and no later one. The leaves, modules that are
# in no room, come first; models is what ranks train.
ORDER = (
    "models",
    "leaves",
    "worker",
    "machine",
    "plan",
    "records",
    "explain",
    "launch",
    "vet",
    "work",
    "judge",
    "session",
    "report",
    "timeline",
    "script",
)
# The most modules side by side that a person can still survey.
MODULES_OF_A_ROOM = 16
# The most modules that reading a session may import: a reader needs no launcher.
MODULES_OF_A_READER = 18
# The modules that start the program, as a command and as a plugin.
STARTS = ("hvdperf.__main__", "hvdperf")
WORKERS_OWN = ("hvdperf/worker", "hvdperf/models")
# What is put into the ranks of a user's script, which have nothing of the suite.
TAP = "hvdperf/worker/script/tap"
# Bare MPI, which needs no framework.
BARE = Path("hvdperf/worker/strategies/bare_mpi.py")
# A training script as a user writes it, with which the suite is compared.
A_USERS_SCRIPT = Path("bench/bare_loop.py")


def room_of(module: str) -> str:
    """Return a module's room; return "" for code that is built on hvdperf."""
    top, _, inside_ = module.partition(".")
    if top != "hvdperf" or module in STARTS:
        return ""
    room, _, _ = inside_.partition(".")
    return room if (ROOT / "hvdperf" / room).is_dir() and room else "leaves"


def test_every_room_has_its_place():
    assert {room_of(module) for module in MODULES} - {""} <= set(ORDER), "say in ORDER where"


def test_data_flows_one_way():
    place = {room: number for number, room in enumerate((*ORDER, ""))}
    backwards = [
        f"{name} imports {imported}"
        for name, path in MODULES.items()
        for imported in imports(path)
        if imported in MODULES and place[room_of(imported)] > place[room_of(name)]
    ]
    assert backwards == []


def test_a_room_is_not_crowded():
    folders = (ROOT / "hvdperf").rglob("*/")
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := sum(path.name != "__init__.py" for path in folder.glob("*.py")))
        > MODULES_OF_A_ROOM
    }
    assert crowded == {}


def test_the_architecture_has_the_packages_in_their_order():
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.partition("| package |")[2].partition("\n\n")[0]
    # The first column holds the room, or hvdperf/*.py for the leaves.
    rooms = re.findall(r"^\| (?:.*?)`(?:hvdperf/\*\.py|(\w+)/)` *\)? *\|", table, re.MULTILINE)
    assert tuple(room or "leaves" for room in rooms) == ORDER


def test_every_module_says_what_it_does():
    assert [path for path in sources("hvdperf") if not ast.get_docstring(tree(ROOT / path))] == []


def test_a_module_that_is_named_exists():
    rooms = "|".join(room for room in ORDER if room != "leaves")
    name = re.compile(rf"(?<![\w/.-])(?:hvdperf/)?((?:{rooms})/[a-z_0-9/]+\.py)")
    paths = [*sources("hvdperf"), Path("docs/architecture.md"), Path("docs/report.md")]
    named = [(path, each) for path in paths for each in name.findall((ROOT / path).read_text())]
    assert [each for each in named if not (ROOT / "hvdperf" / each[1]).is_file()] == []


def test_reading_a_session_imports_few_modules():
    code = """
import sys
import hvdperf.records.archive
own = [name for name in sys.modules if name.partition(".")[0] == "hvdperf"]
print(*(name for name in own if not hasattr(sys.modules[name], "__path__")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert len(done.stdout.split()) <= MODULES_OF_A_READER, done.stdout


def test_no_two_modules_import_each_other():
    edges = {name: imports(path, lazy=False) & MODULES.keys() for name, path in MODULES.items()}

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        if start in seen:
            return False
        seen.add(start)
        return goal in edges[start] or any(reaches(next_, goal, seen) for next_ in edges[start])

    assert [name for name in MODULES if reaches(name, name, set())] == []


def test_only_workers_and_models_import_the_frameworks():
    offenders = {
        str(path): sorted(packages(path) & FRAMEWORKS)
        for path in [*sources(*ROOMS), Path("conftest.py")]
        if packages(path) & FRAMEWORKS and not inside(path, *WORKERS_OWN) and path != A_USERS_SCRIPT
    }
    assert offenders == {}


def test_what_is_put_into_a_users_script_needs_nothing_but_its_frameworks():
    own = {"_hvdperf_private", "_hvdperf_recorder"}
    known = {*sys.stdlib_module_names, *FRAMEWORKS, "numpy", *own}
    assert [path for path in sources(TAP) if packages(path) - known] == []


def test_workers_need_nothing_but_the_frameworks():
    # google: protobuf, of which TensorFlow makes its Examples.
    known = {*sys.stdlib_module_names, *FRAMEWORKS, "google", "numpy", "hvdperf"}
    for path in sources(*WORKERS_OWN):
        if not inside(path, TAP):
            may = known - FRAMEWORKS | {"mpi4py"} if path == BARE else known
            assert packages(path) <= may, path
            own = {name for name in imports(path) if name.split(".")[0] == "hvdperf"}
            assert all(re.match(r"hvdperf\.(models|worker)(\.|$)", name) for name in own), path


def test_only_launchers_the_plugin_and_the_bare_transport_import_mpi():
    may = ("hvdperf/launch", "hvdperf/session/plugin.py", str(BARE))
    offenders = [
        str(path)
        for path in sources(*ROOMS)
        if "mpi4py" in packages(path) and not inside(path, *may)
    ]
    assert offenders == []


# The code that judges, and the code that it uses, reads no file and asks no clock.
PURE = (
    "hvdperf/explain",
    "hvdperf/judge",
    "hvdperf/stats.py",
    "hvdperf/verdict.py",
    "hvdperf/interim.py",
)
NOT_PURE = {"os", "pathlib", "random", "shutil", "socket", "subprocess", "time"}


def test_judging_does_no_input_or_output():
    called = {
        node.func.id
        for path in sources(*PURE)
        for node in ast.walk(tree(ROOT / path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called.isdisjoint({"open", "print", "input"})
    assert [path for path in sources(*PURE) if packages(path) & NOT_PURE] == []


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("hvdperf.session.plugin", [*FRAMEWORKS, "mpi4py.MPI"]),
        # Of hundreds of slots each imports it.
        ("hvdperf.launch.pytest_command", [*FRAMEWORKS, "mpi4py.MPI", "pytest", "msgspec"]),
    ],
)
def test_what_starts_first_starts_without(module, without):
    code = f"import sys, {module}; print(sorted(set(sys.argv[1:]) & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code, *without],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_a_module_runs_only_when_all_of_it_is_there():
    early = [
        (path, node.lineno)
        for path in sources(*ROOMS, "ci", "docs")
        for node in tree(ROOT / path).body[:-1]
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    ]
    assert early == []


# Size ------------------------------------------------------------------------------------------

# The most lines of each package, neither blank, comment nor docstring; of scripts for the shell and
# the browser, all lines. A change may lower them; raising one needs a reason in its commit.
LINES = {
    "models": 1529,
    "leaves": 1115,
    "worker": 4139,
    "machine": 1397,
    "plan": 1829,
    "records": 1079,
    "explain": 1012,
    "launch": 2202,
    "vet": 463,
    "work": 1272,
    "judge": 365,
    "session": 2124,
    "timeline": 3817,
    "report": 3522,
    "script": 2144,
    "hvdperf": 85,
    "perf": 86,
    "bench": 1453,
    "ci": 116,
    "docs": 437,
    "scripts": 1689,
    "tests": 28852,
}
# The most files of Python outside tests, and imports of more than IMPORTED names.
FILES, LONG_IMPORTS, IMPORTED = 209, 33, 5
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}


def lines_of_code(path: Path) -> int:
    text = (ROOT / path).read_text()
    if path.suffix != ".py":
        return text.count("\n")
    documented: set[int] = set()
    for node in ast.walk(tree(ROOT / path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    rows = {
        row
        for token in tokens
        if token.type not in _NO_CODE
        for row in range(token.start[0], token.end[0] + 1)
    }
    return len(rows - documented)


def size() -> Counter[str]:
    """Return the lines of each package, and of what is not Python."""
    found: Counter[str] = Counter()
    for path in tracked():
        if path.suffix == ".py" and path.parts[0] in (*ROOMS, "ci", "docs", "tests"):
            found[room_of(module_of(path)) or path.parts[0]] += lines_of_code(path)
        elif path.suffix in (".js", ".css", ".sh") and "vendor" not in str(path):
            found["scripts"] += lines_of_code(path)
    return found


def test_no_package_grows():
    assert {name: lines for name, lines in size().items() if lines > LINES.get(name, 0)} == {}


def test_files_and_long_imports_do_not_become_more():
    paths = sources(*ROOMS)
    many = sum(
        isinstance(node, ast.ImportFrom) and len(node.names) > IMPORTED
        for path in paths
        for node in ast.walk(tree(ROOT / path))
    )
    assert len(paths) <= FILES
    assert many <= LONG_IMPORTS


# Older interpreters ----------------------------------------------------------------------------


def test_workers_are_written_for_python_3_9():
    for path in sources(*WORKERS_OWN):
        module = ast.parse((ROOT / path).read_text(), str(path), feature_version=(3, 9))
        if "__future__" not in imports(path, lazy=False):
            unions = [
                node.lineno
                for owner in ast.walk(module)
                for node in ast.walk(getattr(owner, "annotation", None) or ast.Pass())
                if isinstance(node, ast.BinOp)
            ]
            assert unions == [], f"{path}: X | Y in an annotation is evaluated"
        assert not any(isinstance(node, ast.Match) for node in ast.walk(module)), path


# Tracked files ---------------------------------------------------------------------------------


def tracked() -> list[Path]:
    """Return the text files that git tracks, relative to the checkout."""
    result = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if result.returncode != 0:
        pytest.skip("not a git checkout: nothing tells which files are tracked")
    names = [Path(name) for name in result.stdout.decode().split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def forbidden() -> Iterator[str]:
    """Yield patterns of what names a package registry, and of the place of this project on its
    machine."""
    yield r"(?<![\w.])/" + "work" + "/"
    yield from (re.escape(name + ".org") for name in ("pypi", "pythonhosted", "npmjs"))
    yield r"--(?:(?:extra-|default-)?index-url|default-index)[ =]\S+"
    yield r"https?://[^\s\"'*]+/" + r"simple\b"
    yield r"\"resolved\": *\"" + "https?:"
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "NPM_CONFIG_REGISTRY"):
        host = urlsplit(os.environ.get(variable, "")).hostname
        if host:
            yield re.escape(host)
    # It is not tracked, and names hosts.
    lock = ROOT / "uv.lock"
    text = lock.read_text() if lock.exists() else ""
    yield from sorted(map(re.escape, set(re.findall(r"https?://([^/\"\s]+)", text))))


def test_no_tracked_file_names_a_registry_or_a_private_place():
    words = tuple(forbidden())
    found = [
        f"{path}: {word}"
        for path in tracked()
        for text in [(ROOT / path).read_text(errors="replace")]
        for word in words
        if re.search(word, text)
    ]
    assert found == []


# Tests -----------------------------------------------------------------------------------------


def skips(module: ast.Module) -> Iterator[tuple[int, bool]]:
    """Yield the places where tests are skipped or expected to fail: the line, and whether it gives
    a reason."""
    for node in ast.walk(module):
        bare = node.func if isinstance(node, ast.Call) else node
        if not isinstance(bare, ast.Attribute) or not isinstance(node, ast.expr):
            continue
        marked = isinstance(bare.value, ast.Attribute) and bare.value.attr == "mark"
        if not (marked and bare.attr in ("skip", "skipif", "xfail")) and not (
            isinstance(bare.value, ast.Name)
            and bare.value.id == "pytest"
            and bare.attr in ("skip", "xfail")
        ):
            continue
        if isinstance(node, ast.Call):
            said = [argument.arg for argument in node.keywords] + [None] * len(node.args)
            yield node.lineno, "reason" in said or (bare.attr != "skipif" and bool(node.args))
        elif not _called(module, node):
            yield node.lineno, False


def _called(module: ast.Module, function: ast.AST) -> bool:
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    return any(call.func is function for call in calls)


def test_whatever_is_skipped_says_why():
    silent = [
        (path, line)
        for path in sources("tests", "perf", "conftest.py")
        for line, reason in skips(tree(ROOT / path))
        if not reason
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        ("pytest.skip()", [False]),
        ("pytest.skip('no GPU')", [True]),
        ("@pytest.mark.skip\ndef test(): ...", [False]),
        ("@pytest.mark.skip(reason='no GPU')\ndef test(): ...", [True]),
        ("@pytest.mark.skipif(True)\ndef test(): ...", [False]),
        ("@pytest.mark.skipif(True, reason='no GPU')\ndef test(): ...", [True]),
        ("@pytest.mark.parametrize('a', [1])\ndef test(a): ...", []),
    ],
)
def test_a_silent_skip_is_found(source, reasons):
    assert [reason for _, reason in skips(ast.parse(source))] == reasons


if __name__ == "__main__":
    now = size()
    code = sum(now.values()) - sum(now[each] for each in ("ci", "docs", "tests", "scripts"))
    spare = sum((Counter(LINES) - now).values())
    print(f"size: {code} lines of code, {now['tests']} of tests; {spare} below the budget")
