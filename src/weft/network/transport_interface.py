"""How envelopes reach the parties: everything Weft needs of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from weft.errors import WeftError
from weft.protocol import Failure


class Stopped(WeftError):
    """The run was stopped: nothing more is sent in it."""


class Transport(Protocol):
    """Carries one packed envelope to each of several parties at once."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of all parties of the federation, including those that are away."""

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Parties that were sent something and have neither answered nor failed yet."""

    def send(
        self, envelopes: Mapping[str, bytes | bytearray], timeout: float
    ) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none.

        Two threads may send at once: absent parties are pinged while others work.

        Parameters
        ----------
        envelopes
            Party to the bytes that it gets.
        timeout
            Seconds after which a party counts as late.

        Returns
        -------
        dict
            Per party its reply, or a Failure of the kind ``late``, ``failed`` or ``unknown``
            with the reason. A party's fault is never raised.

        Raises
        ------
        Stopped
            The run was stopped.
        """
