"""Pads, tags and masks: 64-bit numbers that only the holders of a cohort can compute.

F(S; name) = AES_K(name ⊕ S) ⊕ S, where K is the run's key and S the cohort's seed (whitening as in
DESX and XTS). Whoever lacks K, the coordinator, faces AES-256; a party that has K but does not
hold the cohort faces the Even–Mansour cipher, whose 128-bit key S takes 2^128 / (blocks seen) work
to find. A name says pad id, what for, how wide, and which slot.

**Words.** A value travels as value · factor + pad(new) − pad(before) modulo 2^64.

**Tags.** A number beside each slot by which its holders know that nobody changed the words:
Σ r_j·v_j + T(new) − T(before) modulo the prime 2^61 − 1, where the factors r_j are secret, one per
cohort and column, and T is the tag's part of the slot's pad. Tags add up as words do, and any
subset of slots keeps its own. Whoever changes a word, leaves one out or adds one twice must change
the tag by r·(change), of which nothing is known: one guess in 2^61 passes, and after a wrong one
the party answers no more.

**Masks.** All holders of a cohort can compute its pads, so that one of them, together with the
coordinator, could open everybody's contribution. Hence the parties that contribute to a cohort form
a ring, and every two neighbours share a mask on words and tags, which one adds and the other
subtracts: F under the pair's secret ⊕ the cohort's seed. In the sum over the ring all masks cancel;
a smaller sum is noise to everybody, and one neighbour alone who helps the coordinator leaves the
others on a path that still hides each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots
from weft.arrays_outside_heap import shared
from weft.crypto.ciphers.block_format import ID_BITS, SIGN, Carried, Where, named
from weft.crypto.ciphers.chunk_layout import MODULUS
from weft.crypto.pads.cohort_mask_neighbours import MaskRing, stacked
from weft.crypto.pads.pad_kernels import (
    add_pads,
    cohort_runs,
    join_hidden,
    marks_before,
    name_hidden,
    name_listed,
    open_words,
    pads_at_depth,
    reduce_tags,
)
from weft.crypto.primitives.aes import Aes256, Blocks
from weft.crypto.primitives.prime_field import PRIME
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError
from weft.protocol.shared_fields import PadIds

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]
Runs = tuple[NDArray[np.int64], NDArray[np.int64]]
Number = TypeVar("Number", np.uint32, np.uint64)

_NO_SLOTS = np.zeros(0, np.int32)
_NO_PADS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.uint32)
_NO_COUNTS.flags.writeable = False
#: So many blocks at a time stay in the processor's cache; of fewer, calls would take longer.
_AT_ONCE = 16384

#: Kinds of sums are numbered from 1; other uses of the cipher under the same keys lie above them.
_MASK, _WIDE_MASK, _WIDE, _TAG_FACTOR, _FACTOR = 16, 48, 64, 254, 255
#: Where a name says what for and how wide.
_USE, _WIDTH = 56, 40
_TAGS = np.uint64(PRIME)
_LOW36 = np.uint64((1 << 36) - 1)
_PRIME = np.uint64(MODULUS)
#: 2^64 modulo the prime of whole chunks: a number of 28 bits.
_CARRY = np.uint64((1 << 64) % MODULUS)


class Hidden(NamedTuple):
    """What travels in the place of values.

    Attributes
    ----------
    status
        1 where a mark stands for several pad ids, which are then left on; 2 where a pad to take
        off is not older than the new one, 3 where it is older than this party's own contribution:
        nothing may be sent.
    """

    words: Words
    tags: Words
    status: int


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
        self._cipher = Aes256(key)
        self.start = start
        self.cohorts = len(start) - 1
        self.cohort_of = shared(np.repeat(np.arange(self.cohorts, dtype=np.int32), np.diff(start)))
        #: Runs of rows of one cohort where all slots are meant.
        self._runs = start[1:].astype(np.int64), np.arange(self.cohorts)
        #: Pads have no secrets but the cohort's, and are put on.
        self._own = np.zeros((self.cohorts, 2), np.uint64), np.ones(self.cohorts, np.int8)
        self._off = -self._own[1]
        self._tag_factors: dict[int, Words] = {}
        # One table for the compiled loops: seed, factor, its inverse, first slot.
        self._book = np.zeros((self.cohorts, 5), np.uint64)
        self._book[:, :2] = np.ascontiguousarray(seeds).view(np.uint64).reshape(-1, 2)
        self._book[:, 4] = start[:-1]
        # Odd, so that it has an inverse. Each step doubles the bits that are right, from 3.
        factor = self._of_cohorts(_FACTOR, 1)[:, 0] | np.uint64(1)
        inverse: Words = factor
        for _ in range(6):
            inverse = np.multiply(inverse, np.uint64(2) - factor * inverse, dtype=np.uint64)
        self._book[:, 2], self._book[:, 3] = factor, inverse

    def __repr__(self) -> str:
        return f"Streams({self.cohorts} cohorts)"

    def __reduce__(self) -> Any:
        raise TypeError("pads are not to be pickled: they hold keys")

    def encrypt(self, blocks: Blocks, room: Blocks | None = None) -> Blocks:
        """Blocks that look random to whoever lacks the run's key: equal ones for equal ones.

        This is what another cipher replaces. It may write them to ``room``, which has one row more
        and may begin with the blocks themselves: nobody reads those again.
        """
        return self._cipher.encrypt(blocks, room)

    # ── sums ──────────────────────────────────────────────────────────────────────────────

    def hide(
        self,
        kind: int,
        slots: Slots | None,
        values: Integers,
        pad_id: int,
        minus: PadIds = _NO_PADS,
        tails: PadIds = _NO_PADS,
        own: PadIds = _NO_PADS,
        rings: Sequence[MaskRing] = (),
    ) -> Hidden:
        """Values under the pad of ``pad_id``, less the one before it, and under masks.

        ``minus`` has a pad id per cohort, or none for nothing to take off; where it is zero, this
        party leads and takes off what ``tails`` says for the slot, which must not be older than
        ``own``.
        """
        rows, width = values.shape
        words, tags = np.empty((rows, width), np.uint64), np.empty(rows, np.uint64)
        some = _NO_SLOTS if slots is None else slots
        top, per = _purpose(kind, width), _blocks_of(width)
        runs = self._runs_of(slots)
        contexts, seeds, signs = stacked(rings, self.cohorts)
        new, before, status = np.array([pad_id], np.uint64), _NO_PADS, 0
        if len(minus):
            before = np.empty(rows, np.uint64)
            status = marks_before(before, some, self.cohort_of, pad_id, minus, tails, own)
            if status > 1:
                return Hidden(words, tags, status)
        for begin, end, room in _pieces(rows, per * (1 + bool(len(minus)) + 2 * len(rings))):
            names = room[:-1]
            name_hidden(
                names, begin, end, new, before, some, runs, self._book, per, top,
                _purpose(kind + _MASK, width), contexts, seeds, self._own[0],
            )  # fmt: skip
            join_hidden(
                words, tags, _read_only(self.encrypt(names, room)), begin, end, values, before,
                runs, self._book, per, self._factors(width), seeds, signs, self._own[0],
            )  # fmt: skip
        return Hidden(words, tags, status)

    def take_off(
        self, hidden: Hidden, kind: int, position: int, slot: int, pad_ids: Sequence[int]
    ) -> None:
        """Take the pads of signed pad ids off one position."""
        here = slice(position, position + 1)
        for pad_id in pad_ids:
            ids, slots = np.array([pad_id], np.uint64), np.array([slot], np.int32)
            runs = self._runs_of(slots)
            self._take_off(hidden.words[here], hidden.tags[here], kind, slots, runs, ids)

    def show(
        self,
        kind: int,
        slots: Slots | None,
        words: Words,
        tags: Words,
        carried: Carried,
        limits: tuple[int, int],
        where: Where,
        *,
        chained: bool = True,
    ) -> Integers:
        """The inverse of :meth:`hide` for totals; each slot is checked.

        Pad ids are not below the first of the ``limits``, and below the second; ``chained`` says
        that contributions take off the pads before them.
        """
        lengths, counts, pad_ids = carried
        if lengths is None and len(pad_ids) != self.cohorts:
            raise ProtocolError(f"{named(where)} names the pads of other cohorts than it covers")
        some, runs = _NO_SLOTS if slots is None else slots, self._runs_of(slots)
        words, found, ids = words.copy(), np.empty_like(tags), np.empty(len(words), np.uint64)
        reduce_tags(found, tags)
        deepest = 1 if counts is None or not len(counts) else int(counts.max())
        for depth in range(max(1, deepest)):
            status = pads_at_depth(
                ids, some, self.cohort_of, _read_only(_NO_COUNTS if lengths is None else lengths),
                _read_only(_NO_COUNTS if counts is None else counts), _read_only(pad_ids),
                lengths is None, depth, *limits, chained,
            )  # fmt: skip
            if status:
                _explain(status, len(words), named(where))
            # Whoever has contributed everywhere leaves one pad id under all rows, in one run.
            one = len(pad_ids) == 1 and (lengths is None or len(lengths) == 1)
            alike = deepest == 1 and one and len(ids) > 0 and 0 < ids[0] < SIGN
            self._take_off(words, found, kind, some, runs, ids[:1] if alike else ids)
        values = np.empty(words.shape, np.int64)
        if not open_words(values, words, found, runs, self._book, self._factors(words.shape[1])):
            raise failed_check(named(where))
        return values

    def _take_off(
        self, words: Words, tags: Words, kind: int, slots: Slots, runs: Runs, ids: PadIds
    ) -> None:
        """One id is that of a pad under all rows; signed ids have one each."""
        width, own = words.shape[1], self._own[0]
        top, per = _purpose(kind, width), _blocks_of(width)
        listed, signs = (_NO_PADS, self._off) if len(ids) < len(words) else (ids, self._own[1])
        for begin, end, room in _pieces(len(words), per):
            name_listed(room[:-1], begin, end, ids, slots, runs, self._book, per, top, own)
            blocks = _read_only(self.encrypt(room[:-1], room))
            add_pads(words, tags, blocks, begin, end, listed, runs, self._book, per, own, signs)

    def _runs_of(self, slots: Slots | None) -> Runs:
        return self._runs if slots is None else cohort_runs(slots, self.cohort_of)

    def _factors(self, width: int) -> Words:
        """The secret factors of tags, one per cohort and column."""
        if width not in self._tag_factors:
            self._tag_factors[width] = self._of_cohorts(_TAG_FACTOR, width) % _TAGS
        return self._tag_factors[width]

    def _of_cohorts(self, use: int, count: int) -> Words:
        """So many numbers of each cohort, the same for all of a run."""
        index = np.tile(np.arange(count, dtype=np.uint64), self.cohorts)
        seeds = np.repeat(self._book[:, :2], count, axis=0)
        return self._wide(np.uint64(0), use, index, seeds)[:, 0].reshape(-1, count)

    # ── whole chunks ──────────────────────────────────────────────────────────────────────

    def residues(self, kind: int, width: int, pad_ids: PadIds) -> Words:
        """Sums of pads modulo :data:`weft.crypto.ciphers.chunk_layout.MODULUS`, at all slots.

        ``pad_ids`` has a row per pad. A block of 128 bits gives one pad, so that reducing it
        leaves no bias to speak of.
        """
        total = np.zeros(len(self.cohort_of) * width, np.uint64)
        for row in pad_ids:
            ids = np.repeat(row, width)
            pads = self._residues(ids & ID_BITS, kind + _WIDE, width, self._book[:, :2])
            _add_signed(total, pads, np.where(ids & SIGN, -1, (ids != 0).astype(np.int8)))
        return total.reshape(-1, width)

    def mask_residues(self, kind: int, width: int, ring: MaskRing) -> Words:
        """Sums of this party's masks at all slots, modulo the same prime."""
        total = np.zeros(len(self.cohort_of) * width, np.uint64)
        context = np.uint64(ring.context)
        for side in range(2):
            seeds = self._book[:, :2] ^ ring.seeds[side]
            masks = self._residues(context, kind + _WIDE_MASK, width, seeds)
            _add_signed(total, masks, np.repeat(ring.signs[side][self.cohort_of], width))
        return total.reshape(-1, width)

    def _residues(self, ids: PadIds | np.uint64, use: int, width: int, seeds: Words) -> Words:
        place = np.arange(len(self.cohort_of)) - self.start[self.cohort_of]
        index = (place[:, None] * width + np.arange(width)).ravel().astype(np.uint64)
        blocks = self._wide(ids, use, index, np.repeat(seeds[self.cohort_of], width, axis=0))
        high, low = blocks[:, 0], blocks[:, 1]
        return ((high & _LOW36) * _CARRY % _PRIME + low % _PRIME) % _PRIME

    def _wide(self, ids: PadIds | np.uint64, use: int, index: Words, seeds: Words) -> Blocks:
        """A block each, for what needs 128 bits."""
        names = np.empty((len(index), 2), np.uint64)
        names[:, 0] = ids ^ seeds[:, 0]
        names[:, 1] = (np.uint64(use << _USE) | index) ^ seeds[:, 1]
        return self.encrypt(names) ^ seeds


