"""Loads the suite's plugin; the fixtures that the cases in perf/ ask for are in it."""

pytest_plugins = ["harness.plugin"]
