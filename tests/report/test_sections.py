"""What is alike in all sections: hostile names of networks, and what was not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hvdperf.records.documents import Case
from hvdperf.report.content import Section
from hvdperf.report.sections import collectives, convergence, launches, scaling, wall_time
from tests.report.cases import HOSTILE, assert_told, of_every_name, recorded, told

START, GREW = "startup-init-resnet_50_s-np2", "memory-resnet_50_s-np2"
TRAINED = [f"convergence-loss-{other}-resnet_50_s-np2" for other in ("single", "mirrored")]
TIMED = ["weak_scaling-resnet_50_s-np2", "parity-resnet_50_s-np2"]
TRAINING = [f"wall_time-{way}-resnet_50_s-np2" for way in ("weak", "strong")]
SWEPT = ["overlap-vgg_16_s-np2"]
N = len(HOSTILE)


@pytest.mark.parametrize(
    ("section", "names", "figures"),
    [
        (launches.startup, [START], N),
        (launches.memory, [GREW], N),
        (convergence.section, TRAINED, 3 * N),
        (launches.steps, TIMED, 2 * N),
        (wall_time.section, TRAINING, 2 * N + 2),
        (collectives.section, SWEPT, 1),
    ],
)
def test_hostile_names_have_figures(
    section: Callable[[Sequence[Case]], Section], names: list[str], figures: int
) -> None:
    found = told(section(of_every_name(recorded(*names))))
    assert len(found) == figures
    assert all(len(figure.table.rows) >= N for figure in found.values()) or figures > 2


@pytest.mark.parametrize(
    ("section", "other", "file"),
    [
        (launches.startup, "", "test_startup.py"),
        (launches.memory, START, "test_memory.py"),
        (convergence.section, GREW, "test_convergence.py"),
        (launches.steps, GREW, "test_scaling.py"),
        (wall_time.section, GREW, "test_wall_time.py"),
        (collectives.section, GREW, "test_communication.py"),
        (scaling.section, GREW, "test_wall_time.py."),
    ],
)
def test_without_figures_it_is_told_how_to_get_them(
    section: Callable[[Sequence[Case]], Section], other: str, file: str
) -> None:
    for cases in ([], recorded(other) if other else []):
        found = section(cases)
        assert_told(found)
        assert found.figures == ()
        assert found.missing.endswith(f"perf/{file}")
