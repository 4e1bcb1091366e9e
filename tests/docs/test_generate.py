"""The pages that docs/generate.py makes, and the site that Sphinx makes of all pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import trust, truth_table
from docs import generate
from docs.markdown import table
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import Fault
from tests.support.pages import ROOT
from tests.support.whole_sessions import completed

# Where the suite's own variables are read, or passed to it.
READERS = ("hvdperf", "ci", "activate", "Makefile", "tests/support/browser.py")


@pytest.mark.parametrize("name", list(generate.PAGES))
def test_a_page_is_as_the_code_says(name: str) -> None:
    path = generate.REFERENCE / f"{name}.md"
    assert path.read_text() == generate.text(name), "run make docs"


def test_there_is_no_page_that_nobody_makes() -> None:
    by_hand = {"compatibility"}
    found = {path.stem for path in generate.REFERENCE.glob("*.md")} - by_hand
    assert found == {*generate.PAGES, *(made.PAGE.stem for made in (bench, trust, truth_table))}


def test_every_variable_of_the_suite_is_explained() -> None:
    words = ["git", "grep", "--untracked", "-ohwE", "HVDPERF_[A-Z_]+", "--", *READERS]
    assert set(completed(words).stdout.split()) == set(generate.VARIABLES)


def test_every_question_is_a_case() -> None:
    shown, *_ = generate.cases()
    rows = [f"| `{question.value}` | {question.spec.meaning}" for question in Question]
    assert [row for row in rows if row not in shown] == []


def test_every_fault_says_what_happens() -> None:
    told = generate.meanings(Fault, Fault.KINDS)
    assert set(told) == set(Fault.KINDS)
    assert all(told.values())


def test_meanings_are_taken_from_sentences_of_a_docstring() -> None:
    class Record:
        """A record.

        a: first. b, c: of both: see a. d: last
        one.
        """

    found = generate.meanings(Record, ["a", "b", "c", "d"])
    assert found == {"a": "first", "b": "of both: see a", "c": "of both: see a", "d": "last one"}


def test_a_bar_does_not_end_a_cell() -> None:
    assert table(("a", "b"), [("x|y", "z")]).splitlines()[-1] == "| x\\|y | z |"


# The site --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does, without the pages that it writes before."""
    place = tmp_path_factory.mktemp("site")
    recipe = re.search(r"python -m sphinx (.*) -d \S+ docs site", (ROOT / "Makefile").read_text())
    assert recipe is not None
    sphinx = [sys.executable, "-m", "sphinx", *recipe[1].split(), "-d", str(place / "trees")]
    built = completed([*sphinx, "docs", str(place / "site")], timeout=600)
    assert built.returncode == 0, built.stderr
    return place / "site"


@pytest.mark.long
def test_the_site_has_every_page(site: Path) -> None:
    pages = {
        path.relative_to(ROOT / "docs").with_suffix(".html")
        for path in (ROOT / "docs").rglob("*.md")
    }
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loading = re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", path.read_text())
        assert [tag for tag in loading if "//" in tag] == [], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", path.read_text()), path


def test_the_navigation_is_that_of_the_index(site: Path) -> None:
    shown = (site / "index.html").read_text()
    index = (ROOT / "docs/index.md").read_text()
    captions = re.findall(r'class="caption-text">([^<]+)<', shown)
    assert captions == re.findall(r"^## (.+)$", index, re.MULTILINE)
