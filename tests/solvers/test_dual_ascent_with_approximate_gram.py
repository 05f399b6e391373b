"""Coordinate ascent in cohorts: a better dual vector in its model, the same one at all holders."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from weft.data import SPLITS, Tile, load
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.guards.min_batch_between_sums import SeenBatches
from weft.losses import get_loss
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.coordinator_coefficients_and_products import thinned
from weft.solvers.subspace.cutting_planes_solver import (
    EAGER,
    CuttingPlanes,
)
from weft.solvers.subspace.dual_ascent_with_approximate_gram import (
    MOST_IN_BASIS,
    ascended,
)
from weft.solvers.subspace.messages import Ascent, GatherRequest, SearchRequest
from weft.solvers.subspace.orthonormal_vector_basis import basis_of_newest, most_in_basis
from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide

LOSSES = ("hinge", "absolute", "epsilon_insensitive", "logistic", "squared")


def model(loss: Any, z: Any, labels: Any, inside: Any, curvature: float) -> Any:
    """What ascent maximises: −l*(−a) − z·δ − δᵀKδ/2, and its K."""
    squares = (inside**2).sum(axis=1)
    outside = 3.0 * np.maximum(curvature - squares, 0.02 * curvature)
    if loss.smooth:
        left = 1.0 - squares / curvature
        outside = 1.5 * curvature * (left + np.sqrt(left**2 + 0.25))
    kernel = inside @ inside.T + np.diag(outside)

    def value(a: Any, begun: Any) -> float:
        change = a - begun
        conjugate = loss.conjugate_inside(a, labels).sum()
        return float(-conjugate - z @ change - 0.5 * change @ kernel @ change)

    return value, kernel


def problem(seed: int, rows: int, directions: int, loss: Any) -> Any:
    random = np.random.default_rng(seed)
    labels = random.choice([-1.0, 1.0], rows)
    if loss.task == "regression":
        labels = random.normal(size=rows)
    alpha = loss.project(random.normal(size=rows), labels)
    inside = random.normal(size=(rows, directions)).astype(np.float32).astype(float)
    return labels, alpha, random.normal(size=rows), inside


def risen(loss: Any, alpha: Any, z: Any, labels: Any, inside: Any, **changes: Any) -> Any:
    """Ascent of one problem, of which directions are the vectors themselves."""
    rows = len(alpha)
    fields: dict[str, Any] = {
        "used": np.ones((rows, 1), bool),
        "cohort_start": np.array([0, rows]),
        "vectors": [column[:, None].copy() for column in inside.T],
        "basis": np.eye(inside.shape[1])[:, :, None],
        "curvature": np.array([float(inside.shape[1])]),
        **changes,
    }
    return ascended(loss, alpha[:, None], z[:, None], labels[:, None], **fields)[:, 0]


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(0, 9), st.sampled_from(LOSSES))
@settings(max_examples=60, deadline=None)
def test_it_rises_in_its_model_and_stays_a_dual_vector(
    seed: int, rows: int, directions: int, name: str
) -> None:
    loss = get_loss(name)
    labels, alpha, z, inside = problem(seed, rows, directions, loss)
    # Scores far from zero are brought nearer.
    z = np.clip(z, -1.0, 1.0) if name == "logistic" else z
    found = risen(loss, alpha, z, labels, inside, curvature=np.array([max(directions, 1.0)]))
    assert np.allclose(loss.project(found, labels), found, atol=1e-12)
    value, _ = model(loss, z, labels, inside, max(directions, 1.0))
    assert value(found, alpha) >= value(alpha, alpha) - 1e-9 * (1 + abs(value(alpha, alpha)))


def test_many_passes_come_to_what_scipy_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = get_loss("hinge")
    labels, alpha, z, inside = problem(1, 25, 6, loss)
    value, _ = model(loss, z, labels, inside, 6.0)
    found = alpha
    begun = alpha.copy()
    box = [(min(0.0, y), max(0.0, y)) for y in labels.tolist()]
    best = minimize(lambda a: -value(a, begun), begun, bounds=box, method="L-BFGS-B", tol=1e-14)
    found = risen(loss, alpha, z, labels, inside)
    # Ten passes are near, not there.
    assert value(found, begun) >= -best.fun - 0.05 * (-best.fun - value(begun, begun))
    assert value(found, begun) <= -best.fun + 1e-7


def test_a_cohort_ascends_alike_wherever_it_lies() -> None:
    loss = get_loss("hinge")
    labels, alpha, z, inside = problem(3, 40, 5, loss)
    cohorts = [slice(0, 13), slice(13, 14), slice(14, 40)]
    whole = risen(loss, alpha, z, labels, inside, cohort_start=np.array([0, 13, 14, 40]))
    for rows in reversed(cohorts):
        alone = risen(loss, alpha[rows], z[rows], labels[rows], inside[rows])
        assert alone.tobytes() == whole[rows].tobytes()
    assert risen(loss, alpha, z, labels, inside).tobytes() != whole.tobytes()


def test_samples_without_a_label_or_out_of_training_stay_and_move_nobody() -> None:
    loss = get_loss("hinge")
    labels, alpha, z, inside = problem(4, 30, 4, loss)
    used = np.arange(30) % 3 > 0
    found = risen(loss, alpha, z, labels, inside, used=used[:, None])
    assert (found[~used] == alpha[~used]).all()
    assert (found[used] != alpha[used]).any()
    alone = risen(loss, alpha[used], z[used], labels[used], inside[used])
    assert alone.tobytes() == found[used].tobytes()


def test_numbers_beyond_all_bounds_are_refused() -> None:
    loss = get_loss("hinge")
    labels, alpha, z, inside = problem(5, 8, 2, loss)
    with pytest.raises(ProtocolError, match=r"ascent\.basis"):
        risen(loss, alpha, z, labels, inside, basis=np.full((2, 2, 1), 1e300))


def vectors_of(b: Any) -> Any:
    """The coordinator's inner products of some vectors (columns × vectors × problems)."""
    return SimpleNamespace(gram=np.einsum("djp,dkp->jkp", b, b), count=b.shape[1])


