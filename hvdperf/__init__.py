"""A performance regression suite for Horovod and TensorFlow, driven by pytest.

The suite takes pytest's command line, measures training in other processes, and writes verdicts and
pages. Only worker/ and models/ import TensorFlow and Horovod; tests/test_house.py says which
subpackage may import which. All subpackages may import the modules beside them, which import no
subpackage, except __main__.py.

This module is the pytest plugin, too: `pytest -p hvdperf` in another project, and conftest.py here.
"""

from __future__ import annotations

from typing import Any

pytest_plugins = [
    "hvdperf.session.plugin",
    "hvdperf.report.session",
    "hvdperf.report.plugin",
]


def pytest_addoption(parser: Any) -> None:
    """Let rank 0 of an outer mpirun be the session; the other ranks lend their slots to it.

    They leave here, before an option is parsed, so that every event is reported once.
    """
    from hvdperf.launch.outer import outer_rank
    from hvdperf.launch.slots import lend_slot

    if outer_rank() > 0:
        lend_slot()
