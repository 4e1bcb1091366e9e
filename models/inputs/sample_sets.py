"""The sample of every data set, written once: python -m models.inputs.sample_sets DIR [NAME ...]

Small valid files in the published formats, for whoever has not brought real ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from models.inputs.cifar_files import Layout
from models.inputs.errors import DataError

# In a sample's directory: which version of the writers has left it.
STAMP = ".written-by"


def _cifar10(path: Path) -> None:
    from models.inputs.samples import write_cifar

    write_cifar(path, "cifar10", Layout.BINARY, records_per_file=1000)


def _cifar100(path: Path) -> None:
    from models.inputs.samples import write_cifar

    write_cifar(path, "cifar100", Layout.BINARY, records_per_file=5000)


def _imagenet(path: Path) -> None:
    from models.inputs.imagenet_samples import write_imagenet

    write_imagenet(path)


def _ptb(path: Path) -> None:
    from models.inputs.token_samples import write_tokens

    write_tokens(path)


# 5,000 CIFAR images for training, so that a shuffle has something to do.
WRITERS: dict[str, Callable[[Path], None]] = {
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "imagenet": _imagenet,
    "ptb": _ptb,
}


def is_current(directory: Path) -> bool:
    """Whether a sample is there that needs not be written: today's, or somebody's own files."""
    stamp = directory / STAMP
    if not directory.exists():
        return False
    return not stamp.exists() or stamp.read_text() == _version()


def _version() -> str:
    """Of the writers: a hash of their source."""
    known = hashlib.sha256()
    for name in ("sample_sets", "samples", "imagenet_samples", "token_samples"):
        known.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return known.hexdigest()


def write(dataset: str, root: Path) -> bool:
    """Write that data set's sample to root/dataset, whole; False if it is there already. One that
    another version of these writers has left is replaced; files of anybody else are not."""
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
        # What could not be written to its end, or is there by now.
        shutil.rmtree(partial, ignore_errors=True)
    return True


def main(arguments: Sequence[str]) -> int:
    if not arguments or not set(arguments[1:]) <= set(WRITERS):
        print(f"usage: python -m models.inputs.sample_sets DIR [{' '.join(WRITERS)}]")
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
