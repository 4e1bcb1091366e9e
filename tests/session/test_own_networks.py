"""Sessions of networks that a user brings, with real ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.whole_sessions import ROOT, Run, documents

# Files of networks. The script beside them has a test in tests/docs.
EXAMPLES = sorted(each for each in (ROOT / "examples").glob("*.py") if each.stem != "train")
HEAD = 'from hvdperf.models import Network\nNETWORKS = (Network("mine", "my_networks:build", 8'
BUILD = """
def build(size, classes):
    import keras
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((size, size, 3)), keras.layers.Flatten(), dense(classes)])
"""


@pytest.mark.long
@pytest.mark.mpirun
def test_the_examples_are_measured_by_every_strategy(run: Run, tmp_path: Path) -> None:
    files = [f"--workloads={path}" for path in EXAMPLES]
    assert len(files) == 2
    # So long that the second of them has its turn, too.
    done: subprocess.CompletedProcess[str] = run(*files, "-k", "test_parity and np2", "--budget=1")
    assert done.returncode in (0, 6), done.stdout + done.stderr
    found = documents(tmp_path)
    assert {"parity-small_cnn-np2.json", "parity-regression-np2.json"} <= found.keys()
    fingerprint = found["session.json"]["fingerprint"]
    names = [line.partition(": ")[0] for line in fingerprint["own_networks"]]
    assert names == ["small_cnn", "regression"]
    for name, tensors in (("small_cnn", 6), ("regression", 4)):
        (first, *_) = found[f"parity-{name}-np2.json"]["outcome"]["rounds"]
        arms = {launch["arm"]["strategy"] for launch in first["launches"]}
        assert arms == {"horovod", "mirrored"}
        for launch in first["launches"]:
            assert launch["metadata"][0]["gradient_tensors"] == tensors
    (data,) = [text for text in fingerprint["data_sets"] if text.startswith("regression: ")]
    assert "4096 samples" in data, "own data are told by what they yield"


def test_a_network_that_cannot_be_measured_is_refused_before_anything_starts(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "my_networks.py"
    path.write_text(f"{HEAD}),)\ndef build(size, classes):\n    return size / 0\n")
    done = run(f"--workloads={path}", "-k", "weak_scaling")
    assert done.returncode == 4, done.stdout + done.stderr
    said = f"ERROR: {path}: network 'mine': line 4: ZeroDivisionError: division by zero"
    assert said in done.stderr
    assert documents(tmp_path) == {}


@pytest.mark.long
def test_a_network_that_is_not_deterministic_is_invalid_and_others_are_measured(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "my_networks.py"
    path.write_text(
        f'{HEAD}, loss="my_networks:loss"),)\n{BUILD}\n'
        "def loss(labels, outputs):\n    import os\n"
        "    return outputs[:, 0] * (1.0 + os.urandom(1)[0])\n"
    )
    done = run(f"--workloads={path}", "--models=mine,alexnet_s", "-k", "weak_scaling")
    assert done.returncode == 7, done.stdout + done.stderr
    found = documents(tmp_path)
    judgement = found["weak_scaling-mine-np2.json"]["outcome"]["judgement"]
    assert judgement["verdict"] == "INVALID"
    assert judgement["reason"].startswith("the gradients of two equal steps differ by ")
    assert found["weak_scaling-alexnet_s-np2.json"]["outcome"]["rounds"]


def test_a_profile_names_files_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my_networks.py").write_text(f"{HEAD}),)\n{BUILD}")
    profile = tmp_path / "mine.toml"
    tiny = (tmp_path / "tiny.toml").read_text()
    own = 'models = ["mine"]\nworkloads = ["my_networks.py"]'
    profile.write_text(tiny.replace('models = ["alexnet_s"]', own))
    done = run(f"--profile={profile}", "--dry-run", "-k", "weak_scaling")
    assert "test_weak_scaling[mine-np2]" in done.stdout, done.stderr
