"""The judge: what central solvers from outside find on the pooled table, and how good a w is."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize

from weft.array_types import Floats
from weft.errors import ConfigError
from weft.federation.model import Model
from weft.losses import Loss
from weft.matching.id_and_name_forms import normal_features
from weft_evaluation.pooled_table_in_training_units import PooledTable

#: Values that liblinear may look at before it stops, converged or not: about a minute.
_MOST_VALUES = 3e10
#: Passes over the table that it may make at least, and at most.
_PASSES = (50, 1_000_000)
#: By which share of P a smooth problem may be above P* when L-BFGS ends …
_NEAR = 1e-10
#: … and when it counts as solved.
_SOLVED = 1e-7
#: Up to so many columns, normal equations and Newton's method are solved directly.
_DIRECT = 2000


@dataclass(frozen=True)
class Problem:
    """P(w) = λ/2 ‖w‖² + Σ p_i l(x_iᵀw), of all classes together.

    Attributes
    ----------
    x
        Samples, with the constant column.
    y
        Responses or ±1, a column per class.
    p
        Weights of the samples.
    """

    x: Any
    y: Floats
    p: Floats
    loss: Loss
    lam: float

    @classmethod
    def of(cls, table: PooledTable, loss: Loss, lam: float) -> Problem:
        return cls(table.design, table.signs, table.weights, loss, lam)

    def primal(self, w: Floats) -> float:
        losses = self.p @ self.loss.value(np.asarray(self.x @ w), self.y)
        return float(0.5 * self.lam * (w * w).sum() + losses.sum())

    def gradient(self, w: Floats) -> Floats:
        """∇P(w), where the loss has no kinks."""
        slopes = -self.loss.u(np.asarray(self.x @ w), self.y) * self.p[:, None]
        found: Floats = self.lam * w + np.asarray(self.x.T @ slopes)
        return found


@dataclass(frozen=True)
class Optimum:
    """What the judge found.

    Attributes
    ----------
    w
        (columns × classes) weights.
    primal
        P of them: P* is not above it.
    how
        By which solver.
    above
        By which share of P it may be above P*, where that is known: ‖∇P‖²/2λP.
    converged
        Whether the solver was done, or only had no more time.
    """

    w: Floats
    primal: float
    how: str
    above: float | None
    converged: bool
    seconds: float


def solve(problem: Problem) -> Optimum:
    """The optimum by liblinear, a closed form, or scipy."""
    # Loaded before the clock starts.
    import sklearn.linear_model
    import sklearn.svm  # noqa: F401

    began = perf_counter()
    if math.isfinite(problem.loss.smoothness):
        w, how = _solve_smooth(problem)
        gradient = problem.gradient(w)
        primal = problem.primal(w)
        above: float | None = float((gradient**2).sum()) / (2 * problem.lam * primal or 1.0)
        converged = above is not None and above <= _SOLVED
    else:
        found = [_solve_kinked(problem, y) for y in problem.y.T]
        w, above = np.stack([column for column, _ in found], axis=1), None
        primal, how = problem.primal(w), "liblinear"
        converged = all(done for _, done in found)
    if not converged:
        how = f"{how}, which did not converge"
    return Optimum(w, primal, how, above, converged, perf_counter() - began)


def _solve_smooth(problem: Problem) -> tuple[Floats, str]:
    shape = (problem.x.shape[1], problem.y.shape[1])
    if problem.loss.name == "squared" and shape[0] <= _DIRECT:
        weighted = problem.x.T * problem.p
        gram = _dense(weighted @ problem.x) + problem.lam * np.eye(shape[0])
        return np.linalg.solve(gram, np.asarray(weighted @ problem.y)), "normal equations"
    start, how = np.zeros(shape), "scipy's L-BFGS"
    if (
        problem.loss.name == "logistic"
        and shape[0] <= _DIRECT
        and isinstance(problem.x, np.ndarray)
    ):
        start, how = _newton(problem), "scikit-learn's Newton solver"
    return _lbfgs(problem, start), how


def _newton(problem: Problem) -> Floats:
    """Logistic regression of every class that has samples on both sides; zero for the others."""
    from sklearn.linear_model import LogisticRegression

    n = len(problem.p)
    w = np.zeros((problem.x.shape[1], problem.y.shape[1]))
    for number, y in enumerate(problem.y.T):
        if len(np.unique(y)) < 2:
            continue
        model = LogisticRegression(
            C=1.0 / (problem.lam * n),
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-9,
            max_iter=200,
        )
        with warnings.catch_warnings():
            # What it left over, L-BFGS finds.
            warnings.simplefilter("ignore")
            w[:, number] = model.fit(problem.x, y, sample_weight=problem.p * n).coef_[0]
    return w


def _lbfgs(problem: Problem, start: Floats) -> Floats:
    """L-BFGS until the gradient proves that P* is near."""

    def value(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(start.shape)
        return problem.primal(w), problem.gradient(w).ravel()

    def enough(flat: Floats) -> None:
        primal, gradient = value(flat)
        if (gradient**2).sum() <= 2 * problem.lam * _NEAR * primal:
            raise StopIteration

    try:
        enough(start.ravel())
    except StopIteration:
        return start
    options = {"maxiter": 5000, "maxfun": 10_000, "maxcor": 30, "ftol": 0.0, "gtol": 0.0}
    found: Any = cast("Any", minimize)(
        value, start.ravel(), jac=True, method="L-BFGS-B", callback=enough, options=options
    )
    best: Floats = found.x.reshape(start.shape)
    return best


def _solve_kinked(problem: Problem, y: Floats) -> tuple[Floats, bool]:
    """Weights, and whether they converged.

    liblinear minimises ½‖w‖² + C Σ s_i l_i, so that C = 1/(λN) and s_i = p_i N.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC, LinearSVR

    n, loss = len(y), problem.loss
    if loss.task == "classification" and len(np.unique(y)) < 2:
        return _one_sided(problem, y), True
    size = max(getattr(problem.x, "nnz", problem.x.size), 1)
    common: dict[str, Any] = {
        "C": 1.0 / (problem.lam * n),
        "fit_intercept": False,
        "tol": 1e-8,
        "max_iter": int(np.clip(_MOST_VALUES / size / problem.y.shape[1], *_PASSES)),
        "random_state": 0,
    }
    model: Any
    if loss.name == "hinge":
        model = LinearSVC(loss="hinge", dual=True, **common)
    elif loss.name not in ("absolute", "epsilon_insensitive"):
        raise ConfigError(
            f'no solver outside Weft knows the loss "{loss.name}", so that there is nothing to '
            "compare with; compare with a loss of Weft's own"
        )
    else:
        model = LinearSVR(epsilon=getattr(loss, "epsilon", 0.0), dual=True, **common)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(problem.x, y, sample_weight=problem.p * n)
    short = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    return np.ravel(model.coef_), not short


