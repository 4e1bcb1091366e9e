"""A series of nights: its lines, its lasting changes, and what makes it slower."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from hvdperf.records.documents import Result
from hvdperf.records.outcome import Measure
from hvdperf.timeline.lines import Standing
from hvdperf.timeline.nights.changes import bad_nodes, by_line, lines, marks
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import Accepted, Night, of_all_nodes, read_nights
from hvdperf.timeline.nights.series import Finding, FindingKind, Series
from hvdperf.timeline.nights.speed import ALL, FEWEST, Key, Scope, UsualSpeeds
from hvdperf.verdict import Verdict
from tests.support.nights import Year, nights, slowed, with_part


def test_planted_steps_are_found_and_nothing_else() -> None:
    found = by_line(nights(Year(0.01, networks=3, world_sizes=(1, 8)), 1)).changes
    for size in (1, 8):
        own = [each for each in found if each.line.name == f"throughput[network_0-np{size}]"]
        assert [each.step.change for each in own] == pytest.approx([0.97, 0.95, 0.9], abs=0.01)
        assert all(each.is_worse for each in own)
    drifting = {"throughput[network_1-np1]", "throughput[network_1-np8]"}
    assert {each.line.name for each in found if each.line.model != "network_0"} <= drifting


def test_a_host_that_took_over_is_no_bad_node_but_a_marked_change() -> None:
    calm = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=1, world_sizes=(8,))
    made = nights(calm, 2)
    moved = [
        with_part(slowed(night, 0.9), hosts=("gpu-03",)) if index >= 200 else night
        for index, night in enumerate(made)
    ]
    found = by_line(moved)
    assert found.nodes == []
    (change,) = found.changes
    assert change.since == f"{moved[200].night}"
    assert "hosts: gpu-01, gpu-02 -> gpu-03" in found.marks[200]


CALM = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=3, world_sizes=(1, 8))
MADE = nights(CALM, 1)[:40]
NODES = [f"gpu{index:02}" for index in range(12)]


def since(
    at: int, factor: float, until: int = 40, only: Callable[[str, int], bool] = lambda *_: True
) -> list[Night]:
    return [
        slowed(night, factor, only) if at <= index < until else night
        for index, night in enumerate(MADE)
    ]


def state(made: Sequence[Night], accepted: date = date.min) -> Series:
    return Series("a100", made, () if accepted == date.min else (Accepted(accepted, "new"),))


def test_half_the_throughput_is_red_on_the_first_night_and_on_all_later_ones() -> None:
    made = since(30, 0.5)
    known = {"gpu_driver": ["570.1"], "keras": "3.1", "tf32": "on"}
    made[30] = with_part(made[30], fingerprint={**made[30].parts[0].fingerprint, **known})
    assert all(night.verdict is Verdict.PASS for night in made), "the ratios are as they were"
    assert sorted(judge_speeds(made).falls) == list(range(30, 40))
    first = state(made[:31])
    assert first.verdict is Verdict.FAIL
    text, changed, isolate, closer, again, accept = first.slower()
    assert f"{made[30].command} --against PYTHON" in isolate
    assert again == f"reproduce: {made[30].command}"
    assert text.startswith(f"since the night of {made[30].night}: -")
    assert re.search(r"\(-5\d\.\d to -4\d\.\d\) samples/s of all 6 throughputs$", text)
    compared = [f"results/runs/{made[at].parts[0].session}" for at in (29, 30)]
    assert closer.endswith(": hvdperf compare " + " ".join(compared))
    assert changed.startswith(f"changed since {made[29].night}: ")
    assert "gpu_driver: 535.129.03 -> 570.1" in changed
    assert accept == "to accept it: hvdperf nightly accept --series a100 --why REASON"
    later = list(state(made).slower())
    assert later[0].startswith(f"since the night of {made[30].night}: ")
    assert "lasting" not in " ".join(later), "what stays is the same event"


def test_what_became_faster_is_as_well_watched_as_before() -> None:
    calm = nights(replace(CALM, networks=15), 1)[:80]
    before = judge_speeds(calm).reach[ALL]
    faster = [slowed(night, 1.5) if index >= 40 else night for index, night in enumerate(calm)]
    assert judge_speeds(faster).reach[ALL] == pytest.approx(before, abs=0.02)
    faster[-1] = slowed(faster[-1], 0.85)
    assert sorted(judge_speeds(faster).falls) == [79]


def test_an_acceptance_takes_the_fall_that_is_on_as_usual_and_no_bad_night_of_before() -> None:
    made = nights(replace(CALM, networks=15), 1)[:80]
    made[30] = slowed(made[30], 0.7)
    for index in range(50, 80):
        made[index] = slowed(made[index], 0.8 * (0.85 if index >= 70 else 1))
    accepted = (Accepted(made[60].night, "a new driver"),)
    fell = judge_speeds(made, accepted).falls
    assert sorted(fell) == [30, *range(50, 61), *range(70, 80)]
    assert fell[75].since is made[70]
    assert fell[75].usual is made[69]


@pytest.mark.parametrize(("machine", "first"), [(1.0, False), (0.5, True)])
def test_a_fall_is_told_beside_what_the_machine_does_without_horovod(
    machine: float, first: bool
) -> None:
    made = [
        replace(
            night,
            probe={
                "matrix product": 2e10 * (1 + 0.01 * (index % 3)) * (machine if index == 30 else 1),
                "copy": 8e9 * (1 + 0.01 * (index % 2)),
            },
        )
        for index, night in enumerate(since(30, 0.5)[:31])
    ]
    (told,) = [line for line in state(made).slower() if "without Horovod" in line]
    assert ("look at the machine first" in told) is first
    assert (re.search(r"matrix product -[45]\d", told) is not None) is first


def costing(made: Sequence[Night], measure: Measure, first: int, factor: float) -> list[Night]:
    """Return the nights with what launches took, by so much more from a night on."""
    found = []
    for index, night in enumerate(made):
        (part,) = night.parts
        taken = [
            math.exp(random.Random(f"{index} {each.model} {each.world_size}").gauss(1, 0.02))
            * (factor if index >= first else 1.0)
            for each in part.of(Measure.SPEED)
        ]
        costs = tuple(
            Result(measure, each.model, each.world_size, (value,))
            for each, value in zip(part.of(Measure.SPEED), taken, strict=True)
        )
        found.append(with_part(night, results=(*part.results, *costs)))
    return found


@pytest.mark.parametrize("measure", [Measure.START, Measure.MEMORY, Measure.DEVICE_MEMORY])
def test_what_launches_take_more_of_is_red_though_they_train_as_fast(measure: Measure) -> None:
    made = costing(since(40, 1.0), measure, 30, 1.25)
    assert sorted(judge_speeds(made).falls) == list(range(30, 40))
    told = next(state(made).slower())
    assert re.search(
        rf"since the night of {made[30].night}: \+2\d\.\d % \(\+\d+\.\d to \+\d+\.\d\) "
        rf"{measure.value} of all 6 networks and world sizes$",
        told,
    )
    assert not judge_speeds(costing(since(40, 1.0), measure, 30, 1.03)).falls
    assert not judge_speeds(costing(since(40, 1.0), measure, 30, 0.5)).falls, "less is better"


def test_what_falls_and_what_is_taken_more_of_is_one_event() -> None:
    made = costing(since(34, 0.8)[:36], Measure.START, 30, 1.25)
    told = list(state(made).slower())
    assert told[0].startswith(f"since the night of {made[30].night}: -2")
    assert "samples/s of all 6 throughputs; +2" in told[0]
    assert told[1].endswith(f"throughputs only since the night of {made[34].night}")
    (event,) = (each for each in happened(made) if each.is_open)
    assert (event.at, event.since) == (30, f"{made[30].night}")
    assert [command for _, command in event.commands][1:] == [
        made[-1].command,
        "hvdperf nightly accept --series a100 --why REASON",
    ]


def test_what_launches_took_is_judged_once_enough_nights_have_it() -> None:
    made = since(40, 1.0)
    made[30:] = costing(made[30:], Measure.START, 4, 1.5)
    assert not judge_speeds(made).falls, "ten nights, of which four are usual"


def test_a_repair_ends_both() -> None:
    for made in (since(10, 0.85, until=24), since(26, 0.5, until=36), since(20, 0.85, until=36)):
        assert not state(made).is_red
        standings = {each.standing for each in by_line(made).changes}
        assert standings <= {Standing.REPAIRED, Standing.BETTER}
    assert state(since(26, 0.5, until=38)).is_red, "two nights may be better by chance"
    for made in (since(20, 1.2), since(39, 2.0)):
        assert not state(made).is_red, "an improvement"
    assert happened(MADE) == []


def test_what_was_accepted_is_red_no_more_and_what_comes_after_it_is() -> None:
    for made in (since(20, 0.85), since(30, 0.5)):
        assert not state(made, accepted=made[-1].night).is_red
    made = since(25, 0.5)
    accepted = made[30].night
    assert not state(made, accepted).is_red
    fell = [*made[:39], slowed(made[39], 0.5)]
    assert state(fell, accepted).is_red


def test_an_efficiency_that_falls_because_one_replica_became_faster_is_not_red() -> None:
    made = []
    for index, night in enumerate(since(20, 1.2, only=lambda _, size: size == 1)):
        (part,) = night.parts
        rows = tuple(
            replace(row, figure=(row.figure or 0) / 1.2) if row.world_size == 8 else row
            for row in part.cases
        )
        made.append(with_part(night, cases=rows) if index >= 20 else night)
    assert Standing.FASTER in {each.standing for each in by_line(made).changes}
    assert not state(made).is_red


def test_a_disturbed_night_fails_nothing_and_is_no_measure() -> None:
    *before, last = since(30, 0.5)[:31]
    disturbed = with_part(last, disturbed="other programs took 40 %")
    for night in (disturbed, with_part(disturbed, results=())):
        found = state([*before, night])
        assert not found.is_red
        assert any(line.endswith(": other programs took 40 %") for line in found.slower())


def test_another_kind_of_machine_is_compared_with_its_own_nights() -> None:
    known = {**MADE[0].parts[0].fingerprint, "gpu_model": ["NVIDIA L4"]}
    moved = [with_part(night, fingerprint=known) for night in since(20, 0.5)[20:30]]
    assert judge_speeds([*MADE[:20], *moved]).falls == {}


@pytest.mark.parametrize("seed", range(4))
def test_quiet_years_never_fail(seed: int) -> None:
    """They are small ones, to be quick; docs/error_rates.md has the figures of large ones."""
    noise = (0.01, 0.02, 0.03)[seed % 3]
    quiet = replace(CALM, noise=noise, weekend=1.02, networks=2)
    made = nights(quiet, seed)
    assert judge_speeds(made).falls == {}
    assert not state(made).is_red


RECORDED = Path(__file__).with_name("recorded")


def test_a_recorded_night_is_read_whole():
    found = read_nights(RECORDED)
    assert found.left_out == ()
    (night,) = found.of["two-cores"]
    assert (night.verdict, night.is_whole) == (Verdict.FAIL, True)
    lines = {line.name for line in by_line([night]).lines}
    assert "weak_scaling[vgg_16_s-np2]" in lines
    assert "throughput[vgg_16_s-np2]" in lines


@pytest.mark.parametrize("nodes", [False, True], ids=["one session", "a session a node"])
def test_a_young_series_counts_down_to_the_night_that_is_judged(nodes: bool) -> None:
    made = (by_node(since(40, 1.0)) if nodes else MADE)[:14]
    first = next(count for count in range(14) if judge_speeds(made[:count]).last)
    assert first == (12 if nodes else FEWEST + 1)
    for count in range(1, first - 1):
        waits = judge_speeds(made[:count]).waits
        assert waits.endswith(f": {first - 1 - count}")
        assert waits in list(state(made[:count]).slower())
    assert judge_speeds(made[: first - 1]).waits.endswith("from the next night on")
    assert judge_speeds(made[:first]).waits == ""
    assert 0 < judge_speeds(made[:first]).reach[ALL] < 1
    fell = [*made[: first - 1], slowed(made[first - 1], 0.5)]
    assert state(fell).is_red, "the first that is judged"


def test_a_node_that_was_disturbed_is_told_and_the_others_are_judged() -> None:
    *before, last = by_node(since(40, 1.0))
    parts = [
        replace(part, disturbed="a compiler") if part.node == "gpu05" else part
        for part in last.parts
    ]
    found = state([*before, replace(last, parts=tuple(parts))])
    assert found.speeds.last
    assert "gpu05 is not judged, because it was disturbed: a compiler" in list(found.slower())
    alone = [part for part in last.parts if part.node == "gpu05"][:1]
    few = replace(alone[0], results=alone[0].results[:1])
    assert "too few were measured" in judge_speeds([*before, replace(last, parts=(few,))]).waits


def by_node(made: Sequence[Night], slow: Mapping[str, float] = MappingProxyType({})) -> list[Night]:
    """Return the nights as each node measured them of itself. slow: factors from a night on."""
    found = []
    for index, night in enumerate(made):
        docs = []
        for at, node in enumerate(NODES):
            factor = (1 + at / 100) * (slow.get(node, 1.0) if index >= 30 else 1.0)
            factor *= math.exp(random.Random(f"{index} {node}").gauss(0, 0.01))
            own = with_part(slowed(night, factor), hosts=(node,), node=node)
            docs.append(replace(own, node=node))
        found.append(of_all_nodes(docs))
    return found


def beyond_all() -> list[Night]:
    """Return nights of which the last is slower, one network more than the others."""
    *before, last = since(20, 0.85)[:21]
    return [*before, slowed(last, 0.8, only=lambda model, _: model == "network_1")]


def of_one_network_of_two() -> list[Night]:
    *before, last = nights(replace(CALM, networks=2, world_sizes=(1, 2, 4, 8)), 1)[:31]
    return [*before, slowed(last, 0.8, only=lambda model, _: model == "network_1")]


NETWORK, NODE = Key(Scope.NETWORK, "network_1"), Key(Scope.NODE, "gpu05")


@pytest.mark.parametrize(
    ("made", "nights_that_fell", "what", "told"),
    [
        (since(30, 0.5), range(30, 40), [ALL], r"of all 6 throughputs$"),
        (
            since(20, 0.85, only=lambda model, _: model == "network_1"),
            range(20, 40),
            [NETWORK],
            r"^-1.* samples/s of network_1$",
        ),
        (of_one_network_of_two(), [30], [NETWORK], "samples/s of network_1$"),
        (beyond_all(), [20], [ALL, NETWORK], r"; beyond that network_1 another -\d+\.\d %$"),
        (by_node(since(40, 1.0), {"gpu05": 0.8}), range(30, 40), [NODE], "samples/s of gpu05$"),
        (
            by_node(since(30, 0.85)[:31], {"gpu05": 0.8}),
            [30],
            [ALL, NODE],
            r"^-1\d\.\d % .* of all 6 throughputs on 12 of 12 nodes; beyond that gpu05 another -",
        ),
    ],
)
def test_a_fall_is_found_at_once_and_told_of_what_fell(
    made: Sequence[Night], nights_that_fell: Sequence[int], what: list[Key], told: str
) -> None:
    falls = judge_speeds(made).falls
    assert list(falls) == list(nights_that_fell)
    fall = falls[len(made) - 1]
    assert fall.what == [(Measure.SPEED, key) for key in what]
    assert re.search(told, fall.told)
    assert fall.since is made[min(falls)]
    assert judge_speeds(made).suspects == fall.what
    of_network = " --models network_1" * (what == [NETWORK])
    assert fall.again == f"{made[-1].command}{of_network}"
    on_a_node = ("reproduce, on gpu05", fall.again) in fall.commands()
    assert on_a_node is (what == [NODE])


def test_a_few_per_cent_less_and_small_steps_are_red_in_the_end() -> None:
    assert min(judge_speeds(since(20, 0.95)[:23]).falls) in (20, 21, 22)
    made = nights(replace(CALM, noise=0.003), 2)[:120]
    steps = [slowed(night, 0.985 ** (at // 30)) for at, night in enumerate(made)]
    assert not state(steps[:89]).fall
    assert state(steps).fall, "1.5 % three times"


def test_a_node_that_does_not_come_is_told() -> None:
    made = without_parts(by_node(since(40, 1.0)), "gpu05", 39)
    assert not state(made).is_red
    assert any("gpu05" in line for line in state(made).slower())


def test_hosts_that_rotate_mark_no_night_and_the_slow_one_is_named() -> None:
    draw = random.Random(1)
    made = []
    for night in nights(replace(CALM, networks=2), 1)[:60]:
        hosts = tuple(sorted(draw.sample(NODES, 3)))
        made.append(with_part(slowed(night, 0.92 if "gpu05" in hosts else 1.0), hosts=hosts))
    assert [line for told in marks(made[8:]).values() for line in told if "hosts" in line] == []
    assert [node.hosts for node in bad_nodes(made, lines(made))] == [("gpu05",)]


def on_hosts(names: Iterable[str], factors: Mapping[str, float]) -> list[Night]:
    """Return a night on each of these hosts, slower by the host's factor."""
    made = nights(replace(CALM, networks=6), 1)
    return [
        with_part(slowed(night, factors.get(name, 1.0)), hosts=(name,))
        for night, name in zip(made, names, strict=False)
    ]


