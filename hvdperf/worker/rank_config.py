"""The configuration of a rank, which the session makes (launch/arm_launcher.py) and sends as JSON.

The module uses nothing newer than Python 3.9, because the ranks may run in an older interpreter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from hvdperf.worker.protocol import Phase


class Exchange(NamedTuple):
    """How Horovod exchanges gradients; see plan/arms.py."""

    compression: str = "none"
    reduction: str = "average"
    groups: int = 0
    sparse_as_dense: bool = False


class FaultConfig(NamedTuple):
    """A fault that is injected into one rank; kinds: hvdperf.plan.questions.Fault.KINDS."""

    kind: str
    rank: int
    phase: str
    factor: float
    ms: float


class RankConfig(NamedTuple):
    """What a rank trains, on what, and how.

    model, dataset, input_size (pixels a side, or words a sequence), batch (samples a replica),
    optimizer, precision, learning_rate: of the workload. classes: of its data. own_network: origin
    of a network that is not the suite's, or "". data_dir, data_id, data_files: where the data are,
    their id and the files that it is made of. epoch_steps: steps of a pass over the data. passes:
    batches of an update. cores, startup_cores: of this process. device: GPUs that it sees; None for
    none. intra_op, inter_op: TensorFlow's threads, 0 for its own choice. input_threads: those of
    the input. The others depend on the launch: see ArmLauncher.start; their defaults are those of
    one process that trains without others. rendezvous: the plan of hvdperf.worker.session_link, if
    rank 0 has to open a server. cluster: whether ranks form a cluster of TensorFlow. script: the
    path of a training script that is run instead, and its arguments; script_place: the directory
    in which it is run; script_top: the directory that both belong to.
    """

    strategy: str
    model: str
    dataset: str
    input_size: int
    batch: int
    optimizer: str
    precision: str
    learning_rate: str
    classes: int
    own_network: str
    world_size: int
    epoch_steps: int
    data_dir: str
    data_id: str
    data_files: Sequence[str]
    exchange: Exchange
    passes: int
    cores: Sequence[int]
    startup_cores: Sequence[int]
    device: Optional[str]
    intra_op: int
    inter_op: int
    input_threads: int
    seed: int
    data_seed: int = 1
    kinds: Sequence[str] = ("full",)
    last_phase: str = Phase.BROADCAST.value
    common_order: bool = False
    share_startup: bool = True
    rendezvous: Optional[list[dict[str, Any]]] = None
    cluster: bool = False
    fault: Optional[FaultConfig] = None
    script: Sequence[str] = ()
    script_place: str = ""
    script_top: str = ""

    def message(self) -> dict[str, Any]:
        """Return the configuration as it is sent."""
        fault = None if self.fault is None else self.fault._asdict()
        return {**self._asdict(), "exchange": self.exchange._asdict(), "fault": fault}

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "RankConfig":
        """Return the configuration of a message. Raises ValueError, which names missing or unknown
        fields."""
        try:
            found = cls(**message)
            fault: Any = found.fault
            return found._replace(
                exchange=Exchange(**message["exchange"]),
                fault=None if fault is None else FaultConfig(**fault),
            )
        except TypeError as error:
            raise ValueError(f"config of a rank: {error}; is its hvdperf the session's?") from None
