"""Sums of many group elements with public weights, for proofs about lists of them.

libsodium has no such sum, and adding up its products one by one would make proofs cost more than
all the rest. The buckets of Pippenger's method take some thirty additions per element. Nothing
here is secret, neither elements nor weights, and nothing here takes the same time for all values:
secret scalars go through libsodium only (:mod:`weft.crypto.primitives.ristretto`).

Numbers modulo p = 2^255 − 19 are five words of 51 bits; points of the curve −x² + y² = 1 + dx²y²
are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from weft.crypto.primitives.ristretto import WIDTH, GroupError, count_of
from weft.numba_options import INNER, OUTER

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of −1
_BITS = 51
_MASK = (1 << _BITS) - 1


def _words(value: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(value >> (_BITS * i) & _MASK) for i in range(5))


_ONE = _words(1)
_ZERO = _words(0)
_D_WORDS = _words(_D)
_TWICE_D = _words(2 * _D % _P)
_ROOT_WORDS = _words(_ROOT)
_LOW = np.uint64(_MASK)
_19 = np.uint64(19)
#: Twice p, with every word large enough to take any product off.
_TWICE_P0, _TWICE_P = np.uint64(0xFFFFFFFFFFFDA), np.uint64(0xFFFFFFFFFFFFE)
_0, _1 = np.uint64(0), np.uint64(1)
_U13, _U26, _U38, _U39 = (np.uint64(n) for n in (13, 26, 38, 39))
_U12, _U25, _U51, _U63, _U64 = (np.uint64(n) for n in (12, 25, 51, 63, 64))
_U6 = np.uint64(6)

# The compiler's own modules have no types.
_types: Any = types
_tools: Any = cgutils
_FIELD = _types.UniTuple(_types.uint64, 5)


# ── numbers modulo p ──────────────────────────────────────────────────────────────────────────


def _product(typing: Any, a: Any, b: Any) -> Any:
    """The product; words below 2^54 in, below 2^51 + 2^13 out.

    Written in the compiler's own language, which has numbers of 128 bits.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, narrow = ir.IntType(128), ir.IntType(64)
        x, y = (
            [builder.zext(word, wide) for word in _tools.unpack_tuple(builder, argument)]
            for argument in arguments
        )
        x19 = [builder.mul(word, ir.Constant(wide, 19)) for word in x]
        shift, mask = ir.Constant(wide, _BITS), ir.Constant(wide, _MASK)
        carry = ir.Constant(wide, 0)
        words = []
        for k in range(5):
            total = carry
            for i in range(5):
                left = x[i] if i <= k else x19[i]
                total = builder.add(total, builder.mul(left, y[(k - i) % 5]))
            words.append(builder.and_(total, mask))
            carry = builder.lshr(total, shift)
        first = builder.add(words[0], builder.mul(carry, ir.Constant(wide, 19)))
        words[0] = builder.and_(first, mask)
        words[1] = builder.add(words[1], builder.lshr(first, shift))
        narrowed = [builder.trunc(word, narrow) for word in words]
        return context.make_tuple(builder, signature.return_type, narrowed)

    return _FIELD(_FIELD, _FIELD), build


_times: Any = intrinsic(_product)


@njit(**INNER)
def _plus(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4])


@njit(**INNER)
def _minus(a: Any, b: Any) -> Any:
    return (
        a[0] + _TWICE_P0 - b[0],
        a[1] + _TWICE_P - b[1],
        a[2] + _TWICE_P - b[2],
        a[3] + _TWICE_P - b[3],
        a[4] + _TWICE_P - b[4],
    )


@njit(**INNER)
def _exact(a: Any) -> Any:
    """The same number with words of 51 bits, below p."""
    a = _times(a, _ONE)
    # p or more exactly if adding 19 reaches 2^255; twice, for a carry may be left over.
    for _ in range(2):
        carry = (a[0] + _19) >> _U51
        carry = (a[1] + carry) >> _U51
        carry = (a[2] + carry) >> _U51
        carry = (a[3] + carry) >> _U51
        carry = (a[4] + carry) >> _U51
        w0 = a[0] + _19 * carry
        w1 = a[1] + (w0 >> _U51)
        w2 = a[2] + (w1 >> _U51)
        w3 = a[3] + (w2 >> _U51)
        w4 = a[4] + (w3 >> _U51)
        a = (w0 & _LOW, w1 & _LOW, w2 & _LOW, w3 & _LOW, w4 & _LOW)
    return a


@njit(**INNER)
def _is_zero(a: Any) -> Any:
    w = _exact(a)
    return (w[0] | w[1] | w[2] | w[3] | w[4]) == _0


@njit(**INNER)
def _is_negative(a: Any) -> Any:
    """Whether the number is odd, which stands for its sign."""
    return (_exact(a)[0] & _1) == _1


