"""Masks under scalars: pairs of parties add and subtract the same number.

A party adds a mask for every neighbour that comes after it and subtracts one for every neighbour
before it. Over all parties of a sum the masks cancel; any smaller sum is random to the coordinator,
also with the help of other parties, since a mask takes the key of one of its two parties.

What a mask depends on, a party knows by itself: the list of participants, the phase that it is in,
the field, the number of the answer, and over whom the sum goes. Nothing of that is left to a
message. Parties that were asked different things have masks that do not cancel.
"""

from __future__ import annotations

from bisect import bisect
from hashlib import shake_256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.crypto.pair_secrets import PairSecrets
from weft.crypto.primitives.scalars_modulo_2_144 import unpacked, whole_numbers
from weft.crypto.primitives.seeded_words import Words, seeded_words
from weft.crypto.run_participants import ParticipantList
from weft.crypto.scalar_mask_neighbours import Sharers
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, ProtocolError
from weft.guards.privacy_terms import OPEN, Terms
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.protocol.message_bytes import Question

_WIDTH = SCALAR_BYTES
#: From so many numbers on that are added, arrays are quicker than Python's whole numbers.
_MANY = 48


class Masks:
    """A party's masks.

    Parameters
    ----------
    pairs
        What it shares with each other party in this run: masks of two runs differ, whatever anybody
        else repeats.
    participants
        Who takes part.
    party
        Its number.
    terms
        Over how many parties a sum must go.
    alone
        There is no other party in this run, so that a sum over one is all there is.
    """

    def __init__(
        self,
        pairs: PairSecrets,
        participants: ParticipantList,
        party: int,
        terms: Terms = OPEN,
        *,
        alone: bool = False,
    ) -> None:
        self._pairs = pairs
        self._participants = participants
        self._party = party
        self._terms = terms
        self._alone = alone
        self._few = False
        self._keys: dict[int, Secret] = {}
        #: The same for masks under sums.
        self._seeds: dict[int, Secret] = {}

    def __reduce__(self) -> Any:
        raise TypeError("masks are not to be pickled: they hold keys")

    @property
    def fewest(self) -> int:
        """So many holders of a cohort must contribute to a sum together, unless it has fewer."""
        return 1 if self._alone or self._terms.allow_pairs else self._terms.min_contributors

    def allow_few(self, few: bool) -> None:
        """Whether sums of scalars may go over fewer parties than terms ask for."""
        self._few = few

    def everyone(self) -> Sharers:
        """For sums over all parties."""
        return self._participants.everyone

    def labelled(self) -> Sharers:
        """For sums over all parties that have labels."""
        return self._participants.labelled

    def attending(self, bits: NDArray[np.uint8] | None, *, harmless: bool = False) -> Sharers:
        """For sums over those who are there; None: all are.

        Where terms ask for several contributors, only sums of what is ``harmless`` may go over some
        parties now and over others later: their difference is close to what a single one told.
        """
        if bits is None:
            return self.everyone()
        if not harmless and self._terms.min_contributors > 1:
            raise ProtocolError("a request wants scalars in a sum that not all take part in")
        return self._participants.attending(bits)

    def sum(self, question: Question, over: Sharers, count: int) -> list[int] | None:
        """What to add to ``count`` scalars modulo 2^144; None: this party is not in the sum."""
        neighbours = over.neighbours(self._party)
        if neighbours is None:
            return None
        enough = self._alone or self._few or self._terms.allows_scalars(len(over.numbers))
        if not enough:
            self._refuse(question.field, len(over.numbers))
        name = question.mark() + over.mark
        size = _WIDTH * count
        streams = [shake_256(self._shared(n).reveal() + name).digest(size) for n in neighbours]
        # Neighbours rise: those whose masks are subtracted come first.
        below = bisect(neighbours, self._party)
        if count * len(streams) > _MANY:
            limbs = unpacked(b"".join(streams)).reshape(-1, count, 3)
            return whole_numbers(limbs[below:].sum(axis=0) - limbs[:below].sum(axis=0))
        total = [0] * count
        for number, stream in enumerate(streams):
            for place in range(count):
                drawn = int.from_bytes(stream[_WIDTH * place : _WIDTH * (place + 1)], "big")
                total[place] += drawn if number >= below else -drawn
        return total

    def words(self, label: str, *shape: int) -> Words:
        """Words to add to what goes into letters: those of all parties come to zero.

        They are for one answer: whoever hides two under the same label shows their difference.
        """
        parties = len(self._participants.cards)
        if not self._alone and not self._terms.allows(parties):
            self._refuse("sums for standard errors", parties)
        total = np.zeros(shape, np.uint64)
        for peer in range(parties):
            if peer == self._party:
                continue
            seed = self._pairs.shared(peer).derive("weft masks of letters")
            drawn = seeded_words(seed.reveal(), label, *shape)
            total = total + drawn if peer > self._party else total - drawn
        return total

    def pair_seed(self, peer: int) -> bytes:
        """What masks under sums are made of that this party shares with another."""
        if peer == self._party or not 0 <= peer < len(self._participants.cards):
            raise ProtocolError("a request for sums names neighbours that are none")
        if peer not in self._seeds:
            shared = self._pairs.shared(peer)
            self._seeds[peer] = shared.derive("weft masks of sums", length=16)
        return self._seeds[peer].reveal()

    def _refuse(self, field: str, parties: int) -> None:
        own = "its own" if parties == 1 else "a sum of two"
        flag = "allow_lone_labels" if parties == 1 else "allow_pairs"
        raise ConfigError(
            f"this party refuses to tell '{field}' in a sum over so few parties that the "
            f"coordinator would read {own}; agree on {flag} = true, or let more bring labels"
        )

    def _shared(self, peer: int) -> Secret:
        """What the masks of a pair follow from."""
        if peer not in self._keys:
            self._keys[peer] = self._pairs.shared(peer).derive("weft masks")
        return self._keys[peer]
