"""A newcomer's path: the lines of the first tutorial and of the README, copied from the pages, in a
fresh clone.

The whole tutorial runs, with one network: its rounds are made up, but for a round of the session
with a fault, which starts ranks in the environment of the clone. So are those of the README's
section on scaling, with one question and one network, since its lines do much the same. All other
shell lines need GPUs, Slurm, other hosts or another stack; test_pages.py checks that their commands
exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clones import without_this_environment
from tests.support.pages import blocks, text_of
from tests.support.whole_sessions import completed

MADE_UP = "-p tests.support.made_up_ranks --budget=1"
MARK = "exit status of the line:"
# Begins a line of a summary; the rest of the line differs from machine to machine.
SHAPE = re.compile(r"^(network +ranks|results: results/runs/|report: results/report/)", re.M)


@dataclass(frozen=True)
class Line:
    """A line of a page that was run: its exit status, and what it printed."""

    status: int
    output: str


def run(script: str, clone: Path, **variables: str) -> dict[str, Line]:
    """Run each line of a script in one shell, and return what came of it, by its command."""
    commands = [
        line.partition(" # ")[0].strip() for line in script.replace("\\\n", " ").splitlines()
    ]
    text = "".join(
        f"{command}\nstatus=$?; echo; echo '{MARK}' $status\n" for command in commands if command
    )
    shell = ["bash", "--noprofile", "--norc", "-c", f"exec 2>&1 </dev/null\n{text}"]
    ended = completed(shell, clone, {**without_this_environment(), **variables}, timeout=1500)
    parts = re.split(rf"^{MARK} (\d+)$", ended.stdout, flags=re.MULTILINE)
    found = zip(filter(None, commands), parts[::2], parts[1::2], strict=False)
    return {command: Line(int(status), output) for command, output, status in found}


def test_each_line_has_its_own_exit_status(tmp_path: Path) -> None:
    found = run("name=x   # a comment\n\necho $name; (exit 6)\ntrue\n", tmp_path)
    assert [line.status for line in found.values()] == [0, 6, 0]
    assert found["echo $name; (exit 6)"].output.strip() == "x"


@pytest.fixture(scope="module")
def tutorial(clone: Path) -> Mapping[str, Line]:
    *first, last = blocks(text_of(Path("docs/first_session.md")))
    # Whatever is imported is compiled then.
    quick = {"UV_COMPILE_BYTECODE": "0"}
    done = run("".join(first), clone, PYTEST_ADDOPTS=f"{MADE_UP} --models=vgg_16_s", **quick)
    return {**done, **run(f". ./activate\n{last}", clone, PYTEST_ADDOPTS="--budget=0.1")}


@pytest.fixture(scope="module")
def readme(clone: Path, tutorial: Mapping[str, Line]) -> Mapping[str, Line]:
    """Run the README's lines after the tutorial, whose environment they find."""
    section = text_of(Path("README.md")).partition("\n## How training scales\n")[2]
    short = f"{MADE_UP} --models=alexnet_s -k weak_scaling"
    return run(blocks(section)[0], clone, PYTEST_ADDOPTS=short)


def shape(summary: str) -> set[str]:
    return {" ".join(found.split()) for found in SHAPE.findall(summary)}


def sample(page: str) -> set[str]:
    """Return the shape of the first summary that a page shows, which may leave out lines."""
    shown = [each for each in blocks(text_of(Path(page)), "") if "exit status" in each]
    return shape(shown[0])


# The lines of the tutorial, with the exit statuses that they may have, and what they say.
TUTORIAL = [
    ("make env", {0}, "env: ready after"),
    (". ./activate", {0}, ""),
    ("hvdperf doctor", {0, 9}, "cores"),
    ("pytest perf/ --profile smoke --dry-run", {0}, "weak_scaling["),
    # 6: other programs ran, or this machine is noisy, as the page says.
    ("pytest perf/ --profile smoke", {0, 6}, "PASS"),
    (
        "pytest perf/ --profile smoke --models vgg_16_s --inject slow:rank=1,factor=2",
        {1, 6},
        "weak scaling, 2 ranks",
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("command", "statuses", "says"), TUTORIAL)
def test_a_line_of_the_tutorial_ends_as_the_page_says(
    tutorial: Mapping[str, Line], command: str, statuses: set[int], says: str
) -> None:
    line = tutorial[command]
    assert line.status in statuses, line.output
    assert says in line.output


@pytest.mark.long
def test_every_line_of_the_tutorial_ran(tutorial: Mapping[str, Line]) -> None:
    assert list(tutorial) == [command for command, _, _ in TUTORIAL]


@pytest.mark.long
def test_the_summary_is_as_the_tutorial_shows_it(clone: Path, tutorial: Mapping[str, Line]) -> None:
    line = tutorial["pytest perf/ --profile smoke"]
    assert shape(line.output) == sample("docs/first_session.md")
    assert f"\nexit status {line.status}: " in line.output
    page = re.search(r"^report: (\S+)$", line.output, re.MULTILINE)
    assert page is not None
    assert (clone / page[1]).stat().st_size > 100_000


@pytest.mark.long
def test_the_lines_of_the_readme_run(readme: Mapping[str, Line]) -> None:
    perf = readme["make perf"]
    assert perf.status in (0, 2), perf.output
    assert shape(perf.output) >= sample("README.md") != set()
    sessions = [line for command, line in readme.items() if "pytest perf/" in command]
    assert len(sessions) == 2
    for line in sessions:
        assert line.status in (0, 6), line.output
        assert shape(line.output) >= sample("README.md")
    assert readme[". ./activate"].status == 0
