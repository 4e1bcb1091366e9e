"""Builds a network of a user's own once, trains two equal steps of it, and prints what it found.

The session runs `python -m hvdperf.worker.strategies.trial CONFIG` with the interpreter of the
stack, before anything is measured. CONFIG is a JSON object as a rank gets it. It prints one JSON
line: gradient_tensors and apart, the largest relative difference between the gradients of the two
steps, or error, what follows the name of the network in a message.
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
from typing import Any

from hvdperf.models import own_networks

# What a session could not measure apart: the steps of one process differ by rounding at most.
APART_AT_MOST = 1e-3


class BadNetwork(Exception):
    """The network cannot be measured; the message says why."""


def probe(config: dict[str, Any]) -> dict[str, Any]:
    """Return the facts. Raises BadNetwork, and whatever the user's functions raise."""
    own_networks.load(config["own_network"])
    import numpy as np
    import tensorflow as tf

    from hvdperf.worker import training

    task = training.find_task(config)
    batch = next(iter(training.open_dataset(config, task, config["batch"])))
    both = []
    for _ in range(2):
        parts = training.without_dropout(training.build_parts(config, task, "adam"))
        gradients: list[Any] = []

        def use(part: training.Part, found: Any, kept: list[Any] = gradients) -> None:
            kept.extend(found)
            training.apply(part, found)

        loss = training.update(task, parts, batch, tf.reduce_mean, use=use)
        if not math.isfinite(float(loss)):
            raise BadNetwork(f"the loss of its first step is {float(loss)}")
        if not gradients:
            raise BadNetwork("it has no trainable variables")
        variables = [variable for part in parts for variable in part.sources]
        missing = [v.name for v, found in zip(variables, gradients) if found is None]
        if missing:
            raise BadNetwork(f"the loss does not depend on its variables {', '.join(missing[:3])}")
        both.append([tf.convert_to_tensor(each).numpy() for each in gradients])
    apart = max(
        float(np.abs(one - other).max()) / (float(np.abs(one).max()) or 1.0)
        for one, other in zip(*both)
    )
    return {"gradient_tensors": len(both[0]), "apart": apart}


def main() -> None:
    config = json.loads(sys.argv[1])
    try:
        found: dict[str, Any] = probe(config)
    except BadNetwork as error:
        found = {"error": f": {error}"}
    except Exception as error:  # noqa: BLE001 - it is the user's code
        where = own_networks.line_of(error, own_networks.source(config["own_network"]))
        text = textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
        found = {"error": f"{f' (line {where})' if where else ''}: {text}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
