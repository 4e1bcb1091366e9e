"""`python -m bench mutants`: which small changes of the modules that judge, and of those within
users' scripts, no test notices.

Each mutant is a copy of the tree with one change, on which the module's tests run. Writes the drawn
mutants to bench/mutants.txt, beside those of earlier draws that the modules still have. There a
survivor that behaves as the original does may be marked `equivalent` by hand: it counts as that
from then on.
"""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from hvdperf.columns import Columns
from hvdperf.errors import UserError
from hvdperf.paths import ROOT

LIST = ROOT / "bench" / "mutants.txt"
# The rooms whose tests start no process. Whichever of their files imports a module tests it.
ROOMS = (
    *("tests", "tests/explain", "tests/judge", "tests/machine", "tests/plan", "tests/records"),
    *("tests/work", "tests/timeline/nights/test_gate.py"),
)
# What a module's path begins with, and the tests that belong to it besides.
_RULES = ("tests/test_verdict.py", "tests/test_rule_properties.py", "tests/judge/test_judge.py")
_SESSIONS = ("tests/session/test_scheduler.py", "tests/session/test_plugin.py")
TESTS = {
    "hvdperf/judge/": ("tests/judge",),
    "hvdperf/explain/": ("tests/explain", "tests/judge"),
    "hvdperf/records/": ("tests/records", "tests/test_json_records.py", "tests/work"),
    "hvdperf/work/": ("tests/work", "tests/judge", *_SESSIONS),
    "hvdperf/stats.py": ("tests/test_stats.py", *_RULES),
    "hvdperf/verdict.py": _RULES,
    "hvdperf/worker/script/": tuple(
        f"tests/worker/test_{name}.py"
        for name in ("private", "private_copies", "script_rank", "recorder")
    ),
    "hvdperf/interim.py": ("tests/test_interim_again.py", *_RULES),
}
MODULES = ", ".join(TESTS)
# Bytes of address space for the tests of a mutant: an endless list would take the machine's.
MEMORY = 8 << 30
KILLED, SURVIVED, EQUIVALENT = VERDICTS = ("killed", "survived", "equivalent")
_PAIRS: tuple[tuple[type, type], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)),
)
_SWAPPED = {**dict(_PAIRS), **{other: one for one, other in _PAIRS}}
_NEUTRAL = {"bool": False, "int": 0, "float": 0.0, "str": "", "list": [], "dict": {}, "tuple": ()}


class Mutant(NamedTuple):
    """A change of a module's text. line: the first one's, stripped. begin, end: of what is replaced
    by `new`, in bytes."""

    module: str
    line: str
    change: str
    begin: int
    end: int
    new: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.module, self.line, self.change


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its syntax tree."""
    text = (ROOT / module).read_bytes()
    lines = text.splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    for node in _visited(ast.parse(text)):
        for replaced, before, new in _changes(node):
            if ast.unparse(replaced) == new:
                continue
            assert replaced.end_lineno
            assert replaced.end_col_offset
            begin = starts[replaced.lineno - 1] + replaced.col_offset
            end = starts[replaced.end_lineno - 1] + replaced.end_col_offset
            line = lines[replaced.lineno - 1].decode().strip()
            yield Mutant(module, line, f"{before} -> {new}", begin, end, f"({new})")


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield the expressions of a node that a mutant replaces, their texts, and the new ones."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                yield _with(node, ops=[*ops[:at], _SWAPPED[type(op)](), *ops[at + 1 :]])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in _SWAPPED:
            yield _with(node, op=_SWAPPED[type(op)]())
        case ast.Constant(value=bool(value)):
            yield _with(node, value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield _with(node, value=value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield _negated(test)
        case ast.comprehension(ifs=conditions):
            yield from map(_negated, conditions)
        case ast.FunctionDef(returns=returns):
            kind = ast.unparse(returns).partition("[")[0] if returns else ""
            neutral = repr(_NEUTRAL.get(kind))
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and each.value is not None:
                    yield each.value, "return", neutral


def _with(node: ast.expr, **fields: object) -> tuple[ast.expr, str, str]:
    changed = type(node)(**{**dict(ast.iter_fields(node)), **fields})
    return node, ast.unparse(node), ast.unparse(changed)


def _negated(node: ast.expr) -> tuple[ast.expr, str, str]:
    text = ast.unparse(node)
    return node, text, f"not ({text})"


def _visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below one, without what only types or people read."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in field if isinstance(field, list) else [field]:
            match child:
                # Python 3.11 has wrong places of nodes in a formatted string. These arguments only
                # refuse what no caller does.
                case ast.JoinedStr() | ast.keyword(arg="frozen" | "strict"):
                    pass
                case ast.If(test=ast.Name("TYPE_CHECKING")):
                    pass
                case ast.AST():
                    yield child
                    yield from _visited(child)


def drawn(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants of the modules, of each in proportion to what there is of it."""
    ordered = []
    for module in modules:
        # The values of a function within another one are found twice.
        found, chance = [*dict.fromkeys(mutants_of(module))], random.Random(f"{seed} {module}")
        chance.shuffle(found)
        ordered += [((i + chance.random()) / len(found), each) for i, each in enumerate(found)]
    return sorted(each for _, each in sorted(ordered)[:count])


