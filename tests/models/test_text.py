"""Text: the files that are found and numbered, what is refused, and the pipeline."""

from __future__ import annotations

import errno
import io
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from hvdperf.models.inputs import TRAIN, VALIDATION, DataError, Files, Request, text
from hvdperf.models.inputs.sample_sets import write_tokens
from hvdperf.models.inputs.text import SPLITS, ids, locate, sequences, vocabulary
from hvdperf.models.registry import NETWORKS, Scale, Task
from tests.support.filesystems import write_anew
from tests.support.refusals import refusal

TEXT = b" the cat sat on the mat \n the dog sat \n"


def write(folder: Path, train: bytes = TEXT, layout: str = "ptb.{}.txt") -> Path:
    """A data set whose training text is this one; returns that file."""
    folder.mkdir(exist_ok=True)
    for split in SPLITS:
        content = train if split == TRAIN else TEXT
        write_anew(folder / layout.format(SPLITS[split]), content)
    return folder / layout.format("train")


def found(folder: Path, train: bytes = TEXT) -> Files:
    write(folder, train)
    return locate(folder)


def complaint(directory: Path) -> str:
    """The message with which the directory is refused."""
    return refusal(lambda: locate(directory))


def read(files: Files, split: str, size: int = 100) -> list[str]:
    """The words of a split, from their numbers."""
    numbers = vocabulary(files, size)
    words = {number: word for word, number in numbers.items()}
    return [words[number] for number in ids(files, split, numbers).tolist()]


@pytest.mark.parametrize("layout", ["ptb.{}.txt", "{}.txt"])
def test_both_layouts_are_found_and_counted(tmp_path, layout):
    train = write(tmp_path, b"a b\n\nc", layout)
    files = locate(str(tmp_path))
    assert files.paths[TRAIN] == (train,)
    assert files.all == [tmp_path / layout.format(name) for name in ("train", "valid", "test")]
    assert list(files.counts.values()) == [6, 11, 11]
    write(tmp_path)
    assert locate(tmp_path).all[0].name == "ptb.train.txt", "the published layout is preferred"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a b\nc\n", "a b <eos> c <eos>"),
        (b"a b\nc", "a b <eos> c <eos>"),
        (b"  a\t b \r\nc\r\n", "a b <eos> c <eos>"),
        (b"a\n\nb\n", "a <eos> <eos> b <eos>"),
        (b"\xef\xbb\xbfa\n", "a <eos>"),
        ("na\u00efve \u732b\n".encode(), "na\u00efve \u732b <eos>"),
        # No ends of lines, though str.splitlines says so.
        ("a\x0cb\u2028c\n".encode(), "a b c <eos>"),
    ],
)
def test_words_of_a_line_and_its_end(tmp_path, content, words):
    files = found(tmp_path, content)
    assert read(files, TRAIN) == words.split()
    assert files.counts[TRAIN] == len(words.split())


def test_frequent_words_come_first_and_then_the_alphabet(tmp_path):
    files = found(tmp_path, b"b a c c\nb d <unk>\nc\n")
    ranked = ["<eos>", "c", "b", "<unk>", "a", "d"]
    assert vocabulary(files, 6) == {word: number for number, word in enumerate(ranked)}
    assert vocabulary(files, 100) == vocabulary(files, 6)
    assert list(vocabulary(files, 4)) == ["<eos>", "c", "b", "<unk>"]


def test_vocabulary_always_has_the_end_of_a_line_and_the_unknown_word(tmp_path):
    files = found(tmp_path, b"c c c b b a\n")
    assert vocabulary(files, 2) == {"<eos>": 0, "<unk>": 1}
    assert vocabulary(files, 3) == {"c": 0, "<eos>": 1, "<unk>": 2}
    assert read(files, TRAIN, 4) == ["c", "c", "c", "b", "b", "<unk>", "<eos>"]
    with pytest.raises(ValueError, match="vocabulary of 1"):
        vocabulary(files, 1)


def test_words_that_only_the_other_splits_have_are_unknown(tmp_path):
    files = found(tmp_path, b"the cat\n")
    expected = "the cat <unk> <unk> the <unk> <eos> the <unk> <unk> <eos>"
    assert read(files, VALIDATION) == expected.split()


@pytest.mark.parametrize(("length", "number"), [(1, 10), (3, 3), (4, 2), (5, 2), (10, 1)])
def test_every_sequence_has_a_token_after_it(tmp_path, length, number):
    assert sequences(found(tmp_path), TRAIN, length) == number


def test_fewer_tokens_than_a_sequence_are_refused(tmp_path):
    files = found(tmp_path)
    with pytest.raises(DataError, match=r"ptb.valid.txt: 11 tokens are too few .* of 11 .*; use"):
        sequences(files, VALIDATION, 11)


