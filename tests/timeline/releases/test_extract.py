"""From a session's documents to its throughput."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.arms import AGAINST, Side
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import communication, parity, strong_scaling, weak_scaling
from hvdperf.timeline.releases.raw import Refused, Series, extract
from hvdperf.verdict import Verdict
from hvdperf.worker.strategies.table import Strategy
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

RATIOS = (0.9, 0.8, 0.85)
WEAK = weak_scaling(WORKLOAD, 2)
REPLICA = "cifar10, size 32, batch 32, float32, 1 core"


def session(runs: Path, *cases: Comparison, verdict: Verdict = Verdict.PASS, **told) -> Path:
    measured = [case_of(outcome(case, RATIOS, verdict=verdict)) for case in cases]
    return write_session(runs, *measured, **told)


def speeds(series: tuple[Series, ...]) -> dict[int, list[float]]:
    return {each.world_size: [round(s, 6) for s in each.samples_per_second] for each in series}


def test_a_figure_a_launch_of_each_world_size(tmp_path):
    # A launch that cases share counts once, and a throughput does not depend on a limit.
    cases = (WEAK, communication(WORKLOAD, 2))
    told = "GCC (Debian 12.2.0-14) 12.2.0"
    directory = session(tmp_path, *cases, verdict=Verdict.FAIL, compiler=told)
    result = extract(directory)
    assert result.session == directory.name
    assert result.compiler == "GCC (Debian 12.2.0-14) 12.2.0"
    assert {each.replica for each in result.series} == {REPLICA}
    assert {each.model for each in result.series} == {"resnet_50_s"}
    # The reference of the made-up rounds does 1000 samples/s, an ideal pair twice as many.
    assert speeds(result.series) == {1: [1000.0] * 3, 2: [1800.0, 1600.0, 1700.0]}
    assert result.machine.endswith(result.machine.rpartition("-")[2])


def test_only_full_blocks_of_horovod_count(tmp_path):
    # One batch divided is no throughput of full replicas, and MirroredStrategy not Horovod's.
    alone = session(tmp_path / "alone", strong_scaling(WORKLOAD, 2))
    assert set(speeds(extract(alone).series)) == {1}
    both = session(tmp_path / "both", parity(WORKLOAD, 2), strong_scaling(WORKLOAD, 2))
    assert set(speeds(extract(both).series)) == {1, 2}
    for size, figures in speeds(extract(both).series).items():
        assert len(figures) == 3, size


@pytest.mark.parametrize(
    "changed",
    [
        {"injected": "busy"},
        {"stack": AGAINST},
        {"exchange": "fp16"},
        {"passes": 2},
        {"strategy": Strategy.MIRRORED},
    ],
)
def test_what_is_not_horovod_as_it_is_does_not_count(tmp_path, changed):
    arm = replace(WEAK.candidate.arm, **changed)
    case = replace(WEAK, candidate=Side(arm, WEAK.candidate.kind))
    assert set(speeds(extract(session(tmp_path, case)).series)) == {1}


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.NOT_RUN])
def test_cases_whose_evidence_is_not_sound_are_left_out(tmp_path, verdict):
    with pytest.raises(Refused, match="no valid case that measured a throughput"):
        extract(session(tmp_path, WEAK, verdict=verdict))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"exit_status": None}, "has not ended"),
        ({"asked": {"inject": "busy:rank=1"}}, "it has an injected fault: busy:rank=1"),
    ],
)
def test_sessions_that_are_no_evidence_are_refused(tmp_path, told, why):
    with pytest.raises(Refused, match=why):
        extract(session(tmp_path, WEAK, **told))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"rank_cores": []}, "its fingerprint has no cores of ranks"),
        ({"rank_cores": ["0: 0-x"]}, "rank_cores"),
        ({"data_sets": ["cifar10"]}, "data_sets"),
        ({"tensorflow": "2.99.0"}, r"2\.99\.0 is not in hvdperf/timeline/releases/releases\.toml"),
    ],
)
def test_a_session_of_an_unknown_stack_or_replica_is_refused(tmp_path, fields, why):
    directory = session(tmp_path, WEAK)
    document = json.loads((directory / "session.json").read_text())
    document["fingerprint"].update(fields)
    (directory / "session.json").write_text(json.dumps(document))
    with pytest.raises(Refused, match=why):
        extract(directory)


def test_a_session_without_its_document_is_refused(tmp_path):
    directory = session(tmp_path, WEAK)
    (directory / "session.json").write_text("{")
    with pytest.raises(Refused, match="not valid JSON"):
        extract(directory)
    (directory / "session.json").unlink()
    with pytest.raises(Refused, match=r"no session\.json"):
        extract(directory)
    with pytest.raises(UserError, match="give the directory of a session"):
        extract(tmp_path / "none")
