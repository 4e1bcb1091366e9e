"""Start a group, pause it, print its process ids, and wait to be killed."""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hvdperf.launch.arm_launcher import (  # noqa: E402
    ArmLauncher,
    Installed,
    make_launcher,
)
from hvdperf.launch.hub import Hub  # noqa: E402
from hvdperf.machine.host import local_machine  # noqa: E402
from hvdperf.machine.placement import local_offers, place  # noqa: E402
from hvdperf.machine.stack import find_mpirun  # noqa: E402
from hvdperf.plan.arms import Arm, BlockKind, Workload  # noqa: E402
from hvdperf.plan.data import DataSource  # noqa: E402
from hvdperf.worker.strategies import Strategy  # noqa: E402

launcher, data, scratch = sys.argv[1], sys.argv[2], Path(sys.argv[3])
chosen = make_launcher(launcher, str(find_mpirun(Path(sys.executable))), 2, scratch, slots=None)
arm_launcher = ArmLauncher(
    stacks={"": Installed(sys.executable, chosen)},
    hub=Hub(),
    slots=place(local_offers(local_machine(), 2, oversubscribe=True)),
    data={"cifar10": DataSource("cifar10", data, 10)},
    scratch=scratch / "scratch",
    startup_deadline_s=60,
    order_deadline_s=60,
)
arm = Arm(Workload("alexnet_s", "cifar10", 67, 8), Strategy.HOROVOD, 2)
with arm_launcher.forking(print):
    group = arm_launcher.start(arm, {BlockKind.FULL}, data_seed=1, share_startup=False)
    group.wait_ready(60)
    group.pause()
    assert group.server is not None
    print(*(rank.pid for rank in group.ranks), group.server.pid, flush=True)
    time.sleep(600)
