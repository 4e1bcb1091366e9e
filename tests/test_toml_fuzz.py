"""Whatever a profile or a file of thresholds holds, it is read or refused in one line."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.plan.profile import PROFILES, Profile, load_profile
from hvdperf.plan.thresholds import Thresholds, load_thresholds

PROFILE = (PROFILES / "nightly.toml").read_bytes()
THRESHOLDS = b"""label = "nodes"
[match]
device = "gpu"
gpu_name = "V100"
[thresholds]
"weak_scaling/vgg_16/np*/one-node" = 0.70
"gradient_reduction:fp16/*/np*/*" = 0.50
"parity/*/np2/*" = [0.75, 1.33]
"startup_trace/*/np2/*" = 0.05
"""
FUZZ = settings(deadline=None, max_examples=200)
# What stands for a value: of every type of TOML, and at the ends of what a number may be.
VALUES = st.sampled_from(
    [
        "true",
        "0",
        "1.5",
        "inf",
        "nan",
        "1e400",
        "9" * 400,
        "9" * 5000,
        '"a\\nb"',
        '"\\u0000"',
        "[{}]",
        "[1, true]",
        "[9, 9]",
        "[1, 2.5]",
        "[0.5, 2" + "0" * 400 + "]",
        '["vgg_16_s", 3]',
        "{}",
        "1979-05-27",
        "1979-13-77",
        "[" * 3000,
        "[" * 3000 + "]" * 3000,
        "a." * 500 + "a = 1",
    ]
)


def kept_or_refused(read: Callable[[Path], object], content: bytes) -> object:
    """What was read, or the one line of the refusal, which names the file."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "fuzzed.toml"
        path.write_bytes(content)
        try:
            return read(path)
        except UserError as error:
            line = str(error)
    assert "fuzzed.toml" in line
    assert line.isprintable(), f"more than one line of text: {line!r}"
    assert len(line) < 2000
    return None


def read_both(content: bytes) -> None:
    profile = kept_or_refused(load_profile, content)
    assert profile is None or isinstance(profile, Profile)
    thresholds = kept_or_refused(load_thresholds, content)
    assert thresholds is None or isinstance(thresholds, Thresholds)


@pytest.mark.parametrize("content", [PROFILE, THRESHOLDS], ids=["profile", "thresholds"])
def test_the_files_that_are_changed_here_are_sound_before(content):
    read = load_profile if content is PROFILE else load_thresholds
    assert kept_or_refused(read, content) is not None


@FUZZ
@given(st.text(max_size=200))
@example('"a\\nb" = 1')
@example("[sampling]\nlooks = 1\n'a\tb' = 2")
@example("a = 1\r\n[a\x00]")
def test_any_text(text):
    read_both(text.encode(errors="replace"))


@FUZZ
@given(st.data(), st.sampled_from([PROFILE, THRESHOLDS]), st.binary(max_size=20))
def test_bytes_cut_out_or_put_in(data, content, new):
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 60)))
    read_both(content[:start] + new + content[end:])


def _one_line_lists(text: str) -> str:
    """The same document with every value on the line of its key."""
    lines, pending = [], ""
    for line in text.splitlines():
        pending += line.split("#")[0].strip() if pending or " = " in line else line
        try:
            tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        lines.append(pending)
        pending = ""
    return "\n".join(lines)


FILES = [_one_line_lists(path.read_text()) for path in sorted(PROFILES.glob("*.toml"))]


@settings(FUZZ, max_examples=400)
@given(st.data(), st.sampled_from([*FILES, THRESHOLDS.decode()]), VALUES)
def test_any_value_for_any_key(data, content, value):
    lines = content.splitlines()
    keyed = [number for number, line in enumerate(lines) if " = " in line]
    number = data.draw(st.sampled_from(keyed))
    lines[number] = f"{lines[number].split(' = ')[0]} = {value}"
    read_both("\n".join(lines).encode())


PART = st.text("weak_scalingprtynp*[]!?-1/:.\n\\", max_size=12)


@FUZZ
@given(st.text(max_size=40) | st.lists(PART, min_size=4, max_size=4).map("/".join), VALUES)
def test_any_pattern_of_a_threshold(pattern, value):
    quoted = "".join(f"\\U{ord(letter):08x}" for letter in pattern)
    read_both(THRESHOLDS + f'"{quoted}" = {value}\n'.encode())
