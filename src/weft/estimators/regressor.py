"""Regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.data.tile import Task
from weft.estimators.base import Hybrid, tiles_of


@dataclass(eq=False, repr=False)
class HybridRegressor(Hybrid):
    """Regression over parties that hold some rows and some columns each.

    Parameters and attributes are those of `HybridClassifier`, but the loss is "squared" by
    default, ``coef_`` is flat, ``intercept_`` a number, and there are no classes.
    """

    _scikit_learn_mixin: ClassVar[str] = "RegressorMixin"

    loss: str = "squared"

    @property
    def _task(self) -> Task:
        return "regression"

    @property
    def _named_loss(self) -> str:
        return self.loss

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of the variance that is explained, R²; tiles bring their labels."""
        tiles = tiles_of(X) if y is None else None
        if tiles is None:
            return float(super().score(X, y, sample_weight))
        # Loaded with the first score, as scikit-learn's own regressors do.
        from sklearn.metrics import r2_score

        labels, scores, weights = self._scored(tiles, sample_weight)
        return float(r2_score(labels, self.model_.outcome(scores), sample_weight=weights))

    def _publish(self, from_table: bool) -> None:
        self.coef_, self.intercept_ = self.model_.coef[0], float(self.model_.intercept[0])
