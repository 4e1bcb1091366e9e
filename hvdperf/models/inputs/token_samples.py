"""Write a small but valid text, in the layout of the Penn Treebank, that a network can learn from.

python -m hvdperf.models.inputs.token_samples DIR [--sentences 5000] [--words 5000]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs.errors import DataError, finish
from hvdperf.models.inputs.token_files import LAYOUTS, Split

# These give half a megabyte. 2,205 of the words occur, more than the 2,000 that the small language
# models know. So each row of their embeddings is looked up, that of unknown words by the rest.
SENTENCES = 5000
WORDS = 5000

# Probabilities of a word's four successors. There are no others: a network that knows the chain has
# a loss of 1.2 nats per word, one that knows the frequency of each word has 5.1, and one that knows
# nothing has ln 2000 = 7.6.
_SUCCESSORS = (0.5, 0.25, 0.125, 0.125)
# Words in a sentence, 20 on average: about as many as in the Penn Treebank.
_SHORTEST, _LONGEST = 5, 35


def write_tokens(
    directory: str | Path, sentences: int = SENTENCES, words: int = WORDS, seed: int = 0
) -> tuple[Path, ...]:
    """Write ptb.train.txt, ptb.valid.txt and ptb.test.txt into the directory; return their paths.

    The training text has `sentences` sentences, the other two have a tenth each, at least one. The
    text is a Markov chain of `words` words in which each is followed by one of four, so that a loss
    can fall. As in real text, few words are frequent and many are rare, so that in a short text
    many do not occur. The same arguments give the same bytes.
    Raises DataError if one of the files exists already, or if a number is out of range.
    """
    if sentences < 1 or words < 1 or seed < 0:
        raise DataError(
            f"{sentences} sentences, {words} words, seed {seed}: at least one of each, and "
            "no negative number"
        )
    folder = Path(directory)
    paths = tuple(folder / LAYOUTS[0].format(split.value) for split in Split)
    for path in paths:
        if path.exists():
            raise DataError(f"{path}: exists already; choose an empty directory")
    folder.mkdir(parents=True, exist_ok=True)

    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, words + 1)  # Zipf's law
    frequency /= frequency.sum()
    chain = rng.choice(words, size=(words, len(_SUCCESSORS)), p=frequency)
    others = max(1, sentences // 10)
    for path, count in zip(paths, (sentences, others, others)):
        path.write_bytes(_text(chain, frequency, count, rng))
    return paths


def _text(
    chain: npt.NDArray[np.int64],
    frequency: npt.NDArray[np.float64],
    sentences: int,
    rng: np.random.Generator,
) -> bytes:
    """Return lines of words. chain: [words, successors]. frequency: [words], that of the first
    words of sentences."""
    word = rng.choice(len(frequency), size=sentences, p=frequency)
    columns = []
    for _ in range(_LONGEST):
        columns.append(word)
        word = chain[word, rng.choice(len(_SUCCESSORS), size=sentences, p=_SUCCESSORS)]
    table = np.stack(columns, axis=1)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=sentences)
    # A blank at both ends of each line, as in the published files.
    lines = (
        " ".join(["", *(f"w{number}" for number in row[:length]), "\n"])
        for row, length in zip(table.tolist(), lengths)
    )
    return "".join(lines).encode("ascii")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hvdperf.models.inputs.token_samples",
        description="Write a small valid text.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--sentences", type=int, default=SENTENCES, metavar="N")
    parser.add_argument("--words", type=int, default=WORDS, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)

    def write() -> str:
        paths = write_tokens(options.directory, options.sentences, options.words, options.seed)
        return f"{len(paths)} files of {options.sentences} sentences in {options.directory}"

    return finish(write)


if __name__ == "__main__":
    sys.exit(main())
