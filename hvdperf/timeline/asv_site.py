"""The history as asv reads it, and its site. Only this module knows asv's Python interface (asv
0.6.6).

asv's files follow from the raw results alone, so writing them again changes no byte. A site that
asv has published is made to work without a network, because asv's page loads its libraries from
other hosts; vendor.toml says which copy in vendor/ replaces which library.
"""

from __future__ import annotations

import itertools
import math
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from asv.environment import get_env_name
from asv.results import Results
from asv.runner import BenchmarkResult
from asv.util import datetime_to_js_timestamp, write_json

from hvdperf.errors import UserError, refusing
from hvdperf.paths import shown
from hvdperf.timeline import history
from hvdperf.timeline.history import Axis, RawResult, releases
from hvdperf.timeline.processes import Git

# The benchmarks that asv runs, and what its pages need besides.
ASV = Path(__file__).parent / "asv"
BRANCH = "main"
# The author of every commit: no person, since commits are releases.
_AUTHOR = "hvdperf <hvdperf@localhost>"


# As in benchmarks/throughput.py: asv names benchmarks by file, class and function.
BENCHMARK = "throughput.Training.track_{}"
PARAMETERS = ("model", "replica", "world_size")
UNITS = {"seconds_per_sample": "seconds", "samples_per_second": "samples/s"}
VERSION = "1"
TIMEOUT_S = 60.0
# Formats of asv's files: the api_version of asv.benchmarks.Benchmarks and of asv.machine.Machine.
_BENCHMARKS_FORMAT = 2
_MACHINE_FORMAT = 1
PYTHON = "3.11"
# The package by whose version asv's environments differ, by the axis that it belongs to.
REQUIREMENT = {Axis.TENSORFLOW: "tensorflow-cpu", Axis.HOROVOD: "horovod"}


def make_repositories() -> dict[Axis, dict[str, str]]:
    """Make the repositories of both packages' releases; return the commit of each version."""
    places = {axis: history.GENERATED / "releases" / axis.value for axis in Axis}
    return {each: write_repository(path, each, releases(each)) for each, path in places.items()}


def write_repository(directory: Path, axis: Axis, known: Mapping[str, date]) -> dict[str, str]:
    """Make the git repository at `directory`, from which asv takes its x-axis, hold a commit and a
    tag for each of these releases, oldest first. Return the hashes of the commits, by version.

    The date, author and content of a commit follow from releases.toml alone, so its hash is the
    same on every machine, and results that name it can be shared. A changed release would change
    every later hash, so it is refused.

    Raises UserError if git is missing, if the directory cannot be written, or if the commits that
    are there are not the first of these releases.
    """
    git = Git(directory, shown(directory))
    with refusing(f"{shown(directory)} cannot be made: ", OSError):
        directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "HEAD").exists():
        git.run("init", "--quiet", "--bare", f"--initial-branch={BRANCH}")
    # Import all commits every time: git keeps those that it has, and refuses different ones.
    words = ("fast-import", "--quiet", "--date-format=raw")
    done = git.tried(*words, given=_stream(axis, known))
    if done.returncode != 0:
        raise UserError(
            f"{git.failed(words, done.stderr)}. The repository is append only, and was made from "
            "other releases than those of hvdperf/timeline/releases.toml: remove "
            f"{shown(directory)}, and it will be written again"
        )
    tags = git.run("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags")
    commits = dict(line.split(" ") for line in tags.splitlines())
    return {version: commits[f"v{version}"] for version in known}


def _stream(axis: Axis, known: Mapping[str, date]) -> str:
    """Return the releases as git fast-import reads them (git-fast-import(1))."""
    parts = [f"reset refs/heads/{BRANCH}\n"]
    for number, (version, released) in enumerate(known.items(), start=1):
        at = int(_noon(released).timestamp())
        content, message = f"{axis.value}=={version}\n", f"{axis.value} {version}\n"
        parts += [
            f"commit refs/heads/{BRANCH}\n",
            f"mark :{number}\n",
            f"author {_AUTHOR} {at} +0000\n",
            f"committer {_AUTHOR} {at} +0000\n",
            f"data {len(message)}\n{message}",
            f"from :{number - 1}\n" if number > 1 else "",
            f"M 100644 inline release.txt\ndata {len(content)}\n{content}",
            f"\nreset refs/tags/v{version}\nfrom :{number}\n\n",
        ]
    return "".join(parts)


def _noon(day: date) -> datetime:
    return datetime.combine(day, time(12), UTC)


def make_trees(root: Path = history.RAW) -> tuple[list[RawResult], list[str]]:
    """Write the files that asv reads, of both axes, from all raw results. Return these raw results,
    and one line for each file that is left out."""
    results, refused = history.read_history(root)
    for axis, commits in make_repositories().items():
        write_tree(axis, history.RESULTS[axis], commits, results)
    return results, refused


