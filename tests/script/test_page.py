"""The page of a training script: its figures, and how it is seen in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape
from playwright.sync_api import Browser, Page, ViewportSize

from hvdperf.plan.arms import Term
from hvdperf.report.content import Figure, Row
from hvdperf.report.html import page as document
from hvdperf.script import training as told
from hvdperf.script.checks import Limit
from hvdperf.script.page import MOST_RANKS, report_of, sections
from hvdperf.script.recorded import Rank, last_job, read_ranks
from hvdperf.script.training import Training, training_of
from tests.report.sample import HOSTILE
from tests.support.browser import visit
from tests.support.warm import hvdperf

RECORDED = Path(__file__).with_name("recorded")
PHONE: ViewportSize = {"width": 390, "height": 844}
USUAL = training_of(*last_job(read_ranks(RECORDED)[0]))


def page(training: Training, name: str) -> str:
    return document(report_of(training, name))


def many(count: int) -> list[Rank]:
    """Return as many ranks of one job, which did what the recorded ones did."""
    return [
        replace(USUAL.ranks[number % 2], rank=number, size=count, pid=number)
        for number in range(count)
    ]


def figures(training: Training) -> dict[str, Figure]:
    return {each.name: each for section in sections(training) for each in section.figures}


def rows(training: Training, name: str) -> tuple[Row, ...]:
    return figures(training)[name].table.rows


def test_every_figure_is_there_and_refers_to_its_own_columns() -> None:
    found = figures(USUAL)
    names = ["terms", "ranks", "slow-steps", "strip"]
    assert list(found) == names
    for figure in found.values():
        keys = {column.key for column in figure.table.columns}
        assert figure.table.rows
        assert all(set(row) == keys for row in figure.table.rows)


def test_the_page_says_what_the_terminal_says() -> None:
    text = page(USUAL, "a run")
    says = (told.first, told.steps, told.tail, told.unexplained, told.start)
    for each in (*says, told.exchanged, told.resources, told.unseen):
        for sentence in each(USUAL):
            assert escape(sentence[1:].replace("`", "")) in text
    assert escape(USUAL.limit.told[1:]) in text


def test_the_figures_hold_all_of_the_time_and_all_of_the_steps() -> None:
    for row in rows(USUAL, "terms"):
        parts = [value for key, value in row.items() if key not in ("rank", "all")]
        assert sum(map(float, parts)) == pytest.approx(row["all"])  # type: ignore[arg-type]
    for rank, row in zip(USUAL.ranks, rows(USUAL, "ranks"), strict=True):
        assert rank.steps is not None
        assert (row["steps"], row["max_ms"]) == (rank.count, 1000 * rank.steps.longest)


def test_a_pause_is_seen_in_the_strip_as_long_as_it_lasted() -> None:
    for rank in USUAL.ranks:
        assert rank.steps is not None
        own = [row for row in rows(USUAL, "strip") if row["rank"] == rank.rank]
        slowest = rank.steps.slowest[0].row
        begun = next(row.before for row in rank.steps.rows if row.number > 3)
        begin, end = slowest.before - begun, slowest.end - begun
        assert max(float(row["longest_ms"] or 0) for row in own) == 1000 * slowest.period
        for row in own:
            if begin < float(row["to_s"] or 0) and float(row["from_s"] or 0) < end:
                assert row["longest_ms"] == 1000 * slowest.period


def test_slow_steps_are_told_with_what_the_script_did_in_them() -> None:
    assert USUAL.parts is not None
    assert USUAL.parts.tail is not None
    found = USUAL.parts.tail.steps
    numbers = [each.number for each in found]
    assert (len(numbers), numbers) == (12, sorted(numbers))
    # Rank 0 saves after every twentieth step.
    assert {number % 20 for number in numbers} == {0}
    assert {each.cause for each in found} == {(0, Term.BETWEEN)}
    assert all(each.seconds > 0.4 for each in found)


def test_of_many_ranks_some_are_drawn() -> None:
    training = training_of(many(MOST_RANKS + 4), 1)
    for name in ("terms", "strip"):
        assert len({row["rank"] for row in rows(training, name)}) == MOST_RANKS
    assert len(rows(training, "ranks")) == MOST_RANKS + 4


def test_checks_that_failed_stand_before_what_limits() -> None:
    wrong = (Limit("one thing is wrong", "mend one"), Limit("another is, too", "mend two"))
    text = page(replace(USUAL, wrong=wrong), "a run")
    order = [text.index(part) for part in ("2 checks failed", "ne thing is", "nother is, too")]
    assert order == sorted(order)
    assert order[-1] < text.index(escape(USUAL.limit.told[1:]))
    only = replace(USUAL, wrong=wrong[:1], limit=wrong[0])
    assert page(only, "a run").count("ne thing is wrong") == 1


def test_a_rank_that_only_began_has_a_page() -> None:
    bare = replace(USUAL.ranks[0], size=1, series=(), exchanged={}, weights=(), is_over=False)
    training = training_of([bare], 1)
    assert list(figures(training)) == ["ranks"]
    assert "no training step was seen" in page(training, "a run").casefold()


def test_the_command_makes_the_page_again(tmp_path: Path) -> None:
    directory = tmp_path / "scripts" / "a-run"
    directory.mkdir(parents=True)
    for path in RECORDED.glob("*.json"):
        (directory / path.name).write_bytes(path.read_bytes())
    done = hvdperf("report", directory, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "report/a-run.html\n")
    written = (tmp_path / "report" / "a-run.html").read_text(encoding="utf-8")
    assert written == page(USUAL, "a-run")
    done = hvdperf("report", directory, "--format", "terminal", cwd=tmp_path)
    assert done.stdout == "".join(f"{line}\n" for line in told.lines(USUAL))
    done = hvdperf("report", directory, "--format", "csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "report/a-run-csv\n")
    done = hvdperf("report", directory, "--figures", "figures", cwd=tmp_path)
    assert done.returncode == 2
    assert "has no figures for a paper" in done.stderr
    for path in directory.iterdir():
        path.write_text("{")
    done = hvdperf("report", directory, cwd=tmp_path)
    assert done.returncode == 2
    assert "no document of a rank can be read" in done.stderr


# In a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A window with a directory of pages, each of which goes wrong in no way."""
    directory = tmp_path_factory.mktemp("pages")
    hostile = [
        replace(rank, host=HOSTILE[0], arguments=tuple(HOSTILE), missing=tuple(HOSTILE))
        for rank in USUAL.ranks
    ]
    trainings = {"usual": USUAL, "hostile": training_of(hostile, 2)}
    trainings["many"] = training_of(many(64), 1)
    for name, training in trainings.items():
        (directory / f"{name}.html").write_text(page(training, name), encoding="utf-8")
    with visit(browser, directory) as found:
        yield found


@pytest.mark.parametrize("name", ["usual", "hostile", "many"])
def test_a_page_is_drawn_on_paper_and_on_a_phone_without_scrolling_it_sideways(
    opened: Page, name: str
) -> None:
    opened.set_viewport_size(PHONE)
    opened.goto(f"/{name}.html")
    opened.locator("html[data-ready=true]").wait_for()
    assert opened.pdf().startswith(b"%PDF-")
    drawn = [each for each in figures(USUAL).values() if each.plot is not None]
    assert opened.locator("[data-drawn=true]").count() == len(drawn)
    # Text of a document is never more than text.
    assert opened.locator(".failed:visible").count() == 0
    assert opened.evaluate("window.ran") is None
    opened.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
