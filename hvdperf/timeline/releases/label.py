"""A short name for a machine with its settings: figures under one name are comparable.

The name is made of the fingerprint without the stack, which the history is about, and without what
each series records (data, cores of a replica). A change of anything else begins a new series.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from hvdperf.plan.arms import Workload

# Fields that a release of Horovod or TensorFlow changes. packages_sha256 and python belong to the
# stack, too; both are in every raw result.
STACK = (
    *("python", "tensorflow", "tensorflow_git", "keras", "numpy", "cuda", "cudnn", "tf32"),
    *("horovod", "horovod_built_with", "nccl", "packages_sha256"),
)
# Fields that each series records.
_OF_SERIES = ("data_sets", "rank_cores")
_DIGITS = 6


def machine_label(fingerprint: Mapping[str, Any]) -> str:
    """Return a label such as `amd-epyc-2-cores-24-gib-3fa9c1`: words for people, and six
    hexadecimal digits of a hash of all fields, also of those that the words leave out."""
    fields = {k: value for k, value in fingerprint.items() if k not in (*STACK, *_OF_SERIES)}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:_DIGITS]
    gpus = fingerprint["gpus"]
    models = "-".join(fingerprint.get("gpu_model") or ["gpu"])
    cpu = "{cpu_model} {cores} cores {memory_gib} gib".format_map(fingerprint)
    device = f"{gpus} {models}" if gpus else cpu
    words = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return f"{words}-{digest}"


def replica_label(identity: str, cores: int, on_gpu: bool, workload: Workload) -> str:
    """Return what each replica trains on, such as `cifar10 f133a46ad75d38ed, size 32, batch 32,
    float32, 1 core`; size is pixels a side, or words a sequence. identity: text that distinguishes
    the data set from other copies, "" for none."""
    # The digest is the last part of the identity: "6 files, 18.4 MB, f133a46ad75d38ed".
    digest = identity.rpartition(", ")[2]
    parts = (
        f"{workload.dataset} {digest}".strip(),
        f"size {workload.input_size}",
        f"batch {workload.batch}",
        workload.precision,
        "1 GPU" if on_gpu else f"{cores} core" if cores == 1 else f"{cores} cores",
    )
    return ", ".join(parts)


def replica_of(fingerprint: Mapping[str, Any], workload: Workload) -> str:
    """Return the replica_label of a workload, from the fingerprint of a session."""
    identities = dict(line.split(": ", 1) for line in fingerprint["data_sets"])
    # The cores of rank 0, since every rank has as many: "0: 0-1,8" are three.
    ranges = fingerprint["rank_cores"][0].partition(": ")[2]
    cores = 0
    for text in ranges.split(","):
        first, _, last = text.partition("-")
        cores += int(last or first) - int(first) + 1
    identity = identities.get(workload.dataset, "")
    return replica_label(identity, cores, fingerprint["gpus"] > 0, workload)
