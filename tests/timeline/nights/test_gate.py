"""Gates against a pinned reference, judged over nights: suspects and alarms."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Kind, Limit, Row
from hvdperf.timeline.lines import Standing
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import Accepted, Night, of_all_nodes, write_night
from hvdperf.timeline.nights.series import FindingKind, Series
from hvdperf.timeline.nights.watch import Watched, state_of, write_issues
from hvdperf.timeline.pages import write_index
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import EXIT_STATUS, REGRESSION, Verdict, judge
from tests.support.nights import Year, nights, slowed, with_part

CALM = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=1, world_sizes=(8,))
MADE = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:8]
# Round by round, of mean 0.
SPREAD = [0.01 * each for each in (-2, 1, 0, 2, -1, 1, -1, 0)]
CASE = "weak_scaling[network_0-np8]"


def row(figure: float, rounds: int = 8, spread: float = 1.0) -> Row:
    """Return a case as a gate judges it by its rounds."""
    values = [math.log(figure) + spread * SPREAD[at % len(SPREAD)] for at in range(rounds)]
    found = judge(values, REGRESSION)
    assert found.figure is not None
    bounds = found.figure.estimate, found.figure.lower, found.figure.upper
    place = Question.WEAK_SCALING, "network_0", 8
    return Row(CASE, *place, found.verdict, *bounds, Limit(0.98, None), rounds, "", tuple(values))


# One that PASSes at an early look, one that FAILs, and one that a night does not decide.
SAME, LOSS, NOISY = row(1.0, rounds=6), row(0.955), row(0.957, 24, spread=5)


def with_gate(
    night: Night,
    *rows: Row,
    against: str = "/srv/reference",
    again: Sequence[Row] = (),
    disturbed: str = "",
) -> Night:
    """Return the night with a gate. again: by a second session, if there is one. disturbed: by
    what."""
    (own,) = night.parts
    gate = replace(own, kind=Kind.GATE, cases=rows, results=())
    second = replace(gate, cases=tuple(again), kind=Kind.GATE_AGAIN, disturbed=disturbed)
    return replace(night, against=against, parts=(own, gate, *[second] * bool(again)))


def series(*rows: Row, accepted: int | None = None) -> Series:
    """Return a series whose gates have this case, a night each. accepted: up to which night."""
    made = [with_gate(night, each) for night, each in zip(MADE, rows, strict=False)]
    return state(made, accepted)


def state(made: Sequence[Night], accepted: int | None = None) -> Series:
    accept = () if accepted is None else (Accepted(MADE[accepted].night, "new kernel"),)
    return Series("a100", made, accept)


def watched(found: Series) -> Watched:
    ended = found.nights[-1].ended_at
    assert ended is not None
    return Watched(found, ended + timedelta(hours=1))


def test_a_fail_of_one_night_is_a_suspect_that_is_told_and_opens_nothing(tmp_path: Path) -> None:
    found = series(SAME, SAME, LOSS)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert not found.is_red
    (told,) = [line for line in found.slower() if CASE in line]
    assert "suspect: 0.955 (" in told
    assert watched(found).status == EXIT_STATUS[Verdict.INCONCLUSIVE]
    (finding,) = state_of(watched(found))["findings"]
    assert (finding["kind"], finding["amounts"][0]["name"]) == ("suspect", CASE)
    assert "--against /srv/reference" in finding["commands"]["reproduce"]
    write_issues([watched(found)], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_large_loss_is_an_alarm_on_its_first_night(tmp_path: Path) -> None:
    found = series(SAME, SAME, row(0.85))
    assert found.verdict is Verdict.FAIL
    assert watched(found).status == EXIT_STATUS[Verdict.FAIL]
    assert any("nightly accept" in line for line in found.slower())
    (finding,) = state_of(watched(found))["findings"]
    assert finding["standing"] == "worse"
    assert finding["amounts"][0]["change"] == pytest.approx(0.85)
    write_issues([watched(found)], tmp_path)
    assert f"- {CASE}: 0.850 " in (tmp_path / "open/a100.md").read_text()


def test_what_a_second_session_does_not_show_is_no_suspect() -> None:
    found = state([with_gate(MADE[0], LOSS, again=[row(1.0, 24)])])
    assert not found.suspects
    ((_, judged),) = [(part, each) for part, each in found.nights[0].cases if part.kind.is_gate]
    assert judged.rounds == 32, "of both sessions"
    assert judged.verdict is Verdict.PASS
    assert found.nights[0].verdict is Verdict.PASS, "a second session has no cases of its own"


@pytest.mark.parametrize(
    ("again", "disturbed", "verdict"),
    [
        (row(0.85), "", Verdict.FAIL),
        (row(1.0, 24), "", Verdict.INCONCLUSIVE),
        (row(1.0, 24), "a compiler", Verdict.FAIL),
    ],
)
def test_a_large_loss_must_be_one_by_both_sessions_unless_the_second_was_disturbed(
    again: Row, disturbed: str, verdict: Verdict
) -> None:
    found = state([with_gate(MADE[0], row(0.85), again=[again], disturbed=disturbed)])
    assert found.verdict is verdict


def test_a_gate_that_was_disturbed_fails_nothing() -> None:
    made = [with_gate(night, LOSS) for night in MADE[:2]]
    own, gate = made[1].parts
    parts = (own, replace(gate, disturbed="a compiler"))
    found = state([made[0], replace(made[1], parts=parts)])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("a compiler" in line for line in found.slower())


def without_rounds(row: Row) -> Row:
    """Return a case as documents of earlier versions have it."""
    return replace(row, observations=())


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        ((SAME, LOSS, LOSS), "PASS INCONCLUSIVE FAIL"),
        ((NOISY, NOISY, NOISY), "INCONCLUSIVE INCONCLUSIVE INCONCLUSIVE"),
        ((LOSS, SAME, LOSS), "INCONCLUSIVE PASS FAIL"),
        ((LOSS, SAME, SAME, LOSS), "INCONCLUSIVE PASS PASS INCONCLUSIVE"),
        ([without_rounds(LOSS)] * 2, "INCONCLUSIVE FAIL"),
        ([without_rounds(row(0.85))], "FAIL"),
    ],
)
def test_the_first_nights_of_a_gate_are_judged_by_their_own_rounds(
    rows: Sequence[Row], verdicts: str
) -> None:
    found = series(*rows)
    assert [night.verdict.value for night in found.nights] == verdicts.split()
    assert found.verdict is found.nights[-1].verdict


def test_what_fails_alone_is_measured_again_unless_it_was_accepted() -> None:
    made = [with_gate(night, each) for night, each in zip(MADE, (SAME, LOSS, LOSS), strict=False)]
    assert [each.row.name for each in judge_speeds(made[:2]).gated[1]] == [CASE]
    assert judge_speeds(made[:1]).gated == {}
    later = [*made, with_gate(MADE[3], LOSS)]
    assert 3 not in judge_speeds(later, [Accepted(MADE[2].night, "x")]).gated


def test_an_alarm_is_one_event_until_two_nights_of_three_are_back() -> None:
    (event,) = series(SAME, LOSS, LOSS, NOISY).findings
    assert (event.at, event.standing) == (2, Standing.OPEN)
    assert event.told.endswith(f"speed against the reference stack of {CASE}")
    assert any("--against /srv/reference" in command for _, command in event.commands)
    assert any("nightly accept" in command for _, command in event.commands)
    (event,) = series(SAME, LOSS, LOSS, SAME).findings
    assert event.standing is Standing.OPEN
    (event,) = series(SAME, LOSS, LOSS, SAME, SAME).findings
    assert event.standing is Standing.REPAIRED
    (event,) = series(SAME, LOSS, LOSS, accepted=2).findings
    assert event.standing is Standing.ACCEPTED
    (suspect,) = series(SAME, LOSS).findings
    assert (suspect.kind, suspect.standing) == (FindingKind.SUSPECT, Standing.SUSPECT)


def test_a_fall_and_an_alarm_of_the_same_night_are_one_event() -> None:
    *before, last = nights(CALM, 1)[:30]
    last = with_gate(slowed(last, 0.7), row(0.7))
    (event,) = Series("a100", [*before, last]).findings
    assert event.is_open
    assert "samples/s" in event.told
    assert f"speed against the reference stack of {CASE}" in event.told


def test_an_issue_is_not_closed_while_something_is_a_suspect() -> None:
    assert watched(series(SAME, SAME)).is_clean
    assert not watched(series(SAME, SAME, LOSS)).is_clean
    assert not watched(series(SAME, SAME, LOSS, SAME)).is_clean
    assert watched(series(SAME, NOISY, SAME)).is_clean


@pytest.mark.parametrize(
    "failed",
    [
        replace(LOSS, figure=None, lower=None, upper=None, observations=(), reason="rank 3 died"),
        replace(LOSS, question=Question.CONVERGENCE_LOSS),
    ],
    ids=["a rank died", "no speed"],
)
def test_what_no_speed_decided_fails_at_once_and_cannot_be_accepted(failed: Row) -> None:
    assert series(SAME, failed).verdict is Verdict.FAIL
    assert not series(SAME, failed).gated
    assert series(SAME, failed, accepted=1).verdict is Verdict.FAIL


def test_the_nights_own_session_fails_at_once() -> None:
    assert state([with_part(MADE[0], cases=(LOSS,))]).verdict is Verdict.FAIL


def test_another_reference_or_machine_is_compared_with_its_own_nights() -> None:
    first, second = (with_gate(night, LOSS) for night in MADE[:2])
    assert state([first, second]).verdict is Verdict.FAIL
    other = replace(second, against="/srv/newer")
    assert state([first, other]).verdict is Verdict.INCONCLUSIVE
    moved = (replace(part, hosts=("a", "b", "c")) for part in second.parts)
    other = replace(second, parts=tuple(moved))
    assert state([first, other]).verdict is Verdict.INCONCLUSIVE


def test_each_node_has_its_own_gate_and_is_named() -> None:
    def of(node: str, night: Night, *rows: Row) -> Night:
        parts = tuple(replace(part, node=node) for part in with_gate(night, *rows).parts)
        return replace(with_gate(night), parts=parts, node=node)

    def both(night: Night, *rows: Row) -> Night:
        named = zip(("gpu1", "gpu2"), rows, strict=True)
        return of_all_nodes([of(node, night, each) for node, each in named])

    found = state([both(MADE[0], LOSS, SAME), both(MADE[1], SAME, LOSS)])
    assert found.verdict is Verdict.INCONCLUSIVE
    found = state([both(MADE[0], SAME, LOSS), both(MADE[1], SAME, LOSS)])
    assert found.verdict is Verdict.FAIL
    assert any(f"of {CASE} on gpu2" in line for line in found.slower())


def test_what_is_accepted_fails_no_more_and_what_comes_after_it_does() -> None:
    nights_of_loss = (SAME, LOSS, LOSS)
    accepted = series(*nights_of_loss, accepted=2)
    assert accepted.verdict is Verdict.PASS
    assert series(*nights_of_loss, LOSS, LOSS, accepted=2).verdict is Verdict.PASS
    worse = row(0.955 * 0.955)
    assert series(*nights_of_loss, worse, accepted=2).verdict is Verdict.INCONCLUSIVE
    assert series(*nights_of_loss, worse, worse, accepted=2).verdict is Verdict.FAIL
    assert series(SAME, SAME, LOSS, LOSS, accepted=1).verdict is Verdict.FAIL, "nothing was on"


def test_the_page_and_the_calendar_have_the_verdicts_over_nights(tmp_path: Path) -> None:
    for measured in series(SAME, LOSS, LOSS, SAME, SAME, LOSS).measured:
        write_night(tmp_path / NIGHTS, measured)
    write_index(tmp_path / "index.html", tmp_path, tmp_path / "pages", MADE[5].night)
    text = (tmp_path / NIGHTS / "a100/index.html").read_text()
    assert f"{CASE}: suspect: 0.955 (" in text
    for night, verdict in ((MADE[1].night, "INCONCLUSIVE"), (MADE[2].night, "FAIL")):
        assert re.search(rf'>{night}<td><span class="verdict \w+">{verdict}<', text)


def test_a_cause_that_the_session_found_stays() -> None:
    caused = replace(LOSS, reason="attributed to compute of rank 1 (+9 %)")
    ((told,),) = ([each.row.reason for each in found] for found in [series(caused).gated])
    assert told.endswith(caused.reason)


def gate_of(night: Night, draw: random.Random, sd: float, *factors: float) -> Night:
    """Return the night with a gate of as many cases as factors. sd: of a case between nights."""
    figures = (factor * math.exp(draw.gauss(0, sd)) for factor in factors)
    rows = (replace(row(each), name=f"case{at}") for at, each in enumerate(figures))
    return with_gate(night, *rows)


@pytest.mark.parametrize(("sd", "hidden", "found"), [(0.005, 0.985, 0.95), (0.02, 0.95, 0.8)])
def test_a_gate_learns_how_much_its_nights_differ(sd: float, hidden: float, found: float) -> None:
    draw = random.Random(1)
    calm = nights(replace(CALM, noise=0.01), 1)[:43]
    made = [gate_of(night, draw, sd, *[1.0] * 20) for night in calm[:40]]
    quiet = judge_speeds(made)
    assert not [each for own in quiet.gated.values() for each in own if each.is_alarm]
    for factor, is_alarm in ((hidden, False), (found, True)):
        last = gate_of(calm[40], draw, sd, factor, *[1.0] * 19)
        gated = judge_speeds([*made, last]).gated.get(40, ())
        assert [each.row.name for each in gated if each.is_alarm] == ["case0"] * is_alarm
    stays = [gate_of(night, draw, sd, *[0.93] * 20) for night in calm[40:]]
    fall = judge_speeds([*made, *stays]).falls[42]
    assert fall.since is made[0] or fall.since.night == calm[40].night
    assert "all 20 cases" in fall.told


def test_what_was_accepted_and_repaired_is_compared_with_the_reference_again() -> None:
    draw = random.Random(1)
    calm = nights(replace(CALM, noise=0.01), 1)[:60]
    made = [
        gate_of(night, draw, 0.005, *[0.93 if 40 <= at < 50 or at >= 55 else 1.0] * 20)
        for at, night in enumerate(calm)
    ]
    accepted = [Accepted(made[42].night, "a new driver")]
    falls = judge_speeds(made, accepted).falls
    assert sorted(falls) == [40, 41, 42, 55, 56, 57, 58, 59]


def test_a_gate_is_judged_though_its_night_has_no_session_of_its_own() -> None:
    made = [with_part(night, results=()) for night in MADE[:2]]
    assert state([with_gate(night, LOSS) for night in made]).verdict is Verdict.FAIL
