"""FedAvg's and linear HyFEM's iterations on the library's own parties, without messages.

As `weft_papers.hyfdca.hyfdca_without_messages`: the same draws, steps and fixed point, and the
same bits.
Equal time asks for millions of iterations of a few steps each: what all parties hold lies in one
array each, so that one compiled call makes many iterations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.fixed_point import FixedPoint, encode_block
from weft.solvers.rounds.sequential_kernels import whole_turn
from weft_papers.hyfdca.parties_ready_for_replay import Integers, Seated

#: Iterations of one compiled call: handing it the arrays takes longer than a short iteration.
_AT_ONCE = 500


class _Parties(NamedTuple):
    """What the parties hold, one after the other; ``…_of`` says where each one's part begins.

    Attributes
    ----------
    begin, columns, values, own, labels
        Compressed rows, which of them train, and labels.
    cohort, cohorts
        Each shared column's cohort among those of its party, and their numbers among all.
    places
        Of the shared columns, among those of all parties.
    used, moved, start
        Room for a turn: how much of each row was used, weights after it and before it.
    w, change
        Weights as they were told or moved by the party alone, and its share of the last change.
    encoded
        The change, in fixed point.
    samples, numbers
        How many samples each party has, and its number in draws.
    """

    begin: Any
    begin_of: Ints
    columns: Any
    values: Any
    entry_of: Ints
    own: Any
    own_of: Ints
    labels: Floats
    used: Floats
    row_of: Ints
    cohort: Any
    places: Ints
    change: Floats
    encoded: Integers
    shared_of: Ints
    cohorts: Ints
    cohort_of: Ints
    w: Floats
    moved: Floats
    start: Floats
    weight_of: Ints
    samples: Ints
    numbers: Ints


class ReplayedAveraging:
    """The mean of the weights, and every party's part of its last change."""

    def __init__(self, seated: Seated) -> None:
        self._seated, self._run, self._halves = seated, seated.run, seated.halves
        first, run = self._halves[0], seated.run
        self._options, self._rate = first.options, first._rate
        self._format = FixedPoint(first.longest, "weights")
        self._total: Integers = np.zeros((run.column_layout.n_shared, first.classes), np.int64)
        self._weights: Ints = np.zeros(len(run.holdings.columns.sizes), np.int64)
        self._parties = _joined(seated)
        self._newest: Ints = np.zeros(len(self._halves), np.int64)
        bounds, numbers = (first.view.n_parties * first.view.n_samples, first.longest), self._format
        grid = (numbers.scale, numbers.unit, numbers.limit)
        self._alike = (*first._fixed[5:], first._steps, *first._pulls, *bounds, *grid)
        #: The last iteration that is done.
        self.completed = 0

    def advance(self, last: int) -> None:
        """Iterations up to ``last``, counted from 1."""
        while self.completed < last:
            first = self.completed + 1
            self._iterate(range(first, min(first + _AT_ONCE, last + 1)))

    def _iterate(self, iterations: range) -> None:
        rates = [self._rate / (self._options.b + math.sqrt(t)) for t in iterations]
        present, present_of = self._seated.present_over(iterations)
        state = (self._total, self._weights, self._newest, self._parties)
        told = (iterations.start, present, present_of, np.array(rates))
        arguments: tuple[Any, ...] = (*told, *self._alike, *state)
        self.completed, failed = _iterations(*arguments)
        for half, iteration in zip(self._halves, self._newest.tolist(), strict=True):
            half.iteration = iteration
        if failed >= 0:
            half = self._halves[failed]
            half.check_size(half._moved)
            self._format.refuse()

    def state(self) -> dict[str, NDArray[Any]]:
        """All that the next iteration depends on."""
        return {
            "total": self._total,
            "party_w": self._parties.w.ravel(),
            "party_change": self._parties.change.ravel(),
            "party_iteration": self._newest,
        }

    def restore(self, state: Mapping[str, NDArray[Any]], t: int) -> None:
        """The inverse of `state`, after iteration ``t``."""
        self._total = state["total"]
        self._parties.w[...] = state["party_w"].reshape(self._parties.w.shape)
        self._parties.change[...] = state["party_change"].reshape(self._parties.change.shape)
        self._newest, self.completed = state["party_iteration"].copy(), t
        for half, iteration in zip(self._halves, self._newest.tolist(), strict=True):
            half.iteration = iteration


