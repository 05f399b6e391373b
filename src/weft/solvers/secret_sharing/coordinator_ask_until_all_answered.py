"""How the coordinator asks parties for a phase: until everyone has answered, adding ciphertext."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TypeVar

import numpy as np

from weft.crypto import Adder
from weft.crypto.primitives.seeded_words import Words
from weft.errors import PartyAway, ProtocolError
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Message, Phase
from weft.protocol.phase_with_request_and_reply import R
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.messages import SealedRequest

Asked = TypeVar("Asked", bound=SealedRequest)

#: Seconds between two questions to a party that does not answer: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class AskAddDeal:
    """Numbers of phases, what was opened in the last one, and what dealing costs.

    Attributes
    ----------
    dealer_seconds, dealt_bytes, opened_bytes
        What dealing has taken, what it has sent, and what parties have opened.
    """

    def __init__(
        self, channel: Channel, holdings: HoldingMap, settings: Settings, adder: Adder
    ) -> None:
        self._channel, self._holdings = channel, holdings
        self._settings, self._adder = settings, adder
        self._serial = 0
        self.dealer_seconds, self.dealt_bytes, self.opened_bytes = 0.0, 0, 0
        self._last = holdings.parties[-1]
        #: What parties have told under masks and pads, added up.
        self._total: Words = np.zeros(0, np.uint64)

    def _ask(
        self,
        phase: Phase[Asked, R],
        build: Callable[[str, int], Asked],
    ) -> dict[str, R]:
        """Ask everyone, and again whoever did not answer; phases are answered once."""
        self._serial += 1
        answers: dict[str, R] = {}
        began, pause = self._channel.elapsed, _FIRST_PAUSE
        while True:
            round_ = self._adder.advance()
            waiting = [p for p in self._holdings.parties if p not in answers]
            replies = self._channel.ask(phase, {p: build(p, round_) for p in waiting})
            replies.stop_on_refusal()
            answers.update(replies.answered)
            if not replies.missing:
                return {party: answers[party] for party in self._holdings.parties}
            if self._channel.elapsed - began + pause > self._settings.patience:
                party, failure = next(iter(replies.missing.items()))
                raise PartyAway(
                    f"{party} did not answer ({failure.reason}), and sealed training needs "
                    "everyone; bring it back, and resume the run or start again"
                )
            self._channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _add(self, replies: Mapping[str, Message], field: str) -> None:
        """Add what parties sent, word by word, without reading it."""
        total: Words | None = None
        for party, reply in replies.items():
            words: Words | None = getattr(reply, field)
            if words is None or (total is not None and words.shape != total.shape):
                raise ProtocolError(f"party {party} sent a malformed field '{field}'")
            total = words.copy() if total is None else total + words
            self.opened_bytes += words.nbytes
        assert total is not None
        self._total = total

    def _deal(self, make: Callable[[], Words]) -> Callable[[str], Words | None]:
        """What is dealt: to the last party, whose share does not follow from a seed."""
        began = perf_counter()
        words = make().reshape(-1)
        self.dealer_seconds += perf_counter() - began
        self.dealt_bytes += words.nbytes
        return lambda party: words if party == self._last else None
