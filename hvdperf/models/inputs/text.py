"""Text for language models: find the files, check them, number their words, and cut these into
sequences, which are dealt out, shuffled and batched. Only the pipeline imports TensorFlow.

The layout is that of the Penn Treebank as prepared by Mikolov and used in arXiv:1409.2329: UTF-8
text, one sentence a line, words separated by blanks. The end of a line is a token of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvdperf.models import inputs
from hvdperf.models.inputs import Files, Request, faulty, unreadable

END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"

# The names that the files may have, of which the published ones come first, and their splits.
LAYOUTS = ("ptb.{}.txt", "{}.txt")
SPLITS = {inputs.TRAIN: "train", inputs.VALIDATION: "valid", "test": "test"}


def locate(directory: str | Path, dataset: str = "ptb") -> Files:
    """Find the three files in the directory: ptb.train.txt and so on, or train.txt and so on.

    Every file is read once and checked; its count is that of its tokens, ends of lines included. If
    both sets are there, the former is taken.
    Raises DataError, in one line, for a directory without all three files, and for a file that is
    empty or unreadable, or is not UTF-8.
    """
    root = Path(directory)
    candidates = (
        Files(dataset, {split: (root / layout.format(name),) for split, name in SPLITS.items()})
        for layout in LAYOUTS
    )
    remedy = (
        "put the Penn Treebank's ptb.train.txt, ptb.valid.txt and ptb.test.txt there, "
        + inputs.or_sample(dataset)
    )
    files = inputs.first_whole(root, candidates, remedy)
    counts = {split: sum(map(len, _lines(path))) for split, (path,) in files.paths.items()}
    return replace(files, counts=counts)


def vocabulary(files: Files, size: int) -> dict[str, int]:
    """Return the training text's words and their numbers, 0..size-1 or fewer.

    The most frequent word is 0; among equally frequent ones the alphabet decides. <eos> and <unk>
    are always included, and ranked as any other word by how often they occur in the text (for
    <eos>, by its lines). If size is at least the number of words of the text, the numbering is that
    of the Penn Treebank reader of TensorFlow's tutorials.
    Raises DataError as `locate` does, and ValueError for a size under 2.
    """
    if size < 2:
        raise ValueError(f"vocabulary of {size}: {END_OF_LINE} and {UNKNOWN} alone are 2")
    frequency = Counter(word for line in _lines(*files.paths[inputs.TRAIN]) for word in line)
    special = {END_OF_LINE: frequency.pop(END_OF_LINE), UNKNOWN: frequency.pop(UNKNOWN, 0)}
    kept = dict(sorted(frequency.items(), key=_by_rank)[: size - len(special)])
    ranked = sorted({**kept, **special}.items(), key=_by_rank)
    return {word: number for number, (word, _) in enumerate(ranked)}


def ids(files: Files, split: str, numbers: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Return the tokens of a split as numbers in the order of the text, int32 [tokens].

    numbers: what `vocabulary` returns; words that are not in it become <unk>.
    Raises DataError as `locate` does.
    """
    unknown = numbers[UNKNOWN]
    words = (word for line in _lines(*files.paths[split]) for word in line)
    return np.fromiter((numbers.get(word, unknown) for word in words), np.int32)


def sequences(files: Files, split: str, length: int) -> int:
    """Return into how many sequences a split is cut. Each has `length` tokens and as many targets.

    The targets are the tokens that follow, so that the last token is a target only.
    Raises DataError if there is no sequence.
    """
    tokens = files.counts[split]
    if tokens <= length:
        (path,) = files.paths[split]
        raise faulty(
            path,
            f"{tokens} tokens are too few for one sequence of {length} and its next token",
            "use more text or shorter sequences",
        )
    return (tokens - 1) // length


def _by_rank(item: tuple[str, int]) -> tuple[int, str]:
    word, frequency = item
    return -frequency, word


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the tokens of each line, <eos> last. A blank line is <eos> alone."""
    anything = False
    try:
        # By default a lone carriage return would end a line, too.
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            for line in file:
                words = line.split()
                anything = anything or bool(words)
                yield [*words, END_OF_LINE]
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        remedy = "convert it with iconv -t UTF-8, or fetch the text again"
        raise faulty(path, f"is not UTF-8 ({error.reason})", remedy) from error
    if not anything:
        raise faulty(path, "has no word in it", "fetch the text again")


# The pipeline ----------------------------------------------------------------------------------


def dataset(files: Files, split: str, request: Request) -> Any:
    """Return (tokens int32 [b, size], targets int32 [b, size]), as inputs.open_split does.

    The targets are the tokens, one position on. Sequence k starts at token k * size of the text.
    The shard has the sequences whose number is index modulo count; they are taken before anything
    is shuffled. Each epoch is the whole shard in a new order that the seed decides; a batch may
    span two epochs. Without shuffle the stream is the sequences of the shard in the order of the
    text.

    request.classes: how many words of the training text are distinguished, see `vocabulary`; every
    token is less. The text is numbered when the pipeline is made and kept in memory: four bytes a
    token.

    Raises DataError if there are fewer sequences than shards or no sequence at all, ValueError for
    an impossible vocabulary.
    """
    import tensorflow as tf

    from hvdperf.models.inputs import pipeline

    total = sequences(files, split, request.size)
    things = f"sequences of {request.size} tokens"
    (path,) = files.paths[split]
    inputs.check_enough(path, total, things, request, "more text, shorter sequences")
    stream = ids(files, split, vocabulary(files, request.classes))
    windows = np.lib.stride_tricks.sliding_window_view(stream, request.size + 1)
    index, count = request.shard
    # The shard's sequences with the token after each, int32 [n, size + 1].
    rows = windows[:: request.size][index::count]
    records = tf.data.Dataset.from_tensor_slices(rows)
    records = pipeline.ordered(records, split, request, len(rows))
    batches = records.batch(request.batch, drop_remainder=split == inputs.TRAIN)
    pairs = pipeline.mapped(batches, lambda rows: (rows[:, :-1], rows[:, 1:]), request.threads)
    return pipeline.ready(pairs, request.threads)