def test_the_basis_is_orthonormal_and_spans_the_newest_vectors() -> None:
    random = np.random.default_rng(0)
    b = random.normal(size=(200, MOST_IN_BASIS + 6, 2)) * 10.0 ** random.uniform(
        -6, 6, (1, MOST_IN_BASIS + 6, 2)
    )
    # One more of what is there already, and nothing at all.
    b[:, 20] = 3.0 * b[:, 60]
    b[:, 30] = 0.0
    basis = basis_of_newest(vectors_of(b), MOST_IN_BASIS)
    assert basis.shape == (MOST_IN_BASIS, MOST_IN_BASIS, 2)
    for p in range(2):
        directions = b[:, -MOST_IN_BASIS:, p] @ basis[:, :, p]
        lengths = (directions**2).sum(axis=0)
        there = lengths > 0.5
        assert there.sum() == MOST_IN_BASIS - 2
        assert np.allclose(directions[:, there].T @ directions[:, there], np.eye(there.sum()))
        assert not lengths[~there].any()
        newest = b[:, -1, p]
        assert np.allclose(directions[:, 0], newest / np.linalg.norm(newest))


def test_whoever_gets_a_basis_can_work_out_the_inner_products() -> None:
    """So the documents say that a party with labels knows them."""
    b = np.random.default_rng(0).normal(size=(30, 12, 1))
    known = basis_of_newest(vectors_of(b), MOST_IN_BASIS)[:, :, 0]
    found = np.linalg.inv(known @ known.T)
    assert np.allclose(found, b[:, :, 0].T @ b[:, :, 0])


def test_many_problems_and_samples_get_a_smaller_basis() -> None:
    assert most_in_basis(10, 60_000) == MOST_IN_BASIS
    assert most_in_basis(110, 60_000) < MOST_IN_BASIS
    assert most_in_basis(1, 1_000_000) < MOST_IN_BASIS
    assert most_in_basis(10**6, 10**9) == 1


