"""Thresholds of figures, in one TOML file per machine class: ci/thresholds/*.toml.

Each file names its machines and the limits of their figures::

    label = "nodes with V100"
    [match]
    device = "gpu"            # or "cpu"
    gpu_name = "V100"         # optional, as cpu_model: a part of the name, in any case
    [thresholds]
    # "question/model/world size/nodes" = floor, [low, high] or ceiling, as the question's row says;
    # horovod_overhead and multiworker take a floor or [low, high]
    "weak_scaling/vgg_16/np*/one-node" = 0.70
    "weak_scaling/vgg_16/np*/*-nodes" = 0.60
    "recipe:bf16/*/np*/*" = 0.50    # for one variant; "recipe/..." is for all
    # samples/s; without a line it is no case
    "throughput:synthetic-224-batch64-float32/vgg_16/np4/one-node" = 310.0

In each of the four parts ``*`` stands for anything. The first line that matches wins.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from hvdperf.errors import UserError
from hvdperf.machine.host import Machine
from hvdperf.models.registry import NETWORKS
from hvdperf.paths import SHIPPED, shown
from hvdperf.plan.arms import SWEEP
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.stats import hodges_lehmann, spread
from hvdperf.toml_file import Text, as_record, file_error, read_toml
from hvdperf.verdict import ALPHA, FEWEST_ROUNDS, Band, Ceiling, Floor, Rule, SpeedFloor

POINTS_BELOW = 0.03
PASS_SHARE = 0.95
NARROWEST_BAND = 0.95
LOWEST_FLOOR = 0.001
_SESSIONS = 4000
# Rounds 0.8699999999999999, the computed value of 0.87, to 0.87.
_ROUNDING = 1e-9
_SEED = 20181231


def rule_at(question: Question, centre: float, distance: float) -> Rule:
    """Return a rule with limits this far from the figure of unchanged builds, or 3 points of an
    efficiency, 3 % of a speed, a time or a growth, and 5 % of a ratio that must be 1, if that is
    farther.

    centre: ln of the figure. distance: on the scale of logarithms. A band is symmetric around 1 on
    that scale. An efficiency has no floor above 1. The limits have three decimals (a ceiling and a
    floor of a speed have three significant digits), rounded to the side on which more sessions
    PASS.
    """
    rule, figure = question.spec.rule, math.exp(centre)
    if rule is Band:
        reach = max(abs(centre) + distance, -math.log(NARROWEST_BAND))
        high = rounded(math.exp(reach), up=True)
        return Band(rounded(1 / high), high)
    if rule is Ceiling:
        highest = figure * max(1 + POINTS_BELOW, math.exp(distance))
        return Ceiling(rounded(highest, up=True, significant=True), unit=question.spec.unit)
    below = figure * math.exp(-distance)
    if rule is SpeedFloor:
        return SpeedFloor.at(rounded(min(figure * (1 - POINTS_BELOW), below), significant=True))
    return Floor.at(min(max(rounded(min(figure - POINTS_BELOW, below)), LOWEST_FLOOR), 1.0))


def distance_to_pass(observations: Sequence[float], rounds: int) -> float:
    """Return the distance of a limit that 95 % of sessions of unchanged builds PASS.

    A session PASSes if its lower bound reaches the floor (hvdperf.verdict). For n rounds of normal
    noise with the measured spread s around m, on the scale of logarithms, that bound is m + s L,
    where L is the bound of n standard normal observations. So the distance is -s q, where q is the
    5 % quantile of L, taken from 4,000 simulated sessions with a fixed seed. Early looks are not
    simulated, because they mostly add PASSes. The ends of a band, which have a higher level, are
    PASSed by more.

    observations: ln ratios of unchanged builds, or ln speeds. rounds: of a session.
    """
    return spread(observations) * _bound(rounds)


@cache
def _bound(rounds: int) -> float:
    """Return how far below 0 the lower bound of standard normal observations lies, at most, in
    PASS_SHARE of sessions."""
    noise = random.Random(_SEED)
    sessions = ([noise.gauss(0.0, 1.0) for _ in range(rounds)] for _ in range(_SESSIONS))
    bounds = sorted(hodges_lehmann(session, ALPHA).lower for session in sessions)
    return -bounds[math.floor((1 - PASS_SHARE) * _SESSIONS)]


def rounded(value: float, up: bool = False, significant: bool = False) -> float:
    """Return the value with three decimals, rounded down or up. significant: with three significant
    digits instead, because a phase takes microseconds or minutes."""
    scale = 10.0 ** (2 - math.floor(math.log10(value))) if significant else 1000.0
    scaled = value * scale
    return (math.ceil(scaled - _ROUNDING) if up else math.floor(scaled + _ROUNDING)) / scale


THRESHOLDS = SHIPPED / "ci" / "thresholds"


class Case(NamedTuple):
    """The key by which the rule of a comparison is found. nodes: number of nodes. variant: one of
    several variants of the question, such as a way of exchanging gradients, or ""."""

    question: Question
    model: str
    world_size: int
    nodes: int
    variant: str = ""

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """The key in the words of the files: ("weak_scaling", "vgg_16", "np4", "one-node")."""
        question = f"{self.question.value}:{self.variant}" if self.variant else self.question.value
        where = "one-node" if self.nodes == 1 else f"{self.nodes}-nodes"
        return question, self.model, f"np{self.world_size}", where

    @property
    def key(self) -> str:
        """The key as it is written in a file."""
        return "/".join(self.parts)


NAME_OF = {"gpu": "gpu_name", "cpu": "cpu_model"}
_SIZE = re.compile(r"np([1-9]\d*|\*)|\*")
_NODES = re.compile(r"one-node|([2-9]|[1-9]\d+|\*)-nodes|\*")
# The values of a line by the kind of its rule, in words.
_FORMS = {
    Floor: ("a floor", "a number above 0 and up to 1"),
    SpeedFloor: ("a floor in samples/s", "a number above 0"),
    Band: ("a band", "[low, high] with 0 < low < 1 < high"),
    Ceiling: ("a ceiling", "a number above 0"),
}
_SHAPE = '"question/model/npN/one-node", as in "weak_scaling/vgg_16/np*/one-node"'


@dataclass(frozen=True)
class Line:
    """One line of [thresholds]: a pattern of four parts, and the rule for cases that match it."""

    pattern: tuple[str, str, str, str]
    rule: Rule

    def matches(self, case: tuple[str, str, str, str]) -> bool:
        question, *rest = case
        if ":" not in self.pattern[0]:
            question = question.partition(":")[0]
        return all(map(fnmatchcase, (question, *rest), self.pattern))


@dataclass(frozen=True)
class Thresholds:
    """The lines of one machine class. path: its file, or the path for a new file."""

    label: str
    path: Path
    lines: tuple[Line, ...] = ()

    def rule(self, case: Case) -> Rule | None:
        """Return the rule of the first line that matches this case; None without such a line."""
        return next((line.rule for line in self.lines if line.matches(case.parts)), None)

    def pasteable_line(self, case: Case, observations: Sequence[float]) -> str:
        """Return a line to paste at the end of the file, from what was measured.

        observations: ln ratios, one a round. Return "" if nothing can be proposed from them.
        """
        usable = [value for value in observations if math.isfinite(value)]
        if not usable:
            return ""
        distance = distance_to_pass(usable, max(len(usable), FEWEST_ROUNDS))
        return written(case, rule_at(case.question, median(usable), distance))


@dataclass(frozen=True)
class Match:
    """The machines that a file is for. gpu_name, cpu_model: a part of the name, in any case; "" for
    all machines."""

    device: Literal["cpu", "gpu"]
    gpu_name: Text = ""
    cpu_model: Text = ""

    def __post_init__(self) -> None:
        if self.device == "cpu" and self.gpu_name:
            raise ValueError('gpu_name: needs device = "gpu"')

    def specificity(self, machine: Machine) -> tuple[int, int] | None:
        """Return the number of names that the file asks for and their total length; None if the
        machine does not fit."""
        if self.device != class_of(machine)[0]:
            return None
        asked = (
            (self.gpu_name, [gpu.name for gpu in machine.gpus]),
            (self.cpu_model, [machine.cpu_model]),
        )
        if not all(part.lower() in name.lower() for part, names in asked for name in names):
            return None
        return sum(part != "" for part, _ in asked), sum(len(part) for part, _ in asked)


@dataclass(frozen=True)
class _File:
    """A file of thresholds as it is written. thresholds: a floor or a ceiling, or the ends of a
    band, by the pattern of the cases."""

    label: Text
    match: Match
    thresholds: Mapping[str, float | tuple[float, float]]


def case_of(comparison: Comparison, nodes: int) -> Case:
    """Return the key by which the rule of a comparison is found. nodes: of the candidate. Unlike a
    ratio, a throughput is of another size for another batch, other images or another precision, so
    these are its variant."""
    question, workload = comparison.question, comparison.workload
    variant = comparison.variant if question.spec.has_variants else ""
    if question.spec.asked_by_line:
        trained = f"{workload.dataset}-{workload.input_size}-batch{workload.batch}"
        variant = f"{trained}-{workload.precision}"
    return Case(question, workload.model, comparison.world_size, nodes, variant)


def written(case: Case, rule: Rule) -> str:
    """Return a line of [thresholds]."""
    if isinstance(rule, Band):
        return f'"{case.key}" = [{rule.low}, {rule.high}]'
    value = rule.pass_from if isinstance(rule, Floor) else rule.at_most
    return f'"{case.key}" = {value}'


def select(machine: Machine, directory: Path = THRESHOLDS) -> Thresholds:
    """Return the thresholds of the class that the machine belongs to.

    Of the files that match, the most specific one comes first: the one with more or longer names in
    [match]. Cases that it has no line for take those of the next one, so that a file with a few
    published figures can come before default limits. If no file matches, there are no thresholds,
    and the label says so. Raises UserError for a malformed file and for two files that are equally
    specific.
    """
    matching: dict[tuple[int, int], Thresholds] = {}
    for path in sorted(directory.glob("*.toml")):
        match, thresholds = _load(path)
        specificity = match.specificity(machine)
        if specificity is None:
            continue
        if specificity in matching:
            raise UserError(
                f"{shown(matching[specificity].path)} and {shown(path)} match "
                f"{machine.description} equally well: add a key to the [match] of one, or choose "
                "one with --thresholds"
            )
        matching[specificity] = thresholds
    if not matching:
        return _no_class(machine, directory)
    first, *others = (matching[specificity] for specificity in sorted(matching, reverse=True))
    then = [f"then {other.path.name}: {other.label}" for other in others]
    lines = (line for thresholds in (first, *others) for line in thresholds.lines)
    return Thresholds("; ".join((first.label, *then)), first.path, tuple(lines))


def load_thresholds(path: Path, machine: Machine | None = None) -> Thresholds:
    """Return the thresholds of a file, whatever its [match]. If it is not for the machine, the
    label says so. Raises UserError if malformed."""
    match, thresholds = _load(path)
    if machine is None or match.specificity(machine) is not None:
        return thresholds
    warning = f"but its [match] is for other machines than {machine.description}"
    return replace(thresholds, label=f"{thresholds.label}, {warning}")


def class_of(machine: Machine) -> tuple[str, str]:
    """Return the kind of device, and the name of the GPU or the CPU that trains."""
    return ("gpu", machine.gpus[0].name) if machine.gpus else ("cpu", machine.cpu_model)


def _no_class(machine: Machine, directory: Path) -> Thresholds:
    kind, name = class_of(machine)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    label = f"none: no file in {shown(directory)} is for {machine.description}"
    return Thresholds(label, directory / f"{kind}-{slug}.toml")


def _load(path: Path) -> tuple[Match, Thresholds]:
    values = read_toml(path)
    file = as_record(path, values, _File)
    if list(values)[-1] != "thresholds":
        raise file_error(
            path,
            "thresholds: must be the last table, so that a line pasted at the end of the file is "
            "in it",
        )
    lines = []
    for key, value in file.thresholds.items():
        try:
            lines.append(_line(key, value))
        except ValueError as error:
            raise file_error(path, f'thresholds."{key}": {error}') from None
    return file.match, Thresholds(file.label, path, tuple(lines))


def _line(key: str, value: float | tuple[float, float]) -> Line:
    """Return the parsed line. Raises ValueError, whose message says what is wrong."""
    parts = key.split("/")
    if len(parts) != 4:
        raise ValueError(f"must be {_SHAPE}")
    question, model, size, where = parts
    known_as = question.partition(":")[0]
    questions = [known for known in Question if fnmatchcase(known.value, known_as)]
    if not questions:
        known = ", ".join(question.value for question in Question)
        raise ValueError(f"unknown question {question!r}; known are {known}")
    _check_model(model)
    if not _SIZE.fullmatch(size):
        raise ValueError(f'the world size must be "np4", "np*" or "*", not "{size}"')
    if not _NODES.fullmatch(where):
        raise ValueError(
            f'the nodes must be "one-node", "2-nodes", "*-nodes" or "*", not "{where}"'
        )
    return Line((question, model, size, where), _rule(questions, value))


def _check_model(pattern: str) -> None:
    known = (*NETWORKS, SWEEP.model)
    if not re.fullmatch(r"[\w.*-]+", pattern) or not any(
        fnmatchcase(name, pattern) for name in known
    ):
        raise ValueError(f"no model {pattern!r}; known are {', '.join(known)}")


def _rule(questions: Sequence[Question], value: float | tuple[float, float]) -> Rule:
    kinds = {question.spec.rule for question in questions}
    if len(kinds) > 1:
        names = " and ".join(sorted(_FORMS[kind][0] for kind in kinds))
        raise ValueError(f"{names} have different forms: write two lines")
    (kind,) = kinds
    if isinstance(value, tuple):
        # Horovod and the other strategy train the same weights: either may have to be fast enough.
        if all(question.spec.of_strategies for question in questions):
            kind = Band
        if kind is Band and 0 < value[0] < 1 < value[1]:
            return Band(*value)
    elif kind is Ceiling and value > 0:
        return Ceiling(value, unit=questions[0].spec.unit)
    elif kind is SpeedFloor and value > 0:
        return SpeedFloor.at(value)
    elif kind is Floor and 0 < value <= 1:
        return Floor.at(value)
    raise ValueError(f"{' is '.join(_FORMS[kind])}, not {json.dumps(value)}")
