"""What every loss promises, checked on all of them in one way."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma, nbinom, poisson

from covering import changing
from weft.errors import ConfigError
from weft.losses import LOSSES, Loss, Squared, get_loss, register_loss
from weft.losses.classification import Hinge, Logistic, SmoothedHinge
from weft.losses.external_loss_check import check_loss

Array = npt.NDArray[np.float64]

#: Of one class or response; that of all classes at once is in `test_softmax.py`.
VARIANTS = [loss for loss in map(get_loss, LOSSES) if loss.bounded and not loss.joint] + [
    get_loss("smoothed_hinge", g=0.01),
    get_loss("smoothed_hinge", g=3.0),
    get_loss("epsilon_insensitive", epsilon=2.0),
    get_loss("huber", g=0.05),
]
#: Of counts and amounts, with slopes and curvatures that have no bound.
LOG_LINKED = [
    get_loss("poisson"),
    get_loss("gamma"),
    *(get_loss("tweedie", power=power) for power in (1.1, 1.5, 1.9)),
    *(get_loss("negative_binomial", dispersion=dispersion) for dispersion in (0.1, 1.0, 5.0)),
]
every_loss = pytest.mark.parametrize("loss", VARIANTS, ids=repr)
smooth_losses = pytest.mark.parametrize(
    "loss", [loss for loss in VARIANTS if np.isfinite(loss.smoothness)], ids=repr
)

# (z, place of the label, place of α in the domain, q), turned into a problem by `problem`.
UNIT = st.floats(-1.0, 1.0)
Z = st.floats(-50.0, 50.0) | st.sampled_from([0.0, 1.0, -1.0])
Q = st.just(0.0) | st.floats(-6.0, 6.0).map(lambda exponent: 10.0**exponent)
ROWS = st.lists(st.tuples(Z, UNIT, UNIT, Q), min_size=1, max_size=5)
Rows = list[tuple[float, float, float, float]]


def many_rows() -> Rows:
    """As Hypothesis draws them, at once: the ends and the middle of every range, and numbers."""
    rng = np.random.default_rng(11)
    ends = product([-50.0, -1.0, 0.0, 1.0, 50.0], [-1.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 1e-6, 1e6])
    drawn = np.column_stack(
        [rng.uniform(-50.0, 50.0, 60), rng.uniform(-1.0, 1.0, (60, 2)), np.zeros(60)]
    )
    drawn[::2, 0] /= 20.0
    drawn[6:, 3] = 10.0 ** rng.uniform(-6.0, 6.0, 54)
    return [*ends, *(tuple(row) for row in drawn.tolist())]


def any_rows(
    ends: tuple[float, ...] = (-2.9, 1.3), **numbers: st.SearchStrategy[float]
) -> Callable[[Any], Any]:
    """Problems, and numbers beside them: Hypothesis draws them before a release and looks for the
    smallest that fails; with every change, these are many problems in two calls."""
    if changing():
        values = [(many_rows(), *(end for _ in numbers)) for end in ends]
        return pytest.mark.parametrize(("rows", *numbers), values if numbers else values[:1])
    drawn = given(rows=ROWS, **numbers)
    return lambda test: settings(max_examples=20, deadline=None)(drawn(test))


# Where a domain has no end, the tests look this far: beyond every argmax of the problems drawn.
FAR = 100.0


def labels(loss: Loss, place: Array) -> Array:
    return np.where(place < 0, -1.0, 1.0) if loss.task == "classification" else 5 * place


def domain(loss: Loss, y: Array) -> tuple[Array, Array]:
    end = np.full_like(y, min(loss.lipschitz, FAR))
    if loss.task == "regression":
        return -end, end
    return np.minimum(y * end, 0.0), np.maximum(y * end, 0.0)


def problem(loss: Loss, rows: Rows) -> tuple[Array, Array, Array, Array]:
    z, label_place, alpha_place, q = np.array(rows).T
    y = labels(loss, label_place)
    low, high = domain(loss, y)
    return z, y, np.clip(low + (high - low) * (alpha_place + 1) / 2, low, high), q


def maximum_of_concave(f: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The largest value over [low, high], by a grid and then by thirds around its best point."""
    grid = np.linspace(low, high, 101)
    values = np.array([f(point) for point in grid])
    best = values.argmax(axis=0)
    rows = np.arange(low.size)
    low, high = grid[np.maximum(best - 1, 0), rows], grid[np.minimum(best + 1, 100), rows]
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        rising = f(left) < f(right)
        low, high = np.where(rising, left, low), np.where(rising, high, right)
    return np.maximum(values.max(axis=0), f((low + high) / 2))


