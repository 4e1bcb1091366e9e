"""Training scripts of one's own, as workloads. Importing this never imports TensorFlow."""

from __future__ import annotations

import os
import re
import shlex

from hvdperf.models.inputs import INPUTS, Input
from hvdperf.models.own_networks import BadWorkloads
from hvdperf.models.registry import NETWORKS, SCRIPT, Form, Network

_PYTHON = re.compile(r"python[\d.]*")
_LAUNCHERS = ("horovodrun", "mpirun", "mpiexec", "srun")


def load(text: str, beside: str = "") -> Network:
    """Add a script, such as `train.py --batch 64`, and return it as a network. Its name is that of
    its file with its arguments. beside: the directory that its path is relative to. Raises
    BadWorkloads."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadWorkloads(f"{text}: {error}") from None
    if words and _PYTHON.fullmatch(os.path.basename(words[0])):
        del words[0]
    if words and os.path.basename(words[0]) in _LAUNCHERS:
        raise BadWorkloads(f"{text}: give the script without {words[0]}; this starts its ranks")
    if not words or not words[0].endswith(".py"):
        raise BadWorkloads(f"{text}: names no script, such as train.py --batch 64")
    path = os.path.abspath(os.path.join(beside, os.path.expanduser(words[0])))
    if not os.path.isfile(path):
        raise BadWorkloads(f"{path}: no such file")
    named = [os.path.basename(path), *words[1:]]
    name = re.sub(r"[^\w.=]+", "-", " ".join(named)).strip("-")[:100]
    whole = shlex.join([path, *words[1:]])
    known = NETWORKS.get(name)
    if known is not None and known.script != whole:
        raise BadWorkloads(f"{text}: there is another {name}; rename one of the files")
    NETWORKS[name] = Network(name, "", 0, origin=path, script=whole)
    INPUTS[SCRIPT] = Input(SCRIPT, 0, needs_data=False, forms=tuple(Form))
    return NETWORKS[name]
