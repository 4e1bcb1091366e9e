"""The commands that measure the suite itself: what they refuse, in a line."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        ("bench.__main__", ["overheads"], "overheads"),
        ("bench.__main__", ["startup", "--np", "two"], "'two'"),
        ("bench.__main__", ["startup", "--models", "vgg_99"], "vgg_99"),
        ("bench.rates", ["gate", "--of", "many"], "'many'"),
        ("bench.rates", ["simulation", "--of", "1"], "two or more"),
        ("bench.rates", ["weeks"], "'weeks'"),
        ("bench.mutants", ["hvdperf/none/"], "hvdperf/none/"),
        ("bench.mutants", ["--count", "0"], "above zero"),
        ("bench.soak", ["0"], "above zero"),
        ("bench.truth_table", ["--data", "none"], "none: there is no recording in it"),
    ],
)
def test_bad_arguments_are_refused(command, arguments, said, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [command, *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process is the tests'
    with pytest.raises(SystemExit) as refused:
        importlib.import_module(command).main()
    # A message that argparse has printed, or that the interpreter prints of the exception.
    assert said in f"{capsys.readouterr().err}{refused.value}"
