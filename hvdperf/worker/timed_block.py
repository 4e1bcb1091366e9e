"""The timed loop: one block of consecutive training steps."""

import math
import time
from typing import Any, NamedTuple

from hvdperf.worker.faults import Fault
from hvdperf.worker.process import Resumes, cpu_seconds
from hvdperf.worker.protocol import Phase
from hvdperf.worker.session_link import Driver
from hvdperf.worker.strategies.base import Trainer


class Step(NamedTuple):
    """One training step. Times are in seconds on this rank's clock.

    begin: start of the step. got_batch: when the step had its batch. met: when it had met the other
    ranks, or got_batch if they do not meet. end: end of the step. samples: of this process. loss:
    what Trainer.step returned.
    """

    begin: float
    got_batch: float
    met: float
    end: float
    samples: int
    loss: Any


def train_step(
    trainer: Trainer,
    driver: Driver,
    fault: Fault,
    kind: str,
    last_step_seconds: float,
    meet: bool = False,
    wait: bool = False,
) -> Step:
    """Train one step. last_step_seconds: time of the step before, from its batch on, for a fault
    that delays this one. meet: wait for all ranks to have their batch. wait: wait until the step is
    done; without it a GPU may only have queued the work."""
    driver.steps_begun += 1
    fault.slow_down(last_step_seconds)
    begin = time.perf_counter()
    fault.hold_up_input(last_step_seconds)
    batch = trainer.next_batch(kind)
    got_batch = met = time.perf_counter()
    if meet:
        trainer.barrier()
        met = time.perf_counter()
    trainer.learning_rate.before_step()
    loss = trainer.step(kind, batch)
    trainer.learning_rate.after_step(loss)
    if wait or fault.follows_steps:
        float(loss)
    end = time.perf_counter()
    fault.leak()
    return Step(begin, got_batch, met, end, trainer.count(batch), loss)


def run_block(
    trainer: Trainer, driver: Driver, fault: Fault, kind: str, steps: int, wait: bool = False
) -> dict[str, Any]:
    """Train `steps` steps from a barrier on, and read this rank's clock. wait: wait for the end of
    each step, so that the times of its parts are also right on GPUs. Without it, only the last loss
    is waited for.

    Returns seconds (of the whole block, until the last loss is there), step_seconds and
    input_seconds (one per step; input_seconds is the part of a step spent waiting for the batch),
    inside_seconds (of all steps, from the batch on), samples (consumed by this process),
    cpu_seconds, loss (of the last step), not_finite_at (the step since the start of the process at
    which the loss was not finite for the first time, or None) and resumed (how often a signal let
    this process go on that had been stopped).
    """
    step_ends = []
    input_seconds = []
    losses = []
    inside_seconds = 0.0
    samples = 0
    clock = time.perf_counter
    trainer.enter_block(kind)
    driver.enter(Phase.BLOCK)
    fault.strike(Phase.BLOCK)
    fault.stray(trainer.learning_rate)
    last_step_seconds = 0.0
    cpu_before, resumes_before = cpu_seconds(), Resumes.count
    trainer.barrier()
    begin = step_begin = clock()
    for _ in range(steps):
        step = train_step(trainer, driver, fault, kind, last_step_seconds, wait=wait)
        input_seconds.append(step.got_batch - step.begin)
        inside_seconds += step.end - step.got_batch
        step_ends.append(step.end)
        last_step_seconds = step.end - step.got_batch
        samples += step.samples
        losses.append(step.loss)
    last_loss = float(step.loss)  # waits for whatever a GPU still has to do
    end = clock()
    cpu_after, resumed = cpu_seconds(), Resumes.count - resumes_before
    trainer.leave_block(kind)
    not_finite_at = None
    if not math.isfinite(last_loss):
        first = next(i for i, loss in enumerate(losses) if not math.isfinite(float(loss)))
        not_finite_at = driver.steps_begun - steps + first + 1
    return {
        "seconds": end - begin,
        "step_seconds": [b - a for a, b in zip([step_begin, *step_ends], step_ends)],
        "input_seconds": input_seconds,
        "inside_seconds": inside_seconds,
        "samples": samples,
        "cpu_seconds": cpu_after - cpu_before,
        "loss": last_loss,
        "not_finite_at": not_finite_at,
        "resumed": resumed,
    }
