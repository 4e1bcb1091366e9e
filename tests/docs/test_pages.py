"""The pages of the documentation: their links, their terms, and their shell lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import (
    PAGES,
    ROOT,
    anchors,
    blocks,
    links,
    pages_of_kind,
    text_of,
    unlinked_first_use,
)
from tests.support.shell_lines import Checker

# Terms that nobody can guess, with their places in the glossary: a tutorial or a how-to links each
# of them where it first uses it.
TERMS = {
    "A/A (?:tests?|pairs?)": "aa-test-aa-pair",
    "arms?": "arm",
    "fingerprints?": "fingerprint",
    "minimum detectable effects?": "minimum-detectable-effect",
    "profiles?": "profile",
    "replicas?": "replica",
    "rounds?": "round",
    "slots?": "slot",
    "stacks?": "stack",
    "world sizes?": "world-size",
}
WAYS_IN = "Where to start"
KINDS = (WAYS_IN, "How to", "Reference", "Explanation", "For developers and reviewers")
GUIDES = pages_of_kind(WAYS_IN, "How to")


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead to no file, or to no heading of it."""
    found = []
    for link in links(text_of(page)):
        path, _, anchor = link.partition("#")
        if "://" in link or path.startswith("mailto:"):
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n\n[x](#a-b-c) [y](#d) [z](none.md) `[no](link)`\n")
    assert broken(page) == ["#d", "none.md", "link"]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_nothing_is_left_to_do(page: Path) -> None:
    assert not re.search(r"\b[A-Z]+_EXAMPLE\b|\bTODO\b", text_of(page))


def test_every_page_has_a_kind() -> None:
    listed = pages_of_kind(*KINDS)
    assert sorted(listed) == sorted(set(listed)), "listed twice"
    assert set(listed) == {page for page in PAGES if page.parts[0] == "docs"} - {
        Path("docs/index.md")
    }


def test_the_readme_is_short() -> None:
    assert len(text_of(Path("README.md")).split()) <= 900


@pytest.mark.parametrize("page", GUIDES, ids=str)
def test_terms_are_linked_where_they_are_first_used(page: Path) -> None:
    unlinked = {term: unlinked_first_use(text_of(page), term) for term in TERMS}
    assert {term: line for term, line in unlinked.items() if line} == {}, "link the glossary there"


def test_the_terms_are_in_the_glossary() -> None:
    assert set(TERMS.values()) <= anchors(text_of(Path("docs/glossary.md")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# round\n\nA [round](g.md#round), and a round.", ""),
        ("A round, and a [round](g.md#round).\n", "A round, and a [round](g.md#round)."),
        ("`round` in [x](round.md)\n```sh\nround\n```\n", ""),
    ],
)
def test_a_term_that_is_not_linked_is_found(text: str, found: str) -> None:
    assert unlinked_first_use(text, "rounds?") == found


# Shell lines -----------------------------------------------------------------------------------

WITH_BLOCKS = [page for page in PAGES if blocks(text_of(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=str)
def test_shell_blocks_could_run(page: Path, pytestconfig: pytest.Config) -> None:
    checker = Checker(pytestconfig)
    problems = [problem for block in blocks(text_of(page)) for problem in checker.check(block)]
    assert problems == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_in_sentences_exist(page: Path, pytestconfig: pytest.Config) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    commands = re.findall(r"`((?:hvdperf|make|pytest|mpirun|srun|bash|python) [^`]+)`", text)
    checker = Checker(pytestconfig)
    problems = [
        problem
        for command in commands
        for problem in checker.check(" ".join(command.split()))
        # A sentence may leave out what a command takes.
        if "arguments are required" not in problem
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("if true", "bash"),
        ("nosuchcommand", "nosuchcommand"),
        ("hvdperf report --colour", "--colour"),
        ("make nothing", "nothing"),
        ("make perf PROFIL=smoke", "PROFIL"),
        ("pytest perf/ --bugdet 5", "--bugdet"),
        ("pytest perf/test_none.py", "perf/test_none.py"),
        ("pytest perf/ --profile hourly", "hourly"),
        ("pytest perf/ --inject slow:rang=1", "rang"),
        ("pytest perf/ --models vgg_17", "vgg_17"),
        ("mpirun -np 2 pytest perf/ --none", "--none"),
        ("bash ci/none.sh", "ci/none.sh"),
        ("python -m bench.none", "bench.none"),
        ("cd x && hvdperf none", "none"),
        ('echo "$(hvdperf none)"', "none"),
    ],
)
def test_a_line_that_could_not_run_is_found(
    line: str, problem: str, pytestconfig: pytest.Config
) -> None:
    (found,) = Checker(pytestconfig).check(line)
    assert problem in found


def test_files_made_by_an_earlier_line_exist(pytestconfig: pytest.Config) -> None:
    checker = Checker(pytestconfig)
    line = "hvdperf thresholds propose results/runs/S --out ci/thresholds/mine.toml"
    later = "hvdperf explain ci/thresholds/mine.toml"
    assert checker.check(later) != []
    assert checker.check(f"{line}\n{later}") == []