@njit(**INNER)
def _squared(a: Any, times: Any) -> Any:
    for _ in range(times):
        a = _times(a, a)
    return a


@njit(**INNER)
def _power(z: Any) -> Any:
    """z^((p − 5)/8), by the usual chain of squarings.

    Bare constants would have the compiler compile the squaring anew for each.
    """
    z2 = _times(z, z)
    z9 = _times(z, _squared(z2, np.int64(2)))
    z11 = _times(z2, z9)
    a5 = _times(z9, _times(z11, z11))  # z^(2^5 − 1), and so on
    a10 = _times(a5, _squared(a5, np.int64(5)))
    a20 = _times(a10, _squared(a10, np.int64(10)))
    a40 = _times(a20, _squared(a20, np.int64(20)))
    a50 = _times(a10, _squared(a40, np.int64(10)))
    a100 = _times(a50, _squared(a50, np.int64(50)))
    a200 = _times(a100, _squared(a100, np.int64(100)))
    a250 = _times(a50, _squared(a200, np.int64(50)))
    return _times(z, _squared(a250, np.int64(2)))


# ── points ────────────────────────────────────────────────────────────────────────────────────


@njit(**INNER)
def _loaded(w0: Any, w1: Any, w2: Any, w3: Any) -> Any:
    """Four words of 64 bits as five of 51."""
    return (
        w0 & _LOW,
        ((w0 >> _U51) | (w1 << _U13)) & _LOW,
        ((w1 >> _U38) | (w2 << _U26)) & _LOW,
        ((w2 >> _U25) | (w3 << _U39)) & _LOW,
        (w3 >> _U12) & _LOW,
    )


@njit(**INNER)
def _decoded(words: Any) -> Any:
    """Decode of RFC 9496: whether it is an element other than the neutral one, x and y."""
    s = _loaded(words[0], words[1], words[2], words[3])
    exact = _exact(s)
    whole = (words[3] >> _U63) == _0
    for i in range(5):
        whole = whole and exact[i] == s[i]
    if not whole or (s[0] & _1) == _1:
        return False, s, s
    ss = _times(s, s)
    u1, u2 = _minus(_ONE, ss), _plus(_ONE, ss)
    u2s = _times(u2, u2)
    v = _minus(_minus(_ZERO, _times(_D_WORDS, _times(u1, u1))), u2s)
    # 1/√(v · u2²), where there is one.
    w = _times(v, u2s)
    w3 = _times(_times(w, w), w)
    root = _times(w3, _power(_times(_times(w3, w3), w)))
    check = _times(w, _times(root, root))
    if _is_zero(_plus(check, _ONE)):
        root = _times(root, _ROOT_WORDS)
    elif not _is_zero(_minus(check, _ONE)):
        return False, s, s
    if _is_negative(root):
        root = _minus(_ZERO, root)
    den = _times(root, u2)
    y = _times(u1, _times(_times(root, den), v))
    x = _times(_plus(s, s), den)
    if _is_negative(x):
        x = _times(_minus(_ZERO, x), _ONE)
    sound = not _is_negative(_times(x, y)) and not _is_zero(y) and not _is_zero(s)
    return sound, x, y


@njit(**INNER)
def _sum(a: Any, b: Any) -> Any:
    """Both points as (X, Y, Z, T)."""
    p = _times(_minus(a[1], a[0]), _minus(b[1], b[0]))
    q = _times(_plus(a[1], a[0]), _plus(b[1], b[0]))
    c = _times(_times(a[3], _TWICE_D), b[3])
    z = _times(a[2], b[2])
    return _joined(p, q, c, _plus(z, z))


@njit(**INNER)
def _joined(p: Any, q: Any, c: Any, d: Any) -> Any:
    e, f, g, h = _minus(q, p), _minus(d, c), _plus(d, c), _plus(q, p)
    return _times(e, f), _times(g, h), _times(f, g), _times(e, h)


@njit(**INNER)
def _read(store: Any, i: int) -> Any:
    """Five words of an array."""
    return (store[i, 0], store[i, 1], store[i, 2], store[i, 3], store[i, 4])


@njit(**INNER)
def _point(store: Any, i: int) -> Any:
    base = 4 * i
    return (
        _read(store, base),
        _read(store, base + 1),
        _read(store, base + 2),
        _read(store, base + 3),
    )


@njit(**INNER)
def _keep(store: Any, i: Any, point: Any) -> None:
    for k in range(4):
        for j in range(5):
            store[4 * i + k, j] = point[k][j]


