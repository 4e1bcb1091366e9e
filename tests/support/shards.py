"""Shards of ImageNet with any records, written by TensorFlow, and damage to them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from hypothesis import strategies as st


def write_shards(folder: Path, *shards: Iterable[bytes], split: str = "train") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, records in enumerate(shards):
        paths.append(folder / f"{split}-{number:05d}-of-{len(shards):05d}")
        with tf.io.TFRecordWriter(str(paths[-1])) as writer:
            for record in records:
                writer.write(record)
    return paths


def framed(data: bytes) -> bytes:
    """Return a record as it is in a file."""
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_shards(Path(folder), [data])
        return path.read_bytes()


def example(image: bytes, label: int) -> bytes:
    built = tf.train.Example()
    built.features.feature["image/encoded"].bytes_list.value.append(image)
    built.features.feature["image/class/label"].int64_list.value.append(label)
    content: bytes = built.SerializeToString()
    return content


def jpeg(pixels: npt.NDArray[np.uint8]) -> bytes:
    encoded: bytes = tf.io.encode_jpeg(pixels, quality=100, chroma_downsampling=False).numpy()
    return encoded


def grey(level: int) -> bytes:
    return jpeg(np.full((20, 24, 3), level, np.uint8))


Mutation = Callable[[bytes], bytes]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """Draw a change that cuts out, puts in or replaces bytes in the first few hundred."""
    start, gone = draw(st.integers(0, 400)), draw(st.integers(0, 200))
    new = draw(st.binary(max_size=40))
    return lambda content: content[:start] + new + content[start + gone :]
