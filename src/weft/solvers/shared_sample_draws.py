"""Which samples an iteration touches: uniform draws without replacement, from a shared seed.

Every holder of a sample can compute who draws it, so nobody has to be told. A draw costs time
in proportion to the samples drawn, never to the samples there are.

Constants that are passed on get a type (``numba.int64``), since the compiler would compile the
function anew for each.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.numba_options import INNER, OUTER


@numba.njit(cache=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """SplitMix64's finalizer."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(**INNER)
def _draw(seed: int, iteration: int, stream: int, n: int, count: int, out: Any, at: Any) -> None:
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
            pick = np.int64(top)
            where = np.int64(_mix(np.uint64(pick))) & mask
            while seen[where] >= 0:
                where = (where + 1) & mask
        seen[where] = pick
        out[at + step] = pick


@numba.njit(**OUTER)
def cohort_draws(seed: int, iteration: int, cohorts: Any) -> Any:
    """Local slots drawn from each cohort: the same choice at every holder.

    ``cohorts`` has a row (number, local start, size, how many to draw) per cohort.
    """
    total = 0
    for j in range(cohorts.shape[0]):
        total += cohorts[j, 3]
    out = np.empty(total, np.int32)
    at = numba.int64(0)
    for j in range(cohorts.shape[0]):
        count = cohorts[j, 3]
        _draw(seed, iteration, cohorts[j, 0], cohorts[j, 2], count, out, at)
        for i in range(at, at + count):
            out[i] += cohorts[j, 1]
        at += count
    return out


@numba.njit(**OUTER)
def cohort_window(
    seed: int,
    iteration: int,
    ahead: int,
    movable: Any,
    cohorts: Any,
    n_shared: int,
    drawn: Any,
    out: Any,
) -> Any:
    """What this iteration draws from ``movable``, and the window of ``ahead`` iterations.

    Into ``drawn`` come the rows drawn, ascending: in memory order, rows of a big table cost fewer
    cache misses. Into ``out`` come these, then what the iterations draw from ``cohorts``, without
    repeats. Returns how long that is: arrays that it made would take Python longer to take over
    than to make.
    """
    drawn[:] = _ascending(cohort_draws(seed, iteration, movable))
    seen = _empty_set(out.shape[0])
    at = _append(drawn, n_shared, seen, out, numba.int64(0))
    for t in range(iteration, iteration + ahead):
        at = _append(cohort_draws(seed, t, cohorts), n_shared, seen, out, at)
    return at


@numba.njit(**OUTER)
def party_draw(seed: int, iteration: int, party: int, n: int, count: int) -> Any:
    """Positions that a party draws among the ``n`` samples it has labels for."""
    out = np.empty(min(n, count), np.int32)
    # Parties and cohorts draw from different streams.
    _draw(seed, iteration, party + (1 << 40), n, min(n, count), out, numba.int64(0))
    return out


@numba.njit(**INNER)
def party_rows(
    seed: int, iteration: int, party: int, labelled: Any, count: int, n_shared: int
) -> Any:
    """Rows that a party draws, ascending, and how many of them are shared."""
    positions = party_draw(seed, iteration, party, labelled.shape[0], count)
    rows = np.empty(positions.shape[0], np.int32)
    shared = numba.int64(0)
    for i in range(rows.shape[0]):
        rows[i] = labelled[positions[i]]
        if rows[i] < n_shared:
            shared += 1
    return _ascending(rows), shared


@numba.njit(**INNER)
def _ascending(rows: Any) -> Any:
    """Slots in order, sorted by one byte after the other, from the lowest: three times as fast as
    Numba's sort, over which the compiler takes a second more."""
    other, largest = np.empty(rows.shape[0], np.int32), 0
    for row in rows:
        largest = max(largest, row)
    begin, shift = np.empty(256, np.int64), 0
    while largest >> shift:
        for byte in range(256):
            begin[byte] = 0
        for row in rows:
            begin[(row >> shift) & 255] += 1
        total = 0
        for byte in range(256):
            begin[byte], total = total, total + begin[byte]
        for row in rows:
            byte = (row >> shift) & 255
            other[begin[byte]] = row
            begin[byte] += 1
        rows, other = other, rows
        shift += 8
    return rows


