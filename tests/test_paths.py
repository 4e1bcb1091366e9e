"""The directories of an installed package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdperf import paths


def test_a_cache_is_made_for_its_user_alone(tmp_path: Path) -> None:
    cache = tmp_path / "some" / "hvdperf"
    assert paths._is_own(cache)
    assert cache.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_somebody_else_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert paths._is_own(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert not paths._is_own(tmp_path)
