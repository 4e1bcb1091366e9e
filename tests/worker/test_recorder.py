"""The recorder of a training script, without a launch: with a made-up TensorFlow and Horovod, whose
clock the tests set, and in one process with the real ones."""

from __future__ import annotations

import builtins
import importlib
import io
import math
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hvdperf.paths import ROOT
from hvdperf.script.recorded import Rank, Steps, read_ranks
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.script.tap import _hvdperf_recorder as recorder

BEGIN = 1000.0
FUNCTION = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
TAP = ROOT / "hvdperf/worker/script/tap"


class Shape(tuple):
    rank = property(len)

    def num_elements(self) -> int:
        return math.prod(self)


class Tensor:
    """A tensor or a variable of the made-up TensorFlow. It has as many values as the product of its
    shape."""

    dtype = SimpleNamespace(size=4, is_numeric=True)
    device = "/job:localhost/replica:0/task:0/device:CPU:0"

    def __init__(self, *sizes: int, name: str = "w", value: float = 1.0) -> None:
        self.array = np.full(sizes, value, "float32")
        self.name = name

    @property
    def shape(self) -> Any:
        return Shape(self.array.shape)

    def _numpy(self) -> np.ndarray:
        return self.array

    def __getitem__(self, place: Any) -> Any:
        part = Tensor()
        part.array = self.array[place]
        return part

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


class Graph:
    outer_graph: Any = None
    inputs: Any = ()


