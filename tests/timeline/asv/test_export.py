"""The history as asv reads it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median

import pytest

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan.questions import weak_scaling
from hvdperf.programs import run
from hvdperf.timeline import asv_site, history
from hvdperf.timeline.asv_site import BENCHMARK, make_trees, write_repository
from hvdperf.timeline.history import (
    Axis,
    keep_sessions,
    order,
    read_history,
    releases,
)
from hvdperf.timeline.stacks import missing
from hvdperf.verdict import Verdict
from tests.support.histories import MACHINE_LABEL, raw_result
from tests.support.published import asv_project
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

ONE, TWO = ("vgg_16_s", 1), ("resnet_50_s", 2)
OLD, NEW = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1], [80.0, 81.0, 79.0, 80.5] * 2
RESULTS = [
    raw_result("0.28.0", "2.16.2", {ONE: OLD, TWO: [40.0, 41.0]}, number=1),
    raw_result("0.28.1", "2.16.2", {ONE: NEW}, number=2),
    raw_result("0.28.1", "2.18.1", {ONE: [50.0]}, number=3),
]
SECONDS = BENCHMARK.format("seconds_per_sample")
SAMPLES = BENCHMARK.format("samples_per_second")


def test_asv_reads_back_median_interval_and_samples(tmp_path):
    from asv.results import iter_results_for_machine

    asv_project(tmp_path, RESULTS)
    found = {
        (result.date, result.params["tensorflow-cpu"]): result
        for result in iter_results_for_machine(str(tmp_path / "results"), MACHINE_LABEL)
    }
    assert len(found) == 3
    (first,) = (r for r in found.values() if r.commit_hash.startswith("54648aa"))
    benchmarks = json.loads((tmp_path / "results" / "benchmarks.json").read_text())
    params = benchmarks[SAMPLES]["params"]
    assert params[0] == ["'resnet_50_s'", "'vgg_16_s'"]
    assert params[2] == ["1", "2"]
    values = first.get_result_value(SAMPLES, params)
    # resnet_50_s at 1 and 2, then vgg_16_s. What was not measured is NaN: None were a failure.
    assert [v if not math.isnan(v) else None for v in values] == [None, 40.5, median(OLD), None]
    stats = first.get_result_stats(SAMPLES, params)[2]
    assert stats["ci_99_a"] < median(OLD) < stats["ci_99_b"]
    assert first.get_result_samples(SAMPLES, params)[2] == OLD
    seconds = first.get_result_value(SECONDS, params)
    assert seconds[2] == pytest.approx(median(1 / speed for speed in OLD))


def test_another_build_of_a_release_is_a_point_of_its_own(tmp_path):
    again = raw_result("0.28.1", "2.18.1", {ONE: [40.0]}, number=4, horovod_sha256="rebuilt")
    first = [
        replace(each, fingerprint={**each.fingerprint, "horovod_sha256": "built"})
        for each in RESULTS
    ]
    asv_project(tmp_path, [*first, again])
    found = {
        path.name: json.loads(path.read_text())["results"][SAMPLES][0]
        for path in (tmp_path / "results" / MACHINE_LABEL).glob("*tensorflow-cpu2.18.1*.json")
    }
    figures = sorted([figure for figure in each if figure == figure] for each in found.values())
    assert figures == [[40.0], [50.0]]


def test_benchmarks_are_named_as_asv_finds_them():
    """asv discovers benchmarks/ by its own rules; what is imported has the same names."""
    folder = ROOT / "hvdperf" / "timeline" / "asv" / "benchmarks"
    source = (folder / "throughput.py").read_text()
    found = re.findall(r"def (track_\w+)\(", source)
    assert {f"throughput.Training.{name}" for name in found} == {SECONDS, SAMPLES}
    (names,) = re.findall(r"param_names: ClassVar = (\[.*\])", source)
    assert tuple(json.loads(names)) == asv_site.PARAMETERS
    assert f'version = "{asv_site.VERSION}"' in source
    for unit, of_unit in asv_site.UNITS.items():
        assert f'track_{unit}.unit = "{of_unit}"' in source
    files = {path.name for path in folder.glob("*.py")}
    assert files == {"__init__.py", "throughput.py"}, "asv takes every file for benchmarks"


def test_asv_runs_the_matrix_that_a_back_fill_fills():
    from asv.config import Config

    from hvdperf.timeline.stacks import HOROVOD, TENSORFLOW

    def required(axis: Axis) -> list[str]:
        requirements = Config.load(str(history.CONFIGURATION[axis])).matrix["req"]
        return list(requirements[asv_site.REQUIREMENT[axis.other]])

    assert required(Axis.HOROVOD) == list(TENSORFLOW)
    # And older ones, which were measured once.
    assert HOROVOD in required(Axis.TENSORFLOW)


WEAK = weak_scaling(WORKLOAD, 2)


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's results/ and .asv/ of the test's own."""
    results = {axis: tmp_path / "results" / axis.value for axis in Axis}
    monkeypatch.setattr(history, "RESULTS", results)
    monkeypatch.setattr(history, "GENERATED", tmp_path / ".asv")
    return tmp_path


