"""How long the page of all nights takes: a made-up year of many series, cold, after one more
night, and after one more night of all other series.

    python -m bench.index_page --series 40 --networks 15

A series has networks at four world sizes, a case and a throughput each. A quarter of the series
have the planted changes of bench.nights, the others change once.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bench.nights import NIGHTS, Year, nights
from hvdperf.json_records import encode
from hvdperf.timeline.nights.night import Night, path_of
from hvdperf.timeline.page.index import write_index
from hvdperf.timeline.store import INDEX
from hvdperf.timeline.store import NIGHTS as FOLDER

NOISE = 0.015


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.index_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--series", type=int, default=40)
    parser.add_argument("--networks", type=int, default=15, help="with four cases each (15)")
    given = parser.parse_args()
    if min(given.series, given.networks) < 1:
        parser.error("the numbers must be above zero")
    with tempfile.TemporaryDirectory() as directory:
        for text in measured(Path(directory), given.series, given.networks):
            print(text, flush=True)


def measured(store: Path, series: int, networks: int) -> Iterator[str]:
    """Yield what the page costs: cold, and after more nights."""
    last = [_make(store, number, networks) for number in range(series)]
    size = sum(path.stat().st_size for path in (store / FOLDER).rglob("*.json"))
    yield f"{series} series, {4 * networks} cases, {NIGHTS} nights: {size / 1e6:.0f} MB"
    yield f"cold: {_seconds(store)}"
    _write(store, last[0])
    yield f"after one more night: {_seconds(store)}"
    for night in last[1:]:
        _write(store, night)
    yield f"after one more night of all others: {_seconds(store)}"
    pages = [store / INDEX, *(store / FOLDER).glob(f"*/{INDEX}")]
    sizes = [page.stat().st_size / 1e6 for page in pages]
    yield f"the overview has {sizes[0]:.2f} MB, the page of a series up to {max(sizes[1:]):.2f} MB"


def _make(store: Path, number: int, networks: int) -> Night:
    """Write a year of a series and return the night after it."""
    calm = Year(NOISE, {100 + number: 0.93}, 1.0, bad=((), ()), networks=networks)
    year = Year(NOISE, networks=networks) if number % 4 == 0 else calm
    made = [replace(night, series=f"series-{number:02}") for night in nights(year, number)]
    for night in made:
        _write(store, night)
    day = timedelta(days=1)
    return replace(made[-1], night=made[-1].night + day, began_at=made[-1].began_at + day)


def _write(store: Path, night: Night) -> None:
    """Write a document, without the care that a measured one deserves."""
    path = path_of(store / FOLDER, night.series, night.night)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(night))


def _seconds(store: Path) -> str:
    """Write the page and return how long that took, and the CPU time of all its processes."""
    began, spent = time.perf_counter(), _cpu_seconds()
    write_index(store / INDEX, store, store / "pages", store / "asv")
    wall, cpu = time.perf_counter() - began, _cpu_seconds() - spent
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f"{wall:.1f} s on {cores} cores ({cpu:.1f} s of CPU; load average {load:.1f})"


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
