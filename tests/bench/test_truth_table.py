"""The truth table: what each rule says of made-up recordings, how shares are bounded, and what the
page holds."""

from __future__ import annotations

import sys
from dataclasses import replace
from statistics import fmean

import pytest
from scipy.stats import binomtest

from bench import truth_rules as rules
from bench.truth_rules import DATA, FEWEST_ROUNDS, Decision, Recorded, Rule, Said
from bench.truth_rules import known_to_each_other as together
from bench.truth_table import PAGE, effect, make, score, share_of
from docs.markdown import END
from hvdperf.errors import UserError
from hvdperf.json_records import encode
from hvdperf.programs import run
from tests.support.pages import blocks
from tests.support.stores import SESSION, session_of_cases
from tests.support.truth import GROUP, OTHER_SESSION, archive, recording, write

TWO = together([recording(), recording(session=OTHER_SESSION)])
COMPARING = (
    rules.GOLDEN,
    rules.SDS,
    rules.T_TEST,
    rules.BENCHSTAT,
    rules.BENCHSTAT_T,
    rules.TRACEML_3,
    rules.OURS,
)


def decided_by(rule: Rule, recorded: Recorded, arm: str, number: int) -> Decision:
    decision = rule.decide(recorded, arm, number)
    assert decision is not None
    return decision


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.name)
def test_on_a_quiet_machine_no_rule_alarms_without_a_fault(rule):
    assert score(rule, TWO).arms["aa"].slower.share == 0


@pytest.mark.parametrize("rule", COMPARING, ids=lambda rule: rule.name)
def test_a_planted_shift_is_found_on_a_quiet_machine(rule):
    found = score(rule, TWO)
    for arm in ("slow10", "late15", "cycle"):
        assert found.arms[arm].slower.share == 1, arm


@pytest.mark.parametrize("rule", [rules.BENCHSTAT, rules.BENCHSTAT_T], ids=lambda rule: rule.name)
def test_benchstat_has_one_value_a_run(rule):
    unlike = together(
        [recording(rounds=40, noise=0.03, session=f"2026010{n}T235959Z-1") for n in range(3)]
    )
    assert score(rules.T_TEST, unlike).arms["aa"].slower.share > 0.2
    assert score(rule, unlike).arms["aa"].slower.share < 0.1
    decision = decided_by(rule, unlike[0], "cycle", 0)
    runs = [
        *unlike[0].some("cycle", 0, rules.LOOKS[0]),
        *unlike[0].some("none", -rules.LOOKS[0], rules.LOOKS[0]),
    ]
    assert decision.rounds == rules.LOOKS[0]
    assert decision.seconds == pytest.approx(sum(run.seconds for run in runs))
    assert decision.said is Said.SLOWER


def test_a_test_at_five_per_cent_has_two_sides_and_one_of_them_is_slower():
    three, above = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]
    # Of 20 and 70 orders of the values as extreme ones: p = 2 / 20 and 2 / 70.
    assert not rules.mann_whitney(above, three)
    assert rules.mann_whitney([*above, 7.0], [0.0, *three])
    assert not rules.mann_whitney([0.0, *three], [*above, 7.0])
    # Student's t of 3.67 with 4 degrees of freedom: p = 0.021; of 2.45, with the same: 0.07.
    assert rules.welch(above, three)
    assert not rules.welch([3.0, 4.0, 5.0], three)
    assert not rules.welch(three, above)


def test_trials_of_one_arm_alone_change_nothing_of_the_other_arms_and_of_the_seconds():
    alone = recording(rounds=240, session="20260301T235959Z-4711", arms=("none", "aa"))
    with_it = together([recording(), recording(session=OTHER_SESSION), alone])
    before, after = score(rules.OURS, TWO), score(rules.OURS, with_it)
    assert after.arms["slow10"] == before.arms["slow10"]
    assert after.arms["aa"].slower.high < 0.15 < before.arms["aa"].slower.high
    assert after.seconds[0] == pytest.approx(before.seconds[0], rel=0.1)


def test_a_golden_of_a_slower_session_hides_a_fault_and_one_of_a_faster_session_alarms():
    slow, fast = recording(speed=0.9), recording(session=OTHER_SESSION)
    after, before = together([slow, fast])
    assert score(rules.GOLDEN, [after]).arms["aa"].slower.share == 1
    assert score(rules.GOLDEN, [before]).arms["slow10"].slower.share == 0


def test_without_another_session_there_is_no_golden():
    assert score(rules.GOLDEN, together([recording()])).arms == {}


def test_ours_fails_at_its_first_full_look_and_not_before():
    alone = together([recording()])[0]
    decision = decided_by(rules.OURS, alone, "slow10", 20)
    assert (decision.said, decision.rounds) == (Said.SLOWER, rules.LOOKS[0])
    one, three, _ = (decided_by(rule, alone, "slow10", 0) for rule in rules.CUT)
    assert one.said is three.said is Said.NOTHING
    assert one.seconds < three.seconds < decision.seconds


