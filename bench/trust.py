"""`python -m bench.trust`: how often what is planted is noticed, and how often nothing is.

Repeats whole sessions of perf/test_trust.py, as a user starts them, and counts in all sessions that
are there, of this machine and this version of the suite, what they said. It can be ended and begun
again at any time: sessions add up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from harness.archive import Archive, Case, read_session
from harness.campaign import ROOT
from harness.fingerprint import differences
from harness.trials import TRIALS, Trial
from harness.verdict import Verdict

RESULTS = ROOT / "results" / "trust"
# Of pytest: interrupted, broken, bad input. What is planted and not noticed is no error here.
NO_SESSION = (2, 3, 4)
PAGE = ROOT / "docs" / "trust.md"
HEAD = """\
# What the suite notices, measured

Written by `make trust`. A session plants each fault into one of two arms that live side by side and
judges them as `--against` judges two stacks: FAIL if surely 2 % slower, PASS if surely not 5 %
slower, after 8 or 12 rounds. (Memory is held against its ceiling; what makes a launch INVALID is
found in the first round.) Shares are of the sessions that came to a verdict, with 95 % intervals
(Clopper and Pearson 1934).
"""
TABLE = """\
| planted | into | must be called | was | right rank and term | undecided | figures |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Count:
    """Of a trial's sessions that came to a verdict, how many said what they must."""

    trial: str
    model: str
    world_size: int
    decided: int
    called: int
    blamed: int
    inconclusive: int
    figures: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trust", description=__doc__)
    parser.add_argument("--sessions", type=int, default=20, help="how many to add (20)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after")
    parser.add_argument("-k", dest="selected", default="test_planted", help="as pytest has it")
    options = parser.parse_args()
    began = time.monotonic()
    for number in range(options.sessions):
        if time.monotonic() - began >= 60 * options.minutes:
            break
        print(f"session {number + 1} of {options.sessions}", flush=True)
        status = session(options.selected)
        if status in NO_SESSION:
            sys.exit(status)
    sessions = sorted(path for path in (RESULTS / "runs").glob("*") if path.is_dir())
    archives = [read_session(path) for path in sessions]
    alike, others = of_newest([archive for archive in archives if archive.cases])
    lines = page(alike)
    PAGE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if others:
        print(f"{len(others)} sessions of another machine, stack or suite are not counted")


def session(selected: str) -> int:
    """One, as a user starts it; its exit status."""
    command = [sys.executable, "-m", "pytest", "perf/test_trust.py", "--profile=trust", "-q"]
    command += ["-k", selected, f"--results={RESULTS}"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def of_newest(archives: Sequence[Archive]) -> tuple[list[Archive], list[Archive]]:
    """Those whose figures may be put together with the newest one's, and the others."""
    if not archives:
        return [], []
    newest = archives[-1].cases[0].fingerprint
    alike = [a for a in archives if not differences(newest, a.cases[0].fingerprint)]
    return alike, [archive for archive in archives if archive not in alike]


def counts(cases: Iterable[Case]) -> list[Count]:
    """By trial, in the order of TRIALS, network and world size."""
    alike: dict[tuple[str, str, int], list[Case]] = {}
    for case in cases:
        if case.name.startswith("trust["):
            trial = case.document["plan"]["candidate"]["planted"]
            alike.setdefault((trial, case.workload.model, case.world_size), []).append(case)
    order = list(TRIALS)
    return [
        _count(*alike[key], of=key)
        for key in sorted(alike, key=lambda key: (order.index(key[0]), *key[1:]))
    ]


def _count(*cases: Case, of: tuple[str, str, int]) -> Count:
    open_ = (Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED)
    decided = [case for case in cases if case.verdict not in open_]
    called = [case for case in decided if _called(case) is TRIALS[of[0]].verdict]
    return Count(
        *of,
        decided=len(decided),
        called=len(called),
        blamed=sum(case.verdict is Verdict.PASS for case in called),
        inconclusive=len(cases) - len(decided),
        figures=tuple(case.figure.estimate for case in cases if case.figure is not None),
    )


def _called(case: Case) -> Verdict | None:
    """None where a launch failed, before anything could be noticed."""
    noticed = case.document["noticed"]
    return None if noticed is None else Verdict(noticed["called"])


def share(times: int, of: int) -> str:
    """With the 95 % interval of Clopper and Pearson (1934)."""
    if not of:
        return "-"
    interval = binomtest(times, of).proportion_ci(0.95)
    return f"{times} of {of} ({100 * interval.low:.0f}-{100 * interval.high:.0f} %)"


def page(archives: Sequence[Archive]) -> list[str]:
    """docs/trust.md, whole."""
    cases = [case for archive in archives for case in archive.cases]
    lines = [*HEAD.splitlines(), "", *_where(archives), "", *TABLE.splitlines()]
    for count in counts(cases):
        trial = TRIALS[count.trial]
        lines.append(
            f"| {count.trial}: `{trial.fault or 'nothing'}` "
            f"| {count.model}, {count.world_size} | {_must(trial)} "
            f"| {share(count.called, count.decided)} | {share(count.blamed, count.called)} "
            f"| {count.inconclusive} | {_range(count.figures)} |"
        )
    return lines


def _where(archives: Sequence[Archive]) -> list[str]:
    """Of which machine and stack that is."""
    if not archives:
        return ["No session has been measured yet."]
    facts = archives[-1].cases[0].fingerprint
    stack = f"TensorFlow {facts['tensorflow']}, Horovod {facts['horovod']}, {facts['mpi_library']}"
    return [
        f"{len(archives)} sessions on {facts['cores']} cores of {facts['cpu_model']}; {stack};",
        f"suite {facts['suite']}.",
    ]


def _must(trial: Trial) -> str:
    if trial.verdict is not Verdict.FAIL:
        return str(trial.verdict.value)
    who = "all ranks" if trial.rank is None else f"rank {trial.rank}"
    return f"FAIL, for {trial.term} of {who}"


def _range(figures: Sequence[float]) -> str:
    return f"{min(figures):.3f}-{max(figures):.3f}" if figures else "-"


if __name__ == "__main__":
    main()