def write_tree(
    axis: Axis,
    directory: Path,
    commits: Mapping[str, str],
    results: Sequence[RawResult],
) -> None:
    """Replace asv's results of one axis with these. directory: asv's directory of results. commits:
    the commit of each version in the release repository. Raises UserError if the directory cannot
    be written."""
    new = directory.with_name(f"{directory.name}.partial")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        benchmarks = describe_benchmarks(results)
        write_json(str(new / "benchmarks.json"), benchmarks, _BENCHMARKS_FORMAT)
        machines: dict[str, list[RawResult]] = {}
        for result in results:
            machines.setdefault(result.machine, []).append(result)
        for machine, of_machine in machines.items():
            known = of_machine[0].fingerprint
            described = {
                "arch": "x86_64",
                "cpu": str(known["cpu_model"]),
                "machine": machine,
                "num_cpu": str(known["cores"]),
                "os": f"Linux {known['kernel']}",
                "ram": f"{known['memory_gib']} GiB",
            }
            write_json(str(new / machine / "machine.json"), described, _MACHINE_FORMAT)
            for of_asv in _results_of(axis, commits, described, of_machine, benchmarks):
                of_asv.save(str(new))
        # Linux renames no directory over a full one. After a kill between the two, importing again
        # writes everything.
        if directory.exists():
            shutil.rmtree(directory)
        new.rename(directory)
    except OSError as error:
        raise UserError(f"{shown(directory)} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def describe_benchmarks(results: Sequence[RawResult]) -> dict[str, dict[str, Any]]:
    """Return the benchmarks as asv's discovery describes them, with the parameters of all
    series."""
    keys = {series.key for result in results for series in result.results}
    code = (ASV / "benchmarks" / "throughput.py").read_text()
    return {
        BENCHMARK.format(unit): {
            "code": code,
            "name": BENCHMARK.format(unit),
            "param_names": list(PARAMETERS),
            "params": [list(map(repr, sorted({key[place] for key in keys}))) for place in range(3)],
            "timeout": TIMEOUT_S,
            "type": "track",
            "unit": of_unit,
            "version": VERSION,
        }
        for unit, of_unit in UNITS.items()
    }


def _results_of(
    axis: Axis,
    commits: Mapping[str, str],
    machine: Mapping[str, str],
    results: Sequence[RawResult],
    benchmarks: Mapping[str, dict[str, Any]],
) -> Iterable[Results]:
    """Yield asv's results, one for each pair of versions, and build of them, that was measured."""
    pairs: dict[tuple[str, str, str], list[RawResult]] = {}
    ordered = sorted(results, key=lambda each: (each.written_at, each.session))
    for result in ordered:
        pair = (result.version(axis), result.version(axis.other), result.build(ordered))
        pairs.setdefault(pair, []).append(result)
    for (version, at, build), of_pair in pairs.items():
        measured: dict[tuple[str, str, int], list[float]] = {}
        for series in (series for result in of_pair for series in result.results):
            measured.setdefault(series.key, []).extend(series.values)
        requirements = {REQUIREMENT[axis.other]: at} | ({"build": build} if build else {})
        of_asv = Results(
            {**machine, "python": PYTHON, **requirements},
            requirements,
            commits[version],
            datetime_to_js_timestamp(_noon(releases(axis)[version])),
            PYTHON,
            get_env_name("virtualenv", PYTHON, requirements, {}),
            {},
        )
        for unit in UNITS:
            benchmark = benchmarks[BENCHMARK.format(unit)]
            figures = _figures(unit, measured, benchmark["params"])
            of_asv.add_result(
                benchmark, figures, started_at=of_pair[-1].written_at, record_samples=True
            )
        yield of_asv


def _figures(
    unit: str, measured: Mapping[tuple[str, str, int], list[float]], values: Sequence[Sequence[str]]
) -> BenchmarkResult:
    """Return the figures of every combination of parameters, with samples from which asv takes
    median and 99 % interval. A figure is NaN if nothing was measured, because None would mean that
    the benchmark failed."""
    by_parameters = {tuple(map(repr, key)): figures for key, figures in measured.items()}
    samples: list[list[float] | None] = []
    for combination in itertools.product(*values):
        speeds = by_parameters.get(combination, [])
        of_unit = speeds if unit == "samples_per_second" else [1 / speed for speed in speeds]
        samples.append(of_unit or None)
    return BenchmarkResult(
        result=[math.nan if each is None else sorted(each)[len(each) // 2] for each in samples],
        samples=samples,
        number=[None if each is None else 1 for each in samples],
        errcode=0,
        stderr="",
        profile=None,
    )


# Its site ---------------------------------------------------------------------------------------

VENDOR = "vendor"
# Shows releases where asv's pages show commits, so it comes after asv.js and before the pages.
OWN = "releases.js"

_FROM_NETWORK = re.compile(
    r'<(?:script|link)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]*)"[^>]*>(?:\s*</script>)?'
)
_ASV_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="asv\.js"[^>]*>\s*</script>\n?')


def make_offline(html_dir: Path) -> None:
    """Give a site that asv has published a copy of everything that its page loads from other hosts,
    and OWN. Raises UserError if there is no such site, if its page loads something that has no copy
    or does not load asv.js, or if the site cannot be written."""
    index = html_dir / "index.html"
    content = tomllib.loads((ASV / "vendor.toml").read_text(encoding="utf-8"))
    copies = {copy["replaces"]: copy["file"] for copy in content["copies"]}
    with refusing(f"{shown(html_dir)}: ", OSError):
        page = index.read_text(encoding="utf-8")
        addresses = _FROM_NETWORK.findall(page)
        unknown = [each for each in addresses if each.rpartition("/")[2] not in copies]
        if unknown or not _ASV_SCRIPT.search(page):
            told = f"loads {unknown[0]}" if unknown else "does not load asv.js"
            raise UserError(f"{shown(index)} {told}: it is not of the asv in pyproject.toml")
        shutil.copytree(ASV / VENDOR, html_dir / VENDOR, dirs_exist_ok=True)
        shutil.copyfile(ASV / OWN, html_dir / OWN)
        page = _FROM_NETWORK.sub(lambda tag: _tag(copies[tag[1].rpartition("/")[2]]), page)
        page = _ASV_SCRIPT.sub(lambda tag: f'{tag[0]}<script src="{OWN}"></script>\n', page)
        index.write_text(page, encoding="utf-8")


def _tag(file: str) -> str:
    address = f"{VENDOR}/{file}"
    if address.endswith(".css"):
        return f'<link rel="stylesheet" href="{address}">'
    return f'<script src="{address}"></script>'
