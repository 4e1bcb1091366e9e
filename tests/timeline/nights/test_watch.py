"""What is said of series from elsewhere, and the texts of issues."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bench.nights import FIRST, Year, nights
from hvdperf.timeline.nights.night import Night, write_night
from hvdperf.timeline.nights.series import Series
from hvdperf.timeline.nights.watch import MISSING_STATUS, Watched, watched, write_issues
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import Verdict
from tests.support.whole_sessions import BIN, ROOT, completed

MADE = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:4]


def judged(night: Night, verdict: Verdict) -> Night:
    (part,) = night.parts
    (row,) = part.cases
    reason = "rank 3 on gpu-02 is the slowest" if verdict is Verdict.FAIL else ""
    return replace(
        night, parts=(replace(part, cases=(replace(row, verdict=verdict, reason=reason),)),)
    )


def after(hours: float, made: Sequence[Night] = MADE) -> Watched:
    ended = made[-1].ended_at
    assert ended is not None
    return watched(Series("a100", made), ended + timedelta(hours=hours))


def test_a_night_that_is_overdue_is_missing() -> None:
    found = after(25)
    assert found.line() == "a100: PASS: night of 2025-11-27, 1 PASS"
    assert found.status == 0
    found = watched(Series("h100", ()), FIRST)
    assert found.line() == "h100: MISSING: there has never been a whole session"
    found = after(29)
    assert found.line() == (
        "a100: MISSING: the last whole session was in the night of 2025-11-27 (1 PASS)"
    )
    assert found.status == MISSING_STATUS


def test_a_night_without_a_session_names_the_last_whole_one() -> None:
    broken = replace(MADE[-1], parts=(), reason="pytest ended with status 4; see its output")
    found = after(1, [*MADE[:-1], broken])
    assert found.line() == (
        "a100: NOT RUN: night of 2025-11-27, pytest ended with status 4; see its output; the last "
        "whole session was in the night of 2025-11-26 (1 PASS)"
    )
    assert found.status == 10


def test_a_fail_opens_an_issue_with_what_is_needed_to_act(tmp_path: Path) -> None:
    found = after(1, [*MADE[:-1], judged(MADE[-1], Verdict.FAIL)])
    write_issues([found], tmp_path)
    text = (tmp_path / "open/a100.md").read_text()
    assert text.startswith("Night of 2025-11-27: FAIL (1 FAIL).\n")
    assert "**weak_scaling[network_0-np8]**: 0." in text
    assert ", limit at least 0.8 on gpu-01, gpu-02" in text
    assert "rank 3 on gpu-02 is the slowest" in text
    assert (
        "Again: `pytest perf/ --profile=nightly-gpu --models network_0 --world-sizes 8 "
        "-k network_0-np8`" in text
    )
    assert not (tmp_path / "close").exists()


def test_throughputs_that_fell_open_an_issue_and_close_none(tmp_path: Path) -> None:
    made = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:12]
    (part,) = made[-1].parts
    (speed,) = part.speeds
    half = replace(speed, samples_per_second=tuple(x / 2 for x in speed.samples_per_second))
    made[-1] = replace(made[-1], parts=(replace(part, speeds=(half,)),))
    found = after(1, made)
    assert found.line().startswith(f"a100: FAIL: night of {made[-1].night}, 1 PASS")
    assert found.status == 1
    write_issues([found], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["open"]
    text = (tmp_path / "open/a100.md").read_text()
    assert text.startswith(f"Night of {made[-1].night}: FAIL (1 PASS).\n\nSlower than before:\n")
    assert f"- 1 of 1 throughputs fell since the night of {made[-1].night} by more than" in text
    assert "throughput[network_0-np8] -" in text
    assert "- look closer, where it was measured: hvdperf compare results/runs/" in text


@pytest.mark.parametrize(
    ("last", "kinds"),
    [
        ([Verdict.FAIL, Verdict.PASS, Verdict.PASS], ["close"]),
        ([Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE], ["close"]),
        ([Verdict.PASS, Verdict.FAIL, Verdict.PASS], []),
        ([Verdict.PASS, Verdict.PASS, Verdict.INVALID], []),
        ([Verdict.PASS, Verdict.PASS, Verdict.FAIL], ["open"]),
    ],
)
def test_only_a_fail_opens_and_only_clean_nights_close(
    tmp_path: Path, last: list[Verdict], kinds: list[str]
) -> None:
    made = [judged(night, word) for night, word in zip(MADE, last, strict=False)]
    write_issues([after(1, made)], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == kinds


def test_the_command_watches_the_named_series_and_exits_with_the_worst(tmp_path: Path) -> None:
    for night in MADE:
        write_night(tmp_path / NIGHTS, night)
    done = completed(
        [
            *(str(BIN / "hvdperf"), "nightly", "watch", f"--results={tmp_path}"),
            *("--series=a100", "--series=h100"),
        ]
    )
    assert done.returncode == MISSING_STATUS, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if line[0] != " "] == ["a100", "h100"]
    assert "  throughputs are not compared yet: " in done.stdout
    assert done.stdout.count("MISSING") == 2


def test_the_issues_are_opened_updated_and_closed_by_gh(tmp_path: Path) -> None:
    """gh is a stand-in that keeps issues in a directory, since there is no GitHub here."""
    gh = tmp_path / "bin/gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)

    def night(*last: Verdict) -> list[str]:
        made = [judged(night, word) for night, word in zip(MADE, last, strict=False)]
        directory = tmp_path / f"issues-{len(last)}-{last[-1].name}"
        directory.mkdir()
        write_issues([after(1, made)], directory)
        subprocess.run(
            ["bash", "ci/github/rolling_issues.sh", str(directory)],
            cwd=ROOT,
            env={"PATH": f"{gh.parent}:/usr/bin:/bin", "ISSUES": str(tmp_path)},
            check=True,
        )
        log = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
        return [line for line in log if not line.startswith("list")]

    assert night(Verdict.PASS) == []
    assert night(Verdict.PASS, Verdict.FAIL) == ["create hvdperf: nights of a100 fail"]
    told = night(Verdict.PASS, Verdict.FAIL, Verdict.FAIL)
    assert told[1:] == ["comment 7"], "no second issue"
    told = night(Verdict.FAIL, Verdict.FAIL, Verdict.PASS, Verdict.PASS)
    assert told[2:] == ["comment 7", "close 7"]


GH = """\
#!/bin/sh
# gh issue list|create|comment|close
case $2 in
    list) echo list >> "$ISSUES/log"; if [ -e "$ISSUES/open" ]; then echo 7; fi ;;
    create) echo "create $4" >> "$ISSUES/log"; touch "$ISSUES/open" ;;
    close) echo "close $3" >> "$ISSUES/log"; rm "$ISSUES/open" ;;
    comment) echo "comment $3" >> "$ISSUES/log"; test -s "$5" ;;
esac
"""
