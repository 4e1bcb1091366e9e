"""`hvdperf thresholds propose`: thresholds from the rounds of several sessions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan import thresholds
from hvdperf.plan.questions import gradient_reductions, parity, strong_scaling, trials, weak_scaling
from hvdperf.plan.thresholds import proposed_rule
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Asked
from hvdperf.records.outcome import Outcome
from hvdperf.session.commands import proposal
from hvdperf.verdict import FEWEST_ROUNDS, Floor, Verdict, judge
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

NAMES = ("20260131T235959Z-4711", "20260201T235959Z-4711")
RATIOS = (0.91, 0.92, 0.93)
# Half of the rounds that a proposal needs.
SIXTEEN = (RATIOS * 6)[:16]
WEAK, STRONG, PARITY = (ask(WORKLOAD, 2) for ask in (weak_scaling, strong_scaling, parity))
FP16 = gradient_reductions(WORKLOAD, 2)[0]


def session_of(
    runs: Path, name: str, *outcomes: Outcome, inject: str = "", looks: Sequence[int] = (8, 12)
) -> Path:
    cases = [case_of(each, session=name) for each in outcomes]
    return write_session(runs, *cases, asked=Asked(looks=tuple(looks), inject=inject))


def hvdperf(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hvdperf", "thresholds", "propose", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_rounds_of_sessions_add_up_and_what_was_measured_passes(tmp_path):
    sessions = [
        session_of(tmp_path, name, outcome(WEAK, SIXTEEN), outcome(FP16, SIXTEEN)) for name in NAMES
    ]
    path = tmp_path / "mine.toml"
    done = hvdperf(*sessions, "--out", path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    proposed = thresholds.load_thresholds(path)
    for comparison in (WEAK, FP16):
        rule = proposed.rule(thresholds.case_of(comparison, nodes=1))
        assert rule is not None
        values = outcome(comparison, RATIOS * 3).observations
        assert judge(values, rule).verdict is Verdict.PASS
    assert f"gradient_reduction:{FP16.variant}/" in path.read_text()
    again = hvdperf(*sessions, "--out", path)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert hvdperf(*sessions).stdout == path.read_text()


def test_only_what_can_be_trusted_is_proposed(tmp_path):
    line = '"parity/vgg_16_s/np2/one-node" = [0.9, 1.1]'
    directory = session_of(
        tmp_path,
        NAMES[0],
        outcome(WEAK, SIXTEEN * 2, verdict=Verdict.INVALID),
        outcome(STRONG, RATIOS),
        outcome(trials(WORKLOAD, 2)[0], SIXTEEN * 2),
        outcome(PARITY, SIXTEEN * 2, verdict=Verdict.INVALID, threshold_line=line),
    )
    found = proposal([read_session(directory)])
    assert found.left_out == (
        f"1 case with fewer than 32 rounds: strong_scaling/{WORKLOAD.model}/np2/one-node has 3, "
        "and needs 29 more; give 10 more sessions like these, by: pytest perf/"
    )
    assert found.text.startswith("# unknown from one session: false FAILs in a year")
    assert found.text.count(" = ") == len(["label", "device", "cpu_model", "parity"])
    assert '"parity/' in found.text


def test_what_tells_nothing_of_an_unchanged_machine_is_refused(tmp_path):
    faulty = session_of(tmp_path, NAMES[0], outcome(WEAK, SIXTEEN * 2), inject="slow:rank=1")
    with pytest.raises(UserError, match="a fault was injected"):
        proposal([read_session(faulty)])
    sound = session_of(tmp_path, NAMES[1], outcome(WEAK, RATIOS))
    with pytest.raises(UserError, match=r"no thresholds proposed: 1 case .* give 10 more sess"):
        proposal([read_session(sound)])
    path = faulty / "session.json"
    document = json.loads(path.read_text())
    document["asked"]["inject"], document["fingerprint"]["cpu_model"] = "", "another"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="cpu_model differ"):
        proposal([read_session(sound), read_session(faulty)])
    assert hvdperf("nowhere").stderr.startswith("nowhere: No such file")


@pytest.mark.parametrize(
    ("looks", "rounds"),
    [
        (((12, 24), (12, 24)), 12),
        (((12, 24), (9, 24)), 9),
        (((9,), (12, 8)), 8),
        (((12,), ()), FEWEST_ROUNDS),
    ],
)
def test_the_first_look_of_any_session_decides_how_far_a_threshold_lies(tmp_path, looks, rounds):
    spread = ((0.85, 0.9, 0.95) * 6)[:16]
    archives = [
        read_session(session_of(tmp_path, name, outcome(WEAK, spread), looks=each))
        for name, each in zip(NAMES, looks, strict=True)
    ]
    rule = proposed_rule(WEAK.question, outcome(WEAK, spread * 2).observations, rounds)
    assert isinstance(rule, Floor)
    assert f'np2/one-node" = {rule.pass_from:g}\n' in proposal(archives).text
