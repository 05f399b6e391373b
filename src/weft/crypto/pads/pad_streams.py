"""Pads: 64-bit words that only the holders of a cohort can compute.

F(S_c; pad id, kind, word) = AES_K(x ⊕ S_c) ⊕ S_c, where x names pad id, kind and word, K is the
run's key and S_c the cohort's (whitening as in DESX and XTS). Whoever lacks K, the coordinator,
faces AES-256; a party that has K but does not hold the cohort faces the Even–Mansour cipher,
whose 128-bit key S_c takes 2^128 / (blocks seen) work to find.

`Streams` is what ciphers use. Below it are its compiled loops: one pass over the words, pads
computed where they are added. In them ``book`` has a row per cohort: seed (two words), factor, its
inverse modulo 2^64, first slot. A block of AES gives the pads of two neighbouring words; kinds and
words are named by its second half.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.crypto.ciphers.block_format import ID_BITS, SIGN, Carried, Where, named
from weft.crypto.ciphers.chunk_layout import MODULUS
from weft.crypto.identities import Secret
from weft.crypto.primitives.aes import encrypt_block, expand_key
from weft.errors import ProtocolError
from weft.protocol.shared_fields import PadIds

Words = NDArray[np.uint64]
Number = TypeVar("Number", np.uint32, np.uint64)

_NO_SLOTS = np.zeros(0, np.int32)
_NO_PADS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.uint32)


class Streams:
    """The pads of one party along one axis.

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
        self.start = start
        self.cohorts = len(start) - 1
        sizes = np.diff(start)
        self.cohort_of = np.repeat(np.arange(self.cohorts, dtype=np.int32), sizes)
        # One table for the compiled loops: seed, factor, its inverse, first slot.
        self._book = np.zeros((self.cohorts, 5), np.uint64)
        self._book[:, :2] = np.ascontiguousarray(seeds).view(np.uint64).reshape(-1, 2)
        self._book[:, 4] = start[:-1]
        _multipliers(self._book, self._keys)

    def __repr__(self) -> str:
        return f"Streams({self.cohorts} cohorts)"

    def __reduce__(self) -> Any:
        raise TypeError("pads are not to be pickled: they hold keys")

    def hide(
        self,
        kind: int,
        slots: Slots | None,
        values: NDArray[np.int64],
        pad_id: int,
        minus: PadIds = _NO_PADS,
        tails: PadIds = _NO_PADS,
    ) -> tuple[Words, int]:
        """Values times the cohort's factor, plus the pad of ``pad_id``, less the one before it.

        ``minus`` has a pad id per cohort, or none for nothing to take off; where it is zero, this
        party leads and takes off what ``tails`` says for the slot. Returns also whether a mark
        stands for several pad ids (1), which are then left on, or is not older than ``pad_id`` (2).
        """
        out = np.empty(values.shape, np.uint64)
        status = _hide_words(
            out,
            values,
            _NO_SLOTS if slots is None else slots,
            self.cohort_of,
            self._book,
            self._keys,
            kind,
            pad_id,
            minus,
            tails,
        )
        return out, status

    def add(
        self, words: Words, kind: int, position: int, slot: int, pad_ids: tuple[int, ...]
    ) -> None:
        """Add the pads of signed pad ids to the words at one position."""
        signed = np.array(pad_ids, np.uint64)
        _add_pads(words, position, slot, self.cohort_of, self._book, self._keys, kind, signed)

    def show(
        self,
        kind: int,
        slots: Slots | None,
        words: Words,
        carried: Carried,
        since: int,
        unit: float,
        where: Where,
    ) -> Floats:
        """The inverse of :meth:`hide` for totals, times ``unit``; each slot is checked."""
        out = np.empty(words.shape, np.float64)
        lengths, counts, pad_ids = carried
        if lengths is None and len(pad_ids) != self.cohorts:
            raise ProtocolError(f"{named(where)} names the pads of other cohorts than it covers")
        status = _show_words(
            out,
            _read_only(words),
            _NO_SLOTS if slots is None else slots,
            self.cohort_of,
            self._book,
            self._keys,
            kind,
            _read_only(_NO_COUNTS if lengths is None else lengths),
            _read_only(_NO_COUNTS if counts is None else counts),
            _read_only(pad_ids),
            lengths is None,
            since,
            unit,
        )
        if status:
            _explain(status, len(words), named(where))
        return out

    def residues(self, kind: int, width: int, pad_ids: PadIds) -> Words:
        """Sums of pads modulo :data:`weft.crypto.ciphers.chunk_layout.MODULUS`, at all slots.

        ``pad_ids`` has a row per pad. A block of 128 bits gives one pad, so that reducing it
        leaves no bias to speak of.
        """
        out = np.zeros((pad_ids.shape[1], width), np.uint64)
        rows = np.ascontiguousarray(pad_ids)
        _sum_residues(out, rows, self.cohort_of, self._book, self._keys, kind, MODULUS)
        return out


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    """A view that cannot be written to: loops are compiled once for these, once for others."""
    view = array.view()
    view.flags.writeable = False
    return view


