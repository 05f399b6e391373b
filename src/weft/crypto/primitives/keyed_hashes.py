"""Keyed 64-bit BLAKE2b (RFC 7693) of many byte strings at once, in machine code.

The same bits as ``hashlib.blake2b(content, key=key, digest_size=8)``, which takes several times as
long for short strings: a Python object and four calls for each. BLAKE2b adds, rotates and combines
words, and neither branches nor looks anything up by what is secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.compiled_code import INNER, OUTER

Words = NDArray[np.uint64]

#: Fewer strings than this are not worth a compiled loop, which the first process has to compile.
_FEW = 2_000
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

    def __iter__(self) -> Iterator[bytes]:
        content = self.content.tobytes()
        for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True):
            yield content[start:end]

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

    def __iter__(self) -> Iterator[bytes]:
        return map(list(self.tails).__getitem__, self.of.tolist())


NO_TAILS = Strings.of([b""])


def keyed_hashes(key: bytes, strings: Strings, tails: Tails | None = None) -> Words:
    """Hashes of strings, each with its tail, under a key of up to 64 bytes."""
    if len(strings) < _FEW:
        return _one_by_one(key, strings, tails)
    state = _IV.copy()
    state[0] ^= np.uint64(0x01010000 ^ (len(key) << 8) ^ 8)
    block = np.frombuffer(key.ljust(_BLOCK, b"\x00"), np.uint64)
    nothing = _one_by_one(key, NO_TAILS, None)[0]
    behind = tails or Tails(NO_TAILS, np.zeros(len(strings), np.int64))
    out = np.empty(len(strings), np.uint64)
    _hash_all(
        _IV, _SIGMA, state, block, nothing,
        strings.content, strings.start, strings.end,
        behind.tails.content, behind.tails.start, behind.tails.end, behind.of, out,
    )  # fmt: skip
    return out


def _one_by_one(key: bytes, strings: Strings, tails: Tails | None) -> Words:
    begun = blake2b(key=key, digest_size=8)
    # A copy of the keyed state: the key is worked in once, not for every string.
    digests, copy = [], begun.copy
    behind: Iterable[bytes] = tails or repeat(b"", len(strings))
    for string, tail in zip(strings, behind, strict=True):
        state = copy()
        state.update(string)
        state.update(tail)
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


# ── in machine code ──────────────────────────────────────────────────────────────────────


#
# Strings are hashed side by side, ``_LANES`` at a time: every loop over them is one that the
# compiler turns into vector instructions.


@numba.njit(**INNER)
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> None:
    for i in range(a.shape[0]):
        va = a[i] + b[i] + x[i]
        turned = d[i] ^ va
        vd = (turned >> _32) | (turned << _32)
        vc = c[i] + vd
        turned = b[i] ^ vc
        vb = (turned >> _24) | (turned << _40)
        va = va + vb + y[i]
        turned = vd ^ va
        vd = (turned >> _16) | (turned << _48)
        vc = vc + vd
        turned = vb ^ vc
        a[i], b[i], c[i], d[i] = va, (turned >> _63) | (turned << _1), vc, vd


@numba.njit(**INNER)
def _compress(iv: Any, sigma: Any, h: Any, m: Any, counts: Any, last: Any, v: Any) -> None:
    """h = F(h, m), lane by lane; ``counts`` bytes with this block, which may be the ``last`` (all
    ones) of its string. Lanes without bytes keep what they have."""
    # Loops: over an assignment of slices the compiler takes seconds.
    for i in range(counts.shape[0]):
        for w in range(8):
            v[w, i] = h[w, i]
            v[8 + w, i] = iv[w]
        v[12, i] ^= counts[i]
        v[14, i] ^= last[i]
    for r in range(12):
        s = sigma[r]
        for g in range(4):
            _mix(v[g], v[4 + g], v[8 + g], v[12 + g], m[s[2 * g]], m[s[2 * g + 1]])
        for g in range(4):
            _mix(
                v[g], v[4 + (g + 1) % 4], v[8 + (g + 2) % 4], v[12 + (g + 3) % 4],
                m[s[8 + 2 * g]], m[s[9 + 2 * g]],
            )  # fmt: skip
    for w in range(8):
        for i in range(counts.shape[0]):
            keep = np.uint64(counts[i] != 0)
            h[w, i] ^= (v[w, i] ^ v[8 + w, i]) * keep


@numba.njit(**OUTER)
def _hash_all(
    iv: Any, sigma: Any, state: Any, key: Any, nothing: Any,
    content: Any, start: Any, end: Any,
    tails: Any, tail_start: Any, tail_end: Any, tail_of: Any, out: Any,
) -> None:  # fmt: skip
    begun, h = np.empty((8, _LANES), np.uint64), np.empty((8, _LANES), np.uint64)
    m, v = np.empty((16, _LANES), np.uint64), np.empty((16, _LANES), np.uint64)
    counts, last = np.empty(_LANES, np.uint64), np.zeros(_LANES, np.uint64)
    for i in range(_LANES):
        for w in range(8):
            begun[w, i] = state[w]
        for w in range(16):
            m[w, i] = key[w]
        counts[i] = _BLOCK
    # The key is worked in once, not for every string.
    _compress(iv, sigma, begun, m, counts, last, v)
    for first in range(0, start.shape[0], _LANES):
        lanes, longest = min(_LANES, start.shape[0] - first), 0
        for w in range(8):
            for i in range(_LANES):
                h[w, i] = begun[w, i]
        for i in range(lanes):
            t = tail_of[first + i]
            length = end[first + i] - start[first + i] + tail_end[t] - tail_start[t]
            longest = max(longest, length)
        for done in range(0, longest, _BLOCK):
            for i in range(_LANES):
                for w in range(16):
                    m[w, i] = _ZERO
                counts[i] = last[i] = _ZERO
            for i in range(lanes):
                at, t = start[first + i] + done, tail_of[first + i]
                own = end[first + i] - at
                left = own + tail_end[t] - tail_start[t]
                if left <= 0:
                    continue
                size = min(_BLOCK, left)
                counts[i] = np.uint64(_BLOCK + done + size)
                last[i] = _ONES if size == left else _ZERO
                for k in range(min(own, size)):
                    m[k >> 3, i] |= np.uint64(content[at + k]) << np.uint64(8 * (k & 7))
                for k in range(max(own, 0), size):
                    byte = np.uint64(tails[tail_start[t] + k - own])
                    m[k >> 3, i] |= byte << np.uint64(8 * (k & 7))
            _compress(iv, sigma, h, m, counts, last, v)
        for i in range(lanes):
            t = tail_of[first + i]
            empty = end[first + i] == start[first + i] and tail_end[t] == tail_start[t]
            # Then the block of the key is the last.
            out[first + i] = nothing if empty else h[0, i]