def _joined(seated: Seated) -> _Parties:
    """All parties' arrays; the parties' own become parts of them."""
    halves, layout = seated.halves, seated.run.column_layout
    rows = [half._always[:5] for half in halves]
    begin, columns, values, own, labels = ([row[n] for row in rows] for n in range(5))
    groups = [layout.group[name] for name in seated.run.holdings.parties]
    cohorts = [np.asarray(layout.cohorts[group], np.int64) for group in groups]
    weights = np.concatenate([half.w for half in halves])
    changes = np.concatenate([half.change for half in halves])
    changes[:] = 0.0
    parties = _Parties(
        begin=np.concatenate(begin),
        begin_of=_begins(begin),
        columns=np.concatenate(columns),
        values=np.concatenate(values),
        entry_of=_begins(values),
        own=np.concatenate(own),
        own_of=_begins(own),
        labels=np.concatenate(labels),
        used=np.zeros((sum(map(len, labels)), labels[0].shape[1])),
        row_of=_begins(labels),
        cohort=np.concatenate([half._cohort for half in halves]),
        places=np.concatenate(seated.columns),
        change=changes,
        encoded=np.zeros(changes.shape, np.int64),
        shared_of=_begins(seated.columns),
        cohorts=np.concatenate(cohorts),
        cohort_of=_begins(cohorts),
        w=weights,
        moved=np.zeros_like(weights),
        start=np.zeros_like(weights),
        weight_of=_begins([half.w for half in halves]),
        samples=np.array([half.view.n_rows for half in halves], np.int64),
        numbers=np.array([half.view.party for half in halves], np.int64),
    )
    for k, half in enumerate(halves):
        mine = slice(*parties.weight_of[k : k + 2].tolist())
        half.w, half._moved = parties.w[mine], parties.moved[mine]
        half.change = parties.change[slice(*parties.shared_of[k : k + 2].tolist())]
    return parties


def _begins(parts: Sequence[Any]) -> Ints:
    """Where each part begins when all are joined, and where the last one ends."""
    return np.cumsum([0, *(len(part) for part in parts)])


@numba.njit(cache=True)
def _iterations(
    begin: int,
    present: Any,
    present_of: Any,
    rates: Any,
    family: int,
    g: float,
    bound: float,
    epsilon: float,
    seed: int,
    count: int,
    lam: float,
    mu: float,
    most: int,
    longest: float,
    scale: float,
    unit: float,
    limit: float,
    total: Any,
    weights: Any,
    newest: Any,
    parties: Any,
) -> tuple[int, int]:
    """Iterations one after the other; returns the last one, and whose weights became too large.

    −1: nobody's.
    """
    for n in range(rates.shape[0]):
        here = present[present_of[n] : present_of[n + 1]]
        failed = _turns(
            here, begin + n, rates[n], family, g, bound, epsilon, seed, count, lam, mu, most,
            longest, scale, unit, limit, total, weights, parties,
        )  # fmt: skip
        if failed >= 0:
            return begin + n - 1, failed
        for k in here:
            newest[k] = begin + n
    return begin + rates.shape[0] - 1, -1


@numba.njit(cache=True, inline="always")
def _turns(
    present: Any,
    iteration: int,
    rate: float,
    family: int,
    g: float,
    bound: float,
    epsilon: float,
    seed: int,
    count: int,
    lam: float,
    mu: float,
    most: int,
    longest: float,
    scale: float,
    unit: float,
    limit: float,
    total: Any,
    weights: Any,
    parties: Any,
) -> int:
    """All turns of an iteration, then their sum; returns a party whose weights are too large.

    −1: there is none. Otherwise the total is what it was.
    """
    p = parties
    weights[:] = 0
    for k in present:
        for at in range(p.cohort_of[k], p.cohort_of[k + 1]):
            weights[p.cohorts[at]] += p.samples[k]
    for k in present:
        begin, end = p.weight_of[k], p.weight_of[k + 1]
        first, last = p.shared_of[k], p.shared_of[k + 1]
        start, moved, change = p.start[begin:end], p.moved[begin:end], p.change[first:last]
        w, shared = p.w[begin:end], last - first
        for j in range(end - begin):
            for c in range(w.shape[1]):
                if j < shared:
                    start[j, c] = total[p.places[first + j], c] * unit
                else:
                    start[j, c] = w[j, c]
        mine = p.cohorts[p.cohort_of[k] : p.cohort_of[k + 1]]
        summed = np.empty(mine.shape[0], np.int64)
        for at in range(mine.shape[0]):
            summed[at] = weights[mine[at]]
        rows = slice(p.row_of[k], p.row_of[k + 1])
        entries = slice(p.entry_of[k], p.entry_of[k + 1])
        weight = p.samples[k]
        largest = whole_turn(
            p.begin[p.begin_of[k] : p.begin_of[k + 1]], p.columns[entries], p.values[entries],
            p.own[p.own_of[k] : p.own_of[k + 1]], p.labels[rows], family, g, bound, epsilon, seed,
            p.numbers[k], count, lam, mu, p.cohort[first:last], p.used[rows], moved, change, start,
            iteration, rate, weight, summed, weight, most,
        )  # fmt: skip
        if not (0 <= largest < longest) or not encode_block(
            change, scale, limit, p.encoded[first:last]
        ):
            return int(k)
        for j in range(end - begin):
            for c in range(w.shape[1]):
                w[j, c] = start[j, c] if j < shared else moved[j, c]
    for k in present:
        for j in range(p.shared_of[k], p.shared_of[k + 1]):
            for c in range(total.shape[1]):
                total[p.places[j], c] += p.encoded[j, c]
    return -1
