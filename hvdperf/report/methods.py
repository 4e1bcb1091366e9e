"""A paragraph for the section Methods of a paper, with the numbers of one session.

methods.txt has its sentences, one a line. A sentence is written for each group of facts that has
all of its fields, and is left out if the session's documents lack one of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from string import Formatter

from hvdperf import verdict
from hvdperf.machine.disturbance import together
from hvdperf.models.registry import NETWORKS, Scale
from hvdperf.plan.arms import SWEEP, BlockKind, Schedule, Workload
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.records.fingerprint import Fingerprint, name_of
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.records.rounds import Launch
from hvdperf.report import words
from hvdperf.report.session import began
from hvdperf.stats import fewest_bounded
from hvdperf.worker.strategies import Strategy

SENTENCES = Path(__file__).with_name("methods.txt")
_NAMES = {
    Strategy.HOROVOD: "Horovod",
    Strategy.MIRRORED: "tf.distribute.MirroredStrategy",
    Strategy.MULTIWORKER: "tf.distribute.MultiWorkerMirroredStrategy",
    Strategy.SINGLE: "TensorFlow without distribution",
    Strategy.BARE: "MPI without a framework",
}
# A fingerprint's value for a text that the host does not report.
UNKNOWN = "unknown"
_TRANSPORTS = {"mpi": "MPI", "gloo": "Gloo"}
_VERSIONS = {
    "python": "Python ",
    "tensorflow": "TensorFlow ",
    "keras": "Keras ",
    "numpy": "NumPy ",
    "horovod": "Horovod ",
    "mpi_library": "",
    "cuda": "CUDA ",
    "cudnn": "cuDNN ",
    "nccl": "NCCL ",
}
# The fields of sentences, by name; None for a fact that is not known.
Facts = Mapping[str, object]


def methods(archive: Archive) -> list[str]:
    """Return the sentences of the paragraph. archive: has at least one document of the session."""
    groups = list(_facts(archive))
    return [
        sentence.format_map(group)
        for sentence in SENTENCES.read_text(encoding="utf-8").splitlines()
        for group in groups
        if all(group.get(name) is not None for _, name, *_ in Formatter().parse(sentence) if name)
    ]


def _facts(archive: Archive) -> Iterator[Facts]:
    """Yield the facts in groups; a sentence is about one of them."""
    cases, session = archive.cases, archive.session
    launches = [launch for _, _, launch in each_launch(cases)]
    if session is not None:
        yield _of_session(session, archive.sessions)
        yield _stopping(session, cases)
    yield _machine(archive)
    yield _software(archive.fingerprint, launches)
    yield from _trainings(archive, launches)
    yield _configurations(cases, launches)
    if launches and any(case.rounds for case in cases):
        yield _design(archive, launches)
    if archive.sessions:
        counts = {case.figure.observations for case in cases if case.figure is not None}
        yield {"sessions": words.span(counts) if counts else None}
    else:
        yield _intervals(cases)
    yield _rule(session, cases)


def _of_session(session: SessionDocument, parts: Sequence[Archive]) -> Facts:
    starts = [
        f"{each.session.began_at.astimezone(UTC):%Y-%m-%d %H:%M}"
        for each in parts
        if each.session is not None
    ]
    when = f"on {began(session)}"
    if starts:
        when = f"in {words.plural(len(starts), 'session')} that began at {words.joined(starts)} UTC"
    load = together(session.disturbances)
    problems = dict.fromkeys(name_of(line) for line in session.unfit)
    return {
        "suite": session.suite.replace("(", "(commit ").replace("+)", " with uncommitted changes)"),
        "profile": session.profile,
        "when": when,
        "minutes": f"{session.elapsed_seconds / 60:.1f}",
        "timed": f"{session.timed_seconds / 60:.1f}",
        "command": None if starts else session.command or None,
        "launched": session.launched,
        "against": session.against,
        "changed": "; ".join(session.changed) or "none",
        "problems": ", ".join(problems) or None,
        "foreign": load and f"{100 * load.foreign_share:.1f}",
        "steal": load and f"{100 * load.steal_share:.1f}",
    }


def _machine(archive: Archive) -> Facts:
    known, session = archive.fingerprint, archive.session
    hosts = 1 if session is None else len(session.hosts)
    smt = f", with SMT {known['smt']}" if known["smt"] else ""
    parts = [f"{processor(known)}{smt}"]
    if known["gpus"]:
        models, drivers = (" and ".join(known[key]) for key in ("gpu_model", "gpu_driver"))
        parts.append(f"{words.plural(known['gpus'], 'GPU')} ({models}; driver {drivers})")
    if known["memory_gib"]:
        parts.append(f"{known['memory_gib']} GiB of memory")
    system = [] if known["kernel"] == UNKNOWN else [f"Linux {known['kernel']}"]
    system += [f"in a container ({known['container']})"] if known["container"] else []
    return {
        "hosts": "The host has" if hosts <= 1 else f"Of the {hosts} hosts, that of rank 0 has",
        "machine": ", ".join(parts),
        "system": f"; it runs {', '.join(system)}" if system else "",
    }


def processor(known: Fingerprint) -> str:
    """Return the number of cores and, if it is known, their model."""
    model = "" if known["cpu_model"] == UNKNOWN else f" ({known['cpu_model']})"
    return f"{words.plural(known['cores'], 'core')}{model}"


def _software(known: Fingerprint, launches: Sequence[Launch]) -> Facts:
    values: Mapping[str, object] = known
    built = ", ".join(known["horovod_built_with"])
    versions = {key: f"{name}{values[key]}" for key, name in _VERSIONS.items() if values[key]}
    if built:
        versions["horovod"] += f" (built with {built})"
    fusion = known["horovod_fusion_threshold_bytes"]
    settings = [
        *known["horovod_settings"],
        *known["mca_settings"],
        *known["nccl_settings"],
        *known["thread_settings"],
        *known["tensorflow_settings"],
    ]
    ways = {
        _TRANSPORTS.get(rank.transport, rank.transport)
        for launch in launches
        if launch.arm.strategy is Strategy.HOROVOD and launch.arm.world_size > 1
        for rank in launch.metadata
        if rank.transport
    }
    return {
        "versions": words.joined(versions.values()),
        "fusion": f"{fusion / 2**20:g} MiB" if isinstance(fusion, int | float) else fusion,
        "cycle_time": known["horovod_cycle_time_ms"],
        "settings": f"; other settings: {', '.join(settings)}" if settings else "",
        # On GPUs, the documents do not say whether gradients went by NCCL.
        "transport": words.joined(sorted(ways)) if ways and not known["gpus"] else None,
    }


def _trainings(archive: Archive, launches: Sequence[Launch]) -> Iterator[Facts]:
    """Yield the networks that were trained alike, and each script."""
    made_up = None if archive.session is None else archive.session.made_up_data
    own = {name_of(line) for line in archive.fingerprint.get("own_networks", [])}
    alike: dict[tuple[str, str], list[str]] = {}
    small = None
    for workload in dict.fromkeys(case.workload for case in archive.cases):
        if workload.is_script:
            yield {"script": workload.model}
        elif workload != SWEEP:
            network = NETWORKS.get(workload.model)
            is_own = network is None or bool(network.origin) or workload.model in own
            if network is not None and network.scale is Scale.SMALL and not is_own:
                small = Scale.SMALL.value
            how = (
                f"a batch of {words.plural(workload.batch, 'sample')} per replica",
                "" if is_own else f"the optimizer {workload.optimizer}",
                _rate(workload, archive.cases, is_own),
                f"{workload.precision} arithmetic",
            )
            name = f"{words.published_name(workload.model)} with input size {workload.input_size}"
            names = alike.setdefault(
                (_data(workload, made_up), words.joined(filter(None, how))), []
            )
            names += [name] if name not in names else []
    for (data, means), names in alike.items():
        were = "was" if len(names) == 1 else "were"
        yield {"networks": words.joined(names), "were": were, "data": data, "how": means}
    yield {"small": small}


def _configurations(cases: Sequence[Case], launches: Sequence[Launch]) -> Facts:
    sizes: dict[Strategy, set[int]] = {}
    for launch in launches:
        sizes.setdefault(launch.arm.strategy, set()).add(launch.arm.world_size)
    ran = [
        f"{_NAMES[strategy]} on {words.joined(map(str, sorted(sizes[strategy])))} "
        f"{'rank' if sizes[strategy] == {1} else 'ranks'}"
        for strategy in Strategy
        if strategy in sizes
    ]
    faulty = [case.comparison for case in cases if case.comparison.is_fault_case]
    faults = {comparison.candidate.arm.injected for comparison in faulty}
    return {
        "configurations": words.joined(ran) if ran else None,
        "faults": words.joined(sorted(faults)) if faults else None,
    }


def _data(workload: Workload, made_up: Sequence[str] | None) -> str:
    """Return what a workload was trained on, in words. made_up: the data sets whose contents the
    suite made up; None if that is unknown."""
    if workload.dataset == workload.model:
        return "data of its own"
    if workload.dataset == "synthetic":
        return "random samples in memory"
    if made_up is None:
        return f"samples in the format of {workload.dataset}"
    if workload.dataset in made_up:
        return f"made-up samples in the format of {workload.dataset}"
    return workload.dataset


def _rate(workload: Workload, cases: Sequence[Case], is_own: bool) -> str:
    """Return the learning rate that ranks reported at the end of their launches; "" if none did.
    is_own: whether the optimizer is the user's own, which may change its rate."""
    rates = {
        rank.learning_rate
        for _, _, launch in each_launch(case for case in cases if case.workload == workload)
        if launch.arm.strategy is not Strategy.BARE and not launch.arm.injected
        for rank in launch.evidence
        if math.isfinite(rank.learning_rate) and rank.learning_rate > 0
    }
    if not rates:
        return ""
    if workload.learning_rate == "constant" and not is_own:
        return f"a constant learning rate of {words.span(rates, '.3g')}"
    return f"a learning rate of {words.span(rates, '.3g')} (at the end of a launch)"