def test_ours_leaves_out_what_other_programs_disturbed():
    disturbed = together([recording(foreign=0.3)])[0]
    assert not any(pair.row for pair in disturbed.pairs["slow10"])
    assert decided_by(rules.OURS, disturbed, "slow10", 0).said is Said.NOTHING


def test_a_time_to_verdict_has_the_start_and_the_end_of_every_run():
    alone = together([recording(noise=0.0)])[0]
    run = alone.runs["none"][0]
    blocks = 4 * 11 * 0.03
    assert run.seconds == pytest.approx(2.0 + alone.rest_seconds + blocks)
    total = sum(each.seconds for arm in alone.runs.values() for each in arm)
    assert total == pytest.approx(alone.session.elapsed_seconds)


def test_the_true_effect_is_that_of_the_rounds():
    found = effect(TWO, "slow10", "vgg_16_s")
    assert found.lower <= 0.1 <= found.upper
    assert found.estimate == pytest.approx(0.1, abs=0.01)


def test_independent_trials_have_the_exact_interval():
    same = [[True, False, False, True, False, False]] * 4
    for answers, yes in ((same, 8), ([[False] * 12] * 2, 0)):
        found, exact = share_of(answers, 24), binomtest(yes, 24).proportion_ci(0.95)
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=0.05)


def test_recordings_that_differ_widen_the_interval():
    differing = share_of([[True] * 12, [False] * 12, [True] * 12, [False] * 12], 48)
    alike = share_of([[True, False] * 6] * 4, 48)
    assert differing.share == alike.share
    assert differing.high - differing.low > 1.5 * (alike.high - alike.low)


def test_trials_that_share_runs_do_not_count_twice():
    apart, shared = share_of([[False] * 24] * 2, 48), share_of([[False] * 24] * 2, 4)
    assert shared.high > apart.high


def test_the_command_writes_the_page(tmp_path):
    runs = [write(tmp_path, archive(12, session=each)) for each in (SESSION, OTHER_SESSION)]
    page = tmp_path / "page.md"
    begin = "<!-- made by `make truth` from here -->"
    page.write_text("# A\n\n" + f"{begin}\nof before\n{END}\n\n" * 3 + "## B\n")
    assert make(*runs, data=tmp_path / "data", page=page) == 0
    text = page.read_text()
    assert "of before" not in text
    assert text.startswith("# A\n")
    assert text.endswith("## B\n")
    assert all(f"| {rule.name} |" in text or f"| **{rule.name}** |" in text for rule in rules.RULES)


def test_the_page_is_of_the_sessions_in_the_repository():
    made = PAGE.read_text()
    names = [path.name.removesuffix(rules.ENDING) for path in DATA.glob(f"*{rules.ENDING}")]
    assert names
    assert all(f"| {name} |" in made for name in names)


# The data set ------------------------------------------------------------------------------------


def test_a_session_is_read_as_it_was_added(tmp_path):
    added = archive(12)
    rules.add(write(tmp_path, added), tmp_path / "data")
    (found,) = rules.read(tmp_path / "data")
    assert (found.session, found.network) == (added.session, "vgg_16_s")
    # Encoded, because what is unknown is NaN.
    assert encode(found.rounds) == encode([*added.rounds[GROUP].values()])


def test_a_round_that_lacks_an_arm_is_left_out():
    with_one = archive(FEWEST_ROUNDS + 1)
    with_one.rounds[GROUP][3].launches.pop()
    (found,) = rules.recordings(with_one)
    assert [each.number for each in found.rounds] == [0, 1, 2, *range(4, FEWEST_ROUNDS + 1)]


@pytest.mark.parametrize(
    ("unusable", "why"),
    [
        (replace(archive(), session=session_of_cases(exit_status=None)), "still runs"),
        (archive(arms=["none"]), "no fault was planted"),
        (archive(FEWEST_ROUNDS - 1), f"fewer than {FEWEST_ROUNDS}"),
    ],
)
def test_what_cannot_be_used_is_refused(unusable, why):
    with pytest.raises(UserError, match=why):
        rules.recordings(unusable)


def test_a_file_that_is_no_recording_is_named(tmp_path):
    (tmp_path / f"x{rules.ENDING}").write_bytes(b"x")
    with pytest.raises(UserError, match=r"x\.tar\.xz"):
        rules.read(tmp_path)


def test_the_reader_that_the_data_set_shows_reads_it(tmp_path):
    added = archive(12)
    rules.add(write(tmp_path, added), tmp_path / "results" / "truth")
    (program,) = blocks((DATA / "README.md").read_text(), "python")
    lines = run([sys.executable, "-c", program], cwd=tmp_path).output.splitlines()
    first = added.rounds[GROUP][0].launches
    assert len(lines) == 12 * len(first)
    mean = fmean(first[0].blocks[0].ranks[0].step_seconds)  # of all blocks
    assert float(lines[0].split()[-1]) == pytest.approx(mean)
