"""Records when a rank of a training script does what. The script is not changed, and behaves as
without it.

`hvdperf run` puts this directory on PYTHONPATH. Hooks are set when a module is imported, so a
process that never imports Horovod or TensorFlow pays for nothing, and only one that calls hvd.init
writes: to HVDPERF_RECORD/rank-R-PID.json, at its end and every WRITE_S seconds.

It needs nothing but the standard library, in Python 3.9 and later, until a hook finds TensorFlow
imported. A hook that does not fit disables itself, and says so in what is written. Times are
seconds since the epoch, by time.time(), which is also what tf.timestamp returns.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import gc
import heapq
import importlib.abc
import json
import math
import operator
import os
import resource
import socket
import sys
import threading
import time
import weakref
import zlib
from typing import Any, NamedTuple

FORMAT = 1
now = time.time
# Steps that all ranks together keep whole, and those of a rank: at least, at most. Twice as many
# are halved, so that each rank keeps the same ones, in pairs that follow each other.
KEPT_OF_ALL, LEAST_KEPT, MOST_KEPT = 32768, 32, 512
SLOWEST = 32
# Steps up to here are the warm-up, of which nothing but their times is summed up.
FIRST = 3
# The width of a bin of step times, in ln.
BIN = 0.01
# Seconds from one writing to the next, of the whole and of the one line for the display.
WRITE_S, LEAST_S = 30.0, 1.0
# Of a short run it is written whenever it has become so much longer.
EARLY = 0.2
# Seconds from one beat of a thread of ours to the next, and how late one is if nothing ran then.
BEAT_S, LATE_S = 0.05, 1.0
# Operations of a graph that exchange.
EXCHANGES = ("HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodAllgather")
# Functions of Horovod that add up over ranks, and those that give all ranks the values of one.
REDUCTIONS = ("allreduce", "grouped_allreduce")
BROADCASTS = ("broadcast", "broadcast_variables", "broadcast_object")
# Steps that are no calls of a function.
OF_LOOP, OF_SESSION = "a loop without tf.function", "a session's run"
# Of steps that a GPU does while the script goes on, every so many-th is measured alone; once there
# are so many, fewer are.
ALONE_EVERY, ALONE_OFTEN, ALONE_LATER = 16, 8, 128
# Values of a variable that are compared between ranks.
COMPARED = 1 << 22
# What `State.spent` counts, in seconds until now: calls of all functions, with their exchanges;
# these exchanges; updates by an optimizer outside of functions; Python's garbage collector, outside
# of all of them; and waiting for batches there.
CALLED, EXCHANGED, APPLIED, COLLECTED, WAITED = range(5)
# Beginnings of the names of variables that may change the speed of a rank, and of those of
# Terraform among them, which keeps passwords there.
PREFIXES = (
    *("HOROVOD_", "NCCL_", "TF_", "XLA_", "KERAS_", "ONEDNN_", "DNNL_"),
    *("OMP_", "KMP_", "MKL_"),
)
OF_OTHERS = (
    *("TF_VAR_", "TF_TOKEN_", "TF_CLI_", "TF_HTTP_", "TF_CLOUD_", "TF_REGISTRY_", "TF_LOG"),
    *("TF_WORKSPACE", "TF_INPUT", "TF_PLUGIN_", "TF_IN_AUTOMATION", "TF_DATA_DIR", "TF_IGNORE"),
)
# Batches whose content is compared between ranks, and functions and events that are told apart.
BATCHES, SERIES, EVENTS = 2048, 64, 256
# Of the first sample of a batch so many tensors are compared, and so many values of each.
TENSORS, VALUES = 8, 512
# Seconds without the end of a step after which all is written, and again when they have doubled.
QUIET_S = 2.0
# What is written of `State` as it is.
WRITTEN = (
    *("rank", "pid", "marks", "events", "missing", "pauses", "batches", "epoch"),
    *("places", "size", "connected", "launched"),
)
# What launchers call the number of a rank, and of how many. A batch script of Slurm has these of
# its job, but only srun sets those of a step.
LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


class Row(NamedTuple):
    """A call of a function of the script, in seconds since the epoch.

    number: of the call.
    before: the end of the call before.
    input_outside, input_within: seconds of waiting for input, before the call and within it.
    ready, done: when the last gradient was ready, and when all were exchanged; 0 where that is
    unknown or nothing was exchanged.
    elsewhere: seconds of calls of other functions since the call before.
    earlier: seconds of exchanges of this call before its last one.
    exchanged: seconds of `elsewhere` in which these functions exchanged.
    applied, collected: seconds of updates outside of functions, and of Python's garbage collector,
    since the call before.
    """

    number: int
    before: float
    begin: float
    end: float
    input_outside: float
    input_within: float
    ready: float
    done: float
    elsewhere: float = 0.0
    earlier: float = 0.0
    exchanged: float = 0.0
    applied: float = 0.0
    collected: float = 0.0

    @property
    def period(self) -> float:
        return self.end - self.before

    @property
    def input(self) -> float:
        return self.input_outside + self.input_within


class Steps:
    """The calls of one function of the script, or the exchanges of a loop without any. sums: of
    `summed` calls after the warm-up, of their times from end to end."""

    def __init__(self, name: Any) -> None:
        self.name = name
        self.count = self.traces = self.functions = 0
        self.exchanges = self.updates = self.others = False
        self.begun = self.ended = 0.0
        self.stride = 1
        self.rows: list[Any] = []
        self.slowest: list[Any] = []
        self.bins: dict[int, int] = {}
        self.summed, self.sums = 0, 0.0
        self.samples = 0
        # What was used until the warm-up ended, and from then on until some step.
        self.use: Any = None
        self.used: Any = None
        self.used_at = 0.0
        # Variables to which the graph writes its stamps, made before it is traced; whether it does.
        self.variables: Any = None
        self.has_exchange_stamps = self.has_input_stamps = False
        # What the graph has counted until the call before: samples, seconds of waiting, batches.
        self.counted = (0.0, 0.0, 0.0)
        # Seconds that exchanges of this function had taken, and `State.spent` at its last call.
        self.exchanging = 0.0
        self.spent: list[float] = []
        # How often each operation of Horovod was asked for while it was traced, and the samples of
        # a call by the shapes in its graph.
        self.asked: dict[str, int] = {}
        self.batch = 0
        # A weak reference to the graph of the trace that had the last exchange.
        self.graph: Any = lambda: None
        # When its first trace was done; 0 if that was not seen.
        self.traced_at = 0.0
        self.last: Any = None  # the Row of the last call
        # Of steps that began with an idle GPU: seconds until the call ended, and until the GPU had
        # done all; None if no GPU runs behind. Then the number of steps and the time of the first
        # and the last wait for the GPU, between which steps are summed; and what calls of all
        # functions had taken until the last one.
        self.alone: Any = None
        self.idle: list[Any] = []
        self.called_when_idle = 0.0

    @property
    def is_training(self) -> Any:
        return self.exchanges or self.others or self.updates

    def add(
        self, begin: Any, end: Any, within: Any, traces: Any, stamps: Any, earlier: Any
    ) -> None:
        """Add a call. within: seconds of waiting for input within it. traces: of the function until
        now. stamps: last gradient ready, all exchanged; () if that is unknown."""
        if not self.count:
            self.begun = self.ended = begin
        retraced = bool(self.count and traces > self.traces)
        self.traces = max(self.traces, traces)
        elsewhere, *others, waited = self.since()
        ready, done = stamps or (0.0, 0.0)
        times = (self.ended, begin, end, waited, within, ready, done, elsewhere, earlier, *others)
        row = self.last = Row(self.count, *[round(each, 6) for each in times])
        if self.count == FIRST and _state.at_step is None:
            self.use, self.used_at = _guarded("cores", _use), end
        if self.count > FIRST:
            if self.use is not None and end - self.used_at > LEAST_S:
                # Here, since a script may do much after its last step.
                self.used, self.used_at = _guarded("cores", _used_since, self.use), end
            period = max(end - self.ended, 1e-9)
            self.summed += 1
            self.sums += period
            place = round(math.log(period) / BIN)
            self.bins[place] = self.bins.get(place, 0) + 1
            entry = (period, retraced, row)
            push = heapq.heappush if len(self.slowest) < SLOWEST else heapq.heappushpop
            push(self.slowest, entry)
        if self.count % self.stride < 2:
            self.rows.append(row)
            if len(self.rows) >= 2 * _state.kept:
                self.stride = max(4, 2 * self.stride)
                self.rows = [each for each in self.rows if each.number % self.stride < 2]
        self.count += 1
        self.ended = end
        self.spent = _state.spent[:]

    def since(self) -> Any:
        """Return what has been spent since its last call."""
        return list(map(operator.sub, _state.spent, self.spent or _state.spent))

    def told(self) -> Any:
        found = {
            name: getattr(self, name)
            for name in (
                *("name", "count", "traces", "exchanges", "updates", "others"),
                *("begun", "ended", "rows", "summed", "sums", "samples", "alone", "batch"),
            )
        }
        found["slowest"] = [
            {"retraced": retraced, "row": row}
            for _, retraced, row in sorted(self.slowest, reverse=True)
        ]
        found["bins"] = sorted(self.bins.items())
        if len(self.idle) > 1:
            found["summed"], found["sums"] = map(operator.sub, self.idle[1], self.idle[0])
        if self.used is not None:
            found["cpu"], found["cores"] = self.used
        return found


class State:
    """What is known of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        values = [[os.environ.get(each, "") for each in pair] for pair in LAUNCHERS]
        numbers = (list(map(int, pair)) for pair in values if all(map(str.isdigit, pair)))
        self.launched = next(numbers, None)
        self.thread = threading.get_ident()
        self.directory = os.environ["HVDPERF_RECORD"]
        self.limit = int(os.environ.get("HVDPERF_STEPS") or 0)
        self.with_stamps = os.environ.get("HVDPERF_STAMPS", "1") == "1"
        self.marks: dict[str, float] = {}
        self.events: list[Any] = []
        self.missing: list[str] = []
        self.pauses: list[Any] = []
        self.place, self.code = os.getcwd(), None
        # Its file, which Python forgets when it has run to its end.
        self.script: Any = None
        self.series: dict[Any, Any] = {}
        self.rank: Any = None
        self.name = ""
        self.kept = MOST_KEPT
        # The number of ranks, at least 1, and how many of them Horovod connects.
        self.size, self.connected = 1, 0
        self.current: Any = None
        self.jit = 0
        # To the calls belongs waiting for a GPU that runs behind.
        self.spent = [0.0] * 5
        self.collecting = 0.0
        # Sampled seconds between steps, by place in the script: until the last step, and since.
        self.places: dict[str, float] = {}
        self.places_now: dict[str, float] = {}
        # Whether there is a GPU, and whether it runs behind the script; None until that is asked.
        self.has_gpu: Any = None
        self.runs_behind: Any = None
        # By name of the steps and by variable: bytes of its gradient, and whether it is sparse.
        self.exchanged: dict[str, dict[Any, Any]] = {}
        self.exchanged_variables: Any = weakref.WeakValueDictionary()
        self.updated: dict[int, Any] = {}  # by id: a weak reference and the name
        self.local: set[int] = set()
        self.process_sets: set[Any] = set()
        # Exchanges outside of gradients, by name of the function and place.
        self.others: dict[str, int] = {}
        # Above 0 in what is counted by itself: exchanges, updates, and waiting for input.
        self.in_gradients = 0
        # Of the newest batch its samples and something of its content; that of training steps.
        self.batch, self.content = 0, None
        # Batches of the longest data set of a known length.
        self.epoch = 0
        # The iterator that was asked last, and samples of each since the step before.
        self.iterator = 0
        self.taken: dict[int, int] = {}
        self.batches: list[Any] = []
        self.is_stopping = self.is_over = False
        # Called after each training step in place of all writing, by a rank of the suite's own.
        self.at_step: Any = None
        self.at_init: Any = None
        # Of TensorFlow 1: a weak reference to the newest session that trains, and what runs it.
        self.session: Any = (None, None)
        # Ends the beats; is held while there are any.
        self.ending, self.beating = threading.Event(), threading.Lock()
        self.written_at = 0.0
        # When the last step ended.
        self.moved_at = 0.0
        # The main thread may write while it writes: in the handler of a signal.
        self.writing = threading.RLock()


