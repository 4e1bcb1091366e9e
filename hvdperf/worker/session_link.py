"""A rank's end of the connection to the driver (the pytest process)."""

import os
import queue
import socket
import sys
import threading
import time
import traceback
from typing import Any

from hvdperf.worker.protocol import DRIVER_VARIABLE, Connection, Message, Phase, tune

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def message_of(error: BaseException) -> str:
    """Return the error's message. Of a graph execution error only the last paragraph is kept,
    because TensorFlow puts the stack of the graph's node before it."""
    message = str(error).strip() or repr(error)
    if message.startswith("Graph execution error"):
        message = [part.strip() for part in message.split("\n\n") if part.strip()][-1]
    return message


class Driver:
    """A rank's connection to the driver. It receives orders on a thread of its own, so that even a
    busy or hanging rank ends when the driver is gone, and reports its position when the driver asks
    for it."""

    def __init__(self, rank: int) -> None:
        """Connect to the address in the environment and say hello."""
        host, port, token = os.environ[DRIVER_VARIABLE].rsplit(":", 2)
        self._connection = Connection(socket.create_connection((host, int(port)), timeout=30))
        self._connection.socket.settimeout(None)
        tune(self._connection.socket)
        self._sending = threading.Lock()
        self._orders: queue.Queue[Message] = queue.Queue()
        self._main_thread = threading.get_ident()
        self.rank = rank
        self.phase = Phase.LAUNCH
        self.steps_begun = 0
        self._send(
            {
                "hello": rank,
                "token": token,
                "pid": os.getpid(),
                "host": socket.gethostname(),
            }
        )
        threading.Thread(target=self._listen, name="driver", daemon=True).start()

    def _listen(self) -> None:
        """Receive messages. End this process when the driver is gone or sends garbage, because the
        main thread may hang in a collective and nobody can dismiss it."""
        try:
            while (messages := self._connection.receive()) is not None:
                for message in messages:
                    if message.get("op") == "status":
                        self._send({"status": self.standing()})
                    elif message.get("op") == "time":
                        self._send({"time": time.time()})
                    else:
                        self._orders.put(message)
        except OSError:
            pass  # the driver is gone
        except BaseException:  # noqa: BLE001 - a rank without this thread would obey nobody
            traceback.print_exc()
        finally:
            os._exit(1)

    def _send(self, message: Message) -> None:
        with self._sending:
            self._connection.send(message)

    def next_order(self) -> Message:
        """Wait for the next order; the first one is this rank's config."""
        return self._orders.get()

    def enter(self, phase: Phase, **metadata: Any) -> None:
        """Tell the driver which phase begins now, with the time of day and with this host's
        monotonic clock, which is never set."""
        self.phase = phase
        now = {"at": time.time(), "clock": time.monotonic()}
        self._send({"phase": phase.value, **now, **metadata})

    def share(self, value: str) -> None:
        """Send a value to every other rank of the launch, each of which gets it by `shared`."""
        self._send({"share": value})

    def shared(self) -> str:
        """Wait for a value that another rank shares and return it."""
        return str(self._orders.get()["shared"])

    def reply(self, result: dict[str, Any]) -> None:
        self._send({"reply": result})

    def fail(self, error: BaseException, message: str, of_user: bool = False) -> None:
        """Report what this rank raised, with its current phase and the message; wait to be
        dismissed. of_user: whether the user's own network or data raised it.

        The rank must not end by itself: mpirun would then end the other ranks before they have
        reported whether they caused the error.
        """
        self._send(
            {
                "error": {
                    "phase": self.phase.value,
                    "kind": type(error).__name__,
                    "message": message,
                    "step": self.steps_begun,
                    "of_user": of_user,
                }
            }
        )
        # Skip values that other ranks share.
        while self.next_order().get("op") != "close":
            pass

    def standing(self) -> dict[str, Any]:
        """Return where the main thread is: phase, steps_begun, where (its innermost frame) and
        waits (whether it seems to wait for other ranks)."""
        frame = sys._current_frames().get(self._main_thread)
        where, waits = "?", False
        if frame is not None:
            inner = traceback.extract_stack(frame)[-1]
            where = f"{os.path.basename(inner.filename)}:{inner.lineno} {inner.name}"
            # A rank that waits for another one is in a collective, so in code of TensorFlow or
            # Horovod. Horovod's wrappers are generated code, of the file "<string>".
            own = inner.filename.startswith(_OWN)
            named = (inner.filename + inner.name).lower()
            waits = not own and ("tensorflow" in named or "horovod" in named)
        return {
            "phase": self.phase.value,
            "steps_begun": self.steps_begun,
            "where": where,
            "waits": waits,
        }
