"""Results of trainings by strategy: loss by samples, and the validation at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

from hvdperf.records.documents import Case
from hvdperf.records.rounds import RunReport
from hvdperf.report import plots, words
from hvdperf.report.cases import Started, finite, grouped, held, launches, trusted
from hvdperf.report.content import Column, Figure, Row, Section, Table
from hvdperf.work.base import Work
from hvdperf.work.table import work_of
from hvdperf.work.training import Epochs, Seconds

TRAINED = (Epochs, Seconds)


@dataclass(frozen=True)
class _Group:
    """Trainings of the same workload and length. label: of the workload. world_size: of the
    candidate. arms: their launches, by arm."""

    label: str
    work: type[Work]
    world_size: int
    arms: Mapping[str, Sequence[Started]]

    @property
    def how_long(self) -> str:
        """Return the length of the training in words."""
        launches = (each.launch for started in self.arms.values() for each in started)
        runs = [run for launch in launches for run in launch.run]
        if self.work is Seconds:
            seconds = finite(run.seconds for run in runs)
            return f"{median(seconds):.0f} s of wall time" if seconds else "a fixed wall time"
        epochs = finite(run.epochs for run in runs)
        if not epochs:
            return "a fixed number of epochs"
        longest = f"{max(epochs):.3g}"
        return "1 epoch" if longest == "1" else f"{longest} epochs"

    @property
    def title(self) -> str:
        return f"{self.label} on {words.plural(self.world_size, 'replica')}, {self.how_long}"

    def named(self, what: str) -> str:
        return words.slug("convergence", what, self.work.name, self.label, f"np{self.world_size}")


def section(cases: Sequence[Case]) -> Section:
    """Return the section on training runs."""
    trained = _groups([case for case in trusted(cases) if work_of(case.question) in TRAINED])
    return Section(
        "convergence",
        "Convergence",
        "Training loss is the mean over the ranks. Rounds begin with different weights; of "
        "several rounds, the median, the minimum and the maximum are shown. The cases of "
        "convergence judge whether strategies reach equal results.",
        tuple(figure for group in trained for figure in (*_curves(group), *_validations(group))),
        "No training ran to its end; to measure: pytest perf/test_convergence.py",
    )


def _groups(cases: Sequence[Case]) -> list[_Group]:
    """Return groups by workload, kind of work and replicas of the candidate. Plain TensorFlow,
    which has one replica, is in each of these groups."""
    asked = grouped(held(cases), lambda c: (c.workload, work_of(c.question), c.world_size))
    labels = words.workload_labels(workload for workload, _, _ in asked)
    groups = []
    for (workload, work, world_size), of_group in asked.items():
        trained = (started for started in launches(of_group) if started.launch.run)
        arms = grouped(trained, lambda started: started.arm)
        groups.append(_Group(labels[workload], work, world_size, arms))
    return groups


# Training loss ---------------------------------------------------------------------------------


class _Point(NamedTuple):
    """A point of a loss curve. samples: of all ranks together, since the start."""

    steps: int
    samples: float
    loss: float


_OF_A_CURVE = (
    Column("arm", "strategy"),
    Column("steps", "steps"),
    Column("samples", "samples", digits=0),
    Column("loss", "training loss", digits=4),
    Column("lower", "least", digits=4),
    Column("upper", "most", digits=4),
    Column("rounds", "rounds"),
)


def _spread(key: str, values: Sequence[float]) -> Row:
    """Return the cells of several values: their median below this key, and their ends."""
    return {key: median(values), "lower": min(values), "upper": max(values)}


def _curves(group: _Group) -> Iterator[Figure]:
    """Yield the curves of all arms in one figure; none if no loss is known."""
    rows: list[Row] = []
    for arm, own in group.arms.items():
        for points in _of_arm(own):
            rows.append(
                {
                    "arm": arm,
                    "steps": round(median(point.steps for point in points)),
                    "samples": median(point.samples for point in points),
                    **_spread("loss", [point.loss for point in points]),
                    "rounds": len(points),
                }
            )
    if not rows:
        return
    table = Table(_OF_A_CURVE, tuple(rows))
    yield Figure(
        group.named("curve"),
        f"{group.title}: training loss",
        "",
        table,
        plots.curve(
            table,
            plots.axis(table, "samples"),
            plots.axis(table, "loss", scale={"zero": False}),
            "arm",
        ),
    )


def _of_arm(group: Sequence[Started]) -> list[list[_Point]]:
    """Return the points of all launches, by steps, for the steps that all of them have."""
    found = (_curve(started.launch.run) for started in group)
    curves = [{point.steps: point for point in curve} for curve in found if curve]
    shared = set.intersection(*map(set, curves)) if curves else set()
    if curves and not shared:
        # Launches of a fixed time end at different steps: take the median of their ends.
        return [[list(curve.values())[-1] for curve in curves]]
    return [[curve[steps] for curve in curves] for steps in sorted(shared)]


def _curve(ranks: Sequence[RunReport]) -> list[_Point]:
    """Return the loss curve of a run, or only its end if none was recorded."""
    steps = ranks[0].steps
    samples_of_a_step = sum(rank.samples for rank in ranks) / steps if steps else 0.0
    by_step: dict[int, list[float]] = {}
    for rank in ranks:
        for step, loss, *_ in rank.curve or [[steps, rank.loss]]:
            by_step.setdefault(int(step), []).extend(finite([loss]))
    return [
        _Point(step, step * samples_of_a_step, fmean(losses))
        for step, losses in sorted(by_step.items())
        if losses
    ]


# Validation ------------------------------------------------------------------------------------


def _validations(group: _Group) -> Iterator[Figure]:
    """Yield a figure each for loss and accuracy at the end of the trainings, with those of random
    guesses, if the group was validated."""
    ends = {
        arm: [run[0].validation for run in (started.launch.run for started in own)]
        for arm, own in group.arms.items()
    }
    for metric, digits in (("loss", 4), ("accuracy", 3)):
        rows: list[Row] = []
        for arm, every in ends.items():
            known = [end for end in every if end is not None]
            if values := finite(getattr(end, metric) for end in known):
                chance = next(iter(finite(end.chance_loss for end in known)), None)
                if chance is not None and metric == "accuracy":
                    # Of random guesses the loss is ln(classes), and the accuracy 1 / classes.
                    chance = math.exp(-chance)
                numbers = {"rounds": len(values), "samples": known[0].samples}
                cells = _spread("middle", values)
                rows.append({"arm": arm, **cells, "chance": chance, **numbers})
        if not rows:
            continue
        columns = (
            Column("arm", "strategy"),
            Column("middle", f"validation {metric}", "", digits),
            Column("lower", "least", "", digits),
            Column("upper", "most", "", digits),
            Column("chance", "chance level", "", digits),
            Column("rounds", "rounds"),
            Column("samples", "validated on"),
        )
        table = Table(columns, tuple(rows))
        yield Figure(
            group.named(metric),
            f"{group.title}: validation {metric}",
            "",
            table,
            plots.interval(
                table,
                "arm",
                plots.axis(table, "middle", scale={"zero": False}),
                "arm",
                plots.ticks("quiet", "chance"),
            ),
        )
