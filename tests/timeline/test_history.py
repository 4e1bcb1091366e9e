"""Raw results: made from sessions, kept, and read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable
from hvdperf.plan.arms import AGAINST, Side, Workload
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import communication, strong_scaling, weak_scaling
from hvdperf.records.documents import Result
from hvdperf.timeline.history import (
    Refused,
    extract,
    machine_label,
    read_history,
    read_raw,
    replica_label,
    replica_of,
)
from hvdperf.verdict import Verdict
from hvdperf.worker.strategies import Strategy
from tests.support.damage import FUZZ, damaged_json
from tests.support.histories import FACTS, MACHINE_LABEL, raw_result, written
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

WORDS = Workload("lstm_s", "ptb", 35, batch=16)


@pytest.mark.parametrize(
    ("cores", "said"), [("0: 0", "1 core"), ("0: 0-3,8", "5 cores"), ("0: 1,3", "2 cores")]
)
def test_a_replica_tells_its_data_and_its_cores(cores, said):
    facts = {**FACTS, "data_sets": ["ptb: 1 file, 0.1 MB, 00ff"], "rank_cores": [cores]}
    assert replica_of(facts, WORDS) == f"ptb 00ff, size 35, batch 16, float32, {said}"
    synthetic = Workload("vgg_16_s", "synthetic", 32, batch=8, precision="mixed_bfloat16")
    expected = "synthetic, size 32, batch 8, mixed_bfloat16, 1 GPU"
    assert replica_label("", 4, True, synthetic) == expected


@pytest.mark.parametrize(
    ("facts", "is_same"),
    [
        # The stack, and what each series records.
        ({"tensorflow": "2.15.1", "horovod": "0.27.0", "packages_sha256": "00"}, True),
        ({"data_sets": ["cifar10: others"], "rank_cores": ["0: 0-1"]}, True),
        ({"kernel": "6.2.0"}, False),
        ({"a field that nobody knows yet": "x"}, False),
    ],
)
def test_whatever_differs_except_the_stack_begins_a_new_series(facts, is_same):
    assert machine_label({**FACTS, **facts}).startswith("amd-epyc-2-cores-24-gib-")
    assert (machine_label({**FACTS, **facts}) == machine_label(FACTS)) is is_same


RATIOS = (0.9, 0.8, 0.85)
WEAK = weak_scaling(WORKLOAD, 2)
OF_SESSIONS = "cifar10, size 32, batch 32, float32, 1 core"


def session(runs: Path, *cases: Comparison, verdict: Verdict = Verdict.PASS, **told) -> Path:
    measured = [case_of(outcome(case, RATIOS, verdict=verdict)) for case in cases]
    return write_session(runs, *measured, **told)


def speeds(results: tuple[Result, ...]) -> dict[int, list[float]]:
    return {each.world_size: [round(s, 6) for s in each.values] for each in results}


def test_a_figure_a_launch_of_each_world_size(tmp_path):
    # A launch that cases share counts once, and a throughput does not depend on a limit.
    cases = (WEAK, communication(WORKLOAD, 2))
    directory = session(tmp_path, *cases, verdict=Verdict.FAIL)
    result = extract(directory)
    assert result.session == directory.name
    assert {each.replica for each in result.results} == {OF_SESSIONS}
    assert {each.model for each in result.results} == {"resnet_50_s"}
    # The reference of the made-up rounds does 1000 samples/s, an ideal pair twice as many.
    assert speeds(result.results) == {1: [1000.0] * 3, 2: [1800.0, 1600.0, 1700.0]}
    assert result.machine.endswith(result.machine.rpartition("-")[2])


def of_arm(**changed: Any) -> Comparison:
    """Return weak scaling of which the candidate is another arm."""
    arm = replace(WEAK.candidate.arm, **changed)
    return replace(WEAK, candidate=Side(arm, WEAK.candidate.kind))


# One batch divided is no throughput of full replicas, and MirroredStrategy not Horovod's.
@pytest.mark.parametrize(
    "case",
    [
        strong_scaling(WORKLOAD, 2),
        of_arm(stack=AGAINST),
        of_arm(exchange="fp16"),
        of_arm(strategy=Strategy.MIRRORED),
    ],
)
def test_only_full_blocks_of_horovod_as_it_is_count(tmp_path, case):
    assert set(speeds(extract(session(tmp_path, case)).results)) == {1}


@pytest.mark.parametrize(
    ("told", "fields", "why"),
    [
        ({"verdict": Verdict.INVALID}, {}, "no valid case that measured a throughput"),
        ({"exit_status": None}, {}, "has not ended"),
        ({"asked": {"inject": "busy:rank=1"}}, {}, "it has an injected fault: busy:rank=1"),
        ({}, {"rank_cores": []}, "its fingerprint has no cores of ranks"),
        ({}, {"rank_cores": ["0: 0-x"]}, "rank_cores"),
        ({}, {"data_sets": ["cifar10"]}, "data_sets"),
        ({}, {"tensorflow": "2.99.0"}, "2.99.0 is not in hvdperf/timeline/releases.toml"),
        ({}, None, "not valid JSON"),
    ],
)
def test_a_session_that_is_no_evidence_or_of_an_unknown_stack_is_refused(
    tmp_path, told, fields, why
):
    path = session(tmp_path, WEAK, **told) / "session.json"
    document = json.loads(path.read_text())
    document["fingerprint"].update(fields or {})
    path.write_text("{" if fields is None else json.dumps(document))
    with pytest.raises((Refused, UserError), match=re.escape(why)):
        extract(path.parent)


def test_a_directory_that_is_no_session_is_refused(tmp_path):
    with pytest.raises(UserError, match="give the directory of a session"):
        extract(tmp_path / "none")


def test_what_was_written_is_read_back(tmp_path):
    made = raw_result(speeds={("vgg_16_s", 1): [100.5, 99.25], ("resnet_50_s", 2): [40.0]})
    path = written(tmp_path, made)
    assert path == tmp_path / MACHINE_LABEL / f"{made.session}.json"
    assert read_raw(path) == made
    assert read_history(tmp_path) == ([made], [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d["fingerprint"].update(kernel="5.0"), "a foreign fingerprint"),
        (lambda d: d["results"].append(d["results"][0]), "a duplicate: vgg_16_s at 1"),
        (lambda d: d["fingerprint"].update(method=2), "by method 2, not by 1"),
        (lambda d: d["fingerprint"].update(horovod="0.1.2"), "horovod 0.1.2 is not in"),
        (lambda d: d.update(session="20200101T000000Z-1"), "not the file of its session"),
        (lambda d: d.update(format=8), "of format 8, which a later version"),
        (lambda d: d.update(format=1), "of format 1, which an earlier version"),
    ],
)
def test_what_does_not_belong_is_refused_and_hurts_nothing_else(tmp_path, change, why):
    good, bad = raw_result(number=1), raw_result(number=2)
    written(tmp_path, good)
    path = written(tmp_path, bad)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    results, refused = read_history(tmp_path)
    assert results == [good]
    (line,) = refused
    assert path.name in line
    assert why in line
    assert "\n" not in line
    with pytest.raises(Unreadable):
        read_raw(path)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / MACHINE_LABEL).write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        written(tmp_path, raw_result())


@settings(FUZZ, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_a_result_it_is_read_or_refused(tmp_path, data):
    path = written(tmp_path, raw_result())
    path.write_text(damaged_json(data, path.read_text()))
    results, refused = read_history(tmp_path)
    assert len(results) + len(refused) == 1
    assert not any("\n" in line for line in refused)
