"""`python -m bench.fault_pairs`: records pairs of launches, one with an injected fault and one
without, as data for later judgements.

A pair is one round of two equal arms of two ranks, of which one has the fault, or none has. The
suite's own code launches and times them. Each pair is one file, written whole, so it can be stopped
and restarted at any time; run it while nothing else is measured.
"""

from __future__ import annotations

import argparse
import lzma
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.json_records import Moment, Positive, decode, plain
from hvdperf.launch.arm_launcher import ArmLauncher, dispose, make_arm_launcher
from hvdperf.machine.cpu_usage import CpuMeter, make_meter
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, ROOT, shown
from hvdperf.plan.arms import AA, Arm, BlockKind, Schedule, Side, Workload
from hvdperf.plan.options import Options, Sampling
from hvdperf.plan.questions import Fault
from hvdperf.plan.session_plan import plan_session
from hvdperf.records.documents import now, session_name
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.rounds import Launch, Round
from hvdperf.report.words import plural
from hvdperf.version import version
from hvdperf.work.base import RoundRequest, RoundSettings
from hvdperf.work.blocks import Blocks
from hvdperf.work.round_runner import RoundRunner
from hvdperf.worker.strategies.table import Strategy

PAIRS = ROOT / "results" / "pairs"
ENDING = ".json.xz"
FORMAT = 1
RANKS = 2
TURNS = 4
KINDS = (BlockKind.FULL, BlockKind.LOCAL)
# Times are kept to a microsecond; a step takes milliseconds.
DIGITS = 6
FACTORS = (1.05, 1.1, 1.2, 1.3, 1.5, 2.0)
DELAYS_MS = (1, 2, 5, 10, 20, 50)
_BY_FACTOR = [f"rank={{rank}},factor={factor}" for factor in FACTORS]
# The faults to draw from: first a kind, and then one of its sizes. The kind "none" is an A/A pair.
FAULTS = {
    "none": [""],
    "slow": [f"slow:{size}" for size in _BY_FACTOR],
    "input": [f"input:{size}" for size in _BY_FACTOR],
    "delay": [f"delay:rank={{rank}},ms={ms}" for ms in DELAYS_MS],
    "busy": ["busy:rank={rank}"],
    "cycle": ["cycle"],
    "nofuse": ["nofuse"],
}


@dataclass(frozen=True)
class Pair:
    """Two equal arms in one round, recorded for later judgements.

    fault: as --inject takes it; "" for none. The arm whose `injected` is AA has it, the other has
    none. round: with every step of every rank, without names of other programs.
    """

    format: Positive
    recorded_at: Moment
    suite: str
    fingerprint: Fingerprint
    fault: str
    round: Round


class OfOneArm(Fault):
    """A fault of one of two equal arms: of the one that is marked AA."""

    def strikes(self, arm: Arm) -> bool:
        return arm.injected == AA


class NotRecorded(Exception):
    """A launch failed or is not valid; the message says why."""


def drawn(seed: int, number: int) -> str:
    """Return the fault of the pair with that number, as --inject takes it; "" for none."""
    generator = random.Random(f"{seed} {number}")
    kind = generator.choice(list(FAULTS))
    return generator.choice(FAULTS[kind]).format(rank=generator.randrange(RANKS))


def measure(
    arm_launcher: ArmLauncher,
    workload: Workload,
    sampling: Sampling,
    meter: CpuMeter | None,
    fault: str,
) -> Round:
    """Launch the two arms side by side, and time their blocks in turns. Raises NotRecorded."""
    usual = Arm(workload, Strategy.HOROVOD, RANKS)
    faulty = replace(usual, injected=AA)
    arm_launcher.fault = OfOneArm(**vars(Fault.parse(fault))) if fault else None
    settings = RoundSettings(arm_launcher, sampling, random.Random(), _ignore, meter=meter)
    runner = RoundRunner(Blocks(settings), Schedule.ALTERNATE)
    pairs = [(Side(faulty, kind), Side(usual, kind)) for kind in KINDS]
    arms = (faulty, usual)
    result = runner.run(RoundRequest(0, arms, dict.fromkeys(arms, KINDS), pairs, TURNS))
    problems = [str(failure) for failure in runner.failures.values()]
    problems += [problem for launch in result.launches for problem in Blocks.problems(launch)]
    if problems:
        raise NotRecorded(problems[0])
    return _of_timing(result)


