from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from hvdperf.models.inputs.errors import DataError
from hvdperf.models.inputs.sample_sets import write_tokens
from hvdperf.models.inputs.token_files import Split, TokenFiles, ids, locate, vocabulary
from hvdperf.models.inputs.tokens import train_dataset, validation_dataset

Tokens = npt.NDArray[np.int32]

LENGTH = 10
WORDS = 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TokenFiles:
    folder = tmp_path_factory.mktemp("text")
    write_tokens(folder, sentences=60, words=50, seed=3)
    return locate(folder)


@pytest.fixture(scope="module")
def windows(files: TokenFiles) -> Tokens:
    return cut(files, Split.TRAIN)


def cut(files: TokenFiles, split: Split) -> Tokens:
    """The sequences with the token after each, one by one: int32 [n, LENGTH + 1]."""
    text = ids(files, split, vocabulary(files, WORDS))
    starts = range(0, len(text) - LENGTH, LENGTH)
    return np.stack([text[start : start + LENGTH + 1] for start in starts])


def joined(dataset: tf.data.Dataset, batches: int | None = None) -> Tokens:
    """Tokens and the last target of each sequence, [n, LENGTH + 1], having checked the others."""
    found = list(islice(dataset.as_numpy_iterator(), batches))
    tokens = np.concatenate([each for each, _ in found])
    targets = np.concatenate([each for _, each in found])
    assert tokens.dtype == targets.dtype == np.int32
    np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
    return np.concatenate([tokens, targets[:, -1:]], axis=1)


def train(files: TokenFiles, batches: int | None = None, **options: Any) -> Tokens:
    arguments: dict[str, Any] = {"shard": (0, 1), "batch": 1, "length": LENGTH, "seed": 0}
    arguments["vocabulary"] = WORDS
    return joined(train_dataset(files, **{**arguments, **options}), batches)


def validation(files: TokenFiles, **options: Any) -> Tokens:
    arguments: dict[str, Any] = {"shard": (0, 1), "batch": 4, "length": LENGTH}
    arguments["vocabulary"] = WORDS
    return joined(validation_dataset(files, **{**arguments, **options}))


def test_plain_stream_is_the_text_in_order(files: TokenFiles, windows: Tokens) -> None:
    rows = train(files, 2 * len(windows), shuffle=False)
    np.testing.assert_array_equal(rows, np.tile(windows, (2, 1)))
    rows = rows[: len(windows)]
    assert len(rows) > 60
    # The token after a sequence is the first of the next: no target is lost, none comes twice.
    np.testing.assert_array_equal(rows[:-1, -1], rows[1:, 0])
    assert rows.max() == WORDS - 1


def test_types_and_shapes(files: TokenFiles) -> None:
    options: dict[str, Any] = {"shard": (0, 2), "length": 7, "vocabulary": WORDS}
    spec = tf.TensorSpec((5, 7), tf.int32)
    assert train_dataset(files, batch=5, seed=0, **options).element_spec == (spec, spec)
    spec = tf.TensorSpec((None, 7), tf.int32)
    assert validation_dataset(files, batch=5, **options).element_spec == (spec, spec)


@pytest.mark.parametrize("count", [1, 2])
def test_validation_is_one_pass_over_its_own_text(files: TokenFiles, count: int) -> None:
    expected = cut(files, Split.VALID)
    for index in range(count):
        rows = validation(files, shard=(index, count))
        np.testing.assert_array_equal(rows, expected[index::count])


def test_text_shorter_than_a_sequence_is_refused(files: TokenFiles) -> None:
    with pytest.raises(DataError, match="too few for one sequence of 100000"):
        train(files, length=100_000)
    with pytest.raises(DataError, match=r"ptb\.valid\.txt"):
        validation(files, length=100_000)


def test_text_of_one_sequence_is_enough(tmp_path: Path) -> None:
    for split in Split:
        (tmp_path / f"{split.value}.txt").write_text("a b c d\n")
    rows = train(locate(tmp_path), batches=3, length=4)
    # By frequency all alike, so in the order of the alphabet, in which < is before a.
    assert rows.tolist() == [[1, 2, 3, 4, 0]] * 3
