"""A rank that runs a training script of the user's, in place of the suite's own loop.

The script is not changed. Between two of its steps, which the recorder sees (`tap`), the rank
carries out the orders of the driver: it lets the script go on for as many steps as a block has, and
then keeps it waiting.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from hvdperf.worker import process
from hvdperf.worker.process import Resumes, resident_bytes
from hvdperf.worker.protocol import Message, Phase, RankConfig
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.script.tap import _hvdperf_recorder as recorder
from hvdperf.worker.session_link import Driver, group_of, meet, message_of, settings

# Training steps with which a start-up ends: the first one, with its trace, and another one.
STEPS_OF_A_START = 2
STEPS_BETWEEN_READINGS = 25
# The directory of the suite, which ranks find its modules by.
ROOT = str(Path(__file__).resolve().parents[3])
# The seconds of the exchange end a step's own, so only steps with stamps have blocks without it.
UNSEEN = (
    "the exchange within a step is not seen, as in one that calls hvd.allreduce itself, that XLA "
    "compiles (jit_compile), or that a session runs, so its communication is not measured"
)
NO_EXCHANGE = (
    "no gradient is exchanged, so each rank trains by itself; hvdperf run --check tells what to do"
)


class BadScript(Exception):
    """A script cannot be measured; the message says why."""


class Order:
    """The steps of a block or of a run: begun, and counted until none is left."""

    def __init__(self, order: Message) -> None:
        self.name = order["op"]
        self.left: int = order["steps"]
        self.is_local = order.get("kind") == "local"
        self.period: list[float] = []
        self.input: list[float] = []
        self.exchange: list[float] = []
        self.inside = 0.0
        self.samples = 0
        self.memory: list[list[int]] = []
        self.resumes = Resumes.count
        self.begun = time.perf_counter()
        self.before = recorder.now()
        self.seconds = 0.0

    def count(self, steps: Any, samples: int, waited: float) -> None:
        """Count the last one of these steps. waited: seconds after it, for what it has queued."""
        row = steps.last
        # Gradients that are added up are not exchanged in every step.
        missing = 0.0 if steps.has_exchange_stamps else math.nan
        self.seconds = time.perf_counter() - self.begun
        self.period.append(row.end + waited - self.before)
        self.input.append(row.input)
        self.exchange.append(row.done - row.ready + row.earlier if row.done else missing)
        self.inside += row.end - row.begin - row.input_within + waited
        self.samples += samples
        self.before = row.end
        self.left -= 1
        if len(self.period) % STEPS_BETWEEN_READINGS == 0:
            self.memory.append([len(self.period), resident_bytes()])

    def block(self) -> dict[str, Any]:
        """Return what steps.run_block returns. A block without exchange is one of whole steps less
        the time from a rank's last gradient to the end of the exchange."""
        exchange = self.exchange if self.is_local else [0.0] * len(self.period)
        hidden = sum(exchange)
        if math.isnan(hidden):
            raise BadScript(UNSEEN)
        return {
            "seconds": self.seconds - hidden,
            "step_seconds": [one - other for one, other in zip(self.period, exchange)],
            "input_seconds": self.input,
            "inside_seconds": self.inside - hidden,
            "samples": self.samples,
            "loss": math.nan,
            "not_finite_at": None,
            "resumed": Resumes.count - self.resumes,
        }

    def check(self) -> dict[str, Any]:
        """Return the fields of session.control.FirstSteps."""
        return {
            "step_seconds": self.seconds / len(self.period),
            "samples": self.samples,
            "exchange_seen": not any(map(math.isnan, self.exchange)),
        }

    def run(self) -> dict[str, Any]:
        """Return what steps.run returns."""
        return {
            "seconds": self.seconds,
            "steps": len(self.period),
            "samples": self.samples,
            **dict.fromkeys(("epochs", "loss"), math.nan),
            "memory": self.memory,
            "timestamps": [],
            "curve": [],
        }


