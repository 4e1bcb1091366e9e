"""Collective operations: their bandwidth with and without Horovod, and their part of a step."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.plan.arms import SWEEP
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.report.content import Section
from hvdperf.report.launches import trusted
from hvdperf.report.sections.collectives.bound import bounds
from hvdperf.report.sections.collectives.gradients import gradients
from hvdperf.report.sections.collectives.pairs import is_of_gradients, pairs_of
from hvdperf.report.sections.collectives.sweep import swept
from hvdperf.report.words import workload_labels


def section(cases: Sequence[Case]) -> Section:
    """Return the section on sweeps and on the exchange of networks' gradients."""
    sound = trusted(cases)
    figures = [
        swept(case, pairs)
        for case in sound
        if case.question is Question.COLLECTIVE_OVERHEAD and case.workload == SWEEP
        for pairs in [pairs_of(case)]
        if pairs
    ]
    labels = workload_labels(case.workload for case in sound if is_of_gradients(case))
    figures += [*gradients(sound, labels), *bounds(sound, labels)]
    return Section(
        "bandwidth",
        "Collectives",
        "Bus bandwidth as nccl-tests defines it: for any number of ranks, it can be compared "
        "with the bandwidth of the links. Values are medians over the repetitions of all "
        "rounds, with their quartiles. Bare is MPI on one buffer without a framework, an upper "
        "limit for Horovod.",
        tuple(figures),
        "No collective operation was measured; to measure: pytest perf/test_communication.py",
    )
