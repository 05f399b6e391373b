"""Grey relational analysis: by hand, and what holds for any runs; the front, by brute force."""

from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from covering import examples
from weft.errors import ConfigError, DataError
from weft_evaluation.tuning.grey_relational import grey_relational_analysis, pareto_front

#: Three runs: seconds (less is better), accuracy (more is better), and what all agree on.
VALUES = [[1.0, 0.80, 7.0], [2.0, 0.90, 7.0], [5.0, 0.95, 7.0]]
BETTER = [False, True, False]


def by_hand(xi):
    """F: seconds (5 − s)/4, accuracy (a − 0.8)/0.15, then Δ = 1 − F with Δmin = 0, Δmax = 1."""
    normalised = [[F(1), F(0), F(1)], [F(3, 4), F(2, 3), F(1)], [F(0), F(1), F(1)]]
    distance = [[F(0), F(1), F(0)], [F(1, 4), F(1, 3), F(0)], [F(1), F(0), F(0)]]
    coefficients = [[xi / (d + xi) for d in row] for row in distance]
    return normalised, coefficients, [sum(row) / 3 for row in coefficients]


@pytest.mark.parametrize("xi", [F(1), F(1, 2)])
def test_three_runs_by_hand(xi):
    found = grey_relational_analysis(VALUES, BETTER, distinguishing=float(xi))
    normalised, coefficients, grades = by_hand(xi)
    np.testing.assert_allclose(found.normalised, np.array(normalised, float), atol=1e-15)
    np.testing.assert_allclose(found.coefficients, np.array(coefficients, float))
    np.testing.assert_allclose(found.grades, np.array(grades, float))


def test_the_figures_of_the_worked_example():
    """ξ = 1: (1 + 1/2 + 1)/3, (4/5 + 3/4 + 1)/3, (1/2 + 1 + 1)/3; ξ = 1/2 turns the order."""
    assert by_hand(F(1))[2] == [F(5, 6), F(17, 20), F(5, 6)]
    assert by_hand(F(1, 2))[2] == [F(7, 9), F(34, 45), F(7, 9)]
    assert grey_relational_analysis(VALUES, BETTER).best == 1
    half = grey_relational_analysis(VALUES, BETTER, distinguishing=0.5)
    assert half.order.tolist() == [0, 2, 1]
    # Nine tenths of the weight on accuracy: 9/10 · 3/4 + 1/10 · 4/5 is below 9/10 + 1/10 · 1/2.
    weighted = grey_relational_analysis(VALUES, BETTER, weights=[1, 9, 0])
    np.testing.assert_allclose(weighted.grades, [11 / 20, 151 / 200, 19 / 20])


def test_one_run_and_runs_that_are_all_the_same_are_perfect():
    assert grey_relational_analysis([[3.0, -1.0]], [True, False]).grades.tolist() == [1.0]
    same = grey_relational_analysis([[2.0, 5.0]] * 3, [True, False])
    assert same.grades.tolist() == [1.0, 1.0, 1.0]
    assert same.best == 0


@pytest.mark.parametrize(
    ("values", "more", "words"),
    [
        ([[1.0, np.nan], [1.0, 2.0]], {}, "run 0 .* diverged"),
        ([[1.0, 2.0], [1.0, np.inf]], {}, "run 1 .* diverged"),
        ([], {}, "at least one run"),
        ([[1.0, 2.0, 3.0]], {}, "3 metrics, but 2 directions"),
        ([[1.0, 2.0]], {"distinguishing": 0.0}, "distinguishing coefficient is 0"),
        ([[1.0, 2.0]], {"distinguishing": 1.5}, "distinguishing coefficient is 1.5"),
        ([[1.0, 2.0]], {"weights": [1.0, -1.0]}, "at least 0"),
        ([[1.0, 2.0]], {"weights": [0.0, 0.0]}, "not all of them 0"),
        ([[1.0, 2.0]], {"weights": [1.0]}, "weights of 2 metrics"),
    ],
)
def test_what_cannot_be_graded_is_refused_with_a_sentence(values, more, words):
    with pytest.raises((DataError, ConfigError), match=words):
        grey_relational_analysis(values, [True, False], **more)


# Few different values make ties, which random floats never have.
NUMBERS = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-1e6, 1e6, allow_subnormal=False).map(np.float64)
)


@st.composite
def tables(draw, numbers=NUMBERS):
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 4)))
    values = draw(arrays(float, shape, elements=numbers))
    better = draw(st.lists(st.booleans(), min_size=shape[1], max_size=shape[1]))
    return values, better


coefficient = st.floats(0.05, 1.0)
quick = examples(40, deadline=None)


@quick
@given(tables(), coefficient, st.randoms(use_true_random=False))
def test_grades_lie_above_zero_and_do_not_depend_on_the_order(table, xi, random):
    values, better = table
    found = grey_relational_analysis(values, better, distinguishing=xi).grades
    assert ((found > 0) & (found <= 1)).all()
    order = list(range(len(values)))
    random.shuffle(order)
    again = grey_relational_analysis(values[order], better, distinguishing=xi).grades
    np.testing.assert_allclose(again, found[order])


@quick
@given(
    tables(st.integers(-1000, 1000).map(float)),
    coefficient,
    st.integers(-50, 50),
    st.sampled_from([0.001, 0.5, 3.0, 1e6]),
)
def test_grades_do_not_depend_on_the_units_of_a_metric(table, xi, shift, factor):
    values, better = table
    found = grey_relational_analysis(values, better, distinguishing=xi)
    moved = values.copy()
    moved[:, 0] = factor * values[:, 0] + shift
    again = grey_relational_analysis(moved, better, distinguishing=xi)
    np.testing.assert_allclose(again.grades, found.grades, rtol=1e-8)
    # And what is less for one is more for its negative.
    turned = values.copy()
    turned[:, 0] *= -1
    better = [not better[0], *better[1:]]
    np.testing.assert_allclose(
        grey_relational_analysis(turned, better, distinguishing=xi).grades, found.grades
    )


def beats(a, b, better):
    """Whether a is nowhere worse than b, and somewhere better."""
    pairs = [(x, y) if more else (y, x) for x, y, more in zip(a, b, better, strict=True)]
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)


@quick
@given(tables(), coefficient)
def test_who_is_beaten_has_no_better_grade(table, xi):
    values, better = table
    grades = grey_relational_analysis(values, better, distinguishing=xi).grades
    pairs = [(i, j) for i in range(len(values)) for j in range(len(values))]
    beaten = [(i, j) for i, j in pairs if beats(values[i], values[j], better)]
    assume(beaten)
    assert all(grades[i] >= grades[j] - 1e-12 for i, j in beaten)


@quick
@given(tables())
def test_the_front_is_whom_nobody_beats(table):
    values, better = table
    expected = [not any(beats(other, run, better) for other in values) for run in values]
    assert pareto_front(values, better).tolist() == expected


def test_equal_runs_share_the_front_and_the_infinite_is_compared():
    values = [[1.0, 1.0], [1.0, 1.0], [np.inf, 1.0], [0.5, np.inf]]
    assert pareto_front(values, [False, False]).tolist() == [True, True, False, True]
    assert pareto_front(np.zeros((0, 2)), [True, True]).tolist() == []
    with pytest.raises(DataError, match="nan"):
        pareto_front([[np.nan]], [True])
