"""Which samples an iteration touches: uniform draws without replacement, from a shared seed.

Every holder of a sample can compute who draws it, so nobody has to be told. A draw costs time
in proportion to the samples drawn, never to the samples there are.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int32]


@numba.njit(cache=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """SplitMix64's finalizer."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True)
def _draw(seed: int, iteration: int, stream: int, n: int, count: int, out: Any, at: int) -> None:
    """``count`` different numbers below ``n`` into out[at:], by Floyd's algorithm."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix(np.uint64(seed) + golden)
    state = _mix(state ^ (np.uint64(iteration) * np.uint64(0xD1B54A32D192ED03)))
    state = _mix(state ^ (np.uint64(stream) * np.uint64(0xAEF17502108EF2D9)))
    if count >= n:
        for i in range(n):
            out[at + i] = i
        return
    size = 4
    while size < 2 * count:
        size *= 2
    seen = np.full(size, -1, np.int64)
    mask = size - 1
    for step in range(count):
        top = n - count + step
        state += golden
        # The high 32 bits times (top + 1), shifted: uniform up to 2^-32 · n.
        pick = np.int64(((_mix(state) >> np.uint64(32)) * np.uint64(top + 1)) >> np.uint64(32))
        where = np.int64(_mix(np.uint64(pick))) & mask
        taken = False
        while seen[where] >= 0:
            if seen[where] == pick:
                taken = True
                break
            where = (where + 1) & mask
        if taken:
            pick = top
            where = np.int64(_mix(np.uint64(pick))) & mask
            while seen[where] >= 0:
                where = (where + 1) & mask
        seen[where] = pick
        out[at + step] = pick


@numba.njit(cache=True)
def cohort_draws(seed: int, iteration: int, cohorts: Any, starts: Any, sizes: Any, counts: Any) -> Any:
    """Local slots drawn from each cohort: the same choice at every holder."""
    total = 0
    for j in range(cohorts.shape[0]):
        total += counts[j]
    out = np.empty(total, np.int32)
    at = 0
    for j in range(cohorts.shape[0]):
        _draw(seed, iteration, cohorts[j], sizes[j], counts[j], out, at)
        for i in range(at, at + counts[j]):
            out[i] += starts[j]
        at += counts[j]
    return out


@numba.njit(cache=True)
def party_draw(seed: int, iteration: int, party: int, n: int, count: int) -> Any:
    """Positions that a party draws among the ``n`` samples it has labels for."""
    out = np.empty(min(n, count), np.int32)
    # Parties and cohorts draw from different streams.
    _draw(seed, iteration, party + (1 << 40), n, min(n, count), out, 0)
    return out


@numba.njit(cache=True)
def others_draws(
    seed: int, iteration: int, parties: Any, rows: Any, offsets: Any, sizes: Any, starts: Any, count: int
) -> Any:
    """Local slots that other label holders draw from the cohorts shared with them.

    The arrays are sorted by party: one entry per cohort shared with that party.
    """
    total = 0
    for j in range(parties.shape[0]):
        if j == 0 or parties[j] != parties[j - 1]:
            total += min(rows[j], count)
    out = np.empty(total, np.int32)
    at = 0
    j = 0
    while j < parties.shape[0]:
        end = j
        while end < parties.shape[0] and parties[end] == parties[j]:
            end += 1
        drawn = party_draw(seed, iteration, parties[j], rows[j], count)
        for position in drawn:
            for e in range(j, end):
                inside = position - offsets[e]
                if 0 <= inside < sizes[e]:
                    out[at] = starts[e] + inside
                    at += 1
                    break
        j = end
    return out[:at]


@numba.njit(cache=True)
def merge(first: Any, rest: Any, n: int) -> Any:
    """``first``, then those of ``rest`` that are new, without repeats; work follows both."""
    size = 4
    while size < 2 * (first.shape[0] + rest.shape[0]):
        size *= 2
    seen = np.full(size, -1, np.int64)
    mask = size - 1
    out = np.empty(first.shape[0] + rest.shape[0], np.int32)
    at = 0
    for part in (first, rest):
        for slot in part:
            if slot >= n:
                continue
            where = np.int64(_mix(np.uint64(slot))) & mask
            while seen[where] >= 0 and seen[where] != slot:
                where = (where + 1) & mask
            if seen[where] < 0:
                seen[where] = slot
                out[at] = slot
                at += 1
    return out[:at]
