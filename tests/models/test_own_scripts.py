"""Training scripts of one's own, as workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.models import inputs, registry
from hvdperf.models.own_networks import BadWorkloads, load_script
from hvdperf.models.registry import SCRIPT

pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('trained')\n")
    return path


def test_a_script_is_named_by_its_file_and_arguments(script):
    found = load_script(f"python3 {script} --batch 64 --data '/a b'")
    assert found.name.startswith("train.py-batch-64-data-a-b-")
    assert found.script == f"{script} --batch 64 --data '/a b'"
    assert found.origin == str(script)
    assert registry.network(found.name) is found
    assert not inputs.find(SCRIPT).needs_data


def test_other_arguments_give_another_name(script):
    rates = ("1e-3", "1e+3", "1e3", "é", "x" * 300)
    names = {load_script(f"{script} --lr {rate}").name for rate in rates}
    assert len(names) == 5
    assert max(map(len, names)) < 100


def test_it_runs_where_the_command_is_typed_if_it_lies_below_that(script):
    top = script.parent.parent
    assert load_script(f"{script.parent.name}/train.py", str(top)).place == str(top)
    assert load_script(f"{script} -v", "/").place == "/"
    hidden = script.parent / ".own" / "train.py"
    hidden.parent.mkdir()
    hidden.write_text("")
    assert load_script(f"{hidden} -h", str(top)).place == str(hidden.parent)


def test_its_path_is_relative_to_the_profile_that_names_it(script):
    assert load_script("train.py", str(script.parent)).script == str(script)


def test_two_files_of_one_name_need_other_arguments(script, tmp_path):
    other = tmp_path / "other" / "train.py"
    other.parent.mkdir()
    other.write_text("")
    load_script(str(script))
    with pytest.raises(BadWorkloads, match="there is another train"):
        load_script(str(other))
    assert load_script(f"{other} -v").name == "train.py-v"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.py 'a", "No closing quotation"),
        ("python", "names no script"),
        ("train.sh", "names no script"),
        ("horovodrun -np 2 python train.py", "without horovodrun"),
        ("/usr/bin/python3 train.py", "--stack chooses one"),
        ("nowhere.py", "nowhere.py: no such file"),
    ],
)
def test_what_is_no_script_is_refused(text, said):
    with pytest.raises(BadWorkloads, match=said):
        load_script(text)
