"""Tags: a number beside each slot by which its holders know that nobody changed the words.

The tag of the values v_1, …, v_k of a slot is Σ r_j·v_j + T(new) − T(before) modulo the prime
2^61 − 1, where the factors r_j are secret, one per cohort and column, and T are pads of the slot
like those of the words. Tags add up as words do, so that the coordinator adds them without
knowing anything, and any subset of slots keeps its own. Whoever changes a word, leaves one out or
adds one twice must change the tag by r·(change), of which nothing is known: one guess in 2^61
passes, and after a wrong one the party answers no more.

``book`` has a row per cohort: seed (two words), first slot. A block of AES gives the pads of two
neighbouring slots.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots
from weft.crypto.ciphers.block_format import ID_BITS, SIGN, Carried
from weft.crypto.identities import Secret
from weft.crypto.primitives.aes import encrypt_block, expand_key
from weft.crypto.primitives.prime_field import PRIME, in_field, multiply, reduced
from weft.protocol.shared_fields import PadIds

Words = NDArray[np.uint64]

_NO_SLOTS = np.zeros(0, np.int32)
_NO_PADS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.uint32)
#: Other uses of the cipher under the same keys have other numbers of kinds.
_TAG, _FACTOR = 128, 254


class Tags:
    """The tags of one party along one axis.

    Parameters
    ----------
    key
        The run's key, 32 bytes.
    seeds
        16 bytes per shared cohort.
    start
        First local slot of each shared cohort, and where the last one ends.
    """

    def __init__(self, key: Secret, seeds: NDArray[np.uint8], start: NDArray[np.int64]) -> None:
        self._keys = expand_key(key.reveal())
        self._cohorts = len(start) - 1
        self._cohort_of = np.repeat(np.arange(self._cohorts, dtype=np.int32), np.diff(start))
        self._book = np.zeros((self._cohorts, 3), np.uint64)
        self._book[:, :2] = np.ascontiguousarray(seeds).view(np.uint64).reshape(-1, 2)
        self._book[:, 2] = start[:-1]
        self._factors: dict[int, Words] = {}

    def __repr__(self) -> str:
        return f"Tags({self._cohorts} cohorts)"

    def __reduce__(self) -> Any:
        raise TypeError("tags are not to be pickled: they hold keys")

    def make(
        self,
        kind: int,
        slots: Slots | None,
        values: NDArray[np.int64],
        pad_id: int,
        minus: PadIds = _NO_PADS,
        tails: PadIds = _NO_PADS,
    ) -> Words:
        """A tag per slot; arguments as those of :meth:`weft.crypto.pads.pad_streams.Streams.hide`.

        Where a mark stands for several pad ids, nothing is taken off.
        """
        out = np.empty(len(values), np.uint64)
        _make_tags(
            out,
            values,
            _NO_SLOTS if slots is None else slots,
            self._cohort_of,
            self._book,
            self._keys,
            self._factors_of(values.shape[1]),
            kind,
            pad_id,
            minus,
            tails,
        )
        return out

    def add(
        self, tags: Words, kind: int, position: int, slot: int, pad_ids: tuple[int, ...]
    ) -> None:
        """Add the pads of signed pad ids to one tag."""
        signed = np.array(pad_ids, np.uint64)
        _add_tag_pads(tags, position, slot, self._cohort_of, self._book, self._keys, kind, signed)

    def fit(
        self,
        kind: int,
        slots: Slots | None,
        values: NDArray[np.int64],
        carried: Carried,
        tags: Words,
    ) -> bool:
        """Whether opened values are those that the tags were made for."""
        lengths, counts, pad_ids = carried
        if lengths is None and len(pad_ids) != self._cohorts:
            return False
        return bool(
            _tags_fit(
                _read_only(tags),
                values,
                _NO_SLOTS if slots is None else slots,
                self._cohort_of,
                self._book,
                self._keys,
                self._factors_of(values.shape[1]),
                kind,
                _read_only(_NO_COUNTS if lengths is None else lengths),
                _read_only(_NO_COUNTS if counts is None else counts),
                _read_only(pad_ids),
                lengths is None,
            )
        )

    def _factors_of(self, width: int) -> Words:
        """The secret factors of every cohort, one per column."""
        if width not in self._factors:
            out = np.empty((self._cohorts, width), np.uint64)
            _draw_factors(out, self._book, self._keys)
            self._factors[width] = out
        return self._factors[width]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to: loops are compiled once for these, once for others."""
    view = array.view()
    view.flags.writeable = False
    return view


# ── compiled loops ──────────────────────────────────────────────────────────────────────

_P = np.uint64(PRIME)
_ZERO = np.uint64(0)


@numba.njit(cache=True, inline="always")
def _tag_block(pad_id: Any, block: Any, top: Any, c: Any, book: Any, keys: Any) -> Any:
    """The pads of slots 2·block and 2·block + 1 of a cohort."""
    low, high = encrypt_block(pad_id ^ book[c, 0], (top | np.uint64(block)) ^ book[c, 1], keys)
    return reduced(low ^ book[c, 0]), reduced(high ^ book[c, 1])


