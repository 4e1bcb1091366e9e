"""Thresholds from sessions that were measured: proposed ones, and what those of a file mean."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from hvdperf.errors import UserError
from hvdperf.interim import judge_rounds
from hvdperf.machine.host import Machine
from hvdperf.plan import questions
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.thresholds import Case, distance_to_pass, load_thresholds, rule_at, select
from hvdperf.plan.thresholds import case_of as threshold_case
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Asked
from hvdperf.records.outcome import Outcome
from hvdperf.session import proposals
from hvdperf.session.proposals import (
    Scatter,
    distance_for,
    false_fail,
    proposal,
    propose,
    scatter,
)
from hvdperf.verdict import Band, Ceiling, Floor, Rule, SpeedFloor, Verdict, judge
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session
from tests.support.warm import hvdperf

ENOUGH = 8
WEAK, STRONG, PARITY = (
    ask(WORKLOAD, 2) for ask in (questions.weak_scaling, questions.strong_scaling, questions.parity)
)
FP16 = questions.gradient_reductions(WORKLOAD, 2)[0]


def drawn(
    rounds: float, nights: float, count: int, seed: int = 1, of: int = 8, centre: float = 0.0
) -> list[list[float]]:
    """Return the ln ratios of sessions. rounds, nights: standard deviations. of: rounds of each."""
    generator = np.random.default_rng(seed)
    of_nights = centre + nights * generator.standard_normal((count, 1))
    found: list[list[float]] = (
        of_nights + rounds * generator.standard_normal((count, of))
    ).tolist()
    return found


# The ratios of sessions.
RATIOS: list[list[float]] = np.exp(drawn(0.01, 0.01, ENOUGH, centre=math.log(0.92))).tolist()


def session_of(
    runs: Path, number: int, *outcomes: Outcome, inject: str = "", looks: Sequence[int] = (8, 12)
) -> Path:
    name = f"202602{number + 1:02}T235959Z-4711"
    cases = [case_of(each, session=name) for each in outcomes]
    return write_session(runs, *cases, asked=Asked(looks=tuple(looks), inject=inject))


def sessions_of(runs: Path, *comparisons: Comparison) -> list[Path]:
    return [
        session_of(runs, number, *(outcome(each, ratios) for each in comparisons))
        for number, ratios in enumerate(RATIOS)
    ]


def test_what_was_measured_passes_what_is_proposed(tmp_path: Path) -> None:
    sessions = sessions_of(tmp_path, WEAK, FP16)
    path = tmp_path / "mine.toml"
    done = hvdperf("thresholds", "propose", *sessions, "--out", path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    proposed = load_thresholds(path)
    assert all(proposed.rule(threshold_case(each, nodes=1)) for each in (WEAK, FP16))
    assert f"gradient_reduction:{FP16.variant}/" in path.read_text()
    # Every launch with the defaults has a throughput, whatever it was compared for.
    for size in (1, 2):
        rule = proposed.rule(threshold_case(questions.throughput(WORKLOAD, size), nodes=1))
        assert isinstance(rule, SpeedFloor)
        assert 500 < rule.pass_from < 2000
    again = hvdperf("thresholds", "propose", *sessions, "--out", path)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert hvdperf("thresholds", "propose", *sessions).stdout == path.read_text()


def test_only_what_can_be_trusted_is_proposed(tmp_path: Path) -> None:
    line = '"parity/vgg_16_s/np2/one-node" = [0.9, 1.1]'
    archives = []
    for number, values in enumerate(RATIOS):
        outcomes = [
            outcome(WEAK, values, verdict=Verdict.INVALID),
            outcome(questions.fault_cases(WORKLOAD, 2)[0], values),
            outcome(PARITY, values, verdict=Verdict.INVALID, threshold_line=line),
        ]
        outcomes += [outcome(STRONG, values)] * (number < 3)
        archives.append(read_session(session_of(tmp_path, number, *outcomes)))
    text, left_out = proposal(archives)
    key = f"strong_scaling/{WORKLOAD.model}/np2/one-node"
    assert left_out == (
        f"2 cases with fewer than 8 sessions: {key} has 3; give 5 more sessions, by: pytest perf/"
    )
    lines = ["label", "device", "cpu_model", "parity", "throughput"]
    assert text.count(" = ") == len(lines)
    assert '"parity/' in text


def test_what_tells_nothing_of_an_unchanged_machine_is_refused(tmp_path: Path) -> None:
    faulty = session_of(tmp_path, 0, outcome(WEAK, RATIOS[0]), inject="slow:rank=1")
    with pytest.raises(UserError, match="a fault was injected"):
        proposal([read_session(faulty)])
    sound = session_of(tmp_path, 1, outcome(WEAK, RATIOS[1]))
    with pytest.raises(UserError, match=r"no thresholds proposed: 3 cases .* give 7 more sess"):
        proposal([read_session(sound)])
    path = faulty / "session.json"
    document = json.loads(path.read_text())
    document["asked"]["inject"], document["fingerprint"]["cpu_model"] = "", "another"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="cpu_model differ"):
        proposal([read_session(sound), read_session(faulty)])
    refused = hvdperf("thresholds", "propose", "nowhere")
    assert refused.stderr.startswith("nowhere: No such file")


@pytest.mark.parametrize(
    ("looks", "told"),
    [(((12, 24), (12, 24)), "12, 24"), (((12, 24), (9, 24)), "9, 12, 24"), (((12,), ()), "6, 12")],
)
def test_the_looks_of_every_session_count(
    tmp_path: Path, looks: Sequence[Sequence[int]], told: str
) -> None:
    archives = [
        read_session(session_of(tmp_path, number, outcome(WEAK, ratios), looks=looks[number % 2]))
        for number, ratios in enumerate(RATIOS)
    ]
    assert f"full looks of a night after {told} rounds" in proposal(archives)[0]


TRACE = Question.STARTUP_TRACE
LOOKS = (8, 12)
MACHINE = Machine("host", (0, 1), cpu_model='Odd "CPU"')


OBSERVED = {
    Case(WEAK.question, "vgg_16_s", 2, 1): drawn(0.03, 0.01, 10, seed=2, centre=math.log(0.8)),
    Case(Question.COMMUNICATION, "alexnet_s", 8, 2): drawn(
        0.03, 0, 10, seed=3, centre=math.log(0.5)
    ),
    Case(PARITY.question, "vgg_16_s", 2, 1): drawn(0.05, 0.01, 10, seed=4, centre=math.log(1.1)),
    Case(TRACE, "vgg_16_s", 2, 1): drawn(0.05, 0.03, 10, seed=5, centre=math.log(12.3)),
}


def test_the_text_is_a_table_that_holds(tmp_path: Path) -> None:
    text = propose(OBSERVED, LOOKS, MACHINE)
    assert list(tomllib.loads(text)["thresholds"]) == [
        "weak_scaling/vgg_16_s/np2/one-node",
        "communication/alexnet_s/np8/2-nodes",
        "parity/vgg_16_s/np2/one-node",
        "startup_trace/vgg_16_s/np2/one-node",
    ]
    (tmp_path / "mine.toml").write_text(text)
    thresholds = select(MACHINE, tmp_path)
    lines: list[tuple[Rule, Scatter]] = []
    for case, values in OBSERVED.items():
        rule = thresholds.rule(case)
        assert rule is not None
        assert all(judge(each, rule).verdict is not Verdict.FAIL for each in values)
        assert judge([*chain(*values)], rule).verdict is Verdict.PASS
        lines.append((rule, scatter(values)))
    expected = proposals.of_year(lines, LOOKS)
    assert 0.5 * proposals.EXPECTED_A_YEAR < expected <= proposals.EXPECTED_A_YEAR
    told = " ".join(text.replace("#", " ").split())
    said = f"{proposals.year_in_words(expected)}, all cases together. Read from up to 10 sessions"
    assert told.startswith(said)
    assert "10 sessions, 80 rounds" in text


def test_a_quiet_machine_keeps_the_floor_that_passes_in_95_percent_of_sessions() -> None:
    case, values = Case(WEAK.question, "vgg_16_s", 2, 1), drawn(0.001, 0, 40, centre=-0.2)
    distance = distance_to_pass([*chain(*values)], 8)
    rule = rule_at(WEAK.question, scatter(values).centre, distance)
    assert isinstance(rule, Floor)
    assert f'one-node" = {rule.pass_from}\n' in propose({case: values}, LOOKS, MACHINE)


@pytest.mark.parametrize(
    ("values", "looks", "told"),
    [
        ([[0.0, 0.1]] * 7, LOOKS, "7 sessions are too few; measure at least 8"),
        ([[0.0, math.nan]] * 8, LOOKS, "not finite"),
        ([[0.0]] * 8, LOOKS, "no session has two rounds"),
        ([[4.0 * at] * 3 for at in range(8)], LOOKS, "sessions differ by 980 %, so no limit holds"),
    ],
)
def test_what_cannot_be_proposed_is_told_with_its_case(
    values: list[list[float]], looks: tuple[int, ...], told: str
) -> None:
    with pytest.raises(UserError, match="weak_scaling/vgg_16/np2/one-node") as caught:
        propose({Case(WEAK.question, "vgg_16", 2, 1): values}, looks, MACHINE)
    assert told in str(caught.value)


NIGHT_LOOKS = (8, 12, 24)


def fails(rule: Rule, values: Sequence[float], looks: Sequence[int]) -> bool:
    verdicts = (
        judge_rounds([[value] for value in values[:look]], rule, looks, None).verdict
        for look in looks
    )
    decided = (verdict for verdict in verdicts if verdict is not Verdict.INCONCLUSIVE)
    return next(decided, None) is Verdict.FAIL


@pytest.mark.parametrize(
    ("rule", "nights"),
    [
        (Floor.at(math.exp(0.01)), 0.0),
        (Floor.at(math.exp(-0.03)), 0.03),
        (Ceiling(math.exp(0.03)), 0.03),
        (Band(math.exp(-0.03), math.exp(0.03)), 0.03),
    ],
    ids=str,
)
@pytest.mark.parametrize("looks", [(8,), NIGHT_LOOKS], ids=str)
def test_with_many_known_sessions_it_is_the_share_of_nights_that_fail(
    rule: Rule, nights: float, looks: tuple[int, ...]
) -> None:
    known = scatter(drawn(0.04, nights, 2000, seed=1))
    told = false_fail(rule, known, looks)
    counted = np.mean(
        [fails(rule, night, looks) for night in drawn(0.04, nights, 3000, 2, looks[-1])]
    )
    assert counted > 0.015
    # Never too low, up to three standard errors; at most 1.7 times too high, as is documented.
    error = 3 * math.sqrt(counted / 3000)
    assert counted - error <= told <= 1.7 * counted + error


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("of", [3, 8])
def test_a_limit_from_few_sessions_fails_as_many_of_their_next_nights_as_it_says(
    count: int, of: int
) -> None:
    """Each limit comes from sessions of its own, so that some are unlucky."""
    probability, total = 0.05, 400
    failed = 0
    for seed in range(total):
        *known, night = drawn(0.03, 0.02, count + 1, seed, of=NIGHT_LOOKS[-1])
        noise = scatter([values[:of] for values in known])
        distance = distance_for(probability, 0.025, noise, NIGHT_LOOKS)
        failed += fails(Floor.at(min(math.exp(noise.centre - distance), 1)), night, NIGHT_LOOKS)
    # Four standard errors of a share of 0.05 of 400.
    assert failed / total <= probability + 0.044
    assert failed / total >= probability / 5, "much farther than needed"


@pytest.mark.parametrize("rule", [Floor.at(0.9), Band(0.9, 1 / 0.9), Ceiling(1 / 0.9)], ids=str)
def test_what_never_moves_fails_only_beyond_its_limit(rule: Rule) -> None:
    assert false_fail(rule, scatter([[0.0] * 8] * 4), NIGHT_LOOKS) == 0
    beyond = 0.2 if isinstance(rule, Ceiling) else -0.2
    assert false_fail(rule, scatter([[beyond] * 8] * 4), NIGHT_LOOKS) == pytest.approx(1)


def test_looks_with_too_few_rounds_for_a_bound_never_fail() -> None:
    assert false_fail(Floor.at(1.0), scatter(drawn(0.1, 0.1, 8, seed=4)), (6,)) == 0


@pytest.mark.parametrize("sessions", [8, 12])
def test_19_of_20_files_mean_one_false_fail_a_year_at_most(sessions: int) -> None:
    known, more = scatter(drawn(0.026, 0.02, 4000)), 0
    for number in range(20):
        of = {
            Case(WEAK.question, "vgg_16", at + 2, 1): drawn(
                0.026, 0.02, sessions, 100 * number + at
            )
            for at in range(20)
        }
        file = tomllib.loads(propose(of, NIGHT_LOOKS, MACHINE))["thresholds"]
        rules = [(Floor.at(limit), known) for limit in file.values()]
        more += proposals.of_year(rules, NIGHT_LOOKS) > 1.0
    assert more <= 4, "five or more of 20 have a probability of 0.003"
