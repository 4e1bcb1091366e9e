"""The rendezvous of ranks without MPI: Horovod's rendezvous server, in the process of rank 0, or
TensorFlow's cluster."""

import json
import os
import socket
import threading
from typing import Any

from hvdperf.worker.protocol import DRIVER_VARIABLE, address_towards
from hvdperf.worker.session_link import Driver


def meet(driver: Driver, plan: list[dict[str, Any]]) -> None:
    """Open a rendezvous server on rank 0, share its address, and give the address to Horovod.

    plan: one entry per rank with the fields of horovod.runner.common.util.hosts.SlotInfo.
    """
    if driver.rank == 0:
        address = _open_server(plan)
        driver.share(address)
    else:
        address = driver.shared()
    host, port = address.rsplit(":", 1)
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = host
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = port


def form_cluster(driver: Driver, workers: int) -> None:
    """Exchange with all workers the addresses where they will listen, and set TF_CONFIG, which
    TensorFlow reads.

    Another process could take the port before TensorFlow does, some seconds later.
    """
    host = own_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    addresses = {driver.rank: f"{host}:{port}"}
    driver.share(f"{driver.rank} {host}:{port}")
    while len(addresses) < workers:
        rank, address = driver.shared().split()
        addresses[int(rank)] = address
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": [addresses[rank] for rank in range(workers)]},
            "task": {"type": "worker", "index": driver.rank},
        }
    )


def _open_server(plan: list[dict[str, Any]]) -> str:
    """Start the server on a thread that ends with this process; return the server's address.

    RendezvousServer.start() will not do: it listens on every interface and picks a random port.
    """
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host = own_address()
    server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
    server.init([SlotInfo(**entry) for entry in plan])
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return f"{host}:{server.server_port}"


def own_address() -> str:
    """Return the address from which this host reaches the driver: loopback if it is the driver's
    host."""
    host, port, _ = os.environ[DRIVER_VARIABLE].rsplit(":", 2)
    return address_towards(host, int(port))