def _ignore(text: str) -> None:
    """Take a line of progress."""


def _of_timing(measured: Round) -> Round:
    """Return the round without what names programs, and without the evidence, which is valid."""
    disturbance = measured.disturbance

    def timing(launch: Launch) -> Launch:
        return replace(launch, evidence=())

    return replace(
        measured,
        launches=list(map(timing, measured.launches)),
        disturbance=None if disturbance is None else replace(disturbance, culprits=()),
    )


def packed(pair: Pair) -> bytes:
    """Return the file of a pair."""
    return lzma.compress(msgspec.json.encode(_rounded(plain(pair))) + b"\n")


def read_pairs(directory: Path) -> list[Pair]:
    """Return all recorded pairs of a directory, in the order of their names. Raises Unreadable."""
    paths = sorted(directory.glob(f"*{ENDING}"))
    return [decode(lzma.decompress(path.read_bytes()), Pair) for path in paths]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return list(map(_rounded, value)) if isinstance(value, list) else value


def record(count: int, out: Path, seed: int, models: str) -> int:
    """Record pairs into a directory, and return how many there are now. The number of a pair, those
    that are there included, decides its network and, with the seed, its fault. models: names, in
    turn. Raises UserError."""
    machine = local_machine()
    options = Options(profile="trust", models=models)
    session_plan = plan_session(options, machine, local_offers(machine))
    if RANKS not in session_plan.world_sizes:
        raise UserError(f"this machine has no room for {RANKS} ranks")
    stack = probe(sys.executable, CACHE)
    facts = fingerprint(
        machine,
        stack,
        options.launcher,
        session_plan.slots,
        data_sets={name: data.identity for name, data in session_plan.data.items()},
    )
    out.mkdir(parents=True, exist_ok=True)
    begin = len(list(out.glob(f"*{ENDING}")))
    arm_launcher = make_arm_launcher(session_plan, {"": stack}, None)
    meter = make_meter(session_plan.slots, 0.0)
    try:
        for number in range(begin, begin + count):
            workload = session_plan.workloads[number % len(session_plan.workloads)]
            fault = drawn(seed, number)
            print(f"{number}: {workload.model}, {fault or 'no fault'}", flush=True)
            try:
                found = measure(arm_launcher, workload, session_plan.profile.sampling, meter, fault)
            except NotRecorded as error:
                print(f"{number}: not recorded: {error}", flush=True)
                continue
            pair = Pair(FORMAT, now(), version(), facts, fault, found)
            write_whole(out / f"{session_name()}{ENDING}", packed(pair))
    finally:
        dispose(arm_launcher)
    return len(list(out.glob(f"*{ENDING}")))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fault_pairs", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="number of pairs to add (10)")
    parser.add_argument("--out", type=Path, default=PAIRS, metavar="DIR", help="results/pairs")
    parser.add_argument("--seed", type=int, default=1, help="of the faults that are drawn (1)")
    parser.add_argument("--models", default="vgg_16_s,resnet_50_s", metavar="A,B")
    given = parser.parse_args(arguments)
    # On SIGTERM, too, `finally` ends everything that was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        total = record(given.count, given.out, given.seed, given.models)
    except (UserError, OSError) as error:
        sys.exit(f"bench.fault_pairs: {error}")
    except KeyboardInterrupt:
        sys.exit("bench.fault_pairs: interrupted; the pairs that are written are kept")
    print(f"{plural(total, 'pair')} in {shown(given.out)}")


if __name__ == "__main__":
    main()
