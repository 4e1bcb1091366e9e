"""The pytest plugin: options, roles under mpirun, outcomes, exit status, summary."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from hvdperf.json_records import plain
from hvdperf.launch import helpers, outer
from hvdperf.launch.slots import Slots
from hvdperf.paths import CHECKOUT, SHIPPED, path_of, shown
from hvdperf.plan.comparisons import Comparison, RoundGroup
from hvdperf.records.archive import Archive
from hvdperf.records.documents import properties
from hvdperf.records.outcome import Outcome
from hvdperf.session import pytest_options
from hvdperf.session.ending import UNFIT, ending, exit_status, explanation
from hvdperf.session.pytest_session import PytestSession, Unfit
from hvdperf.verdict import Verdict, counted, worst
from hvdperf.work.table import work_of


class ReplayedClock:
    """A clock that stands still until a block is replayed, and then advances by its duration."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def block_seconds(self) -> float:
        """Return the time; this is the timer of a benchmark."""
        return self._seconds

    def replay(self, durations: Sequence[float], benchmark: Any) -> None:
        """Record the durations (seconds) as the rounds of a benchmark.

        `pedantic` with one iteration a round is used because calibration cannot read such a timer.
        """
        pending = iter(durations)

        def advance() -> None:
            self._seconds += next(pending)

        benchmark.pedantic(advance, rounds=len(durations), iterations=1)


def record(clock: ReplayedClock, outcome: Outcome, benchmark: Any) -> None:
    """Record the durations of the candidate's blocks, start-ups, runs or collective operations,
    with the verdict as extra_info."""
    comparison, judgement = outcome.comparison, outcome.judgement
    work, arm = work_of(comparison.question), comparison.candidate.arm
    launches = [measured.of(arm) for measured in outcome.rounds if measured.has(arm)]
    seconds = [each for launch in launches for each in work.durations(comparison, launch)]
    if seconds:
        benchmark.extra_info.update(
            case=comparison.name,
            word=judgement.verdict.value,
            figure=plain(judgement.figure),
            threshold=plain(judgement.rule),
            rounds=judgement.rounds,
            world_size=comparison.world_size,
        )
        clock.replay(seconds, benchmark)


_suite = pytest.StashKey[PytestSession]()
_slots = pytest.StashKey[Slots]()
_outcome = pytest.StashKey[Outcome]()
_status = pytest.StashKey[int]()
_clock = pytest.StashKey[ReplayedClock]()
_nodes = pytest.StashKey[dict[Comparison, str]]()

# Where pytest-benchmark keeps its files, as pytest.ini has it.
_STORAGE = "file://./results/benchmark"
# Keywords of pytest's terminal writer.
MARKUP: Mapping[Verdict, Mapping[str, bool]] = {
    Verdict.FAIL: {"red": True, "bold": True},
    Verdict.INVALID: {"yellow": True},
    Verdict.NOT_RUN: {"yellow": True},
    Verdict.INCONCLUSIVE: {"yellow": True},
    Verdict.PASS: {"green": True},
    Verdict.INFO: {},
}
_WORDS = re.compile(rf"\b({'|'.join(verdict.value for verdict in MARKUP)})\b")