_state: Any = None
tf: Any = None  # as soon as the script has imported it
_hooks: dict[str, Any] = {}


def install() -> None:
    """Have modules hooked when they are imported."""
    global _state
    if _state is not None:
        return
    _state = State()
    _state.marks = {"process": _process_start(), "python": now()}
    _hooks.update(
        {
            "horovod.common.basics": _hook_init,
            "horovod.tensorflow": _hook_exchange,
            "horovod.tensorflow.functions": lambda module: _count_calls(
                module, "broadcast_variables", "broadcast_object", "allgather_object"
            ),
            "tensorflow": _hook_tensorflow,
            "tensorflow.python.framework.ops": _hook_values,
            "tensorflow.python.eager.polymorphic_function.polymorphic_function": _hook_function,
            "tensorflow.python.eager.polymorphic_function.concrete_function": _hook_concrete,
            "tensorflow.python.data.ops.iterator_ops": _hook_input,
            "tensorflow.python.client.session": _hook_session,
            "keras.src.optimizers.base_optimizer": _hook_optimizer,
            "keras.src.optimizers.optimizer": _hook_optimizer,
            "keras.src.optimizers.legacy.optimizer_v2": _hook_optimizer,
            "tf_keras.src.optimizers.optimizer": _hook_optimizer,
            "tf_keras.src.optimizers.legacy.optimizer_v2": _hook_optimizer,
            "tensorflow.python.training.optimizer": _hook_optimizer,
        }
    )
    sys.meta_path.insert(0, _Finder())


# Of a rank of the suite's own, which follows orders between steps --------------------------------


def follow(at_step: Any, at_init: Any) -> None:
    """Have `at_step` called with the Steps after each training step, and `at_init` with whether it
    is over before and after hvd.init; nothing is written then."""
    _state.at_step, _state.at_init = at_step, at_init


