"""Bad input is one line, before anything is launched; good input says what will be measured."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.machine.host import Gpu, Machine
from hvdperf.machine.placement import Offer
from hvdperf.models import inputs
from hvdperf.models.inputs.sample_sets import write_cifar, write_tokens
from hvdperf.plan.arms import BlockKind, Workload
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.options import Options
from hvdperf.plan.questions import (
    FAULT_CASES,
    Fault,
    aa,
    at_gradient_sizes,
    communication,
    fault_cases,
    fixed_epochs,
    fixed_time,
    gradient_reductions,
    horovod_overhead,
    memory,
    overlap,
    parity,
    recipes,
    startup,
    strong_scaling,
    sweep,
    throughput,
    weak_scaling,
)
from hvdperf.plan.session_plan import SessionPlan, plan_session
from hvdperf.plan.thresholds import Line
from hvdperf.verdict import SpeedFloor

MACHINE = Machine("host", (0, 1, 2, 3), cpu_model="Some CPU")
GPU = Gpu("GPU-0", "NVIDIA V100")
BASE = Options(dataset="synthetic", models=("resnet_50_s",))


def session_plan(slots: int = 4, hosts: int = 1, cores: int = 4, **changes: Any) -> SessionPlan:
    offers = [
        Offer(rank, f"host{rank * hosts // slots}", tuple(range(cores))) for rank in range(slots)
    ]
    return plan_session(replace(BASE, **changes), MACHINE, offers)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"inject": ("slow:rank=1,world_size=1",)}, "this session has only the ranks 0 to 0"),
        ({"inject": ("slow:world_size=64",)}, "this session measures only the world sizes 1, 2, 4"),
        ({"inject": ("slow:ms=0",)}, "--inject slow:ms=0: this fault changes nothing"),
        ({"inject": ("skip",), "world_sizes": "1"}, "--inject skip: one replica exchanges"),
        ({"inject": ("data",)}, "--inject data: .* synthetic has none"),
    ],
)
def test_bad_input_is_one_line(changes, said):
    with pytest.raises(UserError, match=said):
        session_plan(**changes)


def test_ranks_that_the_training_data_is_too_small_for_are_refused(tmp_path):
    write_cifar(tmp_path / "images", "cifar10", records=10, seed=1)
    write_tokens(tmp_path / "words", sentences=20, words=50)
    images = partial(session_plan, slots=16, dataset="cifar10", data_dir=str(tmp_path / "images"))
    said = f"--data-dir: {tmp_path / 'images'}: 10 training samples cannot be shared by 16 ranks"
    with pytest.raises(UserError, match=said):
        images()
    assert images(world_sizes="1,10").world_sizes == (1, 10)
    words = partial(
        session_plan, dataset="ptb", data_dir=str(tmp_path / "words"), models=("lstm_s",)
    )
    assert words(slots=4).world_sizes == (1, 2, 4)
    with pytest.raises(UserError, match="training samples cannot be shared by 64 ranks"):
        words(slots=64)


def test_data_is_found_where_it_is(tmp_path):
    write_cifar(tmp_path, "cifar100", records=5, seed=1)
    (data,) = session_plan(dataset="cifar100", data_dir=str(tmp_path)).data.values()
    assert (data.dataset, data.directory, data.classes) == ("cifar100", str(tmp_path), 100)
    assert session_plan().data["synthetic"].directory == ""


# What is measured ------------------------------------------------------------------------------


def test_workloads_have_the_sizes_and_the_precision_that_are_asked_for():
    assert session_plan(slots=3).world_sizes == (1, 2, 3)
    assert session_plan(slots=4, world_sizes="1,3").world_sizes == (1, 3)
    assert session_plan().workloads[0].input_size == 32
    assert session_plan(image_size=64).workloads[0].input_size == 64
    assert session_plan(policy="mixed_bfloat16").workloads[0].precision == "mixed_bfloat16"
    assert session_plan(inject=("slow:rank=1,factor=2",)).fault == Fault("slow", 1, factor=2.0)
    assert session_plan().fault is None


def sizes(planned: SessionPlan, ask: Any, smallest: int = 1) -> list[int]:
    return [comparison.world_size for comparison in planned.comparisons(ask, smallest)]


def test_a_question_is_asked_of_every_workload_at_every_size():
    planned = session_plan(models=("vgg_16_s,resnet_50_s",), world_sizes="1,2,4")
    asked = [(c.workload.model, c.world_size) for c in planned.comparisons(weak_scaling, 2)]
    assert asked == [("vgg_16_s", 2), ("vgg_16_s", 4), ("resnet_50_s", 2), ("resnet_50_s", 4)]


def test_speeds_by_themselves_are_asked_by_a_line():
    planned = session_plan(models=("vgg_16_s,resnet_50_s",), world_sizes="1,2,4")
    assert planned.comparisons(throughput, 1) == []
    named = planned.comparisons(throughput, 4, anyway=True)
    assert [c.workload.model for c in named] == ["vgg_16_s", "resnet_50_s"]
    line = Line(("throughput", "vgg*", "np4", "one-node"), SpeedFloor.at(310.0))
    floors = replace(planned, thresholds=replace(planned.thresholds, lines=(line,)))
    assert [c.name for c in floors.comparisons(throughput, 1)] == ["throughput[vgg_16_s-np4]"]


def test_a_divided_batch_leaves_every_replica_a_sample():
    def ask(workload: Workload, world_size: int) -> Comparison:
        asked = communication(workload, world_size)
        return replace(asked, candidate=replace(asked.candidate, kind=BlockKind.SPLIT))

    planned = session_plan(batch_size=2)
    assert sizes(planned, strong_scaling) == sizes(planned, ask) == [1, 2]
    assert sizes(planned, weak_scaling) == [1, 2, 4]


def test_parity_begins_where_the_profile_says_and_stays_on_one_host():
    planned = session_plan()
    late = replace(planned, profile=replace(planned.profile, parity_from=2))
    assert sizes(late, parity) == [2, 4]
    assert sizes(late, communication) == [1, 2, 4]
    assert sizes(session_plan(hosts=2), parity) == [1, 2]


def test_two_stacks_are_compared_on_a_single_replica_too():
    def asked(**options):
        planned = session_plan(**options)
        return [c.world_size for c in planned.comparisons(weak_scaling, 2, against_from=1)]

    assert asked() == [2, 4]
    assert asked(against="python") == [1, 2, 4]
    (alone,) = session_plan(profile="nightly").comparisons(horovod_overhead, 1, largest=1)
    assert alone.world_size == 1


def variants(planned: SessionPlan, size: int) -> set[str]:
    asked = planned.comparisons(gradient_reductions, smallest=2)
    return {comparison.variant for comparison in asked if comparison.world_size == size}


def test_exchanges_are_asked_for_where_horovod_and_the_network_have_them():
    common = {"fp16", "group", "passes", "nofuse", "cycle"}
    nightly = partial(session_plan, profile="nightly")
    assert variants(nightly(world_sizes="2,3"), 2) == common | {"adasum"}
    assert variants(nightly(world_sizes="2,3"), 3) == common
    assert variants(nightly(launcher="agents"), 2) == common
    assert variants(nightly(models=("lstm_s",)), 2) == common | {"adasum", "dense"}
    assert variants(session_plan(), 2) == set(), "the default profile does not ask"


def test_language_models_train_on_words_beside_images_for_the_others(tmp_path):
    write_tokens(tmp_path)
    planned = session_plan(
        dataset="cifar10", models=("alexnet_s,lstm_s",), data_dir=f"ptb={tmp_path}"
    )
    assert [workload.dataset for workload in planned.workloads] == ["cifar10", "ptb"]
    assert planned.data["ptb"].directory == str(tmp_path)
    assert [workload.input_size for workload in planned.workloads] == [67, 20]


def test_image_size_is_meant_for_images():
    planned = session_plan(models=("vgg_16_s,lstm_s,dcgan_s",), image_size=48)
    assert [workload.input_size for workload in planned.workloads] == [48, 20, 64]


def test_half_precision_is_asked_where_the_machine_is_fast_at_it_or_the_user_wants_it():
    def asked(planned: SessionPlan) -> set[str]:
        return {comparison.variant for comparison in planned.comparisons(recipes, smallest=2)}

    nightly = partial(session_plan, profile="nightly", world_sizes="2")
    assert asked(nightly()) == {"bf16", "rate"}
    assert asked(nightly(policy="mixed_float16")) == {"bf16", "rate"}
    with_gpu = replace(nightly(), machine=replace(MACHINE, gpus=(GPU,)))
    assert asked(with_gpu) == {"bf16", "f16", "rate"}


def test_convergence_is_asked_where_there_is_something_to_validate(tmp_path):
    write_cifar(tmp_path, "cifar10", records=25, seed=1)
    nightly = partial(session_plan, profile="nightly", world_sizes="2")
    real = nightly(dataset="cifar10", data_dir=str(tmp_path), models=("resnet_50_s,dcgan_s",))
    models = {comparison.workload.model for comparison in real.comparisons(fixed_epochs, 2)}
    assert models == {"resnet_50_s"}, "nobody can say how good a generator is"
    assert nightly().comparisons(fixed_epochs, 2) == [], "the synthetic input is for training"
    apart = nightly(dataset="cifar10", data_dir=str(tmp_path), hosts=2, slots=2)
    references = {c.reference.arm.strategy.value for c in apart.comparisons(fixed_epochs, 2)}
    assert references == {"single"}, "MirroredStrategy has one host"


@pytest.mark.parametrize(("held_out", "asked"), [(0, []), (1, []), (2, [2]), (3, [2]), (4, [2, 4])])
def test_convergence_is_asked_where_every_rank_has_something_to_validate(tmp_path, held_out, asked):
    write_cifar(tmp_path, "cifar10", records=25, seed=1)
    planned = session_plan(profile="nightly", dataset="cifar10", data_dir=str(tmp_path))
    assert planned.extents == {("cifar10", 32): inputs.Extent(train=25, validation=5)}
    planned = replace(planned, extents={("cifar10", 32): inputs.Extent(25, held_out)})
    assert list(dict.fromkeys(sizes(planned, fixed_epochs, 2))) == asked
    # Samples in a given time are counted, and nothing is validated.
    assert sizes(planned, fixed_time, 2) == [2, 4]
    assert sizes(session_plan(profile="nightly"), fixed_time, 2) == [2, 4], "needs no data"


def test_injected_faults_are_asked_where_the_profile_names_it():
    def injected(planned, **options):
        asked = planned.comparisons(fault_cases, 1, **options)
        return [(c.variant, c.workload.model, c.world_size) for c in asked]

    assert injected(session_plan()) == []
    # Made-up data has no other, and one network says it all.
    shown = injected(session_plan(), anyway=True)
    assert {name for name, _, _ in shown} == set(FAULT_CASES) - {"data"}
    assert {model for _, model, _ in shown} == {"resnet_50_s"}
    with_files = session_plan(profile="trust", dataset="cifar10", models=("resnet_50_s",))
    assert ("data", "resnet_50_s", 2) in injected(with_files)
    trust = injected(session_plan(profile="trust", models=()), anyway=True)
    assert ("nofuse", "resnet_50_s", 2) in trust
    assert ("aa", "vgg_16_s", 1) in trust
    assert ("nofuse", "vgg_16_s", 2) not in trust
    of_one = injected(session_plan(profile="trust", models=("lstm_s",)))
    assert {model for _, model, _ in of_one} == {"lstm_s"}


def test_an_arm_is_compared_with_itself_once_a_session():
    (asked,) = session_plan(models=(), world_sizes="2").comparisons(aa, 2)
    assert asked.workload.model == "vgg_16_s"
    shared = session_plan(models=(), profile="default", slots=8, world_sizes="2,8")
    assert shared.oversubscribed_sizes() == [8]
    assert [c.world_size for c in shared.comparisons(aa, 2)] == [2]


def test_a_sentinel_is_traced_and_nothing_else(tmp_path):
    profile = tmp_path / "watch.toml"
    profile.write_text(
        'models = ["resnet_50_s"]\nsentinels = ["resnet_v2_101_t"]\ndataset = "synthetic"\n'
        "batch = 8\nbudget_s = 60\n"
    )
    planned = session_plan(profile=str(profile), models=(), world_sizes="2")
    asks = (startup, memory, communication, fixed_time, recipes, weak_scaling)
    asked = [c for ask in asks for c in planned.comparisons(ask, 1)]
    of_sentinel = [c.name for c in asked if c.workload.model == "resnet_v2_101_t"]
    assert of_sentinel == ["startup[trace-resnet_v2_101_t-np2]"]
    assert len(asked) > 5


def test_a_sweep_is_asked_once_a_world_size():
    planned = session_plan(profile="nightly", models=("vgg_16_s,resnet_50_s",), world_sizes="2,4")
    names = [comparison.name for comparison in planned.comparisons(sweep, 2)]
    assert len(names) == len(set(names)) == 2 * 4
    assert {comparison.workload.model for comparison in planned.comparisons(sweep, 2)} == {"sweep"}
    asked = planned.comparisons(at_gradient_sizes, 2)
    assert [(comparison.workload.model, comparison.world_size) for comparison in asked] == [
        *(("vgg_16_s", size) for size in (2, 4)),
        *(("resnet_50_s", size) for size in (2, 4)),
    ]


def test_representatives_are_networks_and_no_sweep():
    planned = session_plan(profile="nightly", world_sizes="2")
    few = {Question.COLLECTIVE_OVERHEAD: ("vgg_16_s",)}
    planned = replace(planned, profile=replace(planned.profile, representatives=few))
    assert len(planned.comparisons(sweep, 2)) == 4
    assert planned.comparisons(at_gradient_sizes, 2) == []


@pytest.mark.parametrize("ask", [sweep, at_gradient_sizes, overlap])
def test_collective_operations_are_asked_nightly_where_there_is_a_bare_transport(ask):
    planned = partial(session_plan, world_sizes="2")
    assert planned(profile="nightly").comparisons(ask, 2)
    assert planned(profile="nightly", launcher="agents").comparisons(ask, 2) == []
    for profile in ("default", "smoke"):
        assert planned(profile=profile).comparisons(ask, 2) == []


def test_a_step_of_words_exchanges_rows_and_has_no_overlap():
    planned = session_plan(profile="nightly", models=("lstm_s,resnet_50_s",), world_sizes="2")
    assert {c.workload.model for c in planned.comparisons(overlap, 2)} == {"resnet_50_s"}
    assert len(planned.comparisons(at_gradient_sizes, 2)) == 2


def test_a_question_has_its_representatives_unless_networks_are_named():
    def models(*named: str) -> set[str]:
        planned = session_plan(profile="nightly", models=named, world_sizes="2")
        return {comparison.workload.model for comparison in planned.comparisons(memory, 2)}

    assert models() == {"resnet_50_s", "lstm_s", "dcgan_s"}
    assert models("vgg_16_s") == {"vgg_16_s"}


def test_questions_that_the_profile_leaves_out_have_no_case():
    planned = session_plan()
    narrow = replace(planned, profile=replace(planned.profile, questions=(Question.PARITY,)))
    assert sizes(narrow, parity) == [1, 2, 4]
    assert sizes(narrow, communication) == []


def test_a_session_describes_itself_in_a_few_lines():
    planned = session_plan(batch_size=16, budget_minutes=2.5, world_sizes="1,2", launcher="agents")
    text = "\n".join(planned.describe())
    for part in ("default", "resnet_50_s", "synthetic", "16", "1, 2 on 4", "agents", "2.5 min"):
        assert part in text


@pytest.mark.parametrize(("early", "first"), [(True, 3), (False, 8)])
def test_it_is_said_after_how_many_rounds_cases_may_pass_or_fail(early, first):
    planned = session_plan()
    sampling = replace(planned.profile.sampling, early=early)
    told = replace(planned, profile=replace(planned.profile, sampling=sampling)).describe()
    assert f"PASS after {first} or more rounds, FAIL after 8 or 12; 4 to 8 turns" in "\n".join(told)


def test_thresholds_come_from_the_file_that_is_named(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'label = "mine"\n[match]\ndevice = "gpu"\n[thresholds]\n"weak_scaling/*/*/*" = 0.5\n'
    )
    assert session_plan(thresholds=str(file)).thresholds.label == (
        "mine, but its [match] is for other machines than 4 cores of Some CPU"
    )
