"""Keyed 64-bit BLAKE2b (RFC 7693) of many byte strings at once, in machine code.

The same bits as ``hashlib.blake2b(content, key=key, digest_size=8)``, which takes several times as
long for short strings: a Python object and four calls for each. BLAKE2b adds, rotates and combines
words, and neither branches nor looks anything up by what is secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.numba_options import INNER, OUTER

Words = NDArray[np.uint64]

#: Fewer strings than this are not worth a compiled loop, which a process has to load, or compile.
_FEW = 2_000
#: In a process that has hashed so many one by one, loading it would have paid, and does so by and
#: by: then even this part of as many is worth a call.
_MANY, _PART = 100_000, 40
_BLOCK = 128
#: Strings side by side: enough that loops over them are worth beginning, and all stay in the cache.
_LANES = 128
_ZERO, _ONES, _1 = np.uint64(0), np.uint64((1 << 64) - 1), np.uint64(1)
_16, _24, _32, _40, _48, _63 = map(np.uint64, (16, 24, 32, 40, 48, 63))

_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip


@dataclass(frozen=True)
class Strings:
    """Many byte strings behind each other: string i is content[start[i] : end[i]]."""

    content: NDArray[np.uint8]
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[bytes]:
        content = self.content.tobytes()
        for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True):
            yield content[start:end]

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> Strings:
        parts = list(strings)
        return cls._cut(b"".join(parts), list(map(len, parts)))

    @classmethod
    def of_texts(cls, texts: list[str]) -> Strings:
        """Of texts, as UTF-8."""
        whole = "".join(texts)
        if not whole.isascii():
            return cls.of(text.encode() for text in texts)
        return cls._cut(whole.encode(), list(map(len, texts)))

    @classmethod
    def _cut(cls, content: bytes, lengths: list[int]) -> Strings:
        end = np.array(lengths, np.int64).cumsum()
        start = np.zeros(len(lengths), np.int64)
        start[1:] = end[:-1]
        return cls(np.frombuffer(content, np.uint8), start, end)

    @classmethod
    def of_lines(cls, lines: list[str]) -> Strings:
        """Of texts without line breaks, as UTF-8, in which no other sign has a byte of theirs."""
        content = np.frombuffer("\n".join([*lines, ""]).encode(), np.uint8)
        end: Ints = np.flatnonzero(content == ord("\n"))
        if len(end) != len(lines):
            raise ValueError("a text holds a line break")
        start = np.zeros(len(lines), np.int64)
        start[1:] = end[:-1] + 1
        return cls(content, start, end)

    def take(self, rows: Ints) -> Strings:
        """Some of them."""
        return Strings(self.content, self.start[rows], self.end[rows])


@dataclass(frozen=True)
class Tails:
    """What comes behind strings: tail of[i] behind string i."""

    tails: Strings
    of: Ints

    def __iter__(self) -> Iterator[bytes]:
        return map(list(self.tails).__getitem__, self.of.tolist())


NO_TAILS = Strings.of([b""])


class _SoFar:
    """How many strings this process has hashed one by one."""

    one_by_one = 0


_so_far = _SoFar()


def keyed_hashes(key: bytes, strings: Strings, tails: Tails | None = None) -> Words:
    """Hashes of strings, each with its tail, under a key of up to 64 bytes."""
    if len(strings) < (_FEW if _so_far.one_by_one < _MANY else _FEW // _PART):
        _so_far.one_by_one += len(strings)
        return _one_by_one(key, strings, tails)
    state = _IV.copy()
    state[0] ^= np.uint64(0x01010000 ^ (len(key) << 8) ^ 8)
    block = np.frombuffer(key.ljust(_BLOCK, b"\x00"), np.uint64)
    nothing = _one_by_one(key, NO_TAILS, None)[0]
    behind = tails or Tails(NO_TAILS, np.zeros(len(strings), np.int64))
    out = np.empty(len(strings), np.uint64)
    _hash_all(
        _IV, state, block, nothing,
        strings.content, strings.start, strings.end,
        behind.tails.content, behind.tails.start, behind.tails.end, behind.of, out,
    )  # fmt: skip
    return out


def _one_by_one(key: bytes, strings: Strings, tails: Tails | None) -> Words:
    begun = blake2b(key=key, digest_size=8)
    # A copy of the keyed state: the key is worked in once, not for every string.
    digests, copy = [], begun.copy
    if tails is None:
        for string in strings:
            state = copy()
            state.update(string)
            digests.append(state.digest())
    else:
        for string, tail in zip(strings, tails, strict=True):
            state = copy()
            state.update(string)
            state.update(tail)
            digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


# ── in machine code ──────────────────────────────────────────────────────────────────────


#
# Strings are hashed side by side, ``_LANES`` at a time: word w of lane i is at w · _LANES + i, and
# one loop over the lanes takes all words of each through all rounds, in vector registers.


@numba.njit(**INNER)
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> Any:
    a = a + b + x
    d = d ^ a
    d = (d >> _32) | (d << _32)
    c = c + d
    b = b ^ c
    b = (b >> _24) | (b << _40)
    a = a + b + y
    d = d ^ a
    d = (d >> _16) | (d << _48)
    c = c + d
    b = b ^ c
    return a, (b >> _63) | (b << _1), c, d


@numba.njit(**INNER)
def _round(
    v: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any, k: Any,
    l: Any, m: Any, n: Any, o: Any, p: Any,
) -> Any:  # fmt: skip
    """A round over the words of a block in its order."""
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, va, vb, vc, vd, ve, vf = v
    v0, v4, v8, vc = _mix(v0, v4, v8, vc, a, b)
    v1, v5, v9, vd = _mix(v1, v5, v9, vd, c, d)
    v2, v6, va, ve = _mix(v2, v6, va, ve, e, f)
    v3, v7, vb, vf = _mix(v3, v7, vb, vf, g, h)
    v0, v5, va, vf = _mix(v0, v5, va, vf, i, j)
    v1, v6, vb, vc = _mix(v1, v6, vb, vc, k, l)
    v2, v7, v8, vd = _mix(v2, v7, v8, vd, m, n)
    v3, v4, v9, ve = _mix(v3, v4, v9, ve, o, p)
    return v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, va, vb, vc, vd, ve, vf


@numba.njit(**INNER)
def _compress(iv: Any, h: Any, block: Any, counts: Any, last: Any) -> None:
    """h = F(h, block), lane by lane; ``counts`` bytes with this block, which may be the ``last``
    (all ones) of its string. Lanes without bytes keep what they have."""
    z = _LANES
    c0, c1, c2, c3, c4, c5, c6, c7 = iv[0], iv[1], iv[2], iv[3], iv[4], iv[5], iv[6], iv[7]
    for y in range(z):
        h0, h1, h2, h3 = h[y], h[z + y], h[2 * z + y], h[3 * z + y]
        h4, h5, h6, h7 = h[4 * z + y], h[5 * z + y], h[6 * z + y], h[7 * z + y]
        a, b, c, d = block[y], block[z + y], block[2 * z + y], block[3 * z + y]
        e, f, g, s = block[4 * z + y], block[5 * z + y], block[6 * z + y], block[7 * z + y]
        i, j, k, l = block[8 * z + y], block[9 * z + y], block[10 * z + y], block[11 * z + y]
        m, n, o, p = block[12 * z + y], block[13 * z + y], block[14 * z + y], block[15 * z + y]
        v = h0, h1, h2, h3, h4, h5, h6, h7, c0, c1, c2, c3, c4 ^ counts[y], c5, c6 ^ last[y], c7
        v = _round(v, a, b, c, d, e, f, g, s, i, j, k, l, m, n, o, p)
        v = _round(v, o, k, e, i, j, p, n, g, b, m, a, c, l, s, f, d)
        v = _round(v, l, i, m, a, f, c, p, n, k, o, d, g, s, b, j, e)
        v = _round(v, s, j, d, b, n, m, l, o, c, g, f, k, e, a, p, i)
        v = _round(v, j, a, f, s, c, e, k, p, o, b, l, m, g, i, d, n)
        v = _round(v, c, m, g, k, a, l, i, d, e, n, s, f, p, o, b, j)
        v = _round(v, m, f, b, p, o, n, e, k, a, s, g, d, j, c, i, l)
        v = _round(v, n, l, s, o, m, b, d, j, f, a, p, e, i, g, c, k)
        v = _round(v, g, p, o, j, l, d, a, i, m, c, n, s, b, e, k, f)
        v = _round(v, k, c, i, e, s, g, b, f, p, l, j, o, d, m, n, a)
        v = _round(v, a, b, c, d, e, f, g, s, i, j, k, l, m, n, o, p)
        v = _round(v, o, k, e, i, j, p, n, g, b, m, a, c, l, s, f, d)
        keep = _ZERO - np.uint64(counts[y] != 0)
        h[y], h[z + y] = h0 ^ ((v[0] ^ v[8]) & keep), h1 ^ ((v[1] ^ v[9]) & keep)
        h[2 * z + y], h[3 * z + y] = h2 ^ ((v[2] ^ v[10]) & keep), h3 ^ ((v[3] ^ v[11]) & keep)
        h[4 * z + y], h[5 * z + y] = h4 ^ ((v[4] ^ v[12]) & keep), h5 ^ ((v[5] ^ v[13]) & keep)
        h[6 * z + y], h[7 * z + y] = h6 ^ ((v[6] ^ v[14]) & keep), h7 ^ ((v[7] ^ v[15]) & keep)


@numba.njit(**OUTER)
def _hash_all(
    iv: Any, state: Any, key: Any, nothing: Any,
    content: Any, start: Any, end: Any,
    tails: Any, tail_start: Any, tail_end: Any, tail_of: Any, out: Any,
) -> None:  # fmt: skip
    begun, h = np.empty(8 * _LANES, np.uint64), np.empty(8 * _LANES, np.uint64)
    m = np.empty(16 * _LANES, np.uint64)
    counts, last = np.empty(_LANES, np.uint64), np.zeros(_LANES, np.uint64)
    for i in range(_LANES):
        for w in range(8):
            begun[w * _LANES + i] = state[w]
        for w in range(16):
            m[w * _LANES + i] = key[w]
        counts[i] = _BLOCK
    # The key is worked in once, not for every string.
    _compress(iv, begun, m, counts, last)
    for first in range(0, start.shape[0], _LANES):
        lanes, longest = min(_LANES, start.shape[0] - first), 0
        for i in range(8 * _LANES):
            h[i] = begun[i]
        for i in range(lanes):
            t = tail_of[first + i]
            length = end[first + i] - start[first + i] + tail_end[t] - tail_start[t]
            longest = max(longest, length)
        for done in range(0, longest, _BLOCK):
            for i in range(16 * _LANES):
                m[i] = _ZERO
            for i in range(_LANES):
                counts[i] = last[i] = _ZERO
            for i in range(lanes):
                at, t = start[first + i] + done, tail_of[first + i]
                own = end[first + i] - at
                left = own + tail_end[t] - tail_start[t]
                if left <= 0:
                    continue
                size, word = min(_BLOCK, left), _ZERO
                counts[i] = np.uint64(_BLOCK + done + size)
                last[i] = _ONES if size == left else _ZERO
                for k in range(size):
                    byte = content[at + k] if k < own else tails[tail_start[t] + k - own]
                    word |= np.uint64(byte) << np.uint64(8 * (k & 7))
                    if k & 7 == 7 or k == size - 1:
                        m[(k >> 3) * _LANES + i] = word
                        word = _ZERO
            _compress(iv, h, m, counts, last)
        for i in range(lanes):
            t = tail_of[first + i]
            empty = end[first + i] == start[first + i] and tail_end[t] == tail_start[t]
            # Then the block of the key is the last.
            out[first + i] = nothing if empty else h[i]