def exchanged(name: Any) -> Any:
    """Return the number of tensors, their bytes, and the number of sparse ones that steps of this
    name exchange."""
    sizes = list(_state.exchanged.get(name, {}).values())
    return len(sizes), sum(size for size, _ in sizes), sum(is_sparse for _, is_sparse in sizes)


def calls_allreduce(steps: Any) -> Any:
    """Return whether the script exchanges by hvd.allreduce itself in each of these steps, or as
    often between them."""
    between = [_state.others.get(f"{name} between steps", 0) for name in REDUCTIONS]
    return steps.others or sum(between) >= steps.count


def weights_of_all() -> Any:
    """Return a checksum of each variable that all ranks should have alike: those that an optimizer
    changed, or else whose gradients were exchanged. Those of a session are asked of it."""
    import numpy as np

    if _state.updated:
        own = [key for key, (_, _, plain) in _state.updated.items() if {key, plain} & _state.local]
        return [row[1] for row in _digests(own)]
    variables = list(_state.exchanged_variables.values())
    session, run = _state.session
    values = variables if session is None else run(session(), variables)
    return [zlib.crc32(np.asarray(each).tobytes()) for each in values]


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:
        if name not in _hooks:
            return None
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]
        found: Any = (each.find_spec(name, path, target) for each in others)
        spec = next(filter(None, found), None)
        loader: Any = spec and spec.loader
        load = getattr(loader, "exec_module", None)
        if load is None:
            return None

        def exec_module(module: Any) -> None:
            begin = now()
            load(module)
            # A loader of an archive loads its other modules, too.
            if module.__name__ == name:
                if "." not in name or name == "horovod.tensorflow":
                    _event(f"import {name}", begin)
                _guarded(name, _hooks[name], module)

        loader.exec_module = exec_module
        return spec


def _guarded(what: Any, call: Any, *arguments: Any) -> Any:
    """Call a hook; what goes wrong in it is written and nothing else."""
    try:
        return call(*arguments)
    except Exception as error:  # noqa: BLE001 - the script must not end because of a hook
        _note_missing(f"{what}: {type(error).__name__}: {error}")
        return None


def _as_it_is(hook: Any) -> Any:
    """Return a hook that AutoGraph calls as it is. It would read the hook's source, which an
    upgrade may have changed since it was imported, and what it makes of that fails."""
    hook.autograph_info__ = {}
    return hook


def _around(owner: Any, name: Any) -> Any:
    """Return a decorator that puts a hook in place of a function of a module or class. The hook is
    called with that function and with its arguments."""

    def put(hook: Any) -> None:
        original = getattr(owner, name)

        @_as_it_is
        def hooked(*arguments: Any, **named: Any) -> Any:
            return hook(original, *arguments, **named)

        setattr(owner, name, hooked)

    return put


def _note_missing(text: Any) -> None:
    if text not in _state.missing and len(_state.missing) < EVENTS:
        _state.missing.append(text)


def _event(name: Any, begin: Any) -> None:
    if len(_state.events) < EVENTS:
        _state.events.append([name, begin, now()])


def _process_start() -> Any:
    """Return when this process was started."""
    with open("/proc/self/stat") as stream:
        fields = stream.read().rsplit(")", 1)[1].split()
    up = float(_words("/proc/uptime")[0])
    return now() - up + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _delayed(thread: Any = None) -> Any:
    """Return the seconds for which a thread, or else the main one, could run and had no core; 0 if
    the kernel does not say."""
    found = _words(f"/proc/self/task/{thread or os.getpid()}/schedstat")
    return int(found[1]) / 1e9 if len(found) > 1 else 0.0


def _words(path: Any, separator: Any = None) -> Any:
    """Return the words of a file of the kernel; [] if there is none."""
    try:
        with open(path) as stream:
            return stream.read().split(separator)
    except OSError:
        return []


def _quota() -> Any:
    """Return how many cores the quotas of this process's cgroups allow, 0 without one, and the
    seconds for which they have withheld cores until now, of all cores together."""
    allowed, withheld = [], 0.0
    for group in filter(None, _words("/proc/self/cgroup", "\n")):
        _, controllers, path = group.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        place = "/sys/fs/cgroup" + "/cpu" * bool(controllers)
        # A container may not see the directories that the path has on its host.
        for name in ("", *filter(None, path.split("/"))):
            place = os.path.join(place, name).rstrip("/")
            limit = _words(f"{place}/cpu.max")
            limit = limit or _words(f"{place}/cpu.cfs_quota_us") + _words(
                f"{place}/cpu.cfs_period_us"
            )
            if limit and limit[0] not in ("max", "-1"):
                allowed.append(int(limit[0]) / int(limit[1]))
            words = _words(f"{place}/cpu.stat")
            counted = dict(zip(words[::2], map(int, words[1::2])))
            withheld += counted.get("throttled_usec", 0) / 1e6
            withheld += counted.get("throttled_time", 0) / 1e9
    return min(allowed, default=0.0), withheld


def _use() -> Any:
    """Return the cores that this process may use, with its quota of them, and, until now: time, CPU
    time of this process, seconds for which its main thread had no core, seconds for which the cores
    were not idle, of all programs, pages that the process had to wait for, seconds for which its
    threads had no core, of all together, bytes of memory, and seconds that the quota withheld."""
    cores = sorted(os.sched_getaffinity(0))
    names = {f"cpu{core}" for core in cores}
    ticks = 0
    with open("/proc/stat") as stream:
        for line in stream:
            name, *fields = line.split()
            if name in names:
                user, nice, system, _, _, *others = map(int, fields[:8])
                ticks += user + nice + system + sum(others)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, faults = used.ru_utime + used.ru_stime, used.ru_majflt
    waited = sum(map(_delayed, os.listdir("/proc/self/task")))
    memory = int(_words("/proc/self/statm")[1]) * os.sysconf("SC_PAGE_SIZE")
    busy = ticks / os.sysconf("SC_CLK_TCK")
    allowed, withheld = _quota()
    return (cores, allowed), now(), cpu, _delayed(), busy, faults, waited, memory, withheld


def _used_since(before: Any) -> Any:
    """Return seconds, CPU time and delay since then; and the cores, with the seconds, all of their
    work, this process's, pages, the wait of its threads, by how much its memory grew, the seconds
    that a quota withheld, and the quota; None if it may use others since then."""
    usable, *after = _use()
    seconds, cpu, delayed, busy, *others = map(operator.sub, after, before[1:])
    same = usable == before[0]
    cores, allowed = usable
    return [seconds, cpu, delayed], [cores, seconds, busy, cpu, *others, allowed] if same else None


def _beat() -> None:
    """Note when this process did not run: a thread that only sleeps woke up too late. What was done
    in the meantime tells a process that was stopped from one that had no core, and from one whose
    main thread did not give the interpreter away."""
    with _state.beating:
        before = _readings()
        usual = 0.0
        while not _state.ending.wait(BEAT_S):
            after = _readings()
            lasted, *used = map(operator.sub, after, before)
            if lasted > BEAT_S + LATE_S and len(_state.pauses) < EVENTS:
                end = now()
                _state.pauses.append([end - lasted, end, *used, usual])
            elif lasted < 2 * BEAT_S:
                usual = used[2] / lasted
            before = after
            _guarded("a stall", _write_if_quiet)
            _guarded("the script's place", _note_place, lasted)


