"""The cutting planes' small QP: feasible, certified, and as good as outside judges.

Judges: scipy's SLSQP on small instances; scipy's NNLS where no group is full; closed forms.
Where a claim is about cuts as training makes them, OCAS runs on sklearn's data sets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler

from covering import examples
from weft.solvers.subspace.bundle_qp import Floats, Ints, Master, Solution

#: Asked for in most tests, as a share of the instance's scale; rounding is far below.
TOLERANCE = 1e-9


def master_of(gram: Floats, intercepts: Floats, owner: Ints, groups: int) -> Master:
    master = Master(groups)
    master.add(np.empty((len(owner), 0)), gram, intercepts, owner)
    return master


def group_sums(mu: Floats, owner: Ints, groups: int) -> Floats:
    return np.bincount(owner, weights=mu, minlength=groups)


def objective(mu: Floats, gram: Floats, intercepts: Floats, scale: float = 1.0) -> float:
    return float(mu @ intercepts - scale / 2 * mu @ gram @ mu)


def slsqp(gram: Floats, intercepts: Floats, owner: Ints, groups: int) -> float:
    """The best value SLSQP finds; a lower bound of the optimum, near it on small instances."""
    n = len(owner)
    member = np.zeros((groups, n))
    member[owner, np.arange(n)] = 1.0
    room = {"type": "ineq", "fun": lambda mu: 1.0 - member @ mu, "jac": lambda mu: -member}
    found = minimize(
        lambda mu: -objective(mu, gram, intercepts),
        np.zeros(n),
        jac=lambda mu: gram @ mu - intercepts,
        bounds=[(0.0, 1.0)] * n,
        constraints=[room],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    mu = np.clip(found.x, 0.0, None)
    mu /= np.maximum(group_sums(mu, owner, groups), 1.0)[owner]
    return objective(mu, gram, intercepts)


@st.composite
def instances(draw: st.DrawFn) -> tuple[Floats, Floats, Ints, int]:
    """Cuts of any kind: low rank, repeated, empty, of sizes far apart, intercepts of both signs."""
    seed = draw(st.integers(0, 2**32 - 1))
    groups = draw(st.integers(1, 5))
    n = draw(st.integers(1, 24))
    rank = draw(st.integers(1, 12))
    random = np.random.default_rng(seed)
    cuts = random.normal(size=(n, rank))
    cuts *= 10.0 ** random.uniform(-draw(st.integers(0, 4)), 1, size=(n, 1))
    intercepts = random.normal(size=n) + draw(st.sampled_from([-2.0, 0.0, 0.5, 3.0]))
    if draw(st.booleans()):
        twins = random.integers(n, size=n // 2)
        cuts[: n // 2] = cuts[twins] * (1.0 + draw(st.sampled_from([0.0, 1e-14, 1e-9, 1e-5])))
        intercepts[: n // 2] = intercepts[twins]
    if draw(st.booleans()):
        cuts[random.integers(n)] = 0.0
    return cuts @ cuts.T, intercepts, random.integers(groups, size=n), groups


def scale_of(gram: Floats, intercepts: Floats) -> float:
    """The size of numbers an instance is computed with."""
    return float(np.abs(gram).max() + np.abs(intercepts).max() + 1e-300)


def check(master: Master, solution: Solution, tolerance: float) -> None:
    """A solution is feasible, worth what it says, and its gap is small enough."""
    assert (solution.mu >= 0).all()
    sums = np.bincount(master.groups, weights=solution.mu)
    assert (sums <= 1 + 1e-12).all()
    rounding = 1e-13 * scale_of(master.gram, master.intercepts) * master.n
    assert solution.value == pytest.approx(
        objective(solution.mu, master.gram, master.intercepts), abs=rounding
    )
    assert 0 <= solution.gap <= tolerance


@examples(120, deadline=None)
@given(instances())
def test_every_solution_is_feasible_and_meets_its_tolerance(
    instance: tuple[Floats, Floats, Ints, int],
) -> None:
    master = master_of(*instance)
    tolerance = 1e-11 * scale_of(*instance[:2])
    check(master, master.solve(tolerance=tolerance), tolerance)


@examples(40, deadline=None)
@given(instances())
def test_slsqp_finds_nothing_better_and_nothing_beyond_the_gap(
    instance: tuple[Floats, Floats, Ints, int],
) -> None:
    size = scale_of(*instance[:2])
    judged = slsqp(*instance)
    for tolerance in (1e-1, 1e-3, TOLERANCE):
        solution = master_of(*instance).solve(tolerance=tolerance * size)
        assert judged <= solution.value + solution.gap + 1e-12 * size
    assert solution.value >= judged - TOLERANCE * size


@pytest.mark.parametrize("seed", range(8))
def test_slsqp_and_the_master_agree_on_well_conditioned_cuts(seed: int) -> None:
    random = np.random.default_rng(seed)
    cuts = random.normal(size=(20, 30))
    owner = np.arange(20) % 4
    intercepts = random.uniform(0.0, 30.0, size=20)
    solution = master_of(cuts @ cuts.T, intercepts, owner, 4).solve(tolerance=1e-10)
    assert solution.value == pytest.approx(slsqp(cuts @ cuts.T, intercepts, owner, 4), rel=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_nnls_agrees_where_no_group_is_full(seed: int) -> None:
    # With b = Gᵀt the objective is (‖t‖² − ‖t − Gμ‖²)/2: non-negative least squares.
    random = np.random.default_rng(seed)
    cuts = random.normal(size=(60, 25))
    target = cuts @ (random.random(25) / 200 * (random.random(25) < 0.5))
    target += random.normal(size=60) / 200
    mu, residual = nnls(cuts, target)
    assert mu.sum() < 1
    master = master_of(cuts.T @ cuts, cuts.T @ target, np.zeros(25, dtype=np.int64), 1)
    solution = master.solve(tolerance=1e-15)
    np.testing.assert_allclose(solution.mu, mu, atol=1e-9)
    assert solution.value == pytest.approx((target @ target - residual**2) / 2, rel=1e-10)


@examples(60, deadline=None)
@given(instances(), st.integers(1, 23))
def test_a_cut_never_lowers_the_optimum_and_warm_starts_end_where_cold_ones_do(
    instance: tuple[Floats, Floats, Ints, int], first: int
) -> None:
    gram, intercepts, owner, groups = instance
    first = min(first, len(owner))
    tolerance = TOLERANCE * scale_of(gram, intercepts)
    master = master_of(gram[:first, :first], intercepts[:first], owner[:first], groups)
    before = master.solve(tolerance=tolerance).value
    for k in range(first, len(owner)):
        new = slice(k, k + 1)
        master.add(gram[new, :k], gram[new, new], intercepts[new], owner[new])
        after = master.solve(tolerance=tolerance)
        check(master, after, tolerance)
        assert after.value >= before - tolerance
        before = after.value
    cold = master_of(*instance).solve(tolerance=tolerance)
    assert before == pytest.approx(cold.value, abs=2 * tolerance)


@examples(60, deadline=None)
@given(instances(), st.floats(1e-3, 1e3))
def test_a_scale_solves_the_problem_that_it_spells(
    instance: tuple[Floats, Floats, Ints, int], scale: float
) -> None:
    gram, intercepts, owner, groups = instance
    tolerance = TOLERANCE * scale_of(scale * gram, intercepts)
    master = master_of(*instance)
    master.solve(tolerance=tolerance)
    scaled = master.solve(tolerance=tolerance, scale=scale)
    spelt = master_of(scale * gram, intercepts, owner, groups)
    check(spelt, scaled, tolerance)
    assert scaled.value == pytest.approx(spelt.solve(tolerance=tolerance).value, abs=2 * tolerance)


def test_one_cut_has_the_closed_form_of_a_clipped_quotient() -> None:
    for curvature, intercept in [(4.0, 1.0), (0.5, 1.0), (0.0, 1.0), (2.0, -1.0), (0.0, -1.0)]:
        master = master_of(
            np.array([[curvature]]), np.array([intercept]), np.zeros(1, dtype=np.int64), 1
        )
        expected = np.clip(intercept / curvature, 0, 1) if curvature else float(intercept > 0)
        assert master.solve(tolerance=1e-14).mu == pytest.approx([expected], abs=1e-14)


def test_without_cuts_the_optimum_is_zero() -> None:
    solution = Master(3).solve(tolerance=0.0)
    assert solution.mu.size == 0
    assert solution.value == 0.0
    assert solution.gap == 0.0


def test_empty_cuts_take_the_highest_intercept_of_each_group() -> None:
    owner = np.array([0, 0, 1, 1, 2])
    solution = master_of(np.zeros((5, 5)), np.array([1.0, 3.0, -1.0, 2.0, -5.0]), owner, 3).solve(
        tolerance=1e-12
    )
    np.testing.assert_allclose(solution.mu, [0, 1, 0, 1, 0], atol=1e-12)
    assert solution.value == pytest.approx(5.0)


def test_a_repeated_cut_changes_nothing_but_may_share_the_weight() -> None:
    cuts = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    intercepts = np.array([1.0, 1.5, 1.0, 1.0])
    owner = np.zeros(4, dtype=np.int64)
    repeated = master_of(cuts @ cuts.T, intercepts, owner, 1).solve(tolerance=1e-13)
    once = master_of(cuts[:2] @ cuts[:2].T, intercepts[:2], owner[:2], 1).solve(tolerance=1e-13)
    assert repeated.value == pytest.approx(once.value, abs=1e-12)


def training(name: str, lam: float, groups: int, iterations: int) -> Iterator[tuple[Master, float]]:
    """OCAS on pooled data: the master after each batch of cuts, and P of the best point."""
    load = {"digits": load_digits, "breast cancer": load_breast_cancer}[name]
    x, target = load(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    y = np.where(target == 1, 1.0, -1.0)
    owner = np.arange(len(y)) % groups
    member = (owner == np.arange(groups)[:, None]) / len(y)
    loss = lambda w: lam / 2 * w @ w + np.maximum(0, 1 - y * (x @ w)).mean()  # noqa: E731
    master = Master(groups)
    cuts = np.empty((0, x.shape[1]))
    best = at = np.zeros(x.shape[1])
    for _ in range(iterations):
        wrong = (y * (x @ at) < 1).astype(np.float64)
        new = -(member * (wrong * y)) @ x
        master.add(new @ cuts.T / lam, new @ new.T / lam, member @ wrong, np.arange(groups))
        cuts = np.vstack([cuts, new])
        yield master, float(loss(best))
        towards = -(cuts.T @ master.mu) / lam
        path = best + np.linspace(0, 1, 33)[:, None] * (towards - best)
        best = path[int(np.argmin([loss(w) for w in path]))]
        at = 0.9 * best + 0.1 * towards


@pytest.mark.parametrize(
    ("name", "lam", "groups", "iterations"),
    [
        ("digits", 1e-4, 1, 60),
        ("digits", 1e-3, 25, 20),
        ("breast cancer", 1e-4, 5, 30),
        # More groups than columns: most cuts depend on the others.
        ("breast cancer", 1e-3, 100, 6),
    ],
)
def test_cuts_of_a_real_training_are_solved_to_twelve_digits(
    name: str, lam: float, groups: int, iterations: int
) -> None:
    value = 0.0
    for master, primal in training(name, lam, groups, iterations):
        tolerance = 1e-12 * primal
        solution = master.solve(tolerance=tolerance)
        check(master, solution, tolerance)
        assert value - tolerance <= solution.value <= primal + tolerance
        # Active sets are vertices: no more cuts than the dimension and the groups can hold.
        assert np.count_nonzero(solution.mu) <= 64 + groups
        value = solution.value


def test_inner_products_with_rounding_are_solved_to_that_rounding() -> None:
    # Summed in another order, the same cuts have a Gram matrix with eigenvalues below 0.
    random = np.random.default_rng(0)
    cuts = 1.0 + 1e-4 * random.normal(size=(80, 6))
    gram = cuts @ cuts.T
    noise = 1e-13 * random.normal(size=gram.shape)
    gram += noise + noise.T
    assert np.linalg.eigvalsh(gram)[0] < 0
    master = master_of(gram, random.normal(size=80), np.arange(80) % 8, 8)
    check(master, master.solve(tolerance=1e-10), 1e-10)


@pytest.mark.parametrize("after", [2, 8])
def test_dropping_idle_cuts_keeps_the_solution_and_its_value(after: int) -> None:
    for master, primal in training("digits", 1e-3, 5, 25):
        tolerance = 1e-9 * primal
        before = master.solve(tolerance=tolerance)
    gram, intercepts, owner = master.gram.copy(), master.intercepts.copy(), master.groups.copy()

    kept = np.flatnonzero(master.idle < after)
    master.keep(kept)
    assert master.n == len(kept) < len(owner)
    assert set(np.flatnonzero(before.mu)) <= set(kept)
    np.testing.assert_array_equal(master.mu, before.mu[kept])
    np.testing.assert_array_equal(master.gram, gram[np.ix_(kept, kept)])
    np.testing.assert_array_equal(master.intercepts, intercepts[kept])
    np.testing.assert_array_equal(master.groups, owner[kept])
    assert master.solve(tolerance=tolerance).value == pytest.approx(before.value, abs=tolerance)


def test_a_cut_is_idle_for_as_many_solves_as_it_had_no_weight() -> None:
    master = master_of(np.eye(2), np.array([1.0, -1.0]), np.zeros(2, dtype=np.int64), 1)
    for solves in (1, 2):
        master.solve(tolerance=1e-12)
        np.testing.assert_array_equal(master.idle, [0, solves])


def test_equal_input_gives_equal_bits() -> None:
    runs = []
    for _ in range(2):
        found = [
            master.solve(tolerance=1e-6 * primal).mu.tobytes()
            for master, primal in training("breast cancer", 1e-4, 5, 15)
        ]
        runs.append(found)
    assert runs[0] == runs[1]


def test_misshapen_or_infinite_input_is_refused() -> None:
    master = master_of(np.eye(2), np.ones(2), np.array([0, 1]), 2)
    with pytest.raises(ValueError, match="inner products of shape"):
        master.add(np.ones((1, 3)), [[1.0]], [1.0], [0])
    with pytest.raises(ValueError, match="mutual"):
        master.add(np.ones((1, 2)), np.eye(2), [1.0], [0])
    with pytest.raises(ValueError, match="finite"):
        master.add(np.ones((1, 2)), [[np.nan]], [1.0], [0])
    with pytest.raises(ValueError, match="must lie in 0 … 1"):
        master.add(np.ones((1, 2)), [[1.0]], [1.0], [2])
    with pytest.raises(ValueError, match="scale"):
        master.solve(tolerance=1e-9, scale=0.0)
    assert master.n == 2


@examples(60, deadline=None)
@given(instances(), st.integers(0, 2**24 - 1))
def test_weight_of_forgotten_cuts_goes_to_the_slack_and_the_rest_is_solved_anew(
    instance: tuple[Floats, Floats, Ints, int], chosen: int
) -> None:
    """Also cuts that the solution uses may go: what is left is feasible and bounds from below."""
    gram, intercepts, owner, groups = instance
    tolerance = TOLERANCE * scale_of(gram, intercepts)
    master = master_of(*instance)
    whole = master.solve(tolerance=tolerance)
    kept = np.flatnonzero([(chosen >> cut) & 1 for cut in range(len(owner))])
    master.keep(kept)

    assert master.n == len(kept)
    np.testing.assert_array_equal(master.mu, whole.mu[kept])
    np.testing.assert_array_equal(master.gram, gram[np.ix_(kept, kept)])
    np.testing.assert_array_equal(master.groups, owner[kept])
    # The slacks, which are the first cuts, fill every group up to 1.
    slack = master._mu[:groups]
    sums = group_sums(master.mu, master.groups, groups)
    assert (slack >= 0).all()
    np.testing.assert_allclose(slack + sums, 1.0, atol=1e-12)
    if not len(kept):
        assert master.solve(tolerance=tolerance).value == 0.0
        return
    rest = master.solve(tolerance=tolerance)
    check(master, rest, tolerance)
    assert rest.value <= whole.value + whole.gap + tolerance
    cold = master_of(gram[np.ix_(kept, kept)], intercepts[kept], owner[kept], groups)
    assert rest.value == pytest.approx(cold.solve(tolerance=tolerance).value, abs=2 * tolerance)


def test_a_solve_aside_finds_what_a_master_of_its_own_does_and_leaves_the_first_as_it_was():
    random = np.random.default_rng(4)
    rows = random.standard_normal((6, 3))
    gram, owner = rows @ rows.T, np.zeros(6, np.int64)
    first, other = random.uniform(0, 1, 6), random.uniform(0, 1, 6)
    master, alone = (master_of(gram, heights, owner, 1) for heights in (first, other))
    master.solve(tolerance=TOLERANCE)
    mu, idle = master.mu.copy(), master.idle.copy()
    found = master.solve_aside(other, tolerance=TOLERANCE, scale=0.3)
    expected = alone.solve(tolerance=TOLERANCE, scale=0.3)
    assert objective(found, gram, other, 0.3) == pytest.approx(expected.value, abs=1e-8)
    assert (found >= 0).all()
    assert found.sum() <= 1 + 1e-12
    assert (master.mu == mu).all()
    assert (master.idle == idle).all()
