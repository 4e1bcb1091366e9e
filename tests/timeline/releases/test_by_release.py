"""The same figures along either axis, and the releases that changed them."""

from __future__ import annotations

import itertools

import pytest

from bench.change_points import RELEASES, Machine, made_series
from hvdperf.timeline.releases.by_release import bisect_command, report, series_of, word
from hvdperf.timeline.releases.raw import Axis
from tests.support.histories import REPLICA, raw_result

ONE, TWO = ("vgg_16_s", 1), ("vgg_16_s", 2)
FIRST, SECOND, THIRD, FOURTH, LAST = RELEASES


def test_a_line_goes_along_the_releases_of_its_axis():
    results = [
        raw_result("0.28.1", "2.16.2", {ONE: [3.0, 4.0]}, number=1),
        raw_result("0.28.0", "2.16.2", {ONE: [1.0, 2.0]}, number=2),
        raw_result("0.28.1", "2.18.1", {ONE: [5.0]}, number=3),
        raw_result("0.28.1", "2.18.1", {ONE: [6.0]}, number=4),
    ]
    found = {
        (series.axis, series.at): series.by_version(line)
        for series in series_of(results)
        for line in series.lines
    }
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
    found = made_series(Machine(noise=0.01), steps).changes
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
    made = made_series(Machine(noise=0.005, sessions=2))
    for first in (40, 36 + 8):
        speeds = [s for result in made.results for s in result.series[0].samples_per_second]
        slower = [speed * (0.9 if first <= i else 1) for i, speed in enumerate(speeds)]
        results = [
            raw_result("0.28.1", RELEASES[i // 2], {TWO: slower[8 * i : 8 * i + 8]}, number=i)
            for i in range(10)
        ]
        series = next(each for each in series_of(results) if each.axis is Axis.TENSORFLOW)
        (change,) = series.changes
        assert change.before == change.since == THIRD
        assert word(change) == "the machine"


def test_both_directions_are_told_with_version_size_and_what_to_do():
    series = made_series(Machine(noise=0.005), {SECOND: 0.9, FOURTH: 1.16})
    lines = list(report([series]))
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "made-up: releases of TensorFlow, with Horovod 0.28.1" in text
    slower, faster = (line.split() for line in lines if line.startswith("  vgg_16_s"))
    assert slower[1:4] == ["2", SECOND, FIRST]
    assert slower[-2:] == ["slower:", "regression"]
    assert faster[1:4] == ["2", FOURTH, THIRD]
    assert "1 lines of two releases or more: 1 changes to slower, 1 to faster" in text
    largest = series.changes[1]
    assert bisect_command(series, largest).replace(" --from", " \\ --from") in text
    assert f"--from {THIRD} --to {FOURTH} --model vgg_16_s --np 2" in text


def test_nothing_found_is_said_and_nothing_is_advised():
    (line,) = report([made_series(Machine(noise=0.01))])
    assert line == "1 lines of two releases or more: 0 changes to slower, 0 to faster"
    one_release = series_of([raw_result()])
    assert next(report(one_release)).startswith("0 lines of two releases or more")
