from __future__ import annotations

import errno
import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from models.inputs import imagenet_files
from models.inputs.errors import DataError
from models.inputs.imagenet_files import count, locate
from models.inputs.imagenet_samples import LABELS, main, write_imagenet
from tests.support.refusals import refusal
from tests.support.shards import Mutation, framed, mutations, write_shards

JPEG = b"\xff\xd8\xff\xe0 no more than the beginning"


def example(**changed: list[Any] | None) -> bytes:
    """An Example as TensorFlow writes it; image, label and others may be changed or left out."""
    values: dict[str, list[Any] | None] = {"image": [JPEG], "label": [7], **changed}
    names = {"image": "image/encoded", "label": "image/class/label"}
    built = tf.train.Example()
    for key, value in values.items():
        if value is None:
            continue
        feature = built.features.feature[names.get(key, key)]
        if isinstance(value[0], bytes):
            feature.bytes_list.value.extend(value)
        elif isinstance(value[0], int):
            feature.int64_list.value.extend(value)
        else:
            feature.float_list.value.extend(value)
    content: bytes = built.SerializeToString(deterministic=True)
    return content


def complaint(directory: Path) -> str:
    """The message with which the directory is refused."""
    return refusal(lambda: locate(directory))


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two shards of three records."""
    return write_shards(tmp_path, [example()] * 3, [example()] * 3)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every shard checked as a large one."""
    monkeypatch.setattr(imagenet_files, "VISITED_BYTES", 0)


# What is found ----------------------------------------------------------------------------------


def test_shards_are_found_in_order_and_counted(tmp_path: Path) -> None:
    train = write_shards(tmp_path, *([example()] * n for n in (1, 2, 3)))
    validation = write_shards(tmp_path, [example()], [example()] * 2, split="validation")
    (tmp_path / "README").write_text("not a shard")
    (tmp_path / "train-00000-of-00003.md5").write_text("not a shard")
    files = locate(str(tmp_path))
    assert files.train == tuple(train)
    assert files.validation == tuple(validation)
    assert (files.train_records, files.validation_records) == (6, 3)
    assert (count(files.train), count(files.validation)) == (6, 3)


def test_validation_may_be_absent(shards: list[Path]) -> None:
    assert locate(shards[0].parent).validation == ()


def test_splits_may_have_folders_of_their_own(tmp_path: Path) -> None:
    train = write_shards(tmp_path / "train", [example()])
    validation = write_shards(tmp_path / "validation", [example()], split="validation")
    files = locate(tmp_path)
    assert (files.train, files.validation) == (tuple(train), tuple(validation))


@pytest.mark.parametrize("label", [1, 1000])
def test_labels_at_the_limits_are_sound(tmp_path: Path, label: int) -> None:
    write_shards(tmp_path, [example(label=[label])])
    locate(tmp_path)


def test_other_way_to_write_an_example_is_read(tmp_path: Path) -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    # The integers one by one instead of packed, in features that are a second part.
    feature = field(3, b"\x08\x07")
    entry = field(1, b"image/class/label") + field(2, feature)
    record = example(label=None) + field(1, field(1, entry))
    parsed = tf.train.Example.FromString(record)
    assert parsed.features.feature["image/class/label"].int64_list.value == [7]
    assert parsed.features.feature["image/encoded"].bytes_list.value == [JPEG]
    write_shards(tmp_path, [record])
    locate(tmp_path)


def test_large_shards_are_not_counted(shards: list[Path], all_large: None) -> None:
    files = locate(shards[0].parent)
    assert files.train_records is None
    assert count(files.train) == 6


