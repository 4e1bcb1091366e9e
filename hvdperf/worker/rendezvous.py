"""How ranks without MPI find each other: Horovod's rendezvous server, in the process of rank 0, or
TensorFlow's cluster."""

import json
import os
import socket
import threading
from typing import Any

from hvdperf.worker.protocol import DRIVER_VARIABLE, address_towards
from hvdperf.worker.session_link import Driver


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


def form_cluster(driver: Driver, workers: int) -> None:
    """Every worker tells the others where it will listen; TF_CONFIG is what TensorFlow reads.

    The port is free when it is chosen, and TensorFlow takes it some seconds later.
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
    return address_towards(host, int(port))
