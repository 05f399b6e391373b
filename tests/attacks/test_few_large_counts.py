"""Few counts that are not as the others, for readers of a sealed Poisson model.

That there are some is admitted; whose they are is not told.

Counts are 0 and 1 but for two samples. Readers have Σy, Σ log y! and the mean loss, and from the
Hessian and its gradient Σ yz: so Σ y log y, to which counts of 0 and 1 add nothing, as they do to
Σ log y!. Few ways to have counts above one fit two such sums.

Where counts are all the same but for two, who has all columns knows all means: λN w = Xᵀ(y − μ)
is the sum of two rows, and few pairs add up to it.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, xlogy
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge

from weft.data.tile import Tile
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.privacy.ledger.earlier_sealed_models_and_moments import NumberMemory, judge_once
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import party
from weft.solvers.secret_sharing.label_telling_model_guard import refuse_standing_out
from weft.solvers.secret_sharing.responses_unexplained_by_own_columns import Responses, unexplained

ROWS = 420
TERMS = Terms(allow_second_moments=True, allow_pairs=True, allow_rare_pairs=True)


def test_sums_of_counts_tell_of_two_samples_with_large_ones():
    rng = np.random.default_rng(4)
    block = rng.normal(size=(ROWS, 2))
    labels = (rng.random(ROWS) < 0.6).astype(float)
    labels[:2] = 2.0, 3.0
    ids = [f"i{n}" for n in range(ROWS)]
    tiles = {
        "a": [Tile.make(ids, ["x"], block[:, :1], labels)],
        "b": [Tile.make(ids, ["y"], block[:, 1:], None)],
    }
    asked = Settings(
        loss="poisson",
        lam=1e-5,
        gap=1e-9,
        iterations=10,
        penalize_intercept=False,
        solver="sealed",
        second_moments=("hessian",),
    )
    trained = Federation(tiles, Preprocessing(intercept=True), terms=TERMS).train(asked)
    moments, model = trained.second_moments, trained.model
    weights = np.append(model.coef[0], model.intercept[0])
    crossed = weights @ (moments.hessian[0][:, -1] - moments.gradient[0])
    loss = trained.result.certificate.measured[0].mean
    entropy = ROWS * (loss - moments.hessian[0][-1, -1] + crossed) + moments.label_sum

    def off(how_many):
        large = np.repeat([2.0, 3.0, 4.0, 5.0], how_many)
        told = xlogy(large, large).sum() - entropy, gammaln(large + 1).sum() - moments.factorials
        return np.hypot(*told)

    ways = sorted(product(range(5), repeat=4), key=off)
    assert ways[0] == (1, 1, 0, 0)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_a_model_would_tell_whose_counts_are_not_as_all_others(loss):
    rows, lam = 600, 1e-2
    rng = np.random.default_rng(0)
    block = rng.uniform(-1.7, 1.7, size=(rows, 2))
    rare = np.sort(rng.choice(rows, 2, replace=False))
    labels = np.ones(rows)
    labels[rare] = 2.0
    ids = [f"i{n}" for n in range(rows)]
    tiles = {
        "reader": [Tile.make(ids, ["a", "b"], block)],
        "labels": [Tile.make(ids, [], np.zeros((rows, 0)), labels)],
    }
    asked = Settings(
        loss=loss,
        lam=lam,
        gap=1e-6,
        iterations=40,
        penalize_intercept=False,
        solver="sealed",
        second_moments=("hessian",),
    )
    how = Preprocessing(intercept=True, scaling="none")
    with pytest.raises(WeftError, match="refuses a sealed model of responses that are alike but"):
        Federation(tiles, how, terms=TERMS).train(asked)
    federation, x = Federation(tiles, how, terms=OPEN), np.column_stack([block, np.ones(rows)])
    # Sealed models have noise of their own, now and then much: of 179,700 pairs the true one was
    # the best in 60 of 76 models of gamma, the 85th in the worst.
    assert any(
        pairs_that_fit_better(rare, x, federation.train(asked).model, lam) < 100 for _ in range(3)
    )


def pairs_that_fit_better(rare, x, model, lam):
    """How many pairs explain a model better than the two that have other labels."""
    weights = np.append(model.coef[0], model.intercept[0])
    means, held = np.exp(x @ weights), len(x) * lam * np.append(weights[:-1], 0.0)
    # What a sample adds if its label is two, and what all have to add up to.
    adds, told = x, x.T @ (means - 1) + held
    if model.loss == "gamma":
        adds, told = x / means[:, None], x.T @ (1 - 1 / means) + held
    one, other = np.triu_indices(len(x), 1)
    off = np.abs(adds[one] + adds[other] - told).max(axis=1)
    return (off < off[(one == rare[0]) & (other == rare[1])]).sum()


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        (np.r_[np.zeros(600), 2000.0, np.arange(10.0)], True),
        (np.r_[np.ones(600), [2.0] * 9], True),
        (np.r_[np.ones(600), [2.0] * 10], False),
        (np.ones(600), False),
        (np.random.default_rng(0).lognormal(0.0, 1.5, 600), False),
        (np.random.default_rng(0).poisson(0.05, 600), False),
        (np.zeros(0), False),
    ],
)
def test_few_responses_must_not_have_nearly_all(values, refused):
    """One of 2,000 made the model its row: a correlation of 0.997 with five columns of another."""
    if not refused:
        refuse_standing_out(values, "responses", 10)
        return
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(values, "responses", 10)
    refuse_standing_out(values, "responses", 1)


def slopes(values, cells, weights, least, penalty=0.0, loss="squared", offsets=None):
    offsets = np.zeros(len(values)) if offsets is None else offsets
    left = next(unexplained(Responses(values, cells, weights, offsets, loss), least, penalty))
    return left.slopes, left.falls


def hidden(rows=600, which=7):
    """Responses that a column explains but for noise, and for one that is far off."""
    rng = np.random.default_rng(0)
    column, noise = rng.normal(size=(rows, 1)), 0.3 * rng.normal(size=rows)
    noise[which] += 60.0
    return column, 50.0 * column[:, 0] + noise, noise


def test_what_own_columns_and_weights_leave_must_not_stand_out_either():
    column, responses, noise = hidden()
    alike = np.ones(len(noise))
    refuse_standing_out(responses, "responses", 10)
    expected = noise - np.polyval(np.polyfit(column[:, 0], noise, 1), column[:, 0])
    # A column twice, and one whose numbers are large: what they leave is the same.
    for cells in (column, np.column_stack([column, column, 1e6 + 1e3 * column])):
        left, _ = slopes(responses, cells, alike, 10)
        np.testing.assert_allclose(left, -expected, atol=1e-6)
        with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
            refuse_standing_out(left, "responses", 10)
    # Sixty more are as far off, but hardly count.
    weights, many = alike.copy(), noise.copy()
    weights[300:360], many[300:360] = 1e-3, 60.0
    root = np.sqrt(weights)
    line = np.polyval(np.polyfit(column[:, 0], many, 1, w=root), column[:, 0])
    left, _ = slopes(many, column, weights, 10)
    np.testing.assert_allclose(left, (line - many) * weights, atol=1e-9)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(left, "responses", 10)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(many, "responses", 10, weights)
    refuse_standing_out(slopes(many, column, alike, 10)[0], "responses", 10)
    # Of responses that columns explain wholly nothing is left, and no rounding of them.
    assert not slopes(3.0 + 50.0 * column[:, 0], column, alike, 10)[0].any()


@pytest.mark.parametrize("far_off", [(7,), (7, 100), (7, 100, 200, 300, 400)])
@pytest.mark.parametrize("differs", [True, False])
def test_own_columns_must_not_take_a_part_of_what_stands_out(far_off, differs):
    """A column that differs there, or ninety that say nothing: the model is these rows, to 0.99."""
    rng, rows, apart = np.random.default_rng(1), 600, np.zeros(600)
    apart[list(far_off)] = 60.0 * (-1.0) ** np.arange(len(far_off))
    column, noise = rng.normal(size=(rows, 1)), 0.3 * rng.normal(size=rows)
    small = 0.01 * rng.normal(size=rows) + apart / 500
    cells = np.column_stack([column, small if differs else rng.normal(size=(rows, 90))])
    one = np.ones(rows)
    left, without = slopes(50.0 * column[:, 0] + noise + apart, cells, one, 10)
    refuse_standing_out(left, "responses", 10)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(left, "responses", 10, without=without)
    kept = apart == 0
    again, usual = slopes(50.0 * column[kept, 0] + noise[kept], cells[kept], one[kept], 10)
    assert left @ left - again @ again == pytest.approx(without[len(far_off) - 1])
    refuse_standing_out(again, "responses", 10, without=usual)


@pytest.mark.parametrize("lam", [1e-3, 1e-2])
def test_own_columns_that_a_penalised_model_hardly_uses_hide_nothing(lam):
    """A column of one sample explains its response by a weight that a penalty forbids."""
    rng, rows, which = np.random.default_rng(2), 600, 7
    others, noise = rng.normal(size=(rows, 5)), 0.1 * rng.normal(size=rows)
    noise[which] += 60.0
    level, flag = (np.arange(rows) < 300) * 1.0, 1e-3 * rng.normal(size=rows)
    flag[which] += 1.0
    own = np.column_stack([level, flag])
    responses, one, penalty = noise + 10 * level, np.ones(rows), lam * rows
    left, without = slopes(responses, own, one, 10)
    refuse_standing_out(left, "responses", 10, without=without)
    judge = Ridge(alpha=penalty).fit(own, responses)
    left, without = slopes(responses, own, one, 10, penalty)
    np.testing.assert_allclose(left, judge.predict(own) - responses, atol=1e-9)
    model = Ridge(alpha=penalty).fit(np.column_stack([own, others]), responses).coef_[2:]
    row = (others - others.mean(axis=0))[which]
    assert model @ row > 0.95 * np.linalg.norm(model) * np.linalg.norm(row)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(left, "responses", 10, without=without)
    kept = np.arange(rows) != which
    again, usual = slopes(responses[kept], own[kept], one[kept], 10, penalty)
    refuse_standing_out(again, "responses", 10, without=usual)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
@pytest.mark.parametrize("explained", ["by an offset", "by a column"])
def test_counts_and_amounts_are_judged_by_what_is_left_of_them(loss, explained):
    """The model of another's columns was that sample's row, to 0.97 and 0.99."""
    rng, rows, lam = np.random.default_rng(0), 600, 1e-2
    scores = rng.normal(0.0, 1.2, rows)
    means = 5 * np.exp(scores)
    usual = rng.poisson(means) + 0.0 if loss == "poisson" else means * rng.gamma(5, 0.2, rows)
    responses, which = usual.copy(), int(np.argsort(scores)[60])
    responses[which] += np.sqrt(60 * means.sum()) if loss == "poisson" else 150 * means[which]
    own = scores[:, None] if explained == "by a column" else np.zeros((rows, 0))
    offsets = np.zeros(rows) if own.size else scores
    one = np.ones(rows)
    refuse_standing_out(responses, "responses", 10)
    found = slopes(responses, own, one, 10, lam * rows, loss, offsets)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(found[0], "responses", 10, without=found[1])
    found = slopes(usual, own, one, 10, lam * rows, loss, offsets)
    refuse_standing_out(found[0], "responses", 10, without=found[1])
    # The judge: scikit-learn's, of responses by their offsets.
    kind = PoissonRegressor if loss == "poisson" else GammaRegressor
    times = np.exp(offsets) if loss == "poisson" else one
    fit = kind(alpha=lam * rows / times.sum(), tol=1e-10, max_iter=10_000)
    block = own if own.size else np.zeros((rows, 1))
    mean = fit.fit(block, usual / np.exp(offsets), times).predict(block) * np.exp(offsets)
    expected = mean - usual if loss == "poisson" else 1 - usual / mean
    np.testing.assert_allclose(found[0], expected, atol=1e-4 * np.abs(expected).max())


def judged(given, penalty, shared=()):
    for left in unexplained(given, 10, penalty, shared):
        falls = None if given.loss == "logistic" else left.falls
        refuse_standing_out(left.slopes, "responses", 10, without=falls)


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_labels_that_own_columns_tell_but_for_few_are_refused(wrong):
    """One of 600 that is on the other side, by a column with a gap: its row to 0.96 to 0.99."""
    rng, rows, lam = np.random.default_rng(0), 600, 1e-3
    labels = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    own = 3 * (labels * (1 + np.abs(rng.normal(size=rows))))[:, None]
    labels[:wrong] *= -1
    given = Responses(labels, own, np.ones(rows), np.zeros(rows), "logistic")
    left = next(unexplained(given, 10, lam * rows))
    fit = LogisticRegression(C=1 / (lam * rows), tol=1e-10).fit(own, labels)
    expected = fit.predict_proba(own)[:, 1] - (labels > 0)
    np.testing.assert_allclose(left.slopes, expected, atol=1e-5)
    if not wrong:
        judged(given, lam * rows)
        return
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        judged(given, lam * rows)


def test_usual_labels_are_not_refused():
    cancer = load_breast_cancer()
    cells = (cancer.data - cancer.data.mean(axis=0)) / cancer.data.std(axis=0)
    labels, rows = np.where(cancer.target > 0, 1.0, -1.0), len(cells)
    for some in (slice(0, 1), slice(0, 10), slice(None)):
        given = Responses(labels, cells[:, some], np.ones(rows), np.zeros(rows), "logistic")
        for lam in (1e-5, 1e-2):
            judged(given, lam * rows, range(len(cells[0, some])))


@pytest.mark.parametrize("far_off", [1, 3])
def test_a_column_that_others_have_too_explains_nothing_that_only_own_samples_have(far_off):
    """Elsewhere it is usual, and its weight is that of all: rows to 0.97 to 0.99."""
    rng, rows = np.random.default_rng(0), 300
    known, column = rng.normal(size=rows), 0.02 * rng.normal(size=rows)
    responses = 10 * known + 0.2 * rng.normal(size=rows)
    column[:far_off], cells = 3.0, np.zeros((rows, 2))
    responses[:far_off] += 30.0
    cells[:, 0], cells[:, 1] = known, column
    given = Responses(responses, cells, np.ones(rows), np.zeros(rows), "squared")
    judged(given, 1e-3 * rows)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        judged(given, 1e-3 * rows, [1])
    # What is left without it is what a fit of the other leaves.
    _, without = unexplained(given, 10, 1e-3 * rows, [1])
    fit = Ridge(alpha=1e-3 * rows).fit(cells[:, :1], responses)
    np.testing.assert_allclose(without.slopes, fit.predict(cells[:, :1]) - responses, atol=1e-6)
    usual = Responses(
        responses, rng.normal(size=(rows, 2)), np.ones(rows), np.zeros(rows), "squared"
    )
    judged(usual, 1e-3 * rows, [0, 1])


def test_columns_that_are_alike_explain_nothing_each_without_the_other():
    """Two that others have too, both far off in one own sample: its row to 0.95 to 0.99."""
    rng, rows = np.random.default_rng(0), 300
    cells = np.column_stack([rng.normal(size=rows), 0.02 * rng.normal(size=(rows, 2))])
    responses = 10 * cells[:, 0] + 0.2 * rng.normal(size=rows)
    cells[0, 1:], responses[0] = (3.0, -2.5), responses[0] + 30.0
    given = Responses(responses, cells, np.ones(rows), np.zeros(rows), "squared")
    for one in (1, 2):
        judged(given, 1e-3 * rows, [one])
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        judged(given, 1e-3 * rows, [1, 2])
    # What is left is what a fit leaves whose two weights say nothing of that sample together.
    *_, left = unexplained(given, 10, 1e-3 * rows, [1, 2])
    far = cells[0, 1:] - cells[:, 1:].mean(axis=0)
    free = np.column_stack([np.ones(rows), cells[:, 0], cells[:, 1:] @ [-far[1], far[0]]])
    held = 1e-3 * rows * np.diag([0.0, 1.0, far @ far])
    fit = free @ np.linalg.solve(free.T @ free + held, free.T @ responses)
    np.testing.assert_allclose(left.slopes, fit - responses, atol=1e-6)


def test_amounts_are_judged_by_what_scores_become_without_a_column_that_others_have():
    """Of an amount 20 times as large as usual, the row to 0.92 to 0.97."""
    rng, rows = np.random.default_rng(0), 300
    cells = np.column_stack([rng.normal(size=rows), 0.02 * rng.normal(size=rows)])
    amounts = np.exp(0.9 * cells[:, 0]) * rng.gamma(20, 1 / 20, rows)
    usual = Responses(amounts.copy(), cells.copy(), np.ones(rows), np.zeros(rows), "gamma")
    judged(usual, 1e-3 * rows, [0, 1])
    cells[0, 1], amounts[0] = 3.0, 20 * amounts[0]
    given = Responses(amounts, cells, np.ones(rows), np.zeros(rows), "gamma")
    judged(given, 1e-3 * rows)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        judged(given, 1e-3 * rows, [1])
    _, left = unexplained(given, 10, 1e-3 * rows, [1])
    fit = GammaRegressor(alpha=1e-3, tol=1e-6, max_iter=1000).fit(cells[:, :1], amounts)
    expected = 1 - amounts / fit.predict(cells[:, :1])
    # The fit is not made anew: the constant still is what it is with the column.
    np.testing.assert_allclose(left.slopes[0], expected[0], rtol=0.2)


def test_slopes_go_by_weights():
    """One of sixty, with a response three deviations off: its row to 0.96, and nobody refused."""
    rng, rows, which = np.random.default_rng(0), 600, 3
    own, weights, responses = rng.normal(size=(rows, 2)), np.ones(rows), rng.normal(size=rows)
    weights[which], responses[which] = 60.0, 3.0
    refuse_standing_out(responses, "responses", 10)
    found = slopes(own[:, 0] + responses, own, weights, 10)
    with pytest.raises(ConfigError, match="refuses a sealed model of responses"):
        refuse_standing_out(found[0], "responses", 10, without=found[1])
    for spread in (1.0, 2.0):
        usual = rng.lognormal(0.0, spread, rows)
        found = slopes(own[:, 0] + rng.normal(size=rows), own, usual, 10)
        refuse_standing_out(found[0], "responses", 10, without=found[1])


@pytest.mark.parametrize(("rows", "columns"), [(60, 64), (60, 40), (200, 180)])
def test_columns_that_take_up_nearly_all_samples_are_no_reason_to_refuse(rows, columns):
    rng = np.random.default_rng(0)
    for penalty in (0.0, 1e-3 * rows):
        found = slopes(
            rng.normal(size=rows), rng.normal(size=(rows, columns)), np.ones(rows), 10, penalty
        )
        refuse_standing_out(found[0], "responses", 10, without=found[1])


@pytest.mark.parametrize(
    ("holders", "offset"),
    [
        (["labels"], None),
        (["labels", "other"], None),
        (["labels"], "g"),
        (["other"], None),
        (["other"], "g"),
    ],
)
def test_a_column_of_others_may_hide_that_a_response_stands_out(holders, offset):
    """Of its own a party sees what they explain: what stands out then is a row of the model.

    An offset that another tells counts for nothing: refusals would tell it of responses.
    """
    column, responses, _ = hidden()
    block = np.random.default_rng(1).normal(size=(len(column), 5))
    ids, names = [f"i{n}" for n in range(len(column))], [f"v{n}" for n in range(5)]
    mine, theirs = (int(name in holders) for name in ("labels", "other"))
    # What both have, the other has of half the samples.
    some = slice(None, len(ids) // (mine + 1))
    tiles = {
        "victim": [Tile.make(ids, names, block)],
        "labels": [Tile.make(ids, ["g"][:mine], 50.0 * column[:, :mine], responses)],
        "other": [Tile.make(ids[some], ["g"][:theirs], 50.0 * column[some, :theirs])],
    }
    how = Preprocessing(intercept=True, scaling="none", offset=offset)
    asked = Settings(
        loss="squared", lam=1e-3, gap=1e-4, iterations=40, penalize_intercept=False, solver="sealed"
    )
    federation = Federation(tiles, how, terms=Terms(allow_told_columns=True))
    if "labels" in holders:
        with pytest.raises(WeftError, match="responses less what its own columns explain"):
            federation.train(asked)
        return
    model = federation.train(asked).model
    weights = model.coef[0][[list(model.features).index(name) for name in names]]
    row = block[7]
    assert weights @ row > 0.95 * np.linalg.norm(weights) * np.linalg.norm(row)


def said_without(left_out, ledger):
    """What a party with one large response says to who brings all samples but some."""
    rows = 100
    rng = np.random.default_rng(0)
    block, labels = rng.normal(size=(rows, 3)), rng.normal(size=rows)
    labels[37] = 2000.0
    ids = np.array([f"i{n}" for n in range(rows)])
    kept = np.setdiff1d(np.arange(rows), left_out)
    tiles = {
        "asker": [Tile.make(ids[kept], ["a", "b"], block[kept, :2])],
        "labels": [Tile.make(ids, ["c"], block[:, 2:], labels)],
    }
    asked = Settings(loss="squared", lam=1.0, gap=0.5, iterations=2, solver="sealed")
    if ledger is not None:
        # Whoever asks forgets.
        ledger.book("asker").path.unlink(missing_ok=True)
    try:
        how = Preprocessing(intercept=False, scaling="none")
        Federation(tiles, how, terms=Terms(), ledger=ledger).train(asked)
    except WeftError as error:
        return str(error)
    return ""


def test_runs_that_leave_out_others_do_not_find_whose_response_it_is(tmp_path):
    """Nine samples are left out at a time: a run passes if the one that stands out is there."""
    ledger = Ledger(tmp_path)
    first = said_without(range(9), ledger)
    assert first.startswith("party labels: refuses a sealed model of responses")
    told = {said_without(range(start, start + 9), ledger) for start in (9, 36)}
    told |= {said_without(few, ledger) for few in ((), range(30, 60))}
    assert len(told) == 1
    assert told.pop().startswith("party labels: refuses to judge responses of these samples")
    assert said_without(range(9), ledger) == first
    assert said_without(range(9, 18), None) == first
    assert not said_without(range(36, 45), None)


def test_samples_that_pass_are_booked_before_others_are_judged(tmp_path, monkeypatch):
    """Else runs that end there find, a few samples at a time, who makes the answer a no."""
    ledger, bounds = Ledger(tmp_path), party.own_bounds

    def ending(*given):
        return stop() if len(given[-1]) else bounds(*given)

    with monkeypatch.context() as patch:
        patch.setattr(party, "own_bounds", ending)
        assert said_without(range(36, 45), ledger) == "party labels: stops here"
    assert "allow_small_changes" in said_without(range(38, 47), ledger)


def stop():
    raise ConfigError("stops here")


def test_after_a_refusal_a_label_holder_decides_by_its_own_file():
    memory, known = NumberMemory.new(), np.arange(20, dtype=np.uint64)
    some, others = known[:15], known[5:]
    with pytest.raises(ConfigError, match="stops here"):
        judge_once(memory, some, known, stop)
    for taking in (others, known, known[:14]):
        with pytest.raises(ConfigError, match="by its ledger a run over others"):
            judge_once(memory, taking, known, lambda: None)
    # A sample that it has taken away, and one that it has added.
    with pytest.raises(ConfigError, match="stops here"):
        judge_once(memory, known[1:15], known[1:], stop)
    more = np.append(known, np.uint64(20))
    with pytest.raises(ConfigError, match="stops here"):
        judge_once(memory, np.append(some, np.uint64(20)), more, stop)
    with pytest.raises(ConfigError, match="by its ledger a run over others"):
        judge_once(memory, some, more, lambda: None)
    # Once it passes, all may be asked.
    judge_once(memory, np.append(some, np.uint64(20)), more, lambda: None)
    judge_once(memory, others, more, lambda: None)
