"""Documents of a session: a JSON file a case, one a group of rounds, one of the session, and a
summary.

A document is the encoding of its record (hvdperf/json_records.py), so the dataclasses here and the
records inside them are its schema. Figures that do not exist are null, never NaN.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from hvdperf.json_records import Count, Moment, Positive
from hvdperf.machine.disturbance import Disturbance
from hvdperf.plan.arms import Schedule, Workload
from hvdperf.plan.comparisons import Comparison, JudgedAs, Question, RoundGroup
from hvdperf.records.fingerprint import Fingerprint, Named, differences
from hvdperf.records.outcome import Conclusion, Measure, Outcome
from hvdperf.records.rounds import Launch, Round, Turns
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Rule, Verdict, is_bounded, must_be

# The only one that is read. A change that the documents on disk do not fit needs the next number.
FORMAT = 6
# That of a summary, also within a night and in the history.
SUMMARY_FORMAT = 7
# Exit statuses of a session that was killed, was interrupted, or failed in pytest itself.
UNENDED = (None, 2, 3)
# Number of other programs that a round and a session list: those that used the CPU most.
CULPRITS_KEPT = 5
SESSION_FILE = "session.json"
SUMMARY_FILE = "summary.json"
# The directory of the rounds, below that of the session.
ROUNDS = "rounds"
# It is part of paths.
SessionName = Annotated[str, Meta(pattern=r"^\d{8}T\d{6}Z-\d+$")]
AboveZero = Annotated[float, Meta(gt=0)]
# A setting as the file of a profile has it.
Value = bool | int | float | str | tuple[int | float | str, ...] | None


@dataclass(frozen=True)
class RoundsDocument:
    """The rounds from which several cases are judged, with each launch once.

    group: workload, work and topic of the cases (Comparison.round_group). rounds: in the order of
    their numbers, by which cases refer to them.
    """

    format: Positive
    session: str
    written_at: Moment
    group: RoundGroup
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Head:
    """Where and when a case was measured.

    replicas_per_node: of the candidate, one number a node.
    """

    format: Positive
    session: str
    written_at: Moment
    fingerprint: Fingerprint
    replicas_per_node: tuple[Positive, ...]
    name: str


@dataclass(frozen=True)
class CaseDocument(Head):
    """The document of a case. rounds: the numbers of those that measure it, in the document of its
    round group."""

    outcome: Conclusion
    rounds: tuple[Count, ...]


@dataclass(frozen=True)
class Case(Head):
    """A case with all that it rests on, put together from its document and its rounds."""

    outcome: Outcome

    @property
    def comparison(self) -> Comparison:
        return self.outcome.comparison

    @property
    def question(self) -> Question:
        return self.comparison.question

    @property
    def workload(self) -> Workload:
        return self.comparison.workload

    @property
    def world_size(self) -> int:
        return self.comparison.world_size

    @property
    def rounds(self) -> tuple[Round, ...]:
        return self.outcome.rounds

    @property
    def verdict(self) -> Verdict:
        return self.outcome.judgement.verdict

    @property
    def figure(self) -> Interval | None:
        return self.outcome.judgement.figure

    @property
    def rule(self) -> Rule | None:
        return self.outcome.judgement.rule

    @property
    def limit(self) -> Limit:
        """The limits of the figure; of a floor with two of them, the one that decides."""
        return limit_of(self.rule, self.figure)

    @property
    def reason(self) -> str:
        return self.outcome.judgement.reason

    @property
    def failed(self) -> bool:
        """Return whether a launch failed."""
        return self.outcome.failure is not None

    @property
    def judged_as(self) -> JudgedAs:
        return self.comparison.judged_as

    @property
    def round_group(self) -> RoundGroup:
        return self.comparison.round_group

    @property
    def is_sound(self) -> bool:
        """Return whether the figure was measured with sound evidence, be it good or bad."""
        return self.outcome.is_sound


@dataclass(frozen=True)
class ThresholdsFile:
    """A file of thresholds. sha256: the first digits of the hash of what it says. label: as the
    file calls itself."""

    name: str = ""
    sha256: str = ""
    label: str = ""


@dataclass(frozen=True)
class Asked:
    """The settings that a resumed session must repeat, besides the fingerprint.

    looks, early: of the profile's sampling. profile: its other settings, without the budget; one in
    a table is named `table.name`. workloads: names, each with its precision. replicas_per_node: of
    all slots. inject: as --inject takes it. against: the differences from the stack of --against,
    one line each; None without --against.
    """

    looks: tuple[Positive, ...] = ()
    early: bool = False
    profile: Mapping[str, Value] = field(default_factory=dict)
    world_sizes: tuple[Positive, ...] = ()
    workloads: tuple[str, ...] = ()
    thresholds: ThresholdsFile = ThresholdsFile()
    replicas_per_node: tuple[Positive, ...] = ()
    inject: str = ""
    against: tuple[str, ...] | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The settings in words, by name."""
        against = "" if self.against is None else "; ".join(self.against or ["itself"])
        settings = {
            **self.profile,
            "sampling.looks": self.looks,
            "sampling.early": self.early,
            "world_sizes": self.world_sizes,
            "workloads": ", ".join(self.workloads),
            "thresholds": f"{self.thresholds.name} {self.thresholds.sha256}".strip(),
            "replicas_per_node": self.replicas_per_node,
            "inject": self.inject,
            "against": against,
        }
        return {
            name: str(list(value) if isinstance(value, tuple) else value)
            for name, value in settings.items()
        }

    def differences(self, other: Asked) -> list[str]:
        """Return the settings that differ, one line each."""
        return differences(self.texts, other.texts)


