"""Start a group, pause it while it imports, print its process ids, and wait to be killed."""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hvdperf.plan.arms import SWEEP, Arm  # noqa: E402
from hvdperf.worker.strategies import Strategy  # noqa: E402
from tests.support.groups import DEADLINE_S, on_two_slots  # noqa: E402

arm_launcher = on_two_slots(sys.argv[1], Path(sys.argv[2]), data={})
with arm_launcher.forking(print):
    group = arm_launcher.start(
        Arm(SWEEP, Strategy.HOROVOD, 2), (), data_seed=1, share_startup=False
    )
    arm_launcher.hub.pump_until(
        lambda: all(rank.phase == "import" for rank in group.ranks), time.monotonic() + DEADLINE_S
    )
    group.pause()
    assert group.server is not None
    print(*(rank.pid for rank in group.ranks), group.server.pid, flush=True)
    time.sleep(600)
