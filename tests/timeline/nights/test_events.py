"""What happened to a series, each event once."""

from __future__ import annotations

from dataclasses import replace

from bench.nights import Year, fingerprint, nights
from hvdperf.timeline.nights.changes import Standing
from hvdperf.timeline.nights.night import Accepted, Night
from hvdperf.timeline.nights.series import Event, Series, events
from tests.support.nights import slowed

CALM = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=2, world_sizes=(1, 2))
# A network, of both, from this night on.
STEP = replace(CALM, steps={80: 0.85})


def happened(made: list[Night], *accepted: Accepted) -> list[Event]:
    return events(Series("a100", made, accepted))


def with_another_driver(night: Night) -> Night:
    (part,) = night.parts
    return replace(night, parts=(replace(part, fingerprint=fingerprint("570.1")),))


def test_a_calm_series_has_no_events() -> None:
    assert happened(nights(CALM, 1)[:120]) == []


def test_a_fall_of_all_throughputs_is_one_event_with_what_changed() -> None:
    made = nights(CALM, 1)[:60]
    made[-1] = with_another_driver(slowed(made[-1], 0.7))
    (event,) = happened(made)
    assert (event.at, event.since, event.is_open) == (59, f"{made[-1].night}", True)
    assert event.told.endswith("samples/s of all 4 throughputs")
    assert event.notes[:1] == [
        f"changed since {made[-2].night}: gpu_driver: 535.129.03 -> 570.1",
    ]
    session = [night.parts[0].session for night in made[-2:]]
    assert [command for _, command in event.commands] == [
        f"hvdperf compare results/runs/{session[0]} results/runs/{session[1]}",
        made[-1].command,
        "hvdperf nightly accept --series a100 --why REASON",
    ]


def test_a_fall_that_lasts_and_its_lines_are_one_event() -> None:
    (event,) = happened(nights(STEP, 1)[:120])
    assert event.is_open
    assert "samples/s of network_0" in event.told
    names = {change.line.name for change, _ in event.changes}
    assert names == {"throughput[network_0-np1]", "throughput[network_0-np2]"}


def test_what_was_accepted_says_why_and_asks_nothing() -> None:
    made = nights(STEP, 1)[:120]
    (event,) = happened(made, Accepted(made[-1].night, "a new driver"))
    assert event.standing is Standing.ACCEPTED
    assert event.notes[-1] == "accepted: a new driver"
    assert not any("accept" in command for _, command in event.commands)


def test_a_night_that_fell_and_came_back_stays_listed_as_repaired() -> None:
    made = nights(CALM, 1)[:60]
    made[40] = slowed(made[40], 0.7)
    (event,) = happened(made)
    assert event.standing is Standing.REPAIRED
    assert event.notes[0] == f"seen at once on 1 night, the last on {made[40].night}"


def test_what_became_better_is_an_event_of_its_own_after_the_open_ones() -> None:
    both = replace(CALM, steps={80: 1.15, 140: 0.8})
    found = happened(nights(both, 1)[:200])
    assert [event.standing for event in found] == [Standing.OPEN, Standing.BETTER]
    better = found[1]
    assert len(better.changes) == 2
    assert better.told.startswith("+1")
    assert "and 1 more line of network_0" in better.told