def test_hosts_that_differ_a_little_fail_nothing_and_hide_no_fall() -> None:
    rests = "aaaaaaaaaabbbbbbbbbb" * 4
    made = on_hosts(rests, {"b": 0.96})
    first, *later = judge_speeds(made).falls.items()
    assert first[0] == rests.index("b")
    assert all(fall.excuse for _, fall in (first, *later))
    assert len(later) <= 2
    for at in (71, 65):  # on either host
        fell = [*made[:at], slowed(made[at], 0.9)]
        assert not judge_speeds(fell).falls[at].excuse, rests[at]


def test_a_new_host_that_is_much_slower_fails_at_once() -> None:
    falls = judge_speeds(on_hosts("a" * 30 + "b", {"b": 0.85})).falls
    assert not falls[30].excuse


def test_where_each_night_has_a_host_of_its_own_a_fall_fails_at_once() -> None:
    names = [f"runner-{number}" for number in range(31)]
    falls = judge_speeds(on_hosts(names, {names[30]: 0.95})).falls
    assert not falls[30].excuse


@pytest.mark.parametrize(("count", "fails"), [(3, False), (9, False), (40, True)])
def test_a_rise_is_a_level_only_if_it_lasted(count: int, fails: bool) -> None:
    calm = nights(replace(CALM, networks=6), 1)[: 44 + count]
    made = [slowed(n, 1.08) if 40 <= at < 40 + count else n for at, n in enumerate(calm)]
    falls = judge_speeds(made).falls
    assert sorted(falls) == [*range(40 + count, 44 + count)] * fails
    if fails:
        assert falls[40 + count].higher_since == made[40].night


