"""`python -m bench.trust`: how often what is planted is noticed, and how often nothing is.

Repeats whole sessions of perf/test_trust.py, as a user starts them, and counts what they and all
earlier ones of this machine, stack and suite said (results/trust/sessions.jsonl). It can be ended
and begun again at any time: sessions add up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from harness.archive import read_session
from harness.campaign import ROOT
from harness.errors import UserError
from harness.trials import TRIALS
from harness.trust_counts import counts, must, of_newest, share_interval
from harness.trust_log import Entry, append, entry_of, read_log

LOG = ROOT / "results" / "trust" / "sessions.jsonl"
RUNS = LOG.parent / "runs"
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trust", description=__doc__)
    parser.add_argument("--sessions", type=int, default=20, help="how many to add (20)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after")
    parser.add_argument("-k", dest="selected", default="test_planted", help="as pytest has it")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        for number in range(options.sessions):
            if time.monotonic() - began >= 60 * options.minutes:
                break
            print(f"session {number + 1} of {options.sessions}", flush=True)
            add_session(options.selected)
        alike, others = of_newest(read_log(LOG))
    except UserError as error:
        sys.exit(f"bench.trust: {error}")
    lines = page(alike)
    PAGE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if others:
        print(f"{len(others)} sessions of another machine, stack or suite are not counted")


def add_session(selected: str) -> None:
    """Run one, as a user starts it, and note what it said. Raises UserError if it was none."""
    before = set(RUNS.glob("*"))
    command = [sys.executable, "-m", "pytest", "perf/test_trust.py", "--profile=trust", "-q"]
    command += ["-k", selected, f"--results={RUNS.parent}"]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status in NO_SESSION:
        raise UserError(f"pytest ended with status {status}: this session is not counted")
    for directory in sorted(set(RUNS.glob("*")) - before):
        entry = entry_of(read_session(directory))
        if entry is not None:
            append(LOG, entry)


def share(times: int, of: int) -> str:
    """With the 95 % interval of Clopper and Pearson (1934)."""
    if not of:
        return "-"
    low, high = share_interval(times, of)
    return f"{times} of {of} ({100 * low:.0f}-{100 * high:.0f} %)"


def page(entries: Sequence[Entry]) -> list[str]:
    """docs/trust.md, whole."""
    lines = [*HEAD.splitlines(), "", *_where(entries), "", *TABLE.splitlines()]
    for count in counts(tried for entry in entries for tried in entry.tried):
        trial = TRIALS[count.trial]
        lines.append(
            f"| {count.trial}: `{trial.fault or 'nothing'}` "
            f"| {count.model}, {count.world_size} | {must(trial)} "
            f"| {share(count.called, count.decided)} | {share(count.blamed, count.called)} "
            f"| {count.inconclusive} | {_range(count.figures)} |"
        )
    return lines


def _where(entries: Sequence[Entry]) -> list[str]:
    """Of which machine and stack that is."""
    if not entries:
        return ["No session has been measured yet."]
    facts = entries[-1].fingerprint
    stack = f"TensorFlow {facts['tensorflow']}, Horovod {facts['horovod']}, {facts['mpi_library']}"
    return [
        f"{len(entries)} sessions on {facts['cores']} cores of {facts['cpu_model']}; {stack};",
        f"suite {facts['suite']}.",
    ]


def _range(figures: Sequence[float]) -> str:
    return f"{min(figures):.3f}-{max(figures):.3f}" if figures else "-"


if __name__ == "__main__":
    main()
