"""Training scripts of one's own, as workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.models import inputs, own_scripts, registry
from hvdperf.models.own_networks import BadWorkloads
from hvdperf.models.own_scripts import load
from hvdperf.models.registry import SCRIPT


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    networks, sources = dict(registry.NETWORKS), dict(inputs.INPUTS)
    for module in (registry, own_scripts):
        monkeypatch.setattr(module, "NETWORKS", networks)
    for module in (inputs, own_scripts):
        monkeypatch.setattr(module, "INPUTS", sources)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('trained')\n")
    return path


def test_a_script_is_named_by_its_file_and_arguments(script: Path) -> None:
    found = load(f"python3 {script} --batch 64 --data '/a b'")
    assert found.name == "train.py-batch-64-data-a-b"
    assert found.script == f"{script} --batch 64 --data '/a b'"
    assert found.origin == str(script)
    assert registry.network(found.name) is found
    assert not inputs.find(SCRIPT).needs_data


def test_its_path_is_relative_to_the_profile_that_names_it(script: Path) -> None:
    assert load("train.py", str(script.parent)).script == str(script)


def test_two_files_of_one_name_need_other_arguments(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "train.py"
    other.parent.mkdir()
    other.write_text("")
    load(str(script))
    with pytest.raises(BadWorkloads, match="there is another train"):
        load(str(other))
    assert load(f"{other} -v").name == "train.py-v"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.py 'a", "No closing quotation"),
        ("", "names no script"),
        ("python", "names no script"),
        ("train.sh", "names no script"),
        ("horovodrun -np 2 python train.py", "without horovodrun"),
        ("nowhere.py", "nowhere.py: no such file"),
    ],
)
def test_what_is_no_script_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadWorkloads, match=said):
        load(text)
