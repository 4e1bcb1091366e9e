"""Your own networks, from Python files, and training scripts. Importing this never imports
TensorFlow."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from hvdperf.models.inputs import INPUTS, Input
from hvdperf.models.registry import NETWORKS, SCRIPT, Form, Network, Task

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
# Nothing but the ranks, and a probe, may import these.
_HEAVY = ("tensorflow", "keras")
_PYTHON = re.compile(r"python[\d.]*")
# What starts ranks, and is no part of a script.
LAUNCHERS = ("horovodrun", "mpirun", "mpiexec", "orterun", "srun")
# A longer name of a script is cut. What is left out of a name, a hash stands for.
_LONGEST = 60


class BadWorkloads(ValueError):
    """A file of networks cannot be used; the message says why, and names it."""


class BadNetwork(ValueError):
    """A network cannot be trained as it is. The message follows the name of the network, and says
    what to change."""


def load_file(path: str | Path) -> tuple[Network, ...]:
    """Add the networks of a Python file, and return them.

    The file is a module of its name, whose functions its networks name as builders; it may import
    others beside it, but not TensorFlow or Keras, which a session does without. Raises
    BadWorkloads.
    """
    origin = os.path.abspath(path)
    present = {heavy for heavy in _HEAVY if heavy in sys.modules}
    try:
        module = _module_of(Path(origin))
    except BadWorkloads:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        line, said = line_of(error, origin), " ".join(str(error).split())
        where = f"{origin}:{line}" if line else origin
        raise BadWorkloads(f"{where}: {type(error).__name__}: {said}") from None
    for name in _HEAVY:
        if name in sys.modules and name not in present:
            raise BadWorkloads(f"{origin}: imports {name}; import it within the functions")
    found = getattr(module, "NETWORKS", None)
    if not isinstance(found, (tuple, list)) or not all(isinstance(n, Network) for n in found):
        raise BadWorkloads(f"{origin}: defines no NETWORKS = (Network(...), ...)")
    if not found:
        raise BadWorkloads(f"{origin}: NETWORKS is empty; define a Network in it")
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise BadWorkloads(f"{origin}: NETWORKS has network {name!r} twice; rename one")
    for each in found:
        network = replace(each, origin=origin)
        if fault := _fault(network):
            raise BadWorkloads(f"{origin}: network {network.name!r}: {fault}")
        NETWORKS[network.name] = network
        if network.data:
            INPUTS[network.name] = Input(network.name, 0, "contract")
    return tuple(NETWORKS[name] for name in names)


def _module_of(path: Path) -> ModuleType:
    """Import a file as a module. Raises BadWorkloads if it cannot be one, and whatever it
    raises."""
    if not path.stem.isidentifier() or path.suffix != ".py":
        raise BadWorkloads(f"{path}: is no name of a module, such as my_networks.py")
    if not path.is_file():
        raise BadWorkloads(f"{path}: no such file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    module = importlib.import_module(path.stem)
    if module.__file__ != str(path):
        raise BadWorkloads(f"{path}: there is another module {path.stem}; rename the file")
    return module


def _fault(network: Network) -> str:
    """Return why a network cannot be used; "" if it can."""
    for field, kind in get_type_hints(Network).items():
        value = getattr(network, field)
        if not isinstance(value, kind):
            return f"{field} {value!r} is not of the type {kind.__name__}"
    known = NETWORKS.get(network.name)
    if known is not None and known.origin != network.origin:
        return f"{known.origin or 'the suite'} has a network of that name"
    if not re.fullmatch(r"[A-Za-z0-9_.]{1,100}", network.name):
        return "use letters, digits, '_' and '.', at most 100"
    for field in ("builder", "loss", "optimizer", "data"):
        named = getattr(network, field)
        if (named or field == "builder") and not _FUNCTION.fullmatch(named):
            return f"{field} {named!r} is not of the form module:function"
    if network.data and not network.loss and network.classes < 1:
        return "its data need classes=, the number of labels, or a loss= of their own"
    if network.loss and network.task is Task.ADVERSARIAL:
        return "an adversarial network has the losses of its task; leave out loss"
    return "input_size must be a whole number above 0" if network.input_size < 1 else ""


def line_of(error: BaseException, path: str | Path) -> int | None:
    """Return the last line of the file through which the error passed; None if there is none."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)


def digest(network: Network) -> str:
    """Return a hash of the file that defines the network, of a script with the modules beside it;
    "" for a network of the suite."""
    if not network.origin:
        return ""
    if network.script:
        beside = sorted(Path(network.origin).parent.glob("*.py"))
        whole = b"".join(path.read_bytes() for path in beside)
        return hashlib.sha256(whole).hexdigest()[:12]
    return hashlib.sha256(Path(network.origin).read_bytes()).hexdigest()[:12]


# Scripts ---------------------------------------------------------------------------------------


def load_script(text: str, beside: str = "") -> Network:
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
