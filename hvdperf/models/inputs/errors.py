"""Errors about a data set, in one line each."""

from __future__ import annotations

from pathlib import Path


class DataError(ValueError):
    """A data set cannot be used. The message, one line, names the file, the fault and the
    remedy."""


def faulty(path: Path, fault: str, remedy: str) -> DataError:
    return DataError(f"{path}: {fault}; {remedy}")


def unreadable(path: Path, error: OSError) -> DataError:
    return faulty(path, f"unreadable ({error.strerror})", "check its permissions")


def or_sample(dataset: str) -> str:
    """Return the words on how to write the suite's own sample of a data set."""
    command = f"python -m hvdperf.models.inputs.sample_sets DIR {dataset}"
    return f"or write a small sample to DIR/{dataset} with {command}"