def nearest_row(ascend: Any, seed: int, scale: float) -> tuple[int, float]:
    """How near three vectors that are told, at points close together, come to one row.

    Each two of the vectors differ in enough samples, so that the guard lets them pass: how often it
    does is told first.
    """
    random = np.random.default_rng(seed)
    rows = random.standard_normal((500, 20))
    y = np.where(random.random(500) < 0.5, 1.0, -1.0)
    here, way = (rows @ random.standard_normal(20) * scale for _ in range(2))
    guard = SeenBatches(np.zeros(500, np.int64), 10, 1, (y > 0).astype(np.int64))
    guard.admit(y[:, None].copy())
    passed, best = 0, 0.0
    for t, step in [(t, step) for t in np.linspace(0.0, 0.2, 20) for step in (1e-4, 1e-2)]:
        made = [ascend(here + (t + s) * way, y, rows) for s in (-step, 0.0, step)]
        vectors = [np.round(a * 2**30)[:, None] / 2**30 for a in made]
        if any(guard.admit(a.copy()).any() for a in vectors):
            continue
        passed += 1
        b = rows.T @ (vectors[0] - 2.0 * vectors[1] + vectors[2])[:, 0]
        if np.linalg.norm(b) > 1e-7:
            cosine = np.abs(rows @ b) / np.linalg.norm(rows, axis=1) / np.linalg.norm(b)
            best = max(best, float(cosine.max()))
    return passed, best


def in_cohorts(name: str, share: float, curvature: float, directions: int) -> Any:
    def ascend(z: Any, y: Any, rows: Any) -> Any:
        basis = share * np.eye(directions)[:, :, None]
        length = np.array([curvature])
        some = rows[:, :directions]
        return risen(get_loss(name), 0.0 * z, z, y, some, basis=basis, curvature=length, least=10)

    return ascend


def test_three_steps_close_together_may_show_a_row_of_a_loss_with_a_kink() -> None:
    hinge = get_loss("hinge")

    def alone(z: Any, y: Any, rows: Any) -> Any:
        return hinge.dual_step(np.zeros((500, 1)), z[:, None], y[:, None], 30.0)[:, 0]

    assert max(nearest_row(alone, seed, 0.5)[1] for seed in range(2)) > 0.999
    together = in_cohorts("hinge", 0.05, 10.0, 6)
    assert max(nearest_row(together, seed, 0.5)[1] for seed in range(2)) > 0.999


@pytest.mark.parametrize("most", [3, 4, 7, 32])
def test_parties_of_few_samples_are_asked_for_few_losses(most: int) -> None:
    """However many ways losses are measured on: to stay and to go all the way are among them."""
    subspace: Any = SimpleNamespace(
        exchange=SimpleNamespace(problems=Problems(1)), width=1, groups=1, gaps=np.array([0.5])
    )
    beside = np.zeros((3, 2, 1))
    _, steps = CuttingPlanes(subspace, EAGER)._steps(beside)
    asked = thinned(steps, most)
    assert len(asked) <= most
    chosen = steps[asked][:, :, 0].tolist()
    assert [1.0, 0.0, 0.0, 0.0, 0.0] in chosen
    assert [0.0, 1.0, 0.0, 0.0, 0.0] in chosen


# ── in a federation ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("labelled", [300, 60], ids=["all labels everywhere", "some labels"])
def test_all_holders_of_a_cohort_make_the_same_vectors(labelled: int) -> None:
    """Else b is no Xᵀa, and D may come out above P*: here by columns, with labels by cohorts."""
    random = np.random.default_rng(2)
    block = random.standard_normal((300, 12))
    y = np.sign(block @ random.standard_normal(12) + 2 * random.logistic(size=300))
    ids = np.array([f"i{i}" for i in range(300)], dtype=object)
    names = np.array([f"x{j}" for j in range(12)], dtype=object)
    some = np.where(np.arange(300) < labelled, y, np.nan)

    def tile(columns: slice, labels: Any) -> tuple[Tile, ...]:
        return (Tile(ids, names[columns], block[:, columns].copy(), labels),)

    parties = {
        "p1": tile(slice(0, 8), some),
        "p2": tile(slice(8, 10), y),
        "p3": tile(slice(10, 12), y),
    }
    lam = 1e-3
    trained = Federation(
        parties, Preprocessing(intercept=False), terms=Terms(ciphers=("plain",), min_batch=10)
    ).train(
        Settings(
            lam=lam, loss="hinge", solver="span-newton", gap=1e-3, cipher="plain", iterations=25
        )
    )
    judge = LinearSVC(loss="hinge", C=1 / (lam * 300), fit_intercept=False, tol=1e-8)
    judge.set_params(dual=True, max_iter=300_000, random_state=0)
    w = judge.fit(block, y).coef_[0]
    best = np.maximum(1 - y * (block @ w), 0).mean() + 0.5 * lam * w @ w
    for record in trained.result.history:
        assert record.dual is not None
        assert record.primal is not None
        assert record.dual <= best * (1 + 1e-6) <= record.primal * (1 + 2e-6)
    if labelled == 300:
        assert trained.result.certificate.gap <= 1e-3


