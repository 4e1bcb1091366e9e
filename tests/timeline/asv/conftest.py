"""Fixtures for tests of the history: a published site in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from hvdperf.timeline.asv_site import make_offline
from tests.support.browser import chromium, visit
from tests.support.published import published_site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


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
