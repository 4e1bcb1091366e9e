"""Runs the tools that time collective operations without a framework, where they are installed.

What they find is shown beside the suite's own bare transport and judges nothing, whatever goes
wrong. On GPUs nccl-tests is the only transport that Horovod over NCCL could be held against: for a
verdict it would have to take turns with Horovod size by size in the same rounds, as the ranks of
`bare` do, since a ratio of figures that were taken minutes apart is one of two machines.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hvdperf.launch.job import LaunchError, NotEnded, Order
from hvdperf.launch.mpirun import MpirunLauncher
from hvdperf.machine.placement import Slot, place_group
from hvdperf.paths import ROOT
from hvdperf.plan.collectives import Collective
from hvdperf.transport_tools import nccl_tests, osu
from hvdperf.transport_tools.figures import Figure, NotUnderstood, ToolRun

# Of a tool with all sizes of an operation, which take 2 to 6 s on two cores: so long at most, and
# so much of a session.
DEADLINE_S = 60.0
DEADLINE_SHARE = 0.1


@dataclass(frozen=True)
class _Tool:
    """programs: by any of which names. arguments, parse: hvdperf.transport_tools'."""

    name: str
    programs: tuple[str, ...]
    arguments: Sequence[str]
    parse: Callable[[str, Collective, int], list[Figure]]


@dataclass
class ToolRunner:
    """Runs them on the session's slots. interpreter: the ranks'; scratch: every run gets a part of
    that directory; progress is told what is going on. hung: the tools that have once not ended in
    time, and are not started again."""

    launcher: MpirunLauncher
    slots: Sequence[Slot]
    interpreter: str
    scratch: Path
    progress: Callable[[str], None]
    deadline_s: float = DEADLINE_S
    hung: set[str] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, collective: Collective, world_size: int) -> list[ToolRun]:
        """One after the other each tool that is on PATH and has a use for these slots."""
        slots = place_group(self.slots, world_size)
        runs = []
        for tool in _tools(collective, slots):
            program = next(filter(None, map(shutil.which, tool.programs)), None)
            if program is not None and tool.name not in self.hung:
                self.progress(f"run {Path(program).name} on {world_size} slots")
                planned = ToolRun(tool.name, program, collective, world_size)
                runs.append(self._run(planned, tool, slots))
        return runs

    def _run(self, planned: ToolRun, tool: _Tool, slots: Sequence[Slot]) -> ToolRun:
        lent = "|".join(f"{','.join(map(str, slot.cores))};{slot.device or ''}" for slot in slots)
        wrapped = [self.interpreter, "-I", "-S", str(ROOT / "hvdperf/launch/lent.py"), lent]
        order = Order(
            processes=len(slots),
            slots=slots,
            interpreter=self.interpreter,
            environment={},
            scratch=self.scratch / f"tool-{next(self._numbers)}",
            deadline_s=self.deadline_s,
            program=(*wrapped, planned.program, *tool.arguments),
        )
        try:
            output = self.launcher.run(order)
            figures = tool.parse(output, planned.collective, planned.world_size)
        except (LaunchError, NotUnderstood) as error:
            if isinstance(error, NotEnded):
                self.hung.add(tool.name)
            return replace(planned, problem=_in_words(str(error)))
        return replace(planned, figures=tuple(figures))


def _tools(collective: Collective, slots: Sequence[Slot]) -> list[_Tool]:
    found = [
        _Tool("osu", osu.PROGRAMS[collective], osu.arguments(collective, len(slots)), osu.parse)
    ]
    if all(slot.device is not None for slot in slots):
        programs = nccl_tests.PROGRAMS[collective]
        found.append(_Tool("nccl", programs, nccl_tests.arguments(), nccl_tests.parse))
    return found


def _in_words(problem: str) -> str:
    if osu.ALONE in problem:
        return "every rank says that it is alone: it was built for another MPI than the session's"
    return problem
