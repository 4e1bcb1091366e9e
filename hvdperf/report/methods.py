"""A paragraph for the section Methods of a paper, with the numbers of one session.

methods.txt has its sentences, one a line. A sentence is left out if the session's documents lack
one of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from string import Formatter

from hvdperf import verdict
from hvdperf.machine.disturbance import together
from hvdperf.models.registry import NETWORKS, Scale
from hvdperf.plan.arms import SWEEP, BlockKind, Schedule, Workload
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.records.fingerprint import Fingerprint, name_of
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.report import words
from hvdperf.report.cases import grouped
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
    groups = [facts(archive), *_trainings(archive)]
    return [
        sentence.format_map(group)
        for sentence in SENTENCES.read_text(encoding="utf-8").splitlines()
        for group in groups
        if all(_is_known(group, name) for _, name, *_ in Formatter().parse(sentence) if name)
    ]


def _is_known(group: Facts, name: str) -> bool:
    """Return whether a field is known, such as `suite`, or `session.against` of the document."""
    if group.get(name.partition(".")[0]) is None:
        return False
    return Formatter().get_field(name, (), group)[0] is not None


def facts(archive: Archive) -> Facts:
    """Return the facts about all cases together."""
    cases, session, known = archive.cases, archive.session, archive.fingerprint
    found = {**_machine(known, session), **_versions(known), **_design(cases, known)}
    found |= _of_session(session, archive.sessions, cases)
    if archive.sessions:
        counts = {case.figure.observations for case in cases if case.figure is not None}
        return found | {"sessions": words.span(counts) if counts else None}
    return found | _intervals(cases)


def _of_session(
    session: SessionDocument, parts: Sequence[Archive], cases: Sequence[Case]
) -> dict[str, object]:
    starts = [f"{each.session.began_at.astimezone(UTC):%Y-%m-%d %H:%M}" for each in parts]
    when = f"on {began(session)}"
    if starts:
        when = f"in {words.plural(len(starts), 'session')} that began at {words.joined(starts)} UTC"
    load = together(session.disturbances)
    alternate = session.schedule is Schedule.ALTERNATE and any(case.rounds for case in cases)
    return {
        "session": session,
        "suite": session.suite.replace("(", "(commit ").replace("+)", " with uncommitted changes)"),
        "when": when,
        "minutes": f"{session.elapsed_seconds / 60:.1f}",
        "timed": f"{session.timed_seconds / 60:.1f}",
        "command": session.command or None,
        "changed": "; ".join(session.changed) or "none",
        "foreign": load and f"{100 * load.foreign_share:.1f}",
        "steal": load and f"{100 * load.steal_share:.1f}",
        "interleaved": "interleaved" if alternate else None,
        "stopping": _stopping(session, cases),
    }


def _stopping(session: SessionDocument, cases: Sequence[Case]) -> str | None:
    """Return when a case had enough rounds: at its verdict, or as soon as it was precise."""
    looks, wanted = session.asked.looks, session.precision
    if not wanted:
        return f"ended with its verdict, after {looks[-1]} rounds at most" if looks else None
    figures = [case.figure for case in cases if case.figure is not None]
    reached = sum(verdict.is_precise(figure, wanted) for figure in figures)
    return (
        f"ended once its interval reached at most {100 * wanted:g} % to either side, or when time "
        f"was up; {reached} of {words.plural(len(figures), 'interval')} did"
    )


def _machine(known: Fingerprint, session: SessionDocument) -> dict[str, object]:
    parts = [words.machine(known, len(session.hosts))]
    parts += [f"SMT {known['smt']}"] if known["smt"] else []
    parts += [f"Linux {known['kernel']}"] if known["kernel"] != "unknown" else []
    parts += [f"in a container ({known['container']})"] if known["container"] else []
    return {"machine": ", ".join(parts)}


def _versions(known: Fingerprint) -> dict[str, object]:
    values: Mapping[str, object] = known
    versions = {key: f"{name}{values[key]}" for key, name in _VERSIONS.items() if values[key]}
    if known["gpu_driver"]:
        versions["gpu_driver"] = f"GPU driver {' and '.join(known['gpu_driver'])}"
    if known["horovod_built_with"]:
        versions["horovod"] += f" (built with {', '.join(known['horovod_built_with'])})"
    fusion = known["horovod_fusion_threshold_bytes"]
    size = f"{fusion / 2**20:g} MiB" if isinstance(fusion, int | float) else fusion
    settings = [
        f"a fusion threshold of {size}",
        f"a cycle time of {known['horovod_cycle_time_ms']} ms",
        *known["horovod_settings"],
        *known["mca_settings"],
        *known["nccl_settings"],
        *known["thread_settings"],
        *known["tensorflow_settings"],
    ]
    return {"versions": words.joined(versions.values()), "settings": words.joined(settings)}


def _trainings(archive: Archive) -> Iterator[Facts]:
    """Yield the facts about each script, and about networks that were trained alike."""
    made_up = archive.session.made_up_data
    own = {name_of(line) for line in archive.fingerprint.get("own_networks", [])}
    workloads = dict.fromkeys(case.workload for case in archive.cases if case.workload != SWEEP)
    yield from ({"script": workload.model} for workload in workloads if workload.is_script)
    networks = [workload for workload in workloads if not workload.is_script]
    ours = [each for each in networks if each.model not in own and _is_ours(each)]

    def how(workload: Workload) -> tuple[str, str]:
        parts = (
            f"a batch of {words.plural(workload.batch, 'sample')} per replica",
            f"the optimizer {workload.optimizer}" if workload in ours else "",
            f"{workload.precision} arithmetic",
        )
        return _data(workload, made_up), words.joined(filter(None, parts))

    for (data, means), alike in grouped(networks, how).items():
        names = [
            f"{words.published_name(each.model)} with input size {each.input_size}"
            for each in alike
        ]
        yield {"networks": words.joined(dict.fromkeys(names)), "data": data, "how": means}
    if any(NETWORKS[workload.model].scale is Scale.SMALL for workload in ours):
        yield {"small": Scale.SMALL.value}


def _is_ours(workload: Workload) -> bool:
    """Return whether the suite has the network, whatever the user's own are called."""
    network = NETWORKS.get(workload.model)
    return network is not None and not network.origin


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


