"""Sessions of networks that a user brings, with real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.whole_sessions import ROOT, Run, documents

HEAD = 'from hvdperf.models import Network\nNETWORKS = (Network("mine", "my_networks:build", 8'
BUILD = """
def build(size, classes):
    import keras
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((size, size, 3)), keras.layers.Flatten(), dense(classes)])
"""


@pytest.mark.long
@pytest.mark.mpirun
@pytest.mark.parametrize(
    ("example", "name", "tensors", "data"),
    [
        ("keras_network.py", "small_cnn", 6, "cifar10: "),
        # Own data are told by what they yield.
        ("own_loss_and_data.py", "regression", 4, "regression: 4096 samples, "),
    ],
)
def test_an_example_is_measured_by_every_strategy(
    run: Run, tmp_path: Path, example: str, name: str, tensors: int, data: str
) -> None:
    done = run(f"--workloads={ROOT / 'examples' / example}", "-k", "test_parity and np2")
    assert done.returncode == 6, done.stdout + done.stderr
    found = documents(tmp_path)
    fingerprint = found["session.json"]["fingerprint"]
    assert [line.partition(": ")[0] for line in fingerprint["own_networks"]] == [name]
    (first, *_) = found[f"parity-{name}-np2.json"]["outcome"]["rounds"]
    assert {launch["arm"]["strategy"] for launch in first["launches"]} == {"horovod", "mirrored"}
    for launch in first["launches"]:
        assert launch["metadata"][0]["gradient_tensors"] == tensors
    assert any(line.startswith(data) for line in fingerprint["data_sets"])


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


def test_a_profile_names_files_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my_networks.py").write_text(f"{HEAD}),)\n{BUILD}")
    profile = tmp_path / "mine.toml"
    tiny = (tmp_path / "tiny.toml").read_text()
    own = 'models = ["mine"]\nworkloads = ["my_networks.py"]'
    profile.write_text(tiny.replace('models = ["alexnet_s"]', own))
    done = run(f"--profile={profile}", "--dry-run", "-k", "weak_scaling")
    assert "test_weak_scaling[mine-np2]" in done.stdout, done.stderr
