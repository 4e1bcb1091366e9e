"""Start a group, pause it, print its process ids, and wait to be killed."""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hvdperf.plan.arms import BlockKind  # noqa: E402
from hvdperf.plan.data import DataSource  # noqa: E402
from tests.support.groups import horovod, on_two_slots  # noqa: E402

launcher, data, scratch = sys.argv[1], sys.argv[2], Path(sys.argv[3])
sources = {"cifar10": DataSource("cifar10", data, 10)}
arm_launcher = on_two_slots(launcher, scratch / "scratch", data=sources)
with arm_launcher.forking(print):
    group = arm_launcher.start(horovod(2), {BlockKind.FULL}, data_seed=1, share_startup=False)
    group.wait_ready(60)
    group.pause()
    assert group.server is not None
    print(*(rank.pid for rank in group.ranks), group.server.pid, flush=True)
    time.sleep(600)
