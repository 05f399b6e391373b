"""Compiled loops of `weft.crypto.pads.pad_streams`: naming blocks, adding pads, opening totals.

A pad of one slot has its words first and the tag's pad behind them, two 64-bit numbers to a block
of 128 bits: ``per`` blocks a slot. Loops that name blocks write what is to be encrypted; loops
that use them find the encrypted blocks in the same order.

``book`` has a row per cohort: seed (two words), factor, its inverse modulo 2^64, first slot.
``slots`` is empty where all slots are meant; ``runs`` are those of `cohort_runs`. Constants that
are passed on get a type, since the compiler would compile anew for each of them.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.crypto.ciphers.block_format import ID_BITS, SIGN
from weft.crypto.primitives.prime_field import PRIME, add_product, from_halves, reduced
from weft.numba_options import INNER, OUTER, PASTED

#: Totals lie within ±2^49: so many numbers, the largest of them first.
_LARGEST, _RANGE = np.uint64((1 << 49) - 1), np.uint64((1 << 50) - 1)
_P = np.uint64(PRIME)
_ZERO, _ONE, _ONES = np.uint64(0), np.uint64(1), np.uint64((1 << 64) - 1)
_U61, _U63 = np.uint64(61), np.uint64(63)
#: Behind the number of a request in a pad id comes the party.
_PARTY_BITS = np.uint64(20)


@numba.njit(**OUTER)
def cohort_runs(slots: Any, cohort_of: Any) -> Any:
    """Rows in a row that are of one cohort: where each run ends, and its cohort."""
    ends, cohorts = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
    runs = 0
    for r in range(len(slots)):
        c = cohort_of[slots[r]]
        if runs == 0 or cohorts[runs - 1] != c:
            cohorts[runs] = c
            runs += 1
        ends[runs - 1] = r + 1
    return ends[:runs], cohorts[:runs]


@numba.njit(**INNER)
def _alike(ids: Any) -> bool:
    """Whether rows of a cohort have one pad id, as they do where everyone is in every sum."""
    different = _ZERO
    for r in range(ids.shape[0]):
        different |= ids[r] ^ ids[0]
    return bool(different == _ZERO)


@numba.njit(**INNER)
def _name(
    out: Any, begin: int, end: int, ids: Any, slots: Any, runs: Any, book: Any, per: int, top: int,
    extra: Any,
) -> None:  # fmt: skip
    """Names of the blocks of some rows; one id may be for all.

    ``extra`` secrets lie over the seeds of cohorts: those of a pair, or zeros.
    """
    whole, one = slots.shape[0] == 0, ids.shape[0] == 1
    ends, cohorts = runs
    lo = begin
    for k in range(ends.shape[0]):
        hi = min(end, ends[k])
        if hi <= lo:
            continue
        c = cohorts[k]
        s0, s1 = book[c, 0] ^ extra[c, 0], book[c, 1] ^ extra[c, 1]
        start = np.int64(book[c, 4])
        piece = out[(lo - begin) * per : (hi - begin) * per]
        if whole and per == 1 and (one or _alike(ids[lo:hi])):
            # What most names are: the compiler does several rows at once.
            pad_id = (ids[0 if one else lo] & ID_BITS) ^ s0
            first = np.uint64(top | (lo - start))
            for i in range(hi - lo):
                piece[i, 0] = pad_id
                piece[i, 1] = (first + np.uint64(i)) ^ s1
            lo = hi
            continue
        for i in range(hi - lo):
            s = lo + i if whole else np.int64(slots[lo + i])
            pad_id = (ids[0] if one else ids[lo + i]) & ID_BITS
            first = np.uint64(top | (s - start) * per)
            for b in range(per):
                piece[i * per + b, 0] = pad_id ^ s0
                piece[i * per + b, 1] = (first + np.uint64(b)) ^ s1
        lo = hi


@numba.njit(**INNER)
def _add_run(words: Any, tags: Any, blocks: Any, s0: Any, s1: Any, sign: int, ids: Any) -> None:
    """Add pads to rows of one cohort: 1 puts them on, −1 takes them off.

    Where there are ``ids``, pads of signed ids are taken off; 0: no pad. Loops call nothing that
    takes an array: counting references to it would cost more than the work.
    """
    width = words.shape[1]
    last = width >> 1
    listed, odd = ids.shape[0] > 0, width & 1
    factor, keep = np.uint64(sign), _ONES
    # All bits of the prime are ones: P − x is P ^ x.
    flip = _ZERO if sign > 0 else _P
    if width == 1 and not listed:
        # One word and a tag to a block: the compiler does several rows at once.
        for i in range(words.shape[0]):
            words[i, 0] += (blocks[i, 0] ^ s0) * factor
            tags[i] = reduced(tags[i] + (reduced(blocks[i, 1] ^ s1) ^ flip))
        return
    for i in range(words.shape[0]):
        if listed:
            put, some = ids[i] >> _U63, np.uint64(ids[i] != 0)
            factor, keep, flip = (put + put - _ONE) * some, _ZERO - some, (put - _ONE) & _P
        at = i * (last + 1)
        for b in range(last):
            words[i, 2 * b] += (blocks[at + b, 0] ^ s0) * factor
            words[i, 2 * b + 1] += (blocks[at + b, 1] ^ s1) * factor
        rest = blocks[at + last, 0] ^ s0
        if odd:
            words[i, width - 1] += rest * factor
            rest = blocks[at + last, 1] ^ s1
        tags[i] = reduced(tags[i] + ((reduced(rest) ^ flip) & keep))


@numba.njit(**OUTER)
def add_pads(
    words: Any, tags: Any, blocks: Any, begin: int, end: int, ids: Any, runs: Any, book: Any,
    per: int, extra: Any, signs: Any,
) -> None:  # fmt: skip
    """Add pads or masks to some rows; ``signs`` of cohorts: 1, −1, or 0 for none.

    Where there are ``ids``, the pads of signed ids are taken off, and signs do not count.
    """
    ends, cohorts = runs
    lo = begin
    for k in range(ends.shape[0]):
        hi = min(end, ends[k])
        if hi <= lo:
            continue
        c = cohorts[k]
        s0, s1 = book[c, 0] ^ extra[c, 0], book[c, 1] ^ extra[c, 1]
        some, listed, sign = blocks[(lo - begin) * per : (hi - begin) * per], ids[lo:hi], signs[c]
        if listed.shape[0] > 0 and _alike(listed):
            put = np.int8(listed[0] >> _U63)
            sign, listed = np.int8(put + put - 1) if listed[0] != 0 else np.int8(0), ids[:0]
        if sign != 0:
            _add_run(words[lo:hi], tags[lo:hi], some, s0, s1, sign, listed)
        lo = hi


# ── hiding ──────────────────────────────────────────────────────────────────────────────


@numba.njit(**OUTER)
def marks_before(
    out: Any, slots: Any, cohort_of: Any, pad_id: int, minus: Any, tails: Any, own: Any
) -> int:
    """The pad id to take off at every row; returns the status of `Streams.hide`."""
    status, request = 0, np.uint64(pad_id) >> _PARTY_BITS
    for r in range(out.shape[0]):
        s = r if slots.shape[0] == 0 else np.int64(slots[r])
        before = minus[cohort_of[s]]
        if before == 0 and tails.shape[0] > 0:
            before = tails[s]
            if before < own[s]:
                return 3
            if not before & SIGN and before >> _PARTY_BITS >= request:
                return 2
        if before & SIGN:
            status, before = 1, _ZERO
        elif before == np.uint64(pad_id) or before >> _PARTY_BITS > request:
            return 2
        out[r] = before
    return status


@numba.njit(**OUTER)
def name_hidden(
    out: Any, begin: int, end: int, new: Any, before: Any, slots: Any, runs: Any, book: Any,
    per: int, top: int, mask_top: int, contexts: Any, seeds: Any, own: Any,
) -> None:  # fmt: skip
    """Names of all pads and masks of some rows.

    First come the blocks of the new pad, then those of the pad before it if any is taken off, then
    two masks for each ring.
    """
    size, at = (end - begin) * per, 0
    _name(out, begin, end, new, slots, runs, book, per, top, own)
    if before.shape[0] > 0:
        at += size
        _name(out[at:], begin, end, before, slots, runs, book, per, top, own)
    for ring in range(contexts.shape[0]):
        for side in range(2):
            at += size
            _name(
                out[at:], begin, end, contexts[ring : ring + 1], slots, runs, book, per, mask_top,
                seeds[ring, side],
            )  # fmt: skip


@numba.njit(**INNER)
def _weigh_run(words: Any, tags: Any, values: Any, multiplier: np.uint64, factors: Any) -> None:
    """words = values · multiplier and tags = Σ r·values, of rows of one cohort."""
    high, low = np.int64(0), _ZERO
    if values.shape[1] == 1:
        # Without a loop in it, a loop takes a third of the time.
        factor = factors[0]
        for r in range(values.shape[0]):
            words[r, 0] = np.uint64(values[r, 0]) * multiplier
            high, low = add_product(np.int64(0), _ZERO, factor, values[r, 0])  # type: ignore[call-arg]
            tags[r] = from_halves(high, low)
        return
    for r in range(values.shape[0]):
        high, low = np.int64(0), _ZERO
        for j in range(values.shape[1]):
            words[r, j] = np.uint64(values[r, j]) * multiplier
            high, low = add_product(high, low, factors[j], values[r, j])  # type: ignore[call-arg]
        tags[r] = from_halves(high, low)


@numba.njit(**PASTED)
def _tag_part(block: Any, negative: Any, keep: Any) -> Any:
    """The tag's part of a pad, to be added: modulo the prime, but not below it."""
    # Three bits stand above the prime's, where 2^61 is one; all bits of the prime are ones.
    flip = negative & _P
    return (((block & _P) ^ flip) + ((block >> _U61) ^ flip)) & keep


