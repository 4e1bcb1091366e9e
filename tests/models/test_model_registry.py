from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hvdperf.models import inputs, registry
from hvdperf.models.registry import NETWORKS, UnknownNetwork

ROOT = Path(inputs.__file__).parents[3]


def imported_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after that statement."""
    program = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_registries_import_neither_tensorflow_nor_numpy() -> None:
    loaded = imported_by("import hvdperf.models.registry, hvdperf.models.inputs")
    assert "hvdperf" in loaded
    assert not loaded & {"tensorflow", "keras", "horovod", "numpy"}


def test_reading_and_writing_files_does_not_import_tensorflow() -> None:
    files = ("cifar_files", "imagenet_files", "sample_sets", "token_files")
    loaded = imported_by("import " + ", ".join(f"hvdperf.models.inputs.{name}" for name in files))
    assert not loaded & {"tensorflow", "keras", "horovod"}


def test_names_are_keys() -> None:
    assert {name: registry.network(name).name for name in NETWORKS} == {n: n for n in NETWORKS}


def test_unknown_network_lists_the_known_and_suggests_the_closest() -> None:
    with pytest.raises(UnknownNetwork) as raised:
        registry.network("resnet50")
    message = str(raised.value)
    assert "did you mean resnet_50" in message
    assert all(name in message for name in NETWORKS)
    assert "\n" not in message


def test_unknown_network_without_a_close_name_suggests_none() -> None:
    with pytest.raises(UnknownNetwork) as raised:
        registry.build("zzz", 32, 10)
    assert "did you mean" not in str(raised.value)


def test_inputs_have_the_classes_of_their_data_sets() -> None:
    assert {name: source.classes for name, source in inputs.INPUTS.items()} == {
        "cifar10": 10,
        "cifar100": 100,
        "imagenet": 1001,
        "ptb": 0,
        "synthetic": 1000,
    }


def test_unknown_input_suggests_the_closest() -> None:
    with pytest.raises(inputs.UnknownInput, match=r"did you mean cifar10\?"):
        inputs.find("cifar-10")


def test_input_from_files_needs_a_directory() -> None:
    with pytest.raises(inputs.UnknownInput, match="directory"):
        inputs.open_train("cifar10", None, shard=(0, 1), batch=1, size=32, seed=0)
