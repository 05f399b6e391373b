"""Tags: as a slow judge computes them, and what they let pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_streams import KEY, LABELS, RELAXED, SIZES, Slow, places, single

from covering import examples
from weft.crypto.ciphers.block_format import Carried
from weft.crypto.identities import Secret
from weft.crypto.pads.slot_tags import Tags
from weft.crypto.primitives.prime_field import PRIME, add_modulo, in_field, multiply

SIGN = 1 << 63


def make(sizes, seed=0):
    seeds = np.random.default_rng(seed).integers(0, 256, (len(sizes), 16), np.uint8)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Tags(Secret(KEY), seeds, start), Slow(KEY, [row.tobytes() for row in seeds])


def judged(slow, cohort, place, kind, values, signed):
    """A tag, with pads of signed ids under it."""
    total = sum(
        slow.block(cohort, 0, 254 << 56 | j)[0] * int(v) for j, v in enumerate(values.tolist())
    )
    for pad_id, sign in signed:
        total += sign * slow.block(cohort, pad_id, (kind + 128) << 56 | place >> 1)[place & 1]
    return total % PRIME


@given(st.integers(0, PRIME - 1), st.integers(0, PRIME - 1), st.integers(-(2**63), 2**63 - 1))
def test_arithmetic_is_that_of_the_prime(a, b, value):
    assert int(multiply(np.uint64(a), np.uint64(b))) == a * b % PRIME
    assert int(in_field(np.int64(value))) == value % PRIME
    total = np.array([a], np.uint64)
    add_modulo(total, np.array([0, 0]), np.array([b, 2**64 - 1], np.uint64))
    assert int(total[0]) == (a + b + 2**64 - 1) % PRIME


@examples(40, **RELAXED)
@given(st.data())
def test_tags_are_those_of_the_judge_and_fit(data):
    sizes, width = data.draw(SIZES), data.draw(st.integers(1, 3))
    kind = data.draw(st.integers(1, 4))
    tags, slow = make(sizes, data.draw(st.integers(0, 99)))
    label, every = data.draw(st.integers(1 << 20, (1 << 63) - 1)), places(sizes)
    minus = np.array([data.draw(st.sampled_from([0, 7, 9])) for _ in sizes], np.uint64)
    tails = np.array([data.draw(st.sampled_from([0, 5])) for _ in every], np.uint64)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = random.integers(-(2**49), 2**49, (len(every), width))
    made = tags.make(kind, None, values, label, minus, tails)
    lists = []
    for slot, (cohort, place) in enumerate(every):
        before = int(minus[cohort]) or int(tails[slot])
        under = [(label, 1)] + ([(before, -1)] if before else [])
        lists.append(under)
        assert int(made[slot]) == judged(slow, cohort, place, kind, values[slot], under)
    carried = Carried(
        np.ones(len(every), np.uint32),
        np.array([len(under) for under in lists], np.uint32),
        np.array([n | SIGN if s < 0 else n for under in lists for n, s in under], np.uint64),
    )
    assert tags.fit(kind, None, values, carried, made)
    changed = values.copy()
    changed[random.integers(len(every)), random.integers(width)] += 1
    assert not tags.fit(kind, None, changed, carried, made)


@examples(20, **RELAXED)
@given(SIZES, LABELS, st.data())
def test_sums_and_subsets_of_tags_fit_sums_and_subsets_of_values(sizes, label, data):
    tags, _ = make(sizes)
    every = len(places(sizes))
    one, other = np.random.default_rng(1).integers(-(2**40), 2**40, (2, every, 2))
    total = tags.make(1, None, one, label)
    # The second one puts nothing on: its pad is taken off again, as a chain does.
    more = tags.make(1, None, other, label)
    pads = tags.make(1, None, np.zeros_like(one), label)
    add_modulo(total, np.arange(every), (more + np.uint64(PRIME) - pads) % np.uint64(PRIME))
    some = np.array(sorted(data.draw(st.sets(st.integers(0, every - 1), min_size=1))), np.int32)
    carried = single([label] * len(some))
    assert tags.fit(1, some, (one + other)[some], carried, total[some])
    assert not tags.fit(2, some, (one + other)[some], carried, total[some])
    assert not tags.fit(1, some, one[some], carried, total[some])


def test_no_change_of_value_and_tag_passes_that_is_not_the_factors():
    """The change that fits a change of 1 is the factor itself: 61 bits that nobody knows."""
    tags, slow = make([1] * 64)
    values = np.zeros((64, 1), np.int64)
    made = tags.make(1, None, values, 1 << 20)
    factors = np.array([slow.block(c, 0, 254 << 56)[0] % PRIME for c in range(64)], np.uint64)
    assert len(np.unique(factors)) == 64
    assert int(factors.max()) > 1 << 60
    one = (made + factors) % np.uint64(PRIME)
    labels = single([1 << 20] * 64)
    assert tags.fit(1, None, values + 1, labels, one)
    for bit in range(61):
        off = (one + (np.uint64(1) << np.uint64(bit))) % np.uint64(PRIME)
        assert not tags.fit(1, None, values + 1, labels, off)


@pytest.mark.parametrize("lengths", [[], [1], [3], [1, 2**32 - 1]])
def test_runs_that_do_not_cover_the_slots_do_not_fit(lengths):
    tags, _ = make([2])
    values = np.zeros((2, 1), np.int64)
    made = tags.make(1, None, values, 1 << 20)
    carried = Carried(np.array(lengths, np.uint32), None, np.full(len(lengths), 1 << 20, np.uint64))
    # Longer runs are refused where the words are opened.
    assert tags.fit(1, None, values, carried, made) == (sum(lengths) >= 2)
