"""Hybrid federated models with scikit-learn's face.

>>> split = SPLITS["grid"](load("digits"), k=3, q=3)  # nine parties
>>> model = HybridClassifier(lam=1e-2, unit_rows=True).fit(split)
"""

from weft.estimators.base import Hybrid
from weft.estimators.classifier import HybridClassifier
from weft.estimators.glm import HybridGLM
from weft.estimators.lazy_scikit_learn_bases import take_bases_if_loaded
from weft.estimators.regressor import HybridRegressor

__all__ = ["HybridClassifier", "HybridGLM", "HybridRegressor"]

take_bases_if_loaded(Hybrid)