@every_loss
@any_rows()
def test_fenchel_young_inequality_holds(loss: Loss, rows: Rows) -> None:
    z, y, a, _ = problem(loss, rows)
    total = loss.value(z, y) + loss.conjugate(a, y)
    assert np.all(total >= -a * z - 1e-12 * (1 + np.abs(a * z) + np.abs(total)))


@every_loss
@any_rows()
def test_fenchel_young_is_an_equality_at_the_subgradient(loss: Loss, rows: Rows) -> None:
    z, y, _, _ = problem(loss, rows)
    a = loss.u(z, y)
    np.testing.assert_allclose(
        loss.value(z, y) + loss.conjugate(a, y) + a * z, 0.0, atol=1e-12 * (1 + FAR**2)
    )


@every_loss
@any_rows()
def test_curvature_is_the_slope_of_the_derivative(loss: Loss, rows: Rows) -> None:
    """Where l' has a kink, one of its sides; where l has one, there is nothing to say."""
    z, y, _, _ = problem(loss, rows)
    found = loss.curvature(z, y)
    assert found.shape == z.shape
    h = 1e-5 * (1 + np.abs(z))
    sides = [-(loss.u(z + s * h, y) - loss.u(z, y)) / (s * h) for s in (-1.0, 1.0)]
    if not np.isfinite(loss.smoothness):
        assert not found.any()
        return
    # Within h of a kink, a difference mixes both sides.
    low, high = np.minimum(*sides), np.maximum(*sides)
    assert np.all((found >= low - 1e-4) & (found <= high + 1e-4))
    assert np.all((found >= 0) & (found <= loss.smoothness * (1 + 1e-12)))


@every_loss
@any_rows()
def test_conjugate_is_the_supremum(loss: Loss, rows: Rows) -> None:
    _, y, a, _ = problem(loss, rows)
    reach = np.full_like(y, 2 * FAR)
    supremum = maximum_of_concave(lambda z: -a * z - loss.value(z, y), -reach, reach)
    np.testing.assert_allclose(loss.conjugate(a, y), supremum, rtol=1e-9, atol=1e-9)


@every_loss
@any_rows()
def test_dual_step_is_the_argmax(loss: Loss, rows: Rows) -> None:
    z, y, alpha, q = problem(loss, rows)

    def objective(a: Array) -> Array:
        # Without the terms that do not depend on a; the quadratic is exact around α.
        return -loss.conjugate(a, y) - z * (a - alpha) - q / 2 * (a - alpha) ** 2

    low, high = domain(loss, y)
    reached = objective(loss.dual_step(alpha, z, y, q))
    best = maximum_of_concave(objective, low, high)
    assert np.all(reached >= best - 1e-11 * (1 + np.abs(best)))


@every_loss
@any_rows()
def test_dual_step_solves_the_optimality_condition(loss: Loss, rows: Rows) -> None:
    # −a is a subgradient of l at z + q(a − α), so a little to either side u must bracket a.
    z, y, alpha, q = problem(loss, rows)
    a = loss.dual_step(alpha, z, y, q)
    moved = z + q * (a - alpha)
    nudge = 1e-9 * (1 + np.abs(z) + q * (1 + np.abs(a) + np.abs(alpha)))
    assert np.all(loss.u(moved + nudge, y) <= a + 1e-9)
    assert np.all(loss.u(moved - nudge, y) >= a - 1e-9)


@every_loss
@any_rows()
def test_dual_step_stays_inside_the_domain(loss: Loss, rows: Rows) -> None:
    z, y, alpha, q = problem(loss, rows)
    for outside in (0.0, 1e-9, -1e-9):
        a = loss.dual_step(alpha + outside, z, y, q)
        np.testing.assert_array_equal(loss.project(a, y), a)


@every_loss
@any_rows(shift=st.floats(-3.0, 3.0))
def test_project_gives_the_nearest_point_of_the_domain(
    loss: Loss, rows: Rows, shift: float
) -> None:
    _, y, inside, _ = problem(loss, rows)
    np.testing.assert_array_equal(loss.project(inside, y), inside)
    point = inside + shift
    nearest = loss.project(point, y)
    assert np.all(np.isfinite(loss.conjugate(nearest, y)))
    assert np.all(np.abs(nearest - point) <= np.abs(inside - point))