@njit(**OUTER)
def _buckets(elements: Any, digits: Any, bits: int, total: Any) -> bool:
    """Into ``total`` the sum of elements, each as often as its digits say; False if one is none."""
    n, windows = digits.shape
    # Per element y + x, y − x and 2dxy, with which an addition is cheapest.
    ready = np.empty((3 * n, 5), np.uint64)
    for i in range(n):
        sound, x, y = _decoded(elements[i])
        if not sound:
            return False
        plus, minus = _times(_plus(y, x), _ONE), _times(_minus(y, x), _ONE)
        twist = _times(_times(x, y), _TWICE_D)
        for j in range(5):
            ready[3 * i, j], ready[3 * i + 1, j], ready[3 * i + 2, j] = plus[j], minus[j], twist[j]
    neutral = (_ZERO, _ONE, _ONE, _ZERO)
    half = 1 << (bits - 1)
    store = np.empty((4 * (half + 1), 5), np.uint64)
    result = neutral
    for w in range(windows - 1, -1, -1):
        for _ in range(bits):
            result = _sum(result, result)
        for b in range(half + 1):
            _keep(store, b, neutral)
        for i in range(n):
            digit = digits[i, w]
            if digit == 0:
                continue
            bucket: Any = np.int64(abs(digit))
            held = _point(store, bucket)
            plus, minus = _read(ready, 3 * i), _read(ready, 3 * i + 1)
            c = _times(held[3], _read(ready, 3 * i + 2))
            if digit < 0:
                plus, minus = minus, plus
                c = _minus(_ZERO, c)
                c = _times(c, _ONE)
            p = _times(_minus(held[1], held[0]), minus)
            q = _times(_plus(held[1], held[0]), plus)
            _keep(store, bucket, _joined(p, q, c, _plus(held[2], held[2])))
        # Bucket b counts b times: the sum of all sums from the top down.
        above, inner = neutral, neutral
        for b in range(half, 0, -1):
            above = _sum(above, _point(store, b))
            inner = _sum(inner, above)
        result = _sum(result, inner)
    _keep(total, np.int64(0), result)
    return True


@njit(**OUTER)
def _digits(scalars: Any, bits: int, windows: int) -> Any:
    """Scalars as digits between −2^(bits − 1) and 2^(bits − 1)."""
    out = np.empty((len(scalars), windows), np.int32)
    full = 1 << bits
    mask = np.uint64(full - 1)
    for i in range(len(scalars)):
        carry = 0
        for w in range(windows):
            at = np.uint64(w * bits)
            word, shift = at >> _U6, at & _U63
            value = _0
            if word < 4:
                value = scalars[i, word] >> shift
                if shift + np.uint64(bits) > _U64 and word < 3:
                    value |= scalars[i, word + _1] << (_U64 - shift)
            digit = np.int64(value & mask) + carry
            carry = 1 if digit > full // 2 else 0
            out[i, w] = digit - carry * full
    return out


def weighted_sum(weights: bytes, elements: bytes) -> bytes:
    """The sum of elements, each by its scalar; weights below the order of the group.

    Raises
    ------
    GroupError
        Something is no element of the group, or the neutral one.
    """
    n = count_of(elements)
    bits = max(3, n.bit_length() - 3)
    scalars = np.frombuffer(weights, np.uint64).reshape(n, WIDTH // 8)
    digits = _digits(scalars, bits, -(-254 // bits))
    total = np.empty((4, 5), np.uint64)
    if not _buckets(np.frombuffer(elements, np.uint64).reshape(n, 4), digits, bits, total):
        raise GroupError("a group element is not valid; its sender runs other code, or cheats")
    x, y, z, t = (sum(int(w) << (_BITS * i) for i, w in enumerate(row)) % _P for row in total)
    return _encoded(x, y, z, t)


def _encoded(x: int, y: int, z: int, t: int) -> bytes:
    """Encode of RFC 9496; once per sum, so in plain numbers."""
    u1, u2 = (z + y) * (z - y) % _P, x * y % _P
    root = _inverse_root(u1 * u2 * u2 % _P)
    den1, den2 = root * u1 % _P, root * u2 % _P
    z_inverse = den1 * den2 * t % _P
    if t * z_inverse % _P & 1:
        x, y = y * _ROOT % _P, x * _ROOT % _P
        den2 = den1 * _inverse_root((-1 - _D) % _P) % _P
    if x * z_inverse % _P & 1:
        y = -y
    s = den2 * (z - y) % _P
    return min(s, _P - s, key=lambda v: v & 1).to_bytes(WIDTH, "little") if s else bytes(WIDTH)


def _inverse_root(v: int) -> int:
    """1/√v or 1/√(√−1 · v), the even one of both."""
    v3 = v**3 % _P
    root = v3 * pow(v3 * v3 * v, (_P - 5) // 8, _P) % _P
    check = v * root * root % _P
    if check in (_P - 1, -_ROOT % _P):
        root = root * _ROOT % _P
    return _P - root if root & 1 else root
