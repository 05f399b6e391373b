"""What both estimators share: parameters, training, scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.config.strict_reading import checked
from weft.data.splits import Split
from weft.data.tile import Task, Tile
from weft.errors import ConfigError, DataError
from weft.estimators.lazy_scikit_learn_bases import BasesToCome, take_bases
from weft.estimators.messages_while_fitting import CertificateLines, warn_of_gaps
from weft.estimators.table_as_one_tile import WEIGHT, table_tile
from weft.federation.preprocessing_settings import Preprocessing, TableSettings
from weft.guards import OPEN, Terms
from weft.inference.standard_error_requirements import wanted_inference
from weft.solvers.run_settings import AUTO, DEFAULTS, Mode, Settings

# Whatever trains or predicts is loaded when it first does: an estimator that is only named waits
# for no compiler, no data frames and no scikit-learn, and one that is only made for no compiler.
if TYPE_CHECKING:
    import pandas as pd

    from weft.inference.coefficient_summary import Summary
    from weft.solvers.solver_interfaces_and_results import Result

Tiles = Mapping[str, Sequence[Tile]]


def tiles_of(data: Any) -> Tiles | None:
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


T = TypeVar("T")

_TABLES = Preprocessing()
#: Settings that an estimator has under another name.
_CALLED = {"iterations": "max_iter", "options": "solver_options", "mode": "privacy"}
#: Settings of simulations alone, and what follows from another one.
_FIXED = ("latency", "without_penalty")


# A dataclass writes the constructor that scikit-learn asks for: it stores parameters, no more.
@dataclass(eq=False, repr=False)
class Hybrid(BasesToCome):
    """An estimator but for what depends on its task."""

    _: KW_ONLY
    lam: float = 1e-3
    path: Sequence[float] | None = None
    folds: int = DEFAULTS["folds"]
    scoring: str | None = DEFAULTS["scoring"]
    evaluation: Mapping[str, Any] | None = None
    loss_parameters: Mapping[str, float] | None = None
    class_weight: Mapping[str, float] | str | None = None
    weigh: str = DEFAULTS["weigh"]
    noise: Mapping[str, float] | None = None
    sum_noise: Mapping[str, float] | None = None
    solver: str = AUTO
    solver_options: Mapping[str, Any] | None = None
    groups: int = DEFAULTS["groups"]
    local: str = DEFAULTS["local"]
    iic: float = DEFAULTS["iic"]
    gamma: float | str = DEFAULTS["gamma"]
    norms: str = DEFAULTS["norms"]
    gap: float | None = DEFAULTS["gap"]
    max_iter: int | None = DEFAULTS["iterations"]
    seconds: float | None = DEFAULTS["seconds"]
    round_trips: int | None = DEFAULTS["round_trips"]
    certify_every: int | None = DEFAULTS["certify_every"]
    participation: str | float | dict[str, object] = DEFAULTS["participation"]
    patience: float = DEFAULTS["patience"]
    when_missing: str = DEFAULTS["when_missing"]
    warm_start: bool = False
    overlap: str = _TABLES.overlap
    offset: str | None = None
    exposure: str | None = None
    weight: str | None = None
    reference_site: str | None = None
    intercept: bool = True
    intercept_scaling: float = _TABLES.intercept_scaling
    penalty_factors: Mapping[str, float] | None = None
    penalize_intercept: bool = DEFAULTS["penalize_intercept"]
    scaling: str = _TABLES.scaling
    unit_rows: bool = _TABLES.unit_rows
    missing: str = _TABLES.missing
    confirm_separate_ids: bool = _TABLES.confirm_separate_ids
    confirmed: tuple[str, ...] = _TABLES.confirmed
    privacy: str = "sums"
    terms: Terms | Mapping[str, Any] | None = None
    cipher: str = DEFAULTS["cipher"]
    coordinator_sees: str = DEFAULTS["coordinator_sees"]
    second_moments: Sequence[str] = DEFAULTS["second_moments"]
    inference: bool | str = False
    seed: int = DEFAULTS["seed"]
    verbose: bool = False

    def __new__(cls, *_args: Any, **_named: Any) -> Self:
        take_bases(Hybrid)
        made: Self = super().__new__(cls)
        return made

    @property
    def _task(self) -> Task:
        raise NotImplementedError

    @property
    def _named_loss(self) -> str:
        """The name of the loss."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train a federation in this process, or on one ordinary table.

        Parameters
        ----------
        X : Split, mapping, sequence of Tile, Tile, or table
            Party names to the `Tile` or tiles each holds; or tiles, one for each of the
            parties p1, p2, …; or a `Split`, whose overlap rule is then used. Together with
            ``y``, an array, data frame or sparse matrix: one party that holds everything.
        y : array, optional
            Labels of a table; tiles bring their own.
        sample_weight : array, optional
            How many times samples of a table count, as often as they would stand in it: only
            their ratios matter. Tiles have a column, which ``weight`` names.
        """
        tiles = tiles_of(X)
        if tiles is None:
            self._train({"table": (self._table(X, y, sample_weight),)}, self.overlap,
                        from_table=True, weighted=sample_weight is not None)  # fmt: skip
        elif y is not None or sample_weight is not None:
            raise ConfigError(
                "tiles carry their own labels and weights; leave y and sample_weight out, and name "
                "a column with weight"
            )
        else:
            self._train(tiles, X.overlap if isinstance(X, Split) else self.overlap)
            self.n_features_in_ = len(self.model_.features)
            self.feature_names_in_ = self.model_.features
        self._publish(from_table=tiles is None)
        held_out, classes = self.result_.held_out, self.model_.classes
        if held_out is not None and classes is not None:
            from weft.report.metrics_from_score_counts import evaluation_of

            self.evaluation_ = evaluation_of(held_out, classes.tolist(), self.holdings_.parties)
        return self

    def _publish(self, from_table: bool) -> None:
        """Set the attributes that depend on the task."""
        raise NotImplementedError

    def _train(
        self, tiles: Tiles, overlap: str, *, from_table: bool = False, weighted: bool = False
    ) -> None:
        from weft.federation.local_federation import Federation
        from weft.report.history_table import history_frame

        settings = self._settings(from_table=from_table)
        told = {name: getattr(self, name) for name in TableSettings.__struct_fields__}
        if weighted:
            told["weight"] = WEIGHT
        preprocessing = self._checked(
            Preprocessing, overlap=overlap, intercept=self.intercept, **told
        )
        trained = Federation(tiles, preprocessing, terms=self._terms()).train(
            settings,
            progress=CertificateLines() if self.verbose else None,
            start=getattr(self, "model_", None) if self.warm_start else None,
        )
        self.model_, self.result_, self.holdings_ = trained.model, trained.result, trained.holdings
        self.solver_, self.lambda_ = trained.settings.solver, trained.model.lam
        self.certificate_ = trained.result.certificate
        self.gap_ = float("nan") if self.certificate_ is None else self.certificate_.gap
        self.history_ = history_frame(trained.result.history)
        self.n_iter_ = len(trained.result.history)
        self._tell_path(trained.result, settings)
        self.__dict__.pop("second_moments_", None)
        if settings.second_moments:
            self.second_moments_ = trained.second_moments
        self._inference = trained.inference
        warn_of_gaps(trained.result, settings, self.gap_)

    def summary(self, level: float = 0.95, reference: str | None = None) -> Summary:
        """Coefficients with standard errors, tests and intervals for a level; ``print`` it.

        The model must have been fitted with ``inference=True``, ``"robust"`` or ``"clustered"``.
        Of a multinomial model, ``reference`` is the class that all others are against; None: the
        first.
        """
        self._insist_on_a_fit()
        found = self._inference
        if found is None:
            raise ConfigError(
                f"this model was fitted without standard errors; fit {type(self).__name__} with "
                "inference=True, 'robust' or 'clustered'"
            )
        if found.summary is None:
            raise DataError(found.why_not)
        summary = found.summary if reference is None else found.summary.against(reference)
        return summary.at(level)

    def __getstate__(self) -> dict[str, Any]:
        """All but second moments, which stay in the process that opened them."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "second_moments_"}

    def _tell_path(self, result: Result, settings: Settings) -> None:
        """A table of the models on the path; none of an earlier fit stays."""
        from weft.report.lambda_path import path_frame

        for name in ("cv_results_", "path_results_", "evaluation_"):
            self.__dict__.pop(name, None)
        if settings.folds:
            self.cv_results_ = path_frame(result, self._task, settings.scoring)
        elif settings.path:
            self.path_results_ = path_frame(result, self._task, settings.scoring)

    def _terms(self) -> Terms:
        """What every party insists on; by default nothing, since all data is in one hand."""
        if self.terms is None or isinstance(self.terms, Terms):
            return self.terms or OPEN
        return self._checked(Terms, **dict(self.terms))

    def _settings(self, *, from_table: bool = False) -> Settings:
        from weft.solvers.algorithm_choice import settled

        if not isinstance(self.solver_options or {}, Mapping):
            raise ConfigError(
                f"solver_options is {self.solver_options!r}; give a mapping, such as "
                "{'newton': 'all'}"
            )
        told = {
            name: getattr(self, _CALLED.get(name, name))
            for name in Settings.__struct_fields__
            if name not in (*_FIXED, "loss")
        }
        told["loss"] = self._named_loss
        told["path"] = _plain_list(self.path)
        told["second_moments"] = list(self.second_moments)
        told["inference"] = wanted_inference(self.inference)
        if isinstance(self.class_weight, Mapping):
            told["class_weight"] = self._class_weights(self.class_weight, from_table)
        for name in ("loss_parameters", "options", "penalty_factors"):
            told[name] = dict(told[name] or {})
        told["evaluation"] = dict(self.evaluation or {})
        for name in ("noise", "sum_noise"):
            if told[name] is not None:
                told[name] = dict(told[name])
        if self.privacy not in get_args(Mode):
            raise ConfigError(
                f"privacy is {self.privacy!r}; choose one of {', '.join(get_args(Mode))}"
            )
        asked = self._checked(Settings, **told)
        if asked.make_loss().task != self._task:
            other = "Regressor" if self._task == "classification" else "Classifier"
            raise ConfigError(
                f"loss '{self._named_loss}' is not for {self._task}; use Hybrid{other}"
            )
        # Said before the first fit, not only when a second one has a model to start from.
        settled(asked, warm=self.warm_start)
        return asked

    def _class_weights(self, weights: Mapping[Any, float], from_table: bool) -> dict[str, float]:
        """Weights by names of classes, which stand for numbers where a table was encoded."""
        numbers = {str(k): str(k) for k in weights}
        if from_table and hasattr(self, "classes_"):
            numbers |= {str(name): str(k) for k, name in enumerate(self.classes_)}
        return {numbers[str(k)]: float(v) for k, v in weights.items()}

    def _checked(self, kind: type[T], **values: Any) -> T:
        # Searches over parameters hand in numpy's scalars, which a strict reader refuses.
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        return checked(kind, plain, f"{type(self).__name__}:")

    def _table(self, X: Any, y: Any, sample_weight: Any) -> Tile:
        """An ordinary table as one party's tile; scikit-learn's own checks speak here."""
        from sklearn.utils.validation import _check_sample_weight, validate_data

        X, y = validate_data(self, X, y, **self._accepted(), y_numeric=self._task == "regression")
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(X.shape[1])]
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            # Who weighs nothing is not there.
            there = weights > 0
            X, y, weights = X[np.flatnonzero(there)], y[there], weights[there]
        return table_tile(X, self._targets(y), list(names), weights)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        return y

    def _insist_on_a_fit(self) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "model_")

    def _accepted(self) -> dict[str, Any]:
        """What scikit-learn's validation lets through."""
        blank: bool | str = True if self.missing == "error" else "allow-nan"
        return {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": blank}

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """(samples × classes) scores of full rows."""
        self._insist_on_a_fit()
        if isinstance(X, Tile):
            block = self.model_.aligned(X.features, X.block, X.source or "the tile")
            return self.model_.decision(block)
        if tiles_of(X) is not None:
            raise ConfigError(
                "tiles have no order of samples that an array could be in; call predict_jointly, "
                "decision_function_jointly or predict_proba_jointly, whose results name them"
            )
        import pandas as pd
        from sklearn.utils.validation import validate_data

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
        import pandas as pd

        ids, scores = self._joint_scores(tiles)
        return pd.Series(self.model_.outcome(scores), ids, name="prediction")

    def _joint_scores(self, tiles: Any) -> tuple[pd.Index[Any], NDArray[np.float64]]:
        from weft.estimators.predictions_for_tiles import joint_scores

        self._insist_on_a_fit()
        held = tiles_of(tiles)
        if held is None:
            raise ConfigError("joint prediction takes tiles; call predict for a full table")
        return joint_scores(self.model_, held, self.cipher)

    def _scored(
        self, tiles: Tiles, sample_weight: Any
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64] | None]:
        """Labels in tiles, joint scores of their samples, and their weights, if there are any."""
        from weft.estimators.predictions_for_tiles import labels_of, weights_of

        ids, scores = self._joint_scores(tiles)
        return labels_of(ids, tiles), scores, weights_of(ids, sample_weight)

    def predict_with(self, tile: Tile) -> NDArray[Any]:
        """Predict from one party's columns alone; all other features count as their centre."""
        self._insist_on_a_fit()
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


def _plain_list(path: Any) -> Any:
    """A sequence of λ as a strict reader takes it; anything else as it is, for it to refuse."""
    if path is None:
        return []
    if isinstance(path, np.ndarray):
        return path.tolist()
    if isinstance(path, list | tuple):
        return [float(lam) if isinstance(lam, np.generic) else lam for lam in path]
    return path
