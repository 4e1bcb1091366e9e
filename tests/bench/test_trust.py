"""Sessions in which faults were injected, counted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.trust import LOG, PAGE, Entry, append, entry_of, page, read_log, series
from docs.markdown import filled
from hvdperf.errors import UserError
from hvdperf.plan import questions
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Asked
from hvdperf.records.outcome import Attribution, Detection, Outcome
from hvdperf.verdict import Floor, Verdict
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

TRIED = {each.variant: each for each in questions.fault_cases(WORKLOAD, 2)}
RIGHT = Attribution("between steps", 1, 0.1)
RULE = Floor(0.98, 0.95)


def said(
    trial: str, verdict: Verdict, called: Verdict, blame: Attribution = RIGHT, **of: Any
) -> Outcome:
    asked = TRIED[trial] if not of else of_case(trial, **of)
    made: Outcome = outcome(asked, [0.9] * 6, RULE, verdict, detection=Detection(called, blame))
    return made


def of_case(trial: str, model: str, size: int) -> Comparison:
    asked = questions.fault_cases(replace(WORKLOAD, model=model), size)
    return next(each for each in asked if each.variant == trial)


CAUGHT = said("slow10", Verdict.PASS, Verdict.FAIL)
MISNAMED = said("slow10", Verdict.FAIL, Verdict.FAIL, Attribution("compute", 0, 0.1))
MISSED = said("slow10", Verdict.FAIL, Verdict.PASS)
OPEN = said("slow10", Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
QUIET = said("aa", Verdict.PASS, Verdict.PASS, Attribution())
ALARM = said("aa", Verdict.FAIL, Verdict.FAIL, Attribution())


def entry(tmp_path: Path, session: str, *outcomes: Outcome) -> Entry:
    cases = [case_of(each, session=session) for each in outcomes]
    asked = Asked(looks=(8, 12), profile={"what": "is not of how it is measured"})
    archive = read_session(write_session(tmp_path, *cases, asked=asked))
    assert archive.left_out == ()
    made = entry_of(archive)
    assert made is not None
    return made


@pytest.fixture
def entries(tmp_path: Path) -> list[Entry]:
    sessions = ((CAUGHT, QUIET), (MISNAMED, QUIET), (MISSED, ALARM), (OPEN, QUIET))
    return [entry(tmp_path, f"session-{i}", *outcomes) for i, outcomes in enumerate(sessions)]


def cells(entries: Sequence[Entry], trial: str) -> list[str]:
    """Return the cells of a fault case from its network on."""
    (line,) = [line for line in page(entries) if line.startswith(f"| {trial}:")]
    return line.strip("| ").split(" | ")[1:]


def test_what_was_called_and_who_was_blamed_are_counted_apart(entries):
    assert cells(entries, "aa")[:5] == [
        *("resnet_50_s, 2", "PASS", "3 of 4 (19-99 %)", "3 of 3 (29-100 %)", "0"),
    ]
    assert cells(entries, "slow10") == [
        *("resnet_50_s, 2", "FAIL, for between steps of rank 1", "2 of 4 (7-93 %)"),
        *("1 of 2 (1-99 %)", "1", "0.900", "0.900 .. 0.900"),
    ]
    assert "0.900 [0.900, 0.900]" in cells([*entries, *entries], "slow10")
    assert any("4 sessions on" in line for line in page(entries))
    assert "False alarms (FAIL without a fault): 1 of 4 (1-81 %)." in page(entries)
    assert "No session has been measured yet." in page([])


def test_a_launch_that_failed_has_not_noticed_anything_and_is_no_false_alarm(entries, tmp_path):
    slow, twin = (
        outcome(TRIED[name], [], RULE, Verdict.FAIL, "rank 1 failed in phase 'build'")
        for name in ("slow10", "aa")
    )
    unsound = said("aa", Verdict.FAIL, Verdict.INVALID, Attribution())
    found = [entry(tmp_path, "session", slow, twin, unsound)]
    assert cells(found, "slow10")[2:5] == ["0 of 1 (0-98 %)", "-", "0"]
    assert "False alarms (FAIL without a fault): 0 of 1 (0-98 %)." in page(found)
    assert "False alarms (FAIL without a fault): 1 of 1 (3-100 %)." in page(entries[2:3])


def test_rows_are_in_the_order_of_trials_then_of_networks_and_of_world_sizes(tmp_path):
    # One replica has only the case without a fault.
    cases = [("aa", "vgg_16_s", 2), ("slow10", "vgg_16_s", 2), ("aa", "alexnet_s", 2)]
    cases += [("slow10", "alexnet_s", 2), ("aa", "alexnet_s", 1)]
    outcomes = [
        said(trial, Verdict.PASS, Verdict.FAIL, model=model, size=size)
        for trial, model, size in cases
    ]
    lines = page([entry(tmp_path, "session", *outcomes)])
    rows = re.findall(r"^\| (\w+): .*? \| (\w+), (\d) \|", "\n".join(lines), re.MULTILINE)
    found = [(trial, model, int(size)) for trial, model, size in rows]
    assert found == sorted(cases)


def test_sessions_that_injected_a_part_are_told(entries, tmp_path):
    told = "Not all of them injected every fault."
    assert not any(told in line for line in [*page(entries), *page([])])
    alone = entry(tmp_path, "alone", CAUGHT)
    assert any(told in line for line in page([*entries, alone]))
    assert any(told in line for line in page([alone, *entries]))


def test_settings_that_decide_how_faults_are_measured_are_kept_and_no_others(tmp_path):
    kept = {"dataset": "cifar10", "schedule": "alternate"}
    kept |= {"sampling.turns_min": "4", "runs.endurance_steps": "1500"}
    others = dict.fromkeys(("models", "world_sizes", "fault_cases.slow10", "runs.epochs"), "1")
    asked = Asked(looks=(8, 12), early=True, profile=kept | others, replicas_per_node=(2,))
    of_options = {"sampling.looks": "[8, 12]", "sampling.early": "True", "replicas_per_node": "[2]"}
    made = entry_of(read_session(write_session(tmp_path, case_of(CAUGHT), asked=asked)))
    assert made is not None
    assert made.settings == kept | of_options
    (tried,) = made.tried
    assert (tried.trial, tried.model) == ("slow10", WORKLOAD.model)
    assert (tried.world_size, tried.reported) == (2, Verdict.FAIL)


def test_sessions_that_are_not_counted_have_tables_of_their_own(entries):
    own = entries[0].settings
    settings = [{**own, "sampling.looks": looks} for looks in ("[4]", "[6]", "[4]")]
    log = [replace(entries[0], settings=each) for each in settings]
    newest, *before = series([*log, *entries])
    assert newest == entries
    assert [[each.settings["sampling.looks"] for each in part] for part in before] == [
        ["[4]", "[4]"],
        ["[6]"],
    ]
    lines = page([*log, *entries])
    assert lines[: len(page(newest))] == page(newest)
    assert [line for line in lines if line.startswith("- ") and " -> " in line] == [
        "- sampling.looks: [4] -> [8, 12]",
        "- sampling.looks: [6] -> [8, 12]",
    ]
    assert sum(line.startswith("| slow10") for line in lines) == 3
    assert series([]) == []
    another = {**entries[0].fingerprint, "cpu_model": "Another"}
    strange = replace(entries[0], fingerprint=another)
    assert series([strange, *entries[1:]]) == [entries[1:], [strange]]


def test_what_was_held_against_another_threshold_is_not_counted(entries):
    before = tuple(
        replace(tried, threshold="<= 4") if tried.trial == "slow10" else tried
        for tried in entries[0].tried
    )
    found = [replace(entries[0], tried=before), entries[1]]
    assert cells(found, "aa")[2].startswith("2 of 2")
    assert cells(found, "slow10")[2].startswith("1 of 1")


def test_entries_are_read_as_they_were_written(entries, tmp_path):
    log = tmp_path / "trust" / "sessions.jsonl"
    assert read_log(log) == []
    for each in entries:
        append(log, each)
    assert read_log(log) == entries


def line_of(**tried: Any) -> str:
    """Return a line of the log, in which the fault case has these fields."""
    made = json.loads(LOG.read_text().partition("\n")[0])
    case = {**made["tried"][0], **tried}
    return json.dumps({**made, "tried": [case]})


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", "null", '{"session": "s"}', "[" * 100_000),
        '{"session": "s", "fingerprint": {}, "settings": {}, "tried": 1}',
        '{"session": "s", "fingerprint": {"cores": 2}, "settings": {}, "tried": []}',
        line_of(world_size=math.inf),
        *(line_of(figure=figure) for figure in (math.nan, math.inf, -0.9, 0)),
    ],
)
def test_a_line_that_is_none_is_named(entries, tmp_path, line):
    log = tmp_path / "sessions.jsonl"
    append(log, entries[0])
    with open(log, "a") as stream:
        stream.write(f"{line}\n")
    with pytest.raises(UserError, match=r"sessions\.jsonl:2: not a line of a session") as refused:
        read_log(log)
    assert "\n" not in str(refused.value)


def test_a_fault_that_is_no_longer_planted_is_not_counted(tmp_path):
    log = tmp_path / "sessions.jsonl"
    log.write_text(line_of(trial="slow11") + "\n")
    assert not any("slow11" in line for line in page(read_log(log)))


def test_a_log_that_is_no_text_or_no_file_is_one_line(tmp_path):
    log = tmp_path / "sessions.jsonl"
    log.write_bytes(b"\xff\xfe{}\n")
    with pytest.raises(UserError, match=r"sessions\.jsonl:1: not a line of a session"):
        read_log(log)
    with pytest.raises(UserError, match=r"cannot be read: .*directory"):
        read_log(tmp_path)


def test_the_page_is_of_the_log_that_ships():
    text = PAGE.read_text()
    assert filled(text, "make trust", ["\n".join(page(read_log(LOG)))]) == text
