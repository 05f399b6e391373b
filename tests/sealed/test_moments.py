"""Hessian and Gram matrix, as readers of the model get them, are those of numpy within errors."""

from __future__ import annotations

import json
import pickle
import re
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
from scipy.special import expit
from sealed_runs import ALL, CUTS, NAMES, cut, held, table, train, weights

from covering import some_of
from weft import HybridClassifier
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards import OPEN
from weft.report.summary import summarise
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import messages
from weft.solvers.secret_sharing.second_moment_guard import (
    matrices_of,
    refuse_few_rows,
    refuse_sparse,
)

#: Both hold all of some columns: a cell counts half at each.
TWICE = {
    "a": [(slice(None), slice(0, 5))],
    "b": [(slice(None), slice(3, None), False)],
}
BOTH = ("hessian", "gram")


def in_order(moments, matrix):
    """A matrix with its columns in the order of the table."""
    order = [moments.names.tolist().index(name) for name in NAMES]
    return matrix[..., order, :][..., order]


def curvature(block, w):
    slopes = expit(block @ w)
    return block.T @ ((slopes * (1 - slopes))[:, None] * block) / len(block)


@pytest.mark.parametrize("how", some_of([*CUTS, "twice"], "overlapping", "twice"))
def test_moments_are_those_of_the_pooled_table(how):
    """Overlapping parties are of rows and of columns; every cut is in ``test_optimum.py``."""
    block, labels = table()
    parts = CUTS.get(how, TWICE)
    _, trained = train(cut(block, labels, parts), lam=1e-1, second_moments=BOTH)
    pooled, moments = held(block, parts), trained.second_moments
    assert moments.samples == len(block)
    gram = in_order(moments, moments.gram)
    off = np.abs(gram - pooled.T @ pooled)
    assert (off <= moments.gram_error).all()
    assert moments.gram_error.max() < 1e-2
    true = curvature(pooled, weights(trained.model)[0])
    (hessian,) = in_order(moments, moments.hessian)
    assert (np.abs(hessian - true) <= moments.hessian_error).all()
    assert moments.hessian_error.max() < 0.1 * np.abs(true).max()
    for matrix in (gram, hessian):
        assert np.array_equal(matrix, matrix.T)


@pytest.mark.parametrize("path", some_of([(), (1.0, 1e-3)], (1.0, 1e-3)))
def test_every_class_has_the_hessian_of_the_released_model(path):
    block, labels = table(classes=3, rows=110)
    tiles = cut(block, labels, CUTS["grid"])
    _, trained = train(tiles, lam=1e-2, path=path, gap=0.1, second_moments=("hessian",))
    moments = trained.second_moments
    assert trained.model.lam == 1e-2
    assert moments.gram is None
    for w, hessian, error in zip(
        weights(trained.model),
        in_order(moments, moments.hessian),
        moments.hessian_error,
        strict=True,
    ):
        assert (np.abs(hessian - curvature(block, w)) <= error).all()


def test_the_hessian_of_a_squared_loss_is_the_gram_matrix_by_samples():
    block, responses = table(classes=0)
    tiles = cut(block, responses, CUTS["vertical"])
    _, trained = train(tiles, loss="squared", lam=1e-1, second_moments=("hessian",))
    moments = trained.second_moments
    assert moments.gram is None
    (hessian,) = in_order(moments, moments.hessian)
    assert (np.abs(hessian - block.T @ block / len(block)) <= moments.hessian_error).all()


def fitted(block, labels):
    """Weights and their standard errors by Newton's method on the pooled table, without λ."""
    w = np.zeros(block.shape[1])
    for _ in range(30):
        slopes = expit(block @ w) - labels
        w = w - np.linalg.solve(curvature(block, w), block.T @ slopes / len(block))
    return w, np.sqrt(np.diag(np.linalg.inv(len(block) * curvature(block, w))))