def _purpose(use: int, width: int) -> int:
    """The part of a name that says what for, and how wide."""
    return use << _USE | width << _WIDTH


def _blocks_of(width: int) -> int:
    """Blocks for the words and the tag of a slot."""
    return width // 2 + 1


def _pieces(rows: int, blocks: int) -> Iterator[tuple[int, int, Blocks]]:
    """Ranges of rows, and room for the blocks of each and one more, which the cipher needs."""
    step = max(1, _AT_ONCE // blocks)
    room = np.empty((min(step, rows) * blocks + 1, 2), np.uint64)
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        yield begin, end, room[: (end - begin) * blocks + 1]


def _add_signed(total: Words, numbers: Words, signs: NDArray[np.int8]) -> None:
    """Add numbers modulo the prime of whole chunks, subtract them, or leave them out."""
    signed = np.where(signs > 0, numbers, np.where(signs < 0, _PRIME - numbers, np.uint64(0)))
    total[:] = (total + signed) % _PRIME


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    """A view that cannot be written to: loops are compiled once for these, once for others."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _explain(status: int, slots: int, where: str) -> None:
    if status == -1:
        raise ProtocolError(f"{where} names the pads of another number of slots than {slots}")
    raise ProtocolError(
        f"{where} is older than this party's own contribution: it was sent before, or leaves "
        "something out"
    )


def failed_check(where: str) -> ProtocolError:
    """Always in the same words: which slot or check it was would help whoever tries."""
    return ProtocolError(
        f"{where} fails its check: values were changed, left out or added twice on their way; the "
        "run stops"
    )