def test_large_records_at_the_end_of_a_large_shard(tmp_path: Path, all_large: None) -> None:
    for size in (0, 1 << 10, (256 << 10) - 16, (256 << 10) - 11, 256 << 10, 3_000_000):
        (path,) = write_shards(tmp_path, [example(), bytes(size)])
        locate(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert "cut short" in complaint(tmp_path)


def test_tensorflow_is_not_needed(shards: list[Path]) -> None:
    code = (
        "import sys; from models.inputs.imagenet_files import locate; "
        "locate(sys.argv[1]); print('tensorflow' in sys.modules)"
    )
    root = Path(imagenet_files.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code, str(shards[0].parent)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize("change", ["a byte less", "half a length more", "longer", "shorter"])
def test_counting_refuses_a_shard_that_does_not_end_with_a_record(
    shards: list[Path], change: str
) -> None:
    content = bytearray(shards[1].read_bytes())
    second = len(content) // 3
    if change == "a byte less":
        content.pop()
    elif change == "half a length more":
        content += bytes(4)
    else:
        content[second : second + 8] = struct.pack("<Q", 2**63 if change == "longer" else 3)
    shards[1].write_bytes(content)
    assert count(shards[:1]) == 3
    with pytest.raises(DataError) as raised:
        count(shards)
    assert str(raised.value).startswith(f"{shards[1]}: record ")


# What is refused: files that are not there --------------------------------------------------------


def test_missing_directory(tmp_path: Path) -> None:
    message = complaint(tmp_path / "nowhere")
    assert "nowhere: no such directory" in message
    assert "models.inputs.imagenet_samples" in message


def test_no_shards(tmp_path: Path) -> None:
    write_shards(tmp_path, [example()], split="validation")
    (tmp_path / "train-0-of-1").write_bytes(framed(example()))
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path}: holds no ImageNet training shards")
    assert "models.inputs.imagenet_samples" in message


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_shard_is_named(tmp_path: Path, split: str, missing: int) -> None:
    paths = {
        name: write_shards(tmp_path, *[[example()]] * 3, split=name)
        for name in ("train", "validation")
    }
    victim = paths[split][missing]
    victim.unlink()
    assert complaint(tmp_path).startswith(f"{victim}: missing, though 2 of 3 shards are there")


def test_shards_of_two_sets(tmp_path: Path) -> None:
    write_shards(tmp_path, [example()])
    write_shards(tmp_path, [example()], [example()])
    assert "holds train shards of 1 and of 2" in complaint(tmp_path)


@pytest.mark.parametrize("name", ["train-00002-of-00002", "train-000001-of-00002"])
def test_shard_that_cannot_be(shards: list[Path], name: str) -> None:
    extra = shards[0].with_name(name)
    extra.write_bytes(shards[0].read_bytes())
    assert complaint(extra.parent).startswith(f"{extra}: is none of 2 shards")


def test_shard_of_an_endless_set(tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-999999999").write_bytes(framed(example()))
    assert f"{tmp_path}/train-00001-of-999999999: missing" in complaint(tmp_path)


# What is refused: damaged files -------------------------------------------------------------------


def refused(paths: list[Path], content: bytes) -> str:
    """How the set is refused when its last shard has this content."""
    paths[-1].write_bytes(content)
    message = complaint(paths[-1].parent)
    assert message.startswith(f"{paths[-1]}: ")
    return message


def test_empty_shard(shards: list[Path]) -> None:
    assert "empty" in refused(shards, b"")


def test_shard_cut_short_anywhere(shards: list[Path]) -> None:
    whole = shards[-1].read_bytes()
    for size in range(1, len(whole)):
        record, rest = divmod(size, len(whole) // 3)
        if rest:
            assert f"record {record} is cut short" in refused(shards, whole[:size])


def test_large_shard_cut_short_anywhere(shards: list[Path], all_large: None) -> None:
    whole = shards[-1].read_bytes()
    for size in range(1, len(whole), 3):
        if size % (len(whole) // 3):
            assert "cut short" in refused(shards, whole[:size])


@pytest.mark.parametrize("large", [False, True])
def test_first_record_with_any_byte_changed(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(imagenet_files, "VISITED_BYTES", 0)
    whole = shards[-1].read_bytes()
    for position in range(len(whole) // 3):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        message = refused(shards, bytes(changed))
        part = "a length" if position < 12 else "data"
        assert f"record 0 has {part} that does not fit its checksum" in message


def test_length_of_a_later_record_changed(shards: list[Path]) -> None:
    changed = bytearray(shards[-1].read_bytes())
    changed[2 * len(changed) // 3 + 1] ^= 1
    assert "record 2 has a length that does not fit its checksum" in refused(shards, bytes(changed))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"image": None}, "is no Example with image/encoded"),
        ({"label": None}, "is no Example with image/class/label"),
        ({"label": [0]}, "has 0 in image/class/label, not 1..1000"),
        ({"label": [1001]}, "has 1001 in image/class/label"),
        ({"label": [-1]}, "has -1 in image/class/label"),
        ({"label": [2**63 - 1]}, f"has {2**63 - 1} in"),
        ({"label": [1, 2]}, "has no integer in image/class/label"),
        ({"label": [b"7"]}, "has no integer in image/class/label"),
        ({"label": [7.0]}, "has no integer in image/class/label"),
        ({"image": [b"\x89PNG"]}, "has no JPEG in image/encoded"),
        ({"image": [b""]}, "has no JPEG in image/encoded"),
        ({"image": [JPEG, JPEG]}, "has no JPEG in image/encoded"),
        ({"image": [7]}, "has no JPEG in image/encoded"),
    ],
)
def test_first_record_that_is_not_imagenet(
    shards: list[Path], record: dict[str, Any], reason: str
) -> None:
    assert f"record 0 {reason}" in refused(shards, framed(example(**record)))


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a\x7f",  # announces more than there is
        b"\x0b",  # a group, which no Example has
        b"\xff" * 11,  # a number without an end
        b"\x08",  # a tag without a value
        b"plain text of some other kind",
    ],
)
def test_first_record_that_is_no_example(shards: list[Path], content: bytes) -> None:
    assert "record 0 is no " in refused(shards, framed(content))


def test_other_formats(shards: list[Path]) -> None:
    for content in (b"\x1f\x8b\x08" + bytes(100), JPEG, b"<html>not found</html>"):
        message = refused(shards, content)
        assert "record 0 has a length that" in message
        assert "is it really" in message


def test_directory_in_place_of_a_shard(shards: list[Path]) -> None:
    shards[-1].unlink()
    shards[-1].mkdir()
    assert complaint(shards[0].parent).startswith(f"{shards[-1]}: unreadable (")


def test_unreadable_shard(shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: Any, **options: Any) -> io.BytesIO:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    message = complaint(shards[0].parent)
    assert message.startswith(f"{shards[0]}: unreadable (Permission denied)")
    with pytest.raises(DataError, match="unreadable"):
        count(shards)


# Any bytes at all ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = write_shards(tmp_path_factory.mktemp("fuzz"), [example()])
    return path


@settings(max_examples=300, deadline=None)
@given(changes=st.lists(mutations(), min_size=1, max_size=3), visited=st.sampled_from([0, 1 << 20]))
def test_any_damage_is_a_data_error_or_leaves_a_valid_file(
    victim: Path, changes: list[Mutation], visited: int
) -> None:
    content = framed(example()) + framed(b"second") + framed(b"")
    for change in changes:
        content = change(content)
    victim.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imagenet_files, "VISITED_BYTES", visited)
        try:
            files = locate(victim.parent)
        except DataError as error:
            assert str(error).startswith(f"{victim}: ")
        else:
            assert files.train == (victim,)


