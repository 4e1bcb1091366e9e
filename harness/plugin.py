"""The pytest plugin: options, roles under mpirun, outcomes, exit status, summary."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from harness import bandwidths, baseline, live, overview, summary
from harness import campaign as campaigns
from harness.archive import read_session
from harness.errors import UserError
from harness.fingerprint import fingerprint
from harness.journal import Journal, open_store, session_document
from harness.launch.slots import Slots, outer_size, shown_by
from harness.machine import local_machine
from harness.outcome import Outcome
from harness.placement import Offer, local_offers
from harness.plan import AGAINST, Comparison, Schedule
from harness.recipes import PRECISIONS
from harness.replay import ReplayedClock, record
from harness.resume import earlier_parts, resumable
from harness.session import Session
from harness.stack import probe, stack_differences
from harness.telling import Telling
from harness.thresholds import case_of, propose
from harness.verdict import Verdict, worst
from models.inputs import INPUTS

ROOT = Path(__file__).resolve().parents[1]
# Rounds that a bound of 0.025 needs, and so a floor that can be passed.
FEWEST_FOR_PROPOSAL = 6

_suite = pytest.StashKey["Suite"]()
_slots = pytest.StashKey[Slots]()
_outcome = pytest.StashKey[Outcome]()
_status = pytest.StashKey[int]()
_clock = pytest.StashKey[ReplayedClock]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hvdperf", "distributed training (hvdperf)")
    add = group.addoption
    add("--profile", default="default", help="smoke, default, nightly, or a TOML file")
    add("--np", type=int, metavar="N", help="slots to use without mpirun (default: all)")
    add("--oversubscribe", action="store_true", help="allow --np above the cores or devices")
    add("--world-sizes", default="", metavar="1,2,4", help="instead of powers of two and all")
    add("--models", default="", metavar="A,B", help="networks, instead of the profile's")
    add("--dataset", default="", choices=["", *INPUTS], help="input")
    add(
        "--data-dir", default=os.environ.get("HVDPERF_DATA_DIR", ""), help="or ptb=DIR,imagenet=DIR"
    )
    add("--batch-size", type=int, metavar="N", help="samples per replica and step")
    add("--image-size", type=int, metavar="PX", help="instead of the network's own")
    add("--precision", default="float32", choices=PRECISIONS, help="policy of Keras")
    add("--launcher", default="mpirun", choices=campaigns.LAUNCHERS, help="what starts ranks")
    add("--schedule", default="", choices=["", *(s.value for s in Schedule)], help="of the arms")
    add("--budget", type=float, dest="budget_minutes", metavar="MIN", help="begin no round after")
    add("--thresholds", default="", metavar="FILE", help="instead of the machine class's")
    add("--propose-thresholds", metavar="FILE", help="write thresholds from what is measured")
    add("--allow-inconclusive", action="store_true", help="-x goes on past INVALID, INCONCLUSIVE")
    add("--results", default="results", metavar="DIR", help="where results go")
    add("--dry-run", action="store_true", help="list arms, world sizes and budget; start nothing")
    add("--stack", default="", metavar="PYTHON", help="measure that stack instead of pytest's own")
    add("--against", default="", metavar="PYTHON", help="every case, held against that stack's")
    add("--baseline", default="", metavar="DIR", help="an earlier session, shown beside this one")
    add("--resume", default="", metavar="DIR", help="go on with an interrupted session")
    add("--plant", default="", metavar="FAULT", help="such as slow:rank=1,factor=2")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "question(ask, smallest=2, largest=inf, against_from=smallest): what it measures",
    )
    config.addinivalue_line("markers", "mpirun: starts real process groups; slow")
    if config.option.dry_run:
        config.option.collectonly = True
    if config.option.against and config.option.propose_thresholds:
        raise pytest.UsageError(
            "--against and --propose-thresholds do not go together: against another stack no "
            "threshold is used; leave out one"
        )
    if getattr(config.option, "numprocesses", None):
        if outer_size() > 1:
            raise pytest.UsageError(
                "pytest-xdist (-n) and mpirun do not go together: under mpirun every rank is a "
                "slot; leave out -n"
            )
        if any(map(holds_cases, config.args)):
            raise pytest.UsageError(
                "pytest-xdist (-n) would measure several cases at the same time; leave out -n"
            )
    if shown_by() != os.getpid() and not live.ends_at_a_terminal(shown_by()):
        without_colours(config)
    if any(map(holds_cases, config.args)):
        # Its plugin imports all of hypothesis for the summary. That takes a second, and after
        # Ctrl-C mpirun gives no more than that to everything.
        config.pluginmanager.set_blocked("hypothesispytest")
    if outer_size() > 1:
        # At once, whatever the session is about: slots that wait in MPI_Init do not sleep.
        config.stash[_slots] = Slots()


def without_colours(config: pytest.Config) -> None:
    """Unless they were asked for: the terminal that pytest sees under mpirun is mpirun's pipe."""
    asked = {"PY_COLORS", "FORCE_COLOR"} & os.environ.keys()
    if getattr(config.option, "color", "") == "auto" and not asked:
        config.option.color = "no"


