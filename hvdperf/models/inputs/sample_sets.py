"""Write every data set's sample once: python -m hvdperf.models.inputs.sample_sets DIR [NAME...]

A sample consists of small valid files in the published format, for users without the real ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hvdperf.models.inputs.cifar_files import Layout
from hvdperf.models.inputs.errors import DataError

# The file in a sample's directory that holds the version of the writers.
STAMP = ".written-by"


def _cifar10(path: Path) -> None:
    from hvdperf.models.inputs.samples import write_cifar

    write_cifar(path, "cifar10", Layout.BINARY, records_per_file=1000)


def _cifar100(path: Path) -> None:
    from hvdperf.models.inputs.samples import write_cifar

    write_cifar(path, "cifar100", Layout.BINARY, records_per_file=5000)


def _imagenet(path: Path) -> None:
    from hvdperf.models.inputs.imagenet_samples import write_imagenet

    write_imagenet(path)


def _ptb(path: Path) -> None:
    from hvdperf.models.inputs.token_samples import write_tokens

    write_tokens(path)


# Samples of CIFAR have 5,000 images for training, so that a shuffle has something to do.
WRITERS: dict[str, Callable[[Path], None]] = {
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "imagenet": _imagenet,
    "ptb": _ptb,
}


def is_current(directory: Path) -> bool:
    """Return whether the directory has a sample that need not be written: one of this version, or a
    user's own files."""
    stamp = directory / STAMP
    if not directory.exists():
        return False
    return not stamp.exists() or stamp.read_text() == _version()


def _version() -> str:
    """Return the version of the writers: a hash of their source."""
    known = hashlib.sha256()
    for name in ("sample_sets", "samples", "imagenet_samples", "token_samples"):
        known.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return known.hexdigest()


def write(dataset: str, root: Path) -> bool:
    """Write a data set's sample to root/dataset, whole or not at all. Return False if it is there
    already. A sample of another version of these writers is replaced; other files are not."""
    directory = root / dataset
    if is_current(directory):
        return False
    partial = root / f".{dataset}.{os.getpid()}"
    try:
        WRITERS[dataset](partial)
        (partial / STAMP).write_text(_version())
        if directory.exists():
            shutil.rmtree(directory)
        try:
            partial.rename(directory)
        except OSError:
            if not directory.exists():  # else another process was quicker
                raise
    finally:
        # This is left if the writing failed, or if another process was quicker.
        shutil.rmtree(partial, ignore_errors=True)
    return True


def main(arguments: Sequence[str]) -> int:
    if not arguments or not set(arguments[1:]) <= set(WRITERS):
        print(f"usage: python -m hvdperf.models.inputs.sample_sets DIR [{' '.join(WRITERS)}]")
        return 2
    root = Path(arguments[0])
    try:
        for dataset in arguments[1:] or WRITERS:
            if write(dataset, root):
                print(f"data: a sample of {dataset} in {root / dataset}")
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
