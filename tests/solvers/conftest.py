"""The outside judge: the pooled problem, its value and its optimum, without Weft's own code.

Tests of this folder ask for the fixtures ``judge`` (formulas and solvers), ``tables`` (real data,
rows scaled by one constant to ‖x‖ ≤ 1) and ``alpha_reader`` (α as the parties hold it, for the
pooled table). Nothing here calls Weft's losses, sums or certificates.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import expit, xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC, LinearSVR

from weft.data import Split, Table, load, pool
from weft.federation.local_federation import Federation
from weft.federation.model import Model

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw) on a table that stands in one place."""

    loss: str
    x: Floats
    y: Floats
    lam: float
    g: float = 0.5
    epsilon: float = 0.1

    @property
    def n(self) -> int:
        return len(self.y)

    def losses(self, z: Floats) -> Floats:
        """l(z) of every sample."""
        shortfall, deviation = 1.0 - self.y * z, np.abs(z - self.y)
        if self.loss == "hinge":
            return np.maximum(shortfall, 0.0)
        if self.loss == "smoothed_hinge":
            curved = np.maximum(shortfall, 0.0) ** 2 / (2 * self.g)
            return np.where(shortfall > self.g, shortfall - self.g / 2, curved)
        if self.loss == "squared_hinge":
            return np.maximum(shortfall, 0.0) ** 2 / 2
        if self.loss == "logistic":
            return np.logaddexp(0.0, -self.y * z)
        if self.loss == "squared":
            return deviation**2 / 2
        if self.loss == "absolute":
            return deviation
        if self.loss == "epsilon_insensitive":
            return np.maximum(deviation - self.epsilon, 0.0)
        assert self.loss == "huber"
        return np.where(deviation > self.g, deviation - self.g / 2, deviation**2 / (2 * self.g))

    def slopes(self, z: Floats) -> Floats:
        """l'(z) of every sample of a smooth loss."""
        if self.loss == "smoothed_hinge":
            return -self.y * np.clip((1.0 - self.y * z) / self.g, 0.0, 1.0)
        if self.loss == "squared_hinge":
            return -self.y * np.maximum(1.0 - self.y * z, 0.0)
        if self.loss == "logistic":
            return -self.y * expit(-self.y * z)
        assert self.loss == "huber"
        return np.clip((z - self.y) / self.g, -1.0, 1.0)

    def conjugates(self, alpha: Floats) -> Floats:
        """l*(−α) of every sample, for α in the domain."""
        p = self.y * alpha
        if self.loss == "hinge":
            return -p
        if self.loss == "smoothed_hinge":
            return -p + self.g / 2 * alpha**2
        if self.loss == "squared_hinge":
            return -p + alpha**2 / 2
        if self.loss == "logistic":
            return xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)
        if self.loss == "squared":
            return -p + alpha**2 / 2
        if self.loss == "absolute":
            return -p
        if self.loss == "epsilon_insensitive":
            return -p + self.epsilon * np.abs(alpha)
        assert self.loss == "huber"
        return -p + self.g / 2 * alpha**2

    def primal(self, w: Floats) -> float:
        return float(self.lam / 2 * w @ w + self.losses(self.x @ w).mean())

    def weights(self, alpha: Floats) -> Floats:
        """w(α) = 1/(λN) Σ α_i x_i."""
        return self.x.T @ alpha / (self.lam * self.n)

    def dual(self, alpha: Floats) -> float:
        w = self.weights(alpha)
        return float(-self.lam / 2 * w @ w - self.conjugates(alpha).mean())

    def solve(self) -> Floats:
        """The minimiser: liblinear where it solves this problem, else a closed form or L-BFGS."""
        c = 1.0 / (self.lam * self.n)
        if self.loss == "squared":
            gram = self.x.T @ self.x / self.n + self.lam * np.eye(self.x.shape[1])
            return np.linalg.solve(gram, self.x.T @ self.y / self.n)
        common: dict[str, Any] = {"fit_intercept": False, "tol": 1e-9, "max_iter": 1_000_000}
        with warnings.catch_warnings():
            # A judge that has not converged is no judge.
            warnings.simplefilter("error", ConvergenceWarning)
            if self.loss == "hinge":
                return LinearSVC(loss="hinge", C=c, **common).fit(self.x, self.y).coef_[0]
            if self.loss == "squared_hinge":
                # liblinear leaves out the factor ½.
                return LinearSVC(C=c / 2, dual=True, **common).fit(self.x, self.y).coef_[0]
            if self.loss == "logistic":
                solver = LogisticRegression(C=c, solver="newton-cholesky", **common)
                return solver.fit(self.x, self.y).coef_[0]
            if self.loss in ("absolute", "epsilon_insensitive"):
                epsilon = 0.0 if self.loss == "absolute" else self.epsilon
                return LinearSVR(epsilon=epsilon, C=c, **common).fit(self.x, self.y).coef_
        return scipy.optimize.minimize(
            lambda w: (self.primal(w), self.lam * w + self.x.T @ self.slopes(self.x @ w) / self.n),
            np.zeros(self.x.shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10},
        ).x

    def largest_dual(self) -> float:
        """D(α*) of the hinge loss as a box-constrained quadratic programme: a second judge."""
        assert self.loss == "hinge"
        rows = self.y[:, None] * self.x

        def negative(p: Floats) -> tuple[float, Floats]:
            v = rows.T @ p / self.n
            return float(v @ v / (2 * self.lam) - p.mean()), (
                rows @ v / (self.lam * self.n) - 1.0 / self.n
            )

        found = scipy.optimize.minimize(
            negative,
            np.zeros(self.n),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * self.n,
            options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-12},
        )
        return -float(found.fun)


