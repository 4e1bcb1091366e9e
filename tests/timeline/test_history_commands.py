"""`hvdperf history` as a user gives it bad input: one line, and no traceback."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pytest

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.timeline.asv.site import serve


def hvdperf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hvdperf", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["history", "backfill", "--list", "--horovod", "9.9"],
            "--horovod 9.9: known releases of horovod are 0.25.0",
        ),
        (
            ["history", "backfill", "--list", "--tensorflow", ","],
            "--tensorflow ,: names no version; give one, such as those of "
            "hvdperf/timeline/releases/releases.toml",
        ),
        (
            ["bisect", "--from=2.15.1", "--to=2.18.1", "--at=9.9", "--model=vgg_16_s", "--np=2"],
            "--at 9.9: known releases of horovod are 0.25.0",
        ),
        (
            ["history", "measure", "--stack", "/none/bin/python"],
            "nothing was measured of /none/bin/python",
        ),
        (
            ["history", "import", "--sessions", "/none/runs"],
            "--sessions /none/runs: no such directory",
        ),
    ],
)
def test_bad_input_is_one_line(arguments, said):
    done = hvdperf(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_is_stored_is_told():
    done = hvdperf("history", "backfill", "--list", "--horovod", "0.28.1", "--tensorflow", "2.18.1")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split() == ["Horovod", "TF", "2.18.1"]
    done = hvdperf("history", "machine")
    assert done.stdout.strip().replace("-", "").isalnum()
    done = hvdperf("history", "changes")
    assert done.returncode == 0
    assert "lines of two releases or more: " in done.stdout


def test_sites_are_served_on_loopback(tmp_path):
    with pytest.raises(UserError, match="make history"):
        serve(tmp_path, 0)
    site = tmp_path / "horovod"
    site.mkdir()
    (site / "index.json").write_text('{"project": "x"}')
    with pytest.raises(UserError, match="--port 99999"):
        serve(tmp_path, 99999)
    code = (
        "from pathlib import Path; from hvdperf.timeline.asv.site import serve; "
        f"serve(Path({str(tmp_path)!r}), 0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}index.json", timeout=20) as answer:
            assert answer.read() == b'{"project": "x"}'
        server.terminate()