class Hooks:
    """The hooks that other plugins may implement."""

    @pytest.hookspec(firstresult=True)
    def pytest_hvdperf_tables(self, archive: Archive) -> list[str] | None:
        """Return lines that show a session's cases, written or not."""

    @pytest.hookspec(firstresult=True)
    def pytest_hvdperf_written(self, directory: Path, config: pytest.Config) -> str | None:
        """Process a session's documents at its end; return a line for the terminal."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    pytest_options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "question(ask, smallest=2, largest=inf, against_from=smallest): the comparisons of a test",
    )
    # Of a case without a figure: there is nothing to record.
    config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used at all")
    config.addinivalue_line("markers", "mpirun: starts real process groups; slow")
    if config.option.dry_run:
        config.option.collectonly = True
    if CHECKOUT is not None and config.option.benchmark_storage == _STORAGE:
        # Otherwise pytest-benchmark makes this directory wherever pytest is typed.
        config.option.benchmark_storage = f"file://{CHECKOUT / 'results' / 'benchmark'}"
    if holds_cases(config):
        with pytest_options.refusing(config):
            outer.check_launcher()
        pytest_options.refuse_other_plugins(config)
        if not pytest_options.asks_for_tables(config):
            config.option.benchmark_quiet = True
        # Hypothesis's plugin imports all of hypothesis for the summary. That takes a second, and
        # after Ctrl-C mpirun leaves the session no more than one second for everything.
        config.pluginmanager.set_blocked("hypothesispytest")
        if not config.option.collectonly:
            pytest_options.check_files_of_others(config)
            if outer.launcher() != os.getpid():  # after `mpirun python -m pytest`, too
                helpers.end_with_parent(signal.SIGTERM)
    if getattr(config.option, "numprocesses", None) and outer.outer_size() > 1:
        raise pytest.UsageError(
            "pytest-xdist (-n) cannot be combined with mpirun, under which every rank is a slot; "
            "leave out -n"
        )
    if outer.outer_size() > 1:
        # In every session, because the other ranks wait until this one publishes its address.
        with pytest_options.refusing(config):
            config.stash[_slots] = Slots(config.option.network or "")


def measured_by(config: pytest.Config) -> PytestSession:
    """Return this pytest's session, planned on first use. Bad input ends pytest with one line."""
    if _suite not in config.stash:
        with pytest_options.refusing(config):
            config.stash[_suite] = PytestSession(config, config.stash.get(_slots, None))
            if config.option.dry_run:
                config.stash[_suite].check_before_a_dry_run()
    return config.stash[_suite]


# Collecting ------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Plan before collecting, so that bad input gives one line and not a collection error."""
    if holds_cases(session.config):
        measured_by(session.config)


def holds_cases(config: pytest.Config) -> bool:
    """Return whether the command line may name cases: in the checkout, if an argument is perf/,
    lies in it or contains it. Other projects ask for this plugin, so they have cases anywhere."""
    if config.rootpath != CHECKOUT:
        return True
    perf = SHIPPED / "perf"
    paths = map(path_of, config.args)
    return any(path.is_relative_to(perf) or perf.is_relative_to(path) for path in paths)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("question")
    if marker is None:
        return
    sizes = {"smallest": 2, **marker.kwargs}
    # A user who names a file wants its cases, even if the profile does not ask them.
    named = metafunc.definition.path.resolve() in map(path_of, metafunc.config.args)
    comparisons = measured_by(metafunc.config).session_plan.comparisons(**sizes, anyway=named)
    metafunc.parametrize(
        "comparison", comparisons, ids=[comparison.case for comparison in comparisons]
    )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Drop the tests of questions that this session does not ask, which pytest would report as
    skipped."""
    found = yield
    if not isinstance(found, list):
        return found
    return [
        item for item in found if comparison_of(item) or not item.get_closest_marker("question")
    ]


def comparison_of(item: pytest.Item) -> Comparison | None:
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("comparison") if callspec is not None else None
    return found if isinstance(found, Comparison) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the cases by the rounds that they share, and give each case its clock. Keep
    pytest-timeout from cutting a case, which waits for the rounds of others."""
    groups: dict[RoundGroup, int] = {}
    places: dict[pytest.Item, int] = {}
    for item in items:
        comparison = comparison_of(item)
        if comparison is not None:
            places[item] = groups.setdefault(comparison.round_group, len(groups))
            clock = item.stash[_clock] = ReplayedClock()
            group = comparison.question.value
            item.add_marker(pytest.mark.benchmark(timer=clock.block_seconds, group=group))
            if config.pluginmanager.has_plugin("timeout"):
                item.add_marker(pytest.mark.timeout(0))
    items.sort(key=lambda item: places.get(item, -1))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    nodes = {
        comparison: item.nodeid
        for item in session.items
        if (comparison := comparison_of(item)) is not None
    }
    session.config.stash[_nodes] = nodes
    others = [item for item in session.items if comparison_of(item) is None]
    if nodes and others and outer.outer_size() > 1:
        raise pytest.UsageError(
            f"{shown(others[0].path)}::{others[0].name}: only rank 0 would run this test, because "
            f"the other ranks of {outer.started_by().name} are slots for the cases; run it in a "
            "pytest of its own"
        )
    if nodes:
        measured_by(session.config).selected = list(nodes)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    if _suite not in config.stash:
        return []
    suite = config.stash[_suite]
    arms = list(dict.fromkeys(arm.name for c in suite.selected for arm in c.arms))
    lines = suite.session_plan.describe()
    slots = config.stash.get(_slots, None)
    if slots is not None and (interface := slots.interface) is not None:
        lines.append(
            f"hosts: {', '.join(suite.session_plan.slots_of_hosts())}; network "
            f"{interface.network} ({interface.name} on {suite.machine.host})"
        )
    lines += suite.how_launched_and_set()
    if not suite.selected and len(suite.session_plan.slots) == 1:
        lines.append(
            "no case: with one slot there is nothing to compare; start with mpirun -np 2, let the "
            "session have more cores, or give --np 2 --oversubscribe"
        )
    if config.option.collectonly:
        lines.append(f"arms: {', '.join(arms)}")
        if missing := suite.without_threshold():
            lines.append(f"cases without a threshold: {', '.join(missing)}")
    return lines


