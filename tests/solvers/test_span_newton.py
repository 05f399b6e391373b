"""Newton's method in the span of all vectors: certified, in fewer phases than L-BFGS."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from weft.data import SPLITS, Table, Tile
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.privacy.ledger.expected_exposure import forecast
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.loss_points_and_directions_limit import (
    MOST_DIRECTIONS,
    most_directions,
    weighing,
)
from weft.solvers.subspace.messages import SearchRequest
from weft.solvers.subspace.party_sample_values import Rows

HOW = Preprocessing(intercept=True)
LAM = 1e-4


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    # Columns of very different lengths: many iterations.
    block = random.standard_normal((3900, 20)) * np.geomspace(0.05, 2.0, 20)
    labels = np.where(block @ random.standard_normal(20) + random.logistic(size=3900) > 0, 1, -1)
    ids = np.arange(3900).astype(str).astype(object)
    features = np.array([f"x{j}" for j in range(20)], dtype=object)
    return Table(ids, features, block, labels, task="classification", name="lengths")


@pytest.fixture(scope="module")
def best(table):
    """P* by scipy, on the pooled table with a constant column."""
    block = np.hstack([table.block, np.ones((len(table.block), 1))])

    def value(w):
        margins = table.labels * (block @ w)
        slope = -(block.T @ (table.labels * expit(-margins))) / len(block) + LAM * w
        return np.logaddexp(0.0, -margins).mean() + 0.5 * LAM * w @ w, slope

    found = minimize(value, np.zeros(21), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    return found.fun


def trained(table, solver, least=2, **more):
    split = SPLITS["grid"](table, k=3, q=3)
    settings = Settings(lam=LAM, loss="logistic", solver=solver, **{"gap": 1e-5, **more})
    # Of few samples, few second moments are told.
    terms = Terms(ciphers=(settings.cipher,), min_batch=least)
    return Federation(split.parties, HOW, terms=terms).train(settings)


def test_certificates_hold_at_every_iteration_where_one_of_nine_comes(table, best):
    run = trained(table, "span-newton", participation=0.12, gap=1e-3)
    assert run.result.certificate.gap <= 1e-3
    for record in run.result.history:
        primal, dual = record.primal, record.dual
        assert dual <= best * (1 + 1e-9)
        assert primal >= best * (1 - 1e-9)
    (primal,) = run.result.certificate.primal
    assert primal == pytest.approx(best, rel=1e-3)


@pytest.mark.release
def test_it_takes_fewer_phases_than_lbfgs(table):
    ours, theirs = (trained(table, s, cipher="plain") for s in ("span-newton", "lbfgs"))
    assert ours.result.certificate.gap <= 1e-5
    assert len(ours.result.history) <= 0.7 * len(theirs.result.history)


def notes_of(table, participation=0.5, loss="logistic", how=HOW, named="auto", **more):
    """The first note of a run that chooses its solver, or has it named, and its coefficients."""
    parties = more.pop("parties", None) or SPLITS["grid"](table, k=3, q=3).parties
    agreed = {"min_batch": 2, "allow_exposure": True} | more.pop("terms", {})
    settings = Settings(
        lam=LAM, loss=loss, solver=named, participation=participation, gap=0.1, cipher="plain"
    )
    terms = Terms(ciphers=("plain",), **agreed)
    run = Federation(parties, how, terms=terms).train(msgspec.structs.replace(settings, **more))
    return run.result.notes[0] if run.result.notes else "", run.model.coef


def test_auto_takes_it_where_parties_come_and_go_and_have_many_samples(table):
    said, found = notes_of(table)
    assert said.startswith("solver: span-newton, since parties come and go")
    assert (found == notes_of(table, named="span-newton")[1]).all()


def test_samples_of_one_party_alone_count(table):
    said, _ = notes_of(table, parties=SPLITS["grid"](table, k=3, q=1).parties)
    assert said.startswith("solver: span-newton")


def test_auto_leaves_it_where_one_party_counts_few_samples_of_its_own(table):
    """Moments would not be told then, and there would be nothing to say about them."""
    held = dict(SPLITS["grid"](table, k=3, q=3).parties)
    whole = table.to_tile()
    random = np.random.default_rng(0)
    few = [Tile.make(
        [str(90000 + row) for row in range(50)], whole.features.tolist(),
        random.standard_normal((50, 20)), random.choice([-1, 1], 50),
    )]  # fmt: skip
    how = Preprocessing(intercept=True, confirm_separate_ids=True, confirmed=ONE_TABLE)
    said, _ = notes_of(table, parties={**held, "few": few}, how=how)
    assert said.startswith("solver: lbfgs")


def test_why_it_is_not_sealed_is_told_before(table):
    said, _ = notes_of(table, mode="auto")
    assert said.startswith("mode: sums, since sealed training does not do this: cipher 'plain'")
    assert "weights. solver: span-newton, since parties come and go" in said


@pytest.mark.parametrize(
    "more",
    [
        {"participation": "everyone"},
        {"terms": {"min_batch": 10}},
        # Of many sums nobody may get as many as it lacks columns.
        {"terms": {"allow_exposure": False}},
        {"path": (1e-2,), "folds": 2},
        {"loss": "squared_hinge"},
    ],
)
def test_auto_leaves_it_where_it_would_tell_too_much(table, more):
    said, _ = notes_of(table, **more)
    assert said.startswith("solver: lbfgs")


@pytest.mark.parametrize(("samples", "instead"), [(200, "L-BFGS"), (1400, "cutting planes")])
def test_small_tables_tell_no_second_moments(tables, samples, instead):
    split = SPLITS["grid"](tables.digits(samples), k=2, q=2)
    settings = Settings(lam=1e-2, loss="logistic", solver="span-newton", gap=1e-2, cipher="plain")
    messages = []
    federation = Federation(
        split.parties,
        HOW,
        terms=Terms(ciphers=("plain",), allow_pairs=True),
        record=messages.append,
    )
    run = federation.train(settings)
    assert any(f"directions come from {instead}" in note for note in run.result.notes)
    searches = [m for m in messages if m.phase == "subspace.search"]
    assert searches
    for search in searches:
        assert search.reply["losses"]
        assert not search.message.get("moments")
        assert not search.reply.get("moments")


@pytest.mark.parametrize(
    ("samples", "least", "vectors"),
    [(0, 10, MOST_DIRECTIONS), (100, 1, MOST_DIRECTIONS), (100, 10, 4), (99, 10, 3), (10, 10, 1)],
)
def test_moments_are_no_more_than_samples_allow(samples, least, vectors):
    assert most_directions(samples, least) == vectors
    if samples and least > 1:
        assert vectors * (vectors + 1) / 2 <= samples / least


def test_a_party_refuses_moments_of_more_vectors(table, monkeypatch):
    """A coordinator that reckons with min_batch = 1 is refused by parties that do not."""
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_state_between_round_trips.most_directions",
        lambda samples, least: 64,
    )
    limit = "weft.solvers.subspace.party_span_newton_answers.most_directions"
    monkeypatch.setattr(limit, lambda *_: 3)
    with pytest.raises(ProtocolError, match="second moments of 5 vectors, which are too many"):
        trained(table, "span-newton", cipher="plain")


def test_parties_of_another_solver_tell_no_moments(tables, monkeypatch):
    """Asked for by a coordinator that lies about what was agreed on."""
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_round_trips.SearchRequest",
        lambda **fields: SearchRequest(**{**fields, "moments": True}),
    )
    split = SPLITS["grid"](tables.digits(200), k=2, q=2)
    settings = Settings(lam=1e-2, loss="logistic", solver="lbfgs", gap=1e-2, cipher="plain")
    with pytest.raises(ProtocolError, match="second moments, which are told with 'span-newton'"):
        Federation(split.parties, HOW).train(settings)


def test_moments_are_those_of_the_products(table, monkeypatch):
    """Without guards, against products formed from the pooled table at the point guessed."""
    seen = []
    told = Rows.moments

    def kept(self, step):
        found = told(self, step)
        z = self._mixed(np.stack([1.0 - step, step]))
        seen.append((self, z.copy(), [v.copy() for v in self.vectors._held], found))
        return found

    monkeypatch.setattr(Rows, "moments", kept)
    trained(table, "span-newton", least=1, cipher="plain", iterations=3)
    rows, z, vectors, found = seen[-1]
    chosen = rows._counted
    slope = expit(z[chosen, 0]) * expit(-z[chosen, 0])
    columns = np.stack([v[chosen, 0] for v in vectors], axis=1)
    wanted = np.einsum("i,ij,ik->jk", slope, columns, columns) / 3900
    np.testing.assert_allclose(found[:, 0], wanted[np.triu_indices(len(vectors))], rtol=1e-9)


@pytest.mark.parametrize(
    ("more", "trained"),
    [({}, 6000), ({"folds": 2}, 3000), ({"evaluation": EvaluationSettings(held_out=0.25)}, 4500)],
)
def test_moments_are_no_more_than_samples_that_are_trained_on_allow(more, trained):
    """Half of those, so that far from zero scores need not weigh all alike."""
    assert weighing(Settings(lam=LAM, loss="logistic", **more), 6000) == trained // 2


@pytest.mark.parametrize(("least", "planes", "above"), [(2, False, 6), (10, True, 3)])
def test_about_as_many_sums_are_forecast_as_it_takes(table, least, planes, above):
    """Forecasts are for cutting planes: how many second moments are told, they do not know."""
    settings = Settings(lam=1e-3, loss="logistic", solver="span-newton", gap=1e-3)
    terms = Terms(min_batch=least)
    federation = Federation(SPLITS["grid"](table, k=3, q=3).parties, HOW, terms=terms)
    run = federation.train(settings)
    assert any("cutting planes" in note for note in run.result.notes) == planes
    counters = [party.sum_counter for party in federation.parties.values()]
    received = max(int(counter.received.max(initial=0)) for counter in counters)
    squares = sum(float(party.data.table.squares.sum()) for party in federation.parties.values())
    ahead = forecast(run.settings, classes=1, mean_square=squares / 3900, unit_rows=False)
    assert received <= ahead.likely <= above * received