class Suite:
    """One pytest session's campaign: planned while collecting, started by the first case."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        names = {field.name for field in fields(campaigns.Options)}
        self.options = campaigns.Options(**{name: getattr(config.option, name) for name in names})
        self.machine = local_machine()
        self.slots = config.stash.get(_slots, None)
        self.campaign = campaigns.plan_campaign(self.options, self.machine, self._offers())
        self.selected: list[Comparison] = []
        self.outcomes: dict[Comparison, Outcome] = {}
        self.baseline = (
            baseline.baseline_session(read_session(Path(config.option.baseline)))
            if config.option.baseline
            else None
        )
        self.resumed = resumable(Path(config.option.resume)) if config.option.resume else None
        self.reported: list[Outcome] = []
        # Under --baseline: what is otherwise than it was in that session.
        self.new_series: list[str] = []
        # Under --against: what the session's own stack has otherwise, a line each.
        self.changed: list[str] = []
        self.began = time.monotonic()
        self._session: Session | None = None
        self._journal: Journal | None = None
        self._telling = Telling(config.pluginmanager, self.began)

    def _offers(self) -> list[Offer] | tuple[Offer, ...]:
        if self.slots is None:
            return local_offers(self.machine, self.options.np, self.options.oversubscribe)
        offers = self.slots.offers()
        if self.options.np is not None and self.options.np > len(offers):
            raise UserError(f"--np {self.options.np}: mpirun started {len(offers)} ranks")
        return offers[: self.options.np]

    # Measuring -----------------------------------------------------------------------------

    def outcome(self, comparison: Comparison) -> Outcome:
        """Measured together with all other selected cases of the same rounds."""
        if comparison not in self.outcomes:
            session = self.prepare()
            missing = [c for c in self.selected if c not in self.outcomes]
            together = [c for c in missing if c.rounds == comparison.rounds] or [comparison]
            with self._telling.long_work():
                session.measure(together, [c for c in missing if c not in together])
        outcome = self.outcomes[comparison]
        self.reported.append(outcome)
        return outcome

    def _decided(self, outcome: Outcome) -> None:
        """Keep it at once: an end of the session loses what is in flight, and no more."""
        self.outcomes[outcome.comparison] = outcome
        if self._journal is not None:
            problem = self._journal.keep(outcome)
            if problem:
                self._telling.say(problem)

    def prepare(self) -> Session:
        """Check the stack and open what measuring needs, once. Raises UserError."""
        if self._session is not None:
            return self._session
        with self._telling.long_work():
            return self._prepared()

    def _prepared(self) -> Session:
        self._telling.say("probe the installed stack")
        stacks = {"": probe(self.options.stack or sys.executable, ROOT / ".cache")}
        if self.options.against:
            stacks[AGAINST] = probe(self.options.against, ROOT / ".cache")
            self.changed = stack_differences(stacks[AGAINST], stacks[""])
        facts = fingerprint(
            self.machine,
            stacks[""],
            self.options.launcher,
            self.campaign.slots,
            data_sets={name: data.identity for name, data in self.campaign.data.items()},
        )
        if self.baseline is not None:
            self.new_series = baseline.new_series(self.baseline, facts)
        earlier = earlier_parts(self.resumed, facts, self.campaign, self.changed, self.selected)
        self.outcomes.update(earlier.outcomes)
        for text in earlier.told:
            self._telling.say(text)
        starter = campaigns.make_starter(self.campaign, stacks, self.slots)
        budget_s = self.campaign.profile.budget_s
        tools = campaigns.make_tool_runner(starter, budget_s, self._telling.say)
        self._session = session = Session(
            starter=starter,
            tools=None if tools is None else tools.run,
            profile=self.campaign.profile,
            thresholds=self.campaign.thresholds,
            progress=self._telling.say,
            doing=self._telling.note,
            seed=earlier.seed,
            decided=self._decided,
            began=time.monotonic() - earlier.budget_spent_seconds,
            timed_seconds=earlier.timed_seconds,
        )
        told = session_document(self.campaign, session.seed, self.changed)
        store = open_store(self.campaign, facts, earlier)
        self._journal = Journal(store, session, told, earlier, self.began)
        return session

    def taken_over_unasked(self) -> list[Verdict]:
        """Of a session that is resumed, the verdicts on cases that are not selected now."""
        if self._journal is None:
            return []
        asked = {comparison.name for comparison in self.selected}
        return [verdict for name, verdict in self._journal.verdicts.items() if name not in asked]

    # Ending --------------------------------------------------------------------------------

    @property
    def directory(self) -> Path | None:
        """Of the session's results; None where nothing was decided."""
        journal = self._journal
        return journal.directory if journal is not None and journal.verdicts else None

    def finish(self, exit_status: int) -> int:
        """Write the session's document; the status with which the session ends."""
        return exit_status if self._journal is None else self._journal.end(exit_status)

    def propose_thresholds(self, path: Path) -> str:
        """Write thresholds that what was measured would PASS; in words, what was done."""
        slots = self.campaign.slots
        measured = {
            case_of(c, slots): values
            for c, values in ((o.comparison, o.observations) for o in self.reported)
            if len(values) >= FEWEST_FOR_PROPOSAL and not c.is_trial
        }
        if not measured:
            return f"no thresholds proposed: no case has {FEWEST_FOR_PROPOSAL} rounds"
        try:
            path.write_text(propose(measured, self.campaign.profile.sampling.looks[0]))
        except (OSError, UserError) as error:
            return f"no thresholds proposed: {error}"
        return f"thresholds for {len(measured)} cases proposed in {path}"

    def lines(self) -> list[str]:
        """The end of the summary: where time and results went."""
        if self._journal is None or self._session is None:
            return []
        compared = []
        if self.baseline is not None:
            found = [] if self.new_series else baseline.changes(self.baseline, self.reported)
            compared = baseline.lines(self.baseline.directory, self.new_series, found)
        proposal = self.config.option.propose_thresholds
        proposed = [self.propose_thresholds(Path(proposal))] if proposal else []
        elapsed = self._journal.elapsed_seconds
        share = 100 * self._session.timed_seconds / elapsed
        where = os.path.relpath(self._journal.directory)
        left = len([c for c in self.selected if c not in self.outcomes])
        return [
            *compared,
            f"{elapsed / 60:.1f} min, {share:.0f} % of it in timed blocks; results in {where}",
            *self._journal.lines(left),
            *proposed,
        ]

    def close(self) -> None:
        """Close what was opened."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._session is not None:
            campaigns.dispose(self._session.starter)
            self._session = None


def suite_of(config: pytest.Config) -> Suite:
    """The session's suite, planned on first use. Bad input ends pytest with one line."""
    if _suite not in config.stash:
        try:
            config.stash[_suite] = Suite(config)
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[_suite]