def _explain(status: int, slots: int, where: str) -> None:
    if status == -1:
        raise ProtocolError(f"{where} names the pads of another number of slots than {slots}")
    if status == -2:
        raise ProtocolError(
            f"{where} is older than this party's own contribution: it was sent before, or leaves "
            "something out"
        )
    raise failed_check(where)


def failed_check(where: str) -> ProtocolError:
    """Always in the same words: which slot or check it was would help whoever tries."""
    return ProtocolError(
        f"{where} fails its check: values were changed, left out or added twice on their way; the "
        "run stops"
    )


def signed_off(pad_id: int) -> int:
    """A pad id that is to be taken off instead of put on, and the reverse."""
    return pad_id ^ int(SIGN)


# ── compiled loops ──────────────────────────────────────────────────────────────────────

#: Totals lie within ±2^49: of the 64 bits of an opened word, 14 must agree with the sign.
_BOUND = np.int64(1 << 49)
#: Kinds of sums are numbered from 1; other uses of the cipher lie above them.
_MULTIPLIER = 255
_WIDE = 64


@numba.njit(cache=True, inline="always")
def _pad_block(pad_id: Any, block: Any, top: Any, c: Any, book: Any, keys: Any) -> Any:
    """The pads of words 2·block and 2·block + 1 of a cohort."""
    low, high = encrypt_block(pad_id ^ book[c, 0], (top | np.uint64(block)) ^ book[c, 1], keys)
    return low ^ book[c, 0], high ^ book[c, 1]


@numba.njit(cache=True)
def _multipliers(book: Any, keys: Any) -> None:
    """A secret odd factor per cohort, and its inverse modulo 2^64."""
    top = np.uint64(_MULTIPLIER) << np.uint64(56)
    for c in range(book.shape[0]):
        low, _ = _pad_block(np.uint64(0), 0, top, c, book, keys)
        factor = low | np.uint64(1)
        inverse = factor
        for _ in range(6):  # Newton's iteration doubles the bits that are right, from 3
            inverse = inverse * (np.uint64(2) - factor * inverse)
        book[c, 2] = factor
        book[c, 3] = inverse


@numba.njit(cache=True)
def _hide_words(
    out: Any, values: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, kind: int,
    pad_id: int, minus: Any, tails: Any,
) -> int:  # fmt: skip
    """out = values · factor + pad(pad id) − pad(before); see `Streams.hide`."""
    new = np.uint64(pad_id)
    top = np.uint64(kind) << np.uint64(56)
    width = values.shape[1]
    whole = slots.shape[0] == 0
    status = 0
    cohort, block, last = -1, np.int64(-1), np.uint64(0)
    a0 = a1 = b0 = b1 = np.uint64(0)
    for r in range(values.shape[0]):
        s = r if whole else np.int64(slots[r])
        c = cohort_of[s]
        before = np.uint64(0)
        if minus.shape[0] > 0:
            before = minus[c]
            if before == 0 and tails.shape[0] > 0:
                before = tails[s]
            if before & SIGN:
                status = max(status, 1)
                before = np.uint64(0)
            elif before >= new:
                return 2
        word = (s - np.int64(book[c, 4])) * width
        for j in range(width):
            here = (word + j) >> 1
            if here != block or c != cohort or before != last:
                if here != block or c != cohort:
                    a0, a1 = _pad_block(new, here, top, c, book, keys)
                if before != 0:
                    b0, b1 = _pad_block(before, here, top, c, book, keys)
                else:
                    b0 = b1 = np.uint64(0)
                cohort, block, last = c, here, before
            value = np.uint64(values[r, j]) * book[c, 2]
            if (word + j) & 1:
                out[r, j] = value + a1 - b1
            else:
                out[r, j] = value + a0 - b0
    return status


@numba.njit(cache=True)
def _pad_word(pad_id: Any, word: Any, top: Any, c: Any, book: Any, keys: Any) -> Any:
    """The pad of one word, with its pad id's sign."""
    low, high = _pad_block(pad_id & ID_BITS, word >> 1, top, c, book, keys)
    pad = high if word & 1 else low
    return np.uint64(0) - pad if pad_id & SIGN else pad


