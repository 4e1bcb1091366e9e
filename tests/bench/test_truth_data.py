"""The data set of the truth table: what is kept of a session, and how it is read."""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from bench.truth_rules import DATA, ENDING, NONE, read
from bench.truth_table import FEWEST_ROUNDS, packed, recordings
from hvdperf.errors import UserError
from hvdperf.plan.arms import AA, Arm, BlockKind, Schedule
from hvdperf.plan.comparisons import RoundGroup
from hvdperf.programs import run
from hvdperf.records.archive import Archive
from hvdperf.records.rounds import Round
from hvdperf.work.blocks import turns_of
from tests.support.pages import blocks
from tests.support.rounds import HOROVOD_2, WORKLOAD, block, launch
from tests.support.stores import SESSION, session_of_cases
from tests.support.truth import recording

ROOT = Path(__file__).resolve().parents[2]
FULL = {BlockKind.FULL: 1000.0}


def one_round(number: int, *injected: str) -> Round:
    arms: list[Arm] = [HOROVOD_2, *(replace(HOROVOD_2, injected=each) for each in injected)]
    return Round(number, Schedule.ALTERNATE, [launch(arm, FULL, number) for arm in arms])


def archive(rounds: list[Round], exit_status: int | None = 0) -> Archive:
    group = RoundGroup(WORKLOAD, "blocks", "trust")
    session = replace(session_of_cases(), exit_status=exit_status, elapsed_seconds=100.0)
    return Archive(Path(SESSION), session, (), (), {group: {each.number: each for each in rounds}})


def whole(count: int = FEWEST_ROUNDS) -> list[Round]:
    return [one_round(number, AA, "slow5", "cycle") for number in range(count)]


def test_faults_are_kept_by_arm_and_steps_with_their_exchange():
    rounds = whole()
    turns_of(rounds[0].launches[0]).blocks.append(block(HOROVOD_2, 1.0, BlockKind.LOCAL))
    (found,) = recordings(archive(rounds))
    assert found.network == WORKLOAD.model
    assert found.arms == {NONE: "", AA: "", "slow5": "slow:rank=1,factor=1.05", "cycle": "cycle"}
    for each, original in zip(found.rounds, rounds, strict=True):
        assert [launch.arm for launch in each.launches] == [x.arm for x in original.launches]
    kept = found.rounds[0].launches[0]
    assert [each.kind for each in kept.blocks] == [BlockKind.FULL] * len(kept.blocks) != []


def test_a_round_that_lacks_an_arm_is_left_out():
    found = recordings(archive([*whole(), one_round(99, AA, "slow5")]))
    assert len(found[0].rounds) == FEWEST_ROUNDS


@pytest.mark.parametrize(
    ("rounds", "status", "why"),
    [
        (whole(), None, "still runs"),
        ([one_round(number) for number in range(FEWEST_ROUNDS)], 0, "no fault was planted"),
        (whole(FEWEST_ROUNDS - 1), 0, f"fewer than {FEWEST_ROUNDS}"),
    ],
)
def test_what_cannot_be_used_is_refused(rounds, status, why):
    with pytest.raises(UserError, match=why):
        recordings(archive(rounds, status))


def test_a_recording_is_read_as_it_was_written(tmp_path):
    written = recording(rounds=2)
    (tmp_path / f"{written.name}{ENDING}").write_bytes(packed(written))
    (found,) = read(tmp_path)
    assert found.recording.arms == written.arms
    for kept, one in zip(
        found.recording.rounds[1].launches, written.rounds[1].launches, strict=True
    ):
        assert (kept.arm, kept.startup_seconds) == (one.arm, one.startup_seconds)
        assert [each.turn for each in kept.blocks] == [each.turn for each in one.blocks]
        assert kept.blocks[0].ranks[1].step_seconds == pytest.approx(
            one.blocks[0].ranks[1].step_seconds, abs=1e-6
        )


def test_neither_host_nor_process_is_named():
    text = lzma.decompress(packed(recordings(archive(whole()))[0])).decode()
    assert json.loads(text)["session"] == SESSION.partition("-")[0]
    assert SESSION not in text
    assert "host0" not in text


def test_a_file_that_is_no_recording_is_named(tmp_path):
    (tmp_path / f"x{ENDING}").write_bytes(b"x")
    with pytest.raises(UserError, match=r"x\.json\.xz"):
        read(tmp_path)


def test_the_reader_that_the_data_set_shows_reads_it(tmp_path):
    written = recording(rounds=2)
    place = tmp_path / "results" / "truth"
    place.mkdir(parents=True)
    (place / f"{written.name}{ENDING}").write_bytes(packed(written))
    (program,) = blocks((DATA / "README.md").read_text(), "python")
    shown = run([sys.executable, "-c", program], cwd=tmp_path)
    lines = shown.output.splitlines()
    assert len(lines) == 2 * len(written.arms)
    mean = fmean(written.rounds[0].launches[0].blocks[0].ranks[0].step_seconds)  # of all blocks
    assert float(lines[0].split()[-1]) == pytest.approx(mean, abs=1e-6)
