"""The trial of networks of a user's own, by real ranks: what each mistake is told as, and what is
measured. Each of tests/launch/strange_networks.py stands for a kind of network or of mistake that
files of users had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.models import inputs, own_networks, registry
from hvdperf.paths import shown
from hvdperf.plan.arms import Arm, Workload
from hvdperf.plan.data import DataSource
from hvdperf.session import control
from hvdperf.session.control import Trial
from hvdperf.worker.strategies import Strategy
from tests.support.groups import MakeStarter

# Many launches.
pytestmark = [pytest.mark.long, pytest.mark.mpirun]
FILE = Path(__file__).with_name("strange_networks.py")
# A network, and a part of what is told; "" if it is measured.
TRIED = {
    "dicts": "",
    "subclassed": "",
    "table": "",
    "synchronised": "",
    "averaged": "",
    "raises": "line 100: RuntimeError: the regularizer was run",
    "wrapped": "DistributedOptimizer",
    "dies": "no more",
    "differs": "ranks build different networks",
    "explodes": "NaN",
    "labels": "of 10 classes",
    "overlapping": "overlap",
    "unlike": "",
}
# Those that are tried by other strategies than Horovod, too.
OTHERS = {"dicts": (Strategy.MIRRORED, Strategy.MULTIWORKER), "averaged": (Strategy.MIRRORED,)}
# Refused by what a rank finds alone.
ALONE = {"raises", "wrapped", "dies", "explodes", "labels"}


def arms(name: str) -> list[Arm]:
    known = registry.network(name)
    workload = Workload(name, name if known.data else "synthetic", known.input_size, 4)
    ranks = 1 if name in ALONE else 2
    return [Arm(workload, each, ranks) for each in (Strategy.HOROVOD, *OTHERS.get(name, ()))]


@pytest.fixture(scope="module")
def trials(arm_launchers: MakeStarter) -> Iterator[dict[str, Trial]]:
    with pytest.MonkeyPatch.context() as patch:
        networks, known = dict(registry.NETWORKS), dict(inputs.INPUTS)
        for module in (registry, own_networks):
            patch.setattr(module, "NETWORKS", networks)
        for module in (inputs, own_networks):
            patch.setattr(module, "INPUTS", known)
        names = [network.name for network in own_networks.load_file(FILE)]
        assert set(names) == {*TRIED}
        launcher = arm_launchers("mpirun")
        launcher.data = {name: DataSource(name, "", 0) for name in names}
        launcher.data["synthetic"] = DataSource("synthetic", "", 10)
        asked: list[Any] = [SimpleNamespace(arms=arms(name)) for name in names]
        yield control.try_all(asked, launcher, print)


@pytest.mark.parametrize("name", TRIED)
def test_a_network_is_measured_or_refused_with_the_reason(
    trials: dict[str, Trial], name: str
) -> None:
    error = trials[name].error
    assert bool(error) is bool(TRIED[name]), error
    if error:
        assert error.startswith(f"{shown(FILE)}: network '{name}': ")
        assert TRIED[name] in error
        assert "\n" not in error


def test_a_strategy_that_cannot_train_a_network_is_refused(trials: dict[str, Trial]) -> None:
    assert trials["dicts"].refused == {}
    ((arm, why),) = trials["averaged"].refused.items()
    assert arm.strategy is Strategy.MIRRORED
    assert "its optimizer lets replicas meet within a condition" in why


def test_the_trial_knows_the_pace_and_what_is_sparse(trials: dict[str, Trial]) -> None:
    table = trials["table"]
    assert (table.sparse, trials["dicts"].sparse) == (1, 0)
    assert 0 < table.pace.step_seconds < table.pace.start_seconds


def test_data_are_told_by_what_they_yield(trials: dict[str, Trial]) -> None:
    sound, unlike = trials["dicts"], trials["unlike"]
    assert sound.identity.startswith("64 samples, ")
    assert "at each opening" not in sound.identity
    assert "at each opening" in unlike.identity
