"""Generalised linear models."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.tile import Task
from weft.estimators.base import Hybrid, tiles_of
from weft.estimators.classifier import encoded_classes
from weft.estimators.lazy_scikit_learn_bases import offered_if
from weft.losses import Loss, get_family, get_loss

if TYPE_CHECKING:
    import pandas as pd

#: Families whose responses are classes.
_OF_CLASSES = ("binomial", "multinomial")


@dataclass(eq=False, repr=False)
class HybridGLM(Hybrid):
    """A generalised linear model over parties that hold some rows and some columns each.

    It is what statsmodels' ``GLM`` and scikit-learn's LogisticRegression, Ridge, PoissonRegressor,
    GammaRegressor and TweedieRegressor fit on one table, with the penalty λ/2 ‖w‖² beside the mean
    of half the deviances, and an intercept that has no penalty.

    Parameters
    ----------
    family : {"gaussian", "binomial", "multinomial", "poisson", "gamma", "tweedie", \
"negative-binomial"}
        The distribution of the response. Links are the identity, the logit, softmax, and for all
        others the logarithm. Of more than two classes, binomial trains each against the rest, and
        multinomial all at once.
    loss_parameters : mapping, optional
        ``{"power": 1.5}`` of Tweedie, ``{"dispersion": 1.0}`` of the negative binomial.
    penalize_intercept : bool
        Whether λ holds the intercept back like any other weight.
    inference : bool or {"robust", "clustered"}
        Whether `summary` has standard errors, tests and intervals, and by what: the family's own
        variance, squared residuals of samples, or those of sites.

    Other parameters and attributes are those of `HybridClassifier`; ``coef_`` is flat and
    ``intercept_`` a number, but for models of classes.
    """

    family: str = "gaussian"
    _: KW_ONLY
    penalize_intercept: bool = False

    @property
    def _named_loss(self) -> str:
        return get_family(self.family)

    @property
    def _loss(self) -> Loss:
        return get_loss(self._named_loss, **(self.loss_parameters or {}))

    @property
    def _task(self) -> Task:
        return get_loss(self._named_loss).task

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        if self._task == "regression":
            return y
        self.classes_, encoded = encoded_classes(y)
        return encoded

    def _publish(self, from_table: bool) -> None:
        model = self.model_
        if model.classes is None:
            self.coef_: Floats = model.coef[0]
            self.intercept_: Any = float(model.intercept[0])
            return
        if from_table:
            self.model_ = model = replace(model, classes=self.classes_)
        self.classes_ = np.asarray(model.classes)
        self.coef_, self.intercept_ = model.coef, model.intercept

    @offered_if(lambda self: self.family in _OF_CLASSES)
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes; of more than two binomial models, normalised."""
        scores = self._scores(X)
        return self.model_.probabilities(scores)

    @offered_if(lambda self: self.family in _OF_CLASSES)
    def predict_proba_jointly(self, tiles: Any) -> pd.DataFrame:
        """The same by sample id, of samples whose features lie at several parties."""
        import pandas as pd

        ids, scores = self._joint_scores(tiles)
        return pd.DataFrame(self.model_.probabilities(scores), ids, columns=self.classes_)

    @offered_if(lambda self: self.family in _OF_CLASSES)
    def decision_function(self, X: Any) -> Floats:
        """Scores of full rows: above zero for the second of two classes, else one per class."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @offered_if(lambda self: self.family == "binomial")
    def decision_function_jointly(self, tiles: Any) -> pd.DataFrame | pd.Series[float]:
        """Scores by sample id, of samples whose features lie at several parties."""
        import pandas as pd

        ids, scores = self._joint_scores(tiles)
        if len(self.classes_) == 2:
            return pd.Series(scores[:, 0], ids, name="score")
        return pd.DataFrame(scores, ids, columns=self.classes_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of the deviance that the model explains, D²; one is a perfect fit.

        Against a model with an intercept alone; of binomial models of more than two classes, over
        all of them together. Tiles bring their labels.
        """
        self._insist_on_a_fit()
        tiles = tiles_of(X) if y is None else None
        if tiles is None:
            labels, scores = y, self._scores(X)
        else:
            labels, scores, sample_weight = self._scored(tiles, sample_weight)
        labels, loss = np.asarray(labels), self._loss
        weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight)
        times = (weights / weights.sum())[:, None]
        if self.model_.classes is None:
            target: Floats = labels.astype(np.float64)[:, None]
            mean = (times * target).sum(axis=0, keepdims=True)
            null = mean if loss.name == "squared" else np.log(mean)
        else:
            positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
            target = np.where(labels[:, None] == positive, 1.0, -1.0)
            mean = ((times * target).sum(axis=0, keepdims=True) + 1.0) / 2.0
            null = np.log(mean) if loss.joint else np.log(mean) - np.log1p(-mean)
        left, alone = (
            (times[:, 0] @ loss.value(some, target)).sum() for some in (scores, null + 0 * target)
        )
        return float(1.0 - left / alone)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        sorts = self._task == "classification"
        tags.estimator_type = "classifier" if sorts else "regressor"
        tags.classifier_tags = ClassifierTags() if sorts else None
        tags.regressor_tags = None if sorts else RegressorTags()
        tags.target_tags.required = True
        return tags
