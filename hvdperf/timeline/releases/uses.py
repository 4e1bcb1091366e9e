"""What people do with Horovod, as tried with installed stacks: a document for each stack and Keras.

The files results/uses/*.json are tracked by git, and the compatibility page is made from them. A
stack that is tried again replaces its document.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from hvdperf.json_records import Positive
from hvdperf.launch.uses import Tried, try_uses
from hvdperf.machine.stack import probe
from hvdperf.records.archive import read_document
from hvdperf.worker.uses import Use

FORMAT = 1


@dataclass(frozen=True)
class UsesOfStack:
    """What was tried with a stack. keras: the version of what tf.keras is. tried_at: the day, in
    UTC."""

    format: Positive
    horovod: str
    tensorflow: str
    keras: str
    python: str
    tried_at: date
    uses: tuple[Tried, ...]

    @property
    def name(self) -> str:
        """Return the name of its file, without the ending."""
        return (
            f"horovod-{self.horovod}-tensorflow-{self.tensorflow}-keras-{self.keras}"
            f"-python-{self.python}"
        )


def try_stack(
    interpreter: Path, cache: Path, legacy: bool, say: Callable[[str], None]
) -> UsesOfStack:
    """Try all uses with a stack. legacy: whether tf.keras is to be Keras 2 (tf-keras). say: takes a
    line for each use. Raises UserError if the stack cannot train."""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": f"{int(legacy)}"}
    stack = probe(interpreter, cache, environment)
    say(f"TensorFlow {stack.tensorflow}, Keras {stack.keras}, Horovod {stack.horovod}")
    tried = []
    for each in try_uses(stack, list(Use), environment):
        say(f"{each.use.value}: {each.problem or 'works'}")
        tried.append(each)
    today = datetime.now(UTC).date()
    known = stack.horovod, stack.tensorflow, stack.keras, stack.python
    return UsesOfStack(FORMAT, *known, today, tuple(tried))


def read(path: Path) -> UsesOfStack:
    """Read a document. Raises Unreadable."""
    return read_document(path, UsesOfStack, FORMAT)
