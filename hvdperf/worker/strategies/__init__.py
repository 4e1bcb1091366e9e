"""The table of strategies by which a rank trains. Each is a class in a module here, a Trainer as in
base.py, made from the rank's config. A strategy never times a block and never talks to the session.

Standard library only, because the driver, which does not import TensorFlow, reads this table, too.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class StrategySpec:
    """One strategy.

    name: as configs and documents have it. file, trainer: the module here and the class in it that
    implements the strategy (hvdperf/worker/strategies/base.py). trains: whether it trains a model,
    and so imports TensorFlow. one_process: whether one process runs all replicas,
    on one host. horovod: whether it uses Horovod, which needs the launcher's rendezvous and can
    have faults injected. cluster: whether its workers send each other their addresses.
    """

    name: str
    file: str
    trainer: str
    trains: bool = True
    one_process: bool = False
    horovod: bool = False
    cluster: bool = False

    @property
    def module(self) -> str:
        """The full name of the module."""
        return f"{__package__}.{self.file}"


class Strategy(Enum):
    """A way to spread the replicas of a training run over devices. BARE trains nothing: it is the
    transport without a framework. The value is the name in the row."""

    spec: StrategySpec

    def __new__(cls, spec: StrategySpec) -> "Strategy":
        strategy = object.__new__(cls)
        strategy._value_ = spec.name
        strategy.spec = spec
        return strategy

    HOROVOD = StrategySpec("horovod", "horovod", "HorovodTrainer", horovod=True)
    MIRRORED = StrategySpec("mirrored", "tf_distribute", "MirroredTrainer", one_process=True)
    MULTIWORKER = StrategySpec("multiworker", "tf_distribute", "MultiWorkerTrainer", cluster=True)
    SINGLE = StrategySpec("single", "replica", "SingleTrainer")
    BARE = StrategySpec("bare", "bare_mpi", "BareTrainer", trains=False)
