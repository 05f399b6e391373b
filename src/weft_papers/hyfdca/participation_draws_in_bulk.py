"""Who takes part in many iterations at once, as `RandomFraction.present` says for each.

A generator of NumPy's per iteration costs more than a whole iteration of a method with small
steps, of which the paper's rule of equal time asks for millions. So its way to draw is written out
here: `SeedSequence`, `PCG64` and Floyd's choice without replacement, to the same numbers
(`tests/papers/test_parties_by_iteration.py`).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.array_types import Ints
from weft.solvers.participation import RandomFraction

#: NumPy shuffles beyond this, and chooses as below up to it.
_MOST_PARTIES = 10_000
_WORD = 2**32

_A, _A_STEP = np.uint32(0x43B0D7E5), np.uint32(0x931E8875)
_B, _B_STEP = np.uint32(0x8B51F9DD), np.uint32(0x58F38DED)
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)
_STEP_HIGH, _STEP_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_LOW_WORD, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def drawn_at_once(participation: object, iterations: range) -> Ints | None:
    """Per iteration, the places of those who are present; None: ask for each iteration."""
    if not isinstance(participation, RandomFraction):
        return None
    parties, seed = len(participation.parties), participation.seed
    if parties > _MOST_PARTIES or not 0 <= seed < _WORD or iterations.stop > _WORD:
        return None
    found = np.empty((len(iterations), len(participation.present(1))), np.int64)
    _draw(np.uint32(seed), np.uint32(0x9A47), iterations.start, parties, found)
    return found


@numba.njit(cache=True)
def _draw(seed: Any, purpose: Any, first: int, parties: int, found: Any) -> None:
    count = found.shape[1]
    state = np.empty(4, np.uint64)
    pool = np.empty(4, np.uint32)
    chosen = np.zeros(parties, np.bool_)
    for n in range(found.shape[0]):
        pool[0], pool[1], pool[2], pool[3] = seed, purpose, np.uint32(first + n), np.uint32(0)
        _mix(pool)
        _seed(pool, state)
        spare, waiting = np.uint64(0), False
        for last in range(parties - count, parties):
            place = np.int64(0)
            if last > 0:
                choices = np.uint64(last + 1)
                while True:
                    if waiting:
                        word, waiting = spare, False
                    else:
                        drawn = _next(state)
                        word, spare, waiting = drawn & _LOW_WORD, drawn >> _32, True
                    product = word * choices
                    threshold = np.int64((_LOW_WORD - np.uint64(last)) % choices)
                    if np.int64(product & _LOW_WORD) >= threshold:
                        break
                place = np.int64(product >> _32)
            chosen[last if chosen[place] else place] = True
        listed = 0
        for k in range(parties):
            if chosen[k]:
                found[n, listed] = k
                listed += 1
                chosen[k] = False


@numba.njit(cache=True)
def _mix(pool: Any) -> None:
    """`SeedSequence`: entropy of at most four words spread over its pool."""
    constant = _A
    for i in range(4):
        constant, pool[i] = _hashed(pool[i], constant)
    for source in range(4):
        for target in range(4):
            if source != target:
                constant, hashed = _hashed(pool[source], constant)
                mixed = np.uint32(np.uint32(_LEFT * pool[target]) - np.uint32(_RIGHT * hashed))
                pool[target] = mixed ^ (mixed >> _HALF)


@numba.njit(cache=True)
def _hashed(value: Any, constant: Any) -> tuple[Any, Any]:
    value = np.uint32(value ^ constant)
    constant = np.uint32(constant * _A_STEP)
    value = np.uint32(value * constant)
    return constant, np.uint32(value ^ (value >> _HALF))


@numba.njit(cache=True)
def _seed(pool: Any, state: Any) -> None:
    """`PCG64`: the state (high, low) and the increment (high, low) from the pool."""
    constant = _B
    for i in range(4):
        pair = np.uint64(0)
        for half in range(2):
            value = np.uint32(pool[(2 * i + half) % 4] ^ constant)
            constant = np.uint32(constant * _B_STEP)
            value = np.uint32(value * constant)
            value = np.uint32(value ^ (value >> _HALF))
            pair |= np.uint64(value) << np.uint64(32 * half)
        state[i] = pair
    high, low = state[0], state[1]
    state[2] = (state[2] << np.uint64(1)) | (state[3] >> np.uint64(63))
    state[3] = (state[3] << np.uint64(1)) | np.uint64(1)
    # A step from zero leads to the increment.
    state[0], state[1] = _sum(state[2], state[3], high, low)
    _advance(state)


@numba.njit(cache=True)
def _next(state: Any) -> Any:
    _advance(state)
    value, turn = state[0] ^ state[1], state[0] >> np.uint64(58)
    back = (np.uint64(64) - turn) & np.uint64(63)
    return (value >> turn) | (value << back)


@numba.njit(cache=True)
def _advance(state: Any) -> None:
    """One step of the generator: times a constant, plus the increment, in 128 bits."""
    high, low = state[0], state[1]
    a, b = low >> _32, low & _LOW_WORD
    c, d = _STEP_LOW >> _32, _STEP_LOW & _LOW_WORD
    middle = a * d + ((b * d) >> _32)
    carried = b * c + (middle & _LOW_WORD)
    upper = a * c + (middle >> _32) + (carried >> _32)
    upper += high * _STEP_LOW + low * _STEP_HIGH
    state[0], state[1] = _sum(upper, low * _STEP_LOW, state[2], state[3])


@numba.njit(cache=True)
def _sum(high: Any, low: Any, high_added: Any, low_added: Any) -> tuple[Any, Any]:
    total = low + low_added
    carry = np.uint64(1) if total < low else np.uint64(0)
    return high + high_added + carry, total