def _design(archive: Archive, launches: Sequence[Launch]) -> Facts:
    session = archive.session
    blocks = [block for launch in launches for block in launch.blocks]
    without = sum(block.kind is BlockKind.LOCAL for block in blocks)
    turns = [len({block.turn for block in launch.blocks}) for launch in launches]
    alternate = session is not None and session.schedule is Schedule.ALTERNATE
    return {
        "rounds": words.span([len(case.rounds) for case in archive.cases if case.rounds]),
        "launches": words.plural(len(launches), "launch", "launches"),
        "processes": words.plural(
            sum(each.arm.processes for each in launches), "process", "processes"
        ),
        "blocks": words.plural(len(blocks), "block") if blocks else None,
        "steps": words.span([block.steps for block in blocks]) if blocks else None,
        "without": f", {without} of them without the exchange of gradients" if without else "",
        "turns": words.span(filter(None, turns)) if blocks else None,
        "interleaved": "interleaved" if alternate else None,
    }


def _intervals(cases: Sequence[Case]) -> Facts:
    known = [case for case in cases if case.figure is not None and verdict.is_bounded(case.figure)]
    early = [case for case in known if case.outcome.judgement.early is not None]
    exact = [case for case in known if case.outcome.judgement.early is None]
    wider = {case.outcome.judgement.widened for case in exact} - {1.0}
    noises = filter(None, (case.outcome.judgement.early for case in early))
    sds = dict.fromkeys(f"{100 * each.launch_sd:.1f} % ({each.source})" for each in noises)
    # How intervals of throughputs are made: report.cases.centre_of.
    counts = [len(found) for found in throughputs(cases).values() if len(found) > 1]
    few = [count for count in counts if count < fewest_bounded(verdict.ALPHA)]
    kinds = [
        *(["those of Student's t over logarithms"] if few else []),
        *(["those of Hodges and Lehmann"] if len(few) < len(counts) else []),
    ]
    return {
        "estimator": "Hodges and Lehmann" if known else None,
        "independent": None if wider else _with_rounds(exact),
        "correlated": _with_rounds(exact),
        "wider": words.span(wider, ".3g") if wider else None,
        "early": _with_rounds(early),
        "launch_sd": words.joined(sds) if sds else None,
        "level": f"{100 * (1 - 2 * verdict.ALPHA):g}",
        "speeds": words.span(counts) if counts else None,
        "kinds": words.joined(kinds) if kinds else None,
    }