def fails(tree: Path, module: str, timeout_s: float | None = None) -> bool:
    """Return whether a test of the module fails, does not end, or takes all memory. tree: a copy of
    this one, in which to run the tests. timeout_s: None for no limit."""
    words = ["prlimit", f"--as={MEMORY}", sys.executable, "-m", "pytest", *tests_of(tree, module)]
    words += ["-x", "-q", "-p", "no:cacheprovider", "-m", "not long and not mpirun"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    # Not by a program in between: Ctrl-C ends what the terminal runs, and this kills pytest itself.
    try:
        subprocess.run(words, cwd=tree, env=env, capture_output=True, check=True, timeout=timeout_s)
    except subprocess.SubprocessError:
        return True
    return False


def tests_of(tree: Path, module: str) -> list[str]:
    """Return the files of a module's tests: those that are named like it, then those that import
    it, and then the others."""
    name = re.compile(rf"\b{re.escape(module.removesuffix('.py').replace('/', '.'))}\b")
    importing = [path for path in _files(tree, ROOMS) if name.search(path.read_text())]
    found = dict.fromkeys((*importing, *_files(tree, TESTS[package_of(module)])))
    ordered = sorted(found, key=lambda path: path.stem.removeprefix("test_") not in module)
    return [str(path.relative_to(tree)) for path in ordered]


def _files(tree: Path, places: Iterable[str]) -> Iterator[Path]:
    for place in places:
        path = tree / place
        yield from sorted(path.glob("test_*.py")) if path.is_dir() else [path]


def package_of(module: str) -> str:
    return next(begin for begin in TESTS if module.startswith(begin))


def kills(tree: Path, mutant: Mutant, timeout_s: float) -> bool:
    path = tree / mutant.module
    text = path.read_bytes()
    path.write_bytes(text[: mutant.begin] + mutant.new.encode() + text[mutant.end :])
    try:
        return fails(tree, mutant.module, timeout_s)
    finally:
        path.write_bytes(text)


def listed(modules: Sequence[str]) -> dict[tuple[str, ...], str]:
    """Return the verdicts of the list, by module, line and change, on mutants that there still
    are."""
    still = {each.key for module in modules for each in mutants_of(module)}
    rows = [line.split("\t") for line in LIST.read_text().splitlines()] if LIST.exists() else []
    return {key: row[3] for row in rows if (key := tuple(row[:3])) in still}


def try_mutants(*modules: str, count: int = 150, seed: int = 1) -> int:
    """Change modules that judge, and those within users' scripts, a little, one change at a time,
    and show which changes no test notices. The results are kept in bench/mutants.txt.

    [MODULE ...]: Change modules whose paths begin with these, of {MODULES}. Default: all.
    --count N: Try N changes.
    --seed N: Draw them with this seed.
    """
    if count < 1:
        raise UserError(f"--count {count}: must be above zero")
    found = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "hvdperf").rglob("*.py"))]
    judging = [each for each in found if each.startswith(tuple(TESTS))]
    chosen = [each for each in judging if each.startswith(modules or tuple(TESTS))]
    if not chosen:
        raise UserError(f"{' '.join(modules)}: no module begins like this; known are {MODULES}")
    verdicts, table, longest = listed(judging), dict[str, Counter[str]](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="hvdperf-mutants-") as scratch:
        tree = Path(scratch)
        listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        # A file that is removed and not committed is listed, too.
        there = [name for name in listing.split("\0") if (ROOT / name).is_file()]
        subprocess.run(["cp", "--parents", "-t", scratch, *there], cwd=ROOT, check=True)
        for mutant in drawn(chosen, count, seed):
            package = package_of(mutant.module)
            if package not in longest:
                began = time.monotonic()
                if fails(tree, mutant.module):
                    raise UserError(f"{', '.join(TESTS[package])}: tests fail without a mutant")
                longest[package] = 60 + 3 * (time.monotonic() - began)
            if verdicts.get(mutant.key) != EQUIVALENT:
                killed = kills(tree, mutant, longest[package])
                verdicts[mutant.key] = KILLED if killed else SURVIVED
            print(*mutant.key, verdicts[mutant.key], sep="\t", flush=True)
            table.setdefault(mutant.module, Counter())[verdicts[mutant.key]] += 1
    rows = sorted("\t".join((*key, verdict)) for key, verdict in verdicts.items())
    LIST.write_text("".join(f"{row}\n" for row in rows))
    columns = Columns(("module", -36), *((verdict, 10) for verdict in VERDICTS), ("share", 8))
    print(f"\n{columns.header}")
    for module, counts in [*table.items(), ("all", sum(table.values(), Counter[str]()))]:
        share = 1 - counts[SURVIVED] / counts.total()
        print(columns.row(module, *(counts[verdict] for verdict in VERDICTS), f"{share:.1%}"))
    return 0
