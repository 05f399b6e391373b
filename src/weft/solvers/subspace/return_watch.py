"""A channel that looks, on the way, whether parties that are away have come back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from weft.protocol import Among, Channel, Nothing, Phase, Replies, Request
from weft.solvers.hyfdca.messages import BEGIN, GATHER, NORMS, SPREAD
from weft.solvers.subspace.messages import HERE

_SETTING_UP: tuple[Phase[Any, Any], ...] = (NORMS, SPREAD, GATHER, BEGIN)


class FellSilent(Exception):
    """A party did not answer while HyFDCA was set up, which takes all who begin it."""

    def __init__(self, parties: set[str]) -> None:
        super().__init__()
        self.parties = parties


class ReturnWatch(Among):
    """A channel to the parties that are there.

    The question whether the others are back rides with another, and costs no round trip.

    Attributes
    ----------
    back
        Which of those away have answered when asked last.
    """

    def __init__(self, channel: Channel, parties: Sequence[str], away: Collection[str]) -> None:
        super().__init__(channel, parties)
        self.away = frozenset(away)
        self.back: set[str] = set()
        self._due = False

    def ask_again(self) -> None:
        """Look again, with the next question."""
        self._due = True

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        if self._due:
            self._due = False
            probe = Request(HERE, {party: Nothing() for party in sorted(self.away)})
            heard, *replies = super().exchange([probe, *requests])
            self.back = set(heard.answered)
        else:
            replies = super().exchange(requests)
        for request, reply in zip(requests, replies, strict=True):
            if request.phase in _SETTING_UP and reply.missing:
                reply.stop_on_refusal()
                raise FellSilent(set(reply.missing))
        return replies
