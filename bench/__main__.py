"""`python -m bench`: what the suite costs, on this machine, now."""

from __future__ import annotations

import sys

from bench import marks, overhead, startup
from harness.campaign import plan_campaign
from harness.machine import local_machine
from harness.opening import dispose, make_starter
from harness.options import Options
from harness.placement import local_offers
from harness.places import ROOT
from harness.plan import Arm, Strategy
from harness.stack import probe


def main() -> None:
    machine = local_machine()
    options = Options(profile="default", models="resnet_50_s")
    campaign = plan_campaign(options, machine, local_offers(machine))
    stack = probe(sys.executable, ROOT / ".cache")
    starter = make_starter(campaign, {"": stack}, None)
    sizes = sorted({1, campaign.world_sizes[-1]})
    print(f"{machine.description}; about {3 * len(sizes)} minutes", flush=True)
    try:
        for size in sizes:
            arm = Arm(campaign.workloads[0], Strategy.HOROVOD, size)
            show(startup.report(arm, startup.measure(starter, arm)))
            show(marks.report(arm, marks.compare(starter, arm)))
            show(overhead.report(arm, overhead.compare(starter, stack.mpirun, arm)))
    finally:
        dispose(starter)


def show(lines: list[str]) -> None:
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
