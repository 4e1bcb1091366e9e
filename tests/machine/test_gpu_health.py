"""The state of GPUs, from answers in nvidia-smi's form."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.machine.fitness import Check
from hvdperf.machine.gpu_health import gpu_checks, parse_health, slowdowns
from hvdperf.machine.gpus import Gpu
from tests.machine.conftest import NvidiaSmi

UUIDS = ("GPU-0d5f4f2c-8a4e-2f5b-9c1d-1b2c3d4e5f60", "GPU-1c0a7be2-60f5-8b11-2e6d-9f8e7d6c5b4a")
# --query-gpu=uuid,index,persistence_mode,mig.mode.current,temperature.gpu,
#   clocks_throttle_reasons.active,ecc.errors.uncorrected.volatile.total,pcie.link.width.current,
#   pcie.link.width.max --format=csv,noheader,nounits
SOUND = (
    f"{UUIDS[0]}, 0, Enabled, Disabled, 34, 0x0000000000000001, 0, 16, 16\n",
    f"{UUIDS[1]}, 1, Enabled, Disabled, 36, 0x0000000000000004, 0, 16, 16\n",
)
OF_A_WORKSTATION = f"{UUIDS[0]}, 0, Enabled, [N/A], 51, 0x0000000000000000, [N/A], 8, 8\n"
GPUS = tuple(
    Gpu(uuid, "NVIDIA A100-SXM4-40GB", index, power_limit_w=400.0, max_sm_clock_mhz=1410)
    for index, uuid in enumerate(UUIDS)
)


def checks(
    nvidia_smi: NvidiaSmi, answer: str, programs: str = "", gpus: tuple[Gpu, ...] = GPUS
) -> dict[str, Check]:
    environment = nvidia_smi(
        f"case $1 in --query-gpu=*) printf '{answer}';; --query-compute-apps=*) "
        f"printf '{programs}';; esac"
    )
    return {check.name: check for check in gpu_checks(gpus, environment)}


def problems(found: dict[str, Check]) -> dict[str, str]:
    return {name: check.value for name, check in found.items() if check.problem}


def test_sound_gpus_have_no_problem(nvidia_smi: NvidiaSmi) -> None:
    found = checks(nvidia_smi, "".join(SOUND))
    assert problems(found) == {}
    assert found["GPUs"].value == "NVIDIA A100-SXM4-40GB x 2"
    assert found["GPU temperature"].value == "34 / 36 C"
    assert found["GPU power limits"].value == "400 W"


def test_what_a_gpu_does_not_report_is_no_problem(nvidia_smi: NvidiaSmi) -> None:
    assert problems(checks(nvidia_smi, OF_A_WORKSTATION, gpus=GPUS[:1])) == {}


@pytest.mark.parametrize(
    ("good", "bad", "name", "value"),
    [
        ("0x0000000000000004", "0x0000000000000044", "GPU throttling", "hardware thermal slowdown"),
        ("0x0000000000000004", "0x0000000000000088", "GPU throttling", "hardware slowdown and p"),
        ("Enabled, D", "Disabled, D", "GPU persistence", ": off"),
        ("Disabled, 36", "Enabled, 36", "GPU partitions", ": MIG on"),
        (", 36,", ", 84,", "GPU temperature", ": 80 C or more"),
        (", 0, 16", ", 3, 16", "GPU memory errors", ": uncorrected"),
        (", 16, 16", ", 8, 16", "GPU link", ": fewer lanes than its slot has"),
    ],
)
def test_a_problem_names_its_gpu(
    nvidia_smi: NvidiaSmi, good: str, bad: str, name: str, value: str
) -> None:
    assert good in SOUND[1]
    found = problems(checks(nvidia_smi, SOUND[0] + SOUND[1].replace(good, bad)))
    assert [*found] == [name]
    assert "GPU 1" in found[name]
    assert "GPU 0" not in found[name]
    assert value in found[name]


def test_programs_of_others_on_the_gpus_are_named(nvidia_smi: NvidiaSmi) -> None:
    programs = (
        f"{UUIDS[1]}, 4711, /opt/conda/bin/python, 10240\n"
        "GPU-2b9d3f10-11aa-4c77-8d3e-0a1b2c3d4e5f, 4712, elsewhere, 10\n"
    )
    found = problems(checks(nvidia_smi, "".join(SOUND), programs))
    assert found == {"GPU programs": "python, pid 4711: 10240 MiB of GPU 1"}


def test_parts_of_gpus_are_not_called_whole(nvidia_smi: NvidiaSmi) -> None:
    part = Gpu("MIG-4f0d2b8a-1c3e-5d7f-9a1b-2c3d4e5f6a7b", "NVIDIA A100 (MIG instance)")
    found = checks(nvidia_smi, "".join(SOUND), gpus=(part,))
    assert [check.value for check in found.values()] == [
        "NVIDIA A100 (MIG instance); nvidia-smi does not report their state one by one"
    ]


def test_gpus_with_different_limits_are_unfit(nvidia_smi: NvidiaSmi) -> None:
    unlike = (GPUS[0], Gpu(UUIDS[1], GPUS[1].name, 1, power_limit_w=250.0, max_sm_clock_mhz=1410))
    found = problems(checks(nvidia_smi, "".join(SOUND), gpus=unlike))
    assert found == {"GPU power limits": "250 W, 400 W"}


def test_throttling_is_asked_for_again_after_a_session(nvidia_smi: NvidiaSmi) -> None:
    hot = SOUND[0].replace("0x0000000000000001", "0x0000000000000060")
    check = slowdowns(GPUS, nvidia_smi(f"printf '{hot}{SOUND[1]}'"))
    assert check.value == "GPU 0 software thermal slowdown and hardware thermal slowdown"


def test_a_tool_that_fails_is_a_problem(nvidia_smi: NvidiaSmi) -> None:
    environment = nvidia_smi("echo 'GPU is lost.  Reboot the system' >&2; exit 15")
    (check,) = gpu_checks(GPUS, environment)
    assert "failed with exit code 15: GPU is lost." in check.problem


def test_an_answer_of_another_form_is_refused() -> None:
    with pytest.raises(UserError, match=r"'Field \"x\" is not valid', which is not 9 fields"):
        parse_health('Field "x" is not valid\n')


def test_a_host_without_gpus_asks_nothing(tmp_path: Path) -> None:
    assert gpu_checks((), {"PATH": str(tmp_path)}) == []