class ScriptRank:
    """Runs the script of a rank's config until the driver dismisses it."""

    def __init__(self, config: RankConfig, driver: Driver) -> None:
        self._config, self._driver = config, driver
        # The function whose calls are the steps; of several, the one that is called twice first.
        self._steps: Any = None
        self._order: Any = None
        self._samples = 0
        self._initialised = False
        self.path = ""
        # Of the thread that runs the script, in this process and not in one that it forks.
        self._runner = os.getpid(), threading.get_ident()
        self._exit = os._exit

    def run(self) -> None:
        """Run the script. Raises what it raises, and BadScript if it ends by itself."""
        driver, config = self._driver, self._config
        driver.enter(Phase.IMPORT)
        if config.rendezvous:
            meet(driver, config.rendezvous)
        self._set_environment()
        recorder.install()
        recorder.follow(self._at_step, self._at_init)
        os.register_at_fork(after_in_child=self._forked)
        os._exit = self._exits
        sys.argv = [self.path, *config.script[1:]]
        sys.path = [os.path.dirname(self.path), *(each for each in sys.path if each != ROOT), ROOT]
        try:
            runpy.run_path(self.path, run_name="__main__")
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise BadScript(f"it exited with status {ended.code}") from None
        raise BadScript(self._of_its_end())

    def _set_environment(self) -> None:
        """Restrict this rank, go to the directory of the script, and set what the script and the
        recorder read."""
        config = self._config
        top = private.restrict_rank()
        self.path = os.path.join(top, os.path.relpath(config.script[0], config.script_top))
        os.chdir(os.path.join(top, os.path.relpath(config.script_place, config.script_top)))
        os.environ["HVDPERF_RECORD"] = tempfile.gettempdir()
        own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(each for each in own if each != ROOT)
        threads = {
            "TF_NUM_INTRAOP_THREADS": config.intra_op,
            "TF_NUM_INTEROP_THREADS": config.inter_op,
            "OMP_NUM_THREADS": config.intra_op,
        }
        for name, count in threads.items():
            if count:
                os.environ.setdefault(name, f"{count}")

    def _of_its_end(self) -> str:
        count = 0 if self._steps is None else self._steps.count
        if not count:
            return (
                "it ended without a training step that was seen: a step is a call of a function, "
                "from the thread that called hvd.init, in which Horovod exchanges gradients"
            )
        return f"it ended after {count} steps, before the session had all of its steps; train more"

    # How it ends ---------------------------------------------------------------------------------

    def leave(self, status: int) -> NoReturn:
        """End this process. What the script has started would keep the connection open."""
        os._exit = self._exit
        children = getattr(sys.modules.get("multiprocessing"), "active_children", list)
        for child in children():
            child.kill()
        self._driver.close()
        process.leave(status)

    def _exits(self, status: int) -> NoReturn:
        """Take the place of os._exit, with which some scripts end."""
        if self._runner == (os.getpid(), threading.get_ident()):
            told = f"it exited with status {status}" if status else self._of_its_end()
            self._driver.fail(BadScript(told), told, of_user=True)
            self.leave(1)
        self._exit(status)

    def _forked(self) -> None:
        """End a process that the script has forked, such as a loader of data, with this one."""
        process.die_with_parent(self._runner[0])

    # Steps ---------------------------------------------------------------------------------------

    def _at_init(self, is_over: bool) -> None:
        if self._steps is None and not self._initialised:
            self._initialised = is_over
            self._driver.enter(Phase.BUILD if is_over else Phase.INIT)

    def _at_step(self, steps: Any) -> None:
        try:
            self._follow(steps)
        except Exception as error:  # noqa: BLE001 - the driver must know of any error
            self._driver.fail(error, message_of(error), of_user=isinstance(error, BadScript))
            self.leave(1)

    def _follow(self, steps: Any) -> None:
        """Count a step of the script; carry out orders until one of them needs more steps."""
        driver = self._driver
        if self._steps is None:
            if steps.count < STEPS_OF_A_START:
                return
            self._steps = steps
            self._end_start()
        elif steps is not self._steps:
            return
        else:
            driver.steps_begun += 1
            # A step of a script that shows no batches counts as one.
            samples = steps.samples - self._samples or 1
            waited = _wait_for_gpus() if self._order.left == 1 else 0.0
            self._order.count(steps, samples, waited)
        self._samples = steps.samples
        if self._order is not None:
            if self._order.left:
                self._delay()
                return
            driver.reply(self._result())
            driver.enter(Phase.READY)
        self._begin_next()

    def _result(self) -> dict[str, Any]:
        """Return the result of the order whose steps are done."""
        order: Order = self._order
        steps = self._steps
        if order.name == Phase.RUN:
            return order.run()
        if order.name == Phase.BLOCK:
            return order.block()
        exchanges = recorder.exchanged(steps.name)[0] or recorder.calls_allreduce(steps)
        if self._config.world_size > 1 and not exchanges:
            raise BadScript(NO_EXCHANGE)
        return order.check()

    def _delay(self) -> None:
        """Delay the next step by the session's injected fault, if it has one for this rank."""
        row = self._steps.last
        self._driver.fault.slow_down(row.end - row.begin)
        self._driver.fault.leak()

    def _begin_next(self) -> None:
        """Carry out orders, until one that needs steps has begun."""
        driver = self._driver
        while True:
            order = driver.next_order()
            if order["op"] == "close":
                driver.enter(Phase.END)
                if order["leave_group"]:
                    _horovod().shutdown()
                self.leave(0)
            driver.enter(order["op"])
            if order["op"] in (Phase.BLOCK, Phase.RUN, "check"):
                _meet_others()
                self._order = Order(order)
                self._delay()
                return
            driver.reply(self._evidence())
            driver.enter(Phase.READY)

    def _end_start(self) -> None:
        """Tell the driver when the script went through which phase, and that it is ready."""
        driver, steps = self._driver, self._steps
        first = steps.rows[0]
        if steps.traced_at:
            driver.enter(Phase.TRACE, at=first.begin)
            driver.enter(Phase.FIRST_STEP, at=steps.traced_at)
        else:
            # Of a loop without tf.function only the exchange is seen: the step began before it.
            driver.enter(Phase.FIRST_STEP, at=driver.entered_at)
        # What follows the first step: its broadcast, if that is not a part of it.
        driver.enter(Phase.BROADCAST, at=first.end)
        process.pin(self._config.cores)
        self._driver.fault.compete()
        driver.enter(Phase.READY, metadata=self._metadata())

    def _metadata(self) -> Mapping[str, Any]:
        tensors, size, _ = recorder.exchanged(self._steps.name)
        return {
            **group_of(_horovod()),
            "gradient_tensors": tensors,
            "gradient_bytes": size,
            "peak_bytes": process.peak_bytes(),
        }

    def _evidence(self) -> dict[str, Any]:
        """Return what Trainer.evidence and the rank's environment say. No weights are no digest."""
        weights = recorder.weights_of_all()
        digest = hashlib.sha256(json.dumps(weights).encode()).hexdigest()
        return {
            "world_size": _horovod().size(),
            "learning_rate": math.nan,
            "digests": [digest] if weights else [],
            "data": "",
            "data_wanted": "",
            "settings": settings(),
        }


def _horovod() -> Any:
    return sys.modules["horovod.tensorflow"]


def _meet_others() -> None:
    """Wait for all ranks, if the script has eager execution, as one of TensorFlow 1 has not."""
    tf = sys.modules["tensorflow"]
    if tf.executing_eagerly():
        _horovod().mpi_ops._allreduce(tf.zeros([]), name="hvdperf.barrier").numpy()


def _wait_for_gpus() -> float:
    """Wait for what steps have only queued; return the seconds."""
    tf = sys.modules["tensorflow"]
    if not tf.config.list_physical_devices("GPU"):
        return 0.0
    begun = time.perf_counter()
    tf.test.experimental.sync_devices()
    return time.perf_counter() - begun
