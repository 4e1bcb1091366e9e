"""What the plugin does about signals, and about files that other plugins write."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.plan.arms import BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import fixed_time, memory, strong_scaling, sweep, weak_scaling
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import Round, Run
from hvdperf.session import plugin, pytest_options
from hvdperf.session.ending import ending
from hvdperf.verdict import Judgement, Verdict
from hvdperf.work.blocks import turns_of
from tests.support.rounds import (
    HOROVOD_2,
    WORKLOAD,
    launch,
    one_round,
    outcome,
    run_report,
)

SESSION: Any = None


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the session that these tests are a part of, afterwards."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(each) for each in signals]
    yield
    for each, handler in zip(signals, before, strict=True):
        signal.signal(each, handler)


def test_under_nohup_a_session_goes_on():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    plugin.pytest_sessionstart(SESSION)
    signal.raise_signal(signal.SIGHUP)


@pytest.mark.parametrize(
    ("signum", "said"), [(signal.SIGTERM, "by SIGTERM"), (signal.SIGHUP, "nohup")]
)
def test_a_signal_ends_the_session_as_ctrl_c_does_and_once_and_the_last_line_names_it(
    monkeypatch, signum, said
):
    interruptions: list[str] = []
    monkeypatch.setattr("hvdperf.session.plugin.interruptions", interruptions)
    signal.signal(signum, signal.SIG_DFL)
    plugin.pytest_sessionstart(SESSION)
    assert callable(signal.getsignal(signum)), "it would end this process"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signum)
    signal.raise_signal(signum)  # and cuts nothing short that cleans up
    assert said in ending(2, [], *interruptions)


def test_a_test_that_all_ranks_of_an_mpirun_would_have_to_run_is_refused(monkeypatch):
    for name, value in (("RANK", "0"), ("SIZE", "2"), ("LOCAL_SIZE", "2")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    monkeypatch.setattr("hvdperf.session.plugin.comparison_of", lambda item: item.comparison)
    case = SimpleNamespace(
        path=Path("perf/test_scaling.py"), name="case", nodeid="", comparison=WEAK
    )
    other = SimpleNamespace(
        path=Path("test_mpi.py"), name="test_barrier", nodeid="", comparison=None
    )
    session: Any = SimpleNamespace(items=[case, other], config=SimpleNamespace(stash={}))
    with pytest.raises(pytest.UsageError, match=r"test_mpi.py::test_barrier: only rank 0"):
        plugin.pytest_collection_finish(session)
    session.items = [other]
    plugin.pytest_collection_finish(session)


def test_a_file_that_was_only_checked_does_not_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D", "expanded")
    option = SimpleNamespace(xmlpath="$D/x.xml", benchmark_json=Path("$D/x.json"))
    config: Any = SimpleNamespace(option=option)
    pytest_options.check_files_of_others(config)
    assert {path.name: list(path.iterdir()) for path in tmp_path.iterdir()} == {
        "expanded": [],
        "$D": [],
    }
    Path("$D/x.json").write_text("earlier")
    pytest_options.check_files_of_others(config)
    assert Path("$D/x.json").read_text() == "earlier"
    option.benchmark_json = "$D"
    with pytest.raises(pytest.UsageError, match=r"--benchmark-json \$D: cannot be written"):
        pytest_options.check_files_of_others(config)


@pytest.mark.parametrize(
    ("option", "value", "harmless"),
    [
        ("numprocesses", 2, None),
        ("tx", ["2*popen"], []),
        ("reruns", 1, None),
        ("count", 3, 1),
        ("forked", True, False),
        ("timeout", 60.0, 0.0),
        ("benchmark_skip", True, False),
    ],
)
def test_plugins_that_cut_repeat_spread_or_isolate_cases_are_refused(option, value, harmless):
    config: Any = SimpleNamespace(option=SimpleNamespace(**{option: value}))
    with pytest.raises(pytest.UsageError) as refused:
        pytest_options.refuse_other_plugins(config)
    instead = "--budget" in str(refused.value)
    assert instead == (option == "timeout"), "what cuts a session where that is meant"
    setattr(config.option, option, harmless)
    pytest_options.refuse_other_plugins(config)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error")])
@pytest.mark.parametrize("directory", [Path("runs/it"), None])
def test_what_hinders_the_tables_is_a_line_and_no_more(error, directory):
    def fail(*status: object, **given: object) -> None:
        raise error

    suite: Any = SimpleNamespace(directory=directory)
    hook = SimpleNamespace(pytest_hvdperf_tables=fail)
    for suite.archive in (fail, lambda status: "archive"):
        (line,) = plugin.tables_of(suite, hook, 0)
        assert line.startswith("no tables: ")
        make_them = line.endswith("hvdperf report runs/it --format terminal")
        assert make_them == (directory is not None)


pytest_plugins = ["pytester"]
WEAK = weak_scaling(WORKLOAD, 2)

CASE = """
    import pytest
    from hvdperf.session.plugin import ReplayedClock

    clock = ReplayedClock()

    @pytest.mark.benchmark(timer=clock.block_seconds)
    def test_case(benchmark):
        clock.replay([0.5, 0.25, 2.0], benchmark)