# Running ---------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Prepare measuring, with a look at the installed stack, before the first case."""
    if _suite in session.config.stash and not session.config.option.collectonly:
        suite = session.config.stash[_suite]
        if suite.selected:
            try:
                with pytest_options.refusing(session.config):
                    suite.prepare()
            except Unfit:
                return True  # nothing is measured, and the summary says why
    return None


@pytest.fixture
def measure(request: pytest.FixtureRequest, benchmark: Any) -> Callable[[Comparison], Outcome]:
    """Return a function that measures a comparison and returns its outcome. It skips the case if
    the verdict is INFO."""

    def measured(comparison: Comparison) -> Outcome:
        outcome = measured_by(request.config).outcome(comparison)
        request.node.stash[_outcome] = outcome
        record(request.node.stash[_clock], outcome, benchmark)
        request.node.user_properties += properties(outcome)
        if outcome.judgement.verdict is Verdict.INFO:
            pytest.skip(f"{Verdict.INFO.value}: {outcome.judgement.reason}")
        return outcome

    return measured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    outcome = item.stash.get(_outcome, None)
    if outcome is not None and report.when == "call":
        word = outcome.judgement.verdict.value
        report.verdict = word  # type: ignore[attr-defined]
        if report.failed and isinstance(call.excinfo and call.excinfo.value, AssertionError):
            report.longrepr = explanation(outcome)
    return report


