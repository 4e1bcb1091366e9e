"""Settings of the environment: which are told, of which figures, and which are refused."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.launch.launchers import Order, command
from hvdperf.machine.placement import Offer, place
from hvdperf.plan import settings
from hvdperf.records.fingerprint import Fingerprint

CPU, GPU, AGENTS = (
    settings.places_of("mpirun", 0),
    settings.places_of("mpirun", 2),
    settings.places_of("agents", 0),
)


def test_every_row_has_its_field_in_the_fingerprint():
    fields = {row.field for row in settings.ROWS}
    assert fields <= set(Fingerprint.__annotations__)
    for row in settings.ROWS:
        re.compile(row.variables)


@pytest.mark.parametrize(
    ("name", "places", "touched"),
    [
        ("HOROVOD_CYCLE_TIME", CPU, settings.Touches.EXCHANGE),
        ("HOROVOD_CONTROLLER", CPU, settings.Touches.EXCHANGE),
        ("HOROVOD_CONTROLLER", AGENTS, None),
        ("HOROVOD_OF_ANOTHER_RELEASE", CPU, None),
        ("XLA_FLAGS", CPU, settings.Touches.ALL),
        ("OMP_NUM_THREADS", CPU, None),
        ("TF_NUM_INTRAOP_THREADS", CPU, None),
        ("TF_NUM_INTRAOP_THREADS", GPU, settings.Touches.ALL),
        ("NCCL_ALGO", CPU, None),
        ("NCCL_ALGO", GPU, settings.Touches.EXCHANGE),
        ("OMPI_MCA_btl", CPU, settings.Touches.EXCHANGE),
        ("OMPI_MCA_btl", AGENTS, None),
        ("OMPI_MCA_mpi_yield_when_idle", CPU, None),
    ],
)
def test_a_setting_says_which_figures_it_touches(name, places, touched):
    told = settings.Setting(name, "1").told(places)
    assert told.startswith(f"{name}=1: ")
    assert ("touches" in told) is (touched is not None)
    assert touched is None or told.endswith(f"touches {touched.value}")


def test_what_the_suites_own_mpirun_sets_is_told_as_overridden(tmp_path: Path):
    order = Order(place([Offer(0, "here", (0, 1))]), "python", {}, tmp_path)
    tokens = command(order, "", tmp_path)
    named = [after for word, after in pairwise(tokens) if word == "--mca"]
    options = {"--bind-to": "hwloc_base_binding_policy", "--map-by": "rmaps_base_mapping_policy"}
    named += [name for option, name in options.items() if option in tokens]
    for name in named:
        row = settings.row_of(f"OMPI_MCA_{name}")
        assert row is None or (row.overridden and not row.unless), name


@pytest.mark.parametrize("value", ["0", "", "-1", "false", "off", " 0"])
def test_a_switch_that_horovod_reads_as_off_is_not_told(value):
    assert settings.settings_in({"HOROVOD_AUTOTUNE": value}) == []


@pytest.mark.parametrize(
    "environment",
    [
        {"HOROVOD_TIMELINE": "timeline.json"},
        {"HOROVOD_TIMELINE": ""},
        {"HOROVOD_TIMELINE": "DYNAMIC"},
        {"HOROVOD_AUTOTUNE": "1"},
        {"HOROVOD_AUTOTUNE": " 2 or so"},
    ],
)
def test_what_makes_every_launch_measure_something_else_is_refused_unless_allowed(environment):
    (name,) = environment
    with pytest.raises(UserError, match=f"give --allow-setting {name}"):
        settings.refuse((), environment)
    settings.refuse((name,), environment)
    (other,) = set(settings.REFUSED) - {name}
    with pytest.raises(UserError, match=name):
        settings.refuse((other,), environment)


def test_everything_else_is_measured():
    names = ("AUTOTUNE", "AUTOTUNE_LOG", "TIMELINE_MARK_CYCLES", "CYCLE_TIME")
    settings.refuse((), {f"HOROVOD_{name}": "0" for name in names})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOROVOD_GLOO_IFACE", "host:4000"),
        ("NCCL_TOPO_FILE", "/home/somebody/topology.xml"),
        ("NCCL_TOPO_FILE", "~somebody"),
        ("OMPI_MCA_btl_tcp_if_include", "10.1.2.3"),
        ("TF_SOME_SECRET", "hush"),
    ],
)
def test_a_path_an_address_or_a_secret_is_not_told(name, value):
    assert str(settings.Setting(name, value)) == f"{name}=(set)"
    assert value not in settings.Setting(name, value).told(CPU)


def test_of_variables_of_other_programs_nothing_is_told():
    assert settings.settings_in({"TF_VAR_password": "hush", "TF_TOKEN_example_com": "hush"}) == []