"""


def test_the_rounds_of_the_benchmark_are_the_durations(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASE)
    run = pytester.runpytest_inprocess
    run("--benchmark-disable", "-p", "no:cacheprovider").assert_outcomes(passed=1)
    run("--benchmark-json=out.json", "-p", "no:cacheprovider").assert_outcomes(passed=1)
    (benchmark,) = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    assert benchmark["stats"]["data"] == [0.5, 0.25, 2.0]


def test_a_run_is_a_round() -> None:
    comparison = fixed_time(WORKLOAD, 2)
    measured = outcome(comparison, (0.9, 0.91))
    for each in measured.rounds:
        each.of(comparison.candidate.arm).work = Run([run_report(samples=640)] * 2)
    assert recorded(measured).durations == [2.0, 2.0]


def test_a_turn_of_collective_operations_is_a_round_of_all_sizes() -> None:
    (measured, *_) = (outcome(asked, (3.0, 4.0)) for asked in sweep(WORKLOAD, 2))
    told = recorded(measured)
    # Seven sizes of 30 ms each in the first round's three turns, then of 40 ms.
    assert told.durations == pytest.approx([0.21] * 3 + [0.28] * 3)
    assert told.extra_info["case"] == "collective_overhead[allreduce-sweep-np2]"
    assert recorded(outcome(measured.comparison, (), verdict=Verdict.FAIL)).durations == []


class FakeBenchmark:
    """What record uses of the benchmark fixture; durations are read off the timer."""

    def __init__(self, clock: plugin.ReplayedClock) -> None:
        self.extra_info: dict[str, Any] = {}
        self.durations: list[float] = []
        self._timer = clock.block_seconds

    def pedantic(self, target: Any, rounds: int, iterations: int) -> None:
        assert iterations == 1
        for _ in range(rounds):
            before = self._timer()
            target()
            self.durations.append(self._timer() - before)


def recorded(measured: Outcome) -> FakeBenchmark:
    clock = plugin.ReplayedClock()
    benchmark = FakeBenchmark(clock)
    plugin.record(clock, measured, benchmark)
    return benchmark


def test_the_verdict_goes_along() -> None:
    benchmark = recorded(outcome(WEAK, (0.8,) * 5 + (0.5,)))
    # 640 samples at 1600 and at 1000 samples a second.
    assert benchmark.durations == pytest.approx([0.4] * 15 + [0.64] * 3)
    told = recorded(outcome(WEAK, (0.8,) * 6)).extra_info
    assert told["case"] == "weak_scaling[resnet_50_s-np2]"
    assert told["word"] == "PASS"
    assert told["figure"]["estimate"] == pytest.approx(0.8)
    assert told["world_size"] == 2
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_only_the_candidates_kind_of_block_is_recorded() -> None:
    comparison = strong_scaling(WORKLOAD, 2)
    measured = outcome(comparison, (0.8,))
    more = launch(HOROVOD_2, {BlockKind.FULL: 1.0})
    turns_of(measured.rounds[0].of(HOROVOD_2)).blocks += more.blocks
    assert recorded(measured).durations == pytest.approx([0.2] * 3)


def test_a_run_that_failed_records_those_before_it() -> None:
    asked = memory(WORKLOAD, 2)
    rounds = [one_round(asked, 1.0, number) for number in range(3)]
    for measured in rounds[:2]:
        measured.of(HOROVOD_2).work = Run([run_report(seconds=3.0), run_report(seconds=4.0)])
    failure = Failure(HOROVOD_2.name, 1, "run", "killed by SIGKILL")
    assert recorded(failed(asked, failure, *rounds)).durations == pytest.approx([4.0] * 2)
    assert recorded(failed(asked, failure, rounds[2])).durations == []


def failed(asked: Comparison, failure: Failure, *rounds: Round) -> Outcome:
    judgement = Judgement(Verdict.FAIL, None, None, 0, str(failure))
    return Outcome(asked, judgement, rounds=rounds, failure=failure)
