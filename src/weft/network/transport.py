"""How envelopes reach the parties: all that Weft asks of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from weft.errors import WeftError
from weft.protocol import Failure


class Stopped(WeftError):
    """Somebody has stopped the run: nothing more is sent in it."""


class Post(Protocol):
    """Carries one packed envelope to each of several parties at once."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of all parties that belong to the federation, also of those that are away."""

    def send(self, letters: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none.

        Two threads may send at once: parties that are away are looked for while others work.

        Parameters
        ----------
        letters
            Party to the bytes that it gets.
        timeout
            Seconds after which a party counts as late.

        Returns
        -------
        dict
            Per party its reply, or a Failure of the kind ``late``, ``failed`` or ``unknown``
            with one clause that says why. A party's fault is never raised.

        Raises
        ------
        Stopped
            The run was stopped.
        """
