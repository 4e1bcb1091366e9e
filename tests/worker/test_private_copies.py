"""The copy of a script's directory that a run gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdperf.worker.script.tap import _hvdperf_private as private

LARGEST = 16 << 20


def file_of(path: Path, size: int = 1) -> Path:
    """Make a file of that many bytes, which takes no space on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)
    return path


def test_a_copy_has_directories_and_small_files_and_links_to_large_ones(tmp_path: Path) -> None:
    source, target = tmp_path / "project", tmp_path / "runs" / "copy"
    script = file_of(source / "src" / "train.py", 3)
    os.utime(script, (1000.0, 1000.0))
    (source / "empty").mkdir()
    file_of(source / "largest", LARGEST)
    data = file_of(source / "data" / "larger", LARGEST + 1)
    environment = file_of(source / "env" / "pyvenv.cfg").parent
    hidden_environment = file_of(source / ".venv" / "pyvenv.cfg").parent
    file_of(environment / "lib" / "module.py")
    (source / "link").symlink_to("src/train.py")
    (source / "of_directory").symlink_to(source / "src")
    file_of(source / ".settings")
    for name in (".git", "src/__pycache__", "left_out"):
        file_of(source / name / "file")
    private.copy(source, target, source / "left_out")
    found = {str(path.relative_to(target)): path for path in target.rglob("*")}
    assert {*found} == {
        *("src", "src/train.py", "empty", "largest", "data", "data/larger", "env", ".venv"),
        *("link", "of_directory", ".settings"),
    }
    links = {name: os.readlink(path) for name, path in found.items() if path.is_symlink()}
    assert links == {
        "data/larger": str(data),
        "env": str(environment),
        ".venv": str(hidden_environment),
        "link": "src/train.py",
        "of_directory": str(source / "src"),
    }
    assert found["src/train.py"].stat().st_mtime == 1000.0
    private.copy(source / "empty", target, source / "left_out")


def test_a_copy_has_so_many_bytes_and_files_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.copy2", lambda *_: None)
    assert private.MOST_FILES == 20_000
    monkeypatch.setattr(private, "MOST_FILES", 200)
    large, many = tmp_path / "large", tmp_path / "many"
    for number in range(16):
        file_of(large / ("most" if number else "few") / f"{number}", LARGEST)
    for number in range(200):
        file_of(many / f"{number}", 0)
    for source, said in (large, r"256 MiB in files of up to 16 MiB.*in most;"), (many, "200 files"):
        private.copy(source, tmp_path / f"{source.name} whole", tmp_path)
        file_of(source / "few" / "another", 1)
        with pytest.raises(private.TooLarge, match=said):
            private.copy(source, tmp_path / f"{source.name} with another", tmp_path)


@pytest.mark.parametrize(
    ("place", "top"),
    [("project/src/deep", "project"), ("project/.hidden/run", "project/.hidden/run"), ("b", "b")],
)
def test_a_script_belongs_to_its_repository(place: str, top: str, tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / place).mkdir(parents=True)
    assert private.top_of(tmp_path / place) == tmp_path / top
