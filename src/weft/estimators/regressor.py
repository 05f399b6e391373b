"""Regression."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.base import RegressorMixin

from weft.data.tile import Task
from weft.estimators.base import Hybrid


@dataclass(eq=False, repr=False)
class HybridRegressor(RegressorMixin, Hybrid):
    """Regression over parties that hold some rows and some columns each.

    Parameters and attributes are those of `HybridClassifier`, but the loss is "squared" by
    default, ``coef_`` is flat, ``intercept_`` a number, and there are no classes.
    """

    loss: str = "squared"

    @property
    def _task(self) -> Task:
        return "regression"

    @property
    def _named_loss(self) -> str:
        return self.loss

    def _publish(self, from_table: bool) -> None:
        self.coef_, self.intercept_ = self.model_.coef[0], float(self.model_.intercept[0])
