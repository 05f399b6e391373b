"""Newton's method in the span for the hinge loss, whose kink is rounded off on the way."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from weft.data import SPLITS, Table, Tile
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.losses import get_loss
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.cap_sample_share_of_moments import spread_weights
from weft.solvers.subspace.loss_points_and_directions_limit import weighing
from weft.solvers.subspace.messages import SearchRequest
from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide
from weft.solvers.subspace.span_newton_solver import SpanNewton

HOW = Preprocessing(intercept=True)
LAM = 1e-4
HINGE = get_loss("hinge")


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    # Columns of very different lengths: many iterations.
    block = random.standard_normal((2700, 12)) * np.geomspace(0.05, 2.0, 12)
    labels = np.where(block @ random.standard_normal(12) + random.logistic(size=2700) > 0, 1, -1)
    ids = np.arange(2700).astype(str).astype(object)
    features = np.array([f"x{j}" for j in range(12)], dtype=object)
    return Table(ids, features, block, labels, task="classification", name="lengths")


@pytest.fixture(scope="module")
def best(table):
    """P* by liblinear, on the pooled table with a constant column: an upper bound on it."""
    block = np.hstack([table.block, np.ones((len(table.block), 1))])
    model = LinearSVC(
        loss="hinge",
        dual=True,
        C=1.0 / (LAM * len(block)),
        fit_intercept=False,
        tol=1e-6,
        max_iter=200_000,
        random_state=0,
    )
    w = model.fit(block, table.labels).coef_[0]
    return float(np.maximum(1.0 - table.labels * (block @ w), 0.0).mean() + 0.5 * LAM * w @ w)


def trained(table, solver="span-newton", terms=None, **more):
    split = SPLITS["grid"](table, k=3, q=3)
    settings = Settings(**{"lam": LAM, "loss": "hinge", "solver": solver, "gap": 1e-3, **more})
    terms = terms or Terms(ciphers=(settings.cipher,), min_batch=1)
    return Federation(split.parties, HOW, terms=terms).train(settings)


@pytest.fixture(scope="module")
def everyone(table):
    return trained(table, cipher="pad")


def test_certificates_hold_at_every_iteration(everyone, best):
    assert everyone.result.certificate.gap <= 1e-3
    assert not any("instead" in note for note in everyone.result.notes)
    for record in everyone.result.history:
        assert record.dual <= best * (1 + 1e-9)
        assert record.primal >= best * (1 - 1e-5)
    (primal,) = everyone.result.certificate.primal
    assert primal == pytest.approx(best, rel=1e-3)


def test_it_is_the_same_model_where_parties_come_and_go(table, everyone):
    some = trained(table, cipher="pad", participation=0.5)
    np.testing.assert_array_equal(some.model.coef, everyone.model.coef)
    assert some.result.certificate == everyone.result.certificate


def test_it_takes_fewer_phases_than_cutting_planes(table, everyone):
    theirs = trained(table, "cutting-planes", cipher="plain")
    assert len(everyone.result.history) <= 0.7 * len(theirs.result.history)


def test_slopes_of_the_rounded_loss_are_those_of_its_value():
    """Against differences of g·log(1 + e^{(1 − yz)/g}), and within the domain of the hinge loss."""
    z, y, width = np.linspace(-3.0, 5.0, 41), np.array([[1.0], [-1.0]]), np.array([0.3])
    step = 1e-5

    def value(z):
        return width * np.logaddexp(0.0, (1.0 - y * z) / width)

    slope = (value(z - step) - value(z + step)) / (2 * step)
    np.testing.assert_allclose(HINGE.rounded_slope(z, y, width), slope, atol=1e-8)
    bend = (value(z - step) - 2 * value(z) + value(z + step)) / step**2
    np.testing.assert_allclose(HINGE.spread_curvature(z, y, width), bend, atol=1e-4)
    assert (np.abs(HINGE.conjugate(HINGE.rounded_slope(z, y, width), y)) <= 1.0).all()


def test_widths_grow_until_curvature_is_that_of_enough_samples():
    z = np.linspace(1.0, 2.0, 100)[:, None]
    labels, used, narrow = np.ones_like(z), np.ones((100, 1), bool), np.array([1e-9])
    weights = spread_weights(HINGE, z, labels, narrow, used, 40)
    assert 40 <= weights.sum() / weights.max() < 50
    # A width that is wide enough stays.
    wide = spread_weights(HINGE, z, labels, np.array([0.5]), used, 40)
    np.testing.assert_array_equal(wide, HINGE.spread_curvature(z, labels, np.array([0.5])))
    with pytest.raises(ProtocolError, match="second moments of too few samples"):
        spread_weights(HINGE, z, labels, narrow, used, 101)
    # Samples that a fold leaves out do not count.
    used[50:] = False
    assert not spread_weights(HINGE, z, labels, narrow, used, 40)[50:].any()
    with pytest.raises(ProtocolError, match="second moments of too few samples"):
        spread_weights(HINGE, z, labels, narrow, used, 51)


@pytest.mark.parametrize("far", [np.nan, np.inf])
def test_no_width_is_looked_for_where_scores_are_not_finite(far):
    """A width that grows until samples lie within it would do so for ever."""
    z = np.full((9, 1), far)
    with pytest.raises(ProtocolError, match="scores are not finite"):
        spread_weights(HINGE, z, np.ones_like(z), np.array([1.0]), np.ones((9, 1), bool), 5)


def test_widths_fall_no_further_than_rounding_can_cost():
    """Vectors that guards hold back lose more than that, at any width: it must not fall to zero."""
    gap, primal = 1e-3, np.array([1.0])
    exchange = SimpleNamespace(settings=SimpleNamespace(gap=gap), rounding=np.array([1.0]))
    subspace = SimpleNamespace(
        exchange=exchange,
        primal=primal,
        dual=primal * (1.0 - gap),
        offsets=np.array([[0.0]]),
        padded=lambda at: at,
        unit=lambda vector: vector,
        inner=lambda vector, at: np.zeros(1),
    )
    solver = SpanNewton.__new__(SpanNewton)
    solver._subspace, solver._at, solver._guessed = subspace, np.zeros(1), np.array([0.5])
    for _ in range(2000):
        solver._sharpen(0)
    (width,) = exchange.rounding
    distance = np.linspace(0.0, 50.0, 100_001) * width
    costs = distance / (1.0 + np.exp(distance / width))
    assert 0.05 * gap < width < gap
    assert costs.max() < 0.1 * gap


def few_directions(monkeypatch):
    """Moments of four vectors are enough, so that a small table has samples for them."""
    for room in ("coordinator_of_lambda_path", "loss_points_and_directions_limit"):
        monkeypatch.setattr(f"weft.solvers.subspace.{room}.LEAST_DIRECTIONS", 4)
    monkeypatch.setattr("weft.solvers.subspace.span_newton_solver._BETWEEN_DROPS", 1)


@pytest.mark.parametrize(("solver", "kept"), [("span-newton", True), ("cutting-planes", False)])
def test_vectors_of_samples_that_no_other_party_sees_are_kept_apart(
    table, monkeypatch, solver, kept
):
    """The coordinator has their inner products, and slopes at two widths may differ in a sample."""
    few_directions(monkeypatch)
    sides = {}
    collect = SampleSide._collect

    def noted(self, *given, **how):
        collect(self, *given, **how)
        sides[id(self)] = self, self.duals[:, :1].copy()

    monkeypatch.setattr(SampleSide, "_collect", noted)
    # Each has rows and columns that no other has.
    corners = {}
    for n, name in enumerate(("east", "north", "west")):
        rows, columns = slice(900 * n, 900 * n + 900), slice(4 * n, 4 * n + 4)
        cells = table.block[rows, columns]
        tile = Tile.make(table.ids[rows], table.features[columns], cells, table.labels[rows])
        corners[name] = (tile,)
    how = Preprocessing(confirmed=ONE_TABLE, confirm_separate_ids=True)
    settings = Settings(lam=LAM, loss="hinge", solver=solver, gap=1e-3, iterations=4)
    Federation(corners, how, terms=Terms(ciphers=("pad",), min_batch=2)).train(settings)
    assert len(sides) == 3
    for side, before in sides.values():
        assert (side.guard is not None) == kept
        if kept:
            # One sample alone is held back; what changes in most of them passes.
            alone, most = before.copy(), before.copy()
            alone[40], most[10:] = 0.5 * before[40], 0.5 * before[10:]
            tried = most.copy()
            side.guard.keep(alone, None)
            side.guard.keep(tried, None)
            assert (alone != before).sum() != 1
            np.testing.assert_array_equal(tried, most)


def test_a_coordinator_that_asks_for_next_to_no_width_gets_moments_of_enough_samples(
    table, best, monkeypatch
):
    """They have as much curvature as ``min_batch`` samples for every moment could have at most."""
    seen = []

    def kept(*given):
        found = spread_weights(*given)
        seen.append((found.sum() / found.max(), given[-1]))
        return found

    monkeypatch.setattr("weft.solvers.subspace.party_sample_values.spread_weights", kept)
    few_directions(monkeypatch)
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_round_trips.SearchRequest",
        lambda **fields: SearchRequest(**{**fields, "rounding": np.array([1e-9])}),
    )
    terms = Terms(ciphers=("plain",), min_batch=2)
    run = trained(table, cipher="plain", terms=terms, iterations=4)
    assert all(record.dual <= best for record in run.result.history)
    assert len(seen) >= 6
    for heavy, least in seen:
        assert heavy >= least >= 2


def test_few_samples_next_to_the_kink_leave_it_to_cutting_planes(table, best, monkeypatch):
    """Three cuts an iteration at most, where one is usual."""
    cuts = []

    def noted(**fields):
        cuts.append(len(fields["at"]))
        return SearchRequest(**fields)

    monkeypatch.setattr("weft.solvers.subspace.coordinator_round_trips.SearchRequest", noted)
    run = trained(table, cipher="plain", terms=Terms(ciphers=("plain",), min_batch=2), gap=0.1)
    assert any("directions come from cutting planes" in note for note in run.result.notes)
    assert set(cuts) == {3}
    assert run.result.certificate.gap <= 0.1
    assert all(record.dual <= best * (1 + 1e-9) for record in run.result.history)
    settings = Settings(lam=LAM, loss="hinge")
    assert [weighing(settings, n) for n in (0, 1, 900)] == [0, 1, 56]


@pytest.mark.parametrize("width", [0.0, -1.0, np.inf, np.nan])
def test_a_party_refuses_widths_that_are_none(table, monkeypatch, width):
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_round_trips.SearchRequest",
        lambda **fields: SearchRequest(**{**fields, "rounding": np.array([width])}),
    )
    with pytest.raises(ProtocolError, match="width below 1e-20"):
        trained(table, cipher="plain")


def test_parties_of_another_solver_round_nothing_off(table, monkeypatch):
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_round_trips.SearchRequest",
        lambda **fields: SearchRequest(**{**fields, "rounding": np.array([1.0])}),
    )
    with pytest.raises(ProtocolError, match="is for 'span-newton'"):
        trained(table, "cutting-planes", cipher="plain")


def test_parties_round_nothing_off_where_samples_weigh_unlike(table, monkeypatch):
    """A coordinator that says nothing against weights: one sample could be most of the moments."""
    monkeypatch.setattr("weft.federation.coordinator.check_samples", lambda *_: None)
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_of_lambda_path._why_no_moments", lambda *_: ""
    )
    with pytest.raises(ProtocolError, match="do not weigh the same"):
        trained(table, cipher="plain", class_weight={"-1": 1.0, "1": 1e4})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"loss": "absolute"}, "has a kink; use 'cutting-planes'"),
        ({"penalize_intercept": False}, "penalises the intercept of loss 'hinge'"),
        ({"class_weight": "balanced"}, "lets all samples weigh the same"),
    ],
)
def test_what_is_not_rounded_off_is_refused(table, more, why):
    with pytest.raises(ConfigError, match=why):
        trained(table, cipher="plain", **more)
