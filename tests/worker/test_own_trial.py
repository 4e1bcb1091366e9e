"""The trial of networks of a user's own: what each mistake is told as, and what is measured.

One process tries all networks of tests/worker/strange_networks.py, each of which stands for a kind
of network or of mistake that files of users had.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdperf.launch.arm_launcher import SEED
from hvdperf.machine.starting import rank_environment
from tests.support.rank_configs import rank_config
from tests.worker.strange_networks import NETWORKS

# Twenty processes that import, trace and train.
pytestmark = pytest.mark.long
FILE = Path(__file__).with_name("strange_networks.py")
ROOT = FILE.parents[2]


def request(network: str, work: str, strategy: str = "horovod", replicas: int = 2) -> Any:
    known = next(each for each in NETWORKS if each.name == network)
    in_ranks = strategy == "horovod"
    config = rank_config(
        model=network,
        own_network=str(FILE),
        dataset=network if known.data else "synthetic",
        input_size=known.input_size,
        optimizer="adam",
        classes=known.classes or 10,
        strategy=strategy,
        world_size=replicas,
        seed=SEED,
        inter_op=replicas,
    )
    return {
        "work": work,
        "config": config.message(),
        "replicas": replicas if in_ranks or work == "read" else 1,
        "compare": in_ranks,
        "deadline_s": 60.0,
    }


# A network, the work, the strategy, and a part of what is told; "" if it is measured.
TRIED = (
    ("dicts", "train", "horovod", ""),
    ("dicts", "train", "mirrored", ""),
    ("subclassed", "train", "horovod", ""),
    ("scheduled", "train", "horovod", ""),
    ("nested_dropout", "train", "horovod", ""),
    ("table", "train", "horovod", ""),
    ("synchronised", "train", "horovod", ""),
    ("averaged", "train", "horovod", ""),
    ("averaged", "train", "mirrored", "optimizer"),
    ("scalar", "train", "horovod", "scalar"),
    ("own_step", "train", "horovod", "train_step"),
    ("raises", "train", "horovod", "the regularizer was run"),
    ("module", "train", "horovod", "keras.Model"),
    ("wrapped", "train", "horovod", "DistributedOptimizer"),
    ("explodes", "train", "horovod", "NaN"),
    ("dicts", "read", "horovod", ""),
    ("one_sample", "read", "horovod", "1 sample cannot be shared by 2 ranks"),
    ("lengths", "read", "horovod", "pad"),
    ("labels", "read", "horovod", "of 10 classes"),
    ("overlapping", "read", "horovod", "overlap"),
    ("unlike", "read", "horovod", ""),
)


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str, str], Any]:
    done = subprocess.run(
        [sys.executable, "-m", "hvdperf.worker.own_trial"],
        cwd=ROOT,
        env=rank_environment(sys.executable),
        input=json.dumps([request(*each[:3]) for each in TRIED]),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(TRIED), done.stderr
    return {each[:3]: answer for each, answer in zip(TRIED, found, strict=True)}


@pytest.mark.parametrize("tried", TRIED, ids=lambda tried: "-".join(tried[:3]))
def test_a_network_is_measured_or_refused_with_the_reason(answers: Any, tried: Any) -> None:
    *key, said = tried
    answer = answers[tuple(key)]
    assert ("error" in answer) is bool(said), answer
    if said:
        assert said in answer["error"]
        assert "\n" not in answer["error"]


def test_the_trial_knows_the_pace_and_what_is_sparse(answers: Any) -> None:
    table = answers["table", "train", "horovod"]
    assert table["sparse"] == 1
    assert answers["dicts", "train", "horovod"]["sparse"] == 0
    # The mean of the forward pass.
    assert answers["synchronised", "train", "horovod"]["other_exchanges"] == 1
    assert table["other_exchanges"] == 0
    assert 0 < table["step_seconds"] < table["start_seconds"]
    assert table["apart"] == 0.0
    assert list(table["files"]) == [str(FILE)]


def test_data_are_told_by_what_they_yield(answers: Any) -> None:
    sound, unlike = answers["dicts", "read", "horovod"], answers["unlike", "read", "horovod"]
    assert sound["differs"] == ""
    assert sound["identity"].startswith("64 samples, ")
    assert unlike["differs"]
    assert "at each opening" in unlike["identity"]
