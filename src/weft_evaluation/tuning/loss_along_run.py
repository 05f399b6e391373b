"""Looking at a run from outside: the loss and the score of its model, every few iterations.

Nobody in a federation could do that. Here all tables are in one hand, as they are for
`weft_evaluation`, and what is looked at costs the run nothing: its clocks stand still meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

import numpy as np

from weft.array_types import Floats
from weft.federation.local_federation import Federation
from weft.solvers.fedavg_fedprox_hyfem import FedavgParty
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.rounds.party import RoundParty
from weft.solvers.solver_interfaces_and_results import Record
from weft_evaluation.algorithm_comparison import Arena
from weft_evaluation.assemble_weights_from_parties import Follower
from weft_evaluation.pooled_table_in_training_units import PooledTable
from weft_evaluation.reference_optimum import score
from weft_evaluation.tuning.convergence_and_cost_metrics import Point

#: When an iteration has ended: the model that the run stands for, in the order of the pooled
#: columns, and after how many iterations it did; None where that cannot be told from outside.
Look = Callable[[Record], "tuple[int, Floats] | None"]
#: Of the time of a run, the part that looking at it may take.
SHARE = 0.5
#: Points of a run at least, however long they take.
FEWEST = 10


class Follow(Protocol):
    """Says how to look at a federation that is about to train."""

    def __call__(self, federation: Federation, table: PooledTable) -> Look: ...


class Eye:
    """Evaluates models on the pooled tables.

    Attributes
    ----------
    start
        The loss of w = 0, where all algorithms begin.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        test = arena.train if arena.test is None else arena.test
        aligned = test.of_features(arena.train.features)
        # With the constant column among the cells it need not be put there every time.
        bare = replace(aligned.units, bias=None)
        self._test = replace(aligned, block=aligned.design, units=bare)
        self._shape = (arena.problem.x.shape[1], arena.problem.y.shape[1])
        self.start = self.loss(np.zeros(self._shape))

    def loss(self, w: Floats) -> float:
        with np.errstate(all="ignore"):
            return self.arena.problem.primal(w)

    def score(self, w: Floats) -> float:
        """Accuracy or R² on samples held out."""
        with np.errstate(all="ignore"):
            found = score(self._test, w)
        return found.get("accuracy", found.get("r2", math.nan))

    def seconds(self) -> float:
        """What one look takes: the faster of two."""
        w, took = np.zeros(self._shape), []
        for _ in range(2):
            began = perf_counter()
            self.loss(w), self.score(w)
            took.append(perf_counter() - began)
        return min(took)


@dataclass
class Watch:
    """Follows one run.

    Parameters
    ----------
    every
        Iterations from one look to the next.
    iterations
        Those of the run; the model at its end is evaluated by others.
    then
        Hears of every iteration too.

    Attributes
    ----------
    points
        What was seen, beginning with w = 0: one at every look, or one for every certificate, at
        the iteration that it certifies.
    seconds
        What looking took.
    """

    eye: Eye
    every: int
    iterations: int
    follow: Follow
    then: Callable[[Record], None] | None = None
    records: list[Record] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.points = [Point(0, self.eye.start, None)]
        self._look: Look | None = None
        #: Whether nothing but certificates shows where the run is.
        self._blind = False

    def open(self, federation: Federation) -> None:
        """A federation is about to train."""
        self._look = self.follow(federation, self.eye.arena.train)

    def __call__(self, record: Record) -> None:
        self.records.append(record)
        if self._blind:
            self._add_certificate(record)
        elif record.iteration % self.every == 0 and self._look is not None:
            began = perf_counter()
            self._add(self._look(record))
            self.seconds += perf_counter() - began
        if self.then is not None:
            self.then(record)

    def _add(self, seen: tuple[int, Floats] | None) -> None:
        if seen is None:
            self._blind = True
            for record in self.records:
                self._add_certificate(record)
            return
        iteration, w = seen
        if 0 < iteration < self.iterations:
            self.points.append(Point(iteration, self.eye.loss(w), self.eye.score(w)))

    def _add_certificate(self, record: Record) -> None:
        """The newest certificate, once: records repeat it until there is another."""
        at, newest = record.certified_at, self.points[-1].iteration
        if at is not None and record.primal is not None and newest < at < self.iterations:
            self.points.append(Point(at, record.primal, None))


def stride(look: float, iteration: float, iterations: int) -> int:
    """Iterations from one look to the next, such that looking takes about half the time at most."""
    allowed = iteration * SHARE / (1 - SHARE)
    wanted = math.ceil(look / allowed) if allowed > 0 else iterations
    return max(1, min(wanted, iterations // FEWEST))


def from_outside(federation: Federation, table: PooledTable) -> Look:
    """The model that a run stands for, put together from what the parties hold.

    Solvers whose parties hold no model before the end are followed by their certificates alone.
    """
    follower: Follower | None = None

    def look(record: Record) -> tuple[int, Floats] | None:
        nonlocal follower
        half = next(iter(federation.parties.values()))._half
        if not isinstance(half, HyfdcaParty | RoundParty):
            return None
        if follower is None:
            follower = Follower(
                federation.parties, table.features, bias=table.units.bias is not None
            )
        # Parties of other methods know an iteration's outcome when the next one begins.
        after = isinstance(half, HyfdcaParty | FedavgParty)
        return record.iteration - (not after), follower.weights()

    return look
