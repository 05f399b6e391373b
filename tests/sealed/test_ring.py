"""Arithmetic on shares is exact: against whole numbers of Python."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from covering import examples
from weft.crypto.primitives.seeded_words import seeded_words
from weft.errors import ProtocolError
from weft.solvers.secret_sharing.curvature_series import CURVATURES
from weft.solvers.secret_sharing.digit_widths import (
    Widths,
    alarm_bits,
    loss_digits,
)
from weft.solvers.secret_sharing.masked_sine_kernels import (
    MOST_ROUNDED,
    SINE_ERROR,
    add_cosines,
    add_waves,
    less_dealt,
    sine_cosine,
)
from weft.solvers.secret_sharing.sample_weight_digit_widths import Weighing
from weft.solvers.secret_sharing.second_moment_digits_and_errors import bend_digits
from weft.solvers.secret_sharing.share_arithmetic import DealtShares, cut_scores, cut_vector, noise
from weft.solvers.secret_sharing.sine_series import LOSS_TERMS, SCORE_BITS, SERIES
from weft.solvers.secret_sharing.table_product_kernels import (
    add_products,
    encoded,
    transposed_products,
)
from weft.solvers.secret_sharing.wide_ring import (
    gathered,
    inner,
    minus,
    numbers_of,
    plus,
    shifted_down,
    spread,
    times,
    wide_of,
    widened,
)

RING, WIDE = 1 << 64, 1 << 128
numbers = st.lists(st.integers(0, WIDE - 1), min_size=3, max_size=3)


def words(seed, *shape):
    return seeded_words(bytes([seed]) * 32, "test", *shape)


@given(a=numbers, b=numbers)
@examples(60, deadline=None)
def test_numbers_modulo_two_to_the_128_add_and_multiply_as_whole_numbers_do(a, b):
    x, y, pairs = wide_of(a), wide_of(b), list(zip(a, b, strict=True))

    def whole(wide):
        return [number % WIDE for number in numbers_of(wide)]

    assert whole(plus(x, y)) == [(p + q) % WIDE for p, q in pairs]
    assert whole(minus(x, y)) == [(p - q) % WIDE for p, q in pairs]
    assert whole(times(x, y)) == [p * q % WIDE for p, q in pairs]
    assert whole(inner(x, y)) == [sum(p * q for p, q in pairs) % WIDE]
    assert shifted_down(x, 62).tolist() == [(p >> 62) % RING for p in a]
    assert numbers_of(gathered(spread(x) + spread(y))) == numbers_of(plus(x, y))


@pytest.mark.parametrize("columns", [4, 50])
@pytest.mark.parametrize("kind", [np.uint64, np.int32])
def test_products_of_tables_are_those_of_whole_numbers(kind, columns):
    table = words(1, 5, columns).astype(kind)
    vectors, rows = words(2, 2, columns), np.array([3, 0, 6, 1, 2])
    out = np.zeros((2, 7), np.uint64)
    add_products(table, vectors, rows, out)
    exact = table.astype(object) @ vectors.astype(object).T
    assert [[int(n) for n in row] for row in out[:, rows].T] == (exact % RING).tolist()
    back = transposed_products(table, out, rows)
    exact = table.astype(object).T @ out[:, rows].astype(object).T
    assert [[int(n) for n in row] for row in back.T] == (exact % RING).tolist()


def split(values, parties, seed):
    """Shares of numbers modulo 2^128."""
    parts = [words(seed + k, *values.shape) for k in range(parties - 1)]
    rest = values
    for part in parts:
        rest = minus(rest, part)
    return [*parts, rest]


@given(st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=8), st.integers(1, 9))
@examples(60, deadline=None)
def test_a_vector_is_cut_by_a_dealt_mask_with_an_error_of_one_unit_at_most(values, cut):
    mask = words(7, 1, len(values))
    opened = mask + np.array([values], np.int64).view(np.uint64)
    low = split(widened((mask & np.uint64(2**63 - 1)) >> np.uint64(cut)), 3, 11)
    top = split(widened(mask >> np.uint64(63)), 3, 21)
    shares = [
        cut_vector(opened, np.arange(1), pair, cut).share(party == 0)
        for party, pair in enumerate(zip(low, top, strict=True))
    ]
    found = numbers_of(plus(plus(shares[0], shares[1]), shares[2]))
    assert all(0 <= n - (value >> cut) <= 1 for n, value in zip(found, values, strict=True))


@given(st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=8))
@examples(40, deadline=None)
def test_scores_are_cut_with_an_error_of_one_unit_at_most(values):
    digits, mask = 14, words(5, len(values))
    opened = mask + np.array(values, np.int64).view(np.uint64)
    low, top = (mask & np.uint64(2**63 - 1)) >> np.uint64(digits), mask >> np.uint64(63)
    other = words(6, len(values)), words(8, len(values))
    total = cut_scores(opened, (low - other[0], top - other[1]), digits, True)
    total = total + cut_scores(opened, other, digits, False)
    assert all(
        0 <= n - (v >> digits) <= 1
        for n, v in zip(total.view(np.int64).tolist(), values, strict=True)
    )


@pytest.mark.parametrize("series", SERIES, ids=lambda s: f"{s.reach:g}")
def test_slopes_and_losses_on_shares_are_those_of_the_logistic_loss(series):
    scores = np.linspace(-series.reach, series.reach, 401)
    masks = words(3, len(scores))
    opened = encoded(scores, SCORE_BITS) + masks
    first = words(4, 2 * series.terms * len(scores))
    second = first.copy()
    less_dealt(masks, series.words, 2.0**24, np.uint64(9), second)
    odd, even = series.odd * 2.0**24, series.even * 2.0**20
    odds, evens, again = np.zeros((3, len(scores)), np.uint64)
    for share in (first, second):
        add_waves(opened, series.words, odd, even, np.uint64(1), share, odds, evens)
        add_cosines(opened, series.words, even, np.uint64(1), share, again)
    slopes = odds.view(np.int64) * 2.0**-48
    assert np.abs(slopes - 0.5 * np.tanh(scores / 2)).max() < series.slope_error + 1e-5
    losses = np.logaddexp(scores / 2, -scores / 2)
    found = evens.view(np.int64) * 2.0**-44 + series.level
    assert abs(found.mean() - losses.mean()) < series.loss_error + 1e-5
    assert np.array_equal(again, evens)
    assert series.slope_error < 3e-6
    assert series.loss_error < 7e-6


def test_sines_and_cosines_are_as_exact_as_they_say():
    phases = np.concatenate([words(1, 20_000), np.arange(65, dtype=np.uint64) << np.uint64(58)])
    found = np.array([sine_cosine(phase) for phase in phases]).T
    angles = phases.view(np.int64) * (2 * np.pi / 2.0**64)
    assert np.abs(found - [np.sin(angles), np.cos(angles)]).max() < SINE_ERROR


def test_dithered_factors_are_right_on_average_and_never_off_by_a_unit():
    """One wave of the same phase many times: what is rounded shows against dealt ones of 1 or 0."""
    count, phase = 40_000, words(2, 1)[0]
    opened, one = np.full(count, phase), np.ones(1, np.uint64)
    dealt = np.repeat(np.array([1, 0], np.uint64), count)
    odds, evens = np.zeros((2, count), np.uint64)
    add_waves(opened, one, np.array([1e3]), np.array([77.7]), np.uint64(3), dealt, odds, evens)
    s, c = sine_cosine(phase)
    for rounded, exact in ((odds, 1e3 * s), (evens, 77.7 * c)):
        off = rounded.view(np.int64) - exact
        assert np.abs(off).max() < 1
        assert abs(off.mean()) < 5 * 0.5 / np.sqrt(count)
    moved = np.corrcoef(odds.view(np.int64), evens.view(np.int64))[0, 1]
    assert abs(moved) < 5 / np.sqrt(count)


@pytest.mark.parametrize("series", SERIES, ids=lambda s: f"{s.reach:g}")
def test_no_factor_is_too_large_to_be_rounded(series):
    for rows in (2, 100, 10_000, 1_000_000, 10**9):
        digits = loss_digits(rows, series)
        slow, fast = series.even[:LOSS_TERMS], series.even[LOSS_TERMS:]
        sizes = [np.abs(slow) * 2.0 ** (digits.total - digits.dealt), 2.0 ** alarm_bits(rows)[1]]
        for slope in range(16, 37):
            widths = Widths(slope, 1)
            sizes += [series.odd * 2.0 ** widths.public(series)]
            sizes += [np.abs(fast) * 2.0 ** (digits.total - widths.dealt(series))]
            sizes += [2.0 ** widths.dealt(series)]
        digits = Weighing(1.0).products(series)
        sizes += [series.odd * 2.0 ** (digits.slope - digits.dealt)]
        sizes += [np.abs(fast) * 2.0 ** (digits.loss - digits.dealt)]
        sizes += [np.abs(slow) * 2.0 ** (digits.loss - digits.slow)]
        bends = CURVATURES[SERIES.index(series)]
        for factors, weighing in product(
            (bends.factors, bends.slope_factors), (None, Weighing(1.0))
        ):
            sizes += [factors * 2.0 ** bend_digits(bends, weighing).public]
        assert max(np.max(size) for size in sizes) < MOST_ROUNDED


def test_curvatures_are_off_by_no_more_than_is_said():
    for series in CURVATURES:
        scores = np.linspace(-series.reach, series.reach, 3001)
        off = np.abs(series.at(scores) - expit(scores) * expit(-scores)).max()
        assert off <= series.error < 3e-10
        off = np.abs(series.slope_at(scores) - (expit(scores) - 0.5)).max()
        assert off <= series.slope_error < 3e-10


def test_noise_is_even_in_its_whole_range_and_another_for_every_label():
    drawn = numbers_of(noise(b"x" * 32, "1", [70] * 4000))
    assert max(map(abs, drawn)) <= 2**69
    assert abs(np.mean([n / 2**69 for n in drawn])) < 0.05
    assert len({n % 16 for n in drawn}) == 16
    assert drawn[:9] != numbers_of(noise(b"x" * 32, "2", [70] * 9))


def test_a_party_takes_all_words_that_were_dealt_and_no_others():
    """Else a share would be of other numbers than the dealer's, or of fewer rows."""
    dealt = DealtShares(b"", np.arange(9, dtype=np.uint64), last=True)
    assert dealt.take("mask", 2, 2).tolist() == [[0, 1], [2, 3]]
    assert [part.tolist() for part in dealt.blocks("waves", [1, 2])] == [[4], [5, 6]]
    with pytest.raises(ProtocolError, match="sent more words than it should"):
        dealt.end()
    with pytest.raises(ProtocolError, match="sent fewer words than it should"):
        dealt.take("mask", 3)
    assert dealt.take("mask", 2).tolist() == [7, 8]
    dealt.end()
    for most in (1, 3):
        with pytest.raises(ProtocolError, match="sent fewer words than it should"):
            list(dealt.blocks("waves", [most]))
    # Others draw theirs, as many as they need.
    own = DealtShares(bytes(32), None, last=False)
    assert own.take("mask", 2, 3).shape == (2, 3)
    own.end()
    for sent, last in ((np.zeros(1, np.uint64), False), (None, True)):
        with pytest.raises(ProtocolError, match="a share to a party that draws its own, or none"):
            DealtShares(bytes(32), sent, last)