def one_session(runs: Path, session: str, verdict: Verdict = Verdict.PASS) -> None:
    write_session(runs, case_of(outcome(WEAK, (0.9, 0.8), verdict=verdict), session=session))


def test_importing_twice_changes_nothing(own_places):
    runs, root = own_places / "runs", own_places / "history"
    one_session(runs, "20260131T120000Z-1")
    one_session(runs, "20260201T120000Z-1")
    one_session(runs, "20260202T120000Z-1", Verdict.INVALID)
    *told, unsound = keep_sessions(runs, root)
    assert len(told) == 2
    assert all("2 series" in line for line in told)
    assert "not in the history" in unsound
    make_trees(root)
    before = files(own_places)
    for results in history.RESULTS.values():
        (results / "another machine").mkdir()
        (results / "another machine/machine.json").write_text("{}")
    assert keep_sessions(runs, root) == [unsound]
    assert all(list(history.RESULTS[axis].glob("*/*-virtualenv-*.json")) for axis in Axis)
    assert make_trees(root)[1] == []
    assert files(own_places) == before


HOROVOD = releases(Axis.HOROVOD)
KNOWN = tuple(HOROVOD.items())


def git(directory: Path, *arguments: str) -> list[str]:
    done = run(["git", "--git-dir", directory, *arguments])
    assert done.status == 0, done.errors
    return done.output.splitlines()


def test_each_release_is_a_commit_of_its_date_with_its_tag(tmp_path):
    commits = write_repository(tmp_path / "r", Axis.HOROVOD, HOROVOD)
    # Hashes are the same on every machine: results that are tracked name them.
    assert commits["0.28.0"] == "54648aa796bc790d176bce1bc8062d5a5134fdcf"
    assert commits["0.28.1"] == "212b918de25f4e332c6c489f74ab885d04e6f206"
    told = git(tmp_path / "r", "log", "--reverse", "--format=%H %as %cs %s", "main")
    assert told == [
        f"{commits[version]} {released} {released} horovod {version}" for version, released in KNOWN
    ]
    for version in HOROVOD:
        assert git(tmp_path / "r", "rev-parse", f"v{version}") == [commits[version]]
        content = git(tmp_path / "r", "show", f"v{version}:release.txt")
        assert content == [f"horovod=={version}"]


@pytest.mark.parametrize(
    "changed",
    [
        KNOWN[:-1],
        ((KNOWN[0][0], date(2020, 1, 1)), *KNOWN[1:]),
        (("0.24.3", date(2022, 4, 21)), *KNOWN),
    ],
    ids=["one is gone", "another date", "one before"],
)
def test_what_is_there_cannot_change(tmp_path, changed):
    older = write_repository(tmp_path / "r", Axis.HOROVOD, dict(KNOWN[:3]))
    there = write_repository(tmp_path / "r", Axis.HOROVOD, HOROVOD)
    assert older.items() <= there.items(), "releases are appended"
    with pytest.raises(UserError, match="append only"):
        write_repository(tmp_path / "r", Axis.HOROVOD, dict(changed))
    assert write_repository(tmp_path / "r", Axis.HOROVOD, HOROVOD) == there


@pytest.mark.parametrize("axis", Axis)
def test_releases_stand_in_order_of_date_and_of_version(axis):
    known = releases(axis)
    numbers = [tuple(map(int, version.split("."))) for version in known]
    assert numbers == sorted(numbers)
    assert [*known.values()] == sorted(known.values())
    assert [*order(axis)] == [*known]


def test_a_place_or_a_git_that_is_missing_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        write_repository(tmp_path / "file" / "r", Axis.HOROVOD, HOROVOD)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install git"):
        write_repository(tmp_path / "r", Axis.HOROVOD, HOROVOD)


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


SHIPPED = {axis: files(path) for axis, path in history.RESULTS.items()}


@pytest.mark.usefixtures("own_places")
def test_asvs_files_are_made_of_the_raw_results():
    results, refused = make_trees(history.RAW)
    assert results
    assert refused == []
    assert {axis: files(path) for axis, path in history.RESULTS.items()} == SHIPPED


def test_the_matrix_that_ships_has_no_hole():
    results, _ = read_history(history.RAW)
    assert missing(results, None) == []