@pytest.mark.parametrize(("correlation", "tail"), [(0.7, 0), (0.0, 5)])
def test_how_all_throughputs_vary_together_is_learned(correlation: float, tail: int) -> None:
    draw = np.random.default_rng(3)
    keys = [Key(Scope.THROUGHPUT, f"n{number}", 1) for number in range(20)]
    found = 0
    for _ in range(6):
        usual, of_all = UsualSpeeds(), 0.0
        for _ in range(365):
            new = draw.standard_t(tail) * math.sqrt(0.6) if tail else draw.normal()
            of_all = correlation * of_all + math.sqrt(1 - correlation**2) * new
            own = np.exp(0.015 * of_all + 0.007 * draw.normal(size=len(keys)))
            speeds = usual.compare({"": dict(zip(keys, own, strict=True))})
            fell = any(speed.fell for speed in speeds.values())
            found += fell
            if not fell:
                usual.keep()
    assert found <= 6


@pytest.mark.parametrize(
    ("correlation", "tail", "is_too_wild"), [(0.7, 0, False), (0.97, 0, True), (0.0, 3, True)]
)
def test_noise_outside_of_the_supported_range_is_reported(
    correlation: float, tail: int, is_too_wild: bool
) -> None:
    draw, of_all, made = np.random.default_rng(0), 0.0, []
    for night in nights(replace(CALM, noise=0.007, networks=8), 0)[:250]:
        new = draw.standard_t(tail) / math.sqrt(3) if tail else draw.normal()
        of_all = correlation * of_all + math.sqrt(1 - correlation**2) * new
        made.append(slowed(night, math.exp(0.015 * of_all)))
    assert judge_speeds(made).is_too_wild is is_too_wild


