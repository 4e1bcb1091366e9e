"""What Horovod prints of a stalled or mismatched collective, and who is at fault."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hvdperf.launch.processes import DIAGNOSIS_LINES, TAIL_LINES, mismatch_in, stall_in, tail_of

# As Horovod 0.28.1 printed it for two ranks, of which rank 1 left out an allreduce.
WARNING = (
    "[2026-11-25 12:42:32.294324: W src/horovod/common/stall_inspector.cc:107] One or more tensors "
    "were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than 2 seconds. This may indicate that different ranks are trying "
    "to submit different tensors or that only subset of ranks is submitting tensors, which will "
    "cause deadlock. "
)
STALLED = [
    WARNING,
    "Missing ranks:",
    "1: [HorovodAllreduce]",
    WARNING,
    "Missing ranks:",
    "1!: [HorovodAllreduce]",
    'One or more rank (marked by "!") is stalled for longer than 5 seconds. Will shutdown.',
]
MISMATCH = (
    "{{function_node __wrapped__HorovodAllreduce_device_/job:localhost/replica:0/task:0/device:"
    "CPU:0}} Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [4], but another "
    "rank sent a tensor of shape [5]. [Op:HorovodAllreduce] name: grad.dense.kernel"
)


@pytest.mark.parametrize(
    ("missing", "ranks", "fault"),
    [
        (["1: [a, b]"], 2, 1),
        (["0: [a]"], 2, 0),
        (["2!: [a]", "3!: [a]"], 4, 2),
        (["0: [a]", "1: [b]"], 2, None),
        (["0: [barrier]", "1: [a]", "2: [barrier]", "3: [barrier]"], 4, 1),
        (["1: [a, b, c, d, e ...]"], 2, 1),
    ],
)
def test_the_missing_rank_is_at_fault(missing, ranks, fault):
    stall = stall_in(["before", WARNING, "Missing ranks:", *missing, "Traceback", "1: [x]"])
    assert stall is not None
    assert stall.rank_at_fault(ranks) == fault
    assert {line.partition("[")[0].rstrip(": !") for line in missing} == set(
        map(str, stall.tensors)
    )
    assert all(str(rank) in str(stall) for rank in stall.tensors)
    assert stall.gave_up is ("!" in missing[0])
    assert "x" not in next(iter(stall.tensors.values()))


def test_the_last_report_counts():
    stall = stall_in([WARNING, "Missing ranks:", "0: [old]", *STALLED])
    assert stall is not None
    assert stall.tensors == {1: ("HorovodAllreduce",)}
    assert stall_in(["1: [a]", "Traceback (most recent call last):"]) is None


def test_a_stall_is_over_if_no_report_follows():
    def report(at: datetime, mark: str = "") -> list[str]:
        warning = WARNING.replace("2026-11-25 12:42:32", f"{at:%Y-%m-%d %H:%M:%S}")
        return [warning, "Missing ranks:", f"1{mark}: [a]"]

    now, before = datetime.now(), datetime.now() - timedelta(minutes=1)
    assert [
        stall is not None and stall.lasts
        for stall in (
            stall_in(report(now)),
            stall_in(report(before)),
            stall_in(report(before, "!")),
            stall_in([*report(before), *report(now)]),
            stall_in(["Missing ranks:", "1: [a]"]),  # HOROVOD_LOG_HIDE_TIME
        )
    ] == [True, False, True, True, True]


def test_a_report_is_kept_that_is_not_among_the_last_lines(tmp_path: Path):
    path = tmp_path / "stderr"
    path.write_text("\n".join([*["noise"] * 30, *STALLED * 3, *map(str, range(50))]))
    tail = tail_of(path)
    assert tail[-TAIL_LINES:] == [str(each) for each in range(50)][-TAIL_LINES:]
    assert "noise" not in tail
    assert len(tail) == DIAGNOSIS_LINES + TAIL_LINES
    stall = stall_in(tail)
    assert stall is not None
    assert stall.tensors == {1: ("HorovodAllreduce",)}


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (MISMATCH, "grad.dense.kernel"),
        (
            "Graph execution error:\n\nDetected at node step/HorovodAllreduce_grads_3 defined at "
            "(most recent call last):\n<stack traces unavailable>\nMismatched ALLREDUCE tensor "
            "shapes: One rank sent a tensor of shape [4], but another rank sent a tensor of shape "
            "[5].\n\t [[{{node step/HorovodAllreduce_grads_3}}]] [Op:__inference_step_7]",
            "step/HorovodAllreduce_grads_3",
        ),
    ],
)
def test_a_mismatch_names_its_tensor(message, named):
    told = mismatch_in(message)
    assert told.startswith("Mismatched ")
    assert named in told
    assert "[Op" not in told
    assert mismatch_in("bad shape") == ""


def test_a_failure_does_not_show_what_tensorflow_says_of_every_gpu(tmp_path: Path):
    path = tmp_path / "stderr"
    path.write_text(
        "2026-11-26 01:44:54.913836: E external/cuda_fft.cc:477] Unable to register cuFFT factory: "
        "Attempting to register factory for plugin cuFFT when one has already been registered\n"
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "I0000 00:00:1795657496.965007    5340 gpu_device.cc:2022] Created device\n"
        "W0000 00:00:1795657496.965007    5340 bfc_allocator.cc:501] ran out of memory\n"
        "[1,1]<stderr>:I0000 00:00:1795657496.965007    5340 cuda_dnn.cc:529] Loaded cuDNN\n"
        "an error\n"
    )
    assert [line.split()[-1] for line in tail_of(path)] == ["memory", "error"]
