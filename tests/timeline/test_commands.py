"""The commands nightly, regressions, history and bisect."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.timeline import commands
from hvdperf.timeline.nights.night import read_nights, write_night
from hvdperf.timeline.stacks import TENSORFLOW
from hvdperf.timeline.store import NIGHTS
from tests.support.nights import Year, nights, with_part
from tests.support.warm import hvdperf


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    for night in nights(Year(0.01, networks=2, world_sizes=(8,)), 1):
        write_night(results / NIGHTS, night)
    return results


def test_regressions_have_their_size_their_night_and_a_command(year: Path) -> None:
    done = hvdperf("regressions", f"--results={year}", "--since=2026-03-01")
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first == "a100: 355 nights, 2025-11-24 to 2026-11-23"
    print(done.stdout)
    assert sum("a host that differs: gpu-0" in line for line in others) == 2
    done = hvdperf("regressions", f"--results={year}", "--since=2026-12-01")
    assert done.stdout.splitlines()[-1] == "  nothing has become worse since 2026-12-01"


def test_what_is_accepted_fails_no_more(tmp_path: Path) -> None:
    made = nights(Year(0.01, steps={20: 0.8}, networks=1, world_sizes=(1, 2, 4, 8)), 1)[:40]
    for night in made:
        write_night(tmp_path / NIGHTS, night)
    # The nights are of another year, so the series is missing; that is not what is asked here.
    watch = ("nightly", "watch", f"--results={tmp_path}", "--overdue=1000000")
    before = hvdperf(*watch)
    assert before.returncode == 1
    assert before.stdout.startswith("a100: FAIL: night of ")
    assert f"  since the night of {made[20].night}: -" in before.stdout
    (told,) = json.loads(hvdperf(*watch, "--json=-").stdout)
    assert (told["series"], told["verdict"]) == ("a100", "FAIL")
    (finding,) = told["findings"]
    assert (finding["kind"], finding["since"]) == ("fall", f"{made[20].night}")
    (fell,) = finding["amounts"]
    assert (fell["name"], fell["unit"]) == ("all", "samples/s")
    assert fell["lower"] < fell["change"] < fell["upper"] < 0.9
    assert finding["commands"]["reproduce"] == made[-1].command
    accept = ("nightly", "accept", "--series=a100", f"--results={tmp_path}")
    assert hvdperf(*accept, "--why= ").returncode == 2
    done = hvdperf(*accept, "--why=a new driver")
    assert f"a100: accepted as it was in the night of {made[-1].night}" in done.stdout
    after = hvdperf(*watch)
    assert (after.returncode, after.stdout.split(" ")[1]) == (0, "PASS:"), after.stderr
    listed = hvdperf("regressions", f"--results={tmp_path}").stdout
    (fall,) = [line for line in listed.splitlines() if line.startswith("  since ")]
    assert fall.endswith("(worse, accepted)")
    assert "    accepted: a new driver" in listed.splitlines()


def test_pruning_removes_old_sessions_and_keeps_the_documents(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for days, night in zip((100, 10), nights(Year(0.01), 1), strict=False):
        session = f"20260101T000000Z-{days}"
        night = with_part(night, session=session, cases=(), results=())
        write_night(tmp_path / NIGHTS, replace(night, ended_at=now - timedelta(days)))
        (tmp_path / "runs" / session).mkdir(parents=True)
        (tmp_path / "report").mkdir(exist_ok=True)
        (tmp_path / "report" / f"{session}.html").write_text("")
    (tmp_path / "runs/of-somebody-else").mkdir()
    done = hvdperf("nightly", "prune", f"--results={tmp_path}")
    assert done.stdout.count("removed ") == 2, done.stderr
    left = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert left == ["20260101T000000Z-10", "of-somebody-else"]
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["20260101T000000Z-10.html"]
    assert len(read_nights(tmp_path / NIGHTS).of["a100"]) == 2


def test_what_is_stored_is_told():
    done = hvdperf("history", "backfill", "--list")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, TENSORFLOW[-1])
    done = hvdperf("history", "machine")
    assert done.stdout.strip().replace("-", "").isalnum()


def test_a_token_of_a_repository_without_nights_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "fetched", lambda place: tmp_path)
    which = commands.WhichNights(published="https://user:token@host/nights.git")
    with pytest.raises(UserError, match="there are no nights") as raised:
        commands.list_regressions(which, commands.Results())
    assert "token" not in str(raised.value)