@dataclass(frozen=True)
class SessionDocument:
    """The document of a session.

    began_at: when its first part began. seed: of everything random in the session. world_sizes:
    measured. oversubscribed_sizes: those with more replicas than cores or GPUs. against: the
    interpreter of the other stack. changed: the differences of the session's own stack from that
    one. exit_status: None while the session runs. elapsed_seconds: of all parts together;
    timed_seconds: the part of it in which training was timed; budget_spent_seconds: the part that
    counts for the budget. resumed_at: when each later part began. taken_over: cases decided before
    the last part. suite: version and commit of the suite (hvdperf.version). command: that started
    the session, as it can be pasted into a shell. label: a text by which programs find the session
    (HVDPERF_LABEL). launched: how ranks were started, in words. hosts: names, in the order of
    slots. made_up_data: the data sets of which the suite's own sample was read, whose contents are
    made up. unfit: why the host was not fit to measure when a part began, one line each
    (hvdperf/machine/fitness.py). verdicts: of all cases so far. disturbances: by other programs,
    one a round. precision: how far intervals may reach to either side, as a share; 0 if none was
    asked for. next_steps: what to type next, in lines as the terminal shows them.
    """

    format: Positive
    session: str
    began_at: Moment
    written_at: Moment
    fingerprint: Fingerprint
    profile: str
    seed: int
    world_sizes: tuple[Positive, ...]
    oversubscribed_sizes: tuple[Positive, ...]
    launcher: str
    schedule: Schedule
    against: str | None
    changed: tuple[str, ...]
    asked: Asked
    suite: str
    command: str
    label: str
    launched: str
    hosts: tuple[str, ...]
    made_up_data: tuple[str, ...]
    exit_status: int | None = None
    elapsed_seconds: float = 0.0
    timed_seconds: float = 0.0
    budget_spent_seconds: float = 0.0
    resumed_at: tuple[Moment, ...] = ()
    taken_over: tuple[str, ...] = ()
    unfit: tuple[Named, ...] = ()
    verdicts: Mapping[str, Verdict] | None = None
    disturbances: tuple[Disturbance, ...] = ()
    precision: float = 0.0
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit:
    """The limits of a figure; None where there is none."""

    at_least: float | None
    at_most: float | None


@dataclass(frozen=True)
class Row:
    """A case in the summary. figure, lower, upper: None if there is none, or if there were too few
    rounds for bounds. observations: ln of the figure, one a round; () in nights that do not say
    them."""

    name: str
    question: Question
    model: str
    world_size: Positive
    verdict: Verdict
    figure: float | None
    lower: float | None
    upper: float | None
    limit: Limit | None
    rounds: Count
    reason: str
    observations: tuple[float, ...] = ()

    @property
    def figure_text(self) -> str:
        """Return the figure with its bounds and limits, in words."""
        if self.figure is None:
            return "no figure"
        bounds = "" if self.lower is None else f" ({self.lower:.3f} to {self.upper:.3f})"
        limit = self.limit or Limit(None, None)
        ends = (("at least", limit.at_least), ("at most", limit.at_most))
        limits = " and ".join(f"{word} {end:.3g}" for word, end in ends if end is not None)
        return f"{self.figure:.3f}{bounds}{f', limit {limits}' if limits else ''}"


class Kind(Enum):
    """What the session of a summary is within its night; OWN outside of nights.

    OWN: the first one. AGAIN: measures again, in the same night, what OWN found slower. GATE:
    compares the stack with the reference. GATE_AGAIN: measures again what failed there.
    """

    OWN = "own"
    AGAIN = "again"
    GATE = "gate"
    GATE_AGAIN = "gate again"

    @property
    def is_gate(self) -> bool:
        return self in (Kind.GATE, Kind.GATE_AGAIN)

    @property
    def is_again(self) -> bool:
        return self in (Kind.AGAIN, Kind.GATE_AGAIN)