@every_loss
def test_conjugate_is_infinite_outside_the_domain_and_forgives_rounding(loss: Loss) -> None:
    y = labels(loss, np.array([-1.0, -0.3, 0.3, 1.0]))
    low, high = domain(loss, y)
    for end, outwards in ((low, -1.0), (high, 1.0)):
        is_an_end = np.abs(end) < FAR
        at_end = loss.conjugate(end, y)
        rounded = loss.conjugate(end + outwards * 1e-10, y)
        assert np.all(np.isfinite(at_end))
        np.testing.assert_array_equal(rounded[is_an_end], at_end[is_an_end])
        assert np.all(np.isinf(loss.conjugate(end + outwards * 1e-6, y)[is_an_end]))
        assert np.all(np.isinf(loss.conjugate(end + outwards * 1e3, y)[is_an_end]))


@every_loss
@any_rows(other=Z)
def test_u_is_minus_a_subgradient(loss: Loss, rows: Rows, other: float) -> None:
    z, y, _, _ = problem(loss, rows)
    there = np.full_like(z, other)
    tangent = loss.value(z, y) - loss.u(z, y) * (there - z)
    assert np.all(loss.value(there, y) >= tangent - 1e-12 * (1 + np.abs(tangent) + FAR**2))


@smooth_losses
@any_rows()
def test_u_is_minus_the_derivative_of_a_smooth_loss(loss: Loss, rows: Rows) -> None:
    z, y, _, _ = problem(loss, rows)
    h = 1e-5
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(-slope, loss.u(z, y), rtol=1e-6, atol=h * loss.smoothness + 1e-6)


@every_loss
@any_rows(other=Z)
def test_lipschitz_and_smoothness_bound_every_pair(loss: Loss, rows: Rows, other: float) -> None:
    z, y, _, _ = problem(loss, rows)
    there = np.full_like(z, other)
    distance = np.abs(there - z) + 1e-12
    if np.isfinite(loss.lipschitz):
        rise = np.abs(loss.value(there, y) - loss.value(z, y))
        assert np.all(rise <= loss.lipschitz * distance + 1e-12 * FAR)
    if np.isfinite(loss.smoothness):
        turn = np.abs(loss.u(there, y) - loss.u(z, y))
        assert np.all(turn <= loss.smoothness * distance + 1e-12 * FAR)


@every_loss
def test_lipschitz_and_smoothness_are_the_smallest_constants(loss: Loss) -> None:
    z = np.linspace(-20.0, 20.0, 40001)
    y = np.ones_like(z)
    steepest = np.abs(np.diff(loss.value(z, y)) / np.diff(z)).max()
    sharpest = np.abs(np.diff(loss.u(z, y)) / np.diff(z)).max()
    # An infinite constant shows as a slope that is large at this spacing of points.
    assert 0.99 * min(loss.lipschitz, 10.0) <= steepest <= 1.000001 * loss.lipschitz
    assert 0.99 * min(loss.smoothness, 200.0) <= sharpest <= 1.000001 * loss.smoothness


@every_loss
def test_extreme_inputs_give_finite_values(loss: Loss) -> None:
    ends = np.array([-1e6, -1e3, -1.0, 0.0, 1e-300, 1.0, 1e3, 1e6])
    curvatures = np.array([0.0, 5e-324, 1e-300, 1e-12, 1.0, 1e6, 1e12])
    places = np.array([-1e-9, 0.0, 1e-17, 0.5, 1.0, 1.0 + 1e-9])
    z, y, q, place = (
        grid.ravel() for grid in np.meshgrid(ends, [-1.0, 1.0], curvatures, places, indexing="ij")
    )
    with np.errstate(all="raise", under="ignore"):
        a = loss.dual_step(y * place, z, y, q)
        results = [a, loss.value(z, y), loss.u(z, y), loss.conjugate(a, y)]
    assert all(np.all(np.isfinite(result)) for result in results)
    np.testing.assert_array_equal(loss.project(a, y), a)
    # So much curvature pins α where it is (α may sit just outside the domain).
    pinned = (q == 1e12) & (np.abs(z) <= 1e3)
    np.testing.assert_allclose(a[pinned], (y * place)[pinned], atol=3e-9)


@every_loss
def test_dual_step_without_curvature_goes_to_the_subgradient(loss: Loss) -> None:
    # At q = 0 the argmax is −l'(z) wherever l has a derivative.
    z = np.array([-7.0, -2.5, 0.3, 0.6, 2.5, 7.0])
    y = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    for alpha in (np.zeros(6), 0.5 * y, y):
        step = loss.dual_step(alpha, z, y, 0.0)
        np.testing.assert_allclose(step, loss.u(z, y), rtol=1e-12, atol=1e-12)


