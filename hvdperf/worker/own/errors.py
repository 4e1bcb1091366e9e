"""Errors of a network of one's own, in words, and whether an error is one."""

from __future__ import annotations

import re
import traceback

from hvdperf.models import own_networks
from hvdperf.models.inputs import DataError
from hvdperf.worker.rank_config import RankConfig
from hvdperf.worker.session_link import message_of

# Keras writes the names of layers in bold.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# What TensorFlow says of the place in its graph.
_PLACES = re.compile(
    r"\[\[\{\{.*?\}\}\]\]|\{\{function_node .*?\}\}|\[Op:\w+\]( name:)?|"
    r"Error in user-defined function passed to \S+ transformation with iterator: \S+:(?= )|"
    r"Traceback \(most recent call last\).*"
)
_LABEL = re.compile(
    r"Received a label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)"
)


def in_words(error: BaseException) -> str:
    """Return the kind and the message of an error in one line; of one that was raised to explain
    something to the user, the message alone."""
    if isinstance(error, (own_networks.BadNetwork, DataError)):
        return str(error)
    if isinstance(error, StopIteration):
        return "its data have ended; yield at least one sample for every rank"
    text = " ".join(_ESCAPES.sub("", message_of(error)).split())
    text = " ".join(_PLACES.sub("", text).split())
    if "merge_call" in text:
        return (
            "its optimizer lets replicas meet within a condition, as moving averages and the "
            "accumulation of gradients do, which tf.distribute does not allow in a traced step"
        )
    label = _LABEL.search(text)
    if label is not None:
        return f"label {label[1]} of {label[2]} classes"
    return f"{type(error).__name__}: {text}"


def is_of_user(error: BaseException, config: RankConfig) -> bool:
    """Return whether the user's own network, or the data that it was given, raised an error in a
    rank. config: the rank's."""
    origin = config.own_network
    if not origin:
        return False
    if isinstance(error, (own_networks.BadNetwork, DataError, StopIteration)):
        return True
    source = own_networks.source(origin)
    # Code within a graph is not in the traceback, but in the message.
    if own_networks.line_of(error, source) or source in str(error):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if config.dataset == config.model and any(f.name == "next_batch" for f in frames):
        return True
    # An operation of the network that refuses a value, such as a label that is out of range.
    return type(error).__name__ == "InvalidArgumentError" and "Horovod" not in str(error)