@numba.njit(**INNER)
def _add_pair(
    words: Any, tags: Any, first: Any, second: Any, first_seed: Any, second_seed: Any,
    first_sign: int, second_sign: int,
) -> None:  # fmt: skip
    """Add two pads to every row of one cohort, where a block has one word and the tag.

    Both in one loop: reading and writing rows takes longer than adding. The compiler does several
    rows at once; of more than two it cannot tell any more that they do not overlap.
    """
    a0, a1, b0, b1 = first_seed[0], first_seed[1], second_seed[0], second_seed[1]
    a_keep = _ZERO - np.uint64(first_sign != 0)
    b_keep = _ZERO - np.uint64(second_sign != 0)
    a_negative = _ZERO - np.uint64(first_sign < 0)
    b_negative = _ZERO - np.uint64(second_sign < 0)
    for i in range(words.shape[0]):
        # −x is the complement of x, and one.
        a = (((first[i, 0] ^ a0) ^ a_negative) - a_negative) & a_keep
        b = (((second[i, 0] ^ b0) ^ b_negative) - b_negative) & b_keep
        words[i, 0] += a + b
        # Two parts are 4·P at most, so that nothing is lost above 64 bits.
        tags[i] = reduced(
            tags[i]
            + _tag_part(first[i, 1] ^ a1, a_negative, a_keep)
            + _tag_part(second[i, 1] ^ b1, b_negative, b_keep)
        )


