"""A training run: a number of steps or seconds from new weights on, and then a validation."""

import time
from typing import Any, Optional

import tensorflow as tf

from hvdperf.worker.faults import Fault
from hvdperf.worker.learning.loss_curve import Curve
from hvdperf.worker.process import resident_bytes
from hvdperf.worker.protocol import Phase
from hvdperf.worker.session_link import Driver
from hvdperf.worker.strategies.base import Trainer
from hvdperf.worker.timed_block import train_step

# The ranks vote every few steps whether time is up. Memory is read less often.
STEPS_BETWEEN_VOTES = 5
STEPS_BETWEEN_READINGS = 25


def run(
    trainer: Trainer,
    driver: Driver,
    fault: Fault,
    steps: Optional[int] = None,
    seconds: Optional[float] = None,
    validate: bool = True,
    with_timestamps: bool = False,
    meet: bool = False,
) -> dict[str, Any]:
    """Train for `steps` steps, or until any rank's clock says that `seconds` have passed. The ranks
    vote, so that all of them stop at the same step.

    with_timestamps: wait for the loss of every step, and note when the step began, had its batch,
    had met the other ranks, and ended. meet: have all ranks meet before every step, by an allreduce
    of one element.

    Returns seconds, steps, epochs, samples (of this process), loss (of the last step),
    learning_rate (at the end), memory (a row [steps, bytes of the resident set] every
    STEPS_BETWEEN_READINGS), timestamps (four times per step, in seconds since the run began), curve
    (worker/learning/loss_curve.py: the loss of this process's samples along the steps; empty if
    with_timestamps), and validation (what Trainer.validate returns, or None without a validation).
    """
    driver.enter(Phase.RUN)
    fault.strike(Phase.RUN)
    fault.stray(trainer.learning_rate)
    samples, done = 0, 0
    memory, timestamps = [], []
    curve = Curve(steps, trainer.learning_rate, tf.add_n)
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
        step = train_step(
            trainer, driver, fault, "full", last_step_seconds, meet, wait=with_timestamps
        )
        last_step_seconds = step.end - step.got_batch
        if with_timestamps:
            timestamps.append(
                [at - begin for at in (step.begin, step.got_batch, step.met, step.end)]
            )
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
        fault.strike(Phase.VALIDATION)
        validation = trainer.validate()
    return {
        "seconds": end - begin,
        "steps": done,
        "epochs": done / trainer.config.epoch_steps,
        "samples": samples,
        "loss": last_loss,
        "learning_rate": trainer.learning_rate.value,
        "memory": memory,
        "timestamps": timestamps,
        "curve": curve.rows(trainer.own_loss),
        "validation": validation,
        "samples_of_a_pass": trainer.samples_of_a_pass,
    }