class World:
    """One process whose time passes only when a test says so."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch, self.directory, self.at = monkeypatch, tmp_path, BEGIN
        self.eager, self.gpus, self.synced = True, 0, 0
        self.server: Any = None
        self.graph = Graph()
        self.ending: list[Callable[[], None]] = []
        self.left: list[int] = []
        self.tf = self._tensorflow()
        python: Any = ModuleType("tensorflow.python")
        eager: Any = ModuleType("tensorflow.python.eager")
        eager.context = self.tf
        for module in (self.tf, python, eager):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(sys.modules, "_hvdperf_private", private)
        monkeypatch.chdir(tmp_path)
        launchers = [name for pair in recorder.LAUNCHERS for name in pair]
        others = ("HVDPERF_STEPS", private.VARIABLE, "HOROVOD_ENABLE_ASYNC_COMPLETION")
        for name in (*others, *launchers):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HVDPERF_STAMPS", "0")
        monkeypatch.setenv("HVDPERF_RECORD", str(tmp_path))
        known = {"_state": None, "_hooks": {}, "tf": self.tf, "now": lambda: self.at}
        for name, value in known.items():
            monkeypatch.setattr(recorder, name, value)
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        monkeypatch.setattr(os, "_exit", self.left.append)
        monkeypatch.setattr("atexit.register", self.ending.append)
        monkeypatch.setattr("_thread.start_new_thread", lambda *_: None)
        monkeypatch.delitem(sys.modules, "multiprocessing.util", raising=False)
        recorder.install()

    def _tensorflow(self) -> Any:
        tf: Any = ModuleType("tensorflow")
        tf.executing_eagerly = lambda: self.eager
        tf.context = lambda: SimpleNamespace(_server_def=self.server)
        tf.config = SimpleNamespace(
            list_logical_devices=lambda kind: ["GPU"] * self.gpus,
            threading=SimpleNamespace(
                get_intra_op_parallelism_threads=lambda: 0,
                get_inter_op_parallelism_threads=lambda: 2,
            ),
            optimizer=SimpleNamespace(get_jit=lambda: ""),
        )
        tf.test = SimpleNamespace(experimental=SimpleNamespace(sync_devices=self._sync))
        tf.nest = SimpleNamespace(flatten=lambda batch, **_: list(batch))
        v1 = SimpleNamespace(
            executing_eagerly_outside_functions=lambda: True, get_default_graph=lambda: self.graph
        )
        tf.compat = SimpleNamespace(v1=v1)
        return tf

    def _sync(self) -> None:
        self.synced += 1
        self.at += 0.5

    def hook(self, name: str, **members: Any) -> Any:
        """Return a module with these members, as it is after it was imported."""
        module = SimpleNamespace(**members)
        recorder._hooks[name](module)
        return module

    def init(self, size: int = 2, rank: int = 1) -> Any:
        world: Any = self

        class HorovodBasics:
            def init(self, *arguments: Any) -> Any:
                world.at += 2.0
                return arguments

            def rank(self) -> int:
                return rank

            def size(self) -> int:
                return size

        basics = self.hook("horovod.common.basics", HorovodBasics=HorovodBasics).HorovodBasics()
        assert basics.init("a") == ("a",)
        return basics

    def functions(self) -> Any:
        """Return the class of functions, which take the seconds that they are called with."""
        world = self

        class Function:
            _jit_compile = False

            def __init__(self, body: Any = lambda: None, name: str = "step") -> None:
                self._python_function, self._name, self.traces = body, name, 0
                self.traced: Callable[[], Any] = lambda: None

            def _initialize(self) -> None:
                self.traces += 1
                world.eager = False
                self.traced()
                world.eager = True

            def experimental_get_tracing_count(self) -> int:
                return self.traces

            def __call__(self, seconds: float = 0.1, *_: Any) -> Any:
                if not self.traces:
                    self._initialize()
                world.at += seconds
                return self._python_function() if self._python_function else None

        self.hook(FUNCTION, Function=Function)
        return Function

    def exchange(self, seconds: float = 0.0) -> Callable[..., Any]:
        """Return what exchanges gradients, in so many seconds."""
        return self.horovod(seconds)._make_allreduce_grads_fn()  # type: ignore[no-any-return]

    def horovod(self, seconds: float = 0.0) -> Any:
        class _DistributedGradientTape:
            def register_local_source(self, source: Any) -> Any:
                return source

        def exchanged(grads: Any, _variables: Any = None) -> Any:
            self.at += seconds
            return grads

        return self.hook(
            "horovod.tensorflow",
            _make_allreduce_grads_fn=lambda *_, **__: exchanged,
            _DistributedGradientTape=_DistributedGradientTape,
            allreduce=lambda value, **_: value,
            allgather=lambda value: value,
        )

    def training(self, size: int = 2, **named: Any) -> Any:
        """Return a function that trains."""
        self.init(size)
        exchange, weights = self.exchange(), [Tensor(4, 5), Tensor(3)]

        def body() -> Any:
            self.eager = False
            try:
                return exchange(weights, weights)
            finally:
                self.eager = True

        return self.functions()(body, **named)

    def run(self, function: Any, count: int, between: float = 0.4, seconds: float = 0.1) -> None:
        for _ in range(count):
            self.at += between
            function(seconds)

    def stamp(self) -> None:
        """Have graphs stamped. Their variables have the values that tests give them."""

        class Variable:
            def __init__(self, values: list[float], **_: Any) -> None:
                self.values = values

            def numpy(self) -> list[float]:
                return self.values

        recorder._state.with_stamps = True
        self.tf.device = lambda _: nullcontext()
        self.tf.float64, self.tf.Variable = float, Variable

    def end(self) -> Rank:
        """Return what is written at the end of the process."""
        self.ending[0]()
        return self.read()

    def read(self) -> Rank:
        (rank,), refused = read_ranks(self.directory)
        assert not refused
        return rank


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # The recorder adds itself to it.
    monkeypatch.setattr("gc.callbacks", [])
    return World(tmp_path, monkeypatch)


def in_a_thread(call: Callable[..., Any], *arguments: Any) -> None:
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    thread.join()


def steps_of(rank: Rank) -> Steps:
    assert rank.missing == ()
    assert rank.steps is not None
    return rank.steps


# Steps -------------------------------------------------------------------------------------------


def test_a_step_lasts_from_the_end_of_the_one_before_to_its_own(world: World) -> None:
    world.run(world.training(), 10)
    rank = world.end()
    steps = steps_of(rank)
    assert (rank.rank, rank.size, rank.is_over, rank.pid) == (1, 2, True, os.getpid())
    assert recorder._state.ending.is_set()
    assert not recorder._state.beating.locked()
    assert (steps.name, steps.count, steps.traces) == ("step", 10, 1)
    assert (steps.exchanges, steps.updates, steps.others) == (True, False, False)
    assert rank.exchanged == {"step": (2, 4 * (4 * 5 + 3), 0)}
    assert [row.number for row in steps.rows] == list(range(10))
    assert steps.rows[0].before == steps.rows[0].begin == steps.begun
    assert [row.period for row in steps.rows[1:]] == pytest.approx([0.5] * 9)
    assert [row.end - row.begin for row in steps.rows] == pytest.approx([0.1] * 10)
    assert steps.rows[-1].end == steps.ended == pytest.approx(world.at)
    assert (steps.summed, round(steps.sums, 6)) == (6, 3.0), "the first four are the warm-up"
    assert steps.bins == ((round(math.log(0.5) / 0.01), 6),)
    assert {(row.ready, row.done, row.earlier, row.elsewhere) for row in steps.rows} == {(0,) * 4}


def test_the_slowest_steps_are_kept_with_the_slowest_first(world: World) -> None:
    train = world.training()
    order = [37 * number % 61 for number in range(61)]
    for number, place in enumerate(order):
        if place == 55:
            train.traces += 1
        world.run(train, 1, seconds=0.1 + 0.01 * place if number > 3 else 0.01)
    slowest = steps_of(world.end()).slowest
    expected = sorted(order[4:], reverse=True)[:32]
    assert [order[each.row.number] for each in slowest] == expected
    assert [order[each.row.number] for each in slowest if each.retraced] == [55]


@pytest.mark.parametrize(("size", "kept"), [(1, 512), (100, 327), (4000, 32)])
def test_ranks_keep_the_same_steps_in_pairs_and_together_so_many(
    world: World, size: int, kept: int
) -> None:
    train = world.training(size)
    world.run(train, 2 * kept - 1)
    assert len(recorder._state.series.copy().popitem()[1].rows) == 2 * kept - 1
    world.run(train, 1)
    numbers = [row.number for row in steps_of(world.end()).rows]
    assert numbers == [number for number in range(2 * kept) if number % 4 < 2]


def test_functions_made_in_a_loop_are_one_and_each_is_traced(world: World) -> None:
    train = world.training()
    for _ in range(5):
        world.run(type(train)(train._python_function), 1)
        # One that was restored has no code, and goes by its name.
        world.run(type(train)(None, "restored"), 1)
    rank = world.end()
    assert (steps_of(rank).count, steps_of(rank).traces) == (5, 5)
    assert [(each.name, each.count) for each in rank.series] == [("step", 5), ("restored", 5)]


def test_what_is_no_step_of_its_own_is_not_counted(world: World) -> None:
    train = world.training()
    inner = type(train)(lambda: 7, "inner")
    outer = type(train)(lambda: (inner(), train._python_function()), "outer")
    world.run(outer, 2)
    assert outer()[0] == 7

    def fail() -> None:
        raise ValueError("of the script")

    with pytest.raises(ValueError, match="of the script"):
        type(train)(fail, "failing")()
    in_a_thread(world.run, inner, 3)
    in_a_thread(train)
    rank = world.end()
    assert [(each.name, each.count) for each in rank.series] == [("outer", 3)]
    assert any("another thread" in each for each in rank.missing), "an exchange there is said"


def test_several_exchanges_of_a_step_add_up_but_not_those_of_two_traces(world: World) -> None:
    world.init()
    exchange, one, two = world.exchange(), [Tensor(2), Tensor(3)], [Tensor(5), Tensor(6)]
    sparse: Any = SimpleNamespace(values=Tensor(6), indices=Tensor(1))
    function = world.functions()

    def both() -> None:
        world.eager = False
        exchange([one[0], None], one)
        exchange([two[0], sparse], two)
        world.eager = True

    def loop() -> None:
        world.eager = False
        # The body of a loop is traced twice, in graphs within that of the function.
        for _ in range(2):
            inner, world.graph = world.graph, Graph()
            world.graph.outer_graph = inner
            exchange([two[0], sparse], two)
            world.graph = inner
        world.eager = True

    world.run(function(both, "both"), 1)
    world.graph = Graph()
    world.run(function(both, "both"), 1)
    world.run(function(loop, "loop"), 1)
    exchanged = world.end().exchanged
    assert exchanged == {"both": (3, 4 * (2 + 5 + 6), 1), "loop": (2, 4 * (5 + 6), 1)}


def test_a_compiled_step_has_no_stamps_and_says_so(world: World) -> None:
    train = world.training()
    world.stamp()
    plain = type(train)(lambda: recorder._state.jit, "plain")
    assert type(train)(plain, "around")() == 0
    type(train)._jit_compile = True
    world.run(train, 1)
    inner = type(train)(lambda: recorder._state.jit, "inner")
    outer = type(train)(lambda: (recorder._state.jit, inner(), recorder._state.jit), "outer")
    assert outer() == (1, 2, 1)
    assert any("jit_compile" in each for each in world.end().missing)
    assert recorder._state.jit == 0


def test_functions_of_one_name_are_apart_and_no_more_than_sixty_four(world: World) -> None:
    world.init()
    function = world.functions()
    for number in range(70):
        code = (lambda: None).__code__.replace(co_name=f"step{number}")
        world.run(function(FunctionType(code, {})), number + 1, between=0.0)
    found = [(each.name, each.count) for each in world.end().series]
    assert found == [("step", number + 1) for number in range(64)]


def test_when_the_first_trace_is_over_is_known_to_a_rank_of_the_suite(world: World) -> None:
    seen: list[Any] = []
    inits: list[bool] = []
    recorder.follow(seen.append, inits.append)
    train = world.training()
    world.run(train, 2)
    first, second = seen
    assert first is second
    assert inits == [False, True]
    assert first.traced_at == pytest.approx(BEGIN + 2.0 + 0.4)
    assert (first.rows[0].begin, first.rows[0].end) == pytest.approx((BEGIN + 2.4, BEGIN + 2.5))
    assert tuple(recorder.exchanged(first.name)) == (2, 4 * 23, 0)
    assert tuple(recorder.exchanged("none")) == (0, 0, 0)
    assert world.ending == [], "nothing is written"
    assert list(world.directory.iterdir()) == []


# Loops, sessions, other exchanges ----------------------------------------------------------------


def test_the_exchanges_of_a_loop_without_a_function_are_its_steps(world: World) -> None:
    world.init()
    horovod, exchange, weights = world.horovod(), world.exchange(seconds=0.25), [Tensor(3)]
    for _ in range(5):
        world.at += 0.75
        assert exchange(iter(weights), weights) == weights
        horovod.allreduce(1.0)
    rank = world.end()
    steps = steps_of(rank)
    assert (steps.name, steps.count, steps.traces) == ("a loop without tf.function", 5, 1)
    assert [row.done - row.ready for row in steps.rows] == pytest.approx([0.25] * 5)
    assert [row.period for row in steps.rows[1:]] == pytest.approx([1.0] * 4)
    assert [(row.input, row.earlier) for row in steps.rows] == [(0.0, 0.0)] * 5
    assert rank.exchanged == {"a loop without tf.function": (1, 12, 0)}
    assert rank.others == {"allreduce between steps": 5}
    assert recorder.calls_allreduce(SimpleNamespace(others=False, count=5))
    assert not recorder.calls_allreduce(SimpleNamespace(others=False, count=6))
    assert recorder.calls_allreduce(SimpleNamespace(others=True, count=6))


def test_exchanges_beside_gradients_are_counted_by_where_they_are(world: World) -> None:
    world.init()
    horovod = world.horovod()
    function = world.functions()
    gathers, own = function(lambda: None, "gathers"), function(lambda: None, "own")
    for each, exchange in (gathers, horovod.allgather), (own, horovod.allreduce):
        # A graph calls it in every step.
        each.traced = lambda exchange=exchange: (exchange(1), exchange(2))
    world.run(gathers, 3)
    world.run(own, 2)
    with_eager_functions = function(lambda: horovod.allreduce(3), "eager")
    with_eager_functions._initialize = lambda: None
    world.run(with_eager_functions, 5)
    world.at += 1.0
    assert horovod.allreduce(5) == 5
    # What Horovod itself calls for gradients does not count.
    module = world.hook(
        "horovod.tensorflow",
        _make_allreduce_grads_fn=lambda: lambda grads, _=None: list(map(horovod.allreduce, grads)),
    )
    module._make_allreduce_grads_fn()([Tensor(1)])
    rank = world.end()
    assert rank.others == {
        "allgather in steps": 2 * 3,
        "allreduce in steps": 2 * 2 + 5,
        "allreduce between steps": 1,
    }
    assert {each.name: each.others for each in rank.series}["own"]
    assert {each.name: each.traces for each in rank.series}["hvd.allreduce"] == 1
    assert not {each.name: each.others for each in rank.series}["gathers"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_with_a_gpu_an_exchange_of_a_loop_begins_when_its_gradients_are_there(
    ranks: int, world: World
) -> None:
    world.gpus = 1
    world.init(ranks)
    world.exchange()([Tensor(1)])
    assert world.synced == ranks - 1, "one rank exchanges nothing, and does not wait"
    (row,) = steps_of(world.end()).rows
    assert row.ready == row.done == pytest.approx(BEGIN + 2.0 + 0.5 * world.synced)


def test_a_run_of_a_session_is_a_step_if_it_exchanges_or_updates(world: World) -> None:
    world.init()

    def calls(*names: str) -> Any:
        """Return the attribute of a node that calls these functions."""
        listed = [SimpleNamespace(name=name) for name in names]
        return SimpleNamespace(func=listed[0], list=SimpleNamespace(func=listed[1:]))

    def node(kind: str, *attributes: Any) -> Any:
        return SimpleNamespace(op=kind, attr=dict(enumerate(attributes)))

    class Op:
        def __init__(self, kind: str, inputs: Any = (), control: Any = (), *more: Any) -> None:
            self.type, self.node_def = kind, node(kind, *more)
            self.inputs = tuple(SimpleNamespace(op=each) for each in inputs)
            self.control_inputs = tuple(control)

    sum_ = Op("Sum")
    sum_.control_inputs = (sum_,)
    by_input = Op("Apply", [sum_, Op("HorovodAllreduce")])
    names = {"named": SimpleNamespace(op=Op("NoOp", (), [by_input]))}
    functions = {
        "exchange": [node("HorovodAllreduce")],
        # A loop that calls itself.
        "loop": [node("While", calls("loop", "nothing", "not there", "exchange"))],
        "nothing": [],
    }
    library = [
        SimpleNamespace(signature=SimpleNamespace(name=name), node_def=nodes)
        for name, nodes in functions.items()
    ]
    graph = SimpleNamespace(
        as_graph_element=names.__getitem__,
        as_graph_def=lambda: SimpleNamespace(library=SimpleNamespace(function=library)),
    )

    class BaseSession:
        graph: Any = None

        def run(self, fetches: Any, *_: Any, **__: Any) -> Any:
            world.at += 0.2
            return fetches

    world.hook("tensorflow.python.client.session", BaseSession=BaseSession)
    session = BaseSession()
    session.graph, tensor = graph, SimpleNamespace(op=by_input)
    trains: list[Any] = ["named", [sum_, tensor], {"a": None, "b": (by_input,)}]
    trains += [Op("Call", (), (), calls("loop")), Op("HorovodGroupedAllreduce")]
    others = [Op("Call", (), (), calls("nothing")), Op("HorovodBroadcast"), object()]
    for fetches in [*trains, sum_, [None, sum_], {"a": sum_}, [], *others]:
        assert session.run(fetches) is fetches
    session.run(Op("ApplyAdam"))
    fed = np.full((6, 2), 3.0, "float32")
    assert session.run("named", {"x": fed, "rate": 0.1}) == "named"
    assert session.run("named", feed_dict={"x": fed + 1}) == "named"
    rank = world.end()
    assert [(each.name, each.count, each.exchanges, each.updates) for each in rank.series] == [
        ("a session's run", 7, True, False),
        ("a session's run", 1, False, True),
    ]
    assert rank.batches == tuple(zlib.crc32(each[:1].tobytes()) for each in (fed, fed + 1))
    assert len(rank.missing) == 1


def test_what_is_done_between_steps_has_a_term_of_its_own(world: World) -> None:
    train = world.training()

    def collect(seconds: float) -> None:
        recorder._collecting("start", {})
        world.at += seconds
        recorder._collecting("stop", {})

    def slow(value: Any) -> Any:
        collect(0.2)
        return value

    horovod = world.hook(
        "horovod.tensorflow", _make_allreduce_grads_fn=lambda: None, allgather=slow
    )
    other = type(train)(lambda: collect(0.07), "other")
    for _ in range(5):
        world.at += 0.4
        other(0.03)
        assert horovod.allgather(7) == 7
        collect(0.05)
        train()
    rank = world.end()
    counted = {each.name: each.count for each in rank.series}
    assert counted == {"other": 5, "hvd.allgather": 5, "step": 5}
    first, *rows = steps_of(rank).rows
    assert first.elsewhere == 0
    assert [row.elsewhere for row in rows] == pytest.approx([0.1 + 0.2] * 4)
    assert [row.exchanged for row in rows] == pytest.approx([0.2] * 4)
    assert [row.collected for row in rows] == pytest.approx([0.05] * 4)
    gathers = next(each for each in rank.series if each.name == "hvd.allgather")
    assert [row.done - row.ready for row in gathers.rows] == pytest.approx([0.2] * 5)
    assert not gathers.exchanges


def test_only_an_exchange_among_some_ranks_has_a_process_set(world: World) -> None:
    world.init(size=3)
    module = world.horovod()
    some, all_ = SimpleNamespace(ranks=[0, 2]), SimpleNamespace(ranks=[0, 1, 2])
    for process_set in (some, all_, some):
        module._make_allreduce_grads_fn("name", process_set=process_set)([Tensor(1)])
    module._make_allreduce_grads_fn(SimpleNamespace(ranks=[1]))
    own, metric = SimpleNamespace(ranks=[0, 1]), SimpleNamespace(ranks=[1, 2])
    module.allreduce(Tensor(1), process_set=metric)
    for process_set in (own, all_):
        world.functions()(partial(module.allreduce, Tensor(1), process_set=process_set))()
    sets = world.end().process_sets
    assert sets == ((0, 1), (0, 2)), "not of one that exchanges nothing, or between steps"


# Input -------------------------------------------------------------------------------------------


def batches(world: World, seconds: float = 0.05) -> Callable[..., Any]:
    """Return a function that gives the next batch of a data set."""

    class OwnedIterator:
        def __init__(self, name: str) -> None:
            # The batches of one are repeated without an end.
            length = {"train": -1, "validate": 10}[name]
            self._create_iterator(SimpleNamespace(cardinality=lambda: length))

        def _create_iterator(self, dataset: Any) -> Any:
            self.batch = None

        def _next_internal(self) -> Any:
            world.at += seconds
            return self.batch

    world.hook("tensorflow.python.data.ops.iterator_ops", OwnedIterator=OwnedIterator)
    iterators: dict[str, Any] = {}

    def following(batch: Any, name: str = "train") -> Any:
        iterator = iterators.setdefault(name, OwnedIterator(name))
        iterator.batch = batch
        return iterator._next_internal()

    return following


def test_waiting_for_a_batch_belongs_to_the_step_that_takes_it(world: World) -> None:
    train, following = world.training(), batches(world)
    given = [SimpleNamespace(shape=None), Tensor(), Tensor(32, 2, value=3.0)]
    for number in range(12):
        world.at += 0.1
        assert following(given) is given
        if number % 2:
            following([Tensor(8, 2)], "validate")
            following(given)
        world.run(train, 1, between=0.0)
    rank = world.end()
    steps = steps_of(rank)
    # Before the first step a batch may have made the model.
    assert [row.input_outside for row in steps.rows[1:]] == pytest.approx([0.15, 0.05] * 5 + [0.15])
    assert [row.input_within for row in steps.rows] == [0.0] * 12
    assert steps.samples == 32 * (6 * 1 + 6 * 2)
    content = zlib.crc32(np.full((1, 2), 3.0, "float32").tobytes())
    assert (rank.batches, rank.epoch) == ((content,) * 12, 10)


def test_a_batch_without_samples_or_of_another_thread_is_left_out(world: World) -> None:
    train, following = world.training(), batches(world)
    world.run(train, 2)
    following([Tensor()])
    batch = [Tensor(32)]
    with ThreadPoolExecutor(1) as other:
        assert other.submit(following, batch).result() is batch
    world.run(train, 1)
    rank = world.end()
    steps = steps_of(rank)
    assert (steps.samples, rank.batches, rank.epoch) == (0, (), 0)
    world.eager = False
    assert following(batch) is batch, "in a graph that is no step"
    assert steps.rows[-1].input_outside == pytest.approx(0.05)


def test_batches_of_a_loop_are_waited_for_before_its_steps(world: World) -> None:
    world.init()
    exchange, following = world.exchange(), batches(world)
    for _ in range(4):
        world.at += 0.2
        following([Tensor(4, 2)])
        world.at += 0.7
        exchange([Tensor(1)])
    steps = steps_of(world.end())
    assert [row.input for row in steps.rows[1:]] == pytest.approx([0.05] * 3)
    assert [row.begin - row.before for row in steps.rows[1:]] == pytest.approx([0.05] * 3)
    # The first one has no end of another before it.
    assert steps.rows[0].begin == steps.rows[0].ready
    assert steps.samples == 16


def test_the_samples_of_a_step_are_the_most_frequent_first_dimension() -> None:
    graph = Graph()
    assert recorder._batch_of(graph) == 0
    graph.inputs = [Tensor(), Tensor(1, 8), Tensor(3), Tensor(8, 2), Tensor(8)]
    assert recorder._batch_of(graph) == 8


def test_stamps_of_a_graph_are_those_of_the_call_in_which_they_lie(world: World) -> None:
    world.stamp()
    world.init()
    calls, taken = [0], [1, 1, 1, 1, 1, 2, 1, 1]

    def body() -> None:
        current, number = recorder._state.current, calls[0]
        current.exchanges = current.has_exchange_stamps = current.has_input_stamps = True
        exchanging, waiting = current.variables
        calls[0] += 1
        if number != 3:
            # Two exchanges, of 0.01 and 0.04 seconds.
            total = exchanging.values[2] + 0.05
            done = world.at - 0.02 * (number != 4)
            exchanging.values = [done - 0.04 * (number != 4), done, total]
        samples, waited, count = waiting.values[3:]
        counted = [samples + 16 * taken[number], waited + 0.02, count + taken[number]]
        waiting.values = [world.at - 0.09, world.at - 0.07, 7.0 + number, *counted]

    function = world.functions()(body)
    world.run(function, 5)
    steps = steps_of(world.end())
    ends = [row.end for row in steps.rows]
    one, others = [row for row in steps.rows if row.number == 3], steps.rows[:3] + steps.rows[4:]
    assert [(row.ready, row.done, row.earlier) for row in one] == [(0.0, 0.0, 0.0)]
    assert [row.done - row.ready for row in others] == pytest.approx([0.04] * 3 + [0.0])
    assert [row.end - row.done for row in others] == pytest.approx([0.02] * 3 + [0.0])
    assert [row.earlier for row in others] == pytest.approx([0.01] * 3 + [0.05])
    assert [row.input_within for row in steps.rows] == pytest.approx([0.02] * 5)
    assert [end - BEGIN - 2.0 for end in ends] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.5])
    assert steps.samples == 5 * 16
    assert world.read().batches == (7.0, 8.0, 9.0, 10.0, 11.0)
    world.run(function, 1)
    recorder._state.is_over = False
    rank = world.end()
    assert rank.steps is not None
    assert rank.steps.samples == 7 * 16
    assert len(rank.missing) == 1
    assert "several batches" in rank.missing[0]


def test_batches_that_are_arguments_are_compared_unless_a_data_set_gives_them(world: World) -> None:
    train, following = world.training(), batches(world)
    first, second = (np.full((4, 2), value, "float32") for value in (1.0, 2.0))
    train(0.1, first)
    train(0.1, second, "no batch", 3)
    train(0.1, *[first] * 9)
    contents = [zlib.crc32(each[:1].tobytes()) for each in (first, second)]
    # The content is known when the call is over, and there may be as many tensors as weights.
    assert recorder._state.batches == [contents[0], contents[1], contents[1]]
    following([Tensor(4, 2, value=3.0)])
    train(0.1, first)
    of_data = zlib.crc32(np.full((1, 2), 3.0, "float32").tobytes())
    assert world.end().batches[3:] == (of_data,)


# A GPU that runs behind ---------------------------------------------------------------------------


def test_a_gpu_that_runs_behind_is_let_end_now_and_then_and_less_often_later(world: World) -> None:
    world.gpus = 1
    train = world.training(size=1)
    # At the sixteenth step, and after it.
    for count, synced in (16, 1), (1, 2), (7 * 16, 16), (126, 16), (2, 18):
        world.run(train, count)
        assert world.synced == synced
    steps = steps_of(world.end())
    assert steps.alone is not None
    assert len(steps.alone) == 9
    assert np.allclose(steps.alone[0], (0.1, 0.6))
    # The wait for the GPU is no time of the script's own.
    assert [row.elsewhere for row in steps.rows[:17]] == pytest.approx([0.0] * 16 + [0.5])
    # All waits but the first one, and the one of the step after the last.
    assert (steps.summed, round(steps.sums, 6)) == (240, 240 * 0.5 + 16 * 0.5)


def test_a_tensor_that_the_script_reads_waits_for_its_gpu(world: World) -> None:
    class _EagerTensorBase:
        def _numpy(self) -> str:
            world.at += 0.3
            return "values"

    world.hook("tensorflow.python.framework.ops", _EagerTensorBase=_EagerTensorBase)
    world.gpus = 1
    train = world.training(size=1)
    value = _EagerTensorBase()
    assert value._numpy() == "values"
    # What a function reads within its call, or another thread, makes the script wait for nothing.
    reading = type(train)(value._numpy, "reading")
    for _ in range(4):
        world.run(train, 1)
        value._numpy()
    in_a_thread(value._numpy)
    world.run(reading, 1)
    world.run(train, 1)
    elsewhere = [row.elsewhere for row in steps_of(world.end()).rows[1:]]
    assert elsewhere == pytest.approx([0.3] * 3 + [0.3 + 0.4])


@pytest.mark.parametrize(
    ("size", "asynchronous", "behind"), [(2, "", 0), (2, "0", 0), (2, "1", 1), (1, "", 1)]
)
def test_a_gpu_runs_behind_unless_ranks_wait_for_each_other(
    world: World, size: int, asynchronous: str, behind: int
) -> None:
    world.gpus = 1
    world.patch.setenv("HOROVOD_ENABLE_ASYNC_COMPLETION", asynchronous)
    world.run(world.training(size), 16)
    assert world.synced == behind


# Updates and weights ------------------------------------------------------------------------------


def optimizers(world: World) -> Any:
    class Optimizer:
        def apply_gradients(self, grads_and_vars: Any, name: str = "") -> Any:
            return list(grads_and_vars), name

    world.hook("keras.src.optimizers.optimizer", Optimizer=Optimizer)
    return Optimizer


def test_an_update_without_an_exchange_is_a_step_of_a_loop(world: World) -> None:
    world.init()
    optimizer, weight = optimizers(world)(), Tensor(3, name="kernel", value=-2.0)
    for _ in range(4):
        world.at += 0.5
        assert optimizer.apply_gradients(iter([(1, weight)]), "n") == ([(1, weight)], "n")
    world.at += 0.5
    by_name = optimizer.apply_gradients(name="n", grads_and_vars=[(1, weight)])
    assert by_name == ([(1, weight)], "n")
    rank = world.end()
    steps = steps_of(rank)
    assert (steps.updates, steps.exchanges, steps.count) == (True, False, 5)
    assert [row.period for row in steps.rows[1:]] == pytest.approx([0.5] * 4)
    assert [(row.ready, row.done) for row in steps.rows] == [(0.0, 0.0)] * 5
    assert (rank.updated, rank.unexchanged) == (1, ())
    assert rank.weights == (("kernel", zlib.crc32(weight.array.tobytes()), -6.0, 6.0),)


def test_variables_that_are_updated_and_not_exchanged_are_named(world: World) -> None:
    world.init()
    horovod, optimizer = world.horovod(), optimizers(world)()
    both, inner, only, local = (Tensor(2, name=name) for name in ("both", "inner", "only", "local"))
    of_keras = Tensor(2)
    of_keras.value, of_keras.path = inner, "dense/kernel"  # type: ignore[attr-defined]
    tape = horovod._DistributedGradientTape()
    assert tape.register_local_source(local) is local
    horovod._make_allreduce_grads_fn()([both, inner], [both, inner])
    optimizer.apply_gradients([(1, each) for each in (both, of_keras, only, local)])
    alike = recorder.weights_of_all()
    assert alike == [zlib.crc32(both.array.tobytes())] * 3, "not the local one"
    rank = world.end()
    assert rank.unexchanged == ("only",)
    assert (rank.updated, rank.local) == (4, 1)
    assert sorted(name for name, *_ in rank.weights) == ["both", "dense/kernel", "local", "only"]
    assert steps_of(rank).count == 1, "the update after an exchange is the same step"


def test_without_updates_the_exchanged_variables_are_compared(world: World) -> None:
    world.init()
    weight = Tensor(2)
    world.exchange()([weight], [weight])
    assert recorder.weights_of_all() == [zlib.crc32(weight.array.tobytes())]
    assert world.end().weights == ()


def test_of_a_large_variable_some_values_are_compared_and_of_local_ones_none(world: World) -> None:
    world.init()
    weight, other = Tensor(3 << 22, name="large"), Tensor(1, name="other")
    optimizer = optimizers(world)()
    optimizer._local_vars = [weight, SimpleNamespace(deref=lambda: other)]
    optimizer.apply_gradients([(1, weight), (1, other)])
    assert recorder.weights_of_all() == []
    (_, _, total, size), _ = world.end().weights
    assert total == size == 1 << 22


def test_an_optimizer_without_an_update_of_its_own_is_left_alone(world: World) -> None:
    class Other(optimizers(world)):  # type: ignore[misc]
        pass

    world.hook("keras.src.optimizers.optimizer", Optimizer=Other)
    assert "apply_gradients" not in vars(Other)
    world.hook("keras.src.optimizers.legacy.optimizer_v2")


def test_updates_belong_to_the_function_or_have_seconds_of_their_own(world: World) -> None:
    class BaseOptimizer:
        _trainable_variables = (Tensor(1, name="known"),)

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            world.at += 0.3
            return grads, trainable_variables

    world.hook("keras.src.optimizers.base_optimizer", BaseOptimizer=BaseOptimizer)
    train, optimizer, weight = world.training(), BaseOptimizer(), Tensor(1, name="handed")
    within = type(train)(lambda: optimizer.apply([1]), "within")
    for _ in range(4):
        by_name = optimizer.apply(grads=[1], trainable_variables=[weight])
        assert by_name == optimizer.apply([1], [weight]) == ([1], [weight])
        within()
        train()
    rank = world.end()
    updates = {each.name: each.updates for each in rank.series}
    assert (updates["within"], updates["step"], rank.updated) == (True, False, 2)
    (rows,) = (each.rows[1:] for each in rank.series if each.name == "step")
    assert [row.applied for row in rows] == pytest.approx([0.6] * 3)
    assert [row.elsewhere for row in rows] == pytest.approx([0.4] * 3)


def test_variables_of_a_session_have_no_values_outside_of_it(world: World) -> None:
    world.init()
    world.tf.compat.v1.executing_eagerly_outside_functions = lambda: False
    optimizers(world)().apply_gradients([(1, Tensor(1))])
    rank = world.end()
    assert (rank.updated, rank.series) == (0, ())


# Ranks without Horovod ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "server", "is_recorded"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, None, True),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "of TensorFlow", False),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, None, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, None, False),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, None, False),
    ],
)
def test_a_rank_of_a_launcher_that_trains_without_horovod_is_recorded(
    variables: dict[str, str], server: Any, is_recorded: bool, world: World
) -> None:
    for name, value in variables.items():
        world.patch.setenv(name, value)
    recorder._state, world.server = recorder.State(), server
    optimizer, weight = optimizers(world)(), Tensor(1)
    for _ in range(3):
        world.at += 0.5
        optimizer.apply_gradients([(1, weight)])
    assert len(world.ending) == is_recorded
    if is_recorded:
        rank = world.end()
        assert (rank.rank, rank.size, rank.connected, rank.launched) == (1, 1, 0, (1, 2))
        assert steps_of(rank).count == 3


# Writing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_disabled", [False, True])
def test_a_rank_whose_steps_do_not_end_is_written_as_waiting(
    is_disabled: bool, world: World
) -> None:
    world.patch.delenv("HOROVOD_STALL_CHECK_TIME_SECONDS", raising=False)
    assert recorder._stall_s() == 60.0
    world.patch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "6")
    world.patch.setenv("HOROVOD_STALL_CHECK_DISABLE", str(int(is_disabled)))
    train = world.training()
    world.run(train, 5)
    recorder._write(False)
    last, stalled = world.at, world.directory / f"stalled-1-{os.getpid()}"
    assert world.read().waits is None
    # Whenever twice as long has gone by, and when Horovod calls it a stall.
    written = {1.9: None, 2.1: 2.1, 4.1: 2.1, 4.3: 4.3, 6.1: 4.3 if is_disabled else 6.1}
    for seconds, known in written.items():
        world.at = last + seconds
        assert not stalled.exists()
        recorder._write_if_quiet()
        waits = world.read().waits
        assert (waits and waits[1]) == (known and pytest.approx(known))
    assert waits is not None
    assert waits[0] == "", "it is in no exchange"
    assert waits[2].startswith("test_recorder.py:")
    assert stalled.exists() is not is_disabled
    recorder._state.current = recorder._state.series.copy().popitem()[1]
    world.at = last + 20.0
    recorder._write_if_quiet()
    waits = world.read().waits
    assert waits is not None
    assert waits[0] == "the allreduce of `step`"
    recorder._state.current = None
    world.run(train, 1, between=6.0)
    assert world.read().waits is None
    world.at += 2.5
    recorder._write_if_quiet()
    assert world.read().waits is not None
    assert not stalled.exists(), "the stall came to its end, and a pause began"


def test_where_a_script_is_between_steps_is_known_by_line(world: World) -> None:
    train = world.training()
    # The place of a main thread is noted by another one.
    main = threading.get_ident()
    with ThreadPoolExecutor(1) as beat:

        def while_it_waits(seconds: float) -> None:
            while sys._current_frames()[main].f_code.co_name != "wait":
                time.sleep(0.001)
            recorder._note_place(seconds)

        def note(seconds: float) -> None:
            beat.submit(while_it_waits, seconds).result()

        for _ in range(6):
            note(0.05)
            recorder._state.current = train
            note(7.0)
            recorder._state.current = None
            world.run(train, 1)
        note(0.2)
    rank = world.end()
    ((place, seconds),) = rank.places.items()
    assert place.startswith("test_recorder.py:")
    assert place.endswith(" (result)")
    assert seconds == pytest.approx(3 * 0.05), "not before the warm-up is over"
    assert list(rank.places_after.values()) == [0.2]


def test_what_the_recorder_does_between_steps_is_no_place_of_the_script(world: World) -> None:
    world.run(world.training(), 6)
    recorder._note_place(0.05)
    recorder._state.thread = -1  # one that has ended is nowhere
    recorder._note_place(0.05)
    assert world.end().places_after == {}


def test_settings_that_may_change_the_speed_are_written_without_secrets(world: World) -> None:
    hidden = {"HOROVOD_SECRET_KEY", "TF_VAR_password", "TF_TOKEN_app_terraform_io", "OF_A_TEST"}
    for name in ("NCCL_DEBUG", *hidden):
        world.patch.setenv(name, "x")
    world.tf.__version__ = "2.0.of-a-test"
    world.init()
    rank = world.end()
    assert rank.settings["NCCL_DEBUG"] == "x"
    assert not hidden & set(rank.settings)
    names = [f"{kind}_op_parallelism_threads" for kind in ("intra", "inter")]
    assert [rank.settings[name] for name in (*names, "jit")] == ["0", "2", "0"]
    assert rank.versions["tensorflow"] == "2.0.of-a-test"
    assert rank.versions["python"] == sys.version.split()[0]


def test_a_run_is_written_when_it_is_a_fifth_longer_and_at_least_every_half_minute(
    world: World,
) -> None:
    train, found = world.training(), [0]
    for _ in range(500):
        world.run(train, 1)
        files = list(world.directory.glob("rank-*.json"))
        if files and (count := world.read().series[0].count) != found[-1]:
            found.append(count)
    seconds = [0.5 * (after - before) for before, after in pairwise(found[1:])]
    assert found[1] == 1
    assert seconds[0] == 1.5
    for count, later in zip(found[2:], seconds, strict=True):
        # The step after which so much more than a fifth of the run has gone by.
        assert min(30.0, 0.1 * count) <= later <= min(30.5, 0.1 * count + 1.5)
    assert seconds[-1] == 30.5
    assert world.read().is_over is False


def test_a_script_ends_after_so_many_steps(world: World) -> None:
    world.patch.setenv("HVDPERF_STEPS", "5")
    recorder._state = recorder.State()
    train = world.training()
    world.run(train, 4)
    with pytest.raises(SystemExit) as ended:
        train()
    assert ended.value.code == 0
    with pytest.raises(SystemExit):
        # The made-up os._exit returns.
        train()
    assert world.left == [0]
    assert world.read().is_over
    assert steps_of(world.read()).count == 6


def test_a_script_that_leaves_at_once_is_written_and_ends_with_its_status(world: World) -> None:
    world.run(world.training(), 3)
    vars(os)["_exit"](4)
    assert world.left == [4]
    assert (world.read().is_over, steps_of(world.read()).count) == (False, 3)
    world.ending[0]()
    assert world.read().is_over
    vars(os)["_exit"](5)
    assert world.read().is_over, "the end is not written twice"


def test_a_process_that_was_forked_writes_nothing(world: World) -> None:
    train = world.training()
    world.patch.setattr(os, "getpid", lambda: 1)
    world.run(train, 10)
    world.ending[0]()
    vars(os)["_exit"](0)
    assert list(world.directory.iterdir()) == []
    assert world.left == [0]


def test_a_process_that_was_forked_and_calls_init_is_the_one_that_trains(world: World) -> None:
    world.patch.setattr(os, "getpid", lambda: 77)
    world.run(world.training(), 3)
    rank = world.end()
    assert (rank.pid, steps_of(rank).count) == (77, 3)


def test_a_process_of_multiprocessing_is_written_at_its_end(world: World) -> None:
    class Finalize:
        def __init__(self, _: Any, call: Any, exitpriority: int) -> None:
            assert exitpriority >= 0, "others are not called"
            world.ending = [call]

    world.patch.setitem(sys.modules, "multiprocessing.util", SimpleNamespace(Finalize=Finalize))
    world.run(world.training(), 3)
    assert steps_of(world.end()).count == 3


def test_a_rank_with_another_number_later_on_writes_one_file(world: World) -> None:
    world.init(rank=1)
    world.init(rank=0, size=3)
    rank = world.end()
    assert (rank.rank, rank.size) == (0, 3)
    assert [path.name for path in world.directory.glob("rank*")] == [f"rank-1-{os.getpid()}.json"]
    assert len(world.ending) == 1


def test_what_begins_is_an_event_and_there_is_an_end_of_them(world: World) -> None:
    def broadcast() -> str:
        world.at += 1.5
        return "done"

    world.init()
    module = world.hook("horovod.tensorflow.functions", broadcast_variables=broadcast)
    assert module.broadcast_variables() == "done"
    world.run(world.functions()(module.broadcast_variables), 1)
    for number in range(300):
        recorder._event("a", world.at)
        recorder._note_missing(f"{number % 280}")
    rank = world.end()
    events = [(name, round(end - begin, 6)) for name, begin, end in rank.events[:3]]
    assert events == [("hvd.init", 2.0), ("hvd.broadcast_variables", 1.5), ("a", 0.0)]
    assert (len(rank.events), len(rank.missing), rank.missing[-1]) == (256, 256, "255")


# Imports ------------------------------------------------------------------------------------------


def test_a_module_is_hooked_when_it_is_imported_and_its_time_is_known(world: World) -> None:
    package = world.directory / "of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 1\n")
    (package / "inner.py").write_text("VALUE = 2\n")
    world.patch.syspath_prepend(str(world.directory))
    hooked = []

    def fail(module: Any) -> None:
        hooked.append(module.VALUE)
        raise KeyError("gone")

    for name in ("of_a_test", "of_a_test.inner", "of_a_test.none"):
        recorder._hooks[name] = fail
        # It is forgotten at the end.
        world.patch.setitem(sys.modules, name, world.tf)
        world.patch.delitem(sys.modules, name)
    inner: Any = importlib.import_module("of_a_test.inner")
    assert (inner.VALUE, inner.__loader__.get_filename()) == (2, str(package / "inner.py"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("of_a_test.none")
    assert hooked == [1, 2]
    world.init()
    rank = world.end()
    assert [name for name, *_ in rank.events] == ["import of_a_test", "hvd.init"]
    assert [each.partition(":")[0] for each in rank.missing] == ["of_a_test", "of_a_test.inner"]
    assert rank.missing[0].endswith("KeyError: 'gone'")


def test_the_recorder_is_installed_once(world: World) -> None:
    state = recorder._state
    recorder.install()
    assert recorder._state is state
    assert sum(type(each).__name__ == "_Finder" for each in sys.meta_path) == 1
    # The process was started a while before this test.
    assert state.marks["process"] < BEGIN == state.marks["python"]


# Cores and pauses --------------------------------------------------------------------------------


def test_the_use_of_cores_is_that_after_the_warm_up(world: World) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    used = SimpleNamespace(ru_utime=1.0, ru_stime=0.5, ru_majflt=3, ru_maxrss=7, ru_nvcsw=0)

    def read(name: str, *_: Any) -> Any:
        seconds = int(world.at - BEGIN)
        if name == "/proc/stat":
            # user nice system idle iowait irq softirq steal guest
            user, steal = seconds * ticks, 2 * seconds * ticks
            others = " ".join(f"{seconds}" for _ in range(10))
            own = f"cpu0 {user} {user} {user} 77{seconds} 88{seconds} {user} 4 {steal} {user} 9"
            return io.StringIO(f"cpu  {others}\n{own}\ncpu1 {others}\nintr 5\n")
        if name.endswith("statm"):
            return io.StringIO(f"7 {10 * seconds} 5\n")
        if name.endswith("schedstat"):
            return io.StringIO(f"5 {seconds * 10**8} 5\n")
        return builtins.open(name, *_)

    world.patch.setattr(os, "sched_getaffinity", lambda _: {0})
    world.patch.setattr(os, "listdir", lambda _: ["1", "2", "3"])
    world.patch.setattr("resource.getrusage", lambda _: used)
    world.patch.setattr(recorder, "open", read, raising=False)
    train = world.training()
    world.at = BEGIN + 9.5
    world.run(train, 4)
    used.ru_utime, used.ru_stime, used.ru_majflt = 3.0, 1.5, 5
    world.run(train, 5, between=0.5)
    steps = steps_of(world.end())
    # From the end of the fourth call, at 11.5 s, until more than a second later, twice.
    assert steps.cpu == pytest.approx((2.4, 3.0, 0.2))
    assert steps.cores is not None
    assert steps.cores.cores == (0,)
    grown = 2 * 10 * os.sysconf("SC_PAGE_SIZE")
    assert steps.cores[1:-2] == pytest.approx((2.4, 12.0, 3.0, 2, 0.6, grown))
    world.patch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    world.run(train, 5, between=0.5)
    recorder._state.is_over = False
    assert steps_of(world.end()).cores is None, "it may use others since then"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (
            {
                "/proc/self/cgroup": "4:memory:/pod\n3:cpu,cpuacct:/pod\n0::/\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "150000",
                "/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000",
                "/sys/fs/cgroup/cpu/pod/cpu.stat": "nr_throttled 109\nthrottled_time 4700000000\n",
            },
            (1.5, 4.7),
        ),
        (
            {
                "/proc/self/cgroup": "0::/a host/pod\n",
                "/sys/fs/cgroup/cpu.max": "50000 100000",
                "/sys/fs/cgroup/cpu.stat": "nr_throttled 2\nthrottled_usec 250000\n",
            },
            (0.5, 0.25),
        ),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "max 100000"}, (0.0, 0.0)),
    ],
    ids=["version 1", "version 2 in a container", "no quota"],
)
def test_a_quota_and_what_it_withholds_are_known(
    files: dict[str, str], found: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str) -> Any:
        if path not in files:
            raise FileNotFoundError
        return io.StringIO(files[path])

    monkeypatch.setattr(recorder, "open", read, raising=False)
    assert recorder._quota() == pytest.approx(found)
    assert recorder._delayed() == 0.0, "this kernel does not say how long threads waited"


def test_a_pause_is_a_beat_that_comes_more_than_a_second_late(world: World) -> None:
    lasting = iter([1.05, 0.05, 0.08, 1.0, 1.06, 0.05, 3.0])
    state = recorder._state
    clock = [0.0]

    class Ending:
        def wait(self, seconds: float) -> bool:
            assert seconds == 0.05
            lasted = next(lasting, None)
            if lasted is None:
                return True
            clock[0] += lasted
            world.at += lasted
            return False

    def usage(_: Any) -> Any:
        elapsed = clock[0]
        return SimpleNamespace(
            ru_utime=elapsed / 4, ru_stime=elapsed / 4, ru_nvcsw=round(100 * elapsed), ru_maxrss=1
        )

    state.ending = Ending()
    world.patch.setattr(time, "clock_gettime", lambda _: clock[0])
    world.patch.setattr("resource.getrusage", usage)
    world.patch.setattr(recorder, "_delayed", lambda _=None: clock[0] / 10)
    recorder._guarded("pauses", recorder._beat)
    assert not state.beating.locked()
    assert state.missing == []
    first, second = state.pauses
    assert first == pytest.approx([BEGIN + 2.18, BEGIN + 3.24, 0.53, 0.106, 106, 100], abs=0.01)
    assert second[1] - second[0] == pytest.approx(3.0)


# The real ones -----------------------------------------------------------------------------------

REAL = """
import _hvdperf_recorder
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
first, second = (tf.Variable(tf.ones((8, 8)), name=name) for name in "ab")
optimizers = {weight.name: tf.keras.optimizers.SGD(0.01) for weight in (first, second)}