@numba.njit(**INNER)
def _seed(book: Any, extra: Any, c: int) -> Any:
    """The seed of a cohort under further secrets."""
    return book[c, 0] ^ extra[c, 0], book[c, 1] ^ extra[c, 1]


@numba.njit(**INNER)
def _sign_of(ids: Any) -> int:
    """How a pad goes that is taken off all of some rows: 1, −1, or 0 for none."""
    if ids[0] == 0:
        return 0
    return 1 if ids[0] & SIGN else -1


@numba.njit(**OUTER)
def join_hidden(
    words: Any, tags: Any, blocks: Any, begin: int, end: int, values: Any, before: Any, runs: Any,
    book: Any, per: int, factors: Any, seeds: Any, signs: Any, own: Any,
) -> None:  # fmt: skip
    """words = values · factor + pads, tags = Σ r·values + pads, from encrypted blocks."""
    size = (end - begin) * per
    narrow, taken = values.shape[1] == 1, before.shape[0] > 0
    ends, cohorts = runs
    lo = begin
    for k in range(ends.shape[0]):
        c, hi = cohorts[k], min(end, ends[k])
        if hi <= lo:
            continue
        some, theirs = words[lo:hi], tags[lo:hi]
        _weigh_run(some, theirs, values[lo:hi], book[c, 2], factors[c])
        here, stop = (lo - begin) * per, (hi - begin) * per
        seed, old = _seed(book, own, c), before[lo:hi]
        new, last = blocks[here:stop], blocks[size + here : size + stop]
        if narrow and taken and _alike(old):
            _add_pair(some, theirs, new, last, seed, seed, 1, _sign_of(old))
        else:
            _add_run(some, theirs, new, seed[0], seed[1], 1, before[:0])
            if taken:
                _add_run(some, theirs, last, seed[0], seed[1], 1, old)
        for ring in range(signs.shape[0]):
            at = size * (1 + taken + 2 * ring)
            left, right = blocks[at + here : at + stop], blocks[at + size + here : at + size + stop]
            before_me, after_me = _seed(book, seeds[ring, 0], c), _seed(book, seeds[ring, 1], c)
            one, other = signs[ring, 0, c], signs[ring, 1, c]
            if narrow:
                _add_pair(some, theirs, left, right, before_me, after_me, one, other)
                continue
            if one != 0:
                _add_run(some, theirs, left, before_me[0], before_me[1], one, before[:0])
            if other != 0:
                _add_run(some, theirs, right, after_me[0], after_me[1], other, before[:0])
        lo = hi


