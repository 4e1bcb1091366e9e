"""What is written is what was measured, whole, and of the form that results/schema promises."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hvdperf.judge.outcome import Outcome
from hvdperf.judge.scaling_breakdown import account
from hvdperf.launch.group import GroupFailed
from hvdperf.machine.disturbance import Culprit
from hvdperf.measure.records import Series
from hvdperf.plan.arms import BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.question import Question
from hvdperf.plan.questions import (
    bound,
    communication,
    exchanges,
    parity,
    startup,
    strong_scaling,
    sweep,
    wall_time,
    weak_scaling,
)
from hvdperf.results.documents import Store, disturbance_document, plain, session_name, write_json
from hvdperf.verdict import Band, Ceiling, Judgement, Verdict, judge
from hvdperf.worker.strategies.table import Strategy
from tests.support.marked import marked_round
from tests.support.rounds import (
    GRADIENTS,
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    MODEL_FACTS,
    WORKLOAD,
    disturbance,
    launch,
    one_round,
    outcome,
    run_report,
    series,
    series_report,
    usage,
)
from tests.support.stores import LATER, make_store, session_document

SCHEMAS = Path(__file__).resolve().parents[2] / "results" / "schema"
WEAK = weak_scaling(WORKLOAD, 2)
RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return loaded


CASE = jsonschema.Draft202012Validator(schema("case"))
SESSION = jsonschema.Draft202012Validator(schema("session"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "runs")


def written(store: Store, measured: Outcome) -> dict[str, Any]:
    text = store.write_case(measured).read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    document: dict[str, Any] = json.loads(text)
    CASE.validate(document)
    return document


@pytest.mark.parametrize("ask", [weak_scaling, strong_scaling, communication, parity])
def test_a_case_that_passed(store, ask):
    comparison = ask(WORKLOAD, 2)
    rule = Band(0.75, 1.33) if ask is parity else None
    document = written(store, outcome(comparison, RATIOS, rule))
    assert document["verdict"]["word"] == "PASS"
    assert document["plan"]["question"] == comparison.question.value
    assert document["observations"] == pytest.approx([math.log(ratio) for ratio in RATIOS])
    assert [measured["number"] for measured in document["rounds"]] == [0, 1, 2, 3, 4, 5]
    assert document["failure"] is None


def test_the_name_of_the_file_is_that_of_the_case(store):
    path = store.write_case(outcome(WEAK, RATIOS))
    assert path == store.directory / "weak_scaling-resnet_50_s-np2.json"


@pytest.mark.parametrize(("world_size", "placed"), [(2, [2]), (3, [2, 1]), (4, [2, 2])])
def test_replicas_are_counted_on_every_node(tmp_path, world_size, placed):
    store = make_store(tmp_path, slots=4, slots_per_node=2)
    document = written(store, outcome(weak_scaling(WORKLOAD, world_size), RATIOS))
    assert document["replicas_per_node"] == placed


def test_every_block_of_every_rank_is_written(store):
    (measured,) = written(store, outcome(WEAK, RATIOS[:1]))["rounds"]
    two, one = measured["launches"]
    assert (two["strategy"], two["world_size"]) == ("horovod", 2)
    assert (one["strategy"], one["world_size"]) == ("horovod", 1)
    assert [block["turn"] for block in two["blocks"]] == [0, 1, 2]
    assert [len(block["ranks"]) for block in two["blocks"]] == [2, 2, 2]
    block = two["blocks"][0]
    assert block["samples"] == 640
    assert block["seconds"] == max(rank["seconds"] for rank in block["ranks"])
    assert block["samples_per_second"] == pytest.approx(640 / block["seconds"])


def test_both_kinds_of_one_arm_are_one_launch(store):
    document = written(store, outcome(communication(WORKLOAD, 2), RATIOS))
    (launched,) = document["rounds"][0]["launches"]
    assert {block["kind"] for block in launched["blocks"]} == {"full", "local"}


def test_a_mirrored_launch_with_its_check(store):
    comparison = parity(WORKLOAD, 2)
    measured = outcome(comparison, RATIOS, Band(0.75, 1.33))
    checked = measured.rounds[0].launches[MIRRORED_2]
    checked.correctness = [{"loss": 0.5, "digests": ["c0de", "c0de"]}]
    document = written(store, measured)
    reference = document["rounds"][0]["launches"][1]
    assert reference["correctness"] == [{"loss": 0.5, "digests": ["c0de", "c0de"]}]
    assert len(reference["facts"]) == 1
    assert document["verdict"]["threshold"]["kind"] == "band"


@pytest.mark.parametrize("rank", [1, None])
def test_a_case_whose_launch_failed(store, rank):
    failure = GroupFailed(HOROVOD_2.name, rank, "first step", "it broke", ["[rank 1] last words"])
    measured = Outcome(WEAK, Judgement(Verdict.FAIL, None, None, 0, str(failure)), failure=failure)
    document = written(store, measured)
    assert document["failure"] == {
        "arm": "resnet_50_s horovod@2",
        "rank": rank,
        "phase": "first step",
        "cause": "it broke",
        "stderr_tail": ["[rank 1] last words"],
    }
    assert document["verdict"]["figure"] is None


def test_a_launch_that_failed_before_its_first_block(store):
    broken = one_round(WEAK, 0.9)
    broken.launches[HOROVOD_2] = launch(HOROVOD_2, {})
    broken.launches[HOROVOD_2].evidence = ()
    failure = GroupFailed(HOROVOD_2.name, 1, "block", "it broke", [])
    judgement = Judgement(Verdict.FAIL, None, None, 0, str(failure))
    document = written(store, Outcome(WEAK, judgement, rounds=(broken,), failure=failure))
    assert document["rounds"][0]["launches"][0]["blocks"] == []


def test_bounds_that_are_infinite_are_null(store):
    measured = outcome(WEAK, RATIOS[:2], verdict=Verdict.INVALID, reason="replicas differ")
    document = written(store, measured)
    assert document["verdict"]["figure"]["upper"] is None
    assert document["verdict"]["figure"]["lower"] == 0.0
    assert document["verdict"]["word"] == "INVALID"


def test_a_case_that_is_not_judged(store):
    shown = outcome(WEAK, RATIOS[:1], verdict=Verdict.NOT_JUDGED, reason="they share a core")
    shown = replace(shown, judgement=replace(shown.judgement, rule=None))
    document = written(store, shown)
    assert document["verdict"]["word"] == "NOT JUDGED"
    assert document["verdict"]["threshold"] is None


def test_a_start_up_is_held_against_a_ceiling(store):
    trace = startup(WORKLOAD, 2)[1]
    document = written(store, outcome(trace, [0.02] * 6, Ceiling(0.05)))
    assert document["case"] == "startup[trace-resnet_50_s-np2]"
    rule = {"kind": "ceiling", "at_most": 0.05, "unit": "s", "alpha": 0.025}
    assert document["verdict"]["threshold"] == rule


@pytest.mark.parametrize("late", [(0.0, 0.0), (0.0, 0.004)])
def test_a_case_on_wall_time_says_where_it_went(store, late):
    asked = wall_time(WORKLOAD, 2)[1]
    rounds = tuple(marked_round(asked, number, late=late) for number in range(6))
    judged = outcome(asked, [0.55] * 6)
    judged = replace(judged, rounds=rounds, account=account(asked, rounds))
    document = written(store, judged)
    assert document["case"] == "wall_time[strong-resnet_50_s-np2]"
    assert document["account"]["candidate"]["fixed"]["a_seconds"] == pytest.approx(3.5)
    assert (document["account"]["late"] is None) == (late == (0.0, 0.0))
    ours, theirs = document["rounds"][0]["launches"]
    assert [asked[0] for asked in ours["marks"]["asked"]] == ["run", "ablation", "close"]
    assert ours["marks"]["ranks"][1][0][0] == "import"
    assert ours["timeline"][0]["wire_seconds"] > 0
    assert theirs["met_run"] == theirs["timeline"] == []


def test_a_way_of_exchanging_is_named(store):
    document = written(store, outcome(exchanges(WORKLOAD, 2)[0], [0.9] * 6))
    assert document["case"] == "exchange[fp16-resnet_50_s-np2]"
    assert document["plan"]["candidate"]["exchange"] == "fp16"
    assert [arm["exchange"] for arm in document["rounds"][0]["launches"]] == ["fp16", ""]


def test_a_sweep_has_every_figure_of_its_operation(store):
    asked = sweep(WORKLOAD, 2)
    measured = outcome(asked[1], [4.0] * 6, Ceiling(20.0, unit=""))
    for launched in measured.rounds[0].launches.values():
        launched.series += one_round(asked[0], 4.0).launches[launched.arm].series
    document = written(store, measured)
    assert document["plan"]["collective"] == "allgather"
    horovod, bare = document["rounds"][0]["launches"]
    assert (horovod["strategy"], bare["strategy"]) == ("horovod", "bare")
    assert {each["collective"] for each in horovod["series"]} == {"allgather"}
    assert [each["bytes"] for each in horovod["series"][:2]] == [65536, 262144]
    assert len(horovod["series"]) == len(bare["series"]) == 3 * 7
    last = bare["series"][-1]
    assert (last["turn"], last["bytes"], last["seconds"]) == (2, 134217728, 0.01)
    assert last["algbw_gb_per_s"] == pytest.approx(13.4217728)
    assert last["busbw_gb_per_s"] == pytest.approx(6.7108864)
    assert [rank["seconds"] for rank in last["ranks"]] == [pytest.approx([0.009, 0.01, 0.012])] * 2


def test_a_bound_has_its_steps_and_its_exchange(store):
    document = written(store, outcome(bound(WORKLOAD, 2), [1.1] * 6, Ceiling(2.0, unit="")))
    assert document["plan"]["collective"] is None
    horovod, bare = document["rounds"][0]["launches"]
    assert {block["kind"] for block in horovod["blocks"]} == {"full", "local"}
    assert (bare["blocks"], len(bare["series"])) == ([], 3)


def test_an_exchange_that_was_not_possible_has_no_figures(store):
    measured = outcome(sweep(WORKLOAD, 2)[0], [4.0], verdict=Verdict.INVALID, reason="no mpi4py")
    bare = measured.rounds[0].launches[measured.comparison.reference.arm]
    bare.series = [Series(GRADIENTS, 0, [series_report([], problem="no mpi4py", library=None)] * 2)]
    (found,) = written(store, measured)["rounds"][0]["launches"][1]["series"]
    assert (found["seconds"], found["busbw_gb_per_s"]) == (None, None)


def test_what_is_not_a_number_is_null(store):
    measured = outcome(WEAK, RATIOS[:1])
    ranks: Any = measured.rounds[0].launches[HOROVOD_2].blocks[0].ranks
    ranks[1].update(loss=math.nan, seconds=math.inf)
    measured = replace(measured, observations=(math.nan, -math.inf))
    document = written(store, measured)
    first = document["rounds"][0]["launches"][0]["blocks"][0]
    assert first["ranks"][1]["loss"] is None
    assert first["seconds"] is None
    assert document["observations"] == [None, None]


def test_a_clock_that_stood_still_has_no_speed(store):
    measured = outcome(WEAK, RATIOS[:1], verdict=Verdict.INVALID, reason="not finite")
    ranks: Any = measured.rounds[0].launches[HOROVOD_2].blocks[0].ranks
    for rank in ranks:
        rank["seconds"] = 0.0
    block = written(store, measured)["rounds"][0]["launches"][0]["blocks"][0]
    assert block["seconds"] == 0.0
    assert block["samples_per_second"] is None


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_is_in_the_schema(store, verdict):
    document = written(store, outcome(WEAK, RATIOS[:1], verdict=verdict))
    assert document["verdict"]["word"] == verdict.value


def test_every_question_is_in_the_schema():
    known = schema("case")["properties"]["plan"]["properties"]["question"]["enum"]
    assert known == [question.value for question in Question]


def test_a_session(store):
    document = json.loads(
        store.write_session(session_document(WEAK.name, Verdict.INCONCLUSIVE)).read_text()
    )
    SESSION.validate(document)
    assert document["verdicts"] == {"weak_scaling[resnet_50_s-np2]": "INCONCLUSIVE"}
    assert document["schedule"] == "fresh"
    assert document["session"] == store.directory.name


# The schema itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["case", "session"])
def test_the_schemas_are_schemas(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


def fields(node: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema that stands for a field of a document."""
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items():
            yield f"{where}/{name}", field
        for key, child in node.items():
            yield from fields(child, f"{where}/{key}")
    elif isinstance(node, list):
        for child in node:
            yield from fields(child, where)