def noisy(rows):
    """A table in units of its own, whose classes overlap."""
    rng = np.random.default_rng(1)
    block = rng.normal(size=(rows, len(NAMES))) * np.arange(1, 8) + 10 * np.arange(7)
    block[:, 1] += block[:, 0]
    scores = (block - block.mean(axis=0)) @ (rng.normal(size=7) / np.arange(1, 8))
    return block, (rng.random(rows) < expit(scores + 0.3)).astype(int)


@pytest.fixture(scope="module")
def inference():
    """A fit with hardly any penalty of raw columns and a constant one, as a statistician asks."""
    block, labels = noisy(400)
    estimator = HybridClassifier(
        loss="logistic",
        lam=1e-5,
        gap=1e-4,
        scaling="standard",
        privacy="sealed",
        second_moments=["hessian", "gram"],
    )
    return block, labels, estimator.fit(cut(block, labels, CUTS["vertical"]))


def test_standard_errors_are_those_of_the_pooled_table_to_four_digits(inference):
    block, labels, estimator = inference
    moments = estimator.second_moments_
    assert moments.names.tolist() == [*estimator.feature_names_in_, "(intercept)"]
    order = [NAMES.index(name) for name in estimator.feature_names_in_]
    whole = np.hstack([block[:, order], np.ones((len(block), 1))])
    w, errors = fitted(whole, labels)
    covariance = np.linalg.inv(moments.samples * moments.hessian[0])
    ours = np.sqrt(np.diag(moments.to_raw @ covariance @ moments.to_raw.T))
    np.testing.assert_allclose(ours, errors, rtol=1e-4)
    np.testing.assert_allclose(np.append(estimator.coef_, estimator.intercept_), w, rtol=2e-3)
    raw = moments.in_raw_units()
    np.testing.assert_allclose(
        np.sqrt(np.diag(np.linalg.inv(raw.samples * raw.hessian[0]))), errors, rtol=1e-4
    )


def test_correlations_are_those_of_numpy_within_the_stated_error(inference):
    block, _, estimator = inference
    order = [NAMES.index(name) for name in estimator.feature_names_in_]
    moments, block = estimator.second_moments_, block[:, order]
    raw = moments.in_raw_units()
    whole = np.hstack([block, np.ones((len(block), 1))])
    assert (np.abs(raw.gram - whole.T @ whole) <= raw.gram_error).all()
    # Columns are centred and their variance is one: entries by samples are correlations.
    found = moments.gram[:-1, :-1] / moments.samples
    error = moments.gram_error[:-1, :-1] / moments.samples
    assert (np.abs(found - np.corrcoef(block.T)) <= error).all()
    assert error.max() < 1e-4


def test_matrices_stay_in_the_process_that_opened_them(inference, tmp_path):
    _, _, estimator = inference
    moments = estimator.second_moments_
    assert "0." not in repr(moments) + str(moments)
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(moments)
    again = pickle.loads(pickle.dumps(estimator))
    assert not hasattr(again, "second_moments_")
    block, labels = table()
    _, trained = train(cut(block, labels, CUTS["vertical"]), lam=0.1, gap=0.1, second_moments=BOTH)
    trained.model.save(tmp_path / "model.npz")
    summary = json.dumps(summarise(trained, trained.settings, "a run"))
    arrays = b"".join(array.tobytes() for array in np.load(tmp_path / "model.npz").values())
    moments = trained.second_moments
    for value in [*moments.gram.ravel().tolist(), *moments.hessian.ravel().tolist()]:
        assert np.float64(value).tobytes() not in arrays
        assert f"{value:.8g}" not in summary
    assert "second moments of all columns, to who gets it" in json.loads(summary)["exposed"]
    assert "went to whoever gets the model" in summary


# ── what is refused ───────────────────────────────────────────────────────────────────────────