class Judge:
    """Problems on pooled tables, with optima kept for the session."""

    def __init__(self) -> None:
        self._optima: dict[object, float] = {}

    def problem(self, loss: str, split: Split | Table, lam: float, **parameters: float) -> Problem:
        """The problem that a split stands for; class labels become ±1, the larger one +1."""
        table = split if isinstance(split, Table) else pool(split)
        x = table.block if isinstance(table.block, np.ndarray) else table.block.toarray()
        y = np.asarray(table.labels, np.float64)
        if table.task == "classification":
            y = np.where(y == y.max(), 1.0, -1.0)
        return Problem(loss, x, y, lam, **parameters)

    def optimum(self, problem: Problem, *, exact: bool = False) -> float:
        """P*; with ``exact`` (hinge) the value is enclosed by a dual one, to 1e-7."""
        order = np.lexsort(problem.x.T)
        key = (
            problem.loss,
            problem.lam,
            problem.g,
            problem.epsilon,
            problem.x[order].tobytes(),
            problem.y[order].tobytes(),
            exact,
        )
        if key not in self._optima:
            best = problem.primal(problem.solve())
            if exact:
                below = problem.largest_dual()
                assert below <= best * (1 + 1e-12) <= below + 1e-7 * best, (best, below)
            self._optima[key] = best
        return self._optima[key]

    def weights(self, model: Model, split: Split | Table) -> Floats:
        """The released weights in the pooled table's order of features (one row per class)."""
        table = split if isinstance(split, Table) else pool(split)
        place = {name: i for i, name in enumerate(model.features.tolist())}
        return model.coef[:, [place[name] for name in table.features.tolist()]]


@pytest.fixture(scope="session")
def judge() -> Judge:
    return Judge()


class Tables:
    """Real tables whose longest row has norm one."""

    def digits(self, n: int = 1797) -> Table:
        """The first n digits, even (+1) against odd (−1)."""
        table = load("digits").rows(slice(0, n))
        return _table(table, table.block, np.where(table.labels % 2 == 0, 1, -1))

    def breast(self, n: int = 569) -> Table:
        """Breast cancer, columns standardised."""
        table = load("breast_cancer")
        block = (table.block - table.block.mean(axis=0)) / table.block.std(axis=0)
        return _table(table, block, table.labels).rows(slice(0, n))

    def diabetes(self, n: int = 442) -> Table:
        """Diabetes, response standardised."""
        table = load("diabetes")
        labels = (table.labels - table.labels.mean()) / table.labels.std()
        return _table(table, table.block, labels).rows(slice(0, n))

    def pair(self, low: int, high: int, n: int = 200) -> Table:
        """Two kinds of digits against each other, every row scaled to norm one."""
        table = load("digits")
        chosen = np.flatnonzero(np.isin(table.labels, [low, high]))[:n]
        block = np.asarray(table.block)[chosen]
        block /= np.linalg.norm(block, axis=1)[:, None]
        labels = np.where(table.labels[chosen] == high, 1, -1)
        return _table(table.rows(chosen), block, labels)


def _table(table: Table, block: Any, labels: NDArray[Any]) -> Table:
    scaled = block / np.linalg.norm(block, axis=1).max()
    return Table(table.ids, table.features, scaled, labels, table.task, table.name)


@pytest.fixture(scope="session")
def tables() -> Tables:
    return Tables()


class AlphaReader:
    """α (of one class) as the parties of a federation hold it, in the order of ``ids``."""

    def __init__(self, federation: Federation, ids: NDArray[np.object_]) -> None:
        self._n = len(ids)
        self._halves: dict[str, Any] = {}
        self._places: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        place = {sample: i for i, sample in enumerate(ids.tolist())}
        for name, party in federation.parties.items():
            found: dict[int, int] = {}
            inside: Any = party
            for tile, slots in zip(inside.data.tiles, party.view.tile_rows, strict=True):
                for sample, slot in zip(tile.ids.tolist(), slots.tolist(), strict=True):
                    if slot >= 0:
                        found[slot] = place[sample]
            self._halves[name] = inside._half
            self._places[name] = (np.array(list(found)), np.array(list(found.values())))

    def read(self, parties: Iterable[str] | None = None, *, frozen: bool = False) -> Floats:
        """α from these parties (all of them by default), who must agree and cover all samples.

        ``frozen``: that of the pair frozen last, instead of the current one.
        """
        alpha = np.full(self._n, np.nan)
        for name in self._halves if parties is None else parties:
            slots, places = self._places[name]
            half = self._halves[name]
            mine = (half.frozen._alpha if frozen else half.alpha)[slots, 0]
            before = alpha[places]
            assert (np.isnan(before) | (before == mine)).all(), f"{name} holds another α"
            alpha[places] = mine
        assert not np.isnan(alpha).any(), "some samples have no holder among these parties"
        return alpha


@pytest.fixture(scope="session")
def alpha_reader() -> type[AlphaReader]:
    return AlphaReader
