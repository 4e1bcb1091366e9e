"""The training data of a session: the data set of each network, found and checked.

For the fault `data`, it makes other data of the same form: the data set's files with swapped names.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.models import inputs, registry
from hvdperf.models.inputs import DataError, Files, sample_sets
from hvdperf.models.registry import SCRIPT
from hvdperf.paths import CACHE, ROOT, SAMPLES
from hvdperf.programs import run

# The data set of language models if the user asks for one of images.
WORDS = "ptb"
# Begins a part of --data-dir that names its data set.
_NAMED = re.compile(r"\w+=")


@dataclass(frozen=True)
class DataSource:
    """The training data of one data set.

    directory: its place; "" for synthetic input. classes: number of labels; 0 for words. identity:
    a text that distinguishes it from another copy (models.inputs.dataset_id). files: the files that
    identity covers, below the directory. located: the files that were found there
    (models.inputs.locate); None for synthetic input.
    """

    dataset: str
    directory: str
    classes: int
    identity: str = ""
    files: tuple[str, ...] = ()
    located: Files | None = None

    @property
    def is_made_up(self) -> bool:
        """Whether the files are the suite's own sample: valid files of made-up contents."""
        return bool(self.directory) and (Path(self.directory) / sample_sets.STAMP).exists()


def dataset_of(network: registry.Network, wanted: str) -> str:
    """Return the data set that the network trains on if the user asks for `wanted`.

    Usually this is `wanted`, but a language model reads WORDS if `wanted` has images. Raises
    UserError if the network needs images and `wanted` has words.
    """
    if network.script:
        return SCRIPT
    if network.data:
        return network.name
    if network.task.form in known_input(wanted).forms:
        return wanted
    if network.task.form is registry.Form.WORDS:
        return WORDS
    raise UserError(f"--dataset {wanted}: holds words, and {network.name} trains on images")


def known_input(name: str) -> inputs.Input:
    with refusing("--dataset: ", inputs.UnknownInput):
        return inputs.find(name)


def parse_data_dir(text: str, dataset: str) -> dict[str, str]:
    """Return directories by data set. text: `DIR`, for the data set `dataset`, or
    `imagenet=DIR,ptb=DIR`. Raises UserError."""
    parts = text.split(",")
    if Path(text).exists() or not any(map(_NAMED.match, parts)):
        return {dataset: text} if text else {}
    found: dict[str, str] = {}
    for name, equals, directory in (part.partition("=") for part in parts):
        if not equals:
            raise UserError(f"--data-dir: {name}: say which data set it is, as in ptb={name}")
        with refusing("--data-dir: ", inputs.UnknownInput):
            inputs.find(name)
        if name in found:
            raise UserError(f"--data-dir: {name}= is given twice; give it once")
        if not directory:
            raise UserError(f"--data-dir: {name}= names no directory; leave it out for a sample")
        found[name] = directory
    return found


def check_all_read(directories: Mapping[str, str], read: Iterable[str]) -> None:
    """Raise UserError if a directory would be ignored while a sample stands in for another data
    set. read: the data sets of the session."""
    read = tuple(read)
    ignored = [name for name in directories if name not in read]
    missing = [name for name in read if inputs.find(name).needs_data and name not in directories]
    if ignored and missing:
        raise UserError(
            f"--data-dir: {directories[ignored[0]]} is taken for {ignored[0]}, but this session "
            f"reads {' and '.join(read)}; add --dataset {ignored[0]}, or give {missing[0]}=DIR"
        )


def open_data(dataset: str, directory: str) -> DataSource:
    """Find and check the training data: the suite's own sample if no directory is given. Raises
    UserError that names the wrong file."""
    source = known_input(dataset)
    if not source.needs_data:
        return DataSource(dataset, "", source.classes)
    try:
        path = Path(directory) if directory else sample(dataset)
        located = inputs.locate(dataset, path)
        # Other files may lie in the directory, too.
        files = tuple(str(each.relative_to(path)) for each in located.all)
        identity = inputs.dataset_id(path, files)
        if not located.counts:
            located = _counted(located, path, identity)
    except (DataError, OSError) as error:
        raise UserError(f"--data-dir: {error}") from None
    return DataSource(dataset, str(path.resolve()), source.classes, identity, files, located)


def _counted(located: Files, directory: Path, identity: str) -> Files:
    """Return the shards of ImageNet with their numbers of records.

    All shards are read once (models.inputs.imagenet_files); the numbers are kept until a shard or
    the check changes. Raises UserError that names the wrong shard and record.
    """
    changed = [path.stat().st_mtime_ns for path in located.all]
    check = (ROOT / "hvdperf/models/inputs/imagenet_files.py").read_text()
    asked = json.dumps([str(directory.resolve()), identity, changed, check])
    key = hashlib.sha256(asked.encode()).hexdigest()[:16]
    cache = CACHE / f"imagenet-{key}.json"
    try:
        kept = json.loads(cache.read_text())
        return replace(located, counts={split: int(kept[split]) for split in located.paths})
    except (OSError, ValueError, TypeError, KeyError):
        print(f"imagenet: reading {identity.rpartition(',')[0]}, once", file=sys.stderr)
    counts = _run("hvdperf.models.inputs.imagenet_files", "--data-dir:", str(directory.absolute()))
    # Without the cache the next session reads all shards again.
    with suppress(OSError):
        CACHE.mkdir(parents=True, exist_ok=True)
        write_whole(cache, counts)
    return replace(located, counts=json.loads(counts))


def sample(dataset: str) -> Path:
    """Return the directory of the suite's own sample of a data set.

    The sample is written on first use. Raises UserError if it cannot be written.
    """
    directory = SAMPLES / dataset
    if not directory.exists():
        failed = f"the sample of {dataset} could not be written:"
        _run("hvdperf.models.inputs.sample_sets", failed, str(SAMPLES), dataset)
    return directory


def can_swap(data: DataSource) -> bool:
    """Return whether two files of a data set are equally large; synthetic input has no files."""
    return any(len(group) > 1 for group in _alike(data))


def other_data(data: DataSource, into: Path) -> Path:
    """Fill `into` with links to the files of a data set, and return it.

    Files that are equally large, such as the parts of CIFAR-10, have swapped names. Raises
    DataError if there are no such files, and OSError if a link cannot be written.
    """
    if not can_swap(data):
        raise DataError(
            f"{data.directory or 'synthetic data'}: the fault `data` swaps two files of equal "
            "size, of which there are none; inject it into CIFAR-10"
        )
    for group in _alike(data):
        for named, holding in zip(group, [*group[1:], group[0]], strict=True):
            link = into / named
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(Path(data.directory, holding).resolve())
    return into


def _alike(data: DataSource) -> list[list[str]]:
    """Return the files of a data set in groups of the same size."""
    by_size: dict[int, list[str]] = {}
    for name in data.files:
        by_size.setdefault(Path(data.directory, name).stat().st_size, []).append(name)
    return list(by_size.values())


def _run(module: str, failed: str, *arguments: str) -> str:
    """Run a module that needs TensorFlow, which the driver never imports, in a process of its own.

    Return its output. Raises UserError: `failed` and the last line of its errors.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = run(command, ROOT)
    if done.status != 0:
        raise UserError(f"{failed} {done.why}")
    return done.output
