"""Looking at processes from outside: which ports they open, and whom they talk to."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

import psutil


@dataclass(frozen=True)
class Sockets:
    """The sockets of some processes.

    Attributes
    ----------
    processes
        How many were looked at.
    listening
        Addresses that they listen on, one for each socket.
    connected
        Addresses at the other end of their connections.
    """

    processes: int
    listening: tuple[str, ...]
    connected: tuple[str, ...]

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Addresses that are not of the loopback: another machine could be there."""
        return tuple(a for a in (*self.listening, *self.connected) if not is_loopback(a))


def look(processes: Iterable[psutil.Process]) -> Sockets:
    """See all sockets of processes, of any protocol of the internet."""
    count, listening, connected = 0, [], []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found = process.net_connections(kind="inet")
            count += 1
            for one in found:
                if one.raddr:
                    connected.append(one.raddr.ip)
                elif one.laddr:
                    # A socket without a peer: it listens, or takes datagrams.
                    listening.append(one.laddr.ip)
    return Sockets(count, tuple(listening), tuple(connected))


def is_loopback(address: str) -> bool:
    """Whether an address never leaves its machine."""
    parsed = ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
