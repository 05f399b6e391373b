"""The fast solvers' pure parts: held vectors, their Gram matrices, bounds from mixtures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from covering import examples
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.cutting_planes_solver import EAGER, ONE_CUT, CuttingPlanes, Places
from weft.solvers.subspace.lower_bound import Bounding
from weft.solvers.subspace.vectors_kept_by_party import Vectors, add_scaled, inner

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

few = examples(50, deadline=None)
#: Held vectors after the anchor, slots, problems.
shapes = st.tuples(st.integers(0, 7), st.integers(1, 9), st.integers(1, 4))
seeds = st.integers(0, 2**32 - 1)


def held(random: np.random.Generator, shape: tuple[int, int, int]) -> list[Floats]:
    count, slots, width = shape
    return [random.normal(size=(slots, width)) for _ in range(count + 1)]


def vectors_of(parts: list[Floats]) -> Vectors:
    vectors = Vectors(parts[0])
    vectors.append(parts[1:])
    return vectors


def some(random: np.random.Generator, count: int) -> Ints:
    """Which of the vectors after the anchor stay, in rising order."""
    return np.flatnonzero(random.random(count) < 0.5) + 1


def gram_of(parts: list[Floats]) -> Floats:
    stacked = np.stack(parts)
    return np.einsum("jip,kip->jkp", stacked, stacked)


# ── vectors ───────────────────────────────────────────────────────────────────────────────


@few
@given(seeds, shapes)
def test_vectors_in_single_precision_are_combined_in_double(
    seed: int, shape: tuple[int, int, int]
) -> None:
    """The anchor keeps all its digits; so does all that is made of the others as they are kept."""
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    short = Vectors(parts[0], short=True)
    short.append(parts[1:])
    rounded = [parts[0], *(part.astype(np.float32).astype(np.float64) for part in parts[1:])]
    long = vectors_of(rounded)
    factors = random.normal(size=(len(parts), shape[2]))
    assert np.array_equal(short.combine(factors), long.combine(factors))
    others, chosen = held(random, shape), random.random(shape[1]) < 0.5
    assert np.array_equal(short.products(others, chosen), long.products(others, chosen))
    slots = np.flatnonzero(chosen)
    assert np.array_equal(short.columns(0, slots), long.columns(0, slots))


@few
@given(seeds, shapes)
def test_a_combination_is_the_sum_written_out(seed: int, shape: tuple[int, int, int]) -> None:
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    factors = random.normal(size=(len(parts), shape[2])) * (random.random((len(parts), 1)) < 0.7)
    expected = sum(f * part for f, part in zip(factors, parts, strict=True))
    np.testing.assert_allclose(vectors_of(parts).combine(factors), expected, atol=1e-12)


@few
@given(seeds, shapes, st.integers(1, 9))
def test_two_holders_of_a_slot_get_the_same_bits_whatever_else_they_hold(
    seed: int, shape: tuple[int, int, int], others: int
) -> None:
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    factors = random.normal(size=(len(parts), shape[2]))
    more = [np.vstack([random.normal(size=(others, shape[2])), part]) for part in parts]
    here, there = vectors_of(parts).combine(factors), vectors_of(more).combine(factors)
    assert here.tobytes() == np.ascontiguousarray(there[others:]).tobytes()


@few
@given(seeds, shapes)
def test_folding_leaves_every_combination_of_what_is_kept(
    seed: int, shape: tuple[int, int, int]
) -> None:
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    keep = some(random, shape[0])
    fold = random.normal(size=(len(parts), shape[2]))
    vectors = vectors_of(parts)
    vectors.fold(fold, keep)
    assert len(vectors) == len(keep) + 1
    anchor = sum(f * part for f, part in zip(fold, parts, strict=True))
    expected = np.stack([anchor, *(parts[j] for j in keep.tolist())])
    np.testing.assert_allclose(np.stack(vectors._held), expected, atol=1e-12)


@few
@given(seeds, shapes, st.integers(1, 4))
def test_inner_products_run_over_the_chosen_slots(
    seed: int, shape: tuple[int, int, int], new: int
) -> None:
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    others = [random.normal(size=shape[1:]) for _ in range(new)]
    for chosen in (np.ones(shape[1], bool), random.random(shape[1]) < 0.5):
        expected = np.einsum(
            "jip,kip->jkp", np.stack(parts)[:, chosen], np.stack(others)[:, chosen]
        )
        found = vectors_of(parts).products(others, chosen)
        np.testing.assert_allclose(found, expected, atol=1e-12)


@few
@given(seeds, st.integers(0, 50), st.integers(1, 5))
def test_scaled_addition_and_inner_products_of_columns(seed: int, slots: int, width: int) -> None:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, slots, width))
    factors = random.normal(size=width)
    out = b.copy()
    add_scaled(out, a, factors)
    np.testing.assert_allclose(out, b + factors * a, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(inner(a, b), (a * b).sum(axis=0), atol=1e-12)


# ── the coordinator's half: coefficients and Gram matrices ────────────────────────────────


def subspace_of(parts: list[Floats], point: Floats, coming: list[Floats] | None = None) -> Any:
    """A subspace that knows the inner products of these vectors, and of some that are under way."""
    subspace: Any = object.__new__(Subspace)
    subspace.exchange = SimpleNamespace(fold=None)
    subspace.width = parts[0].shape[1]
    subspace.gram = gram_of(parts)
    subspace.offsets = np.vstack(
        [
            np.zeros((1, subspace.width)),
            np.arange(1.0, len(parts))[:, None] + np.zeros((1, subspace.width)),
        ]
    )
    subspace.point = point
    subspace.free, subspace.intercepts = False, np.zeros_like(point)
    subspace.mixture = np.abs(point)
    subspace._coming = None
    if coming is not None:
        cross = np.einsum("jip,kip->jkp", np.stack(parts), np.stack(coming))
        subspace._coming = (np.ones((len(coming), subspace.width)), cross)
    return subspace


@few
@given(seeds, shapes, st.booleans())
def test_dropping_vectors_leaves_the_point_and_all_inner_products(
    seed: int, shape: tuple[int, int, int], by_rows: bool
) -> None:
    """Both halves drop in their own way; the point is the same vector, at either of them."""
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    point = random.normal(size=(len(parts), shape[2]))
    coming = [random.normal(size=shape[1:]) for _ in range(2)] if by_rows else None
    keep = some(random, shape[0])
    subspace = subspace_of(parts, point, coming)
    before = vectors_of(parts).combine(point)

    subspace.drop(keep)
    vectors = vectors_of(parts)
    fold = subspace.exchange.fold
    vectors.fold(fold.coefficients, fold.keep)

    assert subspace.count == len(vectors) == len(keep) + 1
    np.testing.assert_allclose(vectors.combine(subspace.point), before, atol=1e-12)
    np.testing.assert_allclose(subspace.gram, gram_of(list(np.stack(vectors._held))), atol=1e-11)
    np.testing.assert_allclose(
        subspace.inner(subspace.point, subspace.point), (before**2).sum(axis=0), atol=1e-10
    )
    np.testing.assert_array_equal(subspace.offsets[1:, 0], keep.astype(float))
    np.testing.assert_array_equal(subspace.mixture[1:], np.abs(point[keep]))
    if coming is not None:
        expected = np.einsum("jip,kip->jkp", np.stack(vectors._held), np.stack(coming))
        np.testing.assert_allclose(subspace._coming[1], expected, atol=1e-11)


@few
@given(seeds, shapes)
def test_lengths_and_angles_of_combinations_come_from_the_gram_matrix(
    seed: int, shape: tuple[int, int, int]
) -> None:
    random = np.random.default_rng(seed)
    parts = held(random, shape)
    a, b = random.normal(size=(2, len(parts), shape[2]))
    subspace, vectors = subspace_of(parts, a), vectors_of(parts)
    expected = (vectors.combine(a) * vectors.combine(b)).sum(axis=0)
    np.testing.assert_allclose(subspace.inner(a, b), expected, atol=1e-10)
    unit = subspace.unit(len(parts) - 1)
    np.testing.assert_array_equal(vectors.combine(unit), parts[-1])


# ── bounds ────────────────────────────────────────────────────────────────────────────────


class Pooled:
    """The hinge and logistic problems of a small table, with dual vectors and their images."""

    def __init__(self, seed: int, loss: str, groups: int = 1, n: int = 30, m: int = 4) -> None:
        random = np.random.default_rng(seed)
        self.random, self.loss, self.n, self.groups = random, loss, n, groups
        self.x = random.normal(size=(n, m))
        self.y = np.sign(self.x @ random.normal(size=m) + random.normal(size=n))
        self.lam = 10.0 ** random.uniform(-3, 0)
        self.of_group = np.arange(n) % groups

    def dual(self, w: Floats) -> Floats:
        """−l' somewhere."""
        z = self.y * (self.x @ w)
        return self.y * (np.where(z < 1, 1.0, 0.0) if self.loss == "hinge" else 1 / (1 + np.exp(z)))

    def images(self, a: Floats) -> tuple[Floats, Floats]:
        """b = Xᵀa/N and o = −1/N Σ l*(−a), for every group of rows."""
        p = self.y * a
        if self.loss == "hinge":
            minus = p
        else:
            q = np.clip(p, 1e-300, 1 - 1e-16)
            minus = -(q * np.log(q) + (1 - q) * np.log1p(-q))
        member = self.of_group == np.arange(self.groups)[:, None]
        return (member * a) @ self.x / self.n, member @ minus / self.n

    def primal(self, w: Floats) -> float:
        z = self.y * (self.x @ w)
        losses = np.maximum(1 - z, 0) if self.loss == "hinge" else np.logaddexp(0, -z)
        return float(self.lam / 2 * w @ w + losses.mean())

    def best(self) -> float:
        """P* from above, by a method without derivatives polished many times."""
        found = np.zeros(self.x.shape[1])
        for _ in range(4):
            found = minimize(
                self.primal, found, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14}
            ).x
        return self.primal(found)


