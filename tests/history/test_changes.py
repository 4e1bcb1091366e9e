"""Change points as changes of releases, and as text for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.change_points import Machine, made_line
from hvdperf.history.changes import can_change, change_of, report
from hvdperf.history.otava import ChangePoint
from hvdperf.history.releases import Axis

# Five releases of 8 launches each, of which the third begins at 16, and is 10 % slower.
LINE = made_line(Machine(noise=0.001), {"2.16.2": 0.9})


def point(index: int, before: float = 500.0, after: float = 450.0, p: float = 0.0004):
    return ChangePoint(index, LINE.points[index % 40].version, before, after, p)


@pytest.mark.parametrize("index", range(13, 20))
def test_a_change_point_is_meant_for_the_nearest_beginning_of_a_session(index):
    change = change_of(LINE, point(index, 500, 300))
    assert (change.before, change.since) == ("2.15.1", "2.16.2")
    assert change.is_of_release
    assert change.word == "slower: regression"
    # Of the sessions' medians, wherever the change point was found.
    assert change.size == pytest.approx(-0.1, abs=0.003)


@pytest.mark.parametrize("index", [1, 4, 12, 20, 36])
def test_within_a_session_no_release_can_have_changed_anything(index):
    change = change_of(LINE, point(index, 400, 500))
    assert change.before == change.since == LINE.points[index].version
    assert not change.is_of_release
    assert change.word == "the machine"
    assert change.size == pytest.approx(0.25)


def test_between_two_sessions_of_a_release_it_was_the_machine():
    # Two sessions each: the third release begins at 32, and its second session at 40.
    line = made_line(Machine(noise=0.02, sessions=2))
    machine, release = change_of(line, point(39)), change_of(line, point(33))
    assert (machine.before, machine.since) == ("2.16.2", "2.16.2")
    assert not machine.is_of_release
    assert machine.word == "the machine"
    assert (release.before, release.since) == ("2.15.1", "2.16.2")


def test_both_directions_are_told_with_version_size_and_p():
    line = made_line(Machine(noise=0.0), {"2.15.1": 0.9, "2.17.1": 1.07})
    lines = report([line], [[point(8), point(24, p=0.0)]])
    assert all(len(line) <= 80 for line in lines)
    assert "made-up: releases of TensorFlow, with Horovod 0.28.1" in " ".join(lines[:2])
    slower, faster = (" ".join(line.split()) for line in lines if line.startswith("  vgg_16_s"))
    assert slower == "vgg_16_s 2 2.15.1 2.14.1 -10.0 % 0.000400 slower: regression"
    assert faster == "vgg_16_s 2 2.17.1 2.16.2 +7.0 % <0.000001 faster: explain it"
    assert "1 changes to slower, 1 to faster" in " ".join(lines)


def test_the_largest_change_is_the_one_to_bisect():
    line = made_line(Machine(noise=0.0), {"2.15.1": 0.96, "2.17.1": 1.12})
    text = " ".join(report([line], [[point(8), point(24)]]))
    assert "--along tensorflow --at 0.28.1" in text
    assert "--from 2.16.2 --to 2.17.1 --model vgg_16_s --np 2" in text


def test_changes_are_grouped_by_machine_and_axis():
    another = replace(LINE, machine="another", world_size=1)
    along = replace(LINE, axis=Axis.HOROVOD, at="2.18.1")
    lines = report([LINE, another, along, replace(LINE, world_size=4)], [[point(16)]] * 4)
    headings = [line.split(",")[0] for line in lines if "releases of " in line]
    assert headings == [
        "another: releases of TensorFlow",
        "made-up: releases of Horovod",
        "made-up: releases of TensorFlow",
    ]


def test_nothing_found_is_said_and_nothing_is_advised():
    assert report([LINE], [[]]) == [
        "1 lines of two releases or more: 0 changes to slower, 0 to faster"
    ]
    assert report([], []) == ["0 lines of two releases or more: 0 changes to slower, 0 to faster"]


def test_a_line_of_one_release_cannot_change():
    assert can_change(LINE)
    assert not can_change(replace(LINE, points=LINE.points[:8]))
