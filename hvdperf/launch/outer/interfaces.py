"""The network interfaces of this host, and the settings by which libraries take one."""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from hvdperf.errors import UserError

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B


@dataclass(frozen=True)
class Interface:
    """A network interface of this host. address: the address and the prefix length."""

    name: str
    address: IPv4Interface

    @property
    def network(self) -> str:
        """The interface's network, such as 10.77.0.0/24."""
        return str(self.address.network)


def check_network(text: str) -> IPv4Network:
    """Return the network of --network; "" is every network. Raises UserError."""
    try:
        return IPv4Network(text or "0.0.0.0/0", strict=False)
    except ValueError:
        raise UserError(
            f"--network {text}: is not a network of IPv4 addresses such as 10.77.0.0/24"
        ) from None


def interfaces() -> list[Interface]:
    """Return the interfaces of this host that have an IPv4 address, but loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            with suppress(OSError):  # an interface without an address
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(probe.fileno(), asked, request)[20:24])
                    for asked in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
                found.append(Interface(name, IPv4Interface(f"{address}/{mask}")))
    return [each for each in found if not each.address.is_loopback]


def interface_of(address: str) -> Interface | None:
    """Return the interface of this host that has the address; None for loopback."""
    return next((each for each in interfaces() if str(each.address.ip) == address), None)


def interface_settings(interface: Interface | None) -> dict[str, str]:
    """Return the variables by which Horovod over Gloo and NCCL take this interface."""
    if interface is None:
        return {}
    return {"HOROVOD_GLOO_IFACE": interface.name, "NCCL_SOCKET_IFNAME": interface.name}
