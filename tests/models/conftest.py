from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from hvdperf.models import inputs, registry
from hvdperf.models.inputs import Files
from hvdperf.models.inputs.cifar_files import Layout, locate
from tests.support.cifar_records import write_cifar


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget at the end what a test registers."""
    tables: tuple[Any, ...] = (registry.NETWORKS, inputs.INPUTS)
    known = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, known, strict=True):
        table.clear()
        table.update(before)


LAYOUTS = [(dataset, layout) for dataset in ("cifar10", "cifar100") for layout in Layout]


@pytest.fixture(params=LAYOUTS, ids=lambda param: f"{param[0]}-{param[1].value}")
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Return a hundred training records of each data set in each layout, in turn."""
    dataset, layout = request.param
    write_cifar(tmp_path, dataset, layout, seed=1)
    return locate(tmp_path, dataset)


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str, Layout, bytes], Path]:
    """Return a function that writes a whole data set and replaces the content of its first training
    file."""

    def write(dataset: str, layout: Layout, content: bytes) -> Path:
        victim = write_cifar(tmp_path, dataset, layout, seed=1)[0]
        victim.write_bytes(content)
        return victim

    return write


@pytest.fixture
def fresh_models() -> Iterator[None]:
    """Give every test the same random numbers, and forget its models afterwards."""
    from tensorflow import keras

    keras.utils.set_random_seed(0)
    yield
    keras.backend.clear_session()


@pytest.fixture
def without_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all initial weights zero: shapes do not depend on the values, and half a gigabyte of
    random numbers takes seconds."""
    import tensorflow as tf

    def zeros(self: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
        return tf.zeros(shape, dtype or "float32")

    for initializer in ("VarianceScaling", "RandomUniform", "RandomNormal", "Orthogonal"):
        monkeypatch.setattr(getattr(tf.keras.initializers, initializer), "__call__", zeros)