def bounding_of(problem: Pooled, points: int) -> tuple[Bounding, Any, Floats, Floats]:
    """All vectors taken one after the other; also the vectors and offsets themselves."""
    subspace: Any = SimpleNamespace(
        groups=problem.groups,
        width=1,
        count=1,
        gram=np.zeros((1, 1, 1)),
        offsets=np.zeros((1, 1)),
        primal=np.array([problem.primal(np.zeros(problem.x.shape[1]))]),
        dual=np.array([-np.inf]),
        lam=np.array([problem.lam]),
        doubt=np.zeros(1),
        free=False,
        exchange=SimpleNamespace(noise=0.0, problems=Problems(1)),
    )
    bounding = Bounding(subspace)
    b, o = np.zeros((1, problem.x.shape[1])), np.zeros(1)
    for _ in range(points):
        w = problem.random.normal(size=problem.x.shape[1])
        new_b, new_o = problem.images(problem.dual(w))
        b, o = np.vstack([b, new_b]), np.concatenate([o, new_o])
        subspace.count = len(o)
        subspace.gram, subspace.offsets = (b @ b.T)[:, :, None], o[:, None]
        before = subspace.dual.copy()
        bounding.take(problem.groups)
        assert (subspace.dual >= before).all()
    # What solved it last is not exact but to a share of the gap.
    subspace.primal = subspace.dual + 1e-9
    weights = bounding.solve()
    return bounding, subspace, b, np.column_stack([o, weights[:, 0]])


