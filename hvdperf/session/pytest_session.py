"""The state of one pytest session: plan, progress, outcomes, results, and the lines of the
summary."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hvdperf.columns import wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.judge.judge import Rules
from hvdperf.judge.trust import doubted
from hvdperf.launch.arm_launcher import ArmLauncher, dispose, how_launched, make_arm_launcher
from hvdperf.launch.launchers import check_can_start, own_settings
from hvdperf.launch.outer import started_by, words_before_pytest
from hvdperf.launch.pytest_command import typed
from hvdperf.launch.slots import Slots, check_network
from hvdperf.machine import disturbance, fitness, noise_record, placement
from hvdperf.machine.host import local_machine
from hvdperf.machine.stack import Stack, probe, stack_differences
from hvdperf.models.own_networks import digest
from hvdperf.models.registry import network
from hvdperf.paths import CACHE, shown
from hvdperf.plan.arms import AGAINST, Workload
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.session_plan import plan_session
from hvdperf.plan.settings import settings_lines
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.outcome import Outcome
from hvdperf.session import pytest_options, results_writer
from hvdperf.session.control import Control, Trial, preflight, try_all
from hvdperf.session.ending import CommandLine, launch_advice, next_steps
from hvdperf.session.scheduler import Scheduler
from hvdperf.verdict import Verdict
from hvdperf.work.in_turn import Budget

# Seconds without a line of progress after which the next activity is written, too.
QUIET_S = 20.0


class ProgressReporter:
    """Reports progress through pytest's terminal reporter, if there is one.

    plugins: pytest's plugin manager. began: when the session began (monotonic clock, seconds).
    """

    def __init__(self, plugins: Any, began: float) -> None:
        self._plugins = plugins
        self._began = self._said_at = began

    def say(self, text: str) -> None:
        """Write a line of progress, past pytest's capture."""
        self._said_at = time.monotonic()
        # There is none under `-p no:terminal`.
        reporter = self._plugins.getplugin("terminalreporter")
        if reporter is None:
            return
        capture = self._plugins.getplugin("capturemanager")
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"[{self._said_at - self._began:6.1f} s] {text}")
            reporter.flush()

    def note(self, text: str) -> None:
        """Write what the session is at, if nothing has been written for QUIET_S."""
        if time.monotonic() > self._said_at + QUIET_S:
            self.say(text)


class Unfit(Exception):
    """This host is not fit to measure, and --require-fit was given."""


