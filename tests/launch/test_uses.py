"""What people do with Horovod, tried on two ranks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import uses
from hvdperf.launch.uses import Tried, try_uses, usual_uses
from hvdperf.machine.stack import Stack, probe
from hvdperf.paths import CACHE
from hvdperf.worker.uses import SILENTLY, Use
from tests.support.stores import STACK

# Writes what it was asked for up to the first use that is FIT, at which it ends.
STAND_IN = """\
#!/bin/sh
while [ "$1" != hvdperf.worker.uses ]; do shift; done
file=$2
shift 2
for use; do
    if [ "$use" = "hvd.DistributedOptimizer in model.fit" ]; then
        echo "the first error" >&2
        echo "rank 1 died" >&2
        exit 7
    fi
    echo "{\\"use\\": \\"$use\\", \\"problem\\": \\"\\"}" >>"$file"
done
"""


def installed(directory: Path, launcher: str) -> Stack:
    """Return a stack with a horovodrun."""
    path = directory / "horovodrun"
    path.write_text(launcher)
    path.chmod(0o755)
    return replace(STACK, interpreter=str(directory / "python"))


def test_a_script_that_exchanges_agrees_and_keras_3_under_fit_does_not() -> None:
    own, fit = try_uses(probe(sys.executable, CACHE), [Use.ALLREDUCE, Use.FIT])
    assert (own.use, own.problem) == (Use.ALLREDUCE, "")
    has_keras_3 = int(probe(sys.executable, CACHE).keras.split(".")[0]) >= 3
    assert fit.problem.startswith(SILENTLY) is has_keras_3, fit.problem


def test_a_use_that_ends_the_ranks_is_told_and_the_others_are_tried(tmp_path: Path) -> None:
    wanted = [Use.TAPE, Use.FIT, Use.ELASTIC, Use.BROADCAST]
    found = {each.use: each for each in try_uses(installed(tmp_path, STAND_IN), wanted)}
    assert set(found) == set(wanted)
    assert found.pop(Use.FIT).problem == "the ranks ended with status 7: rank 1 died"
    assert not any(each.problem for each in found.values())


def test_a_use_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uses, "DEADLINE_S", 0.5)
    (found,) = try_uses(installed(tmp_path, "#!/bin/sh\nexec sleep 60\n"), [Use.FIT])
    assert found.problem == "no end within 0.5 s"


def test_a_stack_without_horovodrun_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no horovodrun beside"):
        list(try_uses(replace(STACK, interpreter=str(tmp_path / "python")), [Use.FIT]))


def test_an_mpi_that_horovodrun_does_not_know_is_left_to_gloo(tmp_path: Path) -> None:
    stack = installed(tmp_path, f'#!/bin/sh\necho "$@" >{tmp_path}/given\n')
    given = []
    for version in ("mpirun (Open MPI) 4.1.8", "mpirun (Open MPI) 5.0.11"):
        list(try_uses(replace(stack, mpirun_version=version), [Use.FIT]))
        given.append("--gloo" in (tmp_path / "given").read_text())
    assert given == [False, True]


def test_what_was_tried_with_the_same_packages_and_keras_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = installed(tmp_path, STAND_IN)
    expected = [Use.TAPE, Use.FIT]
    first = usual_uses(stack, tmp_path)
    assert [each.use for each in first] == expected
    installed(tmp_path, STAND_IN.replace(Use.FIT.value, "none"))
    assert usual_uses(stack, tmp_path) == first
    again = tuple(Tried(use, "") for use in expected)
    assert usual_uses(replace(stack, packages_sha256="0" * 64), tmp_path) == again
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert usual_uses(stack, tmp_path) == again
