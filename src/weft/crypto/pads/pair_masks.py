"""Masks of pairs of holders under the pads: a contribution shows nothing to any single holder.

All holders of a cohort can compute its pads, so that one of them, together with the coordinator,
could open everybody's contribution. Hence the parties that contribute to a cohort form a ring, and
every two neighbours share a mask, which one adds and the other subtracts. In the sum over the ring
all masks cancel; a smaller sum is noise to everybody, and one neighbour alone who helps the
coordinator leaves the others on a path that still hides each of them.

A mask is AES_K(x ⊕ S) ⊕ S, where x names request, kind and word, K is the run's key and S is the
pair's secret ⊕ the cohort's seed. ``book`` has a row per cohort: seed (two words), first slot.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots
from weft.crypto.ciphers.chunk_layout import MODULUS
from weft.crypto.identities import Secret
from weft.crypto.pads.mask_ring import MaskRing
from weft.crypto.primitives.aes import encrypt_block, expand_key
from weft.crypto.primitives.prime_field import PRIME, reduced

Words = NDArray[np.uint64]

_NO_SLOTS = np.zeros(0, np.int32)
#: Other uses of the cipher under the same keys have other numbers of kinds.
_WORD, _TAG, _WIDE = 16, 32, 48


class PairMasks:
    """The masks of one party along one axis; parameters as those of `Streams`."""

    def __init__(self, key: Secret, seeds: NDArray[np.uint8], start: NDArray[np.int64]) -> None:
        self._keys = expand_key(key.reveal())
        cohorts = len(start) - 1
        self._cohort_of = np.repeat(np.arange(cohorts, dtype=np.int32), np.diff(start))
        self._book = np.zeros((cohorts, 3), np.uint64)
        self._book[:, :2] = np.ascontiguousarray(seeds).view(np.uint64).reshape(-1, 2)
        self._book[:, 2] = start[:-1]

    def __reduce__(self) -> Any:
        raise TypeError("masks are not to be pickled: they hold keys")

    def put_on(
        self, kind: int, slots: Slots | None, words: Words, tags: Words, ring: MaskRing
    ) -> None:
        """Add this party's masks to words and tags."""
        some = _NO_SLOTS if slots is None else slots
        _mask_words(
            words, some, self._cohort_of, self._book, self._keys, ring.seeds, ring.signs, kind,
            ring.context,
        )  # fmt: skip
        _mask_tags(
            tags, some, self._cohort_of, self._book, self._keys, ring.seeds, ring.signs, kind,
            ring.context,
        )  # fmt: skip

    def residues(self, kind: int, width: int, ring: MaskRing) -> Words:
        """Sums of this party's masks at all slots, modulo the prime of whole chunks."""
        out = np.zeros((len(self._cohort_of), width), np.uint64)
        _mask_residues(
            out, self._cohort_of, self._book, self._keys, ring.seeds, ring.signs, kind,
            ring.context, MODULUS,
        )  # fmt: skip
        return out


# ── compiled loops ──────────────────────────────────────────────────────────────────────

_P = np.uint64(PRIME)
_ZERO = np.uint64(0)


@numba.njit(cache=True, inline="always")
def _mask_block(
    context: Any, block: Any, top: Any, c: Any, side: Any, book: Any, seeds: Any, keys: Any
) -> Any:
    """A block of the mask that a party shares with its neighbour on one side."""
    s0, s1 = book[c, 0] ^ seeds[c, side, 0], book[c, 1] ^ seeds[c, side, 1]
    low, high = encrypt_block(context ^ s0, (top | np.uint64(block)) ^ s1, keys)
    return low ^ s0, high ^ s1


@numba.njit(cache=True)
def _mask_words(
    words: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, seeds: Any, signs: Any,
    kind: int, context: int,
) -> None:  # fmt: skip
    """words += masks modulo 2^64; a block of AES covers two neighbouring words."""
    name = np.uint64(context)
    top = np.uint64(kind + _WORD) << np.uint64(56)
    width = words.shape[1]
    whole = slots.shape[0] == 0
    cohort, block = -1, np.int64(-1)
    a0 = a1 = _ZERO
    for r in range(words.shape[0]):
        s = r if whole else np.int64(slots[r])
        c = cohort_of[s]
        word = (s - np.int64(book[c, 2])) * width
        for j in range(width):
            here = (word + j) >> 1
            if here != block or c != cohort:
                a0 = a1 = _ZERO
                for side in range(2):
                    if signs[c, side] != 0:
                        low, high = _mask_block(name, here, top, c, side, book, seeds, keys)
                        if signs[c, side] > 0:
                            a0, a1 = a0 + low, a1 + high
                        else:
                            a0, a1 = a0 - low, a1 - high
                cohort, block = c, here
            words[r, j] += a1 if (word + j) & 1 else a0


@numba.njit(cache=True)
def _mask_tags(
    tags: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, seeds: Any, signs: Any, kind: int,
    context: int,
) -> None:  # fmt: skip
    """tags += masks modulo the prime of tags; a block of AES covers two neighbouring slots."""
    name = np.uint64(context)
    top = np.uint64(kind + _TAG) << np.uint64(56)
    whole = slots.shape[0] == 0
    cohort, block = -1, np.int64(-1)
    a0 = a1 = _ZERO
    for r in range(tags.shape[0]):
        s = r if whole else np.int64(slots[r])
        c = cohort_of[s]
        place = s - np.int64(book[c, 2])
        here = place >> 1
        if here != block or c != cohort:
            a0 = a1 = _ZERO
            for side in range(2):
                if signs[c, side] != 0:
                    low, high = _mask_block(name, here, top, c, side, book, seeds, keys)
                    low, high = reduced(low), reduced(high)
                    if signs[c, side] < 0:
                        low, high = _P - low, _P - high
                    a0, a1 = reduced(a0 + low), reduced(a1 + high)
            cohort, block = c, here
        tags[r] = reduced(tags[r] + (a1 if place & 1 else a0))


@numba.njit(cache=True)
def _mask_residues(
    out: Any, cohort_of: Any, book: Any, keys: Any, seeds: Any, signs: Any, kind: int,
    context: int, modulus: int,
) -> None:  # fmt: skip
    """out += masks modulo a prime just below 2^50, one block of AES a mask."""
    prime = np.uint64(modulus)
    low36 = np.uint64((1 << 36) - 1)
    # 2^64 modulo the prime: a number of 28 bits.
    carry = (_ZERO - prime) % prime
    name = np.uint64(context)
    top = np.uint64(kind + _WIDE) << np.uint64(56)
    for s in range(out.shape[0]):
        c = cohort_of[s]
        for j in range(out.shape[1]):
            word = (s - np.int64(book[c, 2])) * out.shape[1] + j
            for side in range(2):
                if signs[c, side] == 0:
                    continue
                high, low = _mask_block(name, word, top, c, side, book, seeds, keys)
                mask = ((high & low36) * carry % prime + low % prime) % prime
                if signs[c, side] < 0:
                    mask = (prime - mask) % prime
                out[s, j] = (out[s, j] + mask) % prime
