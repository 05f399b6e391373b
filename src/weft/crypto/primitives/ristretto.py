"""The group ristretto255 through libsodium, many elements at a time.

Elements and scalars are 32 bytes each; lists of them are one byte string. libsodium works in
constant time and gives up the interpreter's lock while it does, so long lists are spread over
threads: no secret is handed to another process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char, memmove
from hashlib import shake_256

from weft.crypto.primitives.sodium_library import load_sodium
from weft.errors import ProtocolError

#: Bytes of an element, and of a scalar.
WIDTH = 32
#: Order of the group.
ORDER = 2**252 + 27742317777372353535851937790883648493
#: Shorter lists are not worth a thread.
_FEW = 2000
_PIECE = 1024

# rbcl's own functions allocate and check at every call; its library is used directly.
_sodium = load_sodium()
_multiply = _sodium.crypto_scalarmult_ristretto255
_multiply_base = _sodium.crypto_scalarmult_ristretto255_base
_add = _sodium.crypto_core_ristretto255_add
_from_hash = _sodium.crypto_core_ristretto255_from_hash
_reduce = _sodium.crypto_core_ristretto255_scalar_reduce
_scalar_random = _sodium.crypto_core_ristretto255_scalar_random
_scalar_multiply = _sodium.crypto_core_ristretto255_scalar_mul
_scalar_subtract = _sodium.crypto_core_ristretto255_scalar_sub
_scalar_invert = _sodium.crypto_core_ristretto255_scalar_invert


class GroupError(ProtocolError):
    """Bytes that are no element of the group, or not one that anybody can have sent."""


def threads() -> int:
    """How many threads long lists are spread over."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int, int], bytes], count: int, piece: int = _PIECE) -> bytes:
    """Join ``work(start, end)`` over pieces of a list, in threads if the list is long."""
    pieces = list(_pieces(count, piece))
    if count <= _FEW or len(pieces) < 2 or threads() < 2:
        return b"".join(work(*ends) for ends in pieces)
    with ThreadPoolExecutor(min(threads(), len(pieces)), "weft-group") as pool:
        return b"".join(pool.map(lambda ends: work(*ends), pieces))


def _pieces(count: int, piece: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, piece):
        yield start, min(start + piece, count)


def count_of(elements: bytes) -> int:
    """How many elements a list has."""
    if len(elements) % WIDTH:
        raise GroupError(f"a list of group elements has {len(elements)} bytes, no multiple of 32")
    return len(elements) // WIDTH


# ── elements ──────────────────────────────────────────────────────────────────────────────────


def multiply(scalars: bytes, elements: bytes) -> bytes:
    """Element by scalar; one scalar may serve all elements.

    Raises
    ------
    GroupError
        Something is no element, or a product is the neutral one, which nobody may use.
    """
    count = count_of(elements)
    stride = 0 if len(scalars) == WIDTH else WIDTH
    if stride and len(scalars) != len(elements):
        raise ValueError(f"{len(scalars) // WIDTH} scalars for {count} elements")

    def work(start: int, end: int) -> bytes:
        out = (c_char * (WIDTH * (end - start)))()
        bad = 0
        for i in range(start, end):
            a, s = WIDTH * i, stride * i
            bad |= _multiply(
                byref(out, a - WIDTH * start), scalars[s : s + WIDTH], elements[a : a + WIDTH]
            )
        if bad:
            raise GroupError("a group element is not valid; its sender runs other code, or cheats")
        return out.raw

    return spread(work, count)


def multiply_base(scalar: bytes) -> bytes:
    """The generator by a scalar."""
    out = (c_char * WIDTH)()
    if _multiply_base(out, scalar):
        raise GroupError("the product of a scalar and the generator is the neutral element")
    return out.raw


def add(one: bytes, other: bytes) -> bytes:
    """The sum of two elements."""
    out = (c_char * WIDTH)()
    if _add(out, one, other):
        raise GroupError("a group element is not valid; its sender runs other code, or cheats")
    return out.raw


def from_uniform(digest: bytes) -> bytes:
    """The element that 64 uniform bytes stand for (the one-way map of RFC 9496)."""
    out = (c_char * WIDTH)()
    _from_hash(out, digest)
    return out.raw


# ── scalars ───────────────────────────────────────────────────────────────────────────────────


def reduced(wide: bytes) -> bytes:
    """64 bytes, as a number modulo the order."""
    out = (c_char * WIDTH)()
    _reduce(out, wide)
    return out.raw


def random_scalars(count: int) -> bytes:
    """Fresh scalars other than zero, from the operating system."""
    out = (c_char * (WIDTH * count))()
    for i in range(count):
        _scalar_random(byref(out, WIDTH * i))
    return out.raw


def scalars_of(seed: bytes, count: int) -> bytes:
    """Scalars that follow from 32 random bytes or more, and look random to whoever lacks them."""
    wide = shake_256(b"weft scalars" + seed).digest(2 * WIDTH * count)
    return b"".join([reduced(wide[at : at + 2 * WIDTH]) for at in range(0, len(wide), 2 * WIDTH)])


def subtract_product(r: bytes, c: bytes, k: bytes) -> bytes:
    """The scalar r − c · k."""
    product, out = (c_char * WIDTH)(), (c_char * WIDTH)()
    _scalar_multiply(product, c, k)
    _scalar_subtract(out, r, product)
    return out.raw


def inverses(scalars: bytes) -> bytes:
    """The inverses of scalars other than zero: one inversion, and three products for each."""

    def work(start: int, end: int) -> bytes:
        size = end - start
        mine = [scalars[WIDTH * i : WIDTH * (i + 1)] for i in range(start, end)]
        # before[i] is the product of the scalars up to and with i.
        before = (c_char * (WIDTH * size))()
        memmove(before, mine[0], WIDTH)
        for i in range(1, size):
            _scalar_multiply(byref(before, WIDTH * i), byref(before, WIDTH * (i - 1)), mine[i])
        rest, out = (c_char * WIDTH)(), (c_char * (WIDTH * size))()
        if _scalar_invert(rest, byref(before, WIDTH * (size - 1))):
            raise ValueError("zero has no inverse")
        for i in range(size - 1, 0, -1):
            _scalar_multiply(byref(out, WIDTH * i), rest, byref(before, WIDTH * (i - 1)))
            _scalar_multiply(rest, rest, mine[i])
        memmove(out, rest, WIDTH)
        return out.raw

    return spread(work, len(scalars) // WIDTH) if scalars else b""