class PytestSession:
    """The measuring of one pytest session: planned while collecting, started by the first case."""

    def __init__(self, config: pytest.Config, slots: Slots | None) -> None:
        """slots: those of an outer mpirun; None without one. Raises UserError for bad input."""
        self.began = time.monotonic()
        self._progress = ProgressReporter(config.pluginmanager, self.began)
        self.options = pytest_options.given(config)
        check_network(self.options.network)
        self.machine = local_machine()
        self.slots = slots
        self.command = CommandLine(
            typed(config.invocation_params.args), config.args, words_before_pytest()
        )
        self.session_plan = plan_session(self.options, self.machine, self._offers())
        self.selected: list[Comparison] = []
        self.outcomes: dict[Comparison, Outcome] = {}
        self.resumed = read_session(Path(self.options.resume)) if self.options.resume else None
        self._reported: list[Comparison] = []
        # What makes this host unfit to measure, one line each.
        self.unfit: tuple[str, ...] = ()
        # Lines with what to type next, once the session has ended.
        self.next_steps: Sequence[str] = ()
        # Whether nothing is measured for that reason.
        self.is_refused = False
        # Under --against: what differs in the session's own stack, one line each.
        self.changed: list[str] = []
        self._record = noise_record.MachineRecord(Path())
        self._results_writer: results_writer.ResultsWriter | None = None

    def _offers(self) -> list[placement.Offer] | tuple[placement.Offer, ...]:
        if self.slots is None:
            # An mpirun of one rank has one slot, as one of several ranks has several.
            of_mpirun = 1 if started_by().name == "mpirun" else None
            np = of_mpirun if self.options.np is None else self.options.np
            if of_mpirun and np != of_mpirun and not self.options.oversubscribe:
                raise UserError(f"--np {np}: mpirun started only 1 rank; give mpirun -np {np}")
            return placement.local_offers(self.machine, np, self.options.oversubscribe)
        if self.options.np is not None and self.options.np < 1:
            raise UserError(f"--np {self.options.np}: a session needs at least one slot")
        offers = self.slots.offers(self._progress.say)
        if self.options.np is not None and self.options.np > len(offers):
            raise UserError(
                f"--np {self.options.np}: mpirun started only {len(offers)} ranks; give --np up "
                f"to {len(offers)}"
            )
        return offers[: self.options.np]

    def check_before_a_dry_run(self) -> None:
        """Check the input that other sessions check when they begin to measure: interpreters
        that were named, and the directory of the results. Raises UserError."""
        if self.options.stack or self.options.against:
            self._stacks()
        results = Path(self.options.results)
        if problem := fitness.unwritable(results):
            raise UserError(f"--results {shown(results)}: {problem}; give another directory")

    def without_threshold(self) -> list[str]:
        """Return the names of the selected cases that would be INVALID for lack of a threshold."""
        plan = self.session_plan
        rules = Rules(plan.profile, plan.thresholds, plan.slots)
        return [
            comparison.name
            for comparison in self.selected
            if comparison.judged_as is JudgedAs.THRESHOLD
            and rules.judged(comparison)
            and rules.rule(comparison) is None
        ]

    # Measuring -----------------------------------------------------------------------------

    def outcome(self, comparison: Comparison) -> Outcome:
        """Return the outcome of a comparison. Measure it first if it has none, in rounds that it
        shares with other selected cases. A PASS waits for the A/A pair of its network, which may
        make it INVALID."""
        self._measure(comparison)
        if self.outcomes[comparison].passed:
            for pair in self.selected:
                same = pair.workload.model == comparison.workload.model
                if same and pair.judged_as is JudgedAs.AA_PAIR:
                    self._measure(pair)
        self._reported.append(comparison)
        return self.outcomes[comparison]

    def _measure(self, comparison: Comparison) -> None:
        """Measure until the comparison has an outcome."""
        if comparison in self.outcomes:
            return
        scheduler = self.prepare()
        missing = [c for c in self.selected if c not in self.outcomes]
        scheduler.measure(comparison, dict.fromkeys([*missing, comparison]))

    @property
    def reported(self) -> list[Outcome]:
        """Return the outcomes that pytest has reported."""
        return [self.outcomes[comparison] for comparison in self._reported]

    @property
    def decided(self) -> list[Outcome]:
        """Return the outcomes of all selected cases that have one: first those that pytest has
        reported, then those that -x or Ctrl-C kept it from reporting."""
        others = [c for c in self.selected if c in self.outcomes and c not in self._reported]
        return [*self.reported, *(self.outcomes[comparison] for comparison in others)]

    def _decided(self, outcome: Outcome) -> None:
        self.outcomes[outcome.comparison] = outcome
        self._keep(outcome)
        for other in doubted(self.outcomes.values()):
            self.outcomes[other.comparison] = other
            self._keep(other)

    def _keep(self, outcome: Outcome) -> None:
        """Write an outcome at once, even if it is undecided, so that an end of the session loses
        only the round in progress."""
        if self._results_writer is not None and (problem := self._results_writer.keep(outcome)):
            self._progress.say(problem)

    def prepare(self) -> Scheduler:
        """Check the stack and open what measuring needs, once. Raises UserError."""
        if self._results_writer is not None:
            return self._results_writer.scheduler
        self._preflight()
        self._progress.say("probe the installed stack")
        stacks = self._stacks()
        if self.options.against:
            self.changed = stack_differences(stacks[AGAINST], stacks[""])
        for stack in stacks.values():
            self._refuse_other_stacks(stack)
        arm_launcher = make_arm_launcher(self.session_plan, stacks, self.slots)
        try:
            return self._opened(stacks, arm_launcher)
        except BaseException:  # Ctrl-C, too, must leave no files
            if self._results_writer is None:  # else `close` disposes of it
                dispose(arm_launcher)
            raise

    def _opened(self, stacks: Mapping[str, Stack], arm_launcher: ArmLauncher) -> Scheduler:
        """Try the user's own networks, and open the session's directory. Raises UserError."""
        profile = self.session_plan.profile
        trials = try_all(self.selected, arm_launcher, self._progress.say)
        self._refuse_broken(trials)
        arm_launcher.paces.update({name: trial.pace for name, trial in trials.items()})
        arm_launcher.unseen = {name for name, trial in trials.items() if trial.unseen}
        facts = fingerprint(
            self.machine,
            stacks[""],
            self.options.launcher,
            self.session_plan.slots,
            data_sets={
                name: trials[name].identity if name in trials else data.identity
                for name, data in self.session_plan.data.items()
            },
            own_networks={name: digest(network(name)) for name in self._own_networks()},
        )
        if self.options.resume:
            # Read it again, because the session may have still been running while this one was
            # planned.
            self.resumed = read_session(Path(self.options.resume))
        earlier = results_writer.earlier_parts(
            self.resumed, facts, self.session_plan, self.changed, self.selected
        )
        self.outcomes.update(earlier.outcomes)
        for text in earlier.messages:
            self._progress.say(text)
        self._record = noise_record.read_record(Path(self.options.results), self.machine)
        if self._record.problem:
            self._progress.say(self._record.problem)
        document = results_writer.session_document(
            self.session_plan,
            facts,
            self.changed,
            earlier,
            self.unfit,
            str(self.command),
            how_launched(self.options.launcher, self.session_plan.slots),
        )
        # A budget that is given by --budget counts from now.
        own_budget = self.options.budget_minutes is not None
        began = time.monotonic() - (0.0 if own_budget else document.budget_spent_seconds)
        scheduler = Scheduler(
            arm_launcher=arm_launcher,
            profile=profile,
            thresholds=self.session_plan.thresholds,
            progress=self._progress.say,
            doing=self._progress.note,
            seed=document.seed,
            decided=self._decided,
            open_=self._keep,
            record=self._record,
            earlier=tuple(earlier.undecided.values()),
            rounds=earlier.rounds,
            examined=Control(arm_launcher, self._progress.say).examined,
            budget=Budget(began, profile.budget_s, arm_launcher.hub.now),
            timed_seconds=document.timed_seconds,
            meter=disturbance.make_meter(self.session_plan.slots, began),
            disturbances=list(document.disturbances),
        )
        directory = results_writer.open_directory(self.session_plan, document.session, earlier)
        self._results_writer = results_writer.ResultsWriter(
            directory, document, scheduler, earlier, self.began
        )
        for comparison in self.selected:
            trial = trials.get(comparison.workload.model)
            judgement = trial.judgement(comparison) if trial is not None else None
            if judgement is not None and comparison not in self.outcomes:
                self._decided(Outcome(comparison, judgement))
        return scheduler

    def _stacks(self) -> dict[str, Stack]:
        """Return the session's own stack, and that of --against. Raises UserError."""
        wanted = {"": ("--stack", self.options.stack), AGAINST: ("--against", self.options.against)}
        stacks = {}
        for name, (option, interpreter) in wanted.items():
            if not interpreter and name == AGAINST:
                continue
            with refusing(f"{option}: " if interpreter else "", UserError):
                stacks[name] = probe(interpreter or sys.executable, CACHE)
                check_can_start(self.options.launcher, stacks[name])
        return stacks

    def _own_networks(self) -> dict[str, Workload]:
        """Return the networks of this session that are not the suite's, with a workload of each."""
        plan = self.session_plan
        every = (*plan.sentinels, *plan.workloads)
        return {each.model: each for each in every if network(each.model).origin}

    def _refuse_broken(self, trials: Mapping[str, Trial]) -> None:
        """Say which of the user's own networks cannot be measured. Raises UserError if nothing else
        is left to measure, unless the machine may be at fault."""
        broken = {name: trial for name, trial in trials.items() if trial.error}
        left = [c for c in self.selected if c.workload.model not in broken]
        if broken and not left and not all(trial.of_node for trial in broken.values()):
            raise UserError("\n".join(trial.error for trial in broken.values()))
        for trial in broken.values():
            self._progress.say(f"NOT RUN {trial.error}")

    def _preflight(self) -> None:
        """Note why this host is not fit to measure. Raises Unfit under --require-fit if it is not.
        A resumed session keeps what its first part noted."""
        checks = preflight(self.machine, self.session_plan.slots, Path(self.options.results))
        self.unfit = fitness.complaints(checks)
        if self.unfit and self.options.require_fit:
            self.is_refused = True
            raise Unfit
        for line in self.unfit:
            self._progress.say(f"not ready: {line}")

    def _refuse_other_stacks(self, stack: Stack) -> None:
        """Raise UserError if the interpreter has another stack on another host."""
        others = self.slots.stacks(stack.interpreter) if self.slots is not None else {}
        for host, other in others.items():
            different = stack_differences(stack, other)
            if different:
                first = "; ".join(different[:3]) + ("; ..." if len(different) > 3 else "")
                raise UserError(
                    f"{host} has another stack in {stack.interpreter} than {self.machine.host}: "
                    f"{first}; run `make env` in the checkout of {host}"
                )

    @property
    def verdicts(self) -> list[Verdict]:
        """Return the verdicts on all cases of the session; of a resumed session, also on those that
        are not selected now."""
        decided = [outcome.judgement.verdict for outcome in self.decided]
        if self._results_writer is None:
            return decided
        asked = {comparison.name for comparison in self.selected}
        others = [word for name, word in self._results_writer.verdicts.items() if name not in asked]
        return decided + others

    # Ending --------------------------------------------------------------------------------

    def archive(self, exit_status: int) -> Archive | None:
        """Return the session with its decided cases as documents, written or not; None if nothing
        was measured."""
        if self._results_writer is None:
            return None
        return self._results_writer.archive(self.decided, exit_status)

    @property
    def directory(self) -> Path | None:
        """Return the directory of the session's results; None if nothing was decided."""
        writer = self._results_writer
        return writer.directory if writer is not None and writer.verdicts else None

    def finish(self, exit_status: int, node: Callable[[Comparison], str]) -> int:
        """Write the session's document; return the exit status of the session. node: returns
        pytest's name of a case."""
        if self._results_writer is None:
            return exit_status
        self._add_to_record(self._results_writer)
        after = fitness.slowdowns(self.machine.gpus, os.environ) if self.machine.gpus else None
        if after is not None and after.problem:
            after = replace(after, value=f"{after.value} after the last case")
            self.unfit = (*self.unfit, after.complaint)
        self.next_steps = self._next_steps(self._results_writer, node)
        return self._results_writer.end(exit_status, self.next_steps, self.unfit)

    def _add_to_record(self, writer: results_writer.ResultsWriter) -> None:
        """Record by how much launches differed, unless a fault was injected or the session was
        resumed: the cases that a resumed session still measures are those that vary most."""
        injected = self.options.fault or any(c.is_fault_case for c in self.selected)
        if injected or self.resumed:
            return
        try:
            self._record.add(
                writer.directory.name,
                writer.scheduler.launch_variances(),
                writer.scheduler.round_moments(),
            )
        except OSError as error:
            self._progress.say(f"NOT WRITTEN {self._record.path}: {error.strerror}")

    def how_launched_and_set(self) -> list[str]:
        """Return lines on how ranks will be started, and on the settings of the environment."""
        how = how_launched(self.options.launcher, self.session_plan.slots)
        settings = settings_lines(self.options.launcher, len(self.machine.gpus))
        return [f"ranks: {how}", *(f"setting {line}" for line in settings)]

    def lines(self) -> list[str]:
        """Return the end of the summary: what is not on disk, and where the rest is."""
        if self._results_writer is None:
            return [line for one in self.unfit for line in wrapped(f"Not ready to measure: {one}")]
        left = len([c for c in self.selected if c not in self.outcomes])
        where = shown(self._results_writer.directory)
        return [f"results: {where}", *self._results_writer.lines(left)]

    def _next_steps(
        self, writer: results_writer.ResultsWriter, node: Callable[[Comparison], str]
    ) -> Sequence[str]:
        """Return lines with the next commands."""
        directory = shown(writer.directory)
        own = math.ceil(self.session_plan.profile.budget_s / 60)
        slots = self.session_plan.slots
        cores = 0 if self.machine.gpus else max(len(slot.cores) for slot in slots)
        advice = launch_advice(self.decided, own_settings(cores))
        return advice + next_steps(
            self.decided,
            self.session_plan.profile.sampling.looks,
            writer.elapsed_seconds,
            resumed=lambda minutes: self.command.resumed(directory, minutes or own),
            alone=lambda comparison: self.command.alone(node(comparison)),
            precision=self.session_plan.profile.sampling.precision,
        )

    def close(self) -> None:
        """Close the results and the arm launcher."""
        if self._results_writer is not None:
            self._results_writer.close()
            dispose(self._results_writer.scheduler.arm_launcher)
            self._results_writer = None
