"""The rules of the house, read off the imports."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("harness", "models", "bench", "perf", "report", "history")
FRAMEWORKS = {"tensorflow", "keras", "horovod"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def sources(*rooms: str) -> list[Path]:
    """The Python files of these rooms, relative to the checkout."""
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


def imports(path: Path, lazy: bool = True) -> set[str]:
    """The modules that a file imports, full names; lazy: those inside functions, too."""
    nodes = ast.walk(tree(ROOT / path)) if lazy else tree(ROOT / path).body
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


# Who may import what ---------------------------------------------------------------------------

WORKERS_OWN = ("harness/worker", "models", "harness/wire.py", "harness/dataset_id.py")
# What a transport does without a framework.
BARE = Path("harness/worker/bare.py")
# A training script as a user writes it, to be compared with.
A_USERS_SCRIPT = Path("bench/bare_loop.py")


def test_only_workers_and_models_import_the_frameworks():
    offenders = {
        str(path): sorted(packages(path) & FRAMEWORKS)
        for path in [*sources(*ROOMS), Path("conftest.py")]
        if packages(path) & FRAMEWORKS
        and not inside(path, "harness/worker", "models")
        and path != A_USERS_SCRIPT
    }
    assert offenders == {}


@pytest.mark.parametrize("path", sources(*WORKERS_OWN), ids=str)
def test_workers_need_nothing_but_the_frameworks(path):
    known = {*sys.stdlib_module_names, *FRAMEWORKS, "numpy", "models", "harness"}
    if path == BARE:
        known = known - FRAMEWORKS | {"mpi4py"}
    assert packages(path) <= known
    own = {name for name in imports(path) if name.split(".")[0] in ("harness", "models")}
    assert all(re.match(r"(models|harness\.(worker|wire|dataset_id))(\.|$)", name) for name in own)


def test_only_launchers_the_plugin_and_the_bare_transport_import_mpi():
    may = ("harness/launch", "harness/plugin.py", str(BARE))
    offenders = [
        str(path)
        for path in sources(*ROOMS)
        if "mpi4py" in packages(path) and not inside(path, *may)
    ]
    assert offenders == []


# Of the standard library, what only computes.
ARITHMETIC = {
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "statistics",
    "typing",
}
PURE = {
    "collectives": set(),
    "exchanges": set(),
    "recipes": set(),
    "plan": {"harness.collectives", "harness.exchanges", "harness.recipes"},
    "planted": {"harness.plan"},
    "trials": {"harness.plan", "harness.planted", "harness.verdict"},
    "questions": {
        "harness.collectives",
        "harness.exchanges",
        "harness.plan",
        "harness.recipes",
        "harness.trials",
    },
    "attribution": {"harness.measurement", "harness.plan", "harness.runs", "harness.stats"},
    "trust": {
        "harness.attribution",
        "harness.measurement",
        "harness.plan",
        "harness.trials",
        "harness.verdict",
    },
    "stats": set(),
    "scatter": set(),
    "interim": {"harness.scatter", "harness.stats", "harness.verdict", "scipy"},
    # It is given its chance.
    "walk": {"harness.plan", "random"},
    "marks": set(),
    "disturbance": set(),
    "straggler": set(),
    "speedup": {"harness.plan"},
    "ledger": {"harness.marks", "harness.measurement", "harness.plan", "harness.straggler"},
    "tables": {"harness.errors", "harness.speedup", "textwrap"},
    "account": {
        "harness.ledger",
        "harness.measurement",
        "harness.plan",
        "harness.speedup",
        "harness.stats",
        "harness.straggler",
        "harness.verdict",
    },
    "waterfall": {
        "harness.account",
        "harness.ledger",
        "harness.plan",
        "harness.speedup",
        "harness.stats",
        "textwrap",
    },
    "transport_tools/figures": {"harness.collectives"},
    "transport_tools/osu": {"harness.collectives", "harness.transport_tools.figures", "re"},
    "transport_tools/nccl_tests": {"harness.collectives", "harness.transport_tools.figures", "re"},
    "verdict": {"harness.scatter", "harness.stats"},
    "runs": {"harness.plan"},
    "measurement": {
        "harness.collectives",
        "harness.disturbance",
        "harness.marks",
        "harness.plan",
        "harness.runs",
        "harness.speedup",
    },
    "evidence": {
        "harness.collectives",
        "harness.ledger",
        "harness.measurement",
        "harness.plan",
        "harness.runs",
        "harness.stats",
        "numpy",
    },
    "prediction": {"harness.errors"},
    "proposal": {"harness.plan", "harness.stats", "harness.verdict", "random"},
    "placement": {"harness.errors", "harness.machine", "harness.plan"},
    "needs": {
        "harness.attribution",
        "harness.collectives",
        "harness.plan",
        "harness.trials",
        "harness.wire",
    },
}


@pytest.mark.parametrize("module", PURE)
def test_arithmetic_does_no_input_or_output(module):
    path = Path("harness", f"{module}.py")
    own = {name for name in imports(path) if name.startswith("harness.")}
    others = packages(path) - {"harness"} - ARITHMETIC
    assert own | others <= PURE[module]
    called = {
        node.func.id
        for node in ast.walk(tree(ROOT / path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called.isdisjoint({"open", "print", "input"})


# From the plan to the report: no module imports from a later line.
LAYERS = (
    (
        "errors",
        "collectives",
        "commands",
        "dataset_id",
        "disturbance",
        "exchanges",
        "files",
        "live",
        "marks",
        "other_data",
        "places",
        "recipes",
        "stats",
        "straggler",
    ),
    ("scatter",),
    ("plan",),
    ("planted", "runs", "speedup", "transport_tools"),
    ("verdict", "measurement", "proposal", "prediction"),
    ("trials", "ledger", "interim"),
    ("questions", "attribution", "account", "evidence", "tables"),
    ("trust",),
    ("waterfall",),
    ("wire",),
    ("worker",),
    ("cores", "cpu_usage", "gpus", "machine", "placement", "environment", "stack", "fingerprint"),
    ("tomlfile", "thresholds", "profiles", "machine_record"),
    ("launch",),
    ("starter",),
    ("walk",),
    ("rounds", "tool_runner"),
    ("outcome", "needs", "rules"),
    ("judging",),
    ("workload_rounds",),
    ("session",),
    ("store", "summary", "overview", "bandwidths", "replay", "telling"),
    ("archive", "forecast", "baseline", "recall", "next_steps"),
    ("rows",),
    ("throughput", "trust_log"),
    ("trust_counts",),
    ("options", "data_sets"),
    ("campaign",),
    ("opening", "proposing", "resume"),
    ("journal",),
    ("suite",),
    ("plugin", "__main__"),
)
LAYER = {f"harness.{name}": depth for depth, names in enumerate(LAYERS) for name in names}


def layer(module: str) -> int | None:
    """Models come before everything; whatever is built on the harness after it."""
    room = ".".join(module.split(".")[:2])
    if module == "harness":
        return 0
    if room.startswith("harness."):
        return LAYER.get(room)
    return -1 if room.startswith("models") else len(LAYERS)


def test_every_module_has_its_place_in_the_flow():
    homeless = [name for name in MODULES if layer(name) is None]
    assert homeless == [], "say in LAYERS what these are built on"


def test_data_flows_one_way():
    backwards = [
        f"{name} imports {imported}"
        for name, path in MODULES.items()
        for imported in imports(path)
        if imported.split(".")[0] in ROOMS and (layer(imported) or 0) > (layer(name) or 0)
    ]
    assert backwards == []


def test_no_two_modules_import_each_other():
    edges = {name: imports(path, lazy=False) & MODULES.keys() for name, path in MODULES.items()}

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        if start in seen:
            return False
        seen.add(start)
        return goal in edges[start] or any(reaches(next_, goal, seen) for next_ in edges[start])

    assert [name for name in MODULES if reaches(name, name, set())] == []


def test_the_plugin_starts_without_the_frameworks():
    code = "import sys, harness.plugin; print(sorted(set(sys.argv[1:]) & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code, *FRAMEWORKS, "mpi4py.MPI"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


# Older interpreters ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sources(*WORKERS_OWN), ids=str)
def test_workers_are_written_for_python_3_9(path):
    text = (ROOT / path).read_text()
    module = ast.parse(text, str(path), feature_version=(3, 9))
    if "__future__" not in imports(path, lazy=False):
        unions = [
            node.lineno
            for owner in ast.walk(module)
            for node in ast.walk(getattr(owner, "annotation", None) or ast.Pass())
            if isinstance(node, ast.BinOp)
        ]
        assert unions == [], "X | Y in an annotation is evaluated"
    assert not any(isinstance(node, ast.Match) for node in ast.walk(module))


# What is tracked -------------------------------------------------------------------------------


def tracked() -> list[Path]:
    """The text files that git tracks, relative to the checkout."""
    result = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if result.returncode != 0:
        pytest.skip("not a git checkout: nothing tells which files are tracked")
    names = [Path(name) for name in result.stdout.decode().split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def forbidden() -> Iterator[str]:
    """Hosts of package registries, and this project's place on the machine it was made on."""
    yield "/" + "work" + "/"
    yield from (name + ".org" for name in ("pypi", "pythonhosted", "npmjs"))
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "NPM_CONFIG_REGISTRY"):
        host = urlsplit(os.environ.get(variable, "")).hostname
        if host:
            yield host


def test_no_tracked_file_names_a_registry_or_a_private_place():
    words = tuple(forbidden())
    found = [
        f"{path}: {word}"
        for path in tracked()
        for text in [(ROOT / path).read_text(errors="replace")]
        for word in words
        if word in text
    ]
    assert found == []


# Tests -----------------------------------------------------------------------------------------


def skips(module: ast.Module) -> Iterator[tuple[int, bool]]:
    """Where tests are skipped or expected to fail: the line, and whether it says why."""
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


@pytest.mark.parametrize("path", sources("tests", "perf", "conftest.py"), ids=str)
def test_whatever_is_skipped_says_why(path):
    silent = [line for line, reason in skips(tree(ROOT / path)) if not reason]
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


@pytest.mark.parametrize("page", ["README.md", *map(str, (ROOT / "docs").glob("*.md"))])
def test_pages_link_to_what_there_is(page):
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert missing == []
    assert not re.search(r"\b[A-Z]+_EXAMPLE\b|\bTODO\b", text)
