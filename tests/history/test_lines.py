"""The same figures, along either axis."""

from __future__ import annotations

from hvdperf.history.lines import lines
from hvdperf.history.releases import Axis
from tests.support.histories import REPLICA, raw_result

ONE, TWO = ("vgg_16_s", 1), ("vgg_16_s", 2)


def test_a_line_goes_along_the_releases_of_its_axis():
    results = [
        raw_result("0.28.1", "2.16.2", {ONE: [3.0, 4.0]}, number=1),
        raw_result("0.28.0", "2.16.2", {ONE: [1.0, 2.0]}, number=2),
        raw_result("0.28.1", "2.18.1", {ONE: [5.0]}, number=3),
    ]
    along_horovod = lines(results, Axis.HOROVOD)
    assert [(line.at, line.versions) for line in along_horovod] == [
        ("2.16.2", ("0.28.0", "0.28.1")),
        ("2.18.1", ("0.28.1",)),
    ]
    assert [point.samples_per_second for point in along_horovod[0].points] == [1.0, 2.0, 3.0, 4.0]
    along_tensorflow = lines(results, Axis.TENSORFLOW)
    assert [(line.at, line.versions) for line in along_tensorflow] == [
        ("0.28.0", ("2.16.2",)),
        ("0.28.1", ("2.16.2", "2.18.1")),
    ]
    assert {line.replica for line in along_tensorflow} == {REPLICA}


def test_sessions_of_one_stack_follow_each_other():
    results = [
        raw_result(speeds={ONE: [3.0]}, number=2),
        raw_result(speeds={ONE: [1.0, 2.0]}, number=1),
    ]
    (line,) = lines(results, Axis.HOROVOD)
    assert line.samples_per_second("0.28.1") == [1.0, 2.0, 3.0]
    assert line.samples_per_second("0.28.0") == []


def test_machines_world_sizes_and_networks_are_lines_of_their_own():
    results = [
        raw_result(speeds={ONE: [1.0], TWO: [2.0]}, number=1),
        raw_result(speeds={ONE: [1.0], ("alexnet_s", 1): [9.0]}, number=2, kernel="6.2.0"),
    ]
    found = [(line.machine, line.model, line.world_size) for line in lines(results, Axis.HOROVOD)]
    assert len(found) == len(set(found)) == 4


def test_nothing_measured_is_no_line():
    assert lines([], Axis.HOROVOD) == []
