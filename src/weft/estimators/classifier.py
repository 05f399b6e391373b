"""Classification."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Task
from weft.estimators.base import Hybrid, tiles_of
from weft.estimators.lazy_scikit_learn_bases import offered_if
from weft.losses.probabilities_from_scores import WITH_PROBABILITIES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(eq=False, repr=False)
class HybridClassifier(Hybrid):
    """Classification over parties that hold some rows and some columns each.

    More than two classes give one model per class against the rest, but for the loss "softmax",
    which is of all at once.

    Parameters
    ----------
    loss : str
        Name of the loss, see ``weft.losses.LOSSES``.
    lam : float
        Regulariser λ of P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw).
    path : sequence of float, optional
        Further values of λ. All are trained, the largest first, each from the last; the model is
        that of ``lam``, unless folds choose.
    folds : int
        Leave so many folds of the samples out, one at a time, in the same messages, and release
        the λ that predicts them best. A sample's fold follows from its id and ``seed``. 0: none.
    loss_parameters : mapping, optional
        The loss's own parameters, such as ``{"g": 0.5}``.
    class_weight : mapping or "balanced", optional
        How many times the losses of a class count, by its name; "balanced" counts the classes
        inside the federation. With smooth losses and everyone in every iteration.
    scoring : {"accuracy", "auc", "loss"}, optional
        By what folds choose λ; by default the accuracy, or the squared error.
    evaluation : mapping, optional
        How predictions for samples that folds leave out are judged: ``threshold``, ``groups`` and
        ``by_site`` of `weft.solvers.held_out_evaluation_settings.EvaluationSettings`.
    weigh : {"samples", "parties"}
        Whether all samples weigh the same in P, or all parties do (some methods on rows).
    penalty_factors : mapping, optional
        Features that λ holds back more or less than others, and how many times, such as
        ``{"age": 0.1}``; in P it is λ/2 Σ f_m w_m².
    noise : mapping, optional
        ``epsilon``, ``delta`` and ``row_norm``: release a differentially private model, with noise
        in every weight; takes scaling = "none".
    sum_noise : mapping, optional
        ``multiplier``, ``delta`` and ``row_norm``: noise in the sums over samples that holders of
        the same columns see; takes scaling = "none".
    solver : str
        "auto" takes cutting planes for losses with kinks and L-BFGS for smooth ones when everyone
        takes part, and HyFDCA otherwise or when one of its own settings is changed. ``weft
        algorithms`` lists all, those of the field for comparison too.
    solver_options : mapping, optional
        What only that solver reads, such as ``{"newton": "all"}`` of FedHybrid.
    groups : int
        Parts of the samples that get cuts of their own; cutting planes only.
    local, iic, gamma, norms
        HyFDCA's local method and steps, see `weft.solvers.run_settings.Settings`.
    gap : float or None
        Stop at this certified relative gap: the loss is then at most this share above the
        optimum of the pooled problem.
    max_iter, seconds, round_trips
        Stop after so much at the latest, ``max_iter`` for each λ; None: no such limit.
    certify_every : int, optional
        Iterations between certificates, of all but the fast solvers; by default each pass over the
        data for HyFDCA, else 10.
    participation : str, float or dict
        ``"everyone"``, a fraction, ``{"cyclic": groups}`` or ``{"trace": [[names], …]}``.
    patience, when_missing
        Seconds that all solvers but HyFDCA wait for a party, and what they do then: "stop" ends
        with what is certified so far, "hyfdca" goes on without the party and without certificates.
    warm_start : bool
        Start the next fit from the model of the last, as after new samples or with another λ; not
        with HyFDCA.
    reference_site : str, optional
        A party; every other one that has labels gets an intercept of its own, beside that of the
        model, which is this party's.
    overlap : {"mean", "first", "sum"}
        Value of a cell that several tiles hold. The rule of a `Split` that is fitted wins over
        this one, because it belongs to the way the table was cut.
    offset, exposure, weight : str, optional
        Columns at the parties with labels that are no features: what is added to the score of a
        sample, of what the logarithm is added, and how often its loss counts. With smooth losses
        and everyone in every iteration.
    intercept : bool
        Add a constant column.
    intercept_scaling : float
        Value of the constant column.
    penalize_intercept : bool
        Whether its weight is regularised like the others; False: with smooth losses, as in
        scikit-learn's LogisticRegression and Ridge.
    scaling : {"none", "standard", "minmax", "maxabs"}
        Federated scaling of features.
    unit_rows : bool
        Then scale all rows by one constant so that ‖x_i‖ ≤ 1.
    missing : {"error", "zero", "mean"}
        What becomes of a blank cell; "mean" needs a centring scaling.
    confirm_separate_ids : bool
        Parties with different features whose ids never meet are meant to be so.
    confirmed : tuple of {"names", "ids", "labels"}
        What two parties write in two ways and mean to: names of columns, ids, labels.
    privacy : {"sums", "sealed", "auto"}
        "sealed" trains on shares: no party sees a score, a slope or a weight before the model is
        there; for logistic and squared loss. "auto" does so wherever it can.
    terms : Terms or mapping, optional
        What every party insists on, such as ``{"min_batch": 10}``; by default nothing, since all
        data is in one hand.
    cipher : {"pad", "bfv", "paillier", "plain"}
        What hides every sum from the coordinator; "plain" hides nothing.
    coordinator_sees : {"nothing", "weights", "papers"}
        What the coordinator learns of the model; "papers" is for simulations.
    second_moments : sequence of {"hessian", "gram"}
        With sealed training, matrices over all columns to have besides, in ``second_moments_``.
    inference : bool or {"robust", "clustered"}
        Whether `summary` has standard errors, tests and intervals: of a logistic loss.
    seed : int
        Seed of every draw; the same seed gives the same model to the last bit.
    verbose : bool
        Print a line for every certificate.

    Attributes
    ----------
    coef_, intercept_ : arrays
        Weights in the units of the original table, a row for each of more than two classes.
    classes_ : array
        Class values.
    gap_ : float
        Certified relative duality gap; NaN when not every party answered for the model.
    certificate_ : Certificate or None
        The certificate itself: iteration, primal and dual values.
    solver_ : str
        The algorithm that ran.
    lambda_ : float
        λ of the model: the one that the folds chose, else ``lam``.
    cv_results_ : DataFrame
        With folds, a row for each λ: ``lambda``, ``mean_score`` and ``std_score`` over the folds,
        ``fold_1``, …, ``mean_loss`` of the samples left out; ``loss`` and ``gap`` of the
        certificate on all samples; ``iterations`` and ``round_trips`` spent; ``chosen``. A score
        is the accuracy, or minus the mean squared error; of a sealed run minus the mean loss, of
        all folds together: more is better.
    evaluation_ : dict
        With folds, AUC, calibration and more on samples left out, each with its interval and how
        exact it is; docs/evaluation.md says what is in it.
    path_results_ : DataFrame
        With a path and no folds, the same table without scores.
    history_ : DataFrame
        One row per iteration: round trips, bytes, seconds, certificates, estimates, λ.
    n_iter_ : int
        Iterations run, over all λ.
    n_features_in_, feature_names_in_
        Number of features, and their names in the order of ``coef_`` where they have names.
    second_moments_ : SecondMoments
        The Hessian of the mean loss and the Gram matrix, where ``second_moments`` asks for them, in
        the coordinates of training; of a fitted estimator that is pickled they are left out.
    model_, result_, holdings_
        The released `Model`, how the run ended, and who held what.
    """

    _scikit_learn_mixin: ClassVar[str] = "ClassifierMixin"

    loss: str = "hinge"

    @property
    def _task(self) -> Task:
        return "classification"

    @property
    def _named_loss(self) -> str:
        return self.loss

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        self.classes_, encoded = encoded_classes(y)
        return encoded

    def _publish(self, from_table: bool) -> None:
        if from_table:
            # Labels of a table were encoded; the model speaks in the user's own values.
            self.model_ = replace(self.model_, classes=self.classes_)
        else:
            self.classes_ = np.asarray(self.model_.classes)
        self.coef_, self.intercept_ = self.model_.coef, self.model_.intercept

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of full rows: above zero for the second of two classes, else one per class."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def decision_function_jointly(self, tiles: Any) -> pd.DataFrame | pd.Series[float]:
        """Scores by sample id, of samples whose features lie at several parties."""
        import pandas as pd

        ids, scores = self._joint_scores(tiles)
        if len(self.classes_) == 2:
            return pd.Series(scores[:, 0], ids, name="score")
        return pd.DataFrame(scores, ids, columns=self.classes_)

    @offered_if(lambda self: self.loss in WITH_PROBABILITIES)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes; with the losses "logistic" and "softmax" only.

        With more than two classes logistic models of each against the rest are normalised.
        """
        scores = self._scores(X)
        return self.model_.probabilities(scores)

    @offered_if(lambda self: self.loss in WITH_PROBABILITIES)
    def predict_proba_jointly(self, tiles: Any) -> pd.DataFrame:
        """The same by sample id, of samples whose features lie at several parties."""
        import pandas as pd

        ids, scores = self._joint_scores(tiles)
        return pd.DataFrame(self.model_.probabilities(scores), ids, columns=self.classes_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of samples that are predicted rightly; tiles bring their labels."""
        tiles = tiles_of(X) if y is None else None
        if tiles is None:
            return float(super().score(X, y, sample_weight))
        labels, scores, weights = self._scored(tiles, sample_weight)
        right = self.model_.outcome(scores) == labels
        return float(np.average(right, weights=weights))


def encoded_classes(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The classes of a table's labels, and the number of every label's."""
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(y)
    classes, encoded = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y has only one class, {classes[0]!r}; classification needs two")
    return classes, encoded
