"""A party's neighbours among those who contribute to a sum, and what it shares with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Sides = NDArray[np.int32]


@dataclass(frozen=True)
class MaskRing:
    """A party's place in the rings of one request, cohort by cohort.

    Attributes
    ----------
    context
        The id of the request that the masks are for.
    seeds
        (cohorts × 2 sides × 2 words): secrets of the pairs.
    signs
        (cohorts × 2 sides): 1 where this party adds the mask, −1 where it subtracts it, 0 where it
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
        peers = np.stack(sides, axis=1)
        known, place = np.unique(peers, return_inverse=True)
        rows = [bytes(16) if peer < 0 else secret(peer) for peer in known.tolist()]
        table = np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 2)
        signs = np.where(peers > party, 1, -1).astype(np.int8)
        signs[peers < 0] = 0
        return cls(context, table[place.reshape(peers.shape)], signs)

    def turned(self, cohorts: NDArray[np.bool_]) -> MaskRing:
        """The same masks with the other sign, in some cohorts only: they are taken off."""
        return MaskRing(
            self.context, self.seeds, np.where(cohorts[:, None], -self.signs, 0).astype(np.int8)
        )
