"""FedHybrid and FedAvg with constant steps, a whole grid of them side by side.

The updates of Algorithm 1 on all parties in this process, without messages: a column of every
array is a candidate of the grid. What `weft.solvers.fedhybrid` does with ``steps = "fixed"`` is the
same up to its fixed point of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.array_types import Floats, Ints
from weft.losses import Loss, Squared
from weft_papers.fedhybrid.runs_tracked_to_optimum import Workbench

#: Candidates farther from x* than this, relative to its length, have diverged.
_LOST = 1e8
#: Up to so many, products of a row's cells with each other are kept for Hessians.
_FEW_COLUMNS = 40
#: Halfway, candidates are dropped that are so many times as far from x* as the best one.
_BEHIND = 1e3


class Candidates(NamedTuple):
    """Constant steps: μ, and a_i and b_i of gradient-type and of Newton-type parties."""

    mu: Floats
    gradient_a: Floats
    gradient_b: Floats
    newton_a: Floats
    newton_b: Floats

    def only(self, some: Ints) -> Candidates:
        return Candidates(*(values[some] for values in self))


@dataclass(frozen=True)
class Followed:
    """How far x₀ was from x*, and its loss, after 0, 1, 2, … iterations: (iterations, candidates).

    Attributes
    ----------
    errors
        ‖x₀ − x*‖/‖x*‖; infinite where a candidate diverged or fell far behind.
    losses
        P(x₀), where they were asked for.
    """

    errors: Floats
    losses: Floats | None


class Rows:
    """A party's function f_i = weight · Σ_j l(a_jᵀx; y_j) + λ/2 ‖x‖², for many x at once."""

    def __init__(self, x: Floats, y: Floats, weight: float, loss: Loss, lam: float) -> None:
        self._x, self._y, self._weight = x, y[:, None], weight
        self._loss, self._lam = loss, lam
        self._quadratic = isinstance(loss, Squared)
        self._spectrum: tuple[Floats, Floats] | None = None
        self._products: Floats | None = None

    def some(self, share: float, random: np.random.Generator) -> Rows:
        """A sample of the rows, each weighing more."""
        count = max(1, round(share * len(self._x)))
        chosen = random.choice(len(self._x), count, replace=False)
        weight = self._weight * len(self._x) / count
        return Rows(self._x[chosen], self._y[chosen, 0], weight, self._loss, self._lam)

    def gradient(self, x: Floats) -> Floats:
        slopes = -self._weight * self._loss.u(self._x @ x, self._y)
        found: Floats = self._x.T @ slopes + self._lam * x
        return found

    def newton(self, x: Floats, mu: Floats, right: Floats, apart: Floats) -> tuple[Floats, Floats]:
        """D⁻¹ · right and D · apart, with D = ∇²f_i(x) + μI of every candidate."""
        if self._quadratic:
            return self._by_spectrum(mu, right, apart)
        curves = self._weight * self._loss.curvature(self._x @ x, self._y)
        unit = np.eye(len(right))
        systems = self._bends(curves) + (self._lam + mu)[:, None, None] * unit
        solved: Floats = np.asarray(np.linalg.solve(systems, right.T[:, :, None]), np.float64)
        times: Floats = systems @ apart.T[:, :, None]
        return solved[:, :, 0].T, times[:, :, 0].T

    def _bends(self, curves: Floats) -> Floats:
        """Xᵀ diag(c) X of every candidate: (candidates, columns, columns)."""
        count, size = self._x.shape
        if size > _FEW_COLUMNS:
            return np.stack([(self._x * one[:, None]).T @ self._x for one in curves.T])
        if self._products is None:
            self._products = (self._x[:, :, None] * self._x[:, None, :]).reshape(count, -1)
        found: Floats = (curves.T @ self._products).reshape(-1, size, size)
        return found

    def _by_spectrum(self, mu: Floats, right: Floats, apart: Floats) -> tuple[Floats, Floats]:
        """The Hessian is the same for all candidates: its eigenvectors solve every system."""
        if self._spectrum is None:
            values, vectors = np.linalg.eigh(self._weight * (self._x.T @ self._x))
            self._spectrum = values + self._lam, vectors
        values, vectors = self._spectrum
        bends = values[:, None] + mu
        return vectors @ (vectors.T @ right / bends), vectors @ (vectors.T @ apart * bends)


