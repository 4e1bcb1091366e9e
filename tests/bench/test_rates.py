"""The page of what simulations print."""

from __future__ import annotations

import re

from bench.rates import PAGE, SIMULATIONS, replaced


def test_a_simulation_replaces_its_own_section_alone() -> None:
    page = "# Simulations\n\n## falls\n\nold\n\n## nights\n\nkept\n"
    found = replaced(page, "falls", "\nnew 1\n")
    assert "old" not in found
    assert "`python -m bench.falls --years 20`\n\n```\nnew 1\n```\n" in found
    assert found.endswith("## nights\n\nkept\n")
    assert replaced(found, "falls", "new 1") == found


def test_tables_stay_tables() -> None:
    table = "| a |\n|---|\n| 1 |"
    assert f"\n\n{table}\n" in replaced("# S\n\n## nights\n\nold\n", "nights", table)
    assert "```" not in replaced("# S\n\n## nights\n\nold\n", "nights", table)


def test_the_page_has_every_simulation() -> None:
    assert re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE) == list(SIMULATIONS)
