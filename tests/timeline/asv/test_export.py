"""What is written for asv is what asv reads, shows, compares and publishes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import median

import pytest

from hvdperf.paths import ROOT
from hvdperf.timeline import places
from hvdperf.timeline.asv import export
from hvdperf.timeline.asv.export import BENCHMARK
from hvdperf.timeline.releases.raw import Axis, releases
from tests.support.asv_projects import asv, asv_project
from tests.support.histories import MACHINE_LABEL, raw_result

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
    # resnet_50_s at 1 and 2, then vgg_16_s.
    assert [v if not math.isnan(v) else None for v in values] == [None, 40.5, median(OLD), None]
    stats = first.get_result_stats(SAMPLES, params)[2]
    assert stats["ci_99_a"] < median(OLD) < stats["ci_99_b"]
    assert first.get_result_samples(SAMPLES, params)[2] == OLD
    seconds = first.get_result_value(SECONDS, params)
    assert seconds[2] == pytest.approx(median(1 / speed for speed in OLD))


def test_what_was_not_measured_is_nan_and_not_a_failure(tmp_path):
    asv_project(tmp_path, RESULTS)
    (path,) = (tmp_path / "results" / MACHINE_LABEL).glob("212b918d-*tensorflow-cpu2.18.1.json")
    document = json.loads(path.read_text())
    figures = document["results"][SAMPLES][0]
    assert [math.isnan(figure) for figure in figures] == [True, True, False, True]


def test_doing_it_again_changes_no_byte_and_leaves_nothing_else(tmp_path):
    asv_project(tmp_path, RESULTS)
    files = sorted(path for path in (tmp_path / "results").rglob("*") if path.is_file())
    before = [path.read_bytes() for path in files]
    (tmp_path / "results" / "another machine").mkdir()
    (tmp_path / "results" / "another machine" / "machine.json").write_text("{}")
    (tmp_path / "results.old").mkdir()  # as an export that was killed leaves it
    asv_project(tmp_path, RESULTS)
    assert sorted(p for p in (tmp_path / "results").rglob("*") if p.is_file()) == files
    assert [path.read_bytes() for path in files] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "asv.conf.json",
        "releases",
        "results",
    ]


@pytest.mark.parametrize("axis", Axis)
def test_asv_publishes_both_axes(tmp_path, axis):
    asv(asv_project(tmp_path, RESULTS, axis), "publish")
    index = json.loads((tmp_path / "html" / "index.json").read_text())
    assert set(index["tags"]) == {release.tag for release in releases(axis)}
    assert set(index["benchmarks"]) == {SECONDS, SAMPLES}
    other = export.REQUIREMENT[axis.other]
    assert index["params"][other] == sorted({r.version(axis.other) for r in RESULTS})
    assert list(index["machines"]) == [MACHINE_LABEL]
    graphs = list((tmp_path / "html" / "graphs").rglob(f"{SAMPLES}.json"))
    points = [point for path in graphs if "summary" not in str(path) for point in read(path)]
    measured = [value for _, values in points for value in values if value is not None]
    assert sorted(measured) == sorted([40.5, median(OLD), median(NEW), 50.0])


def read(path: Path) -> list[tuple[int, list[float | None]]]:
    found: list[tuple[int, list[float | None]]] = json.loads(path.read_text())
    return found


def test_asv_finds_what_became_slower(tmp_path):
    configuration = asv_project(tmp_path, RESULTS)
    told = asv(configuration, "compare", "--machine", MACHINE_LABEL, "v0.28.0", "v0.28.1")
    (line,) = (
        line
        for line in told.splitlines()
        if "track_seconds_per_sample" in line and "vgg_16_s" in line and "1.25" in line
    )
    assert line.lstrip("| ").startswith("+"), "worse, for asv is sure of it"
    told = asv(configuration, "show", "--machine", MACHINE_LABEL, "v0.28.0")
    assert "track_samples_per_second" in told


def test_benchmarks_are_named_as_asv_finds_them():
    """asv discovers history/benchmarks/ by its own rules; what is imported has the same names."""
    source = (ROOT / "hvdperf" / "timeline" / "asv" / "benchmarks" / "throughput.py").read_text()
    found = re.findall(r"def (track_\w+)\(", source)
    assert {f"throughput.Training.{name}" for name in found} == {SECONDS, SAMPLES}
    (names,) = re.findall(r"param_names: ClassVar = (\[.*\])", source)
    assert tuple(json.loads(names)) == export.PARAMETERS
    assert f'version = "{export.VERSION}"' in source
    for unit, of_unit in export.UNITS.items():
        assert f'track_{unit}.unit = "{of_unit}"' in source
    names = {
        path.name for path in (ROOT / "hvdperf" / "timeline" / "asv" / "benchmarks").glob("*.py")
    }
    assert names == {"__init__.py", "throughput.py"}, "asv takes every file for benchmarks"


def test_asv_runs_the_matrix_that_a_back_fill_fills():
    from asv.config import Config

    from hvdperf.timeline.releases.backfill import HOROVOD, TENSORFLOW

    for axis, versions in ((Axis.HOROVOD, TENSORFLOW), (Axis.TENSORFLOW, HOROVOD[1:])):
        requirements = Config.load(str(places.CONFIGURATION[axis])).matrix["req"]
        # 0.27.0 is tried by a back-fill, and cannot be built.
        assert requirements == {export.REQUIREMENT[axis.other]: list(versions)}