def test_a_fall_at_one_world_size_is_not_spread_over_its_networks() -> None:
    made = [*MADE[:-1], slowed(MADE[-1], 0.8, lambda _, world_size: world_size == 8)]
    fall = judge_speeds(made).on
    assert fall is not None
    assert {key.world_size for _, key in fall.what} == {8}
    fallen = [fall.changes[measure][key].change for measure, key in fall.what]
    assert fallen == pytest.approx([0.8] * 3, abs=0.03)


@pytest.mark.parametrize(("networks", "count"), [(3, 40), (15, 120)])
def test_few_nights_and_quiet_ones_are_within_the_supported_range(
    networks: int, count: int
) -> None:
    # Of few nights the tails are not known yet; of many throughputs the least scale is too large.
    year = replace(CALM, noise=0.007, networks=networks)
    assert not judge_speeds(nights(year, 0)[:count]).is_too_wild


def drifting(rate: float, noise: float, start: int, count: int, seed: int) -> list[Night]:
    """Return nights whose throughputs all lose this share a night from a night on."""
    year = replace(CALM, noise=noise, networks=6, world_sizes=(1, 2, 4))
    made = nights(year, seed)[:count]
    return [
        slowed(night, math.exp(-rate * max(0, at - start + 1))) for at, night in enumerate(made)
    ]


