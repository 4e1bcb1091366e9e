"""The page of what simulations print."""

from __future__ import annotations

import re

from bench.rates import PAGE, SIMULATIONS, replaced


def test_a_simulation_replaces_its_own_section_alone() -> None:
    page = "# Simulations\n\n## falls\n\nold\n\n## nodes\n\nkept\n"
    found = replaced(page, "falls", "\n| a |\n|---|\n| 1 |\n")
    assert "old" not in found
    assert "`python -m bench.nights falls --years 20`\n\n| a |\n|---|\n| 1 |\n\n## nodes" in found
    assert found.endswith("## nodes\n\nkept\n")
    assert replaced(found, "nodes", "kept").count("## ") == 2


def test_the_page_has_every_simulation() -> None:
    assert re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE) == list(SIMULATIONS)
