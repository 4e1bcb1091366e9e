"""A paragraph for the section Methods of a paper, with the numbers of one session.

Every number is from the session's documents. A sentence is left out if they do not have its number.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC

from hvdperf.models.registry import NETWORKS, Scale
from hvdperf.plan.arms import SWEEP, BlockKind, Schedule, Workload
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case, SessionDocument, disturbance_summary
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.records.rounds import Launch
from hvdperf.report.cases import with_confidence
from hvdperf.report.session import began
from hvdperf.report.words import joined, plural, published_name, span
from hvdperf.stats import fewest_bounded
from hvdperf.verdict import ALPHA, REGRESSION, counted, is_bounded, is_precise
from hvdperf.worker.strategies.table import Strategy

_NAMES = {
    Strategy.HOROVOD: "Horovod",
    Strategy.MIRRORED: "tf.distribute.MirroredStrategy",
    Strategy.MULTIWORKER: "tf.distribute.MultiWorkerMirroredStrategy",
    Strategy.SINGLE: "TensorFlow without distribution",
    Strategy.BARE: "MPI without a framework",
}
# What a fingerprint has for a text that the host does not tell.
UNKNOWN = "unknown"
_TRANSPORTS = {"mpi": "MPI", "gloo": "Gloo"}


def methods(archive: Archive) -> list[str]:
    """Return the sentences of the paragraph. archive: has at least one document of the session."""
    return [
        *_suite(archive),
        *_machine(archive),
        *_software(archive),
        *_workloads(archive),
        *_design(archive),
        *(_of_sessions(archive) if archive.sessions else _intervals(archive.cases)),
        *_rule(archive),
        *_disturbance(archive.session),
    ]


def _suite(archive: Archive) -> Iterator[str]:
    session = archive.session
    if session is None:
        return
    found = re.fullmatch(r"(\S+) \((\w+)(\+?)\)", session.suite)
    version = session.suite
    if found:
        changed = " with uncommitted changes" if found[3] else ""
        version = f"{found[1]} (commit {found[2]}{changed})"
    parts = [each.session for each in archive.sessions if each.session is not None]
    when = f"on {began(session)}"
    if parts:
        starts = joined(f"{each.began_at.astimezone(UTC):%Y-%m-%d %H:%M}" for each in parts)
        when = f"in {plural(len(parts), 'session')} that began at {starts} UTC"
    yield (
        f"We measured with hvdperf {version}, profile {session.profile}, {when}, for "
        f"{session.elapsed_seconds / 60:.1f} minutes, of which "
        f"{session.timed_seconds / 60:.1f} minutes were timed."
    )
    if session.command and not parts:
        yield f"The command was: {session.command}."


def _machine(archive: Archive) -> Iterator[str]:
    known, session = archive.fingerprint, archive.session
    hosts = 1 if session is None else len(session.hosts)
    which = "The host has" if hosts <= 1 else f"Of the {hosts} hosts, that of rank 0 has"
    parts = [processor(known)]
    if known["smt"]:
        parts[0] += f", with SMT {known['smt']}"
    if known["gpus"]:
        models = " and ".join(known["gpu_model"])
        drivers = " and ".join(known["gpu_driver"])
        parts.append(f"{plural(known['gpus'], 'GPU')} ({models}; driver {drivers})")
    if known["memory_gib"]:
        parts.append(f"{known['memory_gib']} GiB of memory")
    system = [] if known["kernel"] == UNKNOWN else [f"Linux {known['kernel']}"]
    system += [f"in a container ({known['container']})"] if known["container"] else []
    runs = f"; it runs {', '.join(system)}" if system else ""
    yield f"{which} {', '.join(parts)}{runs}."


def processor(known: Fingerprint) -> str:
    """Return the number of cores and, if it is known, their model."""
    model = "" if known["cpu_model"] == UNKNOWN else f" ({known['cpu_model']})"
    return f"{plural(known['cores'], 'core')}{model}"


def _software(archive: Archive) -> Iterator[str]:
    known = archive.fingerprint
    built = ", ".join(known["horovod_built_with"])
    parts = [
        f"Python {known['python']}",
        f"TensorFlow {known['tensorflow']}",
        f"Keras {known['keras']}",
        f"NumPy {known['numpy']}",
        f"Horovod {known['horovod']}" + (f" (built with {built})" if built else ""),
        known["mpi_library"],
        *(
            f"{name} {version}" if version else None
            for name, version in (
                ("CUDA", known["cuda"]),
                ("cuDNN", known["cudnn"]),
                ("NCCL", known["nccl"]),
            )
        ),
    ]
    yield f"The software was {joined(filter(None, parts))}."
    fusion = known["horovod_fusion_threshold_bytes"]
    fused = f"{fusion / 2**20:g} MiB" if isinstance(fusion, int | float) else fusion
    kinds = ("horovod", "mca", "nccl", "thread", "tensorflow")
    settings = [each for kind in kinds for each in known[f"{kind}_settings"]]  # type: ignore[literal-required]
    also = f"; other settings: {', '.join(settings)}" if settings else ""
    yield (
        f"Horovod's fusion threshold was {fused}, and its cycle time "
        f"{known['horovod_cycle_time_ms']} ms{also}."
    )
    yield from _exchange(archive)
    session = archive.session
    if session is not None:
        yield f"Ranks were started as follows: {session.launched}."
    if session is not None and session.against is not None:
        differs = "; ".join(session.changed) or "none"
        yield (
            f"Every case compares this stack with that of {session.against}. Differences from that "
            f"stack to this one: {differs}."
        )


def _exchange(archive: Archive) -> Iterator[str]:
    """Yield what is known of the way between the ranks: the network between hosts is in no
    document."""
    groups = [
        launch
        for launch in _launches(archive.cases)
        if launch.arm.strategy is Strategy.HOROVOD and launch.arm.world_size > 1
    ]
    ways = {rank.transport for launch in groups for rank in launch.metadata if rank.transport}
    # On GPUs, the documents do not say whether gradients went by NCCL.
    if ways and not archive.fingerprint["gpus"]:
        names = sorted(_TRANSPORTS.get(way, way) for way in ways)
        yield f"Horovod reduced gradients by {joined(names)}."


def _workloads(archive: Archive) -> Iterator[str]:
    cases = archive.cases
    made_up = None if archive.session is None else archive.session.made_up_data
    own = {named.partition(": ")[0] for named in archive.fingerprint.get("own_networks", [])}
    alike: dict[tuple[str, tuple[str, str, str, str]], dict[str, None]] = {}
    small = False
    for workload in dict.fromkeys(case.workload for case in cases):
        if workload.is_script:
            yield f"The script {workload.model} was run unchanged, with its own data and batches."
        elif workload != SWEEP:
            network = NETWORKS.get(workload.model)
            is_own = network is None or bool(network.origin) or workload.model in own
            small |= not is_own and network is not None and network.scale is Scale.SMALL
            how = (
                f"a batch of {plural(workload.batch, 'sample')} per replica",
                "" if is_own else f"the optimizer {workload.optimizer}",
                _rate(workload, cases, is_own),
                f"{workload.precision} arithmetic",
            )
            name = f"{published_name(workload.model)} with input size {workload.input_size}"
            alike.setdefault((_data(workload, made_up), how), {})[name] = None
    for (data, how), names in alike.items():
        verb = "was" if len(names) == 1 else "were"
        yield f"{joined(names)} {verb} trained on {data} with {joined(filter(None, how))}."
    if small:
        yield "Networks called small have the published topology with less width and depth."
    sizes: dict[Strategy, set[int]] = {}
    for launch in _launches(cases):
        sizes.setdefault(launch.arm.strategy, set()).add(launch.arm.world_size)
    ran = [
        f"{_NAMES[strategy]} on {joined(map(str, sorted(sizes[strategy])))} "
        f"{'rank' if sizes[strategy] == {1} else 'ranks'}"
        for strategy in Strategy
        if strategy in sizes
    ]
    if ran:
        yield f"The configurations were {joined(ran)}."
    of_faults = [case.comparison for case in cases if case.comparison.is_fault_case]
    faults = {comparison.candidate.arm.injected for comparison in of_faults}
    if faults:
        yield f"Faults were injected on purpose: {joined(sorted(faults))}."


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
        for launch in _launches(case for case in cases if case.workload == workload)
        if launch.arm.strategy is not Strategy.BARE and not launch.arm.injected
        for rank in launch.evidence
        if math.isfinite(rank.learning_rate) and rank.learning_rate > 0
    }
    if not rates:
        return ""
    if workload.learning_rate == "constant" and not is_own:
        return f"a constant learning rate of {span(rates, '.3g')}"
    return f"a learning rate of {span(rates, '.3g')} (at the end of a launch)"


def _design(archive: Archive) -> Iterator[str]:
    cases, session = archive.cases, archive.session
    launches = _launches(cases)
    rounds = [len(case.rounds) for case in cases if case.rounds]
    if not launches or not rounds:
        return
    blocks = [block for launch in launches for block in launch.blocks]
    without = sum(block.kind is BlockKind.LOCAL for block in blocks)
    launched = plural(len(launches), "launch", "launches")
    processes = sum(launch.arm.processes for launch in launches)
    started = plural(processes, "process", "processes")
    yield (
        f"A case has {span(rounds)} rounds; in each round every arm was launched once more, in "
        f"all {launched} with {started} together."
    )
    if blocks:
        turns = [len({block.turn for block in launch.blocks}) for launch in launches]
        steps = [block.steps for block in blocks]
        yield (
            f"{plural(len(blocks), 'block')} of {span(steps)} steps were timed"
            f"{f', {without} of them without the exchange of gradients' if without else ''}, in "
            f"{span([turn for turn in turns if turn])} turns per launch, and the time of a "
            "block is that of its slowest rank."
        )
    if session is not None and session.schedule is Schedule.ALTERNATE:
        yield (
            "The turns of the arms of a network were interleaved within a round, which gives "
            "one observation of a ratio of speeds: the median over the turns of its "
            "logarithm."
        )


def _intervals(cases: Sequence[Case]) -> Iterator[str]:
    known = [case for case in cases if case.figure is not None and is_bounded(case.figure)]
    early = [case for case in known if case.outcome.judgement.early is not None]
    exact = [case for case in known if case.outcome.judgement.early is None]
    if known:
        yield "Estimates are those of Hodges and Lehmann over the rounds."
    if exact:
        wider = {case.outcome.judgement.widened for case in exact} - {1.0}
        widened = (
            f", are wider by a factor of {span(wider, '.3g')} because neighbouring rounds of this "
            "machine are correlated,"
            if wider
            else " for independent rounds"
        )
        yield (
            f"The intervals of {_with_rounds(exact)} invert the Wilcoxon signed-rank "
            f"test{widened} and have a confidence of 95 % or more."
        )
    if early:
        assumed = [noise for case in early if (noise := case.outcome.judgement.early) is not None]
        between = joined(
            dict.fromkeys(f"{100 * noise.launch_sd:.1f} % ({noise.source})" for noise in assumed)
        )
        yield (
            f"The intervals of {_with_rounds(early)} are those of Student's t, with a variance "
            "from these rounds, from the turns within launches, and from a standard "
            f"deviation between launches of {between}; they have a confidence of 95 %."
        )
    yield from _throughputs(cases)


def _of_sessions(archive: Archive) -> Iterator[str]:
    """Yield how several sessions are put together (report.pooled)."""
    known = [case.figure for case in archive.cases if case.figure is not None]
    if known:
        yield (
            f"Every session is one observation: estimates are geometric means over "
            f"{span({figure.observations for figure in known})} sessions, with the intervals of "
            "Student's t, which have a confidence of 95 %."
        )


def _throughputs(cases: Sequence[Case]) -> Iterator[str]:
    """Yield how intervals of throughputs are made (report.cases.centre_of)."""
    counts = [len(found) for found in throughputs(cases).values() if len(found) > 1]
    few = [count for count in counts if count < fewest_bounded(ALPHA)]
    kinds = [
        *(["those of Student's t over logarithms"] if few else []),
        *(["those of Hodges and Lehmann"] if len(few) < len(counts) else []),
    ]
    if counts:
        yield (
            f"Intervals of throughputs, of {100 * (1 - 2 * ALPHA):g} %, are over {span(counts)} "
            f"launches each, {joined(kinds)}."
        )


def _with_rounds(cases: Sequence[Case]) -> str:
    rounds = [case.outcome.judgement.rounds for case in cases]
    return f"{plural(len(cases), 'case')} with {span(rounds)} rounds"


def _rule(archive: Archive) -> Iterator[str]:
    cases, session = archive.cases, archive.session
    name = "" if session is None else session.asked.thresholds.name
    named = f" (file {name})" if name else ""
    of_stacks = [case for case in cases if _compares_speeds_of_stacks(case)]
    if of_stacks:
        yield (
            f"A case fails if the ratio of the speeds of the two stacks is below "
            f"{REGRESSION.fail_below}, and passes if it is not below {REGRESSION.pass_from}"
            f"{with_confidence(session, of_stacks)}, and is inconclusive otherwise."
        )
    if len(of_stacks) < len(cases) or not cases:
        yield (
            f"A case passes if its whole interval meets its threshold{named}, fails if its whole "
            "interval misses it, and is inconclusive otherwise."
        )
    if session is not None:
        yield from _stopping(cases, session)
    if cases:
        verdicts = counted(Counter(case.verdict for case in cases))
        yield f"The verdicts on {plural(len(cases), 'case')}: {verdicts}."


def _stopping(cases: Sequence[Case], session: SessionDocument) -> Iterator[str]:
    """Yield when a case had enough rounds: at its first verdict, or as soon as it was precise."""
    looks, wanted = session.asked.looks, session.precision
    if wanted:
        figures = [case.figure for case in cases if case.figure is not None]
        reached = sum(is_precise(figure, wanted) for figure in figures)
        least = f"it had {looks[0]} rounds and " if looks else ""
        yield (
            f"A case ended once {least}its interval reached at most {100 * wanted:g} % to either "
            f"side, or when time was up; {reached} of {plural(len(figures), 'interval')} did."
        )
    elif looks:
        only = "; earlier analyses could only pass a case" if session.asked.early else ""
        yield f"A case could fail after {joined(map(str, looks), 'or')} rounds{only}."


def _compares_speeds_of_stacks(case: Case) -> bool:
    """Return whether the rule for one stack against another judges the case (judge/rules.py)."""
    return case.judged_as is JudgedAs.REGRESSION and case.question.spec.is_speed


def _disturbance(session: SessionDocument | None) -> Iterator[str]:
    if session is not None and session.unfit:
        # Each line is a property, what it is, and what to do.
        problems = dict.fromkeys(line.partition(": ")[0] for line in session.unfit)
        yield f"Before measuring, the suite found problems with this host: {', '.join(problems)}."
    whole = disturbance_summary(session.disturbances) if session is not None else None
    if whole is not None:
        yield (
            f"While blocks were timed, other programs used {100 * whole.foreign_share:.1f} % of "
            f"the cores, and the hypervisor took {100 * whole.steal_share:.1f} %."
        )


def _launches(cases: Iterable[Case]) -> list[Launch]:
    """Return the launches of all cases, each once."""
    return [launch for _, _, launch in each_launch(cases)]
