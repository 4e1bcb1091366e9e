"""Changes and bad nodes of made-up years."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.nights import BAD, FIRST, Year, nights
from hvdperf.timeline.nights.night import Night
from hvdperf.timeline.nights.series import bad_nodes, findings, lines, marks

SMALL = Year(0.01, networks=3, world_sizes=(1, 8))


@pytest.fixture(scope="module")
def year() -> list[Night]:
    return nights(SMALL, 1)


def test_a_line_is_a_case_or_a_throughput_over_the_nights(year: list[Night]) -> None:
    found = {line.name: line for line in lines(year)}
    assert len(found) == 2 * 3 * 2
    line = found["throughput[network_0-np8]"]
    assert line.at == tuple(range(len(year)))
    assert len(year) == 355, "ten are missing"
    assert line.verdicts == ()
    assert len(found["weak_scaling[network_0-np8]"].verdicts) == 355


def test_planted_steps_are_found_and_nothing_else(year: list[Night]) -> None:
    found = findings(year).changes
    first = [each for each in found if each.line.name.startswith("throughput[network_0")]
    sizes = {1: [], 8: []}  # type: ignore[var-annotated]
    for each in first:
        sizes[each.line.world_size].append(each.step.change)
        assert each.is_worse
    for found_sizes in sizes.values():
        assert found_sizes == pytest.approx([0.97, 0.95, 0.9], abs=0.01)
    others = {each.line.name for each in found if each not in first}
    assert others <= {"throughput[network_1-np1]", "throughput[network_1-np8]"}, "those that drift"


def test_what_changed_that_night_is_marked(year: list[Night]) -> None:
    found = findings(year).changes
    # The steps of a drift lie anywhere, so also beside a night on other hosts.
    sudden = [each for each in found if each.line.model == "network_0"]
    marked = {each.since: each.marks for each in sudden if each.marks}
    days = {(night.began_at - FIRST).days: night for night in year}
    told = "gpu_driver: 535.129.03 -> 550.54.15"
    # A line may place the change a night or two beside the driver's.
    assert marked.pop(f"{days[180].night}") == (told,)
    assert set(marked.values()) <= {(f"{told} ({days[180].night})",)}
    at = next(i for i, night in enumerate(year) if night is days[180])
    assert "gpu_driver: 535.129.03 -> 550.54.15" in marks(year)[at]


def test_bad_nodes_are_named_and_left_out(year: list[Night]) -> None:
    found = bad_nodes(year, lines(year))
    assert sorted(node.hosts for node in found) == sorted(BAD)
    for node in found:
        assert node.nights == 4
        assert node.lines == 6, "their throughputs"
        assert node.change == pytest.approx(0.92, abs=0.01)


def test_a_host_that_took_over_is_no_bad_node_but_a_marked_change() -> None:
    calm = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=1, world_sizes=(8,))
    made = nights(calm, 2)
    moved = []
    for index, night in enumerate(made):
        part = night.part()
        assert part is not None
        if index >= 200:
            slower = tuple(
                replace(each, samples_per_second=tuple(0.9 * x for x in each.samples_per_second))
                for each in part.speeds
            )
            part = replace(part, hosts=("gpu-03",), speeds=slower)
        moved.append(replace(night, parts=(part,)))
    found = findings(moved)
    assert found.nodes == []
    (change,) = found.changes
    assert change.since == f"{moved[200].night}"
    assert "hosts: gpu-01, gpu-02 -> gpu-03" in change.marks
