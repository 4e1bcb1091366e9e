"""Files of networks that a user brings: what is read, and what is refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvdperf.models import inputs, registry
from hvdperf.models.own_networks import BadWorkloads, digest, load_file

GOOD = """\
from hvdperf.models.registry import Network
NETWORKS = (Network("mine", "{stem}:build", 32),)
def build(input_size, classes):
    return input_size, classes
"""


@pytest.fixture(autouse=True)
def forget(registries: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget at the end what a test imports."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a file."""

    def written(text: str, name: str = "my_networks.py") -> Path:
        to = tmp_path / name
        to.write_text(text)
        return to

    return written


@pytest.mark.parametrize("module", ["hvdperf.models", "hvdperf.models.registry", "models.registry"])
def test_a_network_of_a_file_can_be_built_by_its_name(file, module):
    path = file(GOOD.format(stem="my_networks").replace("hvdperf.models.registry", module))
    (network,) = load_file(path)
    assert network.origin == str(path)
    assert registry.build("mine", 32, 10) == (32, 10)
    assert load_file(path) == (network,), "loading it again changes nothing"
    again = path.parent / ".." / path.parent.name / path.name
    assert load_file(again) == (network,), "it is the same file by another name"
    before = digest(network)
    assert len(before) == 12
    path.write_text(path.read_text() + "# changed\n")
    assert digest(network) != before


def test_data_of_its_own_is_an_input_of_its_name(file):
    data = GOOD.replace("32)", '32, data="my_networks:data", classes=3)')
    load_file(file(data.format(stem="my_networks")))
    assert not inputs.find("mine").needs_data


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NETWORKS = 1", "defines no NETWORKS = (Network(...), ...)"),
        ("def build(:\n", ":1: SyntaxError: "),
        ("x = 1\nraise ValueError('broken')\n", ":2: ValueError: broken"),
        (GOOD.replace('"mine"', '"vgg_16_s"'), "'vgg_16_s': the suite has a network of that name"),
        (GOOD.replace("{stem}:build", "build"), "'mine': builder 'build' is not of the form modu"),
        (GOOD.replace(" 32)", " 0)"), "'mine': input_size must be a whole number above 0"),
        (GOOD.replace('"mine"', '"my net"'), "'my net': use letters, digits, '_' and '.'"),
        (GOOD.replace(" 32),", ' 32), Network("mine", "{stem}:build", 8)'), "'mine' twice; rename"),
        (GOOD.replace(" 32)", " '32')"), "'mine': input_size '32' is not of the type int"),
        (GOOD.replace(" 32)", ' 32, loss="loss")'), "'mine': loss 'loss' is not of the form"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(file, text, said):
    path = file(text.format(stem="my_networks") if "{stem}" in text else text)
    with pytest.raises(BadWorkloads) as refused:
        load_file(path)
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)
    assert "mine" not in registry.NETWORKS


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my-networks.py", "is no name of a module, such as my_networks.py"),
        ("json.py", "there is another module json; rename the file"),
        ("folder/my_networks.py", "no such file"),
    ],
)
def test_a_file_needs_a_name_of_its_own_and_to_exist(file, tmp_path, name, said):
    file(GOOD.format(stem="json"), Path(name).name)
    with pytest.raises(BadWorkloads, match=said):
        load_file(tmp_path / name)
