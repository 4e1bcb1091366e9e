"""What `hvdperf vet` says, and what it ends with."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from hvdperf.__main__ import parser
from hvdperf.cli import REFUSED, run
from hvdperf.vet.commands import _draining, text_of
from hvdperf.vet.judge import LINK, Measured, judge
from tests.vet.test_judge import measured


def printed(found: Measured) -> str:
    return "\n".join(text_of(found, judge(found)))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hosts", "a"],
        ["--hosts", "a,a"],
        ["--hosts", "a,b", "--rounds", "3"],
        ["--hosts", "a,b", "--rounds", "0"],
        ["--hosts", "a,b", "--network", "here"],
        ["--hosts", "a,b", "--network", "198.51.100.0/24"],
    ],
)
def test_a_bad_request_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    assert run(parser(), command_line=["vet", *arguments]) == REFUSED
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_slowest_stands_first_with_the_command_that_drains_it() -> None:
    text = printed(measured(8, {("node3", "compute"): 0.7, ("node6", LINK): 0.6}))
    rows = [line.split()[:2] for line in text.splitlines() if line.startswith("node")]
    assert rows[1:3] == [["node6", "link"], ["node3", "compute"]]
    for node, term in (("node6", "link"), ("node3", "compute")):
        assert (
            f"scontrol update NodeName={node} State=DRAIN Reason='hvdperf vet: slow: {term}" in text
        )
    assert "scontrol" not in printed(measured(8))


def test_a_reason_is_one_word_of_a_shell() -> None:
    line = _draining("gpu7", "slow: compute 0.80 [0.78, 0.82]; rm -rf $HOME")
    words = shlex.split(line)
    assert words[:4] == ["scontrol", "update", "NodeName=gpu7", "State=DRAIN"]
    assert len(words) == 5


def test_a_slow_gpu_has_its_number() -> None:
    found = measured(4, {("node2", "compute"): 0.7})
    rounds = [
        replace(
            each,
            slowest={term: dict.fromkeys(each.slowest[term], "GPU 3") for term in each.slowest},
        )
        for each in found.rounds
    ]
    assert "compute of GPU 3" in printed(replace(found, rounds=rounds))


def test_nodes_without_rounds_are_named_all_the_same() -> None:
    lost = {f"node{number}": "its process has ended" for number in (1, 2, 3, 4)}
    text = printed(replace(measured(4), rounds=[], not_run=lost))
    assert all(f"{node} NOT RUN: its process has ended" in text for node in lost)