@pytest.mark.parametrize(("layout", "split"), [("ptb.{}.txt", VALIDATION), ("{}.txt", TRAIN)])
def test_missing_file(tmp_path, layout, split):
    assert "looked for ptb.train.txt or train.txt" in complaint(tmp_path)
    write(tmp_path, layout=layout)
    victim = tmp_path / layout.format(SPLITS[split])
    victim.unlink()
    assert complaint(tmp_path).startswith(f"{victim}: missing")
    victim.mkdir()
    assert complaint(tmp_path).startswith(f"{victim}: missing")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no word in it"),
        (b"\n \n\t\n", "has no word in it"),
        (b"fine\nna\xefve\nfine\n", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("split", SPLITS)
def test_damaged_file(tmp_path, split, content, reason):
    write(tmp_path)
    victim = tmp_path / f"ptb.{SPLITS[split]}.txt"
    victim.write_bytes(content)
    assert complaint(tmp_path).startswith(f"{victim}: {reason}")


def test_unreadable_file(tmp_path, monkeypatch):
    def refuse(path: Path, **_: str) -> io.TextIOBase:
        raise OSError(errno.EACCES, "Permission denied", str(path))

    train = write(tmp_path)
    monkeypatch.setattr("builtins.open", refuse)
    assert complaint(tmp_path).startswith(f"{train}: unreadable (Permission denied)")


# Samples ---------------------------------------------------------------------------------------


def test_sample_can_be_learned(tmp_path):
    write_tokens(tmp_path)
    files = locate(tmp_path)
    numbers = vocabulary(files, 10_000)
    stream = ids(files, TRAIN, numbers)
    end = numbers["<eos>"]
    inside = (stream[:-1] != end) & (stream[1:] != end)
    pairs = np.stack([stream[:-1], stream[1:]], axis=1)[inside]
    table = np.zeros((len(numbers), len(numbers)))
    np.add.at(table, (pairs[:, 0], pairs[:, 1]), 1)

    # A word is followed by one of four others, and the other splits know no other either.
    assert (table > 0).sum(axis=1).max() <= 4
    given = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    alone = table.sum(axis=0) / table.sum()
    entropy = -np.log(given[pairs[:, 0], pairs[:, 1]]).mean()
    assert 1.0 < entropy < 1.25
    assert 4.9 < -np.log(alone[pairs[:, 1]]).mean() < 5.3


def test_sample_fills_the_vocabularies_of_the_small_networks(tmp_path):
    paths = write_tokens(tmp_path)
    assert sum(path.stat().st_size for path in paths) < 1_000_000
    files = locate(tmp_path)
    for network in NETWORKS.values():
        if (network.task, network.scale) == (Task.LANGUAGE, Scale.SMALL):
            numbers = vocabulary(files, network.classes)
            frequency = np.bincount(ids(files, TRAIN, numbers))
            assert len(frequency) == network.classes == 2000
            assert frequency.min() >= 1
    unknown = (ids(files, VALIDATION, numbers) == numbers["<unk>"]).mean()
    assert 0 < unknown < 0.02, "the splits share their words"


Tokens = npt.NDArray[np.int32]

LENGTH = 10
WORDS = 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("text")
    write_tokens(folder, sentences=60, words=50, seed=3)
    return locate(folder)


def cut(files: Files, split: str) -> Tokens:
    """The sequences with the token after each, one by one: int32 [n, LENGTH + 1]."""
    stream = ids(files, split, vocabulary(files, WORDS))
    starts = range(0, len(stream) - LENGTH, LENGTH)
    return np.stack([stream[start : start + LENGTH + 1] for start in starts])


def joined(dataset: tf.data.Dataset, batches: int | None = None) -> Tokens:
    """Tokens and the last target of each sequence, [n, LENGTH + 1], having checked the others."""
    found = list(islice(dataset.as_numpy_iterator(), batches))
    tokens = np.concatenate([each for each, _ in found])
    targets = np.concatenate([each for _, each in found])
    assert tokens.dtype == targets.dtype == np.int32
    np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
    return np.concatenate([tokens, targets[:, -1:]], axis=1)


def request(**options: Any) -> Request:
    return Request("ptb", **{"size": LENGTH, "classes": WORDS, **options})


def train(files: Files, batches: int | None = None, **options: Any) -> Tokens:
    return joined(text.dataset(files, TRAIN, request(batch=1, **options)), batches)


def test_plain_stream_is_the_text_in_order(files):
    asked = request(shard=(0, 2), size=7, batch=5)
    for batch, split in (5, TRAIN), (None, VALIDATION):
        assert (
            text.dataset(files, split, asked).element_spec
            == (tf.TensorSpec((batch, 7), tf.int32),) * 2
        )
    windows = cut(files, TRAIN)
    rows = train(files, 2 * len(windows), shuffle=False)
    np.testing.assert_array_equal(rows, np.tile(windows, (2, 1)))
    rows = rows[: len(windows)]
    assert len(rows) > 60
    # The token after a sequence is the first of the next: no target is lost, none comes twice.
    np.testing.assert_array_equal(rows[:-1, -1], rows[1:, 0])
    assert rows.max() == WORDS - 1
    held_out = joined(text.dataset(files, VALIDATION, request(batch=4)))
    np.testing.assert_array_equal(held_out, cut(files, VALIDATION))


def test_text_of_one_sequence_is_enough(tmp_path):
    rows = train(found(tmp_path, b"a b c d\n"), batches=3, size=4)
    # By frequency all alike, so in the order of the alphabet, in which < is before a.
    assert rows.tolist() == [[1, 2, 3, 4, 0]] * 3