def _readings() -> Any:
    """Return a clock that nobody sets and that does not stop when the machine is suspended, this
    process's CPU time, the seconds for which this thread had no core, and how often threads of the
    process began to wait."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    clock = time.clock_gettime(time.CLOCK_BOOTTIME)
    delayed = _delayed(threading.get_native_id())
    return clock, used.ru_utime + used.ru_stime, delayed, used.ru_nvcsw


def _collecting(phase: Any, _: Any) -> None:
    """Count the seconds of Python's garbage collector between steps."""
    if phase == "start":
        _state.collecting = now() if _is_between_steps() else 0.0
    elif _state.collecting:
        _state.spent[COLLECTED] += now() - _state.collecting


def _note_place(seconds: Any) -> None:
    """Note which line of the script, and which function called there, runs between steps."""
    frames, place = _stack()
    if not frames or _state.current is not None or _state.in_gradients:
        return
    # What the recorder does is not the script's: at the end, and while Python collects garbage.
    if _is_ours(frames[0]) or _is_ours(frames[-1]):
        return
    # TensorFlow and Keras wrap their functions in one of this name.
    theirs = [each.f_code.co_name for each in frames if not _is_ours(each)]
    names = [name for name in theirs if name != "error_handler"]
    name = f"{place} ({names[-2] if len(names) > 1 else names[0]})"
    if name in _state.places_now or len(_state.places_now) < EVENTS:
        _state.places_now[name] = _state.places_now.get(name, 0.0) + seconds


def _is_ours(frame: Any) -> Any:
    return frame.f_code.co_filename == _is_ours.__code__.co_filename


def _stack() -> Any:
    """Return the frames of the main thread from the innermost one to that of the script, and the
    line at which the script is; nothing of a thread that has ended."""
    frame: Any = sys._current_frames().get(_state.thread)
    if frame is None:
        return [], ""
    frames = [frame]
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
        frames.append(frame)
    return frames, f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _is_library(path: Any) -> Any:
    own = (os.path.dirname(os.__file__), os.path.dirname(__file__), "<")
    generated = "__autograph_generated_file" in path
    return generated or "-packages" in path or path.startswith(own)


# Start ------------------------------------------------------------------------------------------


def _leave(original: Any, status: Any) -> Any:
    """Stand for os._exit, with which many scripts end, so that they do not wait for a dead rank:
    their steps are written, and nothing is asked of TensorFlow."""
    if os.getpid() == _state.pid and not _state.is_over:
        _guarded("the end", _write, False)
    original(status)


def _hook_init(module: Any) -> None:
    @_around(module.HorovodBasics, "init")
    def init(original: Any, self: Any, /, *arguments: Any, **named: Any) -> Any:
        begin = now()
        if _state.at_init is not None:
            _state.at_init(False)
        result = original(self, *arguments, **named)
        _event("hvd.init", begin)
        _guarded("hvd.init", lambda: _initialised(self.rank(), self.size()))
        if _state.at_init is not None:
            _state.at_init(True)
        return result


