"""Thresholds from sessions that were measured: proposed ones, and what those of a file mean."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan import proposals, questions
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.thresholds import case_of as threshold_case
from hvdperf.plan.thresholds import load_thresholds
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Asked
from hvdperf.records.outcome import Outcome
from hvdperf.session.proposals import checked, proposal
from hvdperf.verdict import Floor, SpeedFloor, Verdict, judge
from tests.session.test_commands import thresholds
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

ENOUGH = 8
WEAK, STRONG, PARITY = (
    ask(WORKLOAD, 2) for ask in (questions.weak_scaling, questions.strong_scaling, questions.parity)
)
FP16 = questions.gradient_reductions(WORKLOAD, 2)[0]


def ratios(session: int, rounds: int = 8, nights: float = 0.01) -> list[float]:
    """Return the ratios of one session. nights: standard deviation between sessions."""
    draw = random.Random(session)
    of_night = 0.92 + nights * draw.gauss(0.0, 1.0)
    return [of_night + 0.01 * draw.gauss(0.0, 1.0) for _ in range(rounds)]


def session_of(
    runs: Path, number: int, *outcomes: Outcome, inject: str = "", looks: Sequence[int] = (8, 12)
) -> Path:
    name = f"202602{number + 1:02}T235959Z-4711"
    cases = [case_of(each, session=name) for each in outcomes]
    return write_session(runs, *cases, asked=Asked(looks=tuple(looks), inject=inject))


def sessions_of(
    runs: Path, *comparisons: Comparison, count: int = ENOUGH, nights: float = 0.01
) -> list[Path]:
    return [
        session_of(
            runs, number, *(outcome(each, ratios(number, nights=nights)) for each in comparisons)
        )
        for number in range(count)
    ]


def test_what_was_measured_passes_what_is_proposed(tmp_path: Path) -> None:
    sessions = sessions_of(tmp_path, WEAK, FP16)
    path = tmp_path / "mine.toml"
    done = thresholds("propose", *sessions, "--out", path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    proposed = load_thresholds(path)
    for comparison in (WEAK, FP16):
        rule = proposed.rule(threshold_case(comparison, nodes=1))
        assert rule is not None
        for number in range(ENOUGH):
            values = outcome(comparison, ratios(number)).observations
            assert judge(values, rule).verdict is Verdict.PASS
    assert f"gradient_reduction:{FP16.variant}/" in path.read_text()
    # Every launch with the defaults has a throughput, whatever it was compared for.
    for size in (1, 2):
        rule = proposed.rule(threshold_case(questions.throughput(WORKLOAD, size), nodes=1))
        assert isinstance(rule, SpeedFloor)
        assert 500 < rule.pass_from < 2000
    again = thresholds("propose", *sessions, "--out", path)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert thresholds("propose", *sessions).stdout == path.read_text()

    held = thresholds("check", *sessions, f"--thresholds={path}")
    assert (held.returncode, held.stderr) == (0, "")
    assert "false FAILs expected in a year" in held.stdout
    both = thresholds("check", *sessions, "--profile=smoke")
    assert (both.returncode, "leave it out" in both.stderr) == (2, True)


def test_limits_that_mean_more_than_one_are_told_with_those_that_would_hold(
    tmp_path: Path,
) -> None:
    sessions = sessions_of(tmp_path, WEAK, STRONG)
    key = f"{WORKLOAD.model}/np2/one-node"
    path = tmp_path / "narrow.toml"
    path.write_text(
        f'label = "narrow"\n[match]\ndevice = "cpu"\n[thresholds]\n"weak_scaling/{key}" = 0.91\n'
    )
    done = thresholds("check", *sessions, f"--thresholds={path}")
    assert (done.returncode, done.stderr) == (1, "")
    told = " ".join(done.stdout.split())
    case = threshold_case(WEAK, nodes=1)
    known = proposals.scatter(
        [outcome(WEAK, ratios(number)).observations for number in range(ENOUGH)]
    )
    assert proposals.holding_line(case, Floor, known, (8, 12), of=1) in told
    assert f"cases without a threshold: strong_scaling/{key}" in told


def test_a_check_counts_only_cases_whose_noise_is_known(tmp_path: Path) -> None:
    line = f'"*scaling/{WORKLOAD.model}/np2/one-node" = 0.5\n'
    path = tmp_path / "wide.toml"
    path.write_text(f'label = "wide"\n[match]\ndevice = "cpu"\n[thresholds]\n{line}')
    first = session_of(tmp_path, 0, outcome(WEAK, ratios(0)), outcome(STRONG, ratios(0)))
    archives = [read_session(first)]
    with pytest.raises(UserError, match=r"wide.toml cannot be checked: .*one session does not"):
        checked(archives, path)
    archives.append(read_session(session_of(tmp_path, 1, outcome(WEAK, ratios(1)))))
    of_year, lines = checked(archives, path)
    assert of_year > 0
    assert any("not counted" in line and "strong_scaling/" in line for line in lines)


def test_fewer_known_sessions_leave_more_false_fails_open(tmp_path: Path) -> None:
    line = f'"weak_scaling/{WORKLOAD.model}/np2/one-node" = 0.85\n'
    path = tmp_path / "mine.toml"
    path.write_text(f'label = "mine"\n[match]\ndevice = "cpu"\n[thresholds]\n{line}')
    archives = [read_session(each) for each in sessions_of(tmp_path, WEAK, count=20)]
    assert checked(archives[:4], path)[0] > checked(archives, path)[0]


def test_only_what_can_be_trusted_is_proposed(tmp_path: Path) -> None:
    line = '"parity/vgg_16_s/np2/one-node" = [0.9, 1.1]'
    archives = []
    for number in range(ENOUGH):
        values = ratios(number)
        outcomes = [
            outcome(WEAK, values, verdict=Verdict.INVALID),
            outcome(questions.fault_cases(WORKLOAD, 2)[0], values),
            outcome(PARITY, values, verdict=Verdict.INVALID, threshold_line=line),
        ]
        outcomes += [outcome(STRONG, values)] * (number < 3)
        archives.append(read_session(session_of(tmp_path, number, *outcomes)))
    text, left_out = proposal(archives)
    key = f"strong_scaling/{WORKLOAD.model}/np2/one-node"
    assert left_out.startswith(
        f'2 cases with fewer than 8 sessions: {key} has 3 (from 3, only "{key}" = 0.'
    )
    assert left_out.endswith(" would hold); give 5 more sessions, by: pytest perf/")
    lines = ["label", "device", "cpu_model", "parity", "throughput"]
    assert text.count(" = ") == len(lines)
    assert '"parity/' in text


def test_what_tells_nothing_of_an_unchanged_machine_is_refused(tmp_path: Path) -> None:
    faulty = session_of(tmp_path, 0, outcome(WEAK, ratios(0)), inject="slow:rank=1")
    with pytest.raises(UserError, match="a fault was injected"):
        proposal([read_session(faulty)])
    sound = session_of(tmp_path, 1, outcome(WEAK, ratios(1)))
    with pytest.raises(UserError, match=r"no thresholds proposed: 3 cases .* give 7 more sess"):
        proposal([read_session(sound)])
    path = faulty / "session.json"
    document = json.loads(path.read_text())
    document["asked"]["inject"], document["fingerprint"]["cpu_model"] = "", "another"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="cpu_model differ"):
        proposal([read_session(sound), read_session(faulty)])
    assert thresholds("propose", "nowhere").stderr.startswith("nowhere: No such file")


@pytest.mark.parametrize(
    ("looks", "told"),
    [(((12, 24), (12, 24)), "12, 24"), (((12, 24), (9, 24)), "9, 12, 24"), (((12,), ()), "6, 12")],
)
def test_the_looks_of_every_session_count(
    tmp_path: Path, looks: Sequence[Sequence[int]], told: str
) -> None:
    archives = [
        read_session(
            session_of(tmp_path, number, outcome(WEAK, ratios(number)), looks=looks[number % 2])
        )
        for number in range(ENOUGH)
    ]
    assert f"full looks of a night after {told} rounds" in proposal(archives)[0]
