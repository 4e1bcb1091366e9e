"""What the command line changes about a profile."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.options import (
    Options,
    from_command_line,
    parse_fault,
    parse_world_sizes,
    resolve_profile,
)


def test_the_command_line_comes_before_the_profile():
    options = Options(
        models="vgg_16_s, resnet_50_s",
        world_sizes="2,1",
        dataset="synthetic",
        batch_size=7,
        budget_minutes=1.5,
    )
    profile = resolve_profile(options)
    assert profile.models == ("vgg_16_s", "resnet_50_s")
    assert profile.world_sizes == (1, 2)
    assert (profile.dataset, profile.batch, profile.budget_s) == ("synthetic", 7, 90.0)


def given(**changes: object) -> dict[str, object]:
    """As pytest parses a command line without options."""
    return {**asdict(Options()), "models": [], "inject": [], **changes}


def test_networks_of_several_options_are_added_up():
    options = from_command_line(given(models=["vgg_16_s,lstm_s", "resnet_50_s"]))
    assert resolve_profile(options).models == ("vgg_16_s", "lstm_s", "resnet_50_s")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 0}, "--batch-size 0: must be above zero"),
        ({"batch_size": 2**31}, "--batch-size 2147483648: must be at most 2147483647"),
        ({"batch_size": 10**30}, f"--batch-size {10**30}: must be at most 2147483647"),
        ({"batch_size": 10**400}, f"--batch-size {10**400}: must be at most 2147483647"),
        ({"image_size": 10**11}, f"--image-size {10**11}: must be at most 2147483647"),
    ],
)
def test_what_no_tensor_can_hold_is_refused(changes, said):
    with pytest.raises(UserError) as caught:
        resolve_profile(Options(**changes))
    assert str(caught.value) == said


def test_one_fault_is_injected_and_a_second_is_refused():
    assert from_command_line(given(inject=["kill"])).inject == "kill"
    assert from_command_line(given()) == Options()
    with pytest.raises(
        UserError, match="--inject: given 2 times, kill and hang; a session injects"
    ):
        from_command_line(given(inject=["kill", "hang"]))


def test_a_budget_in_which_nothing_starts_is_refused():
    with pytest.raises(UserError, match=r"--budget 0\.01: 0\.6 s are too few"):
        resolve_profile(Options(budget_minutes=0.01))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slow:rank=x", "rank=x is not a number; give a whole number, such as rank=1"),
        ("slow:factor=twice", "factor=twice is not a number; give a number, such as factor=1"),
    ],
)
def test_what_is_no_number_is_said_in_words(text, told):
    with pytest.raises(UserError) as caught:
        parse_fault(text, ["vgg_16_s"], [2])
    assert str(caught.value) == f"--inject {text}: {told}"


def test_world_sizes_are_sorted_and_given_once():
    assert parse_world_sizes("4,1,2,2") == (1, 2, 4)
