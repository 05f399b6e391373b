"""A federation whose parties are played in several processes: the same bits as in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from os import urandom
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from weft.cluster.hosted_channel import HostedChannel, Hosts
from weft.cluster.party_host import HostedParty
from weft.crypto import Adder
from weft.crypto.secret_bytes import KEY_BYTES
from weft.errors import ConfigError
from weft.federation.local_federation import Federation
from weft.federation.party import Party
from weft.protocol import LocalChannel
from weft.solvers.run_settings import Settings

_T = TypeVar("_T")

#: Starts a process per group of parties, which share a secret.
StartHosts = Callable[[Sequence[Sequence[HostedParty]], bytes], Hosts]


class HostedFederation(Federation):
    """Parties that train together in processes of one owner.

    Parameters
    ----------
    start_hosts
        Starts the processes.
    count
        How many of them.
    tiles, preprocessing, options
        As of `Federation`. Parties make keys of their own for every run, and keep no checkpoints.
    """

    def __init__(
        self, *federation: Any, start_hosts: StartHosts, count: int, **options: Any
    ) -> None:
        super().__init__(*federation, **options)
        if self._keys is not None:
            raise ConfigError(
                "keys do not leave the process that reads them; leave them out where parties are "
                "played in several processes"
            )
        if count < 1:
            raise ConfigError(f"parties cannot be played in {count} processes; give 1 or more")
        self._start_hosts, self._count = start_hosts, min(count, len(self._tiles))
        self._hosts: Hosts | None = None

    def _open(self, settings: Settings) -> LocalChannel:
        self.close()
        self._adder = Adder(settings.cipher)
        parties = [
            HostedParty(name, held, self._made_of(name, settings))
            for name, held in self._tiles.items()
        ]
        cuts = np.linspace(0, len(parties), self._count + 1).round().astype(int).tolist()
        groups = [parties[a:b] for a, b in pairwise(cuts)]
        hosts = self._hosts = self._start_hosts(groups, urandom(KEY_BYTES))
        host_of = {party.name: n for n, group in enumerate(groups) for party in group}
        self._identities = hosts.identities()
        return HostedChannel(hosts, host_of, timeout=self._timeout, record=self._record)

    def look(self, what: Callable[[Party], _T]) -> dict[str, _T]:
        """What every party of the newest run has; ``what`` is called where it lives."""
        if self._hosts is None:
            return {}
        found = [self._hosts.look(host, what) for host in range(self._count)]
        return {name: value for some in found for name, value in some.items()}

    def close(self) -> None:
        """End the processes."""
        if self._hosts is not None:
            self._hosts.close()
            self._hosts = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