# From the first night on, and from a later one.
@pytest.mark.parametrize(
    ("rate", "noise", "start"), [(0.001, 0.003, 40), (0.003, 0.003, 1), (0.002, 0.007, 40)]
)
def test_a_drift_is_red_once_it_has_lost_about_4_per_cent(
    rate: float, noise: float, start: int
) -> None:
    made = drifting(rate, noise, start, start + round(0.07 / rate), 1)
    falls = judge_speeds(made).falls
    lost = 1 - math.exp(-rate * (min(falls) - start + 1))
    assert 0.037 < lost < 0.053
    assert falls[len(made) - 1].since is made[min(falls)], "one event, with one date"
    assert state(made).is_red
    told = state(made).speeds.last[Measure.SPEED][ALL]
    assert told.change == pytest.approx(0.93, abs=0.012), "all that is lost by now"


# A hundred nights at the usual level, and then so much a night.
@pytest.mark.parametrize("noise", [0.007, 0.015])
@pytest.mark.parametrize("rate", [0.001, 0.003])
def test_what_drifts_together_is_one_finding_with_its_rate_and_its_start(
    rate: float, noise: float
) -> None:
    made = drifting(rate, noise, 100, 100 + math.ceil(0.05 / rate), 1)
    (finding,) = state(made).current
    assert finding.kind is FindingKind.DRIFT
    assert abs(finding.at - 100) <= 8
    ((name, _, _, change, *_),) = finding.amounts
    assert name == "all"
    assert change == pytest.approx(0.95, abs=0.01)
    later = drifting(rate, noise, 100, len(made) + 30, 1)
    stays = [
        *made,
        *(
            slowed(n, 0.95 / math.exp(-rate * (len(made) - 99 + at)))
            for at, n in enumerate(later[len(made) :])
        ),
    ]
    (finding,) = state(stays).current
    assert "until" in finding.told