def _one_sided(problem: Problem, y: Floats) -> Floats:
    """The hinge loss with samples of one class, which liblinear refuses, as a dual in a box."""
    rows = problem.x * y[:, None] if isinstance(problem.x, np.ndarray) else problem.x * y[0]
    n, lam = len(y), problem.lam
    cost = problem.p

    def negative(a: Floats) -> tuple[float, Floats]:
        v = np.asarray(rows.T @ (cost * a))
        slopes: Floats = cost * (np.asarray(rows @ v) / lam - 1.0)
        return float(v @ v / (2 * lam) - cost @ a), slopes

    box = [(0.0, 1.0)] * n
    found: Any = cast("Any", minimize)(
        negative, np.zeros(n), jac=True, method="L-BFGS-B", bounds=box, options={"ftol": 1e-14}
    )
    return np.asarray(rows.T @ (cost * found.x)) / lam


def weights_of(model: Model, table: PooledTable) -> Floats:
    """A model's w in the units of training, in the table's order, the constant column last."""
    names = normal_features(model.features).tolist()
    place = {name: column for column, name in enumerate(names)}
    columns = [place.get(name, -1) for name in table.features.tolist()]
    known = np.array(columns) >= 0
    w = np.where(known[:, None], (model.coef / model.scaling[1]).T[columns], 0.0)
    if table.units.bias is None:
        return w
    return np.vstack([w, model.centre_score[None, :] / table.units.bias])


def score(table: PooledTable, w: Floats) -> dict[str, float]:
    """Accuracy of a w; for responses R² and the root of the mean squared error."""
    found = sample_scores(table, w)
    if table.units.classes is not None:
        return {"accuracy": float(found.mean())}
    spread = float(((table.targets - table.targets.mean()) ** 2).sum())
    r2 = 1.0 + float(found.sum()) / spread if spread else math.nan
    return {"r2": r2, "rmse": float(np.sqrt(-found.mean()))}


def sample_scores(table: PooledTable, w: Floats) -> Floats:
    """Per sample, 1 where a w names its class and 0 elsewhere; of responses less the squared error.

    More is better in both.
    """
    scores = np.asarray(table.design @ w)
    classes = table.units.classes
    if classes is None:
        return np.asarray(-((scores[:, 0] - table.targets) ** 2), np.float64)
    chosen = scores.argmax(axis=1) if len(classes) > 2 else (scores[:, 0] > 0).astype(int)
    right: Floats = (chosen == table.targets).astype(np.float64)
    return right


def _dense(matrix: Any) -> Floats:
    to_array: Callable[[], Floats] | None = getattr(matrix, "toarray", None)
    return np.asarray(matrix) if to_array is None else to_array()