def update(x, weight):
    with tf.GradientTape() as tape:
        value = tf.reduce_mean((x @ weight) ** 2)
    (gradient,) = hvd.DistributedGradientTape(tape).gradient(value, [weight])
    optimizers[weight.name].apply_gradients([(gradient, weight)])

@tf.function
def from_within(data):
    x = next(data)[0]
    update(x, first)
    update(x, second)

@tf.function
def helper(x):
    return x + 1

@tf.function
def four(data):
    for _ in tf.range(4):
        update(next(data)[0], first)

for function, steps, value in ((from_within, 12, 2.0), (four, 8, 3.0)):
    data = iter(tf.data.Dataset.from_tensors(tf.fill((5, 8), value)).repeat().batch(3))
    for _ in range(steps):
        function(data)
        helper(tf.constant(1))
for each in _hvdperf_recorder._state.series.values():
    print(each.name, *map(int, each.counted[::2]))
"""


def test_graphs_of_the_real_tensorflow_are_stamped(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REAL)
    record, hidden = tmp_path / "record", tmp_path / "site"
    for directory in (record, hidden):
        directory.mkdir()
    (hidden / "sitecustomize.py").write_text("print('the own sitecustomize')\n")
    others = ("HVDPERF", "OMPI")
    own = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    own |= {"HVDPERF_RECORD": str(record), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**own, "PYTHONPATH": f"{TAP}{os.pathsep}{hidden}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [
        "the own sitecustomize",
        *("from_within 36 12", "helper 0 0", "four 96 32"),
    ], "samples and batches"
    (rank,), _ = read_ranks(record)
    within, _, four = rank.series
    facts = [(each.name, each.count, each.exchanges, each.updates) for each in rank.series]
    assert facts == [
        ("from_within", 12, True, True),
        ("helper", 20, False, False),
        ("four", 8, True, True),
    ]
    assert (within.samples, four.samples) == (12 * 3, 8 * 4 * 3)
    assert rank.exchanged == {"from_within": (2, 512, 0), "four": (1, 256, 0)}
    for row in (*within.rows, *four.rows):
        assert row.begin < row.ready <= row.done <= row.end
        assert 0 < row.input_within < row.end - row.begin
        assert row.input_outside == 0
        assert 0 <= row.earlier < row.end - row.begin
    # One rank exchanges in so little time that some are 0.
    assert sum(row.earlier for row in four.rows) > 0
    assert all(row.elsewhere > 0 for row in within.rows[1:])
    assert ["several batches" in each for each in rank.missing] == [True]
    # One digest a call, of the content of its last batch.
    first, *_, last = rank.batches
    assert rank.batches == (first,) * 12 + (last,) * 8
    assert first != last
    assert rank.code is not None
    assert (rank.code.top, rank.code.files) == (str(tmp_path), ("train.py",))
    assert len(rank.weights) == 2
    assert rank.unexchanged == ()
    assert rank.marks["process"] < rank.marks["python"]
    events = {name for name, _, _ in rank.events}
    assert {"import tensorflow", "import horovod.tensorflow", "hvd.init"} <= events
    assert rank.peak_memory > 100 << 20
