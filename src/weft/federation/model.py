"""The trained model: weights with names, scaling, loss, λ and certificate, on file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ConfigError, DataError
from weft.losses import LOG_LINKED
from weft.losses.probabilities_from_scores import WITH_PROBABILITIES, class_probabilities
from weft.storage.atomic_files import StorageError, load_arrays, save_arrays

if TYPE_CHECKING:
    # Loading a model and predicting for numbers need no table and no reader.
    from weft.data.columns.table_transformation import Transformation
    from weft.data.tile import MissingPolicy
    from weft.matching.overlap_rule import Overlap

FORMAT = 2
#: Models from before columns could be declared: blank cells count as the centre.
_WITHOUT_COLUMNS = 1


@dataclass(frozen=True)
class Model:
    """A linear model in the units of the original table.

    Attributes
    ----------
    features
        Names, in the order of the columns that :meth:`predict` expects.
    coef
        (classes × features) weights; one row for regression and for two classes.
    intercept
        One value per row of ``coef``.
    classes
        Class values, None for regression.
    scaling
        (shift, factor) per feature that training used; already inside ``coef``.
    loss, loss_parameters, lam
        The problem that was solved.
    certificate
        ``primal``, ``dual`` (per class) and ``gap`` of these weights; empty if there is none.
    info
        Anything else worth keeping: solver, parties, round trips.
    missing
        What a blank cell counts as, as in training: ``zero``, the centre (``mean``), or nothing
        (``error``).
    transformation
        How files are read and declared columns become features, as `Transformation.to_json` has
        it; of a party's model, those of its own. Empty: there is nothing to say.
    overlap
        What counted in training for a cell that several parties hold, and counts in predictions.
    """

    features: NDArray[np.object_]
    coef: Floats
    intercept: Floats
    classes: NDArray[Any] | None
    scaling: tuple[Floats, Floats]
    loss: str
    loss_parameters: Mapping[str, float]
    lam: float
    certificate: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict)
    missing: MissingPolicy = "mean"
    transformation: str = ""
    overlap: Overlap = "mean"

    def decision(self, table: Any) -> Floats:
        """x·w + b, per class; a blank cell counts as it did in training.

        Columns of a data frame are found by their names in the federation, in its units, and become
        features as they did in training; those of an array stand in the order of ``features``.
        """
        if hasattr(table, "columns"):
            names, block = self.features_of(table)
            table = np.asarray(self.aligned(names, block), np.float64)
        if table.shape[1] != len(self.features):
            raise DataError(
                f"the table has {table.shape[1]} columns, but the model was trained on "
                f"{len(self.features)} features; pass them in the order of model.features"
            )
        filled = self._filled(table, np.arange(len(self.features)))
        return _scores(filled, self.coef) + self.intercept

    def features_of(self, frame: Any) -> tuple[NDArray[np.object_], Any]:
        """Names and numbers of the features that the columns of a data frame become."""
        names = np.array([str(name) for name in frame.columns], dtype=object)
        if not self.transformation or not self.columns().declares:
            return names, frame.to_numpy()
        from weft.data.columns.raw_rows_for_prediction import raw_columns_of, tile_of_frame

        there, made = set(names.tolist()), self.columns()
        wanted = [name for name in raw_columns_of(made, self.features) if name in there]
        tile = tile_of_frame(frame.set_axis(names, axis=1), wanted, made)
        return tile.features, tile.block

    def columns(self) -> Transformation:
        """How declared columns become features."""
        from weft.data.columns.table_transformation import Transformation

        if not self.transformation:
            return Transformation()
        return Transformation.from_json(self.transformation)

    def _filled(self, table: Any, place: NDArray[np.integer[Any]]) -> Any:
        """Features at these places, with what counts for blank cells; sparse tables have none."""
        if sp.issparse(table):
            return table
        x = np.asarray(table, np.float64)
        gaps = np.isnan(x)
        if not gaps.any():
            return x
        self._refuse_blanks(gaps, place)
        return np.where(gaps, self.scaling[0][place] if self.missing == "mean" else 0.0, x)

    def check_blanks(self, table: Any, place: NDArray[np.integer[Any]]) -> None:
        """Refuse blank cells of features at these places, if training did."""
        if not sp.issparse(table):
            self._refuse_blanks(np.isnan(np.asarray(table, np.float64)), place)

    def _refuse_blanks(self, gaps: NDArray[np.bool_], place: NDArray[np.integer[Any]]) -> None:
        if self.missing == "error" and gaps.any():
            name = self.features[place[int(gaps.any(axis=0).argmax())]]
            raise DataError(
                f"{int(gaps.sum())} cell(s) are blank, the first in '"
                f"{name}', but the model was trained with missing = "
                "'error'; fill them in, or train with missing = 'zero' or 'mean', or with blank "
                "declared for the column",
                told="a party has blank cells, which the model was trained without; its log names "
                "the column",
                harmless=f"has blank cells in its column {name!r}, which the model was trained "
                "without; let it fill them in",
            )

    def centred(self, table: Any, place: NDArray[np.integer[Any]]) -> Any:
        """Features at these places, relative to their centres."""
        centre = self.scaling[0][place]
        if sp.issparse(table):
            dense: Any = table
            return table if not centre.any() else np.nan_to_num(dense.toarray() - centre)
        return self._filled(table, place) - centre

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are those of probabilities of classes."""
        return self.classes is not None and self.loss in WITH_PROBABILITIES

    def probabilities(self, scores: Floats) -> Floats:
        """(samples × classes) probabilities, in the order of ``classes``, from scores.

        Of more than two logistic models, each of a class against the rest, they are normalised.
        """
        if not self.has_probabilities:
            what = "responses" if self.classes is None else f"classes by the loss '{self.loss}'"
            raise ConfigError(
                f"this model predicts {what}, without probabilities; train with family 'binomial' "
                "or 'multinomial' (loss 'logistic' or 'softmax') to have them"
            )
        return class_probabilities(scores, self.loss)

    def predict_proba(self, table: Any) -> Floats:
        """Probabilities of the classes for full rows, as :meth:`decision` takes them."""
        return self.probabilities(self.decision(table))

    def predict(self, table: Any, *, threshold: float | None = None) -> NDArray[Any]:
        """Class values or responses for full rows; see :meth:`outcome`."""
        return self.outcome(self.decision(table), threshold)

    def outcome(self, scores: Floats, threshold: float | None = None) -> NDArray[Any]:
        """Turn scores into class values (the larger score wins) or responses.

        With a ``threshold``, the second of two classes wins from that probability on.
        """
        if threshold is not None:
            if not 0 < threshold < 1:
                raise ConfigError(
                    f"the threshold is {threshold:g}; give a probability between 0 and 1"
                )
            chances = self.probabilities(scores)
            if self.classes is None or len(self.classes) != 2:
                raise ConfigError("a threshold is for two classes; leave it out")
            return np.asarray(self.classes[(chances[:, 1] >= threshold).astype(int)])
        if self.classes is None:
            # Of losses from outside, whose code may not be here, a score is the response.
            return np.exp(scores[:, 0]) if self.loss in LOG_LINKED else scores[:, 0]
        if len(self.classes) == 2:
            return np.asarray(self.classes[(scores[:, 0] > 0).astype(int)])
        return np.asarray(self.classes[scores.argmax(axis=1)])

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.features.tolist())}

    def aligned(self, names: NDArray[np.object_], block: Any, where: str = "the table") -> Any:
        """Columns in the model's order, from a block with named columns."""
        columns = {name: j for j, name in enumerate(names.tolist())}
        missing = [name for name in self.features.tolist() if name not in columns]
        if missing:
            raise DataError(
                f"{where} lacks {len(missing)} feature(s) of the model, the first is "
                f"'{missing[0]}'; predict jointly where parties hold parts of a sample "
                "(--joint), or with the columns there are (--partial)"
            )
        return block[:, [columns[name] for name in self.features.tolist()]]

    def partial(self, names: NDArray[np.object_], block: Any) -> Floats:
        """What one party's columns add to the scores; the intercept is not in it.

        A feature that is missing here counts as its centre (zero without scaling).
        """
        known = [(j, self._place[n]) for j, n in enumerate(names.tolist()) if n in self._place]
        mine = np.array([j for j, _ in known], dtype=int)
        place = np.array([p for _, p in known], dtype=int)
        centre: Floats = self.coef[:, place] @ self.scaling[0][place]
        filled = self._filled(block[:, mine], place)
        return _scores(filled, self.coef[:, place]) - centre

    def trained_weights(self, names: NDArray[np.object_]) -> Floats:
        """(features × classes) weights in the units that the model was trained in; 0 if unknown."""
        place = np.array([self._place.get(name, -1) for name in names.tolist()], dtype=int)
        weights = (self.coef / self.scaling[1]).T
        known: Floats = np.where((place >= 0)[:, None], weights[place], 0.0)
        return known

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of all that scores of numbers depend on: the same on all machines that have it."""
        digest = blake2b(digest_size=16, person=b"weft model")
        classes = None if self.classes is None else self.classes.tolist()
        digest.update(repr((self.features.tolist(), classes, self.missing, self.overlap)).encode())
        for part in (self.coef, self.intercept, *self.scaling):
            digest.update(repr(part.shape).encode() + np.ascontiguousarray(part).tobytes())
        return digest.digest()

    @property
    def centre_score(self) -> Floats:
        """Score of a sample at the centre of every feature."""
        return np.asarray(self.intercept + self.coef @ self.scaling[0])

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn estimator: LogisticRegression, LinearSVC or LinearRegression, or
        PoissonRegressor, GammaRegressor or TweedieRegressor.

        Its scores are this model's. Probabilities exist for the logistic loss with two classes and
        for softmax; logistic models of more classes were trained one against the rest.
        """
        # Imported here: loading a model and predicting need no scikit-learn.
        from sklearn.linear_model import (
            GammaRegressor,
            LinearRegression,
            LogisticRegression,
            PoissonRegressor,
            TweedieRegressor,
        )
        from sklearn.svm import LinearSVC

        estimator: Any
        if self.loss == "negative_binomial":
            raise ConfigError(
                "scikit-learn has no negative binomial model; keep the Weft model, whose coef and "
                "intercept are plain arrays"
            )
        if self.classes is None:
            made = {"poisson": PoissonRegressor, "gamma": GammaRegressor}
            estimator = made.get(self.loss, LinearRegression)()
            if self.loss == "tweedie":
                estimator = TweedieRegressor(power=self.loss_parameters["power"], link="log")
            if self.loss in LOG_LINKED:
                # What its own fit would have set: the link that predictions go through.
                estimator._base_loss = estimator._get_loss()
            estimator.coef_ = self.coef[0].copy()
            estimator.intercept_ = float(self.intercept[0])
        else:
            likely = self.loss == "softmax" or (self.loss == "logistic" and len(self.classes) == 2)
            estimator = LogisticRegression() if likely else LinearSVC()
            estimator.coef_ = self.coef.copy()
            estimator.intercept_ = self.intercept.copy()
            estimator.classes_ = np.asarray(self.classes)
        estimator.n_features_in_ = len(self.features)
        estimator.feature_names_in_ = self.features
        return estimator

    def save(self, path: str | Path) -> None:
        """Write the model to one ``.npz`` file, whole or not at all."""
        head = {
            "format": FORMAT,
            "loss": self.loss,
            "loss_parameters": dict(self.loss_parameters),
            "lam": self.lam,
            "certificate": dict(self.certificate),
            "info": dict(self.info),
            "missing": self.missing,
            "transformation": self.transformation,
            "overlap": self.overlap,
        }
        arrays: dict[str, NDArray[Any]] = {
            "head": np.array(json.dumps(head)),
            "features": self.features.astype(str),
            "coef": self.coef,
            "intercept": self.intercept,
            "shift": self.scaling[0],
            "factor": self.scaling[1],
        }
        if self.classes is not None:
            text = self.classes.dtype.kind in "OUT"
            arrays["classes"] = self.classes.astype(str) if text else self.classes
        save_arrays(Path(path), arrays)


def _scores(table: Any, coef: Floats) -> Floats:
    scores: Floats = np.asarray(table @ coef.T)
    return scores


def load_model(path: str | Path) -> Model:
    """Read a model that :meth:`Model.save` wrote, on this or another machine."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no model file {path}; train one with 'weft train'")
    try:
        arrays = load_arrays(path)
        head = json.loads(str(arrays["head"]))
        if head["format"] not in (_WITHOUT_COLUMNS, FORMAT):
            raise DataError(
                f"{path} has model format {head['format']}, this Weft reads {FORMAT}; "
                "install the Weft that wrote it"
            )
    except (KeyError, ValueError, StorageError) as error:
        raise DataError(f"{path} is not a Weft model file ({error})") from None
    return Model(
        features=arrays["features"].astype(object),
        coef=arrays["coef"],
        intercept=arrays["intercept"],
        classes=arrays.get("classes"),
        scaling=(arrays["shift"], arrays["factor"]),
        loss=head["loss"],
        loss_parameters=head["loss_parameters"],
        lam=head["lam"],
        certificate=head["certificate"],
        info=head["info"],
        missing=head.get("missing", "mean"),
        transformation=head.get("transformation", ""),
        overlap=head.get("overlap", "mean"),
    )
