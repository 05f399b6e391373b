"""Who contributes to a sum beside a party, and the masks that it shares with its neighbours.

A party knows who holds each of its cohorts: all holders have confirmed it to each other. A request
says who is asked. From these two, and nothing else, a party finds with how many others its
contribution is added, its neighbours in the ring of masks, and whose pad it takes off. So a
coordinator cannot ask for a contribution that stands alone; and as masks depend on the request,
on all that was asked in it and on who was asked, those of parties that were told different things
do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.errors import ProtocolError
from weft.numba_options import OUTER
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import Asked

Sides = NDArray[np.int32]
Words = NDArray[np.uint64]
#: In the place of a secret where there is no neighbour.
_NOTHING = bytes(16)
#: So many sets of neighbours are kept: parties that all are there have one or two.
_KEPT = 4


@dataclass(frozen=True)
class MaskRing:
    """A party's place in the rings of one request, cohort by cohort.

    Attributes
    ----------
    context
        The id of the request that the masks are for.
    seeds
        (2 sides × cohorts × 2 words): secrets of the pairs.
    signs
        (2 sides × cohorts): 1 where this party adds the mask, −1 where it subtracts it, 0 where it
        has no neighbour.
    """

    context: int
    seeds: Words = field(repr=False)
    signs: NDArray[np.int8]

    @classmethod
    def of(
        cls,
        context: int,
        party: int,
        sides: tuple[Sides, Sides],
        secret: Callable[[int], bytes],
    ) -> MaskRing:
        """From the neighbours in each cohort (−1: none) and the secrets shared with them."""
        # Most parties have few cohorts: lists are quicker than arrays. What is read-only would make
        # loops be compiled twice.
        peers = [*sides[0].tolist(), *sides[1].tolist()]
        known = {peer: secret(peer) for peer in set(peers) if peer >= 0}
        rows = b"".join([known.get(peer, _NOTHING) for peer in peers])
        signs = [0 if peer < 0 else (1 if peer > party else -1) for peer in peers]
        return cls(
            context,
            np.frombuffer(bytearray(rows), np.uint64).reshape(2, -1, 2),
            np.array(signs, np.int8).reshape(2, -1),
        )

    def bound(self, context: int, mark: bytes, encrypt: Callable[[Words], Words]) -> MaskRing:
        """The same neighbours with secrets of one question, which ``mark`` sets apart.

        The pair's secret is the key of an Even–Mansour cipher whose block is half of a hash of the
        mark, and what comes out is the key for the other half: two questions whose hashes agree in
        256 bits are not to be found, as such of 128 bits might be.
        """
        drawn = blake2b(mark, digest_size=32, person=b"weft ring").digest()
        seeds = self.seeds
        for half in np.frombuffer(drawn, np.uint64).reshape(2, 2):
            seeds = encrypt((seeds ^ half).reshape(-1, 2)).reshape(seeds.shape) ^ seeds
        return MaskRing(context, seeds, self.signs)

    def turned(self, cohorts: Flags) -> MaskRing:
        """The same masks with the other sign, in some cohorts only: they are taken off."""
        return MaskRing(self.context, self.seeds, np.where(cohorts, -self.signs, 0).astype(np.int8))


def stacked(
    rings: Sequence[MaskRing], cohorts: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int8]]:
    """Contexts, seeds and signs of several rings, a row each."""
    contexts = np.array([ring.context for ring in rings], np.uint64)
    if len(rings) == 1:
        return contexts, rings[0].seeds[None], rings[0].signs[None]
    seeds = np.empty((len(rings), 2, cohorts, 2), np.uint64)
    signs = np.empty((len(rings), 2, cohorts), np.int8)
    for number, ring in enumerate(rings):
        seeds[number], signs[number] = ring.seeds, ring.signs
    return contexts, seeds, signs


@dataclass(frozen=True)
class RingPlace:
    """A party's place among those who contribute to a sum in one request, as it works it out.

    Attributes
    ----------
    asked
        A flag per party of the run.
    again
        Whether this party has contributed before, as the request says.
    ring
        Its neighbours, with the secrets that it shares with them in all of the run.
    before
        Per cohort, whose pad it takes off, having the number before it; −1: it leads, and takes
        off what is under the total.
    mark
        Sets this set apart from any other one.
    """

    asked: Flags
    again: bool
    ring: MaskRing
    before: NDArray[np.int64]
    mark: bytes

    @cached_property
    def leads(self) -> Flags:
        """Per cohort, whether this party leads."""
        leading: Flags = self.before < 0
        return leading

    @cached_property
    def ahead(self) -> NDArray[np.uint64]:
        """Per cohort, who has the number before it; zero where it leads."""
        return np.maximum(self.before, 0).astype(np.uint64)


class CohortHolders:
    """Who holds a party's shared cohorts along one axis, as all of them have confirmed.

    Parameters
    ----------
    lengths, holders
        How many hold each cohort, and their numbers, cohort by cohort, rising.
    least
        So many must contribute to a cohort, unless they are all of its holders.
    secret
        What the party shares with another one.
    """

    def __init__(
        self,
        lengths: Ints,
        holders: Ints,
        party: int,
        parties: int,
        least: int,
        secret: Callable[[int], bytes],
    ) -> None:
        self._begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._holders = np.ascontiguousarray(holders, np.int64)
        self._party, self._parties, self._least = party, parties, least
        self._secret = secret
        self._known: dict[tuple[bytes, bytes], RingPlace] = {}

    def __repr__(self) -> str:
        return f"CohortHolders({len(self._begin) - 1} cohorts)"

    @property
    def cohorts(self) -> int:
        return len(self._begin) - 1

    def place(self, asked: Asked) -> RingPlace:
        """Who contributes, and who of them are this party's neighbours."""
        parties, again = asked.parties, asked.again
        key = (
            b"" if parties is None else parties.tobytes(),
            b"" if again is None else again.tobytes(),
        )
        found = self._known.get(key)
        if found is None:
            found = self._find(self.flags(parties, True), self.flags(again, False), key)
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found

    def flags(self, bits: NDArray[np.uint8] | None, default: bool) -> Flags:
        """A flag per party from bits."""
        if bits is None:
            return np.full(self._parties, default)
        if len(bits) != -(-self._parties // 8):
            raise malformed("asked", "does not have a bit for every party")
        return np.unpackbits(bits, count=self._parties).astype(bool)

    def with_any(self, parties: Flags) -> Flags:
        """Per cohort, whether one of these parties holds it."""
        held = parties[self._holders]
        return np.logical_or.reduceat(held, self._begin[:-1]) if len(held) else held

    def _find(self, asked: Flags, again: Flags, key: tuple[bytes, bytes]) -> RingPlace:
        if not asked[self._party] or (again & ~asked).any():
            raise malformed("asked", "is not of those who contribute")
        left, right = np.full((2, self.cohorts), -1, np.int32)
        before = np.full(self.cohorts, -1, np.int64)
        enough = _neighbours(
            self._begin, self._holders, self._party, asked, again, self._least, left, right, before
        )
        if not enough:
            raise ProtocolError(
                "a request wants a contribution to a sum over fewer parties than agreed on"
            )
        ring = MaskRing.of(0, self._party, (left, right), self._secret)
        mark = len(key[0]).to_bytes(4, "big") + key[0] + key[1]
        return RingPlace(asked, bool(again[self._party]), ring, before, mark)


@numba.njit(**OUTER)
def _neighbours(
    begin: Any, holders: Any, party: int, asked: Any, again: Any, least: int, left: Any, right: Any,
    before: Any,
) -> bool:  # fmt: skip
    """Fill in the neighbours of a party in each cohort; whether enough contribute everywhere.

    The first who has contributed before leads, else the first; the others follow around the ring.
    """
    enough = True
    for unit in range(begin.shape[0] - 1):
        count, first, last, low, high, lead = 0, -1, -1, -1, -1, -1
        for at in range(begin[unit], begin[unit + 1]):
            holder = holders[at]
            if not asked[holder]:
                continue
            count += 1
            if first < 0:
                first = holder
            if lead < 0 and again[holder]:
                lead = holder
            if holder < party:
                low = holder
            elif holder > party and high < 0:
                high = holder
            last = holder
        enough = enough and (count >= least or count == begin[unit + 1] - begin[unit])
        if lead < 0:
            lead = first
        # Two form no ring, but a pair.
        left[unit] = low if low >= 0 or count <= 2 else last
        right[unit] = high if high >= 0 or count <= 2 else first
        if lead != party:
            before[unit] = low if low >= 0 else last
    return enough
