"""Words for people for the questions, workloads and rules that documents name by keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from hvdperf import columns
from hvdperf.interim import confidence_of_verdicts
from hvdperf.models.registry import NETWORKS, Scale
from hvdperf.plan.arms import SWEEP, Workload
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.report.content import Column, Value
from hvdperf.stats import Interval
from hvdperf.verdict import is_bounded


def question_of(case: Case) -> str:
    """Return the question and kind of a case: "fault: slow10" or "parity, other stack"."""
    if case.comparison.is_fault_case:
        return f"fault: {case.comparison.candidate.arm.injected}"
    words = case.question.label
    return f"{words}, other stack" if case.comparison.reference.arm.stack else words


def names_of(case: Case) -> dict[str, Value]:
    """Return the cells that name a case: in full, and in the two parts that a terminal shows."""
    comparison = case.comparison
    label = " ".join(filter(None, (comparison.variant, case.workload.model)))
    return {"case": case.name, "topic": comparison.topic, "label": label}


# The columns of these cells, of which only one is for people.
NAMES = (
    Column("case", "case"),
    Column("topic", "topic", hidden=True),
    Column("label", "label", hidden=True, brief="case"),
)


Labels = Mapping[Workload, str]


# The suite's networks as publications write them, by the name of the full size.
_TITLES = {
    "vgg_16": "VGG-16",
    "vgg_19": "VGG-19",
    "resnet_50": "ResNet-50",
    "resnet_v2_101": "ResNet-101 v2",
    "inception_v4": "Inception-v4",
    "inception_v3": "Inception-v3",
    "googlenet": "GoogLeNet",
    "alexnet": "AlexNet",
    "dcgan": "DCGAN",
    "lstm": "LSTM",
    "transformer": "Transformer",
}


def published_name(model: str) -> str:
    """Return the name of a network as publications write it, such as `VGG-16 (small)` for vgg_16_s.
    Networks of the user's own have the name that their file gives them."""
    known = NETWORKS.get(model)
    if known is None or known.origin:
        return model
    stem = _TITLES.get(model) or _TITLES.get(model.rpartition("_")[0], model)
    return stem if known.scale is Scale.FULL else f"{stem} ({known.scale.value})"


def workload_labels(workloads: Iterable[Workload], name_of: Callable[[str], str] = str) -> Labels:
    """Return labels of the workloads: the network's name, and the settings that distinguish the
    workload from others of that network. name_of: makes the name from that of the model."""
    every = list(dict.fromkeys(workloads))
    labels = {}
    for workload in every:
        others = [each for each in every if each.model == workload.model]
        parts = [
            {"batch": f"batch {value}", "input_size": f"{value} px"}.get(key, str(value))
            for key, value in vars(workload).items()
            if key != "model" and any(getattr(other, key) != value for other in others)
        ]
        labels[workload] = ", ".join((name_of(workload.model), *parts))
    labels[SWEEP] = "sweep"
    return labels


def slug(*parts: object) -> str:
    """Return a name for a figure, made of a-z, 0-9, "_" and "-"."""
    return "-".join(re.sub(r"[^a-z0-9_]+", "-", str(part).lower()).strip("-") for part in parts)


def machine(known: Fingerprint, hosts: int = 1) -> str:
    """Return the hardware, such as `2 x H100; 64 cores of AMD EPYC, 503 GiB`. hosts: how many."""
    of_hosts = f"{hosts} hosts, of which that of rank 0 has " if hosts > 1 else ""
    gpus = f"{known['gpus']} x {', '.join(known['gpu_model'])}; " if known["gpus"] else ""
    model = f" of {known['cpu_model']}" if known["cpu_model"] != "unknown" else ""
    memory = f", {known['memory_gib']} GiB" if known["memory_gib"] else ""
    return f"{of_hosts}{gpus}{plural(known['cores'], 'core')}{model}{memory}"


def stack(known: Fingerprint) -> str:
    """Return the versions, without that of MPI if Horovod was built without it."""
    versions = (f"TensorFlow {known['tensorflow']}", f"Horovod {known['horovod']}")
    return ", ".join(filter(None, (*versions, known["mpi_library"])))


# Of every result in sentences, tables and plots; verdicts may need another level.
INTERVALS = "Intervals: 95 % confidence."


def shown(figure: Interval | None) -> str:
    """Return a figure with its interval for a sentence, such as 0.873 [0.861, 0.884]."""
    if figure is None:
        return "not measured"
    bounds = f" {columns.interval(figure.lower, figure.upper)}" if is_bounded(figure) else ""
    return f"{figure.estimate:.3f}{bounds}"


def with_confidence(session: SessionDocument, cases: Iterable[Case]) -> str:
    """Return the confidence of the session's PASSes and FAILs as the end of a clause, such as
    `, each with 95.5 % confidence`; "" if its document does not say after how many rounds cases
    were judged."""
    if not session.asked.looks:
        return ""
    rounds = max((case.outcome.judgement.rounds for case in cases), default=0)
    held = confidence_of_verdicts(session.asked.looks, rounds, len(session.resumed_at))
    return f", each with {100 * held:.3g} % confidence"


def several(parts: Iterable[str]) -> str:
    """Return a list for a sentence. Only the first six parts are written out."""
    first, more = (every := list(parts))[:6], len(every) - 6
    return "; ".join(first) + (f"; and {more} more" if more > 0 else "")


def joined(parts: Iterable[str], last: str = "and") -> str:
    """Return a list for a sentence: `a, b and c`."""
    *others, end = parts
    return f"{', '.join(others)} {last} {end}" if others else end


def plural(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or f'{word}s'}"


def span(values: Iterable[float], form: str = "") -> str:
    """Return the least and the greatest value, such as `3 to 8`; one of them if they read alike."""
    ordered = sorted(values)
    return " to ".join(dict.fromkeys((f"{ordered[0]:{form}}", f"{ordered[-1]:{form}}")))