def _with_rounds(cases: Sequence[Case]) -> str | None:
    rounds = [case.outcome.judgement.rounds for case in cases]
    return f"{words.plural(len(cases), 'case')} with {words.span(rounds)} rounds" if cases else None


def _rule(session: SessionDocument | None, cases: Sequence[Case]) -> Facts:
    name = "" if session is None else session.asked.thresholds.name
    # The rule for one stack against another judges these (judge/judge.py).
    stacks = [
        case
        for case in cases
        if case.judged_as is JudgedAs.REGRESSION and case.question.spec.is_speed
    ]
    threshold = f"threshold (file {name})" if name else "threshold"
    return {
        "fail_below": verdict.REGRESSION.fail_below if stacks else None,
        "pass_from": verdict.REGRESSION.pass_from,
        "confidence": words.with_confidence(session, stacks),
        "threshold": threshold if len(stacks) < len(cases) or not cases else None,
        "cases": words.plural(len(cases), "case") if cases else None,
        "verdicts": verdict.counted(Counter(case.verdict for case in cases)),
    }


def _stopping(session: SessionDocument, cases: Sequence[Case]) -> Facts:
    """Return when a case had enough rounds: at its first verdict, or as soon as it was precise."""
    looks, wanted = session.asked.looks, session.precision
    figures = [case.figure for case in cases if case.figure is not None]
    return {
        "least": f"it had {looks[0]} rounds and " if looks else "",
        "precision": f"{100 * wanted:g}" if wanted else None,
        "reached": sum(verdict.is_precise(figure, wanted) for figure in figures),
        "intervals": words.plural(len(figures), "interval"),
        "looks": words.joined(map(str, looks), "or") if looks and not wanted else None,
        "only": "; earlier analyses could only pass a case" if session.asked.early else "",
    }