@every_loss
def test_arrays_of_any_shape_broadcast(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    z, alpha = rng.normal(size=(5, 3)), np.zeros((5, 3))
    y = np.where(rng.random((5, 1)) < 0.5, -1.0, 1.0)
    q = rng.random((5, 1))
    step = loss.dual_step(alpha, z, y, q)
    assert step.shape == loss.value(z, y).shape == loss.u(z, y).shape == (5, 3)
    assert loss.conjugate(step, y).shape == loss.project(step, y).shape == (5, 3)
    for column in range(3):
        alone = loss.dual_step(alpha[:, column], z[:, column], y[:, 0], q[:, 0])
        np.testing.assert_array_equal(step[:, column], alone)


@every_loss
def test_a_nan_passes_through_the_dual_step(loss: Loss) -> None:
    one, nan = np.ones(1), np.full(1, np.nan)
    with np.errstate(invalid="ignore"):
        assert np.isnan(loss.dual_step(0.5 * one, nan, one, one))
        assert np.isnan(loss.dual_step(nan, one, one, one))


@any_rows()
def test_squared_step_equals_its_closed_form(rows: Rows) -> None:
    loss = get_loss("squared")
    z, y, alpha, q = problem(loss, rows)
    closed = alpha + (y - z - alpha) / (1 + q)
    np.testing.assert_allclose(loss.dual_step(alpha, z, y, q), closed, rtol=1e-15, atol=1e-15)


@any_rows((0.0, 1.3), epsilon=st.floats(0.0, 3.0))
def test_epsilon_insensitive_step_is_a_clipped_soft_threshold(rows: Rows, epsilon: float) -> None:
    loss = get_loss("epsilon_insensitive", epsilon=epsilon)
    z, y, alpha, q = problem(loss, rows)
    q = q + 1e-3
    s = alpha + (y - z) / q
    soft = np.sign(s) * np.maximum(np.abs(s) - epsilon / q, 0.0)
    np.testing.assert_allclose(
        loss.dual_step(alpha, z, y, q), np.clip(soft, -1.0, 1.0), rtol=1e-9, atol=1e-9
    )


def logistic_root(p_old: float, margin: float, q: float) -> Decimal:
    """p with log(p/(1−p)) + margin + q(p − p_old) = 0, by bisection in 50 digits."""
    with localcontext() as context:
        context.prec = 50
        p0, m, curvature = Decimal(p_old), Decimal(margin), Decimal(q)

        def sigmoid(t: Decimal) -> Decimal:
            if abs(t) > 200:
                return Decimal(t > 0)
            return 1 / (1 + (-t).exp())

        low, high = -m - curvature * (1 - p0) - 1, -m + curvature * p0 + 1
        for _ in range(120):
            middle = (low + high) / 2
            if middle + m + curvature * (sigmoid(middle) - p0) > 0:
                high = middle
            else:
                low = middle
        return sigmoid(low)


def test_logistic_step_is_accurate_to_1e_12() -> None:
    # Half of the draws where Newton has most to do, half from the whole range promised.
    rng = np.random.default_rng(7)
    y = rng.choice([-1.0, 1.0], 160)
    p_old = rng.random(160)
    p_old[::4] = rng.choice([0.0, 1.0, -1e-9, 1 + 1e-9, 1e-12], 40)
    margin = (
        rng.choice([-1.0, 1.0], 160) * 10.0 ** np.r_[rng.uniform(-2, 1, 80), [*range(-1, 7)] * 10]
    )
    q = 10.0 ** np.r_[rng.uniform(-1, 4, 80), rng.uniform(-12, 12, 80)]
    q[-5:] = 0.0
    step = get_loss("logistic").dual_step(y * p_old, y * margin, y, q)
    for p, *draw in zip(
        (y * step).tolist(), p_old.tolist(), margin.tolist(), q.tolist(), strict=True
    ):
        assert abs(Decimal(p) - logistic_root(*draw)) < 1e-14


@every_loss
def test_parameters_and_pickles_build_the_same_loss_again(loss: Loss) -> None:
    assert get_loss(loss.name, **loss.parameters()) == loss
    assert pickle.loads(pickle.dumps(loss)) == loss


def test_parameters_are_named_as_in_configs() -> None:
    assert get_loss("smoothed_hinge", g=0.5).parameters() == {"g": 0.5}
    assert get_loss("huber", g=2).parameters() == {"g": 2.0}
    assert get_loss("epsilon_insensitive", epsilon=0.1).parameters() == {"epsilon": 0.1}
    assert get_loss("absolute").parameters() == get_loss("hinge").parameters() == {}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hing", "hinge"),
        ("Smoothed-Hinge", "smoothed_hinge"),
        ("squaredhinge", "squared_hinge"),
        ("log", "logistic"),
        ("eps_insensitive", "epsilon_insensitive"),
    ],
)
def test_an_unknown_loss_is_refused_with_the_names_and_the_closest(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f'"{typed}".*closest is "{meant}"') as refusal:
        get_loss(typed)
    assert all(name in str(refusal.value) for name in LOSSES)


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'no parameter "eps".*closest is "epsilon"'):
        get_loss("epsilon_insensitive", eps=0.1)
    with pytest.raises(ConfigError, match=r'no parameter "g"; it has none'):
        get_loss("hinge", g=0.1)
    with pytest.raises(ConfigError, match=r'no parameter "epsilon"; it has none'):
        get_loss("absolute", epsilon=0.1)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "0.5", None, True])
