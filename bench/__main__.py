"""`python -m bench [PART ...]`: measures the suite's own cost on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping

from bench import forks, overhead, startup, timestamps
from hvdperf.launch.arm_launcher import ArmLauncher, dispose, make_arm_launcher
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE
from hvdperf.plan.arms import Arm
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.worker.strategies.table import Strategy

PARTS: Mapping[str, Callable[[ArmLauncher, Arm], list[str]]] = {
    "startup": startup.run,
    "timestamps": timestamps.run,
    "overhead": overhead.run,
    "forks": forks.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"parts to run, of {', '.join(PARTS)} (all)"
    )
    parser.add_argument("--models", default="resnet_50_s", metavar="A,B")
    parser.add_argument("--np", metavar="A,B", help="world sizes (1, and as many as fit)")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    # On SIGTERM, too, `finally` ends everything that was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine = local_machine()
    options = Options(profile="default", models=given.models)
    session_plan = plan_session(options, machine, local_offers(machine))
    stack = probe(sys.executable, CACHE)
    arm_launcher = make_arm_launcher(session_plan, {"": stack}, None)
    sizes = (
        [int(size) for size in given.np.split(",")]
        if given.np
        else sorted({1, session_plan.world_sizes[-1]})
    )
    arms = [Arm(w, Strategy.HOROVOD, size) for w in session_plan.workloads for size in sizes]
    parts = given.parts or list(PARTS)
    print(f"{machine.description}; about {len(parts) * len(arms)} minutes", flush=True)
    try:
        for arm in arms:
            for part in parts:
                print("\n".join(PARTS[part](arm_launcher, arm)), flush=True)
    finally:
        dispose(arm_launcher)


if __name__ == "__main__":
    main()