# Collecting ------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Plan before collecting, where bad input is one line and no collection error."""
    if any(map(holds_cases, session.config.args)):
        suite_of(session.config)


def holds_cases(argument: str) -> bool:
    """Whether a command-line argument (a path, maybe with ::names) is or contains perf/."""
    path = path_of(argument)
    cases = ROOT / "perf"
    return path.is_relative_to(cases) or cases.is_relative_to(path)


def path_of(argument: str) -> Path:
    """Of a command-line argument, without the names of cases."""
    return Path(argument.partition("::")[0]).absolute()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("question")
    if marker is None:
        return
    sizes = {"smallest": 2, **marker.kwargs}
    # Who names a file wants its answers, whatever the profile asks of all of perf/.
    named = metafunc.definition.path in map(path_of, metafunc.config.args)
    comparisons = suite_of(metafunc.config).campaign.comparisons(**sizes, anyway=named)
    metafunc.parametrize(
        "comparison", comparisons, ids=[comparison.case for comparison in comparisons]
    )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A question that this session does not ask has no case, rather than a skipped one."""
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
    """Cases of the same rounds one after the other: they are judged from the same launches."""
    ranks: dict[Any, int] = {}
    for item in items:
        comparison = comparison_of(item)
        if comparison is not None:
            ranks.setdefault(comparison.rounds, len(ranks))
            clock = item.stash[_clock] = ReplayedClock()
            item.add_marker(
                pytest.mark.benchmark(timer=clock.timer(), group=comparison.question.value)
            )

    def place(item: pytest.Item) -> int:
        comparison = comparison_of(item)
        return -1 if comparison is None else ranks[comparison.rounds]

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    selected = [c for c in map(comparison_of, session.items) if c is not None]
    if selected:
        suite_of(session.config).selected = selected


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    if _suite not in config.stash:
        return []
    suite = config.stash[_suite]
    arms = list(dict.fromkeys(arm.name for c in suite.selected for arm in c.arms))
    lines = suite.campaign.describe()
    if config.option.collectonly:
        lines.append(f"arms: {', '.join(arms)}")
    return lines


# Running ---------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Look at the installed stack before the first case."""
    if _suite in session.config.stash and not session.config.option.collectonly:
        suite = session.config.stash[_suite]
        if suite.selected:
            try:
                suite.prepare()
            except UserError as error:
                raise pytest.UsageError(str(error)) from None