def pytest_report_teststatus(report: Any) -> tuple[str, str, Any] | None:
    word = getattr(report, "verdict", None)
    if word is None or report.when != "call":
        return None
    return word.lower(), word[0], (word, MARKUP[Verdict(word)])


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Set the exit status to that of the worst verdict, unless something else went wrong."""
    config = session.config
    if _suite in config.stash:
        suite = config.stash[_suite]
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = _exit_status(session, suite)
        node = config.stash.get(_nodes, {}).__getitem__
        session.exitstatus = suite.finish(int(session.exitstatus), node)
    config.stash[_status] = int(session.exitstatus)
    return (yield)


def _exit_status(session: pytest.Session, suite: PytestSession) -> int:
    if session.config.option.collectonly:
        return int(session.exitstatus)
    fine = (Verdict.PASS, Verdict.INFO)
    if session.testsfailed > sum(o.judgement.verdict not in fine for o in suite.reported):
        return 1  # something besides the verdicts failed
    if not suite.selected:
        return int(session.exitstatus)
    if suite.is_refused:
        return UNFIT
    return exit_status(suite.verdicts)


# This wraps the summaries of all other plugins, so that verdicts come last, below tracebacks and
# warnings.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    try:
        return (yield)
    finally:
        suite = config.stash.get(_suite, None)
        # Another project may have no case among its tests.
        is_asked = config.rootpath == CHECKOUT or (suite is not None and suite.selected)
        if suite is not None and is_asked and not config.option.collectonly:
            _summarize(suite, terminalreporter, config)


def _summarize(suite: PytestSession, terminalreporter: Any, config: pytest.Config) -> None:
    status = config.stash.get(_status, int(pytest.ExitCode.INTERNAL_ERROR))
    count = Counter(outcome.judgement.verdict for outcome in suite.decided)
    title = f"hvdperf: {counted(count) or 'nothing measured'}"
    terminalreporter.section(title, **MARKUP[worst(list(count))])
    markup = config.get_terminal_writer().markup
    tables = tables_of(suite, config.hook, status)
    for text in [*tables, *suite.lines(), *suite.next_steps]:
        terminalreporter.write_line(painted(text, markup))
    if suite.directory is not None:
        # After Ctrl-C mpirun may leave no time for more.
        terminalreporter.flush()
        hook = config.hook.pytest_hvdperf_written
        written = hook(directory=suite.directory.resolve(), config=config)
        if written is not None:
            terminalreporter.write_line(written)
    terminalreporter.write_line(painted(ending(status, suite.verdicts, *interruptions), markup))


def tables_of(suite: PytestSession, hook: Any, status: int) -> list[str]:
    """Return the lines of the session's tables, or else a line that says why there are none and how
    to make them. An error there, or Ctrl-C, loses nothing else of the summary."""
    try:
        archive = suite.archive(status)
        if archive is None:
            return []
        made: list[str] | None = hook.pytest_hvdperf_tables(archive=archive)
        return made or []
    except KeyboardInterrupt:
        why = "interrupted"
    except Exception as error:  # noqa: BLE001 - the verdicts are there whatever it is
        why = " ".join(f"{type(error).__name__}: {error}".split())
    if suite.directory is None:
        return [f"no tables: {why}"]
    command = f"hvdperf report {shlex.quote(shown(suite.directory))} --format terminal"
    return [f"no tables: {why}; to make them: {command}"]


def painted(text: str, markup: Callable[..., str]) -> str:
    """Return the text with its verdict words in colour. markup: marks up a text with the keywords
    of MARKUP; returns it unchanged if no colours are shown."""
    return _WORDS.sub(lambda word: markup(word[0], **MARKUP[Verdict(word[0])]), text)


# Why this process is being interrupted, the first reason first.
interruptions: list[str] = []


# This runs before pytest's own hook, which fails if the terminal has been closed.
@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if _suite in config.stash:
        config.stash[_suite].close()
    if _slots in config.stash:
        config.stash[_slots].release(config.stash.get(_status, int(pytest.ExitCode.USAGE_ERROR)))


def pytest_sessionstart(session: pytest.Session) -> None:
    # mpirun passes Ctrl-C on to its ranks as SIGTERM.
    signal.signal(signal.SIGTERM, _end)
    # Under nohup SIGHUP is ignored, and stays so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _end)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    """End the session as Ctrl-C does. If a terminal is closed, the shell and the kernel each send
    SIGHUP; if mpirun is killed, the kernel sends SIGTERM. What comes later must not interrupt the
    clean-up."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    interruptions.append("SIGTERM" if signum == signal.SIGTERM else "SIGHUP; nohup prevents that")
    raise KeyboardInterrupt
