"""Numbers modulo 2^144 in limbs: exactly what Python's whole numbers give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from covering import examples
from weft.crypto.primitives.scalars_modulo_2_144 import (
    FRACTION,
    carried,
    floats_of,
    number_bytes,
    packed,
    unpacked,
    whole_number,
)
from weft.protocol.declared_message_fields import SCALAR_BYTES

#: Other work on the same machine is no failure.
patient = settings(deadline=None)

MODULUS = 1 << (8 * SCALAR_BYTES)
WITHIN = np.nextafter(2.0**63, 0.0)

numbers = st.floats(-WITHIN, WITHIN) | st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 2.0**-80, -(2.0**-80), 2.0**16, -(2.0**-32), WITHIN, -WITHIN, 5e-324]
)
#: Small enough that a few thousand of them stay within the range.
small = st.floats(-(2.0**46), 2.0**46)
whole = st.integers(0, MODULUS - 1)


def fixed(value: float) -> int:
    """value · 2^80, cut off towards zero."""
    return int(Fraction(value) * 2**FRACTION)


def integers_of(limbs: np.ndarray) -> list[int]:
    """What limbs stand for, whether they are carried or not."""
    return [((int(a) << 96) + (int(b) << 48) + int(c)) % MODULUS for a, b, c in limbs.tolist()]


def limbs(values: list[int]) -> np.ndarray:
    return unpacked(b"".join(v.to_bytes(SCALAR_BYTES, "big") for v in values))


def told(values: list[float]) -> np.ndarray:
    """Numbers as a party sends them and the coordinator reads them."""
    return unpacked(b"".join(number_bytes(whole_number(v)) for v in values))


@patient
@given(st.lists(numbers, min_size=1, max_size=20))
def test_numbers_hold_eighty_binary_digits_behind_the_point_exactly(values: list[float]) -> None:
    found = told(values)
    assert integers_of(found) == [fixed(v) % MODULUS for v in values]
    assert ((found >= 0) & (found < 1 << 48)).all()


@patient
@given(st.lists(numbers, min_size=1, max_size=20))
def test_a_number_comes_back_rounded_once(values: list[float]) -> None:
    assert floats_of(told(values)) == [float(Fraction(fixed(v), 2**FRACTION)) for v in values]


@patient
@given(st.lists(whole, max_size=20))
def test_bytes_are_those_of_the_whole_number(values: list[int]) -> None:
    data = b"".join(v.to_bytes(SCALAR_BYTES, "big") for v in values)
    found = unpacked(data)
    assert integers_of(found) == values
    assert packed(found) == data


@patient
@given(
    st.lists(
        st.tuples(*[st.integers(-(1 << 61), 1 << 61)] * 3),
        min_size=1,
        max_size=20,
    )
)
def test_carrying_changes_no_number_also_below_zero(rows: list[tuple[int, int, int]]) -> None:
    loose = np.array(rows, np.int64)
    before = loose.copy()
    tight = carried(loose)
    assert integers_of(tight) == integers_of(loose)
    assert ((tight >= 0) & (tight < 1 << 48)).all()
    assert np.array_equal(loose, before)


@examples(30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8000), st.floats(-60, 46), st.booleans())
def test_thousands_of_terms_add_up_exactly_before_anything_is_carried(
    seed: int, count: int, exponent: float, signed: bool
) -> None:
    random = np.random.default_rng(seed)
    terms = random.random(count) * 2.0**exponent
    if signed:
        terms *= random.choice([-1.0, 1.0], count)
    total = told(terms.tolist()).sum(axis=0, keepdims=True)
    expected = sum(fixed(v) for v in terms.tolist())
    assert integers_of(total) == [expected % MODULUS]
    assert floats_of(total) == [float(Fraction(expected, 2**FRACTION))]


@patient
@given(st.lists(small, min_size=1, max_size=12), st.data())
def test_masks_that_wrap_around_cancel_in_the_sum(values: list[float], data: st.DataObject) -> None:
    """Every neighbour adds a mask that the next takes off, modulo 2^144."""
    count = len(values)
    masks = limbs(data.draw(st.lists(whole, min_size=count, max_size=count)))
    shares = told(values) + masks - np.roll(masks, 1, axis=0)
    crossed = unpacked(packed(carried(shares)))
    total = np.zeros((1, 3), np.int64)
    for share in crossed:
        total = carried(total + share)
    expected = sum(map(fixed, values))
    assert floats_of(total) == [float(Fraction(expected, 2**FRACTION))]


@patient
@given(whole)
def test_the_upper_half_of_the_range_is_below_zero(value: int) -> None:
    signed = value - MODULUS if value >= MODULUS // 2 else value
    assert floats_of(limbs([value])) == [float(Fraction(signed, 2**FRACTION))]