@numba.njit(cache=True)
def _draw_factors(out: Any, book: Any, keys: Any) -> None:
    top = np.uint64(_FACTOR) << np.uint64(56)
    for c in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[c, j], _ = _tag_block(_ZERO, j, top, c, book, keys)


@numba.njit(cache=True, inline="always")
def _weighed(values: Any, r: Any, factors: Any, c: Any) -> Any:
    """Σ r_j·v_j of one slot."""
    total = _ZERO
    for j in range(values.shape[1]):
        total = reduced(total + multiply(factors[c, j], in_field(values[r, j])))
    return total


@numba.njit(cache=True)
def _make_tags(
    out: Any, values: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, factors: Any,
    kind: int, pad_id: int, minus: Any, tails: Any,
) -> None:  # fmt: skip
    """out = Σ r·values + pad(pad id) − pad(before); see `Tags.make`."""
    new = np.uint64(pad_id)
    top = np.uint64(kind + _TAG) << np.uint64(56)
    whole = slots.shape[0] == 0
    cohort, block, last = -1, np.int64(-1), _ZERO
    a0 = a1 = b0 = b1 = _ZERO
    for r in range(values.shape[0]):
        s = r if whole else np.int64(slots[r])
        c = cohort_of[s]
        before = _ZERO
        if minus.shape[0] > 0:
            before = minus[c]
            if before == 0 and tails.shape[0] > 0:
                before = tails[s]
            if before & SIGN:
                before = _ZERO
        place = s - np.int64(book[c, 2])
        here = place >> 1
        if here != block or c != cohort or before != last:
            a0, a1 = _tag_block(new, here, top, c, book, keys)
            b0 = b1 = _ZERO
            if before != 0:
                b0, b1 = _tag_block(before, here, top, c, book, keys)
            cohort, block, last = c, here, before
        pad = a1 + _P - b1 if place & 1 else a0 + _P - b0
        out[r] = reduced(_weighed(values, r, factors, c) + reduced(pad))


@numba.njit(cache=True)
def _signed_pad(pad_id: Any, place: Any, top: Any, c: Any, book: Any, keys: Any) -> Any:
    """The pad of one slot, with its pad id's sign."""
    low, high = _tag_block(pad_id & ID_BITS, place >> 1, top, c, book, keys)
    pad = high if place & 1 else low
    return reduced(_P - pad) if pad_id & SIGN else pad


@numba.njit(cache=True)
def _add_tag_pads(
    tags: Any, position: int, slot: int, cohort_of: Any, book: Any, keys: Any, kind: int,
    pad_ids: Any,
) -> None:  # fmt: skip
    top = np.uint64(kind + _TAG) << np.uint64(56)
    c = cohort_of[slot]
    place = slot - np.int64(book[c, 2])
    for i in range(pad_ids.shape[0]):
        pad = _signed_pad(pad_ids[i], place, top, c, book, keys)
        tags[position] = reduced(tags[position] + pad)


@numba.njit(cache=True)
def _tags_fit(
    tags: Any, values: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, factors: Any,
    kind: int, lengths: Any, counts: Any, pad_ids: Any, per_cohort: bool,
) -> bool:  # fmt: skip
    """Whether every tag less its pads is Σ r·values; also false where runs lack slots."""
    top = np.uint64(kind + _TAG) << np.uint64(56)
    whole = slots.shape[0] == 0 and values.shape[0] > 0
    several = counts.shape[0] > 0
    run, left, at, many = -1, np.int64(0), 0, 1
    cohort, block, last = -1, np.int64(-1), _ZERO
    a0 = a1 = _ZERO
    wrong = _ZERO
    for r in range(values.shape[0]):
        s = r if whole else np.int64(slots[r])
        c = cohort_of[s]
        if per_cohort:
            at = c
        else:
            while left == 0:
                if run >= 0:
                    at += many
                run += 1
                if run == lengths.shape[0]:
                    return False
                left = np.int64(lengths[run])
                many = int(counts[run]) if several else 1
                if at + many > pad_ids.shape[0]:
                    return False
            left -= 1
        place = s - np.int64(book[c, 2])
        expected = _weighed(values, r, factors, c)
        if several:
            for i in range(at, at + many):
                expected = reduced(expected + _signed_pad(pad_ids[i], place, top, c, book, keys))
        else:
            pad_id, here = pad_ids[at], place >> 1
            if here != block or c != cohort or pad_id != last:
                a0 = a1 = _ZERO
                if pad_id != 0:
                    a0, a1 = _tag_block(pad_id, here, top, c, book, keys)
                cohort, block, last = c, here, pad_id
            expected = reduced(expected + (a1 if place & 1 else a0))
        # No early end: how long this takes says nothing of where a tag is wrong.
        wrong |= expected ^ tags[r]
    return bool(wrong == _ZERO)
