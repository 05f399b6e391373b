"""Who takes part in a run: the list that every party is told, and that its secrets depend on.

A party looks for itself in the list, at its own number. A hash of the whole list enters whatever
parties share in the run. So it need not be sent around to be compared: a coordinator that tells
two parties different lists gets numbers in which nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.key_and_seed_messages import signed_content
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.scalar_mask_neighbours import Sharers
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import EXCHANGE, NONCE, PUBLIC, SIGNATURE, Company, Participants

#: Where a card has the nonce and the exchange key.
_NONCE = slice(PUBLIC, PUBLIC + NONCE)
_EXCHANGE = slice(PUBLIC + NONCE, PUBLIC + NONCE + EXCHANGE)


@dataclass(frozen=True, eq=False)
class ParticipantList:
    """All parties of a run, as every one of them was told.

    Attributes
    ----------
    cards
        Public keys, nonces and signed exchange keys, in the order of the parties' numbers.
    digest
        A hash of the list, with lengths, and of the name of the run.
    """

    cards: tuple[bytes, ...]
    labels: Ints
    digest: bytes

    def exchange_key(self, party: int) -> bytes:
        """The public half of a party's key of this run."""
        return self.cards[party][_EXCHANGE]

    @cached_property
    def everyone(self) -> Sharers:
        return Sharers(np.arange(len(self.cards)), b"everyone")

    @cached_property
    def labelled(self) -> Sharers:
        """Those who have labels of some sample."""
        return Sharers(self.labels, b"labelled")

    def attending(self, bits: NDArray[np.uint8]) -> Sharers:
        """Those with a bit, as :func:`attendance` sets it."""
        if len(bits) != -(-len(self.cards) // 8):
            raise malformed("attending", "does not have a bit for every party")
        numbers = np.flatnonzero(np.unpackbits(bits, count=len(self.cards)))
        return Sharers(numbers, b"attending" + bits.tobytes())

    def insist_on(self, party: int, card: bytes, parties: int, *, labels: bool) -> None:
        """Refuse a list that is not one of this party's run.

        Parameters
        ----------
        party, card
            The number that the party was told, and what it announced.
        parties
            How many it was told take part.
        labels
            Whether it has labels, whose losses must be hidden among others': of parties that have
            some, not of those who were only said to.
        """
        if not 0 <= party < len(self.cards) == parties or self.cards[party] != card:
            raise ProtocolError(
                "a list of participants does not have this party at its own number; stop this run"
            )
        if labels != (party in self.labels):
            raise ProtocolError(
                "a list of participants is wrong about whether this party has labels; stop this run"
            )


def read_participants(told: Participants, run: bytes) -> ParticipantList:
    """A list as it was told, if nobody is in it twice and all have signed what they drew."""
    # One process may simulate thousands of parties, each of which is told the same list.
    return _read(told.keys, told.labelled.tobytes(), len(told.labelled), run)


def company_digest(told: Company, run: bytes, card: bytes, parties: int) -> bytes:
    """A hash of who takes part in a run, and of what all have drawn for it.

    Parameters
    ----------
    card
        What this party announced itself: it must be one of them.
    parties
        How many it was told take part; zero: it was not told.
    """
    cards = _read_cards(told.keys, run)
    if card not in cards or parties not in (0, len(cards)):
        raise ProtocolError(
            "a list of participants does not have this party, or has others than it was told of; "
            "stop this run"
        )
    content = len(run).to_bytes(8, "big") + run + told.keys
    return blake2b(content, digest_size=32, person=b"weft company").digest()


@lru_cache(maxsize=4)
def _read_cards(keys: bytes, run: bytes) -> tuple[bytes, ...]:
    """Cards of different parties, who have signed what they drew for this run."""
    cards = Company(keys=keys).cards()
    for part in (slice(PUBLIC), _NONCE, _EXCHANGE):
        if len({card[part] for card in cards}) < len(cards):
            raise ProtocolError("a list of participants names a party twice; stop this run")
    for card in cards:
        content = signed_content(run, card[_NONCE], card[_EXCHANGE])
        PublicIdentity.from_bytes(card[:PUBLIC]).verify(content, card[-SIGNATURE:])
    return tuple(cards)


@lru_cache(maxsize=4)
def _read(keys: bytes, labelled: bytes, count: int, run: bytes) -> ParticipantList:
    cards = _read_cards(keys, run)
    if count != len(cards):
        raise malformed("labelled", "does not have a flag for every party")
    content = len(run).to_bytes(8, "big") + run + len(cards).to_bytes(8, "big") + keys + labelled
    digest = blake2b(content, digest_size=32, person=b"weft parties").digest()
    return ParticipantList(cards, np.flatnonzero(np.frombuffer(labelled, bool)), digest)
