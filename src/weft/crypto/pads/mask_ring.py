"""A party's neighbours among those who contribute to a sum, and what it shares with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Sides = NDArray[np.int32]
#: In the place of a secret where there is no neighbour.
_NOTHING = bytes(16)


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
    seeds: NDArray[np.uint64] = field(repr=False)
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

    def turned(self, cohorts: NDArray[np.bool_]) -> MaskRing:
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