@pytest.fixture
def measure(request: pytest.FixtureRequest, benchmark: Any) -> Callable[[Comparison], Outcome]:
    """Measure a comparison and hand out its outcome; what is not judged is skipped."""

    def measured(comparison: Comparison) -> Outcome:
        outcome = suite_of(request.config).outcome(comparison)
        request.node.stash[_outcome] = outcome
        record(request.node.stash[_clock], outcome, benchmark)
        verdict = outcome.judgement.verdict
        neutral = verdict in (Verdict.INVALID, Verdict.INCONCLUSIVE)
        if verdict is Verdict.NOT_JUDGED or (neutral and request.config.option.allow_inconclusive):
            pytest.skip(f"{verdict.value}: {outcome.judgement.reason}")
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
        report.user_properties.append(("verdict", word))
        if report.failed and isinstance(call.excinfo and call.excinfo.value, AssertionError):
            report.longrepr = summary.explanation(outcome)
    return report


def pytest_report_teststatus(report: Any) -> tuple[str, str, Any] | None:
    word = getattr(report, "verdict", None)
    if word is None or report.when != "call":
        return None
    return word.lower(), word[0], (word, summary.MARKUP[Verdict(word)])


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """The exit status is that of the worst verdict, unless something else went wrong."""
    config = session.config
    if _suite in config.stash:
        suite = config.stash[_suite]
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = _exit_status(session, suite)
        session.exitstatus = suite.finish(int(session.exitstatus))
    config.stash[_status] = int(session.exitstatus)
    return (yield)


def _exit_status(session: pytest.Session, suite: Suite) -> int:
    if session.config.option.collectonly:
        return int(session.exitstatus)
    verdicts = [outcome.judgement.verdict for outcome in suite.reported]
    verdicts += suite.taken_over_unasked()
    words = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)
    failed = sum(verdict in words for verdict in verdicts)
    if session.testsfailed > failed:
        return 1  # something besides the verdicts failed
    if not suite.selected:
        return int(session.exitstatus)
    return summary.exit_status(verdicts)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _suite not in config.stash or config.option.collectonly:
        return
    suite = config.stash[_suite]
    verdict = worst([outcome.judgement.verdict for outcome in suite.reported])
    terminalreporter.section(
        f"hvdperf: {summary.counts(suite.reported)}", **summary.MARKUP[verdict]
    )
    for text in summary.against(suite.options.against, suite.changed):
        terminalreporter.write_line(text)
    lines_of_networks = overview.table(suite.reported)
    tables = [
        *([*lines_of_networks, ""] if lines_of_networks else []),
        *summary.table(suite.reported),
        *bandwidths.table(suite.reported),
    ]
    markup = config.get_terminal_writer().markup
    for text in [*tables, *suite.lines()]:
        terminalreporter.write_line(summary.painted(text, markup))


def session_directory(config: pytest.Config) -> Path | None:
    """Where the results of this pytest session are; None where there are none."""
    return config.stash[_suite].directory if _suite in config.stash else None


def pytest_unconfigure(config: pytest.Config) -> None:
    if _suite in config.stash:
        config.stash[_suite].close()
    if _slots in config.stash:
        config.stash[_slots].release(config.stash.get(_status, int(pytest.ExitCode.USAGE_ERROR)))


def pytest_sessionstart(session: pytest.Session) -> None:
    # mpirun passes Ctrl-C on to its ranks as SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