class Grid:
    """All parties of a workbench, and its optimum.

    Parameters
    ----------
    share
        Of its rows, which a party draws anew for every gradient and Hessian; 1: all of them.
    seed
        Of these draws.
    """

    def __init__(self, workbench: Workbench, *, share: float = 1.0, seed: int = 0) -> None:
        self._problem, self._share, self._seed = workbench.problem, share, seed
        self.quadratic = isinstance(workbench.loss, Squared)
        self._best = workbench.optimum.w[:, 0]
        tiles = [tiles[0] for tiles in workbench.split.parties.values()]
        self.parties = list(workbench.split.parties)
        count, total = len(tiles), sum(tile.n for tile in tiles)
        self._rows = [
            Rows(
                np.asarray(tile.block, np.float64),
                np.asarray(tile.labels, np.float64),
                1 / tile.n if workbench.weigh == "parties" else count / total,
                workbench.loss,
                workbench.lam,
            )
            for tile in tiles
        ]

    def fedhybrid(
        self, newton: Sequence[str], steps: Candidates, iterations: int, *, losses: bool = False
    ) -> Followed:
        """Algorithm 1 from zeros; ``newton`` are the Newton-type parties."""
        count, size = len(self._rows), len(self._best)
        types = [name in set(newton) for name in self.parties]
        x, multipliers = (np.zeros((count, size, len(steps.mu))) for _ in range(2))
        x0 = np.zeros((size, len(steps.mu)))
        alive = np.arange(len(steps.mu))
        trail = _Trail(self, iterations, len(steps.mu), losses)
        random = np.random.default_rng((self._seed, 0xF3D))
        for turn in range(iterations + 1):
            kept = trail.add(turn, x0, alive)
            if turn == iterations or not kept.any():
                break
            if not kept.all():
                alive, x0 = alive[kept], x0[:, kept]
                x, multipliers = x[:, :, kept], multipliers[:, :, kept]
            now = steps.only(alive)
            for at, second in enumerate(types):
                self._move(at, second, x[at], multipliers[at], x0, now, random)
            x0 = x.mean(axis=0) - multipliers.mean(axis=0) / now.mu
        return trail.found()

    def _move(
        self,
        at: int,
        second: bool,
        x: Floats,
        multiplier: Floats,
        x0: Floats,
        steps: Candidates,
        random: np.random.Generator,
    ) -> None:
        """Lines 5 and 6, or 9 and 10, of Algorithm 1, in place."""
        rows = self._rows[at] if self._share == 1 else self._rows[at].some(self._share, random)
        apart = x0 - x
        slope = rows.gradient(x) - multiplier - steps.mu * apart
        a, b = steps.gradient_a, steps.gradient_b
        if second:
            slope, apart = rows.newton(x, steps.mu, slope, apart)
            a, b = steps.newton_a, steps.newton_b
        x -= a * slope
        multiplier += b * apart

    def fedavg(self, rates: Floats, iterations: int, *, losses: bool = False) -> Followed:
        """Gradient descent on the mean of all f_i, which FedAvg with full gradients is."""
        x = np.zeros((len(self._best), len(rates)))
        alive = np.arange(len(rates))
        trail = _Trail(self, iterations, len(rates), losses)
        for turn in range(iterations + 1):
            kept = trail.add(turn, x, alive)
            if turn == iterations or not kept.any():
                break
            alive, x = alive[kept], x[:, kept]
            slope = sum(rows.gradient(x) for rows in self._rows) / len(self._rows)
            x = x - rates[alive] * slope
        return trail.found()

    def error(self, x0: Floats) -> Floats:
        """‖x₀ − x*‖/‖x*‖ of every candidate."""
        apart = np.linalg.norm(x0 - self._best[:, None], axis=0)
        found: Floats = apart / np.linalg.norm(self._best)
        return found

    def loss(self, x0: Floats) -> float:
        return self._problem.primal(x0[:, :1])


class _Trail:
    """Errors of all candidates, iteration by iteration, and who goes on."""

    def __init__(self, grid: Grid, iterations: int, candidates: int, losses: bool) -> None:
        self._grid, self._middle = grid, iterations // 2
        self._errors = np.full((iterations + 1, candidates), np.inf)
        self._losses = np.full(iterations + 1, np.inf) if losses else None

    def add(self, turn: int, x0: Floats, alive: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of the candidates that were still there go on."""
        errors = np.nan_to_num(self._grid.error(x0), nan=np.inf)
        self._errors[turn, alive] = errors
        if self._losses is not None:
            self._losses[turn] = self._grid.loss(x0)
        kept = np.asarray(errors < _LOST)
        if turn == self._middle:
            kept &= errors <= _BEHIND * errors.min()
        return kept

    def found(self) -> Followed:
        return Followed(self._errors, self._losses)
