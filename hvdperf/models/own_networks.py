"""Networks of one's own, from Python files that a user names, or from installed packages.
Importing this never imports TensorFlow."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import traceback
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from hvdperf.models.inputs import INPUTS, Input
from hvdperf.models.registry import NETWORKS, Network, Task

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
# Entry points of this group name modules with NETWORKS.
GROUP = "hvdperf.networks"
# Nothing but the ranks, and a probe, may import these.
_HEAVY = ("tensorflow", "keras")


class BadWorkloads(ValueError):
    """A file or module of networks cannot be used; the message says why, and names it."""


class BadNetwork(ValueError):
    """A network cannot be trained as it is. The message follows the name of the network, and says
    what to change."""


def load(origin: str) -> tuple[Network, ...]:
    """Add the networks of a file *.py or of an importable module, and return them. Raises
    BadWorkloads."""
    return load_file(origin) if origin.endswith(".py") else _load_module(origin)


def load_installed() -> None:
    """Add the networks of installed packages. Raises BadWorkloads, which names the package."""
    for entry in metadata.entry_points(group=GROUP):
        try:
            _load_module(entry.module)
        except BadWorkloads as error:
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
            raise BadWorkloads(
                f"the installed package {package} has networks that cannot be used: {error}; "
                "repair or uninstall it"
            ) from None


def _load_module(name: str) -> tuple[Network, ...]:
    present = {heavy for heavy in _HEAVY if heavy in sys.modules}
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        raise BadWorkloads(f"{name}: {type(error).__name__}: {error}") from None
    return _networks_of(module, name, present)


def load_file(path: str | Path) -> tuple[Network, ...]:
    """Run a Python file that defines NETWORKS, add these networks, and return them.

    The file is a module of its name, whose functions its networks name as builders; it may import
    others beside it, but not TensorFlow or Keras, which a session does without. Raises
    BadWorkloads.
    """
    path = Path(os.path.abspath(path))  # one file is one module, however it is named
    if not path.stem.isidentifier() or path.suffix != ".py":
        raise BadWorkloads(f"{path}: is no name of a module, such as my_networks.py")
    if not path.is_file():
        raise BadWorkloads(f"{path}: no such file")
    present = {name for name in _HEAVY if name in sys.modules}
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) != str(path):
        raise BadWorkloads(f"{path}: there is another module {path.stem}; rename the file")
    sys.modules[path.stem] = module
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        del sys.modules[path.stem]
        line = line_of(error, path)
        where = f"{path}:{line}" if line else f"{path}"
        said = " ".join(str(error).split())
        raise BadWorkloads(f"{where}: {type(error).__name__}: {said}") from None
    return _networks_of(module, str(path), present)


def _networks_of(module: ModuleType, origin: str, present: set[str]) -> tuple[Network, ...]:
    """Add the networks of a module, and return them. present: the heavy modules that had been
    imported before it. Raises BadWorkloads."""
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
        _add(replace(each, origin=origin))
    return tuple(NETWORKS[each.name] for each in found)


def source(origin: str) -> str:
    """Return the path of a file or of an imported module; "" if it could not be imported."""
    if origin.endswith(".py"):
        return origin
    return getattr(sys.modules.get(origin), "__file__", None) or ""


def line_of(error: BaseException, path: str | Path) -> int | None:
    """Return the last line of the file through which the error passed; None if there is none."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)


def _add(network: Network) -> None:
    """Add a network of a file. Raises BadWorkloads."""
    where = f"{network.origin}: network {network.name!r}"
    for field, kind in get_type_hints(Network).items():
        value = getattr(network, field)
        if not isinstance(value, kind):
            raise BadWorkloads(f"{where}: {field} {value!r} is not of the type {kind.__name__}")
    known = NETWORKS.get(network.name)
    if known is not None and known.origin != network.origin:
        whose = known.origin or "the suite"
        raise BadWorkloads(f"{where}: {whose} has a network of that name")
    if not re.fullmatch(r"[A-Za-z0-9_.]{1,100}", network.name):
        raise BadWorkloads(f"{where}: use letters, digits, '_' and '.', at most 100")
    for field in ("builder", "loss", "optimizer", "data"):
        named = getattr(network, field)
        if (named or field == "builder") and not _FUNCTION.fullmatch(named):
            raise BadWorkloads(f"{where}: {field} {named!r} is not of the form module:function")
    if network.data and not network.loss and network.classes < 1:
        raise BadWorkloads(
            f"{where}: its data need classes=, the number of labels, or a loss= of their own"
        )
    if network.loss and network.task is Task.ADVERSARIAL:
        raise BadWorkloads(
            f"{where}: an adversarial network has the losses of its task; leave out loss"
        )
    if network.input_size < 1:
        raise BadWorkloads(f"{where}: input_size must be a whole number above 0")
    NETWORKS[network.name] = network
    if network.data:
        INPUTS[network.name] = Input(network.name, 0, "own")


def digest(network: Network) -> str:
    """Return a hash of the file that defines the network, of a script with the modules beside it;
    "" for a network of the suite."""
    if not network.origin:
        return ""
    if network.script:
        beside = sorted(Path(network.origin).parent.glob("*.py"))
        whole = b"".join(path.read_bytes() for path in beside)
        return hashlib.sha256(whole).hexdigest()[:12]
    return hashlib.sha256(Path(source(network.origin)).read_bytes()).hexdigest()[:12]