# ── opening ─────────────────────────────────────────────────────────────────────────────


@numba.njit(**OUTER)
def pads_at_depth(
    ids: Any, slots: Any, cohort_of: Any, lengths: Any, counts: Any, pad_ids: Any,
    per_cohort: bool, depth: int, since: int, until: int, chained: bool,
) -> int:  # fmt: skip
    """The signed pad id of every row that comes ``depth``-th in the record of its run; 0: none.

    Returns 0, −1 where the runs do not cover the rows, −2 where a record is older than ``since``,
    not older than ``until``, or cannot be that of a total.
    """
    rows = ids.shape[0]
    whole = slots.shape[0] == 0
    run, left, at, many = -1, np.int64(0), numba.int64(0), numba.int64(1)
    for r in range(rows):
        if per_cohort:
            at = cohort_of[r if whole else np.int64(slots[r])]
        else:
            while left == 0:
                if run >= 0:
                    at += many
                run += 1
                if run == lengths.shape[0]:
                    return -1
                left = np.int64(lengths[run])
                many = numba.int64(counts[run]) if counts.shape[0] > 0 else numba.int64(1)
                if at + many > pad_ids.shape[0]:
                    return -1
                new = left and depth == 0 and counts.shape[0] > 0
                if new:
                    newest = newest_of(pad_ids, at, at + many, chained)
                    if newest < np.uint64(since) or newest >= np.uint64(until):
                        return -2
            left -= 1
        ids[r] = pad_ids[at + depth] if depth < many else _ZERO
        if counts.shape[0] == 0 and (ids[r] < np.uint64(since) or ids[r] >= np.uint64(until)):
            return -2
    if not per_cohort:
        for i in range(max(run + 1, 0), lengths.shape[0]):
            left += np.int64(lengths[i])
        if left:
            return -1
    return 0