def refused(tiles, terms, **settings):
    """What the run says, once all is recorded that was asked until then."""
    federation = Federation(tiles, Preprocessing(intercept=False), terms=terms)
    asked = Settings(
        **{"lam": 0.1, "loss": "logistic", "solver": "sealed", "second_moments": BOTH, **settings}
    )
    phases = []

    class Watched:
        def __init__(self, channel):
            self._channel = channel

        def __getattr__(self, name):
            return getattr(self._channel, name)

        def ask(self, phase, messages):
            phases.append(phase.name)
            return self._channel.ask(phase, messages)

    with pytest.raises(WeftError) as told:
        federation.train(asked, through=Watched)
    assert "\n" not in str(told.value)
    return str(told.value), phases


AGREED = msgspec.structs.replace(OPEN, min_batch=10, allow_rare_pairs=False)


def test_a_party_that_has_not_agreed_refuses_before_anything_is_dealt():
    block, labels = table()
    terms = msgspec.structs.replace(OPEN, allow_second_moments=False)
    said, phases = refused(cut(block, labels, CUTS["vertical"]), terms)
    assert said.startswith("party a refuses second_moments = ['hessian', 'gram'], which tell")
    assert said.endswith("agree on allow_second_moments = true if that is meant")
    assert not any(phase.startswith("sealed.") for phase in phases)


def paired(block):
    """Each of two columns is common, both together are not."""
    block[:, 0] = block[:, 1] = 0.0
    block[:40, 0] = np.arange(40)
    block[37:80, 1] = np.arange(43)


def binary(block):
    block[:, 1] = np.arange(len(block)) % 2


@pytest.mark.parametrize(
    ("change", "how", "words"),
    [
        (paired, "vertical", "of some of its columns, which would tell of fewer samples"),
        (binary, "vertical", "may tell with columns of others of fewer samples"),
        (None, CUTS["horizontal"], "over so few samples"),
        # Enough for four columns, and fewer than a Hessian needs if all of them are undecided.
        (
            None,
            {"a": [(slice(0, 45), slice(0, 2))], "b": [(ALL, slice(2, 4))]},
            "of so few samples",
        ),
        # What one party lacks of the other's rows is what it finds out.
        (None, {"a": [(ALL, ALL)], "b": [(slice(0, 120), ALL, False)]}, "over so few samples"),
    ],
)
def test_sparse_columns_are_refused_before_anything_is_dealt(change, how, words):
    block, labels = table(rows=150)
    if change is not None:
        change(block)
    said, phases = refused(cut(block, labels, CUTS[how] if change else how), AGREED)
    assert re.match(r"party [ab]: refuses (second moments|the Hessian) ", said)
    assert words in said
    assert said.endswith("or leave second_moments and inference out")
    # How many rows or columns is nobody's business.
    assert not any(letter.isdigit() for letter in said.replace("0/1", ""))
    assert [phase for phase in phases if phase.startswith("sealed.")] == ["sealed.begin"]


def test_whoever_agrees_to_rare_pairs_has_two_valued_columns_in_them():
    block, labels = table(rows=150)
    binary(block)
    terms = msgspec.structs.replace(AGREED, allow_rare_pairs=True)
    federation = Federation(
        cut(block, labels, CUTS["vertical"]), Preprocessing(intercept=False), terms=terms
    )
    asked = Settings(lam=0.1, loss="logistic", solver="sealed", second_moments=("gram",))
    moments = federation.train(asked).second_moments
    assert moments.gram[1, 1] == pytest.approx(75, abs=moments.gram_error.max())


def test_a_table_with_few_rows_by_column_is_refused():
    """Whatever the terms: and more matrices need more rows."""
    block, labels = table(rows=60)
    tiles = cut(block, labels, {"a": [(slice(0, 30), ALL)], "b": [(slice(30, None), ALL)]})
    said, _ = refused(tiles, OPEN)
    assert "over so few samples" in said
    block, labels = table(rows=130, classes=3)
    tiles = cut(block, labels, CUTS["vertical"])
    assert "over so few samples" in refused(tiles, OPEN)[0]
    refuse_few_rows(130, 7, matrices_of(Settings(lam=1.0, second_moments=BOTH), 1))


