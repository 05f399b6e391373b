"""Hybrid federated models with scikit-learn's face.

>>> split = SPLITS["grid"](load("digits"), k=3, q=3)  # nine parties
>>> model = HybridClassifier(lam=1e-2, unit_rows=True).fit(split)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from weft.algorithms.base import Record
from weft.algorithms.settings import Settings
from weft.config.checking import checked
from weft.data.splits import Split
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError
from weft.federation import Federation, Preparation
from weft.joint import predict_scores
from weft.report.history import history_frame

Tiles = Mapping[str, Sequence[Tile]]
T = TypeVar("T")


# A dataclass writes the constructor that scikit-learn asks for: it stores parameters, no more.
@dataclass(eq=False, repr=False)
class _Hybrid(BaseEstimator):
    """What both estimators share: parameters, training, scores."""

    _task: ClassVar[Literal["classification", "regression"]]

    loss: str = "squared"
    _: KW_ONLY
    lam: float = 1e-3
    loss_parameters: Mapping[str, float] | None = None
    local: str = "safe"
    iic: float = 1.0
    gamma: float | str = "auto"
    norms: str = "sample"
    gap: float | None = 1e-3
    max_iter: int | None = 10_000
    seconds: float | None = None
    round_trips: int | None = None
    certify_every: int | None = None
    participation: str | float | dict[str, object] = "everyone"
    overlap: str = "mean"
    intercept: bool = True
    intercept_scaling: float = 1.0
    scaling: str = "none"
    unit_rows: bool = False
    missing: str = "error"
    confirm_separate_ids: bool = False
    cipher: str = "pad"
    coordinator_sees: str = "nothing"
    seed: int = 0
    verbose: bool = False
    solver: str = "hyfdca"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train a federation in this process, or on one ordinary table.

        Parameters
        ----------
        X : Split, mapping, sequence of Tile, Tile, or table
            Party names to the `Tile` or tiles each holds; or tiles, one for each of the
            parties p1, p2, …; or a `Split`, whose overlap rule is then used. Together with
            ``y``, an array, data frame or sparse matrix: one party that holds everything.
        y : array, optional
            Labels of a table; tiles bring their own.
        """
        tiles = _tiles_of(X)
        if tiles is None:
            self._train({"table": (self._table(X, y),)}, self.overlap)
        elif y is not None:
            raise ConfigError("tiles carry their own labels; leave y out")
        else:
            self._train(tiles, X.overlap if isinstance(X, Split) else self.overlap)
            self.n_features_in_ = len(self.model_.features)
            self.feature_names_in_ = self.model_.features
        self._publish(from_table=tiles is None)
        return self

    def _publish(self, from_table: bool) -> None:
        """Set the attributes that depend on the task."""
        raise NotImplementedError

    def _train(self, tiles: Tiles, overlap: str) -> None:
        settings = self._settings()
        preparation = self._checked(
            Preparation,
            overlap=overlap,
            intercept=self.intercept,
            intercept_scaling=self.intercept_scaling,
            scaling=self.scaling,
            unit_rows=self.unit_rows,
            missing=self.missing,
            confirm_separate_ids=self.confirm_separate_ids,
        )
        trained = Federation(tiles, preparation).train(
            settings, progress=_CertificateLines() if self.verbose else None
        )
        self.model_, self.result_, self.roster_ = trained.model, trained.result, trained.roster
        self.certificate_ = trained.result.certificate
        self.gap_ = float("nan") if self.certificate_ is None else self.certificate_.gap
        self.history_ = history_frame(trained.result.history)
        self.n_iter_ = len(trained.result.history)
        short_of_gap = settings.gap is not None and not self.gap_ <= settings.gap
        if short_of_gap and self.n_iter_ == settings.iterations:
            message = (
                f"stopped after {self.n_iter_} iterations at a certified gap of {self.gap_:.2e}, "
                f"not at {settings.gap:g}; scale the features, or raise lam, max_iter or gap"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def _settings(self) -> Settings:
        settings = self._checked(
            Settings,
            loss=self.loss,
            lam=self.lam,
            loss_parameters=dict(self.loss_parameters or {}),
            solver=self.solver,
            local=self.local,
            iic=self.iic,
            gamma=self.gamma,
            norms=self.norms,
            gap=self.gap,
            iterations=self.max_iter,
            seconds=self.seconds,
            round_trips=self.round_trips,
            certify_every=self.certify_every,
            participation=self.participation,
            cipher=self.cipher,
            coordinator_sees=self.coordinator_sees,
            seed=self.seed,
        )
        if settings.make_loss().task != self._task:
            other = HybridRegressor if self._task == "classification" else HybridClassifier
            raise ConfigError(f"loss '{self.loss}' is not for {self._task}; use {other.__name__}")
        return settings

    def _checked(self, kind: type[T], **values: Any) -> T:
        # Searches over parameters hand in numpy's scalars, which a strict reader refuses.
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        return checked(kind, plain, f"{type(self).__name__}:")

    def _table(self, X: Any, y: Any) -> Tile:
        """An ordinary table as one party's tile; scikit-learn's own checks speak here."""
        X, y = validate_data(self, X, y, **self._accepted(), y_numeric=self._task == "regression")
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(X.shape[1])]
        ids = [str(i) for i in range(X.shape[0])]
        return Tile.make(ids, names, X, self._targets(y), "the table")

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        return y

    def _accepted(self) -> dict[str, Any]:
        """What scikit-learn's validation lets through."""
        blank: bool | str = True if self.missing == "error" else "allow-nan"
        return {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": blank}

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """(samples × classes) scores of full rows."""
        check_is_fitted(self, "model_")
        if isinstance(X, Tile):
            block = self.model_.aligned(X.features, X.block, X.source or "the tile")
            return self.model_.decision(block)
        names = getattr(self, "feature_names_in_", None)
        if isinstance(X, pd.DataFrame) and names is not None:
            missing = [name for name in names if name not in X.columns]
            if missing:
                raise DataError(
                    f"the table lacks {len(missing)} feature(s) of the model, the first is "
                    f"'{missing[0]}'; use predict_jointly where parties hold parts of a sample"
                )
            X = X[list(names)]
        return self.model_.decision(validate_data(self, X, reset=False, **self._accepted()))

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict for full rows.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or Tile
            Columns in the order of ``coef_``; those of a data frame or a tile are found by
            name, and further ones are ignored.
        """
        scores = self._scores(X)
        return self.model_.outcome(scores)

    def predict_jointly(self, tiles: Any) -> pd.Series[Any]:
        """Predict for samples whose features lie at several parties, through a secure sum.

        Parameters
        ----------
        tiles : Split, mapping or sequence of Tile
            New samples, as for :meth:`fit`. A feature that nobody holds for a sample counts as
            its centre (zero without scaling).

        Returns
        -------
        Series
            Predictions by sample id.
        """
        check_is_fitted(self, "model_")
        held = _tiles_of(tiles)
        if held is None:
            raise ConfigError("joint prediction takes tiles; call predict for a full table")
        ids, scores = predict_scores(
            self.model_, held, overlap=self.roster_.overlap, cipher=self.cipher
        )
        return pd.Series(self.model_.outcome(scores), pd.Index(ids, name="id"), name="prediction")

    def predict_with(self, tile: Tile) -> NDArray[Any]:
        """Predict from one party's columns alone; all other features count as their centre."""
        check_is_fitted(self, "model_")
        if not set(tile.features) & set(self.model_.features):
            raise DataError(
                f"{tile.source or 'the tile'}: none of its columns is a feature of the model; "
                "check the column names"
            )
        scores = self.model_.partial(tile.features, tile.block) + self.model_.centre_score
        return self.model_.outcome(scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"
        return tags


@dataclass(eq=False, repr=False)
class HybridClassifier(ClassifierMixin, _Hybrid):
    """Classification over parties that hold some rows and some columns each.

    More than two classes give one model per class against the rest.

    Parameters
    ----------
    loss : str
        Name of the loss, see ``weft.losses.LOSSES``.
    lam : float
        Regulariser λ of P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw).
    loss_parameters : mapping, optional
        The loss's own parameters, such as ``{"g": 0.5}``.
    local, iic, gamma, norms
        HyFDCA's local method and steps, see `weft.algorithms.settings.Settings`.
    gap : float or None
        Stop at this certified relative gap: the loss is then at most this share above the
        optimum of the pooled problem.
    max_iter, seconds, round_trips
        Stop after so much at the latest; None: no such limit.
    certify_every : int, optional
        Iterations between certificates; by default each pass over the data.
    participation : str, float or dict
        ``"everyone"``, a fraction, ``{"cyclic": groups}`` or ``{"trace": [[names], …]}``.
    overlap : {"mean", "first", "sum"}
        Value of a cell that several tiles hold. The rule of a `Split` that is fitted wins over
        this one, because it belongs to the way the table was cut.
    intercept : bool
        Add a constant column, whose weight is regularised like the others.
    intercept_scaling : float
        Value of the constant column.
    scaling : {"none", "standard", "minmax", "maxabs"}
        Federated scaling of features.
    unit_rows : bool
        Then scale all rows by one constant so that ‖x_i‖ ≤ 1.
    missing : {"error", "zero", "mean"}
        What becomes of a blank cell; "mean" needs a centring scaling.
    confirm_separate_ids : bool
        Parties with different features whose ids never meet are meant to be so.
    cipher : {"pad", "bfv", "paillier", "plain"}
        What hides every sum from the coordinator; "plain" hides nothing.
    coordinator_sees : {"nothing", "weights", "papers"}
        What the coordinator learns of the model; "papers" is for simulations.
    seed : int
        Seed of every draw; the same seed gives the same model to the last bit.
    verbose : bool
        Print a line for every certificate.
    solver : str
        Name of the algorithm.

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
    history_ : DataFrame
        One row per iteration: round trips, bytes, seconds, certificates, estimates.
    n_iter_ : int
        Iterations run.
    n_features_in_, feature_names_in_
        Number of features, and their names in the order of ``coef_`` where they have names.
    model_, result_, roster_
        The released `Model`, how the run ended, and who held what.
    """

    _task = "classification"

    loss: str = "hinge"

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        check_classification_targets(y)
        classes, encoded = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has only one class, {classes[0]!r}; classification needs two")
        self.classes_: NDArray[Any] = classes
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

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes; with the logistic loss only.

        With more than two classes the models of each class against the rest are normalised.
        """
        chances = np.asarray(expit(self._scores(X)))
        if len(self.classes_) == 2:
            return np.hstack([1 - chances, chances])
        # Scores far below zero for every class would divide zero by zero.
        chances = np.maximum(chances, np.finfo(np.float64).tiny)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))


@dataclass(eq=False, repr=False)
class HybridRegressor(RegressorMixin, _Hybrid):
    """Regression over parties that hold some rows and some columns each.

    Parameters and attributes are those of `HybridClassifier`, but the loss is "squared" by
    default, ``coef_`` is flat, ``intercept_`` a number, and there are no classes.
    """

    _task = "regression"

    def _publish(self, from_table: bool) -> None:
        self.coef_, self.intercept_ = self.model_.coef[0], float(self.model_.intercept[0])


class _CertificateLines:
    """Prints a line for every new certificate."""

    def __init__(self) -> None:
        self._last: int | None = None

    def __call__(self, record: Record) -> None:
        if record.certified_at is not None and record.certified_at != self._last:
            self._last = record.certified_at
            print(
                f"iteration {record.iteration}: loss {record.primal:.6g}, gap {record.gap:.2e} "
                f"certified at iteration {record.certified_at}, {record.round_trips} round trips"
            )


def _tiles_of(data: Any) -> Tiles | None:
    """Tiles by party; None where the data is an ordinary table."""
    if isinstance(data, Split):
        return data.parties
    if isinstance(data, Tile):
        return {"p1": (data,)}
    # scipy's dictionary-of-keys matrix is a mapping too, but a table all the same.
    if isinstance(data, Mapping) and not sp.issparse(data):
        return {str(name): _held(str(name), tiles) for name, tiles in data.items()}
    if isinstance(data, list | tuple) and data and all(isinstance(t, Tile) for t in data):
        return {f"p{number}": (tile,) for number, tile in enumerate(data, 1)}
    return None


def _held(party: str, tiles: Any) -> tuple[Tile, ...]:
    held = (tiles,) if isinstance(tiles, Tile) else tiles
    if not isinstance(held, list | tuple) or not all(isinstance(tile, Tile) for tile in held):
        raise DataError(f"party {party} must hold a Tile or a list of them; see Tile.make")
    return tuple(held)