@examples(12, deadline=None)
@given(seeds, st.sampled_from(["hinge", "logistic"]), st.sampled_from([1, 3]), st.integers(1, 8))
def test_the_bound_of_a_mixture_lies_between_the_best_single_vector_and_the_optimum(
    seed: int, loss: str, groups: int, points: int
) -> None:
    problem = Pooled(seed, loss, groups)
    _, subspace, b, found = bounding_of(problem, points)
    o, mu = found.T
    bound = subspace.dual[0]
    best = problem.best()
    assert bound <= best * (1 + 1e-7) + 1e-9
    # D of each dual vector as a whole: all its groups together.
    for k in range(points):
        rows = slice(1 + k * groups, 1 + (k + 1) * groups)
        whole = b[rows].sum(axis=0)
        assert bound >= o[rows].sum() - whole @ whole / (2 * problem.lam) - 1e-9
    assert bound >= 0.0
    # Its weights are a mixture, per group, and give that value.
    assert (mu >= 0).all()
    sums = mu[1:].reshape(points, groups).sum(axis=0)
    assert (sums <= 1 + 1e-12).all()
    w = mu @ b
    assert mu @ o - w @ w / (2 * problem.lam) == pytest.approx(bound, abs=1e-9)


@examples(15, deadline=None)
@given(seeds, st.integers(2, 6), st.sampled_from([1, 3]))
def test_kept_cuts_bound_as_if_the_others_had_never_been(
    seed: int, points: int, groups: int
) -> None:
    problem = Pooled(seed, "hinge", groups)
    bounding, subspace, b, found = bounding_of(problem, points)
    first = bounding.keep_newest(groups * (points - 1))
    assert first.tolist() == list(range(groups + 1, groups * points + 1))
    chosen = np.concatenate([[0], first])
    subspace.count = len(chosen)
    subspace.gram, subspace.offsets = (
        (b @ b.T)[np.ix_(chosen, chosen)][:, :, None],
        found[chosen, :1],
    )
    kept_bound = subspace.dual.copy()
    subspace.dual = np.array([-np.inf])
    bounding.solve()
    assert subspace.dual[0] <= kept_bound[0] + 1e-9
    assert bounding.vectors.tolist() == list(range(1, len(chosen)))
    fresh = Bounding(subspace)
    again = subspace.dual[0]
    subspace.dual = np.array([-np.inf])
    subspace.primal = np.array([again + 1e-9])
    fresh.take(len(chosen) - 1)
    assert subspace.dual[0] == pytest.approx(again, abs=1e-5)


