"""The detector of changes, and the releases at which it finds them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping

import pytest

from hvdperf.timeline.lines import LEAST_CHANGE, steps
from hvdperf.timeline.releases.by_release import Series, bisect_command, report, series_of, word
from hvdperf.timeline.releases.raw import Axis, RawResult
from tests.support.histories import REPLICA, raw_result


def line(count: int, noise: float, changes: dict[int, float], seed: int) -> list[float]:
    made = random.Random(seed)
    factors = [
        math.prod(factor for at, factor in changes.items() if index >= at) for index in range(count)
    ]
    return [1000.0 * factor * math.exp(made.gauss(0, noise)) for factor in factors]


@pytest.mark.parametrize("seed", range(20))
def test_an_unchanged_line_has_no_step(seed: int) -> None:
    assert steps(line(365, 0.03, {}, seed)) == []


def test_several_steps_are_told_apart() -> None:
    changes = {90: 0.97, 180: 0.95, 270: 0.9}
    found = steps(line(365, 0.01, changes, 1))
    assert [each.at for each in found] == pytest.approx([90, 180, 270], abs=2)
    assert [each.change for each in found] == pytest.approx([0.97, 0.95, 0.9], abs=0.005)


def test_single_bad_nights_are_no_step() -> None:
    figures = line(100, 0.01, {}, 2)
    for index in (30, 31, 70):
        figures[index] *= 0.7
    assert steps(figures) == []


def test_four_nights_show_a_step_behind_many_others() -> None:
    assert steps(line(60, 0.005, {56: 0.95}, 3)) != []
    assert steps(line(60, 0.005, {58: 0.95}, 3)) == [], "two nights may be bad by chance"


def test_a_change_too_small_to_matter_is_none() -> None:
    assert steps(line(300, 0.001, {150: 1 - LEAST_CHANGE / 2}, 4)) == []


@pytest.mark.parametrize(("at", "until"), [(90, 120), (200, 260), (150, 164), (300, 330)])
def test_a_change_that_was_repaired_is_still_known(at: int, until: int) -> None:
    found = steps(line(365, 0.01, {at: 0.9, until: 1 / 0.9}, 5))
    assert [each.at for each in found] == pytest.approx([at, until], abs=3)
    assert found[0].until == found[1].at


@pytest.mark.parametrize("seen", range(130, 365, 50))
def test_what_was_found_stays_found_with_later_nights(seen: int) -> None:
    whole = line(365, 0.01, {90: 0.95, 120: 1 / 0.95, 250: 0.9}, 6)
    then = [each.at for each in steps(whole[:seen])]
    assert [each.at for each in steps(whole)][: len(then)] == pytest.approx(then, abs=3)


@pytest.mark.parametrize("seed", range(3))
def test_a_repair_takes_no_night_from_the_list_and_leaves_two_changes(seed: int) -> None:
    whole = line(110, 0.01, {60: 0.9, 70: 1 / 0.9}, seed)
    for seen in range(64, 110):
        found = steps(whole[:seen])
        assert abs(found[0].at - 60) <= 2, seen
        assert found[0].change < 0.96, seen
    assert [each.at for each in found] == pytest.approx([60, 70], abs=2)
    assert [each.change for each in found] == pytest.approx([0.9, 1 / 0.9], abs=0.015)


def correlated(count: int, noise: float, correlation: float, seed: int) -> list[float]:
    """Return a line of which each night resembles the one before it."""
    made = random.Random(seed)
    values = [made.gauss(0, noise)]
    while len(values) < count:
        own = made.gauss(0, noise * math.sqrt(1 - correlation**2))
        values.append(correlation * values[-1] + own)
    return [1000.0 * math.exp(value) for value in values]


@pytest.mark.parametrize("seed", range(48, 58))
def test_nights_that_resemble_the_one_before_are_no_change(seed: int) -> None:
    """Two of these lines had changes while nights counted as independent."""
    assert steps(correlated(365, 0.03, 0.3, seed)) == []


def test_figures_that_never_vary_are_read() -> None:
    assert steps([100.0] * 60) == []
    (found,) = steps([100.0] * 30 + [90.0] * 30)
    assert found.at == 30
    assert found.change == pytest.approx(0.9)


@pytest.mark.parametrize(("at", "change"), [(120, 0.97), (120, 0.95), (11, 0.9), (120, 1.05)])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_found_with_its_size(at: int, change: float, seed: int) -> None:
    (found,) = steps(line(at + 80, 0.01, {at: change}, seed))
    assert abs(found.at - at) <= 2
    assert found.lower < change < found.upper
    assert found.change == pytest.approx(change, abs=0.006)
    assert found.p < 1e-5


def test_a_few_nights_say_nothing() -> None:
    assert all(steps([100.0, 50.0] * count) == [] for count in range(4))


ONE, TWO = ("vgg_16_s", 1), ("vgg_16_s", 2)
RELEASES = FIRST, SECOND, THIRD, FOURTH, LAST = ("2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1")


def made_series(noise: float, steps: Mapping[str, float], sessions: int = 1) -> Series:
    """Return a series of one line of eight launches a session. noise: standard deviation of
    launches, relative. steps: the factor with which a release differs from the one before it."""
    drawn, speed, results = random.Random(20181231), 500.0, list[RawResult]()
    for release in RELEASES:
        speed *= steps.get(release, 1.0)
        for _ in range(sessions):
            speeds = [speed * math.exp(drawn.gauss(0.0, noise)) for _ in range(8)]
            results.append(raw_result("0.28.1", release, {TWO: speeds}, number=len(results)))
    return next(each for each in series_of(results) if each.axis is Axis.TENSORFLOW)


def test_a_line_goes_along_the_releases_of_its_axis():
    results = [
        raw_result("0.28.1", "2.16.2", {ONE: [3.0, 4.0]}, number=1),
        raw_result("0.28.0", "2.16.2", {ONE: [1.0, 2.0]}, number=2),
        raw_result("0.28.1", "2.18.1", {ONE: [5.0]}, number=3),
        raw_result("0.28.1", "2.18.1", {ONE: [6.0]}, number=4),
    ]
    found: dict[tuple[Axis, str], dict[str, list[float]]] = {}
    for series in series_of(results):
        by_version = found.setdefault((series.axis, series.at), {})
        for line in series.lines:
            for place, figure in enumerate(line.figures):
                by_version.setdefault(series.version(line, place), []).append(figure)
    assert found == {
        (Axis.HOROVOD, "2.16.2"): {"0.28.0": [1.0, 2.0], "0.28.1": [3.0, 4.0]},
        (Axis.HOROVOD, "2.18.1"): {"0.28.1": [5.0, 6.0]},
        (Axis.TENSORFLOW, "0.28.0"): {"2.16.2": [1.0, 2.0]},
        (Axis.TENSORFLOW, "0.28.1"): {"2.16.2": [3.0, 4.0], "2.18.1": [5.0, 6.0]},
    }
    assert {line.replica for series in series_of(results) for line in series.lines} == {REPLICA}


def test_machines_world_sizes_and_networks_are_lines_of_their_own():
    results = [
        raw_result(speeds={ONE: [1.0], TWO: [2.0]}, number=1),
        raw_result(speeds={ONE: [1.0], ("alexnet_s", 1): [9.0]}, number=2, kernel="6.2.0"),
    ]
    found = [
        (series.machine, line.model, line.world_size)
        for series in series_of(results)
        for line in series.lines
        if series.axis is Axis.HOROVOD
    ]
    assert len(found) == len(set(found)) == 4
    assert series_of([]) == []


@pytest.mark.parametrize(
    "steps",
    [{}, {THIRD: 1.10}, {THIRD: 0.92}, {SECOND: 0.90, FOURTH: 1.15}, {SECOND: 0.90}, {LAST: 0.90}],
    ids=str,
)
def test_steps_are_found_where_they_are_and_nowhere_else(steps):
    found = made_series(0.01, steps).changes
    assert {each.since: each.step.change for each in found} == pytest.approx(steps, abs=0.02)
    assert [each.before for each in found] == [
        before for before, since in itertools.pairwise(RELEASES) if since in steps
    ]
    words = [
        "slower: regression" if factor < 1 else "faster: explain it" for factor in steps.values()
    ]
    assert [word(each) for each in found] == words


def test_a_change_between_or_within_sessions_of_one_release_was_the_machine():
    # Two sessions of each release: speeds of the third's second one, and of a half of one.
    made = made_series(0.005, {}, sessions=2)
    for first in (40, 36 + 8):
        speeds = [s for result in made.results for s in result.results[0].values]
        slower = [speed * (0.9 if first <= i else 1) for i, speed in enumerate(speeds)]
        results = [
            raw_result("0.28.1", RELEASES[i // 2], {TWO: slower[8 * i : 8 * i + 8]}, number=i)
            for i in range(10)
        ]
        series = next(each for each in series_of(results) if each.axis is Axis.TENSORFLOW)
        (change,) = series.changes
        assert change.before == change.since == THIRD
        assert word(change) == "the machine"


def test_another_build_of_a_release_is_no_change_of_the_machine():
    results = [
        raw_result(
            "0.28.1",
            LAST,
            {TWO: [100.0 * (0.9 if i > 1 else 1) + at / 10 for at in range(8)]},
            i,
            **({"horovod_sha256": "old" if i < 2 else "rebuilt"} if i else {}),
        )
        for i in range(4)
    ]
    series = next(each for each in series_of(results) if each.axis is Axis.HOROVOD)
    (change,) = series.changes
    assert (change.before, change.since) == ("0.28.1", "0.28.1+rebuil")
    assert word(change) == "slower: regression"
    assert bisect_command(series, change) == "", "there is one release"
    assert not any("hvdperf bisect" in text for text in report([series]))


def test_both_directions_are_told_with_version_size_and_what_to_do():
    series = made_series(0.005, {SECOND: 0.9, FOURTH: 1.16})
    lines = list(report([series]))
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    assert f"{series.machine}: releases of TensorFlow, with Horovod 0.28.1" in text
    slower, faster = (line.split() for line in lines if line.startswith("  vgg_16_s"))
    assert slower[1:4] == ["2", SECOND, FIRST]
    assert slower[-2:] == ["slower:", "regression"]
    assert faster[1:4] == ["2", FOURTH, THIRD]
    assert "1 lines of two releases or more: 1 changes to slower, 1 to faster" in text
    largest = series.changes[1]
    assert bisect_command(series, largest).replace(" --from", " \\ --from") in text
    assert f"--from {THIRD} --to {FOURTH} --model vgg_16_s --np 2" in text


def test_changes_are_grouped_by_what_a_replica_trains_on():
    speeds = [100 + place / 10 for place in (3, 0, 6, 1, 7, 2, 5, 4)]
    results = [
        raw_result("0.28.1", release, {TWO: [factor * each for each in speeds]}, number, replica)
        for number, (replica, release, factor) in enumerate(
            (replica, release, factor)
            for replica in (REPLICA, "synthetic, size 32")
            for release, factor in ((FIRST, 1.0), (SECOND, 0.8))
        )
    ]
    *groups, said = "\n".join(report(series_of(results))).split("\n\n")
    assert len(groups) == 2
    for group, replica in zip(groups, (REPLICA, "synthetic, size 32"), strict=True):
        assert group.count("slower: regression") == 1
        assert f"with Horovod 0.28.1; {replica}" in " ".join(group.split())
    assert said.startswith("2 lines of two releases or more: 2 changes to slower, 0 to faster")


def test_nothing_found_is_said_and_nothing_is_advised():
    (line,) = report([made_series(0.01, {})])
    assert line == "1 lines of two releases or more: 0 changes to slower, 0 to faster"
    one_release = series_of([raw_result()])
    assert next(report(one_release)).startswith("0 lines of two releases or more")