@pytest.mark.parametrize("name", ["smoothed_hinge", "huber"])
def test_a_width_that_is_not_above_zero_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f'"g" of loss "{name}"'):
        get_loss(name, g=value)


def test_a_negative_epsilon_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'"epsilon" of loss "epsilon_insensitive" is -0\.1'):
        get_loss("epsilon_insensitive", epsilon=-0.1)


@pytest.mark.parametrize("loss", LOG_LINKED, ids=repr)
def test_losses_of_counts_and_amounts_are_half_the_deviance_of_scipys_distributions(
    loss: Loss,
) -> None:
    """Up to a constant minus the logarithm of the likelihood; zero at a perfect fit."""
    y = np.array([1.0, 2.0, 7.0])
    assert loss.value(np.log(y), y) == pytest.approx(0.0, abs=1e-12)
    z = np.array([-0.3, 0.8, 1.5])
    mean = np.exp(z)
    k = 1.0 / loss.parameters().get("dispersion", 1.0)
    power = loss.parameters().get("power", 0.0)
    logs = {
        "poisson": lambda mean: poisson.logpmf(y, mean),
        "gamma": lambda mean: gamma.logpdf(y, 1.0, scale=mean),
        "negative_binomial": lambda mean: nbinom.logpmf(y, k, k / (k + mean)),
        # The part of Tweedie's log-likelihood that depends on the mean.
        "tweedie": lambda mean: (
            y * mean ** (1 - power) / (1 - power) - mean ** (2 - power) / (2 - power)
        ),
    }[loss.name]
    assert loss.value(z, y) == pytest.approx(logs(y) - logs(mean), abs=1e-12)
    # Wherever |l'| is below a slope, l'' is below what is promised for it.
    far = np.linspace(-6, 6, 121)[:, None]
    slopes, bends = np.abs(loss.u(far, y)), loss.curvature(far, y)
    for slope in (0.5, 3.0, 20.0):
        assert bends[slopes <= slope].max(initial=0) <= loss.curvature_below(slope, 7.0) * 1.0001


@pytest.mark.parametrize("power", [1.01, 1.99])
def test_the_conjugate_of_tweedie_is_exact_at_both_ends_of_its_powers(power: float) -> None:
    """Where −l' is a, it is −a·z − l(z), with both formulas written out here."""
    up, down = 2.0 - power, power - 1.0
    grid = np.meshgrid(np.linspace(-4.0, 4.0, 33), [1e-6, 0.1, 1.0, 100.0])
    z, y = (each.ravel() for each in grid)
    a = y * np.exp(-down * z) - np.exp(up * z)
    value = np.exp(up * z) / up + y * np.exp(-down * z) / down - y**up / (up * down)
    found = get_loss("tweedie", power=power).conjugate(a, y)
    np.testing.assert_allclose(found, -a * z - value, rtol=1e-9, atol=1e-9)


# ── losses from outside ───────────────────────────────────────────────────────────────────


@pytest.fixture
def unlisted() -> Iterator[None]:
    """What a test registers is gone afterwards: other tests go over all that is listed."""
    with patch.dict("weft.losses._LOSSES"):
        yield


@pytest.mark.parametrize("loss", [*VARIANTS, *LOG_LINKED], ids=repr)
def test_losses_of_weft_pass_the_check_of_those_from_outside(loss: Loss) -> None:
    check_loss(loss)