def _design(cases: Sequence[Case], known: Fingerprint) -> dict[str, object]:
    """Return what was launched and timed; {} if nothing was."""
    launches = [launch for _, _, launch in each_launch(cases)]
    if not launches:
        return {}
    by_strategy = grouped(launches, lambda launch: launch.arm.strategy)
    ran = []
    for strategy in filter(by_strategy.__contains__, Strategy):
        sizes = sorted({launch.arm.world_size for launch in by_strategy[strategy]})
        ranks = "rank" if sizes == [1] else "ranks"
        ran.append(f"{_NAMES[strategy]} on {words.joined(map(str, sizes))} {ranks}")
    ways = {
        {"mpi": "MPI", "gloo": "Gloo"}.get(rank.transport, rank.transport)
        for launch in by_strategy.get(Strategy.HOROVOD, ())
        if launch.arm.world_size > 1
        for rank in launch.metadata
        if rank.transport
    }
    found: dict[str, object] = {
        "configurations": words.joined(ran),
        # On GPUs, the documents do not say whether gradients went by NCCL.
        "transport": words.joined(sorted(ways)) if ways and not known["gpus"] else None,
        "rounds": words.span([len(case.rounds) for case in cases if case.rounds]),
        "launches": f"{words.plural(len(launches), 'launch', 'launches')} with "
        f"{words.plural(sum(each.arm.processes for each in launches), 'process', 'processes')} "
        "together",
    }
    if blocks := [block for launch in launches for block in launch.blocks]:
        without = sum(block.kind is BlockKind.LOCAL for block in blocks)
        of_them = f" ({without} of them without the exchange of gradients)" if without else ""
        steps = f"{words.span([block.steps for block in blocks])} steps"
        found["blocks"] = f"{words.plural(len(blocks), 'block')} of {steps}{of_them}"
        turns = [len({block.turn for block in launch.blocks}) for launch in launches]
        found["turns"] = words.span(filter(None, turns))
    return found


def _intervals(cases: Sequence[Case]) -> dict[str, object]:
    """Return how intervals of results were made, and of throughputs (report.cases.centre_of)."""
    known = [case for case in cases if case.figure is not None and verdict.is_bounded(case.figure)]
    early = [case for case in known if case.outcome.judgement.early is not None]
    exact = [case for case in known if case not in early]
    wider = {case.outcome.judgement.widened for case in exact} - {1.0}
    how = (
        "invert the Wilcoxon signed-rank test, are wider by a factor of "
        f"{words.span(wider, '.3g')} "
        "because neighbouring rounds of this machine are correlated,"
        if wider
        else "invert the Wilcoxon signed-rank test for independent rounds"
    )
    noises = filter(None, (case.outcome.judgement.early for case in early))
    sds = dict.fromkeys(f"{100 * each.launch_sd:.1f} % ({each.source})" for each in noises)
    counts = [len(found) for found in throughputs(cases).values() if len(found) > 1]
    few = [count for count in counts if count < fewest_bounded(verdict.ALPHA)]
    kinds = ["those of Student's t over logarithms"] if few else []
    kinds += ["those of Hodges and Lehmann"] if len(few) < len(counts) else []
    return {
        "estimator": "Hodges and Lehmann" if known else None,
        "exact": f"{_with_rounds(exact)} {how}" if exact else None,
        "early": _with_rounds(early) if early else None,
        "launch_sd": words.joined(sds) if sds else None,
        "speeds": words.span(counts) if counts else None,
        "kinds": words.joined(kinds) if kinds else None,
    }


def _with_rounds(cases: Sequence[Case]) -> str:
    rounds = [case.outcome.judgement.rounds for case in cases]
    return f"{words.plural(len(cases), 'case')} with {words.span(rounds)} rounds"
