"""How ranks without MPI find each other: Horovod's rendezvous server, in the process of rank 0."""

import os
import socket
import threading
from typing import Any

from harness.wire import DRIVER_VARIABLE
from harness.worker.driver import Driver


def meet(driver: Driver, plan: list[dict[str, Any]]) -> None:
    """Rank 0 opens a server and shares its address; every rank tells Horovod of it.

    plan: one entry a rank, the fields of horovod.runner.common.util.hosts.SlotInfo.
    """
    if driver.rank == 0:
        address = _open_server(plan)
        driver.share(address)
    else:
        address = driver.shared()
    host, port = address.rsplit(":", 1)
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = host
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = port


def _open_server(plan: list[dict[str, Any]]) -> str:
    """Start the server on a thread of its own, which ends with this process; its address.

    Not RendezvousServer.start(): that one listens on every interface and picks its port at random.
    """
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host = own_address()
    server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
    server.init([SlotInfo(**entry) for entry in plan])
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return f"{host}:{server.server_port}"


def own_address() -> str:
    """The address by which this host reaches the driver: loopback where they are the same."""
    host, port, _ = os.environ[DRIVER_VARIABLE].rsplit(":", 2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])