@numba.njit(cache=True)
def _add_pads(
    words: Any, position: int, slot: int, cohort_of: Any, book: Any, keys: Any, kind: int,
    pad_ids: Any,
) -> None:  # fmt: skip
    """Add the pads of signed pad ids to the words of one slot."""
    top = np.uint64(kind) << np.uint64(56)
    c = cohort_of[slot]
    first = (slot - np.int64(book[c, 4])) * words.shape[1]
    for j in range(words.shape[1]):
        for i in range(pad_ids.shape[0]):
            words[position, j] += _pad_word(pad_ids[i], first + j, top, c, book, keys)


@numba.njit(cache=True)
def _show_words(
    out: Any, words: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, kind: int,
    lengths: Any, counts: Any, pad_ids: Any, per_cohort: bool, since: int, unit: float,
) -> int:  # fmt: skip
    """out = (words − pads) / factor · unit; see `Streams.show`.

    Returns 0, 1 where a slot holds no small number, −1 where the runs
    do not cover the slots, −2 where a pad id is older than ``since``.
    """
    top = np.uint64(kind) << np.uint64(56)
    width = words.shape[1]
    whole = slots.shape[0] == 0 and words.shape[0] > 0
    several = counts.shape[0] > 0
    run, left, at, many = -1, np.int64(0), 0, 1
    cohort, block, last = -1, np.int64(-1), np.uint64(0)
    a0 = a1 = np.uint64(0)
    for r in range(words.shape[0]):
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
                    return -1
                left = np.int64(lengths[run])
                many = int(counts[run]) if several else 1
                if at + many > pad_ids.shape[0]:
                    return -1
            left -= 1
        word = (s - np.int64(book[c, 4])) * width
        if several:
            if _newest(pad_ids, at, at + many) < np.uint64(since):
                return -2
            for j in range(width):
                pad = np.uint64(0)
                for i in range(at, at + many):
                    pad += _pad_word(pad_ids[i], word + j, top, c, book, keys)
                if not _write(out, r, j, (words[r, j] - pad) * book[c, 3], unit):
                    return 1
            continue
        pad_id = pad_ids[at]
        if pad_id < np.uint64(since):
            return -2
        for j in range(width):
            here = (word + j) >> 1
            if here != block or c != cohort or pad_id != last:
                a0 = a1 = np.uint64(0)
                if pad_id != 0:
                    a0, a1 = _pad_block(pad_id, here, top, c, book, keys)
                cohort, block, last = c, here, pad_id
            pad = a1 if (word + j) & 1 else a0
            if not _write(out, r, j, (words[r, j] - pad) * book[c, 3], unit):
                return 1
    if not per_cohort:
        for i in range(max(run + 1, 0), lengths.shape[0]):
            left += np.int64(lengths[i])
        if left:
            return -1
    return 0


@numba.njit(cache=True)
def _newest(pad_ids: Any, first: int, stop: int) -> Any:
    """The newest of some pad ids; 0: there is none, or one is listed twice.

    A total times two has the pads of one twice, and a total of nothing has none.
    """
    newest = np.uint64(0)
    for i in range(first, stop):
        newest = max(newest, pad_ids[i] & ID_BITS)
        for k in range(first, i):
            if pad_ids[k] == pad_ids[i]:
                return np.uint64(0)
    return newest


@numba.njit(cache=True, inline="always")
def _write(out: Any, r: Any, j: Any, word: Any, unit: float) -> bool:
    """Write an opened word; false where it is no small number."""
    value = np.int64(word)
    out[r, j] = value * unit
    return bool(-_BOUND < value < _BOUND)


@numba.njit(cache=True)
def _sum_residues(
    total: Any, pad_ids: Any, cohort_of: Any, book: Any, keys: Any, kind: int, modulus: int
) -> None:
    """total = Σ ± pads modulo a prime just below 2^50, one block of AES a pad."""
    prime = np.uint64(modulus)
    low36 = np.uint64((1 << 36) - 1)
    # 2^64 modulo the prime: a number of 28 bits.
    carry = (np.uint64(0) - prime) % prime
    top = np.uint64(kind + _WIDE) << np.uint64(56)
    for p in range(pad_ids.shape[0]):
        for s in range(pad_ids.shape[1]):
            pad_id = pad_ids[p, s] & ID_BITS
            if pad_id == 0:
                continue
            c = cohort_of[s]
            for j in range(total.shape[1]):
                word = (s - np.int64(book[c, 4])) * total.shape[1] + j
                high, low = _pad_block(pad_id, word, top, c, book, keys)
                pad = ((high & low36) * carry % prime + low % prime) % prime
                if pad_ids[p, s] & SIGN:
                    pad = prime - pad
                total[s, j] = (total[s, j] + pad) % prime
