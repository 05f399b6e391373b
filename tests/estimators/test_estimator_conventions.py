"""The estimators keep scikit-learn's conventions."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from weft import HybridClassifier, HybridGLM, HybridRegressor
from weft.data import SPLITS, load
from weft.errors import ConfigError


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [
        HybridClassifier("logistic", scaling="maxabs", max_iter=2, gap=0.1),
        pytest.param(HybridRegressor(max_iter=3), marks=pytest.mark.release),
        pytest.param(HybridGLM("binomial", max_iter=3, gap=0.1), marks=pytest.mark.release),
        pytest.param(HybridGLM(max_iter=3, gap=0.1), marks=pytest.mark.release),
    ],
    ids=["classifier", "regressor", "binomial", "gaussian"],
)
def test_scikit_learns_own_checks_pass(estimator):
    stops_early = "a few iterations come to different points before the optimum, which is the same"
    check_estimator(
        estimator,
        expected_failed_checks={
            f"check_sample_weight_equivalence_on_{kind}_data": stops_early
            for kind in ("dense", "sparse")
        },
    )


def test_clone_and_parameters_survive_unchanged():
    estimator = HybridClassifier("logistic", lam=0.5, participation={"cyclic": 2})
    assert clone(estimator).get_params() == estimator.get_params()
    assert HybridClassifier().set_params(lam=2.0, iic=0.5).get_params()["iic"] == 0.5
    assert HybridClassifier().loss == "hinge"
    assert HybridRegressor().loss == "squared"
    assert set(HybridClassifier().get_params()) == set(HybridRegressor().get_params())


def test_a_fitted_estimator_survives_pickling():
    table = load("breast_cancer")
    model = HybridClassifier(scaling="standard", unit_rows=True, gap=1e-2)
    model.fit(SPLITS["grid"](table, k=2, q=2))
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(table.to_tile()) == model.predict(table.to_tile())).all()
    assert again.gap_ == model.gap_


#: Estimators, and a class of a user's own, that are named before there is scikit-learn.
NAMED_FIRST = """
import pickle, sys
# Loading pandas takes a fifth of the time, and scikit-learn does without.
sys.modules["pandas"] = None
from weft import HybridClassifier, HybridGLM, HybridRegressor

class Before(HybridClassifier):
    def score(self, X, y=None, sample_weight=None, groups=None):
        return 1.0

assert not [module for module in sys.modules if module.startswith("sklearn")]
found = pickle.loads(bytes.fromhex(sys.argv[1]))
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_regressor

class After(HybridRegressor):
    def fit(self, X, y=None, sample_weight=None, groups=None):
        return self

assert isinstance(found, HybridClassifier) and found.get_params()["loss"] == "logistic"
for kind in (HybridClassifier, HybridGLM, HybridRegressor, Before, After):
    made = clone(kind(lam=0.5))
    assert isinstance(made, BaseEstimator) and made.lam == 0.5 and "lam=0.5" in repr(made)
    assert made.set_fit_request and made.set_score_request and made._repr_html_()
assert issubclass(Before, ClassifierMixin) and issubclass(After, RegressorMixin)
assert not issubclass(HybridGLM, (ClassifierMixin, RegressorMixin)) and is_regressor(HybridGLM())
assert "groups" in repr(Before.set_score_request.__signature__)
assert "groups" in repr(After.set_fit_request.__signature__)
"""


def test_an_estimator_that_is_named_before_scikit_learn_is_there_derives_from_it_all_the_same():
    pickled = pickle.dumps(HybridClassifier("logistic")).hex()
    subprocess.run([sys.executable, "-c", NAMED_FIRST, pickled], check=True)


@pytest.mark.parametrize("method", ["predict", "predict_jointly", "predict_with"])
def test_predicting_before_fitting_is_refused(method):
    table = load("diabetes")
    with pytest.raises(NotFittedError):
        getattr(HybridRegressor(), method)(table.to_tile())


def test_probabilities_exist_for_the_logistic_loss_only():
    assert hasattr(HybridClassifier("logistic"), "predict_proba")
    assert not hasattr(HybridClassifier("hinge"), "predict_proba")


def test_a_search_over_numpy_values_works():
    table = load("breast_cancer")
    search = GridSearchCV(
        HybridClassifier(scaling="standard", unit_rows=True, gap=1e-1),
        {"lam": np.logspace(-3, -2, 2), "max_iter": np.array([200])},
        cv=2,
    )
    search.fit(table.block, table.labels)
    assert search.best_score_ > 0.9


def test_stopping_short_of_the_gap_warns():
    table = load("breast_cancer")
    with pytest.warns(ConvergenceWarning, match="raise lam, max_iter"):
        HybridClassifier(max_iter=2).fit(table.block, table.labels)


def test_a_loss_for_the_other_task_is_refused():
    table = load("diabetes")
    with pytest.raises(ConfigError, match="use HybridRegressor"):
        HybridClassifier("squared").fit(table.to_tile())
    with pytest.raises(ConfigError, match="closest is 'standard'"):
        HybridRegressor(scaling="standart").fit(table.to_tile())


def test_importing_weft_loads_no_reader_and_no_numpy():
    code = "import sys, weft; sys.exit('numpy' in sys.modules or 'weft.data' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
