"""Text for language models on disk: find the files, check them, read them. No TensorFlow here.

The layout is that of the Penn Treebank as prepared by Mikolov and used in arXiv:1409.2329: UTF-8
text, one sentence a line, words separated by blanks. The end of a line is a token of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs import faulty, or_sample, unreadable

END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Longer lines are refused, so that a file that is not text cannot fill the memory.
_LONGEST_LINE = 256 << 20


class Split(Enum):
    TRAIN = "train"
    VALID = "valid"
    TEST = "test"


# The names that the files may have; the published ones come first.
LAYOUTS = ("ptb.{}.txt", "{}.txt")


@dataclass(frozen=True)
class TokenFiles:
    """Text that was found and checked. train_tokens, valid_tokens, test_tokens: number of tokens in
    each file, ends of lines included."""

    train: Path
    valid: Path
    test: Path
    train_tokens: int
    valid_tokens: int
    test_tokens: int

    def path(self, split: Split) -> Path:
        return dict(zip(Split, (self.train, self.valid, self.test)))[split]

    def tokens(self, split: Split) -> int:
        counts = (self.train_tokens, self.valid_tokens, self.test_tokens)
        return dict(zip(Split, counts))[split]


def locate(directory: str | Path) -> TokenFiles:
    """Find the three files in the directory: ptb.train.txt and so on, or train.txt and so on.

    Every file is read once and checked. If both sets are there, the former is taken.
    Raises DataError, in one line, for a directory without all three files, and for a file that is
    empty or unreadable, is no UTF-8 or has a NUL byte. For the last two it names the line.
    """
    root = Path(directory)
    if not os.path.isdir(root):
        raise faulty(root, "no such directory", _MAKE_SAMPLES)
    incomplete = None
    for layout in LAYOUTS:
        paths = [root / layout.format(split.value) for split in Split]
        missing = [path for path in paths if not os.path.isfile(path)]
        if not missing:
            return _checked(*paths)
        if incomplete is None and len(missing) < len(paths):
            incomplete = missing[0]
    if incomplete is not None:
        raise faulty(incomplete, "missing, though others of its data set are there", _FETCH)
    looked_for = " or ".join(layout.format(Split.TRAIN.value) for layout in LAYOUTS)
    raise faulty(root, f"holds no text (looked for {looked_for})", _MAKE_SAMPLES)


def vocabulary(files: TokenFiles, size: int) -> dict[str, int]:
    """Return the training text's words and their numbers, 0..size-1 or fewer.

    The most frequent word is 0; among equally frequent ones the alphabet decides. <eos> and <unk>
    are always included, and ranked as any other word by how often they occur in the text (for
    <eos>, by its lines). If size is at least the number of words of the text, the numbering is that
    of the Penn Treebank reader of TensorFlow's tutorials.
    Raises DataError as `locate` does, and ValueError for a size under 2.
    """
    if size < 2:
        raise ValueError(f"vocabulary of {size}: {END_OF_LINE} and {UNKNOWN} alone are 2")
    frequency = Counter(word for line in _lines(files.train) for word in line)
    special = {END_OF_LINE: frequency.pop(END_OF_LINE), UNKNOWN: frequency.pop(UNKNOWN, 0)}
    kept = dict(sorted(frequency.items(), key=_by_rank)[: size - len(special)])
    ranked = sorted({**kept, **special}.items(), key=_by_rank)
    return {word: number for number, (word, _) in enumerate(ranked)}


def ids(files: TokenFiles, split: Split, numbers: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Return the tokens of a split as numbers in the order of the text, int32 [tokens].

    numbers: what `vocabulary` returns; words that are not in it become <unk>.
    Raises DataError as `locate` does.
    """
    unknown = numbers[UNKNOWN]
    words = (word for line in _lines(files.path(split)) for word in line)
    return np.fromiter((numbers.get(word, unknown) for word in words), np.int32)


def sequences(files: TokenFiles, split: Split, length: int) -> int:
    """Return into how many sequences a split is cut. Each has `length` tokens and as many targets.

    The targets are the tokens that follow, so that the last token is a target only.
    Raises DataError if there is no sequence, ValueError for a length under 1.
    """
    if length < 1:
        raise ValueError(f"length {length}: a sequence has at least one token")
    tokens = files.tokens(split)
    if tokens <= length:
        raise faulty(
            files.path(split),
            f"{tokens} tokens are too few for one sequence of {length} and its next token",
            "use more text or shorter sequences",
        )
    return (tokens - 1) // length


_FETCH = "fetch the text again"
_CONVERT = "convert it with iconv -t UTF-8, or fetch the text again"
_MAKE_SAMPLES = (
    "put the Penn Treebank's ptb.train.txt, ptb.valid.txt and ptb.test.txt there, "
    + or_sample("ptb")
)


def _by_rank(item: tuple[str, int]) -> tuple[int, str]:
    word, frequency = item
    return -frequency, word


def _checked(train: Path, valid: Path, test: Path) -> TokenFiles:
    return TokenFiles(
        train=train,
        valid=valid,
        test=test,
        train_tokens=_count(train),
        valid_tokens=_count(valid),
        test_tokens=_count(test),
    )


def _count(path: Path) -> int:
    return sum(len(line) for line in _lines(path))


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the tokens of each line, <eos> last. A blank line is <eos> alone."""
    number, anything = 0, False
    try:
        with open(path, "rb") as file:
            # In binary mode, because in text mode a lone carriage return would end a line, and an
            # editor would count other lines.
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
                words = _words(path, number, line)
                anything = anything or bool(words)
                yield [*words, END_OF_LINE]
    except OSError as error:
        raise unreadable(path, error) from error
    if not anything:
        raise faulty(path, "has no word in it" if number else "empty", _FETCH)


def _words(path: Path, number: int, line: bytes) -> list[str]:
    if b"\0" in line:
        raise faulty(path, f"line {number} has a NUL byte: the file is not text", _FETCH)
    if len(line) == _LONGEST_LINE:
        raise faulty(path, f"line {number} has {_LONGEST_LINE >> 20} MiB or more", "break it up")
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        return line.decode("utf-8").split()
    except UnicodeDecodeError as error:
        byte = f"byte {line[error.start]:#04x} at position {error.start}"
        raise faulty(path, f"line {number} is not UTF-8 ({byte})", _CONVERT) from error
