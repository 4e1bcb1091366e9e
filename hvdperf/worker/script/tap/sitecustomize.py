"""Python runs this file first of all in every process of a command that `hvdperf run` starts. It
restricts the process, puts the recorder there, and then runs the sitecustomize that this one hides,
if there is one."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _next() -> None:
    import importlib.machinery
    import importlib.util

    rest = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("HVDPERF_PRIVATE"):
    import _hvdperf_private  # type: ignore[import-not-found]

    _hvdperf_private.restrict_rank()
if os.environ.get("HVDPERF_RECORD"):
    import _hvdperf_recorder  # type: ignore[import-not-found]

    _hvdperf_recorder.install()
_next()
