"""Keyed 64-bit BLAKE2b (RFC 7693) of many byte strings at once, in machine code.

The same bits as ``hashlib.blake2b(content, key=key, digest_size=8)``, which takes several times as
long for short strings: a Python object and four calls for each. BLAKE2b adds, rotates and combines
words, and neither branches nor looks anything up by what is secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints

Words = NDArray[np.uint64]

#: Fewer strings than this are not worth a compiled loop, which the first process has to compile.
_FEW = 2_000
_BLOCK = 128

_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
#: Which word of a block goes where, round by round (the last two are the first two again).
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    np.int64,
)


@dataclass(frozen=True)
class Strings:
    """Many byte strings behind each other: string i is content[start[i] : end[i]]."""

    content: NDArray[np.uint8]
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, i: int) -> bytes:
        return self.content[self.start[i] : self.end[i]].tobytes()

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> Strings:
        parts = list(strings)
        end = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
        start: Ints = np.concatenate([[0], end[:-1]]).astype(np.int64)[: len(parts)]
        return cls(np.frombuffer(b"".join(parts), np.uint8), start, end)

    @classmethod
    def of_lines(cls, lines: list[str]) -> Strings:
        """Of texts without line breaks, as UTF-8, in which no other sign has a byte of theirs."""
        content = np.frombuffer("\n".join([*lines, ""]).encode(), np.uint8)
        end: Ints = np.flatnonzero(content == ord("\n"))
        if len(end) != len(lines):
            raise ValueError("a text holds a line break")
        start: Ints = np.concatenate([[0], end[:-1] + 1]).astype(np.int64)[: len(lines)]
        return cls(content, start, end)

    def take(self, rows: Ints) -> Strings:
        """Some of them."""
        return Strings(self.content, self.start[rows], self.end[rows])


@dataclass(frozen=True)
class Tails:
    """What comes behind strings: tail of[i] behind string i."""

    tails: Strings
    of: Ints

    def __getitem__(self, i: int) -> bytes:
        return self.tails[int(self.of[i])]


NO_TAILS = Strings.of([b""])


def keyed_hashes(key: bytes, strings: Strings, tails: Tails | None = None) -> Words:
    """Hashes of strings, each with its tail, under a key of up to 64 bytes."""
    if len(strings) < _FEW:
        return _one_by_one(key, strings, tails)
    state = _IV.copy()
    state[0] ^= np.uint64(0x01010000 ^ (len(key) << 8) ^ 8)
    block = np.frombuffer(key.ljust(_BLOCK, b"\x00"), np.uint64)
    behind = tails or Tails(NO_TAILS, np.zeros(len(strings), np.int64))
    out = np.empty(len(strings), np.uint64)
    _hash_all(
        _IV, _SIGMA, state, block,
        strings.content, strings.start, strings.end,
        behind.tails.content, behind.tails.start, behind.tails.end, behind.of, out,
    )  # fmt: skip
    return out


def _one_by_one(key: bytes, strings: Strings, tails: Tails | None) -> Words:
    begun = blake2b(key=key, digest_size=8)
    # A copy of the keyed state: the key is worked in once, not for every string.
    digests, copy = [], begun.copy
    for i in range(len(strings)):
        state = copy()
        state.update(strings[i] if tails is None else strings[i] + tails[i])
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


# ── in machine code ──────────────────────────────────────────────────────────────────────


@numba.njit(cache=True, inline="always")
def _right(x: Any, count: int) -> Any:
    return (x >> np.uint64(count)) | (x << np.uint64(64 - count))


@numba.njit(cache=True)
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> Any:
    a = a + b + x
    d = _right(d ^ a, 32)
    c = c + d
    b = _right(b ^ c, 24)
    a = a + b + y
    d = _right(d ^ a, 16)
    c = c + d
    b = _right(b ^ c, 63)
    return a, b, c, d


@numba.njit(cache=True)
def _compress(iv: Any, sigma: Any, h: Any, m: Any, count: int, last: bool, out: Any) -> None:
    """out = F(h, m); ``count`` bytes with this block, which may be the last."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11 = iv[0], iv[1], iv[2], iv[3]
    v12, v13, v14, v15 = iv[4] ^ np.uint64(count), iv[5], iv[6], iv[7]
    if last:
        v14 = ~v14
    for r in range(12):
        s = sigma[r]
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[s[14]], m[s[15]])
    out[0], out[1] = h[0] ^ v0 ^ v8, h[1] ^ v1 ^ v9
    out[2], out[3] = h[2] ^ v2 ^ v10, h[3] ^ v3 ^ v11
    out[4], out[5] = h[4] ^ v4 ^ v12, h[5] ^ v5 ^ v13
    out[6], out[7] = h[6] ^ v6 ^ v14, h[7] ^ v7 ^ v15


@numba.njit(cache=True, nogil=True)
def _hash_all(
    iv: Any, sigma: Any, state: Any, key: Any,
    content: Any, start: Any, end: Any,
    tails: Any, tail_start: Any, tail_end: Any, tail_of: Any, out: Any,
) -> None:  # fmt: skip
    begun, h, words = np.empty(8, np.uint64), np.empty(8, np.uint64), np.empty(16, np.uint64)
    block = words.view(np.uint8)
    _compress(iv, sigma, state, key, 128, False, begun)
    for i in range(start.shape[0]):
        first, t = end[i] - start[i], tail_of[i]
        length = first + tail_end[t] - tail_start[t]
        if length == 0:
            # Then the block of the key is the last.
            _compress(iv, sigma, state, key, 128, True, h)
        for done in range(0, length, 128):
            size = min(128, length - done)
            words[:] = 0
            inside = min(max(first - done, 0), size)
            for k in range(inside):
                block[k] = content[start[i] + done + k]
            for k in range(inside, size):
                block[k] = tails[tail_start[t] + done + k - first]
            before = begun if done == 0 else h
            _compress(iv, sigma, before, words, 128 + done + size, done + size == length, h)
        out[i] = h[0]
