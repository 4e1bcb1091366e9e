"""A rank: `python -m hvdperf.worker`, started by a launcher, driven over a connection."""

import faulthandler
import gc
import importlib
import os
import signal
import traceback
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from hvdperf.models import inputs, own_networks
from hvdperf.worker import process, session_link
from hvdperf.worker.protocol import Message, Phase, RankConfig
from hvdperf.worker.session_link import Driver, Fault, InjectedFault
from hvdperf.worker.strategies import Strategy


def rank_of_this_process() -> int:
    """Return the rank that the launcher has set; 0 if none is set, as for a single process."""
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK")
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


def start_up(driver: Driver, config: RankConfig) -> Any:
    """Go through the start-up phases up to config.last_phase and return the trainer. A rank that
    is to train goes up to the broadcast."""
    driver.enter(Phase.IMPORT)
    # The value of a strategy is its name, whatever it was made from.
    spec = Strategy(config.strategy).spec  # type: ignore[arg-type]
    # This imports TensorFlow, which takes most of a start.
    trainer = getattr(importlib.import_module(spec.module), spec.trainer)(config)
    if config.rendezvous:
        session_link.meet(driver, config.rendezvous)
    if config.cluster:
        session_link.form_cluster(driver, config.world_size)
    metadata = session_link.go_through(trainer, driver, Phase.INIT, config.last_phase)
    # Exclude the objects that exist by now from garbage collection. A collection of all that
    # TensorFlow has imported takes 0.15 s, once in some hundred steps, in the middle of a block.
    gc.freeze()
    gc.enable()
    process.pin(config.cores)
    driver.fault.compete()
    driver.enter(Phase.READY, metadata={**metadata, "peak_bytes": process.peak_bytes()})
    return trainer


# Orders that a function carries out: its module and its name. Others are methods of the trainer.
FUNCTIONS = {
    "block": ("steps", "run_block"),
    "check": ("own_trial", "check"),
    "collective": ("collectives", "measure"),
    "run": ("steps", "run"),
}


def obey(trainer: Any, driver: Driver, order: Message) -> dict[str, Any]:
    """Carry out one order and return its result."""
    op, arguments = order["op"], {key: value for key, value in order.items() if key != "op"}
    if op in FUNCTIONS:
        module, name = FUNCTIONS[op]
        # Imported only now, because training imports TensorFlow and `collective` does without it.
        function = getattr(importlib.import_module(f"hvdperf.worker.{module}"), name)
        act = partial(function, trainer, driver)
    else:
        driver.enter(op)
        act = getattr(trainer, op)
    found: dict[str, Any] = act(**arguments)
    if op == Phase.EVIDENCE:
        config, place = trainer.config, trainer.config.data_dir
        found["settings"] = session_link.settings()
        found["data"] = inputs.dataset_id(Path(place), config.data_files) if place else ""
        found["data_wanted"] = config.data_id
    return found


def run_script(config: RankConfig, driver: Driver) -> NoReturn:
    """Run a script of the user's until the driver dismisses this rank. An error that passed a line
    of it is its own, unless Horovod raised it, as it does when another rank has failed."""
    from hvdperf.worker.script.rank import BadScript, ScriptRank

    rank = ScriptRank(config, driver)
    try:
        rank.run()
    except BadScript as error:
        driver.fail(error, str(error), of_user=True)
    except BaseException as error:  # noqa: BLE001 - whatever the script raises
        traceback.print_exc()
        line = own_networks.line_of(error, rank.path)
        others = isinstance(error, InjectedFault) or "Horovod" in type(error).__name__
        driver.fail(
            error, session_link.in_words(error, rank.path), of_user=bool(line) and not others
        )
    rank.leave(1)


def run_rank() -> NoReturn:
    """Run the rank that the environment names until the driver dismisses it; end the process."""
    rank = rank_of_this_process()
    process.take_name(f"hvd-rank-{rank}")
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    process.Resumes.begin()
    driver = Driver(rank)
    try:
        config = RankConfig.of(driver.next_order())
    except ValueError as error:
        driver.fail(error, session_link.message_of(error))
        process.leave(1)
    driver.fault = Fault(config.fault, driver.rank)
    try:
        process.configure_environment(config.device, hides_others=not config.script)
        if config.share_startup:
            # This start-up is not timed. Without garbage collection it takes a fifth less.
            gc.disable()
        process.pin(config.startup_cores)
        if config.script:
            run_script(config, driver)
        if config.own_network:
            own_networks.load_file(config.own_network)
        trainer = start_up(driver, config)
        while True:
            order = driver.next_order()
            if order["op"] == "close":
                break
            driver.reply(obey(trainer, driver, order))
            driver.enter(Phase.READY)
        driver.enter(Phase.END)
        if order["leave_group"]:
            trainer.leave_group()
    except Exception as error:  # noqa: BLE001 - the driver must know of any error
        traceback.print_exc()
        explained = inputs.explain(config.data_dir, error)
        if session_link.is_of_user(error, config):
            driver.fail(error, session_link.in_words(error, config.own_network), of_user=True)
        else:
            driver.fail(error, explained or session_link.message_of(error))
        process.leave(1)
    process.leave(0)


if __name__ == "__main__":
    process.die_with_parent()
    run_rank()
