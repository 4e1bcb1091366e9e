from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from models.inputs.cifar_files import CifarFiles, Layout, locate
from models.inputs.samples import write_cifar

LAYOUTS = [(dataset, layout) for dataset in ("cifar10", "cifar100") for layout in Layout]


@pytest.fixture(params=LAYOUTS, ids=lambda param: f"{param[0]}-{param[1].value}")
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> CifarFiles:
    """A hundred training records of every data set in every layout, in turn."""
    dataset, layout = request.param
    write_cifar(tmp_path, dataset, layout, seed=1)
    return locate(tmp_path, dataset)


@pytest.fixture
def cifar10(tmp_path: Path) -> CifarFiles:
    """A hundred training records of CIFAR-10 in the binary layout."""
    write_cifar(tmp_path, "cifar10", Layout.BINARY, seed=1)
    return locate(tmp_path, "cifar10")


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str, Layout, bytes], Path]:
    """Write a whole data set, then replace the content of its first training file."""

    def write(dataset: str, layout: Layout, content: bytes) -> Path:
        victim = write_cifar(tmp_path, dataset, layout, seed=1)[0]
        victim.write_bytes(content)
        return victim

    return write
