"""`--propose-thresholds`: where the file may be, and of what it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.machine.host import Machine
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.questions import parity, strong_scaling, trials, weak_scaling
from hvdperf.plan.thresholds import case_of, load_thresholds
from hvdperf.session.threshold_file import check_place, propose_into
from hvdperf.verdict import Verdict, judge
from tests.support.filesystems import small_disk
from tests.support.rounds import WORKLOAD, outcome

MACHINE = Machine("host", (0, 1), cpu_model="A CPU")
SLOTS = place([Offer(rank, "host", (0, 1)) for rank in range(2)])
RATIOS = (0.91, 0.92, 0.93, 0.92, 0.91, 0.93)
WEAK, STRONG, PARITY = (ask(WORKLOAD, 2) for ask in (weak_scaling, strong_scaling, parity))


def test_the_file_is_taken_and_what_was_measured_passes(tmp_path):
    path = tmp_path / "mine.toml"
    told = propose_into(path, [outcome(WEAK, RATIOS)], SLOTS, MACHINE, 8)
    assert told == f"thresholds for 1 cases proposed in {path}"
    rule = load_thresholds(path).rule(case_of(WEAK, SLOTS))
    assert rule is not None
    assert judge(outcome(WEAK, RATIOS).observations, rule).verdict is Verdict.PASS


def test_only_what_can_be_trusted_is_proposed(tmp_path):
    path = tmp_path / "mine.toml"
    line = '"parity/vgg_16_s/np2/one-node" = [0.9, 1.1]'
    outcomes = [
        outcome(WEAK, RATIOS, verdict=Verdict.INVALID),
        outcome(STRONG, RATIOS[:5]),
        outcome(trials(WORKLOAD, 2)[0], RATIOS),
        outcome(PARITY, RATIOS, verdict=Verdict.INVALID, threshold_line=line),
    ]
    propose_into(path, outcomes, SLOTS, MACHINE, 8)
    thresholds = load_thresholds(path)
    assert [thresholds.rule(case_of(c, SLOTS)) is None for c in (WEAK, STRONG, PARITY)] == [
        True,
        True,
        False,
    ]
    told = propose_into(tmp_path / "none.toml", outcomes[:3], SLOTS, MACHINE, 8)
    assert told.startswith("no thresholds proposed: no case has 6 rounds")
    assert not (tmp_path / "none.toml").exists()


def test_a_place_is_looked_at_before_anything_is_measured(tmp_path):
    check_place(tmp_path / "new.toml")
    hand_written = tmp_path / "mine.toml"
    hand_written.write_text("# by hand")
    dangling = tmp_path / "dangling.toml"
    dangling.symlink_to(tmp_path / "nowhere")
    for taken in (hand_written, dangling, tmp_path):
        with pytest.raises(UserError, match="is there already"):
            check_place(taken)
    with pytest.raises(UserError, match="there is no directory"):
        check_place(tmp_path / "no" / "new.toml")


def test_a_full_disk_leaves_nothing_half_written(tmp_path):
    with small_disk(tmp_path / "disk", size="4k") as disk:
        (disk / "full").write_bytes(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            propose_into(disk / "mine.toml", [outcome(WEAK, RATIOS)], SLOTS, MACHINE, 8)
        assert [path.name for path in Path(disk).iterdir()] == ["full"]