@numba.njit(**OUTER)
def newest_of(pad_ids: Any, first: Any, stop: Any, chained: bool) -> Any:
    """The newest of some pad ids; 0: there is none, or no total has such a record.

    Totals and their tags are linear, so that a coordinator could add and subtract totals of several
    requests, and their records. In a chain each request takes off the pad before it and puts one
    on; where its first party is silent, it puts as many on as off. Hence no request of a record but
    the oldest has more pads on than off, and that one has one more, or none if nothing was before
    it. What is not chained is of one request, and nothing is taken off.
    """
    newest, oldest = _ZERO, ID_BITS >> _PARTY_BITS
    for i in range(first, stop):
        newest = max(newest, pad_ids[i] & ID_BITS)
        oldest = min(oldest, (pad_ids[i] & ID_BITS) >> _PARTY_BITS)
    for i in range(first, stop):
        request = (pad_ids[i] & ID_BITS) >> _PARTY_BITS
        net = 0
        for k in range(first, stop):
            if k != i and pad_ids[k] & ID_BITS == pad_ids[i] & ID_BITS:
                return _ZERO
            if (pad_ids[k] & ID_BITS) >> _PARTY_BITS == request:
                net += -1 if pad_ids[k] & SIGN else 1
        if chained and net != 0 and not (net == 1 and request == oldest):
            return _ZERO
        if not chained and (request != oldest or pad_ids[i] & SIGN):
            return _ZERO
    return newest


@numba.njit(**OUTER)
def newest_per_slot(pad_ids: Any, chained: bool) -> Any:
    """The newest pad id of every column, as `newest_of` has it; a row per pad, zero for none."""
    out = np.zeros(pad_ids.shape[1], np.uint64)
    record = np.empty(pad_ids.shape[0], np.uint64)
    for s in range(pad_ids.shape[1]):
        count = numba.int64(0)
        for depth in range(pad_ids.shape[0]):
            if pad_ids[depth, s] != 0:
                record[count] = pad_ids[depth, s]
                count += 1
        out[s] = newest_of(record, numba.int64(0), count, chained)
    return out


@numba.njit(**OUTER)
def name_listed(
    out: Any, begin: int, end: int, ids: Any, slots: Any, runs: Any, book: Any, per: int, top: int,
    own: Any,
) -> None:  # fmt: skip
    """Names of the pads of some rows, by their ids."""
    _name(out, begin, end, ids, slots, runs, book, per, top, own)


@numba.njit(**OUTER)
def reduce_tags(out: Any, tags: Any) -> None:
    """Tags modulo their prime, where 2^61 is one: a division would take as long as the cipher."""
    for r in range(tags.shape[0]):
        out[r] = reduced(tags[r])


@numba.njit(**INNER)
def _open_run(out: Any, words: Any, tags: Any, inverse: np.uint64, factors: Any) -> np.uint64:
    """Rows of one cohort; not zero where a word is wrong."""
    wrong, large = _ZERO, False
    high, low = np.int64(0), _ZERO
    if words.shape[1] == 1:
        # Without a loop in it, a loop takes a third of the time.
        factor = factors[0]
        for r in range(words.shape[0]):
            word = words[r, 0] * inverse
            out[r, 0] = np.int64(word)
            large |= word + _LARGEST >= _RANGE
            high, low = add_product(np.int64(0), _ZERO, factor, np.int64(word))  # type: ignore[call-arg]
            wrong |= from_halves(high, low) ^ tags[r]
        return wrong | np.uint64(large)
    for r in range(words.shape[0]):
        high, low = np.int64(0), _ZERO
        for j in range(words.shape[1]):
            word = words[r, j] * inverse
            out[r, j] = np.int64(word)
            # No early end: how long this takes says nothing of where a word is wrong.
            large |= word + _LARGEST >= _RANGE
            high, low = add_product(high, low, factors[j], np.int64(word))  # type: ignore[call-arg]
        wrong |= from_halves(high, low) ^ tags[r]
    return wrong | np.uint64(large)


@numba.njit(**OUTER)
def open_words(out: Any, words: Any, tags: Any, runs: Any, book: Any, factors: Any) -> bool:
    """out = words / factor; whether all are small numbers, and every tag, without its pads, is
    Σ r·values."""
    ends, cohorts = runs
    lo, wrong = 0, _ZERO
    for k in range(ends.shape[0]):
        c = cohorts[k]
        if ends[k] > lo:
            some = out[lo : ends[k]], words[lo : ends[k]], tags[lo : ends[k]]
            wrong |= _open_run(some[0], some[1], some[2], book[c, 3], factors[c])
        lo = ends[k]
    return bool(wrong == _ZERO)
