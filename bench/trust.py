"""`python -m bench.trust`: how often an injected fault is detected, and how often a false alarm is
raised.

It repeats whole sessions of perf/test_trust.py, as a user starts them. It counts their results, and
those of all earlier sessions of this machine, stack, suite and profile
(results/trust/sessions.jsonl), in docs/trust.md. It can be stopped and restarted
at any time, because sessions add up.
"""

from __future__ import annotations

import argparse
import sys
import time

from bench.trust_page import PAGE, page
from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.paths import ROOT, shown
from hvdperf.records import detections
from hvdperf.records.archive import read_session
from hvdperf.records.detections import Entry, append, entry_of, read_log, series
from hvdperf.timeline.processes import ended, is_without_session

LOG = ROOT / "results" / detections.LOG
RUNS = LOG.parent / "runs"


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
        print(f"{others} sessions of another machine, stack, suite or profile are not counted")


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


if __name__ == "__main__":
    main()