# ── kinds of cuts ─────────────────────────────────────────────────────────────────────────


def kinds_of(gaps: list[float], shares: tuple[float, float], places: Places = ONE_CUT) -> Any:
    """Whether vertices, and whether steps of ascent, are made after these gaps.

    ``shares`` of the mixture are vertices' and ascent's.
    """
    exchange = SimpleNamespace(problems=Problems(1))
    subspace: Any = SimpleNamespace(exchange=exchange, groups=1, width=1)
    planes = CuttingPlanes(subspace, places)
    planes._ascended = np.array([False, True])
    for gap in gaps:
        subspace.gaps = np.array([gap])
        found = planes._useful(np.array(shares)[:, None])
    return found


def test_a_kind_of_cuts_is_left_out_only_while_the_gap_falls_well_without_it() -> None:
    falling = [0.5**i for i in range(9)]
    for shares, useful in (
        ((0.95, 0.05), (True, False)),
        ((0.05, 0.95), (False, True)),
        ((0.5, 0.5), (True, True)),
    ):
        assert kinds_of(falling[:8], shares) == (True, True)
        assert kinds_of(falling, shares) == useful
        # What the gap did long ago says nothing.
        assert kinds_of(falling + 4 * falling[-1:], shares) == (True, True)
        assert kinds_of(8 * [1.0] + falling, shares) == useful
    assert kinds_of(falling, (0.05, 0.95), EAGER) == (True, True)


@pytest.mark.parametrize(
    ("folds", "sizes", "said"),
    [(0, [9], False), (3, [9, 6, 6, 6], False), (3, [9, 7, 7, 7], True), (3, [9, 9, 9, 9], True)],
    ids=["no folds", "every sample in a fold", "some in none", "all in none"],
)
def test_samples_in_no_fold_are_noted(folds: int, sizes: list[int], said: bool) -> None:
    subspace = Subspace.__new__(Subspace)
    exchange: Any = SimpleNamespace(
        problems=Problems(1, folds), settings=Settings(lam=1.0, folds=folds), notes=[]
    )
    subspace.exchange = exchange
    subspace._look_at_folds(np.array(sizes, float))
    assert [("scored in none" in note) for note in exchange.notes] == [True] * said