@numba.njit(**OUTER)
def party_window(
    seed: int,
    iteration: int,
    ahead: int,
    party: int,
    labelled: Any,
    count: int,
    n_shared: int,
    others: Any,
    drawn: Any,
    out: Any,
) -> Any:
    """What a party draws, and the shared rows that anybody draws within ``ahead`` iterations.

    ``others`` has a row (party, its samples, how many it draws, cohort's offset there, cohort's
    size, local start here) per cohort shared with another label holder, sorted by party. Into
    ``drawn`` come the rows drawn here, into ``out`` the window, which begins with those of them
    that are shared. Returns how many these are, and how long the window is.
    """
    rows, shared = party_rows(seed, iteration, party, labelled, count, n_shared)
    drawn[:] = rows
    seen = _empty_set(out.shape[0])
    at = _append(rows[:shared], n_shared, seen, out, numba.int64(0))
    for t in range(iteration, iteration + ahead):
        if t > iteration:
            later, _ = party_rows(seed, t, party, labelled, count, n_shared)
            at = _append(later, n_shared, seen, out, at)
        at = _append(_others_rows(seed, t, others), n_shared, seen, out, at)
    return shared, at


@numba.njit(**INNER)
def _others_rows(seed: int, iteration: int, others: Any) -> Any:
    """Local slots that other label holders draw from the cohorts shared with them."""
    total = 0
    for j in range(others.shape[0]):
        if j == 0 or others[j, 0] != others[j - 1, 0]:
            total += others[j, 2]
    out = np.empty(total, np.int32)
    at = 0
    j = 0
    while j < others.shape[0]:
        end = j
        while end < others.shape[0] and others[end, 0] == others[j, 0]:
            end += 1
        for position in party_draw(seed, iteration, others[j, 0], others[j, 1], others[j, 2]):
            for e in range(j, end):
                inside = position - others[e, 3]
                if 0 <= inside < others[e, 4]:
                    out[at] = others[e, 5] + inside
                    at += 1
                    break
        j = end
    return out[:at]


@numba.njit(**INNER)
def _empty_set(most: int) -> Any:
    """An empty hash set for up to ``most`` slots."""
    size = 4
    while size < 2 * most:
        size *= 2
    return np.full(size, -1, np.int32)


@numba.njit(**INNER)
def _append(slots: Any, n_shared: int, seen: Any, out: Any, at: Any) -> Any:
    """Append the shared slots that are not in ``seen`` yet."""
    mask = seen.shape[0] - 1
    for slot in slots:
        if slot >= n_shared:
            continue
        where = np.int64(_mix(np.uint64(slot))) & mask
        while seen[where] >= 0 and seen[where] != slot:
            where = (where + 1) & mask
        if seen[where] < 0:
            seen[where] = slot
            out[at] = slot
            at += 1
    return at


@numba.njit(**OUTER)
def order_of(seed: int, iteration: int, party: int, n: int, count: int) -> Any:
    """``count`` positions below ``n`` in a random order: whole passes, and a part of one.

    The part holds the positions that :func:`party_draw` gives.
    """
    out = np.empty(count, np.int32)
    done: Any = numba.int64(0)
    while done < count:
        take = min(n, count - done)
        _draw(seed, iteration, party + (1 << 40), n, take, out, done)
        golden = np.uint64(0x9E3779B97F4A7C15)
        state = _mix(np.uint64(seed) ^ _mix(np.uint64(iteration) ^ _mix(np.uint64(party + done))))
        for i in range(take - 1, 0, -1):
            state += golden
            j = np.int64(((_mix(state) >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
            out[done + i], out[done + j] = out[done + j], out[done + i]
        done += take
    return out
