"""`python -m bench.trust`: how often an injected fault is detected, and how often a false alarm is
raised.

It repeats whole sessions of perf/test_trust.py, as a user starts them. It counts their results, and
those of all earlier sessions of this machine, stack, suite and profile
(results/trust/sessions.jsonl), in docs/reference/trust.md. It can be stopped and restarted at any
time, because sessions add up.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence

from bench import detections
from bench.detections import (
    Entry,
    append,
    changes,
    counts_of,
    entry_of,
    expected_report,
    read_log,
    series,
    share_interval,
)
from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.paths import ROOT, shown
from hvdperf.plan.arms import AA
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.records.archive import read_session
from hvdperf.report.words import plural
from hvdperf.stats import hodges_lehmann
from hvdperf.timeline.processes import ended, is_without_session
from hvdperf.verdict import as_ratio

LOG = ROOT / "results" / detections.LOG
RUNS = LOG.parent / "runs"
PAGE = ROOT / "docs" / "reference" / "trust.md"
HEAD = """\
# Which injected faults the suite detects

`make trust` writes this page. In each of its sessions, every fault has an arm, which is compared
with the same arm without the fault. It judges the two as `--against` judges two stacks: the verdict
is FAIL if the faulty arm is more than 2 % slower, and PASS if it is less than 5 % slower, each with
95 % confidence. A FAIL needs 8 or 12 rounds. Two kinds of cases differ: memory is compared with a
ceiling, and an INVALID launch is found in the first round. Faults affect one rank among several, or
the exchange between ranks. One replica therefore has only the A/A pair `aa`, which has no fault.

- **Reported**: the share of sessions that reported the expected verdict, with its 95 % interval
  (Clopper and Pearson 1934). Undecided sessions count as not reported. The verdicts
  are those of the sessions themselves: none is judged again.
- **Right attribution**: the share of the reported ones that also named the expected rank and term,
  or the expected reason of INVALID.
- **Undecided**: the number of sessions that came to no verdict.
- **Figure**: the estimate of Hodges and Lehmann over the sessions, with its exact 95 % interval.
- **Range**: the smallest and the largest figure over the sessions.

