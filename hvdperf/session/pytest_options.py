"""The command line of pytest: the options of the suite, and those of other plugins that measuring
cannot bear."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hvdperf import cli, errors
from hvdperf.errors import UserError
from hvdperf.plan.options import DATA_DIR, Options

# Options of pytest-benchmark that ask for its tables. Without one of them the tables are left out,
# because they compare different networks with each other.
_TABLES = tuple(
    f"--benchmark-{name}"
    for name in (
        *("columns", "sort", "group-by", "name", "time-unit", "verbose", "compare"),
        *("histogram", "cprofile"),
    )
)

# Options of other plugins that measuring cannot bear: the name of the value, those that are
# harmless, the option, and what it would do.
_PLUGINS_OF_OTHERS: tuple[tuple[str, tuple[object, ...], str, str], ...] = (
    ("numprocesses", (0,), "pytest-xdist (-n)", "measure several cases at the same time"),
    ("tx", ([],), "pytest-xdist (--tx)", "measure several cases at the same time"),
    ("workers", (0, 1), "pytest-parallel (--workers)", "measure several cases at the same time"),
    ("parallel_threads", (0, 1), "--parallel-threads", "measure several cases at the same time"),
    ("looponfail", (False,), "pytest-xdist (--looponfail)", "repeat cases until they pass"),
    ("reruns", (0,), "pytest-rerunfailures (--reruns)", "repeat cases until they pass"),
    ("retries", (0,), "pytest-retry (--retries)", "repeat cases until they pass"),
    ("count", (1,), "pytest-repeat (--count)", "count each case several times"),
    ("flake_finder_enable", (False,), "--flake-finder", "count each case several times"),
    ("forked", (False,), "pytest-forked (--forked)", "give each case a session of its own"),
    ("benchmark_skip", (False,), "--benchmark-skip", "skip every case"),
    ("timeout", (0, 0.0), "pytest-timeout (--timeout)", "cut a session, which has --budget"),
)


def add_options(parser: pytest.Parser) -> None:
    """Add all options of a session. A value that is empty, no number or an unknown choice ends
    pytest with one line, where argparse would print several, with its usage."""
    for heading, flag, added in cli.options_of(Options):
        if added["default"] == "":
            added["default"] = None  # argparse would read it as a value, and refuse it
        if "type" in added:
            added["type"] = partial(_read, flag, added["type"])
        parser.getgroup(f"hvdperf: {heading}").addoption(flag, **added)


def given(config: pytest.Config) -> Options:
    """Return the options that pytest has parsed."""
    values: dict[str, Any] = {
        each.name: tuple(value) if isinstance(value, list) else value
        for each in fields(Options)
        if (value := getattr(config.option, each.name)) is not None
    }
    return Options(**{"data_dir": os.environ.get(DATA_DIR, ""), **values})


def _read(flag: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        value = read(text)
        # Scripts give an empty value by mistake; an empty directory is that of the samples.
        if not text.strip() and flag != "--data-dir":
            raise UserError(f"{flag}: is empty; give a value, or leave it out")
        return value
    except UserError as error:
        raise pytest.UsageError(str(error)) from None


@contextmanager
def refusing(config: pytest.Config) -> Iterator[None]:
    """End pytest with one line, instead of a UserError. An error about the directory of data names
    the variable if that gave the value."""
    try:
        yield
    except UserError as error:
        message, option = str(error), "--data-dir"
        is_of_variable = message.startswith(option) and config.option.data_dir is None
        if is_of_variable and os.environ.get(DATA_DIR):
            message = message.replace(option, DATA_DIR, 1)
        raise pytest.UsageError(message) from None


def refuse_other_plugins(config: pytest.Config) -> None:
    """Raise UsageError if another plugin would cut, repeat, spread or isolate cases: a case waits
    for rounds that it shares with others, all in this process."""
    for name, harmless, option, does in _PLUGINS_OF_OTHERS:
        if getattr(config.option, name, None) not in (None, *harmless):
            raise pytest.UsageError(
                f"{option} would {does}; leave it out, also of PYTEST_ADDOPTS and pytest.ini"
            )


def check_files_of_others(config: pytest.Config) -> None:
    """Raise UsageError if another plugin cannot write its file. That plugin would fail only at the
    end of the session, and suppress the summary."""
    for option, name in (("--junitxml", "xmlpath"), ("--benchmark-json", "benchmark_json")):
        file = getattr(config.option, name, None)
        if not file:
            continue
        # pytest expands the first one; pytest-benchmark takes its path as it is.
        path = Path(os.path.expanduser(os.path.expandvars(file)) if name == "xmlpath" else file)
        failed = f"{option} {file}: cannot be written: "
        with refusing(config), errors.refusing(failed, OSError, "; give another path"):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = not path.exists()
            path.open("ab").close()
            if new:
                path.unlink()


def asks_for_tables(config: pytest.Config) -> bool:
    """Return whether the command line asks for tables of pytest-benchmark."""
    return any(argument.startswith(_TABLES) for argument in config.invocation_params.args)
