"""`python -m bench.mutants [--count N] [--seed N] [MODULE...]`: which small changes of the modules
that judge, and of those within users' scripts, no test notices.

Each mutant is a copy of the tree with one change, on which the module's tests run. Writes the drawn
mutants to bench/mutants.txt, beside those of earlier draws that the modules still have. There a
survivor that behaves as the original does may be marked `equivalent` by hand: it counts as that
from then on.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hvdperf.columns import Columns
from hvdperf.paths import ROOT

LIST = ROOT / "bench" / "mutants.txt"
# The rooms whose tests start no process. Whichever of their files imports a module tests it.
ROOMS = (
    *("tests", "tests/explain", "tests/judge", "tests/machine", "tests/plan", "tests/records"),
    "tests/work",
)
# What a module's path begins with, and the tests that belong to it besides.
_RULES = ("tests/test_verdict.py", "tests/test_rule_properties.py", "tests/judge/test_judge.py")
TESTS = {
    "hvdperf/judge/": ("tests/judge",),
    "hvdperf/explain/": ("tests/explain", "tests/judge"),
    "hvdperf/records/": ("tests/records", "tests/test_json_records.py", "tests/work"),
    "hvdperf/work/": ("tests/work", "tests/judge"),
    "hvdperf/stats.py": ("tests/test_stats.py", *_RULES),
    "hvdperf/verdict.py": _RULES,
    "hvdperf/worker/script/": tuple(
        f"tests/worker/test_{name}.py"
        for name in ("private", "private_copies", "script_rank", "recorder")
    ),
    "hvdperf/interim.py": ("tests/test_interim_again.py", *_RULES),
}
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


def mutants_of(module: str, text: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's text, in the order of the text's syntax tree."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))

    def made(node: ast.expr, new: str, told: str = "") -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        change = f"{told or ast.unparse(node)} -> {new}"
        return Mutant(module, lines[node.lineno - 1].strip(), change, begin, end, f"({new})")

    for node in _visited(ast.parse(text)):
        if isinstance(node, ast.Compare):
            for at, op in enumerate(node.ops):
                changed = copy.deepcopy(node)
                changed.ops[at] = _SWAPPED[type(op)]()
                yield made(node, ast.unparse(changed))
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPPED:
            swapped = copy.deepcopy(node)
            swapped.op = _SWAPPED[type(node.op)]()
            yield made(node, ast.unparse(swapped))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            value = node.value
            yield made(node, repr((not value) if isinstance(value, bool) else value + 1))
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield made(node.test, f"not ({ast.unparse(node.test)})")
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield made(condition, f"not ({ast.unparse(condition)})")
        elif isinstance(node, ast.FunctionDef):
            kind = ast.unparse(node.returns).partition("[")[0] if node.returns else ""
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and each.value is not None:
                    neutral = repr(_NEUTRAL.get(kind))
                    if ast.unparse(each.value) != neutral:
                        yield made(each.value, neutral, "return")


def _visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below one, without what only types or people read."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in field if isinstance(field, list) else [field]:
            # The places of nodes in a formatted string are wrong in Python 3.11.
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                    continue
                yield child
                yield from _visited(child)


def drawn(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants of the modules, of each in proportion to what there is of it."""
    ordered = []
    for module in modules:
        found = list(mutants_of(module, (ROOT / module).read_text()))
        chance = random.Random(f"{seed} {module}")
        chance.shuffle(found)
        ordered += [((i + chance.random()) / len(found), each) for i, each in enumerate(found)]
    return sorted(each for _, each in sorted(ordered)[:count])


class Copy:
    """A copy of the working tree's tracked files, below a directory."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # removed, and not committed
                shutil.copy(ROOT / name, directory / name)

    def fails(self, module: str, timeout_s: float | None = None) -> bool:
        """Return whether a test of the module fails, does not end, or takes all memory."""
        words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not long and not mpirun"]
        try:
            done = subprocess.run(
                [
                    *("prlimit", f"--as={MEMORY}", sys.executable, "-m", "pytest"),
                    *(*words, *self._tests_of(module)),
                ],
                cwd=self._root,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0

    def _tests_of(self, module: str) -> list[str]:
        """Return the files of a module's tests, those first that import it."""
        name = re.compile(rf"\b{re.escape(module.removesuffix('.py').replace('/', '.'))}\b")
        here = [path for room in ROOMS for path in sorted((self._root / room).glob("test_*.py"))]
        places = next(tests for begin, tests in TESTS.items() if module.startswith(begin))
        others = [
            path
            for place in places
            for path in (*sorted((self._root / place).glob("test_*.py")), self._root / place)
            if path.is_file()
        ]
        importing = [path for path in here if name.search(path.read_text())]
        return list(map(str, dict.fromkeys((*importing, *others))))

    def kills(self, mutant: Mutant, timeout_s: float) -> bool:
        path = self._root / mutant.module
        text = path.read_bytes()
        path.write_bytes(text[: mutant.begin] + mutant.new.encode() + text[mutant.end :])
        try:
            return self.fails(mutant.module, timeout_s)
        finally:
            path.write_bytes(text)


def listed(modules: Sequence[str]) -> dict[tuple[str, ...], str]:
    """Return the verdicts of the list, by module, line and change, on mutants that there still
    are."""
    mutants = [each for name in modules for each in mutants_of(name, (ROOT / name).read_text())]
    still = {(each.module, each.line, each.change) for each in mutants}
    rows = [line.split("\t") for line in LIST.read_text().splitlines()] if LIST.exists() else []
    return {key: row[3] for row in rows if (key := tuple(row[:3])) in still}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="paths that begin like this")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.count < 1:
        parser.error(f"{given.count} mutants: must be above zero")
    found = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "hvdperf").rglob("*.py"))]
    judging = [each for each in found if each.startswith(tuple(TESTS))]
    asked = tuple(given.modules or TESTS)
    modules = [each for each in judging if each.startswith(asked)]
    if not modules:
        parser.error(f"no module begins with {' or '.join(asked)}; known are {', '.join(TESTS)}")
    verdicts, table = listed(judging), dict[str, Counter[str]]()
    with tempfile.TemporaryDirectory(prefix="hvdperf-mutants-") as scratch:
        tree, longest = Copy(Path(scratch)), dict[str, float]()
        for mutant in drawn(modules, given.count, given.seed):
            key = mutant.module, mutant.line, mutant.change
            package = next(begin for begin in TESTS if mutant.module.startswith(begin))
            if package not in longest:
                began = time.monotonic()
                if tree.fails(mutant.module):
                    sys.exit(f"the tests of {package} fail without a mutant: {TESTS[package]}")
                longest[package] = 60 + 3 * (time.monotonic() - began)
            if verdicts.get(key) != EQUIVALENT:
                killed = tree.kills(mutant, longest[package])
                verdicts[key] = KILLED if killed else SURVIVED
            print(*key, verdicts[key], sep="\t", flush=True)
            table.setdefault(mutant.module, Counter())[verdicts[key]] += 1
    rows = sorted("\t".join((*key, verdict)) for key, verdict in verdicts.items())
    LIST.write_text("".join(f"{row}\n" for row in rows))
    total = sum(table.values(), Counter[str]())
    columns = Columns(("module", -36), *((verdict, 10) for verdict in VERDICTS), ("share", 8))
    print(f"\n{columns.header}")
    for module, counts in [*table.items(), ("all", total)]:
        share = 1 - counts[SURVIVED] / counts.total()
        print(columns.row(module, *(counts[verdict] for verdict in VERDICTS), f"{share:.1%}"))


if __name__ == "__main__":
    main()