def _initialised(rank: Any, size: Any) -> None:
    """Begin to record this process. size: of Horovod; 0 without it."""
    first = _state.rank is None
    _state.rank, _state.moved_at = rank, now()
    _state.thread = threading.get_ident()
    if first:
        _state.script = getattr(sys.modules["__main__"], "__file__", None)
        if os.getpid() != _state.pid:
            # The script trains in a process that it has forked.
            _state.pid, _state.marks["process"] = os.getpid(), _process_start()
        # An elastic job gives a process another rank later on; it still writes one file.
        _state.name = f"{_state.rank}-{_state.pid}"
    _state.size, _state.connected = max(1, size), size
    _state.kept = max(LEAST_KEPT, min(MOST_KEPT, KEPT_OF_ALL // max(1, size)))
    if first and _state.at_step is None:
        # What is registered last runs first, so Horovod is still there.
        atexit.register(_at_exit)
        gc.callbacks.append(_collecting)
        _around(os, "_exit")(_leave)
        # Not one of threading, whose threads the script may count or join.
        _thread.start_new_thread(_guarded, ("pauses", _beat))
        # A forked process of multiprocessing ends without atexit.
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:
            processes.Finalize(None, _at_exit, exitpriority=100)


def _train_without_horovod() -> None:
    """Begin to record a rank of a launcher that trains and has not called hvd.init, unless
    TensorFlow itself connects it with others."""
    from tensorflow.python.eager import context

    if _state.launched[1] > 1 and getattr(context.context(), "_server_def", None) is None:
        _initialised(_state.launched[0], 0)


def _hook_tensorflow(module: Any) -> None:
    global tf
    tf = sys.modules[module.__name__]


# Steps ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _apart(kind: Any = None) -> Any:
    """What is done in it is counted by itself. kind: of `State.spent`, to which its seconds are
    added; None for neither."""
    _state.in_gradients += 1
    begin = now()
    try:
        yield begin
    finally:
        _state.in_gradients -= 1
        if kind is not None:
            _state.spent[kind] += now() - begin


def _spent(kind: Any, call: Any, /, *arguments: Any, **named: Any) -> Any:
    """Call a function. Between steps its seconds are those of a kind."""
    if not _is_between_steps():
        return call(*arguments, **named)
    with _apart(kind):
        return call(*arguments, **named)


def _is_between_steps() -> Any:
    return _state.current is None and not _state.in_gradients and _is_main()


def _is_main() -> Any:
    """Return whether this is the thread that trains: the one that called hvd.init."""
    return threading.get_ident() == _state.thread


def _outermost(call: Any, self: Any, /, *arguments: Any, **named: Any) -> Any:
    """Call a function, and note its times if no other one is around it."""
    is_jit = bool(getattr(self, "_jit_compile", False))
    _state.jit += is_jit
    try:
        if _state.current is not None or _state.in_gradients or not _is_main():
            return call(self, *arguments, **named)
        steps = _state.current = _guarded("a step", _steps_of, self) or Steps("unknown")
        if steps.variables is None:
            steps.variables = _guarded("stamps", _make_variables) or ()
        begin = now()
        try:
            result = call(self, *arguments, **named)
        finally:
            end = now()
            _state.current = None
    finally:
        _state.jit -= is_jit
    if not _state.iterator and not steps.has_input_stamps and len(arguments) <= TENSORS:
        # Batches that do not come from tf.data.
        _guarded("a batch", _note_content, arguments)
    _guarded("a step", _add, steps, self, begin, end)
    return result


def _steps_of(function: Any) -> Any:
    """Return the steps of a function. One that is made anew for each step has those of the one
    before, by its code."""
    found = getattr(function, "_hvdperf_steps", None)
    if found is None:
        python: Any = getattr(function, "_python_function", None)
        while hasattr(python, "__wrapped__"):
            python = python.__wrapped__
        name = getattr(function, "_name", None) or getattr(function, "name", "") or "function"
        key = getattr(python, "__code__", None) or f"{name}"
        found = _state.series.get(key)
        if found is None:
            found = Steps(str(name))
            if len(_state.series) < SERIES:
                _state.series[key] = found
        found.functions += 1
        function._hvdperf_steps = found
    return found


def _make_variables() -> Any:
    """Return the variables for the stamps of the exchange and of the input. A function must not
    make any while it is traced."""

    if not _state.with_stamps or not tf.executing_eagerly():
        return ()
    with tf.device("CPU:0"):
        return [tf.Variable([0.0] * size, dtype=tf.float64, trainable=False) for size in (3, 6)]


def _add(steps: Any, function: Any, begin: Any, end: Any) -> None:
    traces = 1
    if hasattr(function, "experimental_get_tracing_count"):
        traces = function.experimental_get_tracing_count()
    # A function that is made anew is traced anew.
    traces += max(0, steps.functions - 1)
    within = 0.0
    if steps.has_input_stamps:
        asked, given, content, *counted = (float(x) for x in steps.variables[1].numpy())
        if begin <= asked <= given <= end:
            samples, within, batches = map(operator.sub, counted, steps.counted)
            _state.taken.clear()
            _state.batch, _state.content = int(samples), content
            if batches > 1:
                _note_missing("single steps of a call that takes several batches: it counts as one")
        steps.counted = tuple(counted)
    stamps: Any = ()
    earlier = 0.0
    if steps.has_exchange_stamps:
        ready, done, exchanging = (float(each) for each in steps.variables[0].numpy())
        # Stamps of an earlier call are those of a call in which nothing was exchanged.
        if begin <= ready <= done <= end:
            stamps = ready, done
            earlier = max(0.0, exchanging - steps.exchanging - (done - ready))
        steps.exchanging = exchanging
    steps.add(begin, end, within, traces, stamps, earlier)
    _spend(steps, end - begin, stamps[1] - stamps[0] + earlier if stamps else 0.0)
    if steps.is_training:
        # A session's run, which has no function, returns when its GPU is done.
        if function is not None and _state.at_step is None and _gpu_runs_behind():
            _guarded("a step alone", _measure_alone, steps, end)
        _trained(steps, end)


def _spend(steps: Any, seconds: Any, exchanged: Any) -> None:
    """Count a call, which is elsewhere for all functions but its own."""
    _state.spent[CALLED] += seconds
    _state.spent[EXCHANGED] += exchanged
    steps.spent = _state.spent[:]


# A GPU that runs behind ---------------------------------------------------------------------------
#
# A call only queues what a GPU has to do. The exchange of gradients makes each step wait for it;
# where there is none, the script goes on, and a stamp in the graph would make it wait.


def _gpu_runs_behind() -> Any:
    """Return whether a call ends before the GPU has done its step."""
    if _state.runs_behind is None:
        is_async = os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION", "0") not in ("", "0")
        _state.runs_behind = (is_async or _state.size == 1) and _has_gpu()
    return _state.runs_behind


def _has_gpu() -> Any:
    if _state.has_gpu is None:
        _state.has_gpu = bool(tf.config.list_logical_devices("GPU"))
    return _state.has_gpu


def _hook_values(module: Any) -> None:
    """Have the seconds in which the script reads a tensor, and so waits for a GPU, be those of a
    call."""

    @_around(module._EagerTensorBase, "_numpy")
    def numpy(original: Any, self: Any) -> Any:
        return _spent(CALLED, original, self) if _state.runs_behind else original(self)


def _measure_alone(steps: Any, end: Any) -> None:
    """Now and then let the GPU end its step, and note how long the next one takes alone, with the
    calls of other functions before it."""

    if steps.alone is None:
        steps.alone = []
    every = ALONE_EVERY if len(steps.alone) < ALONE_OFTEN else ALONE_LATER
    place = steps.count % every
    if place not in (0, 1) or steps.count <= FIRST:
        return
    tf.test.experimental.sync_devices()
    done = now()
    queued = _state.spent[CALLED] - steps.called_when_idle
    _state.spent[CALLED] += done - end
    if place == 0:
        steps.idle[1:] = [(steps.count, done)]
        steps.called_when_idle = _state.spent[CALLED]
    elif steps.idle:
        steps.alone.append([queued, queued + done - end])


def _trained(steps: Any, at: Any) -> None:
    """Note the batch of a training step, write now and then, and end the script if it is time."""
    # Of the iterator that was asked last: others are there to evaluate.
    taken = _state.taken.get(_state.iterator, 0)
    # Before the first step a batch may have made the model, or many may have been left out.
    steps.samples += taken if taken and steps.count > 1 else _state.batch
    _state.taken.clear()
    if _state.content is not None and len(_state.batches) < BATCHES:
        _state.batches.append(_state.content)
    if _state.at_step is not None:
        _state.at_step(steps)
        return
    _state.moved_at = at
    if _state.rank is None and _state.launched:
        _guarded("a rank without Horovod", _train_without_horovod)
    # What is done before the training begins does not count.
    places, _state.places_now = _state.places_now, {}
    for name, seconds in places.items() if steps.count > FIRST else ():
        _state.places[name] = _state.places.get(name, 0.0) + seconds
    # Of a script that is killed early most is known as well.
    is_due = at - _state.written_at > min(WRITE_S, max(LEAST_S, EARLY * (at - steps.begun)))
    if is_due and _state.rank is not None and os.getpid() == _state.pid:
        _write(is_last=False)
    if _state.limit and steps.count >= _state.limit:
        _stop()


def _stop() -> None:
    """End the script after HVDPERF_STEPS steps."""
    if _state.is_stopping:
        # The script has caught the first one.
        _at_exit()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    _state.is_stopping = True
    raise SystemExit(0)


def _hook_function(module: Any) -> None:
    _around(module.Function, "__call__")(_outermost)

    @_around(module.Function, "_initialize")
    def initialize(original: Any, /, *arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        steps = _state.current
        if steps is not None and not steps.traced_at:
            steps.traced_at = now()
        return result


def _hook_concrete(module: Any) -> None:
    _around(module.ConcreteFunction, "__call__")(_outermost)


def _hook_session(module: Any) -> None:
    known: dict[Any, Any] = {}

    @_around(module.BaseSession, "run")
    def run(original: Any, self: Any, fetches: Any, *arguments: Any, **named: Any) -> Any:
        begin = now()
        result = original(self, fetches, *arguments, **named)
        end = now()

        def note() -> None:
            key = (id(self.graph), repr(fetches))
            if key not in known and len(known) < EVENTS:
                known[key] = _kind_of(self.graph, fetches)
            kind = known.get(key)
            if kind:
                steps = _state.series.setdefault(kind, Steps(OF_SESSION))
                _state.session = weakref.ref(self), original
                setattr(steps, kind, True)
                feed = arguments[0] if arguments else named.get("feed_dict")
                _note_content((feed or {}).values())
                _note_missing("what happens within a session's run: input, communication, weights")
                _add(steps, None, begin, end)

        _guarded("a session", note)
        return result


def _leaves(fetches: Any) -> Any:
    """Yield what is fetched. A monitored session has a dictionary by its hooks, which cannot be
    sorted as TensorFlow would."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        for each in fetches:
            yield from _leaves(each)
    elif fetches is not None:
        yield fetches


def _exchanges(node: Any, unseen: Any) -> Any:
    """Return whether a node is an exchange of Horovod, or calls a function that needs one, such as
    a branch of an If. unseen: functions by name; one that is looked at is taken out."""
    if node.op.startswith(EXCHANGES):
        return True
    names = [f.name for value in node.attr.values() for f in (value.func, *value.list.func)]
    called = [unseen.pop(name) for name in names if name in unseen]
    return any(_exchanges(inner, unseen) for each in called for inner in each.node_def)


def _kind_of(graph: Any, fetches: Any) -> Any:
    """Return whether a session's run exchanges by Horovod, or changes variables by an optimizer
    without that; None for neither."""
    library = {each.signature.name: each for each in graph.as_graph_def().library.function}
    updates, seen = False, set()
    elements = (graph.as_graph_element(x) if isinstance(x, str) else x for x in _leaves(fetches))
    left = [getattr(each, "op", each) for each in elements]
    while left:
        op = left.pop()
        if op in seen or not hasattr(op, "inputs"):
            continue
        seen.add(op)
        if _exchanges(op.node_def, library):
            return "exchanges"
        updates |= "Apply" in op.type
        left += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return "updates" if updates else None


# The exchange -----------------------------------------------------------------------------------


def _hook_exchange(module: Any) -> None:
    @_around(module, "_make_allreduce_grads_fn")
    def make(original: Any, /, *arguments: Any, **named: Any) -> Any:
        inner = original(*arguments, **named)

        @_as_it_is
        def exchange(grads: Any, vars: Any = None, *more: Any, **named_too: Any) -> Any:
            grads = list(grads)
            _guarded("a process set", _note_process_set, *arguments, *named.values())
            with _apart():
                begun = _guarded("the exchange", _before_exchange, grads, vars)
                result = inner(grads, vars, *more, **named_too)
                if begun:
                    _guarded("the exchange", _after_exchange, begun, result)
                return result

        return exchange

    tape = getattr(module, "_DistributedGradientTape", None)
    if tape is not None and hasattr(tape, "register_local_source"):

        @_around(tape, "register_local_source")
        def register_local_source(original: Any, self: Any, source: Any) -> Any:
            _state.local.add(id(source))
            return original(self, source)

    _count_calls(module, *REDUCTIONS, "allgather", "broadcast", "alltoall")


def _note_process_set(*arguments: Any) -> None:
    """Note the ranks of each process set among arguments that is not that of all ranks."""
    ranks = [getattr(each, "ranks", None) for each in arguments]
    _state.process_sets.update(tuple(each) for each in ranks if each and len(each) < _state.size)


def _count_calls(module: Any, *names: Any) -> None:
    for name in names:
        if hasattr(module, name):
            _around(module, name)(functools.partial(_counted, name))


# What tf.cond and tf.while_loop are traced into.
_INNER_GRAPHS = ("CondBranchFuncGraph", "WhileBodyFuncGraph")


def _counted(name: Any, original: Any, /, *arguments: Any, **named: Any) -> Any:
    """Call an operation of Horovod, and count that. Between steps it is a call of a function that
    does nothing but exchange."""
    steps = _state.current
    is_eager = tf.executing_eagerly()
    is_apart = is_eager and _is_between_steps()
    if not _state.in_gradients:
        counts, key = _state.others, f"{name} {'in' if steps else 'between'} steps"
        if steps is not None and not is_eager:
            # In a graph a call is asked for while it is traced, and then made in every step, unless
            # it is in a branch or a loop.
            is_inner = type(tf.compat.v1.get_default_graph()).__name__ in _INNER_GRAPHS
            counts, key = steps.asked, f"{name} in {'branches of ' * is_inner}steps"
        counts[key] = counts.get(key, 0) + 1
        if name in REDUCTIONS and steps is not None:
            steps.others = True
            _guarded("a process set", _note_process_set, *arguments, *named.values())
    if not is_apart:
        return original(*arguments, **named)
    with _apart() as begin:
        result = original(*arguments, **named)
    _guarded("an exchange", _add_exchange, name, begin, now())
    return result


def _add_exchange(name: Any, begin: Any, end: Any) -> None:
    if name in BROADCASTS:
        _event(f"hvd.{name}", begin)
    steps = _state.series.setdefault(f"hvd.{name}", Steps(f"hvd.{name}"))
    steps.add(begin, end, 0.0, 1, (begin, end), 0.0)
    _spend(steps, end - begin, end - begin)


def _values(grads: Any) -> Any:
    """Return the tensors that are exchanged; of a sparse gradient its values."""
    return [getattr(each, "values", each) for each in grads if each is not None]


def _before_exchange(grads: Any, variables: Any) -> Any:
    """Note what is exchanged; stamp when the last gradient is ready."""

    tensors = _values(grads)
    steps = _state.current
    eager = tf.executing_eagerly()
    for each in variables or ():
        _state.exchanged_variables[id(each)] = each
    name = steps.name if steps is not None else OF_LOOP if eager else OF_SESSION
    graph = None if eager or steps is None else _outermost_graph()
    if graph is None or steps.graph() is not graph:
        _state.exchanged[name] = {}
    sizes = _state.exchanged[name]
    # The body of a loop is traced twice, with the same variables.
    keys = map(id, variables) if variables else range(len(grads))
    for key, each in zip(keys, grads):
        if each is not None:
            values = getattr(each, "values", each)
            size = values.dtype.size * (values.shape.num_elements() or 0)
            sizes[key] = size, values is not each
    if graph is not None:
        steps.graph = weakref.ref(graph)
        steps.batch = steps.batch or _batch_of(graph)
    if eager and steps is None:
        if _state.size > 1 and _has_gpu():
            # The gradients have only been queued.
            tf.test.experimental.sync_devices()
        return ("eager", now())
    if not eager and not _is_main():
        _note_missing("steps in another thread than the one that called hvd.init")
    if steps is not None:
        steps.exchanges = True
    if eager or steps is None or not steps.variables:
        return None
    if _gpu_runs_behind():
        return None
    if _state.jit:
        _note_missing("stamps in a step: it is compiled by XLA (jit_compile)")
        return None
    # Stamps are on the host also if the gradients are on a GPU.
    with tf.device("CPU:0"), tf.control_dependencies(tensors):
        return ("graph", tf.timestamp())


def _outermost_graph() -> Any:
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None and hasattr(graph.outer_graph, "inputs"):
        graph = graph.outer_graph
    return graph


def _batch_of(graph: Any) -> Any:
    """Return the samples of a step by the tensors that its graph takes or has captured: their most
    frequent first dimension; 0 if none is known."""
    shapes = [
        x.shape for x in getattr(graph, "inputs", ()) if x.dtype.is_numeric or x.dtype.is_bool
    ]
    sizes = [shape[0] for shape in shapes if shape.rank and (shape[0] or 0) > 1]
    return max(sizes, key=sizes.count, default=0)


def _after_exchange(begun: Any, result: Any) -> None:
    kind, ready = begun
    if kind == "eager":
        steps = _of_loop()
        steps.exchanges = True
        _add_of_loop(steps, ready, now())
        return
    steps = _state.current
    # A control edge on the outputs of a call that is inlined does not wait for their values, so the
    # stamp depends on copies of them.
    copies = [tf.identity(each) for each in _values(list(result))]
    with tf.device("CPU:0"), tf.control_dependencies(copies):
        now_done = tf.timestamp()
        # Of exchanges that run side by side no second is counted twice.
        _, before, seconds = tf.unstack(steps.variables[0].read_value())
        ready = tf.maximum(ready, before)
        done = tf.maximum(now_done, ready)
        stamps = tf.stack([ready, done, seconds + done - ready])
        steps.variables[0].assign(stamps, read_value=False)
    steps.has_exchange_stamps = True


def _of_loop() -> Any:
    """Return the steps of a loop without tf.function."""
    return _state.series.setdefault("loop", Steps(OF_LOOP))


def _add_of_loop(steps: Any, ready: Any, done: Any) -> None:
    """Add a step, which lies between the ends of two exchanges, or of two updates of a loop that
    exchanges by itself. ready: when the exchange began; 0 for an update."""
    # Whatever is known to be no computing is put before it.
    spent = steps.since()
    begin = (steps.ended or ready or done) + sum(spent) - spent[EXCHANGED]
    stamps = (ready, done) if ready else ()
    steps.add(min(begin, ready or done), done, 0.0, 1, stamps, 0.0)
    _trained(steps, done)


# Updates ----------------------------------------------------------------------------------------


def _updated(optimizer: Any, variables: Any) -> None:
    """Note which variables an optimizer changes: these, or all that it was built for."""
    # Variables of a session have no values outside of it.
    if not tf.compat.v1.executing_eagerly_outside_functions():
        return
    for each in getattr(optimizer, "_trainable_variables", ()) if variables is None else variables:
        inner = getattr(each, "value", None)
        plain = each if callable(inner) or inner is None else inner
        name = getattr(each, "path", None) or getattr(each, "name", "")
        _state.updated[id(each)] = (weakref.ref(each), str(name), id(plain))
    for each in getattr(optimizer, "_local_vars", ()):
        _state.local.add(id(getattr(each, "deref", lambda each=each: each)()))
    if _state.current is not None:
        _state.current.updates = True
    elif tf.executing_eagerly():
        steps = _of_loop()
        steps.updates = True
        if not steps.exchanges:
            _add_of_loop(steps, 0.0, now())


def _update(original: Any, self: Any, /, *arguments: Any, **named: Any) -> Any:
    """Update by an optimizer, and note which variables that changes."""
    # The first argument may be given by either name.
    by_name = (named.pop(name) for name in ("grads", "grads_and_vars") if name in named)
    grads, *more = (*arguments, *by_name)
    grads = list(grads)
    # Keras 3 has variables beside the gradients, others have pairs.
    variables: Any = [each[1] for each in grads if isinstance(each, (tuple, list))]
    variables = variables or (more[0] if more else named.get("trainable_variables"))
    _guarded("an optimizer", _updated, self, variables)
    return _spent(APPLIED, original, self, grads, *more, **named)


def _hook_optimizer(module: Any) -> None:
    """Hook the update of an optimizer. A class that inherits it is left alone."""
    for name in ("BaseOptimizer", "OptimizerV2", "Optimizer"):
        own = getattr(module, name, None)
        for method in ("apply", "apply_gradients"):
            if own is not None and method in vars(own):
                _around(own, method)(_update)
                return


# Input ------------------------------------------------------------------------------------------


def _hook_input(module: Any) -> None:
    @_around(module.OwnedIterator, "_next_internal")
    def next_internal(original: Any, self: Any) -> Any:
        """Eagerly, note the wait and the batch; in a graph, stamp before and after the batch."""
        from tensorflow.python.eager import context

        if context.executing_eagerly():
            result = _spent(WAITED, original, self)
            if _is_main():
                _guarded("a batch", _note_batch, self, result)
            return result
        asked = _guarded("input", _asked)
        if asked is None:
            return original(self)

        with tf.control_dependencies([asked]):
            result = original(self)
        _guarded("input", _given, asked, result)
        return result

    @_around(module.OwnedIterator, "_create_iterator")
    def create_iterator(original: Any, self: Any, dataset: Any) -> Any:
        _guarded("a data set", _note_epoch, dataset)
        return original(self, dataset)


def _note_epoch(dataset: Any) -> None:
    if tf.executing_eagerly():
        _state.epoch = max(_state.epoch, int(dataset.cardinality()))


def _asked() -> Any:
    if _state.jit or _state.current is None or not _state.current.variables:
        return None
    with tf.device("CPU:0"):
        return tf.timestamp()


def _given(asked: Any, result: Any) -> None:
    """Stamp when a batch has come in a graph, with something of its content, and count samples,
    waiting and batches, since a call may take several (steps_per_execution)."""

    leaves = list(tf.nest.flatten(result, expand_composites=True))
    count, content = tf.constant(0.0, tf.float64), tf.constant(0.0, tf.float64)
    tensors = [x for x in leaves if x.shape.rank and (x.dtype.is_numeric or x.dtype == tf.string)]
    # What a float holds exactly, of several sums.
    weights = tf.constant([[256.0**place for place in range(5)] + [0.0] * 3], tf.float64)
    with tf.device("CPU:0"), tf.control_dependencies(leaves):
        if tensors:
            count = tf.cast(tf.shape(tensors[0])[0], tf.float64)
        for each in tensors[:TENSORS]:
            marks = tf.fingerprint(tf.reshape(each[:1], [1, -1]))
            content += tf.reduce_sum(tf.cast(marks, tf.float64) * weights)
        given, one = tf.timestamp(), tf.constant(1.0, tf.float64)
        variable = _state.current.variables[1]
        counted = variable.read_value()[3:] + tf.stack([count, given - asked, one])
        variable.assign(tf.concat([[asked, given, content], counted], 0), read_value=False)
    _state.current.has_input_stamps = True


def _note_batch(iterator: Any, result: Any) -> None:
    leaves = tf.nest.flatten(result)
    first = next(
        (x for x in leaves if getattr(x, "shape", None) is not None and x.shape.rank), None
    )
    if first is None:
        return
    _state.batch, _state.iterator = int(first.shape[0]), id(iterator)
    _state.taken[id(iterator)] = _state.taken.get(id(iterator), 0) + _state.batch
    _note_content(tf.nest.flatten(result, expand_composites=True)[:TENSORS])


def _note_content(values: Any) -> None:
    """Note something of the content of a batch. values: its tensors or arrays; others are left
    out, and so are scalars."""
    arrays = []
    for each in values if len(_state.batches) < BATCHES else ():
        if hasattr(each, "_numpy") and each.shape.rank:
            # Without a copy of all, unless it is on a GPU.
            each = (each if "CPU" in each.device else each[:1])._numpy()
        if hasattr(each, "strides") and each.shape:
            arrays.append(each[:1].reshape(-1)[:: max(1, each[:1].size // VALUES)])
    content = 0
    for array in arrays:
        text = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        content = zlib.crc32(text, content)
    if arrays:
        _state.content = content


# Writing ----------------------------------------------------------------------------------------


def _at_exit() -> None:
    # A child of this process may end in the same way.
    if os.getpid() == _state.pid and not _state.is_over:
        _state.is_over = True
        _guarded("the end", _write, True)
        _guarded("the end", gc.callbacks.remove, _collecting)
        # No thread of ours is left when the interpreter ends.
        _state.ending.set()
        if _state.beating.acquire(timeout=1.0):
            _state.beating.release()


def _digests(without: Any = ()) -> Any:
    """Return for each variable that the optimizer changed its name, a checksum, its sum and the sum
    of its absolute values; of a large one, of some of its values. without: ids of variables."""
    import numpy as np

    found = []
    for key, (reference, name, _) in _state.updated.items():
        variable = reference()
        if variable is None or key in without:
            continue
        values = np.asarray(variable).reshape(-1)
        values = np.ascontiguousarray(values[:: max(1, values.size // COMPARED)])
        plain = values.astype(np.float64)
        found.append(
            [name, zlib.crc32(values.tobytes()), float(plain.sum()), float(abs(plain).sum())]
        )
    return found


def _code() -> Any:
    """Return which code of the user's runs: the directory that the script belongs to, the modules'
    files below it, a hash of their names and contents, and, of a revision, a file that ran in place
    of one that it has."""
    import hashlib

    import _hvdperf_private as private  # type: ignore[import-not-found]

    plan = json.loads(os.environ.get(private.VARIABLE, "{}"))
    at = os.path.realpath(plan.get("at") or private.top_of(private.Path(_state.place)))
    top = os.path.realpath(plan.get("top", at))
    names, elsewhere = {}, ""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    for path in {os.path.realpath(each) for each in (_state.script, *files) if each}:
        if _is_library(path):
            continue
        if private.is_below(path, at):
            names[os.path.relpath(path, at)] = path
        elif private.is_below(path, top) and plan.get("revision"):
            elsewhere = path
    for name in plan.get("changed", ()):
        dotted = os.path.splitext(name)[0].replace("/", ".")
        for imported in (dotted, dotted.partition(".")[2] if dotted.startswith("src.") else ""):
            found = sys.modules.get(imported.removesuffix(".__init__"))
            path = getattr(found, "__file__", None) or at
            if not private.is_below(os.path.realpath(path), at):
                elsewhere = path
    whole = hashlib.sha256()
    for name, path in sorted(names.items()):
        with open(path, "rb") as stream:
            whole.update(f"{name}\0".encode() + stream.read())
    _state.code = [top, sorted(names)[:EVENTS], whole.hexdigest(), elsewhere]
    return _state.code


def _unexchanged() -> Any:
    """Return the names of variables that were updated, are not local, and were never exchanged."""
    # Copies in one piece, since the main thread may add to both in the meantime.
    known = set(_state.exchanged_variables.data)
    return [
        name
        for key, (_, name, plain) in list(_state.updated.items())
        if key not in known and plain not in known and not {key, plain} & _state.local
    ]


def _write_if_quiet() -> None:
    """Write what is known while no step ends, as in a rank that waits for another one."""
    if _state.rank is None or _state.is_over:
        return
    quiet = now() - _state.moved_at
    before = max(QUIET_S / 2, _state.written_at - _state.moved_at)
    if quiet > 2 * before or before < _stall_s() <= quiet:
        what, place = _doing()
        _write(False, [what, quiet, place])


def _stall_s() -> Any:
    """Return the seconds after which Horovod calls it a stall."""
    if os.environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") not in ("", "0"):
        return math.inf
    return float(os.environ.get("HOROVOD_STALL_CHECK_TIME_SECONDS") or 60) or math.inf


def _doing() -> Any:
    """Return the exchange in which the main thread is, in words, "" for none, and at which line of
    the script."""
    frames, place = _stack()
    steps = _state.current
    if steps is not None:
        is_known = (steps.exchanges or steps.others) and (steps.traced_at or steps.count)
        return f"the allreduce of `{steps.name}`" if is_known else "", place
    of_horovod = [each for each in frames if f"{os.sep}horovod{os.sep}" in each.f_code.co_filename]
    calls = [each.f_code.co_name for each in of_horovod if not each.f_code.co_name.startswith("_")]
    names = [each.f_locals["name"] for each in of_horovod if each.f_locals.get("name")]
    what = f"hvd.{calls[0]}" if calls else ""
    return what + (f" ({names[0]})" if names else ""), place


def _write(is_last: Any, waits: Any = None) -> None:
    with _state.writing:
        if is_last or not _state.is_over:
            stalled, is_stall = f"stalled-{_state.name}", bool(waits) and waits[1] >= _stall_s()
            if not is_stall:
                # Whatever was waited for has come.
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(_state.directory, stalled))
            _state.written_at = now()
            _write_whole(f"rank-{_state.name}.json", _known(is_last, waits))
            if is_stall:
                _write_whole(stalled, waits[1])


def _known(is_last: Any, waits: Any) -> Any:
    """Return what is written of this rank."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    others = dict(_state.others)
    for steps in _state.series.values():
        for name, count in steps.asked.items():
            count *= steps.count / max(1, steps.traces)
            others[name] = others.get(name, 0) + round(count)
    found = {
        **{name: getattr(_state, name) for name in WRITTEN},
        "format": FORMAT,
        "host": socket.gethostname(),
        "arguments": sys.argv,
        "series": [each.told() for each in list(_state.series.values()) if each.count],
        "exchanged": {name: exchanged(name) for name in list(_state.exchanged)},
        "others": others,
        "updated": len(_state.updated),
        "local": len(_state.local),
        "process_sets": sorted(_state.process_sets),
        "unexchanged": _unexchanged()[:EVENTS] if _state.exchanged_variables else [],
        "waits": waits,
        "peak_memory": used.ru_maxrss * 1024,
        "written_at": now(),
        "is_over": is_last,
        "weights": [],
        "interpreter": sys.executable,
        "code": _guarded("the code", _code) if is_last or _state.code is None else _state.code,
        # Another thread adds to it.
        "places_after": dict(_state.places_now),
        "versions": _guarded("versions", _versions) or {},
        "settings": _guarded("settings", _settings) or {},
    }
    if is_last and _state.updated:
        found["weights"] = _guarded("the weights", _digests) or []
    return found


def _versions() -> Any:
    names = ("tensorflow", "horovod", "keras", "tf_keras")
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    return {"python": sys.version.split()[0], **{k: str(v) for k, v in found.items() if v}}


def _settings() -> Any:
    """Return variables that may change the speed, without secrets, and what the script has set of
    TensorFlow's threads and XLA."""
    known = (*PREFIXES, "NVIDIA_TF32", "OMPI_MCA_", "UCX_")
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(known) and not name.startswith(OF_OTHERS) and "KEY" not in name
    }
    config = getattr(sys.modules.get("tensorflow"), "config", None)
    if config is not None:
        for kind in ("intra", "inter"):
            name = f"{kind}_op_parallelism_threads"
            found[name] = str(getattr(config.threading, f"get_{name}")())
        found["jit"] = str(config.optimizer.get_jit() or 0)
    return found


def _write_whole(name: Any, found: Any) -> None:
    path = os.path.join(_state.directory, name)
    text = json.dumps(found, default=str)
    try:
        with open(f"{path}.new", "w") as stream:
            stream.write(text)
        os.replace(f"{path}.new", path)
    except OSError:
        # This needs no room. A rank that was killed while it wrote leaves the other name.
        os.replace(f"{path}.new", f"{path}.failed")
        raise