def ask(solver: str, loss: str, ascent: Any, *, keeps: bool = True) -> Any:
    """What a party says to a search with this ascent, after the first of a run."""
    asked: list[Any] = []

    def begin(half: Any, message: GatherRequest) -> None:
        gather(half, msgspec.structs.replace(message, keeps=keeps))

    def answer(half: Any, message: SearchRequest) -> None:
        if not asked:
            asked.append(message)
            base = message.ascent or Ascent(
                weights=np.zeros((1, half._problems.width)), curvature=np.ones(half._problems.width)
            )
            message = msgspec.structs.replace(
                message, ascent=msgspec.structs.replace(base, **ascent)
            )
        take(half, message)

    take, gather = SampleSide.take_search, SampleSide.take_gather
    with (
        patch.object(SampleSide, "take_search", answer),
        patch.object(SampleSide, "take_gather", begin),
        pytest.raises(ProtocolError) as said,
    ):
        Federation(SPLITS["grid"](load("digits"), k=2, q=2).parties).train(
            Settings(lam=1e-2, loss=loss, solver=solver, gap=1e-2, iterations=2)
        )
    return str(said.value)


@pytest.mark.parametrize(
    ("solver", "loss", "ascent", "why"),
    [
        ("span-newton", "hinge", {"basis": np.zeros((1, 0, 10))}, "no vectors"),
        ("span-newton", "hinge", {"basis": np.zeros((0, 1, 10))}, "no vectors"),
        ("span-newton", "hinge", {"basis": np.zeros((9, 9, 10))}, "more than are held"),
        ("span-newton", "hinge", {"basis": np.zeros((1, 1, 3))}, "does not hold the numbers"),
        ("span-newton", "hinge", {"basis": np.full((1, 1, 10), 1e300)}, "too large"),
        ("span-newton", "hinge", {"curvature": np.zeros(10)}, "curvature"),
        ("span-newton", "hinge", {"curvature": np.full(10, -1e308)}, "curvature"),
        ("span-newton", "hinge", {"weights": np.full((1, 10), -0.01)}, "no mixture"),
        ("span-newton", "hinge", {"weights": np.full((1, 10), 1.01)}, "no mixture"),
        ("cutting-planes", "hinge", {"basis": np.zeros((1, 1, 10))}, "of 'span-newton'"),
        ("lbfgs", "logistic", {}, "nobody agreed to"),
        ("span-newton", "squared_hinge", {}, "nobody agreed to"),
        ("span-newton", "logistic", {"basis": np.full((1, 1, 10), 1e300)}, "too large"),
        ("span-newton", "logistic", {"basis": None}, "is missing where the loss is smooth"),
    ],
)
def test_a_hostile_ascent_gets_a_sentence(
    solver: str, loss: str, ascent: dict[str, Any], why: str
) -> None:
    assert why in ask(solver, loss, ascent)


@pytest.mark.parametrize("solver", ["span-newton", "cutting-planes"])
def test_no_ascent_begins_from_dual_vectors_that_are_not_kept(solver: str) -> None:
    assert "are not kept in this run" in ask(solver, "hinge", {}, keeps=False)


def test_dual_vectors_are_kept_from_the_first_on_or_not_at_all() -> None:
    asked: list[Any] = []

    def late(half: Any, message: SearchRequest) -> None:
        asked.append(message)
        if len(asked) > 4:
            half._rows.mixtures.begin()
        take(half, message)

    take = SampleSide.take_search
    with (
        patch.object(SampleSide, "take_search", late),
        pytest.raises(ProtocolError, match="after the first dual vectors, or"),
    ):
        Federation(SPLITS["grid"](load("digits"), k=2, q=2).parties).train(
            Settings(lam=1e-2, loss="hinge", solver="span-newton", gap=1e-4, iterations=9)
        )