def beyond(formula: Callable[..., Array], least: float, what: Callable[[Array], Array]) -> object:
    """A formula that is another one where its first argument is large."""
    return lambda self, z, y: np.where(
        np.abs(z) > least, what(formula(self, z, y)), formula(self, z, y)
    )


@pytest.mark.parametrize(
    ("kind", "name", "slip", "named"),
    [
        (Hinge, "value", beyond(Hinge.value, 7.0, lambda v: 0.0 * v), "value or u"),
        (Squared, "value", beyond(Squared.value, 300.0, lambda v: 0.5 * v), "value or u"),
        (Hinge, "u", beyond(Hinge.u, 300.0, lambda u: -u), "value or u"),
        (
            Squared,
            "conjugate_inside",
            beyond(Squared.conjugate_inside, 50.0, lambda c: c - 10.0),
            "conjugate_inside",
        ),
        (
            Logistic,
            "value",
            lambda self, z, y: np.log1p(np.exp(-y * z)),
            r"\|value\(z, y\)\| < ∞",
        ),
    ],
    ids=["nothing", "half", "uphill", "conjugate", "overflow"],
)
def test_a_slip_far_from_zero_is_found(
    kind: type[Loss], name: str, slip: object, named: str
) -> None:
    """All are right as far as |z| = 6.3 and slopes of 8."""
    with pytest.raises(ConfigError, match=named):
        check_loss(type("Slip", (kind,), {name: slip})())


@pytest.mark.usefixtures("unlisted")
def test_a_loss_from_outside_is_checked_with_the_parameters_that_it_gets() -> None:
    """Wrong for other parameters than its defaults, it would certify gaps that nobody has."""

    @register_loss
    @dataclass(frozen=True)
    class Slip(SmoothedHinge):
        name = "slip"

        def conjugate_inside(self, a: Array, y: Array) -> Array:
            return super().conjugate_inside(a, y) - 10.0 * (self.g == 0.25)

    assert get_loss("slip", g=2.0).parameters() == {"g": 2.0}
    for _ in range(2):
        with pytest.raises(ConfigError, match=r'loss "slip" cannot be used.*conjugate_inside'):
            get_loss("slip", g=0.25)


@pytest.mark.usefixtures("unlisted")
def test_every_set_of_parameters_is_checked_once_and_those_of_weft_never() -> None:
    with patch("weft.losses.check_loss") as check:

        @register_loss
        @dataclass(frozen=True)
        class Another(SmoothedHinge):
            name = "another"

        for g in (0.5, 2.0, 3.0, 2.0):
            get_loss("another", g=g)
            get_loss("smoothed_hinge", g=g)
    asked = [call.args[0] for call in check.call_args_list]
    assert asked == [Another(), Another(g=2.0), Another(g=3.0)]


@every_loss
def test_tables_are_sums_of_values_at_mixtures(loss):
    random = np.random.default_rng(2)
    z, target = random.normal(0, 30, (2, 40, 3))
    y = labels(loss, random.uniform(-1, 1, z.shape))
    steps = random.uniform(-1, 2, (4, 2, 3))
    counted = [None, random.random(z.shape) < 0.5]
    if loss.smooth:
        # Samples have weights under smooth losses only.
        counted.append(random.random(z.shape))
    for used in counted:
        found = loss.table(z, target, y, steps, used)
        often = 1.0 if used is None else used
        mixed = [(loss.value(a * z + b * target, y) * often).sum(axis=0) for a, b in steps]
        np.testing.assert_allclose(found, mixed, rtol=1e-12)


def test_tables_of_logistic_losses_have_all_digits_however_small():
    far = [-700.0, -50.0, -3.0, -1e-9, 0.0, 1e-9, 0.5, 3.0, 36.0, 100.0, 650.0]
    one, none = np.ones((1, 1)), np.zeros((1, 1))
    for margin in [*far, *np.random.default_rng(3).normal(0, 5, 50).tolist()]:
        found = Logistic().table(margin * one, none, one, np.array([[[1.0], [0.0]]]))[0, 0]
        with localcontext() as context:
            context.prec = 400
            exact = (1 + (-Decimal(margin)).exp()).ln()
            assert abs(Decimal(float(found)) / exact - 1) < 5e-16
    edges = np.array([[np.inf], [-np.inf]])
    found = Logistic().table(edges[:1], none, one, np.array([[[1.0], [0.0]]]))
    assert found[0, 0] < 1e-300
    assert np.isposinf(Logistic().table(edges[1:], none, one, np.array([[[1.0], [0.0]]])))