@pytest.mark.parametrize("after", [5, 20, 60])
def test_a_step_and_a_season_are_no_drift(after: int) -> None:
    made = nights(replace(CALM, noise=0.007, networks=6), 1)
    step = [slowed(night, 0.95 if at >= 90 else 1.0) for at, night in enumerate(made[: 90 + after])]
    kinds = {finding.kind for finding in state(step).current}
    assert FindingKind.FALL in kinds
    assert FindingKind.DRIFT not in kinds
    year = [
        slowed(night, math.exp(0.02 * math.cos(2 * math.pi * (at + 3 * after) / 365)))
        for at, night in enumerate(made)
    ]
    assert FindingKind.DRIFT not in {finding.kind for finding in state(year).findings}


@pytest.mark.parametrize(("factor", "later"), [(1.5, 10), (10.0, 40), (10.0, 80), (0.1, 80)])
def test_a_wild_night_blinds_no_later_one(factor: float, later: int) -> None:
    made = nights(replace(CALM, networks=6), 4)[: 41 + later]
    made[40] = slowed(made[40], factor)
    quiet = judge_speeds(made)
    assert not quiet.on
    assert quiet.reach[ALL] > 0.93
    assert len(made) - 1 in judge_speeds([*made[:-1], slowed(made[-1], 0.85)]).falls