@settings(max_examples=300, deadline=None)
@given(change=mutations(), payload=st.one_of(st.none(), st.binary(max_size=200)))
def test_any_record_is_judged_as_tensorflow_would(
    victim: Path, change: Mutation, payload: bytes | None
) -> None:
    data = change(example()) if payload is None else payload
    victim.write_bytes(framed(data))
    try:
        locate(victim.parent)
    except DataError as error:
        assert str(error).startswith(f"{victim}: record 0 ")
    else:
        # What is let through is at least the beginning of a JPEG and a label, for TensorFlow too.
        feature = tf.train.Example.FromString(data).features.feature
        assert feature["image/encoded"].bytes_list.value[0][:3] == JPEG[:3]
        assert 1 <= feature["image/class/label"].int64_list.value[0] <= 1000


# Samples ------------------------------------------------------------------------------------------


def test_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def contents(folder: str, seed: int) -> dict[str, bytes]:
        paths = write_imagenet(tmp_path / folder, shards=2, per_shard=2, seed=seed)
        return {path.name: path.read_bytes() for path in paths}

    first = contents("first", 5)
    assert list(first) == [
        "train-00000-of-00002",
        "train-00001-of-00002",
        "validation-00000-of-00001",
    ]
    assert contents("second", 5) == first
    assert contents("third", 6) != first


def test_samples_are_what_the_published_records_are(tmp_path: Path) -> None:
    paths = write_imagenet(tmp_path, shards=2, per_shard=10, validation_shards=0)
    files = locate(tmp_path)
    assert (files.train, files.validation, files.train_records) == (paths, (), 20)
    labels: list[int] = []
    colours: list[Any] = []
    names: set[bytes] = set()
    for path in paths:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            pixels = tf.io.decode_jpeg(feature["image/encoded"].bytes_list.value[0]).numpy()
            shape = [
                feature[f"image/{key}"].int64_list.value[0]
                for key in ("height", "width", "channels")
            ]
            assert list(pixels.shape) == shape
            assert min(shape[:2]) >= 300
            assert max(shape[:2]) <= 500
            # Smooth: neighbours are nearly the same.
            assert np.abs(np.diff(pixels.astype(int), axis=0)).mean() < 3
            assert feature["image/format"].bytes_list.value == [b"JPEG"]
            assert feature["image/colorspace"].bytes_list.value == [b"RGB"]
            assert len(feature["image/class/synset"].bytes_list.value[0]) == 9
            for side in "xy":
                low, high = (
                    feature[f"image/object/bbox/{side}{end}"].float_list.value[0]
                    for end in ("min", "max")
                )
                assert 0 <= low <= high <= 1
            names.add(feature["image/filename"].bytes_list.value[0])
            labels.append(feature["image/class/label"].int64_list.value[0])
            colours.append(pixels.mean(axis=(0, 1)))
    assert len(names) == 20
    assert sorted(labels) == sorted(2 * LABELS)
    assert (min(LABELS), max(LABELS)) == (1, 1000)
    # A class can be told by its colour.
    for i, label in enumerate(labels):
        distances = [np.abs(colours[i] - other).max() for other in colours]
        nearest = sorted(range(20), key=distances.__getitem__)[:2]
        assert [labels[j] for j in nearest] == [label, label]


def test_existing_shards_are_never_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "validation-00000-of-00128"
    precious.write_bytes(b"precious")
    with pytest.raises(DataError, match="exists already"):
        write_imagenet(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [precious.name]
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "numbers", [{"shards": 0}, {"per_shard": 0}, {"seed": -1}, {"validation_shards": -1}]
)
def test_numbers_without_sense_are_refused(tmp_path: Path, numbers: dict[str, int]) -> None:
    with pytest.raises(DataError):
        write_imagenet(tmp_path, **numbers)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "new" / "folder")
    arguments = [target, "--shards", "3", "--per-shard", "1", "--seed", "2"]
    assert main(arguments) == 0
    assert "4 shards of ImageNet" in capsys.readouterr().out
    assert locate(target).train_records == 3

    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "exists already" in error
    assert error.count("\n") == 1
