from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.timeline.asv_site import ASV, OWN, make_offline

COPIES: list[dict[str, Any]] = tomllib.loads((ASV / "vendor.toml").read_text())["copies"]


def asv_pages() -> Path:
    """The pages that the installed asv publishes."""
    asv = importlib.util.find_spec("asv")
    assert asv is not None
    assert asv.origin is not None
    return Path(asv.origin).parent / "www"


@pytest.fixture
def html_dir(tmp_path: Path) -> Path:
    shutil.copytree(asv_pages(), tmp_path / "html")
    return tmp_path / "html"


def loaded(html_dir: Path) -> list[str]:
    """What the page loads, in order."""
    page = (html_dir / "index.html").read_text()
    return re.findall(r'<(?:script|link)\b[^>]*?\b(?:src|href)="([^"]*)"', page)


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_everything_that_the_page_loads_is_there(html_dir: Path) -> None:
    before = loaded(html_dir)
    make_offline(html_dir)
    order = loaded(html_dir)
    # regressions.xml is what asv publishes, and only where there are any.
    assert [name for name in order if not (html_dir / name).is_file()] == ["regressions.xml"]
    assert sum("//" in address for address in before) == len(COPIES)
    assert "crossorigin" not in (html_dir / "index.html").read_text()
    assert order[order.index("asv.js") + 1] == OWN


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("flot/0.8.3/jquery.flot.min.js", "flot/4.2.6/flot.min.js", "loads https://"),
        ('href="asv.css"', 'href="//elsewhere.example/asv.css"', "loads //elsewhere.example/"),
        ('src="asv.js"', 'src="asv.mjs"', "does not load asv.js"),
    ],
)
def test_another_page_of_asv_is_refused_and_left_alone(
    html_dir: Path, old: str, new: str, said: str
) -> None:
    page = (html_dir / "index.html").read_text()
    assert old in page
    (html_dir / "index.html").write_text(page.replace(old, new))
    before = contents(html_dir)
    with pytest.raises(UserError, match=said):
        make_offline(html_dir)
    assert contents(html_dir) == before


def test_what_is_no_site_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file or directory"):
        make_offline(tmp_path / "html")


# The copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy["file"])
def test_a_copy_is_what_it_is_said_to_be_and_has_its_licence(copy: dict[str, Any]) -> None:
    algorithm, _, digest = copy.get("own_integrity", copy["integrity"]).partition("-")
    content = (ASV / "vendor" / copy["file"]).read_bytes()
    text = (ASV / "vendor" / copy["licence"]).read_text()
    assert re.search("MIT license|Permission is hereby granted, free of charge", text)
    assert base64.b64encode(hashlib.new(algorithm, content).digest()).decode() == digest


def test_the_copies_are_those_that_asv_demands_and_no_others() -> None:
    page = (asv_pages() / "index.html").read_text()
    demanded = re.findall(r'="https://[^"]*/([^"/]*)" integrity="([^"]*)"', page)
    assert demanded == [(copy["replaces"], copy["integrity"]) for copy in COPIES]
    known = {copy[key] for copy in COPIES for key in ("file", "licence")}
    assert contents(ASV / "vendor").keys() == known