@pytest.mark.parametrize("name", ["case", "session"])
def test_every_field_is_described(name):
    undescribed = [where for where, field in fields(schema(name)) if not field.get("description")]
    assert undescribed == []


@pytest.mark.parametrize("name", ["case", "session"])
def test_every_time_and_size_says_its_unit(name):
    units = {"seconds": "second", "bytes": "bytes", "_ms": "ms", "_mib": "MiB", "_gib": "GiB"}
    silent = [
        where
        for where, field in fields(schema(name))
        for ending, unit in units.items()
        if where.endswith(ending) and "$ref" not in field and unit not in field["description"]
    ]
    assert [where for where in silent if not where.endswith("startup_seconds")] == []


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a document there are objects."""
    if isinstance(document, dict):
        yield path
        for key, child in document.items():
            yield from places(child, (*path, key))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*path, 0))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def test_an_extra_field_is_refused_wherever_it_is(store):
    document = written(store, checked())
    for path in places(document):
        broken = copy.deepcopy(document)
        at(broken, path)["surprise"] = 1
        assert not CASE.is_valid(broken), f"an extra field in {path} is accepted"


def test_a_missing_field_is_refused_wherever_it_is(store):
    document = written(store, checked())
    for path in places(document):
        for name in at(document, path):
            if name == "nccl" and path[-2:] == ("facts", 0):
                continue  # MirroredStrategy does not say
            if path[-2:] == ("startup_seconds", 0) and name != "init":
                continue  # of a network that is only traced, or of none; of a forked rank
            if path[-2:] == ("facts", 0) and name in MODEL_FACTS:
                continue  # where nothing is trained
            if name in LATER:
                continue
            broken = copy.deepcopy(document)
            del at(broken, path)[name]
            assert not CASE.is_valid(broken), f"{path} may lack {name}"


def checked() -> Outcome:
    """An outcome with something in every part of its document."""
    failure = GroupFailed(HOROVOD_1.name, 0, "block", "it broke", ["last words"])
    measured: Outcome = outcome(WEAK, RATIOS, failure=failure)
    sound = measured.rounds[0].launches[HOROVOD_2]
    sound.correctness = [{"loss": 0.5, "digests": ["c0de"]} for _ in range(2)]
    sound.run = [run_report() for _ in range(2)]
    sound.series = [series(0.01)]
    sound.blocks[0] = replace(sound.blocks[0], usage=usage(0.1))
    return measured


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["verdict"].update(word="FINE"),
        lambda d: d["plan"].update(world_size=0),
        lambda d: d["verdict"]["threshold"].update(kind="ceiling"),
        lambda d: d.update(format=3),
        lambda d: d["rounds"][0].update(launches=[]),
        lambda d: d["rounds"][0]["launches"][0]["blocks"][0].update(samples=0.5),
    ],
)
def test_values_that_mean_nothing_are_refused(store, change):
    document = written(store, outcome(WEAK, RATIOS))
    change(document)
    assert not CASE.is_valid(document)


def test_a_session_with_another_field_or_one_less_is_refused(store):
    document = json.loads(
        store.write_session(session_document(WEAK.name, Verdict.INCONCLUSIVE)).read_text()
    )
    assert not SESSION.is_valid({**document, "surprise": 1})
    for name in document:
        assert not SESSION.is_valid({key: document[key] for key in document if key != name})


def test_a_session_tells_who_disturbed_it(store):
    culprits = [Culprit("cc1", pid, 4.0) for pid in range(9)]
    rounds = [disturbance(0.0, 5.0), disturbance(0.4, 30.0, *culprits)]
    told = disturbance_document(rounds)
    document = {**session_document(WEAK.name, Verdict.INCONCLUSIVE), "disturbance": told}
    written_ = json.loads(store.write_session(document).read_text())
    assert SESSION.is_valid(written_)
    assert written_["disturbance"]["foreign_share"] == pytest.approx(0.2)
    assert "cc1, pid 0" in written_["disturbance"]["reason"]
    assert [len(each["culprits"]) for each in written_["disturbance"]["rounds"]] == [0, 5]
    for path in places(written_["disturbance"], ("disturbance",)):
        for name in at(written_, path):
            broken = copy.deepcopy(written_)
            del at(broken, path)[name]
            assert not SESSION.is_valid(broken), f"{path} may lack {name}"


def test_a_session_of_a_quiet_machine_blames_nobody():
    told = disturbance_document([disturbance(0.01)])
    assert told is not None
    assert told["reason"] == ""
    assert disturbance_document([]) is None


# Writing ---------------------------------------------------------------------------------------


def test_a_document_that_cannot_be_written_leaves_the_earlier_one(tmp_path):
    path = tmp_path / "case.json"
    write_json(path, {"written": 1})
    with pytest.raises(TypeError):
        write_json(path, {"written": object()})
    assert json.loads(path.read_text()) == {"written": 1}


def test_a_session_never_writes_into_another_ones_directory(store, tmp_path):
    with pytest.raises(FileExistsError):
        make_store(tmp_path / "runs", session=store.directory.name)


def test_session_names_sort_by_time():
    assert session_name()[8] == "T"
    assert session_name().partition("-")[0].endswith("Z")


def test_values_become_what_json_knows():
    value = {"a": (1, Strategy.MIRRORED), "b": [math.inf, {"c": math.nan}], 3: BlockKind.FULL}
    assert plain(value) == {"a": [1, "mirrored"], "b": [None, {"c": None}], "3": "full"}


def test_judgements_are_written_as_they_were_made(store):
    logs = [math.log(ratio) for ratio in RATIOS]
    rule = Band(0.95, 1.05)
    judged: Comparison = parity(WORKLOAD, 2)
    measured = replace(outcome(judged, RATIOS, rule), judgement=judge(logs, rule))
    document = written(store, measured)
    figure = measured.judgement.figure
    assert figure is not None
    assert document["verdict"]["figure"]["estimate"] == figure.estimate
    assert document["verdict"]["threshold"] == {
        "kind": "band",
        "low": 0.95,
        "high": 1.05,
        "alpha": 0.05,
    }
