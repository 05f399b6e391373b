"""Runs of a federation in one process, with their distance from P* after every iteration.

The runs are Weft's own, messages and fixed point included. Unlike in a real federation,
P is also evaluated on the pooled table, and P* comes from outside solvers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data import Split
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.losses import Loss
from weft.solvers.fedhybrid.local_function import Weighting
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.solvers.solver_interfaces_and_results import Record
from weft_evaluation.reference_optimum import Optimum, Problem, solve

Progress = Callable[[Record], None]
#: So that no certificate is asked for: P is known here.
_NEVER = 10**9


@dataclass(frozen=True)
class TrackedRun:
    """How one run went.

    Attributes
    ----------
    distances
        (P − P*)/P* after 0, 1, 2, … iterations; the last is infinite where the parties refused to
        go on, since the weights grew without end.
    errors, losses
        ‖w − w*‖/‖w*‖ and P by then.
    round_trips
        Of all of them, matching and setting up included.
    updates
        How often the model had changed by then.
    mu
        FedHybrid's penalty; nan for other methods.
    """

    solver: str
    options: dict[str, Any]
    distances: Floats
    errors: Floats
    losses: Floats
    round_trips: NDArray[np.int64]
    updates: NDArray[np.int64]
    mu: float = math.nan

    def reached(self, distance: float) -> int | None:
        """The first iteration after which the run is as near as that; None: never."""
        near = np.flatnonzero(self.distances <= distance)
        return int(near[0]) if len(near) else None

    @property
    def end(self) -> float:
        """The distance after the last iteration."""
        return float(self.distances[-1])


class Workbench:
    """A split with its problem, on which methods run one after the other.

    Parameters
    ----------
    split
        Rows at parties that all have the same columns, in the same order.
    weigh
        Whether all samples or all parties weigh the same in the objective.
    """

    def __init__(self, split: Split, loss: Loss, lam: float, weigh: Weighting) -> None:
        self.split, self.loss, self.lam, self.weigh = split, loss, lam, weigh
        tiles = [tiles[0] for tiles in split.parties.values()]
        rows = np.array([tile.n for tile in tiles])
        each = np.full(len(rows), 1.0 / rows.sum())
        if weigh == "parties":
            each = 1.0 / (len(rows) * rows)
        self.problem = Problem(
            np.vstack([np.asarray(tile.block, np.float64) for tile in tiles]),
            np.concatenate([np.asarray(tile.labels, np.float64) for tile in tiles])[:, None],
            np.repeat(each, rows),
            loss,
            lam,
        )

    @cached_property
    def optimum(self) -> Optimum:
        """P* by a closed form, or by scikit-learn's and scipy's solvers."""
        return solve(self.problem)

    def run(
        self,
        solver: str,
        options: dict[str, Any],
        iterations: int,
        *,
        near: float = 0.0,
        progress: Progress | None = None,
    ) -> TrackedRun:
        """Train, and follow P.

        Parameters
        ----------
        near
            Stop when (P − P*)/P* is that small.
        """
        federation = Federation(
            self.split.parties, Preprocessing(overlap=self.split.overlap, confirmed=ONE_TABLE)
        )
        trail = _Trail()

        def follow(record: Record) -> None:
            w = _weights(federation)
            trail.add(w, self._standing(w), record.round_trips)
            if progress is not None:
                progress(record)
            if trail.distances[-1] <= near:
                raise _NearEnough

        try:
            federation.train(self._settings(solver, options, iterations), progress=follow)
        except _NearEnough:
            pass
        except ProtocolError as error:
            # A search over steps must survive those under which weights grow, and nothing else.
            if "grow without end" not in str(error) or not trail.distances:
                raise
            trail.distances[-1] = math.inf
        return trail.run(solver, options, _mu(federation))

    def _standing(self, w: Floats) -> tuple[float, float, float]:
        """(P − P*)/P*, ‖w − w*‖/‖w*‖ and P."""
        best, loss = self.optimum, self.problem.primal(w)
        error = float(np.linalg.norm(w - best.w) / np.linalg.norm(best.w))
        return (loss - best.primal) / best.primal, error, loss

    def _settings(self, solver: str, options: dict[str, Any], iterations: int) -> Settings:
        return Settings(
            lam=self.lam,
            loss=self.loss.name,
            solver=solver,
            options=options,
            weigh=self.weigh,
            cipher="plain",
            gap=None,
            # Parties know an iteration's outcome when the next one begins.
            iterations=iterations + 1,
            certify_every=_NEVER,
        )


class _NearEnough(Exception):
    """The run has come where it should."""


class _Trail:
    """What a run leaves behind, iteration by iteration."""

    def __init__(self) -> None:
        self.distances: list[float] = []
        self._errors: list[float] = []
        self._losses: list[float] = []
        self._trips: list[int] = []
        self._updates: list[int] = []
        self._last: Floats | None = None

    def add(self, w: Floats, standing: tuple[float, float, float], round_trips: int) -> None:
        """The model that an iteration begins with, how good it is, and the round trips after it."""
        moved = self._last is not None and not np.array_equal(w, self._last)
        self._updates.append((self._updates[-1] if self._updates else 0) + moved)
        self._last = w
        distance, error, loss = standing
        self.distances.append(distance)
        self._errors.append(error)
        self._losses.append(loss)
        self._trips.append(round_trips)

    def run(self, solver: str, options: dict[str, Any], mu: float) -> TrackedRun:
        # An iteration begins with what the one before it led to, at that one's cost.
        trips = [self._trips[0] - 1, *self._trips[:-1]]
        return TrackedRun(
            solver,
            options,
            np.array(self.distances),
            np.array(self._errors),
            np.array(self._losses),
            np.array(trips, np.int64),
            np.array(self._updates, np.int64),
            mu,
        )


def _weights(federation: Federation) -> Floats:
    """The model that parties have, in the order of their columns."""
    party: Any = next(iter(federation.parties.values()))
    weights: Floats = party._half.w[party.view.tile_columns[0]]
    return weights


def _mu(federation: Federation) -> float:
    party: Any = next(iter(federation.parties.values()))
    facts: Constants = getattr(party._half, "_facts", Constants())
    return math.nan if facts.mu is None else facts.mu
