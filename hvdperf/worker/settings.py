"""The settings of Horovod, NCCL, TensorFlow, OpenMP and XLA in the environment of a process.

The module uses nothing newer than Python 3.9, because the ranks may run in an older interpreter.
"""

import os
from collections.abc import Mapping

PREFIXES = (
    *("HOROVOD_", "NCCL_", "TF_", "XLA_", "KERAS_", "ONEDNN_", "DNNL_"),
    *("OMP_", "KMP_", "MKL_"),
)
# Those that say where a rank is, and so differ between ranks.
OF_A_RANK = {
    *(f"HOROVOD_{kind}{what}" for kind in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE")),
    *("HOROVOD_HOSTNAME", "TF_CONFIG"),
}
# Variables of Terraform, which has the same prefix and keeps passwords there.
OF_OTHERS = (
    *("TF_VAR_", "TF_TOKEN_", "TF_CLI_", "TF_HTTP_", "TF_CLOUD_", "TF_REGISTRY_", "TF_LOG"),
    *("TF_WORKSPACE", "TF_INPUT", "TF_PLUGIN_", "TF_IN_AUTOMATION", "TF_DATA_DIR", "TF_IGNORE"),
)
# The rendezvous of one launch, and the interface of a host.
_OF_A_LAUNCH = ("HOROVOD_GLOO_", "NCCL_SOCKET_IFNAME")


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that all ranks of a launch should have alike."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES)
        and not name.startswith((*_OF_A_LAUNCH, *OF_OTHERS))
        and name not in OF_A_RANK
    }
