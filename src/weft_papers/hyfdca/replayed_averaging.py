"""FedAvg's and linear HyFEM's iterations on the library's own parties, without messages.

As `weft_papers.hyfdca.replayed_hyfdca`: the same draws, steps and fixed point, and the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.fixed_point import FixedPoint
from weft.solvers.rounds.sequential_kernels import whole_turn
from weft_papers.hyfdca.seated_parties import Integers, Seated, joined, parted


class ReplayedAveraging:
    """The mean of the weights, and every party's part of its last change."""

    def __init__(self, seated: Seated) -> None:
        self._seated, self._run, self._halves = seated, seated.run, seated.halves
        first, run = self._halves[0], seated.run
        self._options = first.options
        self._format = FixedPoint(first.longest, "weights")
        self._total: Integers = np.zeros((run.column_layout.n_shared, first.classes), np.int64)
        self._samples = [half.view.n_rows for half in self._halves]
        self._weights: Ints = np.zeros(len(run.holdings.columns.sizes), np.int64)

    def iterate(self, t: int) -> None:
        """Iteration ``t``, counted from 1."""
        present, layout = self._seated.present(t), self._run.column_layout
        names = self._run.holdings.parties
        cohorts = [layout.cohorts[layout.group[names[k]]] for k in present]
        self._weights[:] = 0
        for k, mine in zip(present, cohorts, strict=True):
            self._weights[mine] += self._samples[k]
        changes = [
            (k, self._turn(k, t, self._weights[mine]))
            for k, mine in zip(present, cohorts, strict=True)
        ]
        for k, change in changes:
            self._total[self._seated.columns[k]] += change

    def _turn(self, k: int, t: int, weights: Ints) -> Integers:
        """A party's local steps; returns its share of the change."""
        half, columns = self._halves[k], self._seated.columns[k]
        shared, rate = len(columns), half._rate / (self._options.b + math.sqrt(t))
        start: Floats = self._total[columns].astype(np.float64) * self._format.unit
        if shared < len(half.w):
            start = np.concatenate([start, half.w[shared:]])
        weight = self._samples[k]
        limits = (weight, half.view.n_parties * half.view.n_samples)
        steps = (*half._always, start, t, rate, weight, weights, *limits)
        largest: float = whole_turn(*steps)
        if not largest < half.longest:
            half.check_size(half._moved)
        half.w, half.iteration = start, t
        if shared < len(start):
            half.w[shared:] = half._moved[shared:]
        return self._format.encode(half.change)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that the next iteration depends on."""
        return {
            "total": self._total,
            "party_w": joined([half.w for half in self._halves]),
            "party_change": joined([half.change for half in self._halves]),
            "party_iteration": np.array([half.iteration for half in self._halves]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]], t: int) -> None:
        """The inverse of `state`, after iteration ``t``."""
        self._total = state["total"]
        parted(state["party_w"], [half.w for half in self._halves])
        parted(state["party_change"], [half.change for half in self._halves])
        for half, iteration in zip(self._halves, state["party_iteration"], strict=True):
            half.iteration = int(iteration)
