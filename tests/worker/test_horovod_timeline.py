"""What is read from a Horovod timeline: real files, hand-made ones, cut ones, and no timelines."""

from __future__ import annotations

import json
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvdperf.worker import horovod_timeline
from hvdperf.worker.horovod_timeline import Interval, Timeline, length, union

# Two steps of alexnet_s on two ranks, and the barrier before them, as Horovod 0.28.1 wrote them.
DATA = Path(__file__).with_name("data")
REAL = {"MPI": DATA / "timeline_mpi.json", "GLOO": DATA / "timeline_gloo.json"}
TENSORS = 16


def begin(name: str, micros: float, tensor: int = 1) -> dict[str, Any]:
    return {"ph": "B", "name": name, "ts": micros, "pid": tensor}


def end(micros: float, tensor: int = 1) -> dict[str, Any]:
    return {"ph": "E", "ts": micros, "pid": tensor}


def pair(name: str, first: float, last: float, tensor: int = 1) -> list[dict[str, Any]]:
    return [begin(name, first, tensor), end(last, tensor)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "timeline.json"


def read_text(file: Path, text: str) -> Timeline:
    file.write_text(text)
    return horovod_timeline.read(str(file))


def read_events(file: Path, *events: dict[str, Any]) -> Timeline:
    return read_text(file, json.dumps(events))


def refusal(file: Path) -> str:
    """The one line that says what is wrong with the file."""
    with pytest.raises(ValueError) as raised:
        horovod_timeline.read(str(file))
    message = str(raised.value)
    assert type(raised.value) is ValueError
    assert message.startswith(str(file))
    assert "\n" not in message
    return message


# Real files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", REAL)
def test_a_real_file_has_every_tensor_of_every_step(library: str) -> None:
    recorded = horovod_timeline.read(str(REAL[library]))
    assert recorded.closed
    # The barrier is not fused.
    events = 2 * TENSORS + 1
    assert {name: len(intervals) for name, intervals in recorded.activities.items()} == {
        "NEGOTIATE_ALLREDUCE": events,
        "ALLREDUCE": events,
        f"{library}_ALLREDUCE": events,
        "MEMCPY_IN_FUSION_BUFFER": events - 1,
        "MEMCPY_OUT_FUSION_BUFFER": events - 1,
    }
    # What fused tensors do together is counted once.
    carried = recorded.activities[f"{library}_ALLREDUCE"]
    assert length(carried) > 5 * length(recorded.wire())
    assert recorded.seconds()[f"{library}_ALLREDUCE"] == length(recorded.wire())
    assert 0 < length(recorded.wire()) < recorded.seconds()["ALLREDUCE"]
    # What came before the steps is left out.
    _, barrier_ended = recorded.activities["ALLREDUCE"][0]
    steps = recorded.after(barrier_ended)
    assert {len(intervals) for intervals in steps.activities.values()} == {2 * TENSORS}
    assert recorded.after(1e9).activities == {}


def test_a_file_cut_anywhere_tells_what_is_before_the_cut(file: Path) -> None:
    whole = REAL["GLOO"].read_bytes()
    file.write_bytes(whole)
    seconds = length(horovod_timeline.read(str(file)).wire())
    events = 2 * TENSORS + 1
    # At every seventh byte, which is any place within an event.
    for size in range(len(whole) - 1, 0, -7):
        os.truncate(file, size)
        recorded = horovod_timeline.read(str(file))
        assert not recorded.closed
        before, seconds = seconds, length(recorded.wire())
        assert 0 <= seconds <= before
        assert events >= len(recorded.activities.get("GLOO_ALLREDUCE", []))
        events = len(recorded.activities.get("GLOO_ALLREDUCE", []))
    assert (seconds, events) == (0, 0)
    os.truncate(file, 0)
    assert "is empty" in refusal(file)


# Hand-made ones --------------------------------------------------------------------------------


def test_activities_of_a_tensor_nest(file: Path) -> None:
    recorded = read_events(
        file,
        *pair("NEGOTIATE_ALLREDUCE", 0, 10),
        begin("ALLREDUCE", 20),
        *pair("QUEUE", 21, 25),
        *pair("NCCL_ALLREDUCE", 30, 40),
        end(50),
    )
    assert recorded.seconds() == pytest.approx(
        {"NEGOTIATE_ALLREDUCE": 1e-5, "QUEUE": 4e-6, "NCCL_ALLREDUCE": 1e-5, "ALLREDUCE": 3e-5}
    )
    assert recorded.wire() == [(3e-5, 4e-5)]


def test_fused_tensors_repeat_an_event(file: Path) -> None:
    starts = [begin("MPI_ALLREDUCE", 100 + tensor, tensor) for tensor in range(50)]
    ends = [end(1000 + tensor, tensor) for tensor in range(50)]
    recorded = read_events(file, *starts, *ends)
    assert recorded.wire() == [(100e-6, 1049e-6)]
    assert length(recorded.activities["MPI_ALLREDUCE"]) == pytest.approx(50 * 900e-6)


def test_the_wire_is_what_libraries_carry_whatever_they_are(file: Path) -> None:
    carried = "MPI_ALLREDUCE MPI_ADASUM_ALLREDUCE GLOO_BCAST NCCL_REDUCESCATTER CCL_ALLREDUCE"
    local = (
        "NEGOTIATE_ALLREDUCE ALLREDUCE QUEUE WAIT_FOR_DATA INIT_NCCL INIT_FUSION_BUFFER "
        "MEMCPY_IN_HOST_BUFFER ALLOCATE_OUTPUT"
    )
    names = f"{carried} {local}".split()
    events = []
    for i, name in enumerate(names):
        events += pair(name, 10 * i, 10 * i + 5)
    recorded = read_events(file, *events)
    assert set(recorded.activities) == set(names)
    assert len(recorded.wire()) == len(carried.split())


def test_only_whole_intervals_are_activities(file: Path) -> None:
    recorded = read_events(
        file,
        end(0),
        {"ph": "i", "name": "CYCLE_START", "ts": 1, "s": "g"},
        begin("NEGOTIATE_ALLREDUCE", 2),
        {"ph": "X", "name": "0", "ts": 3, "pid": 1, "dur": 0},
        {"ph": "X", "name": "1", "ts": 4, "pid": 1},
        end(5),
        {"ph": "X", "name": "MPI_BCAST", "ts": 10, "pid": 1, "dur": 5},
        begin("QUEUE", 18),
    )
    assert recorded.activities == {
        "NEGOTIATE_ALLREDUCE": [(2e-6, 5e-6)],
        "MPI_BCAST": [(10e-6, 15e-6)],
    }
    assert recorded.wire() == [(10e-6, 15e-6)]


@pytest.mark.parametrize(
    ("ending", "closed"),
    [
        ("]", True),
        ("", False),
        (",", False),
        (",\n]", True),
        (', {"ph": "B", "na', False),
        (', {"ph": "E", "ts": 3', False),
        (', {"ph": "E", "x": tru', False),
        (', {"ph": "E", "args": {"dtype": "float32"}', False),
        (', {"ph": "B", "name": "back\\', False),
        (', {"ph": "B", "name": "\\u00', False),
    ],
)
def test_an_array_may_end_in_many_ways(file: Path, ending: str, closed: bool) -> None:
    events = ", ".join(json.dumps(event) for event in pair("QUEUE", 1, 2))
    recorded = read_text(file, "[\n" + events + ending)
    assert recorded.activities == {"QUEUE": [(1e-6, 2e-6)]}
    assert recorded.closed is closed


def test_an_event_may_lie_across_two_reads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = horovod_timeline.read(str(REAL["MPI"]))
    for characters in (1000, 1001, 4096):
        monkeypatch.setattr(horovod_timeline, "CHUNK", characters)
        assert horovod_timeline.read(str(REAL["MPI"])) == expected


def test_memory_is_that_of_the_intervals_and_not_of_the_text(file: Path) -> None:
    argument = ', "args": {"shape": "' + "x" * 400 + '"}'
    with file.open("w") as stream:
        stream.write("[")
        for i in range(20_000):
            begun = f'{{"ph": "B", "name": "QUEUE", "ts": {2 * i}, "pid": 1{argument}}},\n'
            stream.write(begun + f'{{"ph": "E", "ts": {2 * i + 1}, "pid": 1}},')
    tracemalloc.start()
    recorded = horovod_timeline.read(str(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(recorded.activities["QUEUE"]) == 20_000
    assert file.stat().st_size > 8e6
    assert peak < 8e6


# No timelines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\x7fELF\x00\x01\x02\xff\xfe" * 50, "begins with"),
        (b"Traceback (most recent call last):\n", "begins with 'Traceback '"),
        (b'{"traceEvents": []}', "not with '['"),
        (b'[{"ph": "M"}, [3]]', "event 1 is '[3]]', not an object"),
        (b'[{"ph": 3}]', "event 0 has no phase"),
        (b'[{"ph": "B", "ts": 1, "pid": 1}]', "event 0 has no name"),
        (b'[{"ph": "B", "name": "QUEUE", "pid": 1}]', "event 0 has no time ('ts')"),
        (b'[{"ph": "E", "ts": "1", "pid": 1}]', "event 0 has no time"),
        (b'[{"ph": "E", "ts": 1e999, "pid": 1}]', "event 0 has no time"),
        (b'[{"ph": "E", "ts": NaN, "pid": 1}]', "NaN is not a number"),
        (b'[{"ph": "E", "ts": 1' + b"0" * 5000 + b', "pid": 1}]', "xceeds the limit"),
        (b'[{"ph": "E", "ts": 1}]', "event 0 has no process"),
        (b'[{"ph": "E", "ts": 1, "pid": {}}]', "event 0 has no process"),
        (b'[{"ph": "X", "name": "QUEUE", "ts": 5, "pid": 1, "dur": -1}]', "ends before it begins"),
        (
            b'[{"ph": "B", "name": "QUEUE", "ts": 5, "pid": 1}, {"ph": "E", "ts": 4, "pid": 1}]',
            "event 1 ends before it begins (QUEUE)",
        ),
        (b'[{"ph": "M"}, {"ph" "M"}]', "event 1 is damaged"),
        (b'[{"ph": "M", "x": \x00\x01\x02\x03\x04\x05\x06\x07\x08}]', "event 0 is damaged"),
        (b'[{"ph": "M"}][{"ph": "M"}]', "after its end comes"),
        (b'[{"ph": ' + b"[" * 100_000, "event 0 is too deep"),
        (b'[{"ph": "' + b"x" * 3_000_000, "event 0 does not end"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_no_timeline_is_refused_in_a_line(file: Path, content: bytes, says: str) -> None:
    file.write_bytes(content)
    assert says in refusal(file)


# The fixture only names a file, whose content every example writes anew.
FUZZ = settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
EVENTS = st.lists(
    st.dictionaries(
        st.sampled_from(["ph", "name", "ts", "dur", "pid", "tid", "args"]),
        st.one_of(st.sampled_from(["B", "E", "X", "M", "i", "process_name"]), JSON),
    ),
    max_size=6,
)


def read_or_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        found = horovod_timeline.read(str(file))
    except ValueError:
        refusal(file)
    else:
        assert all(first <= last for pairs in found.activities.values() for first, last in pairs)
        assert length(found.wire()) <= sum(found.seconds().values()) * (1 + 1e-9)


@FUZZ
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(file: Path, content: bytes) -> None:
    read_or_refused(file, content)
    read_or_refused(file, b"[" + content)
    read_or_refused(file, b'[{"ph": "B", ' + content + b"}]")


@FUZZ
@given(EVENTS)
def test_any_events_are_read_or_refused(file: Path, events: list[dict[str, Any]]) -> None:
    read_or_refused(file, json.dumps(events).encode())


@FUZZ
@given(st.data(), st.sampled_from(["MPI", "GLOO"]), st.binary(max_size=12))
def test_a_damaged_recording_is_read_or_refused(
    file: Path, data: st.DataObject, library: str, new: bytes
) -> None:
    content = REAL[library].read_bytes()
    start = data.draw(st.integers(0, len(content)))
    gone = data.draw(st.integers(0, 200))
    read_or_refused(file, content[:start] + new + content[start + gone :])


def test_a_file_that_is_not_there_or_no_file_is_refused_too(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "none.json")
    assert "cannot be read" in refusal(tmp_path)


# Unions ----------------------------------------------------------------------------------------


def test_intervals_that_touch_or_overlap_become_one() -> None:
    assert union([(5, 6), (0, 2), (1, 3), (3, 4), (0, 1)]) == [(0, 4), (5, 6)]
    assert union([]) == []


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    micros = st.integers(0, 10**6)
    pairs = draw(st.lists(st.tuples(micros, micros), min_size=1, max_size=40))
    return [(min(ends) / 1e6, max(ends) / 1e6) for ends in pairs]


@given(intervals())
def test_a_union_is_between_the_longest_and_the_sum(given: list[Interval]) -> None:
    merged = union(given)
    slack = 1e-9
    assert length(merged) <= length(given) + slack
    assert length(merged) >= max(end - begin for begin, end in given) - slack
    assert all(first[1] < second[0] for first, second in pairwise(merged))
    # Nothing is lost, nothing is made up.
    assert all(any(b <= begin and end <= e for b, e in merged) for begin, end in given)
    edges = {edge for interval in given for edge in interval}
    assert {edge for interval in merged for edge in interval} <= edges
    assert union(merged) == merged