def test_a_fall_is_listed_from_its_first_night_until_two_nights_of_three_are_back() -> None:
    factors = {**dict.fromkeys(range(20, 30), 0.85), 25: 1.0, **dict.fromkeys(range(30, 37), 0.95)}
    made = [slowed(night, factors.get(at, 1.0)) for at, night in enumerate(MADE)]
    for seen in range(21, 39):
        found = state(made[:seen])
        assert found.is_red
        assert found.fall is not None
        assert found.fall.since.night == made[20].night, seen
    assert "last seen on the night of" in " ".join(state(made[:26]).slower())
    assert not state(made[:39]).fall


def without_parts(made: Sequence[Night], node: str, at: int) -> list[Night]:
    """Return the nights without a node's parts from one on."""
    return [
        replace(night, parts=tuple(part for part in night.parts if index < at or part.node != node))
        for index, night in enumerate(made)
    ]


def test_a_slow_node_that_vanishes_is_red_until_it_is_measured_and_sound_or_accepted() -> None:
    made = without_parts(by_node(MADE, {"gpu05": 0.8}), "gpu05", 33)
    found = state(made)
    assert found.is_red
    assert found.fall is not None
    assert (found.fall.since, found.fall.night) == (made[30], made[32])
    assert found.fall.what == [(Measure.SPEED, Key(Scope.NODE, "gpu05"))]
    accepted = state(made, accepted=made[-1].night)
    assert (accepted.verdict, accepted.missing) == (Verdict.PASS, {})
    later = (Accepted(made[36].night, "gone"),)
    assert Series("a100", made, later).verdict is Verdict.PASS
    sound = [*made[:37], *by_node(MADE)[37:]]
    assert state(sound[:38]).is_red, "one night may be good by chance"
    assert state(sound).verdict is Verdict.PASS


