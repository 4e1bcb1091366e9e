"""The settings of Horovod, NCCL, TensorFlow, OpenMP and XLA in the environment of a process.

The module uses nothing newer than Python 3.9, because the ranks may run in an older interpreter.
"""

import os
from collections.abc import Mapping

PREFIXES = ("HOROVOD_", "NCCL_", "TF_", "OMP_", "XLA_")
# Those that say where a rank is, and so differ between ranks.
_OF_A_RANK = {
    *(f"HOROVOD_{kind}{what}" for kind in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE")),
    *("HOROVOD_HOSTNAME", "NCCL_SOCKET_IFNAME", "TF_CONFIG"),
}
# The rendezvous of one launch.
_OF_A_LAUNCH = "HOROVOD_GLOO_"


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that all ranks of a launch should have alike."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES)
        and not name.startswith(_OF_A_LAUNCH)
        and name not in _OF_A_RANK
    }
