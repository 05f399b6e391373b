"""How a party answers phases of sealed training: each once, in order, under masks and pads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from weft.crypto.primitives.seeded_words import SEED_BYTES, Words, seeded_words
from weft.errors import ConfigError, ProtocolError
from weft.protocol import Answer, Phase, answer, fields_of, pack
from weft.protocol.declared_message_fields import Fields
from weft.protocol.message_bytes import question_digest
from weft.protocol.phase_with_request_and_reply import R
from weft.solvers.party_context import PartyContext
from weft.solvers.secret_sharing.messages import SealedRequest
from weft.solvers.secret_sharing.share_arithmetic import DealtShares

Asked = TypeVar("Asked", bound=SealedRequest)


@dataclass(frozen=True)
class _Opening:
    """Words that this party has sent under masks and pads, to be opened with the next request."""

    label: str
    shape: tuple[int, ...]


class AnswersInOrder:
    """Numbers of phases, the party's seeds, and what hides its words."""

    def __init__(self, context: PartyContext) -> None:
        if context.openings is None:
            raise ConfigError("sealed training needs a cipher that hides sums; use cipher = 'pad'")
        self._context, self._pads = context, context.openings
        self._cipher, self._view = context.cipher, context.view
        self._party, self._parties = self._view.party, self._view.n_parties
        self._first, self._last = self._party == 0, self._party == self._parties - 1
        #: What the dealer gets, and what nobody gets.
        self._seed = context.draws.random("sealed seed", SEED_BYTES)
        self._own_seed = context.draws.random("sealed noise", SEED_BYTES)
        self._serial, self._asked = 0, b""
        #: The phase that was answered last, all that it said, and the answer.
        self._done: tuple[str, Fields, Any] | None = None
        self._opening: _Opening | None = None

    def _once(self, phase: Phase[Asked, R], handle: Callable[[Asked], R]) -> Answer:
        """Work on a phase once; whoever asks again gets the same answer to the same question.

        Masks come from the number of a phase. So another question under a number that was used
        must never be answered. Nor is anything once a phase was refused: whoever changes openings
        would guess again until a change fits its keyed sums.
        """

        def on(message: Asked) -> R:
            told = fields_of(message)
            del told["round"]
            if self._done is not None and self._serial == message.serial:
                name, before, reply = self._done
                # Megabytes, which are compared only where a phase is asked again.
                if name != phase.name or pack(before) != pack(told):
                    raise ProtocolError("a phase of sealed training was asked in two ways")
                return reply  # type: ignore[no-any-return]
            if self._done is not None and not self._done[0]:
                raise ProtocolError("this run is over here, since a phase was refused; start anew")
            if message.serial != self._serial + 1:
                raise ProtocolError("a phase of sealed training comes out of turn")
            # Whatever happens from here on, the number is used.
            self._serial, self._done = message.serial, ("", {}, None)
            self._asked = question_digest(message, self._asked)
            self._cipher.lasting(self._serial, self._asked)
            reply = handle(message)
            self._done = phase.name, told, reply
            return reply

        return answer(phase, on)

    def _label(self) -> str:
        """Under which a pad is used: once, and only by who was asked the same."""
        return f"{self._serial} {self._asked.hex()}"

    def _hide(self, words: Words) -> Words:
        self._opening = _Opening(self._label(), words.shape)
        return self._pads.put_on(words, self._opening.label)

    def _open(self, total: Words) -> Words:
        opening, self._opening = self._opening, None
        if opening is None:
            raise ProtocolError("a phase of sealed training comes out of turn")
        count = int(np.prod(opening.shape))
        return self._pads.take_off(total, count, opening.label).reshape(opening.shape)

    def _mask(self, name: str, *shape: int) -> Words:
        return seeded_words(self._seed, f"{self._serial} {name}", *shape)

    def _dealt(self, sent: Words | None) -> DealtShares:
        return DealtShares(self._seed, sent, self._last)
