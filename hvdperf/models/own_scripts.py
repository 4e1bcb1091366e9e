"""Training scripts of one's own, as workloads. Importing this never imports TensorFlow."""

from __future__ import annotations

import hashlib
import os
import re
import shlex

from hvdperf.models.inputs import INPUTS, Input
from hvdperf.models.own_networks import BadWorkloads
from hvdperf.models.registry import NETWORKS, SCRIPT, Form, Network

_PYTHON = re.compile(r"python[\d.]*")
LAUNCHERS = ("horovodrun", "mpirun", "mpiexec", "orterun", "srun")
# A longer name is cut. What is left out of a name, a hash stands for.
_LONGEST = 60


def load(text: str, beside: str = "") -> Network:
    """Add a script, such as `train.py --batch 64`, and return it as a network. Its name is that of
    its file with its arguments. beside: the directory that its path is relative to, and in which it
    is run if it lies below that; "" for the current one. Raises BadWorkloads."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadWorkloads(f"{text}: {error}") from None
    program = os.path.basename(words[0]) if words else ""
    if program in LAUNCHERS:
        raise BadWorkloads(f"{text}: give the script without {program}; this starts its ranks")
    if _PYTHON.fullmatch(program):
        if words[0] != program:
            raise BadWorkloads(f"{text}: give the script without its Python; --stack chooses one")
        del words[0]
    if not words or not words[0].endswith(".py"):
        raise BadWorkloads(f"{text}: names no script, such as train.py --batch 64")
    beside = os.path.abspath(beside)
    path = os.path.abspath(os.path.join(beside, os.path.expanduser(words[0])))
    if not os.path.isfile(path):
        raise BadWorkloads(f"{path}: no such file")
    whole = shlex.join([path, *words[1:]])
    name = _name([os.path.basename(path), *words[1:]])
    known = NETWORKS.get(name)
    if known is not None and known.script != whole:
        raise BadWorkloads(f"{text}: there is another {name}; rename one of the files")
    # Hidden directories are not copied.
    below = os.path.relpath(path, beside).split(os.sep)
    is_there = not any(each.startswith(".") for each in below)
    place = beside if is_there else os.path.dirname(path)
    NETWORKS[name] = Network(name, "", 0, origin=path, script=whole, place=place)
    INPUTS[SCRIPT] = Input(SCRIPT, 0, forms=tuple(Form))
    return NETWORKS[name]


def _name(words: list[str]) -> str:
    """Return a name for files and for pytest's -k, which differs if the words do."""
    text = " ".join(words)
    name = re.sub(r"[^A-Za-z0-9_.=]+", "-", text).strip("-")[:_LONGEST]
    if re.fullmatch(r"[A-Za-z0-9_.=\- ]+", text) and len(text) <= _LONGEST:
        return name
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