@dataclass(frozen=True)
class Result:
    """What launches of a network did by themselves, one value a launch. replica: what each replica
    trains on, such as `cifar10 f133a46ad75d38ed, size 32, batch 32, float32, 1 core`; "" where the
    network says that."""

    measure: Measure
    model: str
    world_size: Positive
    values: Annotated[tuple[AboveZero, ...], Meta(min_length=1)]
    replica: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.model, self.replica, self.world_size


@dataclass(frozen=True)
class Summary:
    """A session in one small document: summary.json, a part of a night, or a release in the
    history.

    kind: within its night. exit_status: None if the session did not end. minutes: that it took.
    hosts: names; none in the history. asked: its settings in words, by name. cases: all that are
    decided. results: of Horovod with its defaults, on the session's own stack. disturbed: what
    other programs took from the session, in words; "" if it was little or unknown. node: the node
    that measured itself; "" if the session has all of its nodes.
    """

    format: Positive
    session: SessionName
    written_at: Moment
    kind: Kind
    exit_status: int | None
    minutes: float
    hosts: tuple[str, ...]
    fingerprint: Fingerprint
    asked: Mapping[str, str]
    cases: tuple[Row, ...]
    results: tuple[Result, ...] = ()
    disturbed: str = ""
    node: str = ""

    @property
    def has_ended(self) -> bool:
        return self.exit_status not in UNENDED

    def of(self, measure: Measure) -> list[Result]:
        return [each for each in self.results if each.measure is measure]


def session_name() -> str:
    """Return a name that sorts by time and is unique: 20260131T235959Z-471147. Its last number is a
    random one, because containers that share a directory of results have the same process ids."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{100_000 + secrets.randbelow(900_000)}"


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def file_name(case: str) -> str:
    """Return the name of a case's file, without its ending: parity[vgg_16_s-np2] is that of
    parity-vgg_16_s-np2."""
    return case.replace("[", "-", 1).removesuffix("]")


def own_round(comparison: Comparison, measured: Round) -> Round:
    """Return what a round measured of a comparison: the launches of its arms, and of a sweep's only
    the series of its own operation. Raises KeyError if an arm was not launched."""

    def own(launch: Launch) -> Launch:
        work = launch.work
        if comparison.collective is None or not isinstance(work, Turns):
            return launch
        series = [each for each in work.series if each.transfer.collective is comparison.collective]
        if len(series) == len(work.series):
            return launch
        return replace(launch, work=msgspec.structs.replace(work, series=series))

    launches = [own(measured.of(arm)) for arm in comparison.arms]
    return Round(measured.number, measured.schedule, launches)


def with_culprits_kept(disturbances: Sequence[Disturbance]) -> tuple[Disturbance, ...]:
    """Return the disturbances with only the CULPRITS_KEPT programs that used the CPU most."""
    return tuple(replace(each, culprits=each.culprits[:CULPRITS_KEPT]) for each in disturbances)


def row_of(outcome: Outcome) -> Row:
    """Return the row of an outcome."""
    comparison, judgement = outcome.comparison, outcome.judgement
    return Row(
        comparison.name,
        comparison.question,
        comparison.workload.model,
        comparison.world_size,
        judgement.verdict,
        *_figure(judgement.figure),
        limit_of(judgement.rule, judgement.figure) if judgement.rule is not None else None,
        judgement.rounds,
        judgement.reason,
        tuple(value for value in outcome.observations if math.isfinite(value)),
    )


def properties(outcome: Outcome) -> list[tuple[str, object]]:
    """Return the known properties by name, with the limit as on the terminal, such as `>= 0.55`."""
    judgement = outcome.judgement
    figure, lower, upper = _figure(judgement.figure)
    found = {
        "verdict": judgement.verdict.value,
        "figure": figure,
        "lower": lower,
        "upper": upper,
        "limit": must_be(judgement) or None,
    }
    return [(name, value) for name, value in found.items() if value is not None]


def _figure(figure: Interval | None) -> tuple[float | None, float | None, float | None]:
    """Return the figure and its bounds; bounds are None if there were too few rounds for any."""
    if figure is None:
        return None, None, None
    bounds = (figure.lower, figure.upper) if is_bounded(figure) else (None, None)
    return figure.estimate, *bounds


def limit_of(rule: Rule | None, figure: Interval | None) -> Limit:
    """Return the limits of the figure; of a floor with two of them, the one that decides."""
    if rule is None:
        return Limit(None, None)
    if isinstance(rule, Band):
        return Limit(rule.low, rule.high)
    if isinstance(rule, Ceiling):
        return Limit(None, rule.at_most)
    return Limit(rule.limit(figure), None)
