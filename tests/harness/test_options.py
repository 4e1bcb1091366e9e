"""What the command line changes about a profile."""

from __future__ import annotations

from harness.options import Options, parse_world_sizes, resolve_profile
from harness.plan import Schedule


def test_the_command_line_comes_before_the_profile():
    options = Options(
        models="vgg_16_s, resnet_50_s",
        world_sizes="2,1",
        dataset="synthetic",
        batch_size=7,
        schedule="fresh",
        budget_minutes=1.5,
    )
    profile = resolve_profile(options)
    assert profile.models == ("vgg_16_s", "resnet_50_s")
    assert profile.world_sizes == (1, 2)
    assert (profile.dataset, profile.batch, profile.budget_s) == ("synthetic", 7, 90.0)
    assert profile.schedule is Schedule.FRESH


def test_world_sizes_are_sorted_and_given_once():
    assert parse_world_sizes("4,1,2,2") == (1, 2, 4)
