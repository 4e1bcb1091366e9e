"""The commands that measure the suite itself: what they refuse, in a line, and the pages that they
write."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import PAGE, SIMULATIONS, main
from docs.markdown import END, put_into
from hvdperf.errors import UserError


@pytest.mark.parametrize(
    ("command_line", "said"),
    [
        ("costs --np two", "--np two"),
        ("costs --models vgg_99", "vgg_99"),
        ("rates gate --of many", "--of many"),
        ("rates simulation --of 1", "two or more"),
        ("rates weeks", "weeks"),
        ("truth --data none", "none: there is no recording in it"),
    ],
)
def test_bad_arguments_are_refused(command_line, said, capsys, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process is the tests'
    assert main(command_line.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


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


@pytest.mark.parametrize("name", SIMULATIONS)
def test_the_page_has_every_simulation(name: str) -> None:
    _, _, rest = PAGE.read_text().partition(f"made by `python -m bench rates {name}` from here")
    assert "|---|" in rest.partition(END)[0]