def kept(night: Night, is_kept: Callable[[str, int], bool]) -> Night:
    """Return the night with only these throughputs."""
    (part,) = night.parts
    results = tuple(each for each in part.results if is_kept(each.model, each.world_size))
    return with_part(night, results=results)


@pytest.mark.parametrize(
    ("gone", "is_kept"),
    [
        ("network_1", lambda model, _: model != "network_1"),
        ("network_1-np8", lambda *key: key != ("network_1", 8)),
    ],
    ids=["network", "world size"],
)
def test_what_is_no_longer_measured_is_missing_until_it_is_or_is_accepted(
    gone: str, is_kept: Callable[[str, int], bool]
) -> None:
    made = [kept(night, is_kept) if at >= 30 else night for at, night in enumerate(MADE)]
    for seen in (31, 40):
        found = state(made[:seen])
        assert found.missing == {gone: made[30].night}
        assert found.verdict is Verdict.NOT_RUN
    (finding,) = found.findings
    assert (finding.kind, finding.since) == (FindingKind.MISSING, f"{made[30].night}")
    assert [each.name for each in finding.amounts] == [gone]
    assert state(made, accepted=made[30].night).verdict is Verdict.PASS
    assert state([*made[:39], MADE[39]]).verdict is Verdict.PASS


def test_what_comes_only_now_and_then_is_not_missing() -> None:
    weekly = [
        kept(night, lambda model, _: model != "network_1") if at % 7 else night
        for at, night in enumerate(nights(CALM, 1)[:70])
    ]
    assert state(weekly[:69]).missing == {}
    assert state([*weekly, *weekly[1:7], *weekly[1:7]]).missing


# What happened, each event once ------------------------------------------------------------------

FEW = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=2, world_sizes=(1, 2))
# A network, of both, from this night on.
STEP = replace(FEW, steps={80: 0.85})


def happened(made: list[Night], *accepted: Accepted) -> list[Finding]:
    return Series("a100", made, accepted).findings


def test_a_fall_that_lasts_and_its_lines_are_one_event_that_asks_nothing_once_accepted() -> None:
    made = nights(STEP, 1)[:120]
    (event,) = happened(made)
    assert event.is_open
    assert "samples/s of network_0" in event.told
    names = {change.line.name for change in event.changes}
    assert names == {"throughput[network_0-np1]", "throughput[network_0-np2]"}
    (event,) = happened(made, Accepted(made[-1].night, "a new driver"))
    assert event.standing is Standing.ACCEPTED
    assert event.notes[-1] == "accepted: a new driver"
    assert not any("accept" in command for _, command in event.commands)


def test_a_night_that_fell_and_came_back_stays_listed_as_repaired() -> None:
    made = nights(FEW, 1)[:60]
    made[40] = slowed(made[40], 0.7)
    (event,) = happened(made)
    assert event.standing is Standing.REPAIRED
    assert event.notes[0] == f"seen at once on 1 night, the last on {made[40].night}"


def test_what_became_better_is_an_event_of_its_own_after_the_open_ones() -> None:
    both = replace(FEW, steps={80: 1.15, 140: 0.8})
    found = happened(nights(both, 1)[:200])
    assert [event.standing for event in found] == [Standing.OPEN, Standing.BETTER]
    better = found[1]
    assert len(better.changes) == 2
    assert better.told.startswith("+1")
    assert "and 1 more line of network_0" in better.told


def test_a_network_that_loses_what_it_had_gained_is_back_where_it_was() -> None:
    gained = replace(FEW, noise=0.005, steps={80: 1.1, 140: 1 / 1.1})
    worse, better = happened(nights(gained, 1)[:200])
    assert (worse.is_open, better.standing) == (True, Standing.BETTER)
    assert f"back where it was before {better.since}" in worse.notes
    lost_more = replace(gained, steps={80: 1.1, 140: 0.85})
    assert not any(
        "back where" in note for each in happened(nights(lost_more, 1)[:200]) for note in each.notes
    )
