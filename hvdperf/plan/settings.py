"""The settings in a user's environment that change figures: what each changes, which figures it
touches, and whether the suite overrides it.

ROWS is the only table of them. The fingerprint records by it, the terminal and the page tell by it,
and a session is refused by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from hvdperf.errors import UserError
from hvdperf.worker.process import OF_A_RANK
from hvdperf.worker.script.tap._hvdperf_recorder import OF_OTHERS

ALLOW = "--allow-setting"
# Stands for a value that may be a path, an address or a secret.
HIDDEN = "(set)"
_MCA = "OMPI_MCA_"
# Values that a document must not hold: a path, an address, and anything under such a name.
_PRIVATE_VALUE = re.compile(r"[/\\~@]|\b\d+\.\d+\.\d+\.\d+\b|:\d+$")
_PRIVATE_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")


class Touches(Enum):
    """The figures that a setting touches, in words."""

    ALL = "all figures"
    EXCHANGE = "figures of two or more replicas"


# Where a session runs: the name of its launcher, and "gpu" or "cpu".
Places = Collection[str]


def _never(value: str) -> bool:
    return False


def _is_off(value: str) -> bool:
    """Return whether Horovod takes the value of a switch for "off". It reads the number at the
    beginning, and takes a text without one for 0."""
    found = re.match(r"\s*[+-]?\d+", value)
    return found is None or int(found[0]) <= 0


@dataclass(frozen=True)
class Row:
    """What is known of some variables.

    variables: a regular expression for their whole names. changes: what they change, in words; ""
    if that is not known. field: of the fingerprint, which records them. touches: which figures.
    overridden: why they have no effect; "" if they have one. unless: the place in which they have
    one nevertheless. is_default: returns whether a value changes nothing, so that it is neither
    recorded nor told. refused: why no session is measured under them; "" if one is.
    """

    variables: str
    changes: str
    field: str
    touches: Touches
    overridden: str = ""
    unless: str = ""
    is_default: Callable[[str], bool] = _never
    refused: str = ""


_HOROVOD, _NCCL, _MPI, _THREADS, _TENSORFLOW = (
    *("horovod_settings", "nccl_settings", "mca_settings", "thread_settings"),
    "tensorflow_settings",
)
# The fields of the fingerprint that list settings.
FIELDS = (_HOROVOD, _MPI, _NCCL, _THREADS, _TENSORFLOW)
# Why variables have no effect, and the place in which they have one nevertheless.
_NO_GPU: dict[str, Any] = {"overridden": "there is no GPU", "unless": "gpu"}
_POOLS: dict[str, Any] = {
    "overridden": "the suite sizes TensorFlow's thread pools itself",
    "unless": "gpu",
}
_GLOO: dict[str, Any] = {"overridden": "Horovod communicates over Gloo", "unless": "mpirun"}
_AGENTS: dict[str, Any] = {"overridden": "the launcher agents sets it", "unless": "mpirun"}
_OWN_MPIRUN: dict[str, Any] = {"overridden": "the suite's own mpirun sets it"}
_PINNED: dict[str, Any] = {"overridden": "the suite pins all threads of a rank"}

# Neither recorded nor shown, because no figure depends on it: where a rank is, how a launch finds
# its ranks, how Horovod was built, what is only written down, and when Horovod gives up.
_LEFT_OUT = re.compile(
    "|".join(
        (
            *map(re.escape, sorted(OF_A_RANK)),
            r"HOROVOD_GLOO_(RENDEZVOUS_.*|TIMEOUT_SECONDS)|NCCL_(COMM_ID|HOSTID)",
            r"HOROVOD_(WITH|WITHOUT|BUILD)_.*|HOROVOD_GPU(_.*)?|HOROVOD_.*_(HOME|LINK|INCLUDE|LIB)",
            r"HOROVOD_(MPICXX_SHOW|ALLOW_MIXED_GPU_IMPL|CMAKE|VERSION)",
            r"HOROVOD_(AUTOTUNE_.*|STALL_.*|LOG_HIDE_TIME|TIMELINE_MARK_CYCLES)",
            r"HOROVOD_DISABLE_NVTX_RANGES",
            r"NCCL_(DEBUG(_.*)?|VERSION)|TF_CPP_MIN_LOG_LEVEL|UCX_LOG_.*|KERAS_HOME",
        )
    )
)


_horovod = partial(Row, field=_HOROVOD, touches=Touches.EXCHANGE)
_mpi = partial(Row, field=_MPI, touches=Touches.EXCHANGE)
_nccl = partial(Row, field=_NCCL, touches=Touches.EXCHANGE)
_tensorflow = partial(Row, field=_TENSORFLOW, touches=Touches.ALL)
_threads = partial(Row, field=_THREADS, touches=Touches.ALL)

# The first row whose expression matches counts.
ROWS = (
    Row(
        "HOROVOD_TIMELINE",
        "Horovod records a timeline, by a thread of rank 0 that never sleeps",
        field="horovod_timeline",
        touches=Touches.ALL,
        refused="every launch would record a timeline, by a thread that takes most of a core",
    ),
    _horovod(
        "HOROVOD_AUTOTUNE",
        "Horovod tries other settings of its own while it trains",
        is_default=_is_off,
        refused="every launch would end while Horovod still tries out its settings",
    ),
    _horovod(
        "HOROVOD_CYCLE_TIME",
        "for how many ms Horovod collects tensors before it exchanges them",
        field="horovod_cycle_time_ms",
    ),
    _horovod(
        "HOROVOD_FUSION_THRESHOLD",
        "how many bytes Horovod exchanges at once",
        field="horovod_fusion_threshold_bytes",
    ),
    _horovod(
        "HOROVOD_CACHE_CAPACITY",
        "of how many tensors Horovod's ranks remember that they are the same on all ranks",
        field="horovod_cache_capacity",
    ),
    _horovod(
        "HOROVOD_(HIERARCHICAL_ALLREDUCE|HIERARCHICAL_ALLGATHER|TORUS_ALLREDUCE)",
        "by which steps data moves within hosts and between them",
        is_default=_is_off,
    ),
    _horovod(
        "HOROVOD_DISABLE_GROUP_FUSION",
        "which tensors Horovod exchanges at once",
        is_default=_is_off,
    ),
    _horovod(
        "HOROVOD_ENABLE_XLA_OPS",
        "XLA compiles Horovod's operations, and the cycle time is 0",
        is_default=_is_off,
    ),
    _horovod(
        "HOROVOD_(ENABLE_ASYNC_COMPLETION|MPI_THREADS_DISABLE|DYNAMIC_PROCESS_SETS|ELASTIC)",
        "how Horovod's ranks agree on what they exchange",
        is_default=_is_off,
    ),
    _horovod(
        "HOROVOD_BATCH_D2D_MEMCOPIES", "how tensors are copied into the buffer of a GPU", **_NO_GPU
    ),
    _horovod(
        "HOROVOD_(CONTROLLER|CPU_OPERATIONS)",
        "through which library Horovod communicates",
        **_AGENTS,
    ),
    _horovod(
        "HOROVOD_(GLOO_IFACE|ADASUM_MPI_CHUNK_SIZE|NUM_NCCL_STREAMS|CCL_.+)",
        "how Horovod's libraries move data",
    ),
    _horovod(
        "HOROVOD_LOG_LEVEL", "how much Horovod writes; `debug` and `trace` write for every tensor"
    ),
    _horovod("HOROVOD_THREAD_AFFINITY", "the core of Horovod's thread", **_PINNED),
    _tensorflow("XLA_FLAGS", "how XLA compiles, and what it writes down"),
    _tensorflow("TF_XLA_FLAGS", "which parts of a step XLA compiles"),
    _tensorflow("TF_ENABLE_ONEDNN_OPTS|ONEDNN_.+|DNNL_.+", "which kernels compute on a CPU"),
    _tensorflow(
        "TF_ENABLE_AUTO_MIXED_PRECISION.*|NVIDIA_TF32_OVERRIDE",
        "with how many digits a step computes",
    ),
    _tensorflow(
        "TF_(CUDNN_)?DETERMINISTIC(_OPS)?|TF_CUDNN_USE_AUTOTUNE",
        "which kernels compute, so that results can be repeated",
    ),
    _tensorflow("TF_USE_LEGACY_KERAS|KERAS_BACKEND", "which Keras builds and trains the networks"),
    _tensorflow(
        "TF_CPP_(MAX_VLOG_LEVEL|MIN_VLOG_LEVEL|VMODULE)",
        "how much TensorFlow writes while it computes",
    ),
    _tensorflow("TF_GPU_THREAD_(MODE|COUNT)", "which threads start the work of a GPU", **_NO_GPU),
    _threads("TF_NUM_(INTRAOP|INTEROP)_THREADS", "how many threads compute", **_POOLS),
    _threads("(OMP|KMP|MKL)_.+", "the threads of OpenMP and MKL", **_POOLS),
    _nccl(
        "NCCL_(ALGO|BUFFSIZE|COLLNET_ENABLE|CROSS_NIC|IB_.+|(MAX|MIN)_NCHANNELS|NET|"
        "NET_GDR_LEVEL|NSOCKS_PERTHREAD|NTHREADS|NVLS_ENABLE|P2P_.+|PROTO|SHM_DISABLE|"
        "SOCKET_.+|TOPO_FILE)",
        "how NCCL moves data between GPUs",
        **_NO_GPU,
    ),
    _mpi(
        f"{_MCA}(mpi_yield_when_idle|hwloc_base_binding_policy|rmaps(_.+)?|btl_tcp_if_.+|"
        "btl_vader_backing_directory)",
        "how Open MPI's ranks wait and where they run",
        **_OWN_MPIRUN,
    ),
    # The frameworks of Open MPI that move data or place ranks. The others show where a job runs.
    # mpirun sets mpi_oversubscribe for its children, and the user does not.
    _mpi(
        f"{_MCA}(?!mpi_oversubscribe)(allocator|bml|btl|coll|common|hwloc|mpi|mpool|mtl|op|"
        "opal|osc|part|pml|rcache|smsc|threads|vprotocol)(_.+)?",
        "how Open MPI moves data or places ranks",
        **_GLOO,
    ),
    _mpi("UCX_.+", "how UCX moves data, if Open MPI uses it", **_GLOO),
    # What the suite does not know
    _horovod("HOROVOD_.+", ""),
    _nccl("NCCL_.+", ""),
    _tensorflow("(TF|XLA|KERAS)_.+", ""),
)
# The variables under which no session is measured unless --allow-setting names them.
REFUSED = tuple(row.variables for row in ROWS if row.refused)


def row_of(name: str) -> Row | None:
    """Return the row of a variable; None for one that is neither recorded nor told."""
    if _LEFT_OUT.fullmatch(name) or name.startswith(OF_OTHERS):
        return None
    return next((row for row in ROWS if re.fullmatch(row.variables, name)), None)


@dataclass(frozen=True)
class Setting:
    """A variable that is set."""

    name: str
    value: str

    @property
    def row(self) -> Row:
        """The setting's row. Raises LookupError if it has none."""
        if (row := row_of(self.name)) is None:
            raise LookupError(self.name)
        return row

    def __str__(self) -> str:
        """Return name=value. Of a value that may be private, only the fact that it is set is
        told."""
        private = _PRIVATE_VALUE.search(self.value) or _PRIVATE_NAME.search(self.name)
        return f"{self.name}={HIDDEN if private else self.value}"

    @property
    def recorded(self) -> str:
        """The text in the fingerprint, which has settings of Open MPI without their prefix."""
        return str(self).removeprefix(_MCA)

    def has_effect(self, places: Places) -> bool:
        return not self.row.overridden or self.row.unless in places

    def told(self, places: Places) -> str:
        """Return a line on what the setting changes, or why it changes nothing here."""
        row = self.row
        if not row.changes:
            return f"{self}: is set; the suite does not know what it changes"
        if not self.has_effect(places):
            return f"{self}: {row.changes}; has no effect, because {row.overridden}"
        return f"{self}: {row.changes}; touches {row.touches.value}"


