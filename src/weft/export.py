"""Models for other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from weft.model import Model


def to_sklearn(model: Model) -> Any:
    """A fitted scikit-learn estimator: LogisticRegression, LinearSVC or LinearRegression.

    With two classes or a response the predictions are the same to the last bit of the scores;
    logistic probabilities with more than two classes are one-vs-rest, as the model was trained.
    """
    estimator: Any
    if model.classes is None:
        estimator = LinearRegression()
        estimator.coef_ = model.coef[0].copy()
        estimator.intercept_ = float(model.intercept[0])
    else:
        binary_logistic = model.loss == "logistic" and len(model.classes) == 2
        estimator = LogisticRegression() if binary_logistic else LinearSVC()
        estimator.coef_ = model.coef.copy()
        estimator.intercept_ = model.intercept.copy()
        estimator.classes_ = np.asarray(model.classes)
    estimator.n_features_in_ = len(model.features)
    estimator.feature_names_in_ = model.features
    return estimator
