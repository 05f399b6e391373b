"""What a party computes on its shares; it has no message and no channel.

Shares of all parties add up to the value, modulo 2^64 or 2^128. Public terms are added by the first
party alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.primitives.seeded_words import MARGIN, SeededStream, Words, seeded_words
from weft.errors import ProtocolError
from weft.solvers.secret_sharing.wide_ring import (
    Wide,
    inner,
    minus,
    plus,
    summed,
    times,
    wide_of,
    wide_of_signed,
    widened,
)

_U63, _ONE = np.uint64(63), np.uint64(1)
_LOW63 = np.uint64((1 << 63) - 1)


class DealtShares:
    """A party's shares of what is dealt: from its seed, or sent to it if it is the last."""

    def __init__(self, seed: bytes, sent: Words | None, last: bool) -> None:
        if (sent is not None) != last:
            raise ProtocolError("the dealer sent a share to a party that draws its own, or none")
        self._seed, self._sent, self._at = seed, sent, 0

    def take(self, label: str, *shape: int) -> Words:
        """The next share."""
        if self._sent is None:
            return seeded_words(self._seed, label, *shape)
        return self._next(prod(shape)).reshape(shape)

    def take_wide(self, label: str, *shapes: tuple[int, ...]) -> list[Wide]:
        """Several at once, of numbers modulo 2^128."""
        sizes = [prod(shape) for shape in shapes]
        parts = np.split(self.take(label, sum(sizes), 2), np.cumsum(sizes)[:-1])
        return [part.reshape(*shape, 2) for part, shape in zip(parts, shapes, strict=True)]

    def blocks(self, label: str, sizes: list[int]) -> Iterator[Words]:
        """The same in blocks of so many words, each of which is overwritten by the next."""
        if self._sent is not None:
            yield from map(self._next, sizes)
            return
        stream = SeededStream(self._seed, label)
        room = np.empty(max(sizes, default=0) + MARGIN, np.uint64)
        for size in sizes:
            yield stream.fill(room[: size + MARGIN])

    def _next(self, count: int) -> Words:
        assert self._sent is not None
        part = self._sent[self._at : self._at + count]
        if len(part) < count:
            raise ProtocolError("the dealer sent fewer words than it should")
        self._at += count
        return part

    def end(self) -> None:
        """Nothing may be left."""
        if self._sent is not None and self._at != len(self._sent):
            raise ProtocolError("the dealer sent more words than it should")


@dataclass(frozen=True)
class SharedVector:
    """A party's share of N·b = Xᵀα, modulo 2^128.

    It is public − mask, where the mask is low − sign · 2^(63 − cut) · top: its lower bits and its
    highest one are shared, the sign is public.
    """

    problems: Ints
    public: Wide
    sign: Wide
    low: Wide
    top: Wide

    def of(self, problems: Ints) -> SharedVector:
        """The same for some of the problems."""
        if np.array_equal(problems, self.problems):
            return self
        places = np.searchsorted(self.problems, problems)
        parts = (part[places] for part in (self.public, self.sign, self.low, self.top))
        return SharedVector(problems, *parts)

    @cached_property
    def mask(self) -> Wide:
        """Its share of the mask."""
        return minus(self.low, times(self.sign, self.top))

    def share(self, first: bool) -> Wide:
        """Its share of the vector."""
        return minus(self.public if first else np.zeros_like(self.public), self.mask)


def constant_vector(problems: Ints, columns: int, constant: int, units: int) -> SharedVector:
    """A public vector with one entry: shares of its mask are zero."""
    public = np.zeros((len(problems), columns, 2), np.uint64)
    nothing = np.zeros_like(public)
    public[:, constant, 0] = units
    return SharedVector(problems, public, nothing, nothing, nothing)


def stacked(vectors: list[SharedVector], problems: Ints) -> SharedVector:
    """Some problems of many vectors at once: (vectors × problems × columns)."""
    parts = [vector.of(problems) for vector in vectors]
    fields = ("public", "sign", "low", "top")
    return SharedVector(
        problems, *(np.stack([getattr(part, field) for part in parts]) for field in fields)
    )


def cut_vector(opened: Words, problems: Ints, shares: tuple[Wide, Wide], cut: int) -> SharedVector:
    """A vector from C = Xᵀα + ρ modulo 2^64, cut, and lifted to modulo 2^128.

    With |Xᵀα| < 2^62, C' = C + 2^62, and c, r the highest bits of C' and ρ: Xᵀα + 2^62 is
    (C' mod 2^63) − (ρ mod 2^63) + 2^63 (c + r − 2cr).
    """
    shifted = opened + np.uint64(1 << 62)
    top = shifted >> _U63
    high = widened(top << np.uint64(63 - cut))
    low = widened((shifted & _LOW63) >> np.uint64(cut))
    offset = widened(np.full_like(opened, 1 << (62 - cut)))
    public = minus(plus(low, high), offset)
    step = np.uint64(1 << (63 - cut))
    plain = widened(np.full_like(opened, step))
    sign = np.where((top == 0)[..., None], plain, minus(np.zeros_like(plain), plain))
    return SharedVector(problems, public, sign, *shares)


def product_share(new: SharedVector, old: SharedVector, dealt: list[Wide], first: bool) -> Wide:
    """A share of new·old, per problem, from shares of products of their masks' parts.

    ``old`` may be many vectors at once.
    """
    ll, lt, tl, tt = dealt
    masks = minus(ll, plus(inner(old.sign, lt), inner(new.sign, tl)))
    masks = plus(masks, inner(times(new.sign, old.sign), tt))
    crossed = plus(inner(new.public, old.mask), inner(old.public, new.mask))
    share = minus(masks, crossed)
    return plus(share, inner(new.public, old.public)) if first else share


def combined(
    vectors: list[SharedVector], coefficients: NDArray[np.int64], problems: Ints, first: bool
) -> Wide:
    """A share of Σ_j M_j v_j, per problem."""
    shares = np.stack([vector.of(problems).share(first) for vector in vectors])
    parts = times(shares, wide_of_signed(coefficients)[:, :, None])
    return summed(np.moveaxis(parts, 0, -2))


def cut_scores(opened: Words, shares: tuple[Words, Words], digits: int, first: bool) -> Words:
    """A share of scores with ``digits`` cut off, from c = z + u; for |z| < 2^62 units."""
    low, top = shares
    bit = (opened + np.uint64(1 << 62)) >> _U63
    sign: Words = _ONE - (bit + bit)
    share: Words = ((top * sign) << np.uint64(63 - digits)) - low
    return share + public_scores(opened, digits) if first else share


def public_scores(opened: Words, digits: int) -> Words:
    """What all know of scores that are cut."""
    shifted = opened + np.uint64(1 << 62)
    high: Words = (shifted >> _U63) << np.uint64(63 - digits)
    return high + ((shifted & _LOW63) >> np.uint64(digits)) - np.uint64(1 << (62 - digits))


def noise(seed: bytes, label: str, bits: list[int]) -> Wide:
    """A party's own noise, each even within ±2^(bits − 1)."""
    words = seeded_words(seed, label, len(bits), 2)
    even = words & wide_of([(1 << size) - 1 for size in bits])
    return minus(even, wide_of([1 << (size - 1) for size in bits]))