def from_text(field: str, text: str) -> Setting:
    """Return the setting that a field of the fingerprint records as this text."""
    name, _, value = text.partition("=")
    is_mca = field == _MPI and not name.startswith("UCX_")
    return Setting(_MCA * is_mca + name, value)


def settings_in(environment: Mapping[str, str] = os.environ) -> list[Setting]:
    """Return the settings of an environment that change figures, and those that the suite does not
    know, by name."""
    return [
        Setting(name, value)
        for name, value in sorted(environment.items())
        if (row := row_of(name)) is not None and not row.is_default(value)
    ]


def settings_lines(launcher: str, gpus: int) -> list[str]:
    """Return a line on each setting of this environment. launcher, gpus: as in places_of."""
    places = places_of(launcher, gpus)
    return [each.told(places) for each in settings_in()]


def places_of(launcher: str, gpus: int) -> Places:
    """Return where a session runs. gpus: their number."""
    return launcher, "gpu" if gpus else "cpu"


def refuse(allowed: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Raise UserError if a setting makes every launch measure something else than training, and is
    not allowed."""
    for setting in settings_in(environment):
        if setting.row.refused and setting.name not in allowed:
            raise UserError(
                f"{setting.name} is set: {setting.row.refused}; unset it, or give {ALLOW} "
                f"{setting.name}"
            )