def test_columns_whose_products_do_not_fit_are_refused_before_training():
    block, labels = table()
    said, phases = refused(cut(1000 * block, labels, CUTS["vertical"]), OPEN)
    assert "scale the columns (scaling = 'standard'), or leave second_moments out" in said
    assert [phase for phase in phases if phase.startswith("sealed.")] == ["sealed.begin"]


@pytest.mark.parametrize("ask", [messages.GRAM, messages.KEPT_POINT])
def test_a_party_makes_no_matrix_that_the_run_was_not_to_have(ask):
    block, labels = table()
    federation, _ = train(cut(block, labels, CUTS["vertical"]), gap=0.5)
    half = federation.parties["a"]._half
    told = {"round": 10**6, "serial": half._serial + 1}
    told |= {"error": 0.1} if ask is messages.GRAM else {"number": 0, "problem": 0}
    with pytest.raises(ProtocolError, match="that this run is not to have"):
        half.phases()[ask.name].handle(ask.request(**told))


def test_the_hessian_is_that_of_one_model_and_no_other():
    block, labels = table()
    federation, _ = train(
        cut(block, labels, CUTS["vertical"]), path=(1.0,), gap=0.5, second_moments=BOTH
    )
    half = federation.parties["a"]._half
    assert not half.moment_shares(0).hessians
    assert len(half.moment_shares(1).hessians) == 1
    for number, problem in ((0, 0), (1, 0), (7, 0), (1, 1)):
        told = messages.KeptPointRequest(
            round=10**6, serial=half._serial + 1, number=number, problem=problem
        )
        with pytest.raises(ProtocolError, match="malformed"):
            half.phases()["sealed.kept_point"].handle(told)
        # A refusal ends the run at a party, but each of these is to be looked at.
        half._done = None


def test_sums_have_no_second_moments():
    with pytest.raises(ConfigError, match=r"set mode = 'sealed' in \[privacy\]"):
        HybridClassifier(loss="logistic", second_moments=["gram"])._settings()


@pytest.mark.parametrize(("rows", "refused"), [(1, True), (7, True), (8, False)])
def test_a_value_that_fewer_rows_have_than_agreed_is_refused_that_of_one_row_too(rows, refused):
    cells = np.zeros((60, 2))
    cells[:rows, 0] = 1.0
    with pytest.raises(ConfigError, match="some of its columns") if refused else nullcontext():
        refuse_sparse(cells, 8)


def test_either_value_of_a_two_valued_column_must_be_common_with_others():
    """Sums over rows with one value follow from those over all rows and over the others."""
    cells = np.zeros((60, 2))
    cells[:30, 0] = 1.0
    cells[:28, 1] = np.arange(1, 29)
    with pytest.raises(ConfigError, match="some of its columns"):
        # In two rows the first is one and the second zero.
        refuse_sparse((cells != 0).astype(float), 8)
    refuse_sparse(cells, 8)
    cells[22:, 1] = 0.0
    refuse_sparse((cells != 0).astype(float), 8)


def test_how_many_are_of_each_class_goes_to_readers_as_terms_allow():
    """Of two label holders, each could take off its own: that takes allow_pairs, as in sums."""
    block, labels = table()
    tiles = cut(block, labels, {"a": [(ALL, slice(0, 3))], "b": [(ALL, slice(3, None))]})
    asked = Settings(
        lam=0.3,
        loss="logistic",
        solver="sealed",
        penalize_intercept=False,
        gap=0.1,
        second_moments=("hessian",),
    )
    how = Preprocessing(intercept=True)
    for terms, told in (
        (OPEN, True),
        (msgspec.structs.replace(OPEN, allow_pairs=False, min_contributors=3), False),
    ):
        moments = Federation(tiles, how, terms=terms).train(asked).second_moments
        assert moments.label_sum == ((2 * labels - 1).sum() if told else None)
    # A penalised intercept has no vector of its own, and three classes are no likelihood of all.
    fixed = msgspec.structs.replace(asked, penalize_intercept=True)
    assert Federation(tiles, how).train(fixed).second_moments.label_sum is None
