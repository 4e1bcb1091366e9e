"""The published site in a real browser.

That a page asks nobody else for anything, and that nothing goes wrong in it, is checked for every
one of them (tests/support/browser.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from hvdperf.timeline.asv_site import make_offline
from hvdperf.timeline.history import Axis
from tests.support.browser import screenshot, visit
from tests.support.histories import REPLICA
from tests.support.published import (
    HOROVOD,
    MODELS,
    SAMPLES,
    SECONDS,
    TENSORFLOW,
    WORLD_SIZES,
    published_site,
    samples_per_second,
)

Lines = Mapping[str, Mapping[str, float]]
# The last model at the most replicas lacks a TensorFlow: what is measured most often comes before.
MODEL, WORLD_SIZE = MODELS[1], WORLD_SIZES[0]

LINES = """() => {
    const plot = $('#main-graph').data('plot');
    const release = x => Object.entries($.asv.main_json.tags).find(([, tagged]) => tagged === x)[0];
    const measured = line => line.data.filter(([, value]) => value !== null);
    const lines = (plot ? plot.getData() : []).map(line => [
        line.label, Object.fromEntries(measured(line).map(([x, value]) => [release(x), value]))
    ]);
    return Object.fromEntries(lines);
}"""
# Where on the page the points of the first line are.
PLACES = """() => {
    const plot = $('#main-graph').data('plot');
    const corner = $('#main-graph').offset();
    return plot.getData()[0].data.map(([x, y]) => {
        const {left, top} = plot.pointOffset({x, y});
        return [corner.left + left, corner.top + top];
    });
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    html_dir = published_site(tmp_path_factory.mktemp("site"))
    make_offline(html_dir)
    return html_dir


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[Page]:
    """Yield an empty page in a browser that is served the site."""
    with visit(browser, site) as opened:
        yield opened


def expected(
    model: str = MODEL,
    world_size: int = WORLD_SIZE,
    tensorflow: Collection[str] = TENSORFLOW,
    name: str = SAMPLES,
) -> Lines:
    """One line for every TensorFlow, by its label, with a figure for every release."""
    lines = {}
    for version in tensorflow:
        speeds = {f"v{r}": samples_per_second(r, version, model, world_size) for r in HOROVOD}
        lines[f"model-{model}; tensorflow-cpu-{version}; world_size-{world_size}"] = {
            release: speed if name == SAMPLES else 1 / speed
            for release, speed in speeds.items()
            if speed is not None
        }
    return lines


def wait(page: Page, condition: Callable[[], bool]) -> None:
    """Until it holds, 20 s at most; what follows has to check it."""
    for _ in range(400):
        if condition():
            return
        page.wait_for_timeout(50)


def shows(page: Page, lines: Lines) -> None:
    """Waits for the graph to be of these lines and no others."""
    wait(page, lambda: bool(page.evaluate(LINES) == lines))
    assert page.evaluate(LINES) == lines


def legend(page: Page) -> list[str]:
    return page.locator("#main-graph .legendLabel").all_inner_texts()


def test_the_front_page_has_a_graph_of_every_benchmark(page: Page) -> None:
    page.goto("/")
    page.locator(".benchmark-plot canvas").nth(1).wait_for()
    names = page.locator(".benchmark-text").all_inner_texts()
    assert sorted(names) == sorted(name.partition(".")[2] for name in (SECONDS, SAMPLES))
    page.goto("/#summarylist")
    rows = page.locator("#summarylist-body tbody tr")
    rows.first.wait_for()
    assert rows.count() == 2 * len(MODELS) * len(WORLD_SIZES)


@pytest.mark.parametrize("name", [SECONDS, SAMPLES])
def test_a_graph_has_one_line_for_every_tensorflow(page: Page, name: str) -> None:
    page.goto(address(MODEL, WORLD_SIZE, name))
    lines = expected(name=name)
    shows(page, lines)
    assert sorted(legend(page)) == sorted(lines)
    screenshot(page, name.rpartition(".")[2])


def test_a_point_tells_its_figure_and_leads_to_the_page_of_its_release(page: Page) -> None:
    page.goto(address(MODEL, WORLD_SIZE))
    shows(page, expected())
    page.mouse.move(*page.evaluate(PLACES)[0])
    tooltip = page.locator(".tooltip-inner")
    tooltip.wait_for()
    assert tooltip.inner_text().endswith(f" samples/s @ v{HOROVOD[0]}")
    page.evaluate("() => { window.open = url => { window.opened = url; }; }")
    page.mouse.click(*page.evaluate(PLACES)[0])
    page.wait_for_function("window.opened")
    assert page.evaluate("opened") == "https://github.com/horovod/horovod/tree/v0.27.0"


def address(model: str, world_size: int, name: str = SAMPLES) -> str:
    model, replica = quote(f"'{model}'"), quote(f"'{REPLICA}'")
    return f"/#{name}?p-model={model}&p-replica={replica}&p-world_size={world_size}"


def test_with_the_axes_exchanged_there_is_one_line_for_every_horovod(
    browser: Browser, tmp_path: Path
) -> None:
    html_dir = published_site(tmp_path, Axis.TENSORFLOW)
    make_offline(html_dir)
    with visit(browser, html_dir) as page:
        page.goto(address(MODEL, WORLD_SIZE))
        lines = {
            f"horovod-{horovod}; model-{MODEL}; world_size-{WORLD_SIZE}": {
                f"v{version}": speed
                for version in TENSORFLOW
                if (speed := samples_per_second(horovod, version, MODEL, WORLD_SIZE)) is not None
            }
            for horovod in HOROVOD
        }
        shows(page, lines)
        assert sorted(legend(page)) == sorted(lines)
