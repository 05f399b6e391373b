"""The compiled loops of the pads: one pass over the words, pads computed where they are added.

``book`` has a row per cohort: seed (two words), factor, its inverse modulo 2^64, first slot. A
block of AES gives the pads of two neighbouring words; kinds and words are named by its second half.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.crypto.primitives.aes import encrypt_block

_SIGN = np.uint64(1 << 63)
_CLEAR = np.uint64((1 << 63) - 1)
#: Totals lie within ±2^49: of the 64 bits of an opened word, 14 must agree with the sign.
_BOUND = np.int64(1 << 49)
#: Kinds of sums are numbered from 1; other uses of the cipher lie above them.
_MULTIPLIER = 255
_WIDE = 64


@numba.njit(cache=True, inline="always")
def _pad_block(label: Any, block: Any, top: Any, c: Any, book: Any, keys: Any) -> Any:
    """The pads of words 2·block and 2·block + 1 of a cohort."""
    low, high = encrypt_block(label ^ book[c, 0], (top | np.uint64(block)) ^ book[c, 1], keys)
    return low ^ book[c, 0], high ^ book[c, 1]


@numba.njit(cache=True)
def multipliers(book: Any, keys: Any) -> None:
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
def hide_words(
    out: Any, values: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, kind: int,
    label: int, minus: Any, tails: Any,
) -> int:  # fmt: skip
    """out = values · factor + pad(label) − pad(before); see `Streams.hide`."""
    new = np.uint64(label)
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
            if before & _SIGN:
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
def _pad_word(label: Any, word: Any, top: Any, c: Any, book: Any, keys: Any) -> Any:
    """The pad of one word, with its label's sign."""
    low, high = _pad_block(label & _CLEAR, word >> 1, top, c, book, keys)
    pad = high if word & 1 else low
    return np.uint64(0) - pad if label & _SIGN else pad


@numba.njit(cache=True)
def add_pads(
    words: Any, position: int, slot: int, cohort_of: Any, book: Any, keys: Any, kind: int,
    labels: Any,
) -> None:  # fmt: skip
    """Add the pads of signed labels to the words of one slot."""
    top = np.uint64(kind) << np.uint64(56)
    c = cohort_of[slot]
    first = (slot - np.int64(book[c, 4])) * words.shape[1]
    for j in range(words.shape[1]):
        for i in range(labels.shape[0]):
            words[position, j] += _pad_word(labels[i], first + j, top, c, book, keys)


@numba.njit(cache=True)
def show_words(
    out: Any, words: Any, slots: Any, cohort_of: Any, book: Any, keys: Any, kind: int,
    lengths: Any, counts: Any, labels: Any, per_cohort: bool, since: int, unit: float,
) -> int:  # fmt: skip
    """out = (words − pads) / factor · unit; see `Streams.show`.

    Returns 0, the number (from 1) of the first slot that is no small number, −1 where the runs
    do not cover the slots, −2 where a label is older than ``since``.
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
                if at + many > labels.shape[0]:
                    return -1
            left -= 1
        word = (s - np.int64(book[c, 4])) * width
        if several:
            for j in range(width):
                pad = np.uint64(0)
                for i in range(at, at + many):
                    pad += _pad_word(labels[i], word + j, top, c, book, keys)
                if not _write(out, r, j, (words[r, j] - pad) * book[c, 3], unit):
                    return r + 1
            continue
        label = labels[at]
        if label < np.uint64(since):
            return -2
        for j in range(width):
            here = (word + j) >> 1
            if here != block or c != cohort or label != last:
                a0 = a1 = np.uint64(0)
                if label != 0:
                    a0, a1 = _pad_block(label, here, top, c, book, keys)
                cohort, block, last = c, here, label
            pad = a1 if (word + j) & 1 else a0
            if not _write(out, r, j, (words[r, j] - pad) * book[c, 3], unit):
                return r + 1
    if not per_cohort:
        for i in range(max(run + 1, 0), lengths.shape[0]):
            left += np.int64(lengths[i])
        if left:
            return -1
    return 0


@numba.njit(cache=True, inline="always")
def _write(out: Any, r: Any, j: Any, word: Any, unit: float) -> bool:
    """Write an opened word; false where it is no small number."""
    value = np.int64(word)
    out[r, j] = value * unit
    return bool(-_BOUND < value < _BOUND)


@numba.njit(cache=True)
def sum_residues(
    total: Any, labels: Any, cohort_of: Any, book: Any, keys: Any, kind: int, modulus: int
) -> None:
    """total = Σ ± pads modulo a prime just below 2^50, one block of AES a pad."""
    prime = np.uint64(modulus)
    low36 = np.uint64((1 << 36) - 1)
    # 2^64 modulo the prime: a number of 28 bits.
    carry = (np.uint64(0) - prime) % prime
    top = np.uint64(kind + _WIDE) << np.uint64(56)
    for p in range(labels.shape[0]):
        for s in range(labels.shape[1]):
            label = labels[p, s] & _CLEAR
            if label == 0:
                continue
            c = cohort_of[s]
            for j in range(total.shape[1]):
                word = (s - np.int64(book[c, 4])) * total.shape[1] + j
                high, low = _pad_block(label, word, top, c, book, keys)
                pad = ((high & low36) * carry % prime + low % prime) % prime
                if labels[p, s] & _SIGN:
                    pad = prime - pad
                total[s, j] = (total[s, j] + pad) % prime
