"""The orders to train: timed blocks of consecutive steps, and runs that last a number of steps or a
time."""

import math
import time
from typing import Any, NamedTuple, Optional

from hvdperf.worker.learning import Curve
from hvdperf.worker.process import Resumes, resident_bytes
from hvdperf.worker.protocol import Phase
from hvdperf.worker.session_link import Driver
from hvdperf.worker.strategies.base import Trainer


class Step(NamedTuple):
    """One training step. Times are in seconds on this rank's clock.

    begin: start of the step. got_batch: when the step had its batch. end: end of the step. samples:
    of this process. loss: what Trainer.step returned.
    """

    begin: float
    got_batch: float
    end: float
    samples: int
    loss: Any

    @property
    def inside(self) -> float:
        """Seconds from the batch on."""
        return self.end - self.got_batch


def train_step(
    trainer: Trainer,
    driver: Driver,
    kind: str,
    last_step_seconds: float,
    wait: bool = False,
) -> Step:
    """Train one step. last_step_seconds: time of the step before, from its batch on, for a fault
    that delays this one. wait: wait until the step is done; without it a GPU may only have queued
    the work."""
    driver.steps_begun += 1
    driver.fault.slow_down(last_step_seconds)
    begin = time.perf_counter()
    driver.fault.slow_down(last_step_seconds, kind="input")
    batch = trainer.next_batch(kind)
    got_batch = time.perf_counter()
    trainer.learning_rate.before_step()
    loss = trainer.step(kind, batch)
    trainer.learning_rate.after_step(loss)
    if wait or driver.fault.follows_steps:
        float(loss)
    end = time.perf_counter()
    driver.fault.leak()
    return Step(begin, got_batch, end, trainer.count(batch), loss)


def run_block(
    trainer: Trainer, driver: Driver, kind: str, steps: int, wait: bool = False
) -> dict[str, Any]:
    """Train `steps` steps from a barrier on, and read this rank's clock. wait: wait for the end of
    each step, so that the times of its parts are also right on GPUs. Without it, only the last loss
    is waited for.

    Returns seconds (of the whole block, until the last loss is there), step_seconds and
    input_seconds (one per step; input_seconds is the part of a step spent waiting for the batch),
    inside_seconds (of all steps, from the batch on), samples (consumed by this process),
    loss (of the last step), not_finite_at (the step since the start of the process at
    which the loss was not finite for the first time, or None) and resumed (how often a signal let
    this process go on that had been stopped).
    """
    taken: list[Step] = []
    trainer.enter_block(kind)
    driver.enter(Phase.BLOCK)
    resumes_before = Resumes.count
    trainer.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        last_step_seconds = taken[-1].inside if taken else 0.0
        taken.append(train_step(trainer, driver, kind, last_step_seconds, wait=wait))
    last_loss = float(taken[-1].loss)  # waits for whatever a GPU still has to do
    end = time.perf_counter()
    resumed = Resumes.count - resumes_before
    trainer.leave_block(kind)
    ends = [step.end for step in taken]
    not_finite_at = None
    if not math.isfinite(last_loss):
        first = next(i for i, step in enumerate(taken) if not math.isfinite(float(step.loss)))
        not_finite_at = driver.steps_begun - steps + first + 1
    return {
        "seconds": end - begin,
        "step_seconds": [b - a for a, b in zip([begin, *ends], ends)],
        "input_seconds": [step.got_batch - step.begin for step in taken],
        "inside_seconds": sum(step.inside for step in taken),
        "samples": sum(step.samples for step in taken),
        "loss": last_loss,
        "not_finite_at": not_finite_at,
        "resumed": resumed,
    }


# The ranks vote every few steps whether time is up. Memory is read less often.
STEPS_BETWEEN_VOTES = 5
STEPS_BETWEEN_READINGS = 25


def run(
    trainer: Trainer,
    driver: Driver,
    steps: Optional[int] = None,
    seconds: Optional[float] = None,
    validate: bool = True,
    with_timestamps: bool = False,
) -> dict[str, Any]:
    """Train for `steps` steps, or until any rank's clock says that `seconds` have passed. The ranks
    vote, so that all of them stop at the same step.

    with_timestamps: wait for the loss of every step, and note when the step began, had its batch,
    and ended.

    Returns seconds, steps, epochs, samples (of this process), loss (of the last step),
    memory (a row [steps, bytes of the resident set] every
    STEPS_BETWEEN_READINGS), timestamps (three times per step, in seconds since the run began),
    curve (worker/learning.py: the loss of this process's samples along the steps; empty if
    with_timestamps), and validation (what Trainer.validate returns, or None without a validation).
    """
    driver.enter(Phase.RUN)
    samples, done = 0, 0
    memory, timestamps = [], []
    curve = Curve()
    last_step_seconds = 0.0
    loss: Any = float("nan")
    clock = time.perf_counter
    trainer.barrier()
    begin = clock()
    while steps is None or done < steps:
        if seconds is not None and done % STEPS_BETWEEN_VOTES == 0:
            (votes,) = trainer.total([float(clock() - begin >= seconds)])
            if votes > 0:
                break
        step = train_step(trainer, driver, "full", last_step_seconds, wait=with_timestamps)
        last_step_seconds = step.inside
        if with_timestamps:
            timestamps.append([at - begin for at in step[:3]])
        else:
            curve.after_step(step.loss)
        loss = step.loss
        samples += step.samples
        done += 1
        if done % STEPS_BETWEEN_READINGS == 0:
            memory.append([done, resident_bytes()])
    last_loss = float(loss)
    end = clock()
    validation = None
    if validate:
        driver.enter(Phase.VALIDATION)
        validation = trainer.validate()
    return {
        "seconds": end - begin,
        "steps": done,
        "epochs": done / trainer.config.epoch_steps,
        "samples": samples,
        "loss": last_loss,
        "memory": memory,
        "timestamps": timestamps,
        "curve": curve.rows(trainer.own_loss),
        "validation": validation,
        "samples_of_a_pass": trainer.samples_of_a_pass(),
    }
