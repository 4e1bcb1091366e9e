"""The pages of which tools of bench write a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import rates
from bench.pages import END, between, put_into
from hvdperf.errors import UserError


def test_a_command_replaces_its_own_part_alone(tmp_path: Path) -> None:
    falls, nodes = (f"<!-- made by `{name}` from here -->\n" for name in ("falls", "nodes"))
    page = tmp_path / "page.md"
    page.write_text(f"# A\n\n{falls}\nold\n\n{END}\n\n{nodes}\nkept\n\n{END}\n")
    for _ in range(2):
        put_into(page, "falls", ["| a |", "|---|"])
        new = f"# A\n\n{falls}\n| a |\n|---|\n\n{END}\n\n{nodes}\nkept\n\n{END}\n"
        assert page.read_text() == new
    with pytest.raises(UserError, match="lacks"):
        put_into(page, "make it", ["x"])
    with pytest.raises(UserError, match="cannot be written: No such file"):
        put_into(tmp_path / "none.md", "make it", ["x"])


@pytest.mark.parametrize("name", rates.SIMULATIONS)
def test_the_page_has_every_simulation(name: str) -> None:
    assert "|---|" in between(rates.PAGE.read_text(), f"python -m bench.rates {name}")[1]
