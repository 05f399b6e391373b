"""Sealed training with an intercept that has no penalty: certified, and as scikit-learn has it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sealed_runs import COLUMNS, CUTS, NAMES, cut, held, optimum, table, train, weights
from sklearn.linear_model import LogisticRegression, Ridge

from covering import cover, every_value
from weft.errors import ConfigError, WeftError
from weft.estimators import HybridGLM
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.privacy.ledger.expected_exposure import outlook
from weft.privacy.ledger.expected_exposure_text import paragraphs
from weft.report.results_folder import write_results
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import coordinator_round_trips
from weft.solvers.secret_sharing.gram_matrix_with_error_bounds import VectorProducts
from weft.solvers.secret_sharing.lower_bound_from_cuts import Cut, CutBounds, Span


def uneven(loss, seed=0, rows=90):
    """A table whose columns and responses are far from centred; classes are three to one."""
    block, labels = table(seed, classes=0, rows=rows)
    block = block + 0.3 * np.arange(COLUMNS)
    if loss == "squared":
        return block, labels + 5.0
    return block, (labels > np.quantile(labels, 0.75)).astype(int)


def targets(labels, loss):
    return labels if loss == "squared" else 2.0 * labels - 1


def judged(trained, block, target, lam, loss, number=0):
    """The true gap, below the certified one; D is below P*, and P − P* below P − D."""
    certificate = trained.result.certificate
    primal, dual = certificate.primal[number], certificate.dual[number]
    best, value = optimum(block, target, lam, loss, free=True)
    w = np.append(weights(trained.model)[number], trained.model.intercept[number])
    best = min(best, value(w))
    assert dual <= best * (1 + 1e-9)
    assert value(w) - best <= (primal - dual) * (1 + 1e-9) + 1e-12
    return (value(w) - best) / value(w)


@cover(
    ("how", "loss"),
    [("grid", "logistic"), ("overlapping", "squared")],
    others=zip(CUTS, ["logistic", "squared"] * 2, strict=True),
)
def test_every_cut_gives_the_certified_optimum(how, loss):
    """Of an intercept; that every cut gives the optimum is in ``test_optimum.py`` too."""
    block, labels = uneven(loss)
    _, trained = train(cut(block, labels, CUTS[how]), loss=loss, free=True)
    judged(trained, held(block, CUTS[how]), targets(labels, loss), 1e-2, loss)
    assert trained.result.certificate.gap <= 1e-3


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_weights_are_scikit_learns_and_predicted_means_those_observed(loss):
    block, labels = uneven(loss)
    lam, n = 0.05, len(block)
    _, trained = train(
        cut(block, labels, CUTS["vertical"]), lam=lam, loss=loss, free=True, gap=1e-5
    )
    if loss == "squared":
        judge = Ridge(alpha=lam * n).fit(block, labels)
    else:
        judge = LogisticRegression(C=1 / (lam * n), tol=1e-10, max_iter=10_000).fit(block, labels)
    found = np.append(weights(trained.model), trained.model.intercept)
    np.testing.assert_allclose(found, np.append(judge.coef_, judge.intercept_), atol=5e-3)
    scores = block @ weights(trained.model)[0] + trained.model.intercept[0]
    predicted = scores if loss == "squared" else expit(scores)
    assert predicted.mean() == pytest.approx(labels.mean(), abs=1e-4)


def outliers(block):
    block[3] *= 50.0
    return block


HOSTILE = {
    "outliers": outliers,
    "a large column": lambda block: block * np.array([1e4] + [1.0] * (COLUMNS - 1)),
    "a constant column": lambda block: np.where(np.arange(COLUMNS) == 2, 3.0, block),
    "nothing": lambda block: block * 0.0,
    "all far away": lambda block: block + 20.0,
}


@every_value(harm=HOSTILE, lam=[1e-6, 1e-3, 1.0], loss=["logistic", "squared"])
def test_a_hostile_table_is_certified_truly_or_refused(harm, lam, loss):
    block, labels = uneven(loss, rows=40)
    block = HOSTILE[harm](block)
    how = {"a": [(slice(None), slice(0, 3))], "b": [(slice(None), slice(3, None), False)]}
    refused = ""
    try:
        _, trained = train(cut(block, labels, how), lam=lam, loss=loss, free=True, iterations=12)
    except ConfigError as error:
        refused = str(error)
    if refused:
        assert "sealed training" in refused
    else:
        judged(trained, block, targets(labels, loss), lam, loss)


def test_separable_and_rare_classes_end_with_a_true_certificate():
    block, labels = uneven("logistic")
    for some in (np.arange(len(block)) < 3, block[:, 0] > 1.5):
        labels = some.astype(int)
        tiles = cut(block, labels, CUTS["horizontal"])
        _, trained = train(tiles, lam=1e-4, free=True, iterations=15)
        judged(trained, block, 2.0 * labels - 1, 1e-4, "logistic")


def test_classes_paths_and_folds_have_free_intercepts_each():
    block, labels = table(classes=3)
    tiles = cut(block, labels, CUTS["vertical"])
    _, trained = train(tiles, lam=3e-2, path=(1e-1,), folds=2, free=True)
    assert all(stage.certificate.gap <= 1e-3 for stage in trained.result.stages)
    lam = trained.result.stages[trained.result.model_iteration].lam
    for number in range(3):
        judged(trained, block, np.where(labels == number, 1.0, -1.0), lam, "logistic", number)


def test_standard_errors_are_those_of_newtons_method():
    block, labels = uneven("logistic")
    # So that many samples are undecided: else parties keep the Hessian back.
    labels = np.where(np.arange(len(block)) % 4 == 0, 1 - labels, labels)
    lam, x = 1e-3, np.c_[block, np.ones(len(block))]
    tiles = cut(block, labels, CUTS["vertical"])
    _, trained = train(tiles, lam=lam, free=True, gap=1e-5, second_moments=("hessian",))
    held_back, w = np.diag([lam] * COLUMNS + [0.0]), np.zeros(COLUMNS + 1)
    for _ in range(40):
        p = expit(x @ w)
        hessian = x.T @ (x * (p * (1 - p))[:, None]) / len(x)
        w -= np.linalg.solve(hessian + held_back, x.T @ (p - labels) / len(x) + held_back @ w)
    errors = np.sqrt(np.diag(np.linalg.inv(len(x) * hessian)))
    moments = trained.second_moments
    order = [list(moments.names).index(name) for name in NAMES] + [COLUMNS]
    found = moments.hessian[0][np.ix_(order, order)]
    np.testing.assert_allclose(np.sqrt(np.diag(np.linalg.inv(len(x) * found))), errors, rtol=5e-4)
    ours = np.append(weights(trained.model), trained.model.intercept)
    assert np.abs((ours - w) / errors).max() < 1e-3


# ── what is told ──────────────────────────────────────────────────────────────────────────


def test_the_coordinator_learns_means_of_slopes_with_noise_and_no_other_entry(monkeypatch):
    told, add = [], coordinator_round_trips.add_shares

    def adding(replies, field, count, bits):
        found = add(replies, field, count, bits)
        if field == "products":
            told.append(found)
        return found

    monkeypatch.setattr(coordinator_round_trips, "add_shares", adding)
    block, labels = uneven("logistic")
    federation, _ = train(cut(block, labels, CUTS["vertical"]), free=True, gap=1e-2)
    half = federation.parties["a"]._half
    entries = half._vectors[0].public[0, :, 0]
    assert np.flatnonzero(entries).tolist() == [half._constant]
    # The first product of every vector: N times the mean slope; at w = 0 that of the labels.
    unit = float(entries[half._constant]) * 2.0**half._widths.vector
    first, expected = told[0][0] / unit, -(2.0 * labels - 1).sum() / 2
    assert first == pytest.approx(expected, abs=1e-6)
    assert first != expected


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_lone_label_holder_keeps_its_classes_to_itself(loss):
    """Σy² of a squared loss is told of a lone label holder anyway."""
    block, labels = uneven(loss)
    tiles = cut(block, labels, CUTS["vertical"])
    settings = Settings(lam=0.1, loss=loss, solver="sealed", penalize_intercept=False, gap=0.1)
    how = Preprocessing(intercept=True)
    if loss == "logistic":
        with pytest.raises(
            WeftError, match=r"party a: refuses an intercept .* only one with labels"
        ):
            Federation(tiles, how, terms=Terms(min_batch=4)).train(settings)
    else:
        Federation(tiles, how, terms=Terms(min_batch=4)).train(settings)
    allowed = Terms(min_batch=4, allow_lone_labels=True)
    assert Federation(tiles, how, terms=allowed).train(settings).result.certificate.gap <= 0.1


def test_a_coordinator_cannot_name_a_column_in_the_place_of_the_constant_one(monkeypatch):
    block, labels = uneven("logistic")
    begin = coordinator_round_trips.BeginRequest

    def lying(**fields):
        return begin(**{**fields, "constant": fields["constant"] - 1})

    monkeypatch.setattr(coordinator_round_trips, "BeginRequest", lying)
    with pytest.raises(WeftError, match="'constant' is not the column whose weight is free"):
        train(cut(block, labels, CUTS["vertical"]), free=True)


def test_a_family_trains_sealed():
    block, labels = uneven("logistic")
    model = HybridGLM("binomial", lam=0.05, privacy="sealed").fit(
        cut(block, labels, CUTS["vertical"])
    )
    assert model.solver_ == "sealed"
    assert model.gap_ <= 1e-3


def test_a_check_and_a_report_say_that_the_coordinator_learns_it(tmp_path):
    block, labels = uneven("logistic")
    _, trained = train(cut(block, labels, CUTS["vertical"]), free=True, gap=0.1)
    write_results(tmp_path, trained, trained.settings, name="a run")
    report = " ".join((tmp_path / "report.html").read_text().split())
    assert "the coordinator saw the mean of all slopes at every step" in report
    look = outlook(trained.holdings, trained.settings, Terms(), classes=2, mean_square=1.0)
    told = " ".join(line.strip() for line in paragraphs(look))
    assert "the mean of all slopes at every step" in told
    assert "no other weight of the model" in told


def test_the_best_intercept_is_where_cuts_may_say_even_if_they_are_off_as_far_as_allowed():
    """P has a valley from the best point to the optimum; beyond it a cut is off towards them."""
    lam, steep, best, narrow, off = 1e-6, 100.0, 6.0, 0.01, 1e-3

    def loss(w, intercept):
        return steep / 2 * (narrow * w + intercept - best) ** 2

    def gradient(w, intercept):
        return steep * (narrow * w + intercept - best) * np.array([narrow, 1.0])

    points = [(601.0, 0.0), (599.0, 0.0), (600.0, 0.0), (-600.0, 2 * best)]
    errors = [0.0, 0.0, 0.0, off]
    vectors = [np.array([0.0, 1.0])]
    products, cuts = VectorProducts(1.0), [None]
    for point, error in zip(points, errors, strict=True):
        vectors.append(gradient(*point) + np.array([error, 0.0]))
        row = np.array([vectors[-1] @ vector for vector in vectors])
        products.take(row, np.zeros(len(row)))
        share = point[0] / vectors[1][0]
        place = np.array([point[1] - share * vectors[1][1], share])
        cuts.append(Cut(loss(*point), 0.0, place, float(np.hypot(*point)), error))
    span = Span()
    # The least P is 0, at w = 0.
    assert CutBounds(products, cuts, lam, dual=0.0).lower(span) <= 1e-9
    assert span.low <= best <= span.high
