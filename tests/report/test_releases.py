"""Throughput over releases: a figure for what is comparable, along the releases as they came."""

from __future__ import annotations

from hvdperf.report.content import Figure, Section
from hvdperf.report.sections import machine
from tests.report.checks import assert_sound, parts
from tests.support.histories import FACTS, REPLICA, raw_result

HALF = REPLICA.replace("float32", "mixed_float16")
TWO_SIZES = {("vgg_16_s", 1): [100.0, 102.0, 104.0], ("vgg_16_s", 2): [150.0]}


def section_of(*results) -> Section:
    section = machine.releases(FACTS, results)
    assert_sound(section)
    return section


def sorted_as(figure: Figure, key: str) -> list[list[str]]:
    """How the plot sorts whatever channels show that column."""
    channels = (node for node in parts(figure.plot) if node.get("field") == key)
    return [node["sort"] for node in channels if "sort" in node]


def test_every_world_size_has_a_figure_with_the_median_of_its_launches():
    one, two = section_of(raw_result(speeds=TWO_SIZES)).figures
    assert (one.name, two.name) == ("releases-vgg_16_s-np1", "releases-vgg_16_s-np2")
    assert one.title == "vgg_16_s on 1 replica"
    (row,) = one.table.rows
    assert (row["samples_per_second"], row["launches"]) == (102.0, 3)
    assert one.tags == {"model": "vgg_16_s", "world_size": "1"}


def test_what_replicas_of_other_precision_reach_is_another_figure():
    section = section_of(
        raw_result(), raw_result(number=1, replica=HALF), raw_result("0.27.0", number=2)
    )
    single, half = section.figures
    assert single.title == f"vgg_16_s on 1 replica, each: {REPLICA}"
    assert half.title == f"vgg_16_s on 1 replica, each: {HALF}"
    assert [row["horovod"] for row in single.table.rows] == ["0.27.0", "0.28.1"]
    assert {row["replica"] for row in half.table.rows} == {HALF}
    assert "over 2 releases of Horovod under 1 TensorFlow;" in single.says
    assert "over 1 release of Horovod under 1 TensorFlow;" in half.says


def test_releases_stand_in_their_order_whichever_line_has_them():
    (figure,) = section_of(
        raw_result("0.28.1", "2.15.1"),
        raw_result("0.26.1", "2.18.1", number=1),
        raw_result("0.28.0", "2.18.1", number=2),
    ).figures
    assert [row["horovod"] for row in figure.table.rows] == ["0.28.1", "0.26.1", "0.28.0"]
    along = sorted_as(figure, "horovod")
    assert along
    assert all(releases == ["0.26.1", "0.28.0", "0.28.1"] for releases in along)
    assert all(stacks == ["2.15.1", "2.18.1"] for stacks in sorted_as(figure, "tensorflow"))
    assert "over 3 releases of Horovod under 2 TensorFlows; with Horovod 0.28.0" in figure.says


def test_of_another_machine_there_is_nothing():
    section = section_of(raw_result(cpu_model="another"))
    assert section.figures == ()
    assert "make backfill" in section.missing
