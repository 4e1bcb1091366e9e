"""The settings of Horovod, NCCL, TensorFlow, OpenMP and XLA in the environment of a process.

The module uses nothing newer than Python 3.9, because the ranks may run in an older interpreter.
"""

import os
from collections.abc import Mapping

PREFIXES = ("HOROVOD_", "NCCL_", "TF_", "OMP_", "XLA_")
# Those that say where a rank is, and so differ between ranks.
_PLACE = ("HOROVOD_GLOO_", "HOROVOD_HOSTNAME", "NCCL_SOCKET_IFNAME", "TF_CONFIG")
_PLACE_ENDS = ("_RANK", "_SIZE")


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that all ranks of a launch should have alike."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES)
        and not name.startswith(_PLACE)
        and not name.endswith(_PLACE_ENDS)
    }