A/A pairs at two replicas have low figures, because
[their reference has trained longer](../notebook.md#new-memory-in-the-first-hundred-steps).
"""
TABLE = """\
| case: fault | network, np | expected | reported | right attribution | undecided | figure | range |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trust", description=__doc__)
    parser.add_argument("--sessions", type=int, default=20, help="number of sessions to add (20)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help="begin no session after that many minutes",
    )
    parser.add_argument("-k", dest="selected", default="test_faults", help="cases, as for pytest")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        # Write the pages before measuring, too, so that files which cannot be written fail first.
        check_log()
        others = write_page()
        for number in range(options.sessions):
            if time.monotonic() - began >= 60 * options.minutes:
                break
            print(f"session {number + 1} of {options.sessions}", flush=True)
            add_session(options.selected)
            others = write_page()
    except UserError as error:
        sys.exit(f"bench.trust: {error}")
    print(PAGE.read_text())
    if others:
        left_out = plural(others, "session")
        print(f"not counted, of another machine, stack, suite or profile: {left_out}")


def check_log() -> None:
    """Raise UserError if the log cannot be written."""
    try:
        LOG.parent.mkdir(parents=True, exist_ok=True)
        LOG.open("a").close()
    except OSError as error:
        raise UserError(f"{shown(LOG)} cannot be written: {error.strerror}") from None


def write_page() -> int:
    """Write the page from the log. Return the number of its sessions that are not counted. Raises
    UserError if the log cannot be read or the page cannot be written."""
    newest, *before = series(read_log(LOG)) or [[]]
    try:
        write_whole(PAGE, "\n".join(page(newest, before)) + "\n")
    except OSError as error:
        raise UserError(f"{shown(PAGE)} cannot be written: {error.strerror}") from None
    return sum(map(len, before))


def add_session(selected: str) -> None:
    """Run a session as a user starts it, and note its results. Raises UserError if the session did
    not end properly, or injected no fault."""
    before = set(RUNS.glob("*"))
    command = [sys.executable, "-m", "pytest", "perf/test_trust.py", "--profile=trust", "-q"]
    command += ["-k", selected, f"--results={RUNS.parent}"]
    status = ended(command)
    if is_without_session(status):
        raise UserError(f"pytest ended with status {status}: this session is not counted")
    entries = []
    for directory in sorted(set(RUNS.glob("*")) - before):
        archive = read_session(directory)
        if archive.unfinished:
            raise UserError(f"{archive.unfinished}; it is not counted")
        entries.append(entry_of(archive))
    if not any(entries):
        raise UserError(f"-k {selected}: no fault was injected, so there is nothing to count")
    for entry in entries:
        if entry is not None:
            _note(entry)


def _note(entry: Entry) -> None:
    try:
        append(LOG, entry)
    except OSError as error:
        raise UserError(
            f"{shown(LOG)}: {error.strerror}: session {entry.session} is not counted"
        ) from None


# The page ---------------------------------------------------------------------------------------


def share(times: int, of: int) -> str:
    """Return a share with the 95 % interval of Clopper and Pearson (1934), as text."""
    if not of:
        return "-"
    low, high = share_interval(times, of)
    return f"{times} of {of} ({100 * low:.0f}-{100 * high:.0f} %)"


def page(entries: Sequence[Entry], before: Sequence[Sequence[Entry]] = ()) -> list[str]:
    """Return the lines of the page. entries: the newest series. before: older series, the newest
    first, which are not counted with it."""
    lines = [*HEAD.splitlines(), "", *_where(entries), "", *_table(entries)]
    for older in before:
        lines += ["", "## Sessions under other conditions, not counted above"]
        lines += ["", *_where(older), "Changes from these sessions to the newest ones:", ""]
        lines += [f"- {change}" for change in changes(older[-1], entries[-1])]
        lines += ["", *_table(older)]
    return lines


def _table(entries: Sequence[Entry]) -> list[str]:
    lines = TABLE.splitlines()
    for count in counts_of(entries):
        trial = FAULT_CASES[count.trial]
        lines.append(
            f"| {count.trial}: `{trial.fault or 'nothing'}` "
            f"| {count.model}, {count.world_size} | {expected_report(trial)} "
            f"| {share(count.reported, count.sessions)} "
            f"| {share(count.attributed, count.reported)} "
            f"| {count.inconclusive} | {_estimate(count.figures)} | {_range(count.figures)} |"
        )
    return lines


def _false_alarms(entries: Sequence[Entry]) -> list[str]:
    """Return a line that counts the FAILs without a fault; none without a session."""
    pairs = [count for count in counts_of(entries) if count.trial == AA]
    tried, alarms = sum(c.sessions for c in pairs), sum(c.alarms for c in pairs)
    return [f"False alarms (FAIL without a fault): {share(alarms, tried)}."] if tried else []


def _where(entries: Sequence[Entry]) -> list[str]:
    """Return lines on the machine and the stack of the sessions."""
    if not entries:
        return ["No session has been measured yet."]
    facts = entries[-1].fingerprint
    stack = f"TensorFlow {facts['tensorflow']}, Horovod {facts['horovod']}, {facts['mpi_library']}"
    sessions = plural(len(entries), "session")
    every = all(count.sessions == len(entries) for count in counts_of(entries))
    return [
        f"{sessions} on {facts['cores']} cores of {facts['cpu_model']}; {stack}.",
        *([] if every else ["Not all of them injected every fault."]),
        *_false_alarms(entries),
    ]


def _estimate(figures: Sequence[float]) -> str:
    """Return the estimate over sessions, without an interval if they are too few for one."""
    if not figures:
        return "-"
    whole = as_ratio(hodges_lehmann([math.log(figure) for figure in figures], 0.025))
    bounds = "" if math.isinf(whole.upper) else f" [{whole.lower:.3f}, {whole.upper:.3f}]"
    return f"{whole.estimate:.3f}{bounds}"


def _range(figures: Sequence[float]) -> str:
    return f"{min(figures):.3f} .. {max(figures):.3f}" if figures else "-"


if __name__ == "__main__":
    main()
