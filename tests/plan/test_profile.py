"""Profiles as they are written, and the options that change them."""

from __future__ import annotations

import pytest

from bench.sessions import LOOKS
from hvdperf.errors import UserError
from hvdperf.models.registry import NETWORKS, Scale, network
from hvdperf.plan.arms import Schedule
from hvdperf.plan.comparisons import Question
from hvdperf.plan.options import Options, resolve_profile
from hvdperf.plan.profile import PROFILES, Runs, Sampling, load_profile
from hvdperf.plan.questions import FAULT_CASES

COMPLETE = """\
models = ["vgg_16_s", "resnet_50_s"]
sentinels = ["resnet_v2_101_t"]
oversubscribed = ["vgg_16_s"]
questions = ["parity", "horovod_overhead"]
dataset = "cifar10"
batch = 16
budget_s = 90
schedule = "fresh"
world_sizes = [1, 2, 8]
parity_from = 2

[representatives]
recipe = ["vgg_16_s"]

[fault_cases]
aa = ["vgg_16_s"]

[runs]
epochs = 3
wall_time_steps = 2

[sampling]
looks = [8, 12]
turns_min = 2
turns_max = 3
min_block_seconds = 0.5
min_block_steps = 7
startup_deadline_s = 100
block_deadline_s = 20.5
"""


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="mine"):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return to_file


def complaint(path):
    with pytest.raises(UserError) as caught:
        load_profile(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_every_setting_is_read(write):
    profile = load_profile(write(COMPLETE))
    assert profile.name == "mine"
    assert profile.models == ("vgg_16_s", "resnet_50_s")
    assert (profile.dataset, profile.batch, profile.budget_s) == ("cifar10", 16, 90.0)
    assert profile.schedule is Schedule.FRESH
    assert profile.world_sizes == (1, 2, 8)
    assert profile.sampling == Sampling(
        looks=(8, 12),
        turns_min=2,
        turns_max=3,
        min_block_seconds=0.5,
        min_block_steps=7,
        startup_deadline_s=100.0,
        block_deadline_s=20.5,
    )
    assert profile.runs == Runs(epochs=3, wall_time_steps=2)
    assert profile.sentinels == ("resnet_v2_101_t",)
    assert profile.parity_from == 2
    assert profile.oversubscribed == ("vgg_16_s",)
    assert profile.questions == (Question.PARITY, Question.HOROVOD_OVERHEAD)
    assert profile.representatives == {Question.RECIPE: ("vgg_16_s",)}


def test_the_nightly_profile_asks_every_question_of_some_network_that_it_trains():
    nightly = load_profile("nightly")
    assert nightly.questions == ()
    assert all(set(models) <= set(nightly.models) for models in nightly.representatives.values())


def test_a_name_is_looked_up_in_the_directory(write, tmp_path):
    write(COMPLETE, name="weekly")
    assert load_profile("weekly", tmp_path).name == "weekly"
    assert "unknown profile 'nope': known are default, gpu, history, nightly" in complaint("nope")
    assert "absent.toml: cannot be read: No such file" in complaint(tmp_path / "absent.toml")


FOR_GPUS = ("gpu", "nightly-gpu", "vet")
SHIPPED = ["default", "gpu", "history", "nightly", "nightly-gpu", "smoke", "trust", "truth", "vet"]


def test_the_shipped_profiles_are_the_documented_ones():
    assert sorted(path.stem for path in PROFILES.glob("*.toml")) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_can_reach_a_verdict(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.sampling.looks[-1] >= 6  # fewer rounds bound nothing
    scale = Scale.FULL if name in FOR_GPUS else Scale.SMALL
    assert all(network(model).scale is scale for model in profile.models)
    assert profile.dataset == "cifar10" or name in FOR_GPUS


@pytest.mark.parametrize(("name", "looks"), LOOKS.items())
def test_error_rates_are_simulated_at_the_looks_of_the_shipped_profiles(name, looks):
    assert load_profile(name).sampling.looks == looks


def test_the_nightly_profile_has_every_small_network():
    small = {known.name for known in NETWORKS.values() if known.scale is Scale.SMALL}
    assert set(load_profile("nightly").models) == small
    thin = {known.name for known in NETWORKS.values() if known.scale is Scale.THIN}
    assert set(load_profile("nightly").sentinels) == thin


def test_the_profile_of_trust_injects_every_fault():
    assert set(load_profile("trust").fault_cases) == set(FAULT_CASES)
    assert not load_profile("default").fault_cases


def test_the_command_line_comes_before_the_profile():
    options = Options(
        models=("vgg_16_s, resnet_50_s", "lstm_s"),
        world_sizes="2,1",
        dataset="synthetic",
        batch_size=7,
        budget_minutes=1.5,
    )
    profile = resolve_profile(options)
    assert profile.models == ("vgg_16_s", "resnet_50_s", "lstm_s")
    assert profile.world_sizes == (1, 2)
    assert (profile.dataset, profile.batch, profile.budget_s) == ("synthetic", 7, 90.0)


def test_precision_is_a_share():
    assert resolve_profile(Options(precision="2.5%")).sampling.precision == 0.025
    for value in ("0%", "100%", "two%", "2", "mixed_bfloat16"):
        with pytest.raises(UserError, match="--precision"):
            _ = Options(precision=value).interval


@pytest.mark.parametrize("changes", [{"batch_size": 10**11}, {"image_size": 10**11}])
def test_what_no_tensor_can_hold_is_refused(changes):
    with pytest.raises(UserError, match=r"--\w+-size 10+: must be at most 2147483647"):
        resolve_profile(Options(**changes))


def test_one_fault_is_injected_and_a_second_is_refused():
    assert Options(inject=("kill",)).fault == "kill"
    assert Options().fault == ""
    with pytest.raises(UserError, match=r"--inject: .* kill and hang"):
        _ = Options(inject=("kill", "hang")).fault
