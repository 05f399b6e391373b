"""HyFDCA by the papers' settings, for up to a million iterations, without messages.

The iterations are the library's own (`weft.solvers.hyfdca.iterations_without_messages`); here is
what a replay does besides: frozen pairs of `safe`, and states in files. It comes to the bits of a
run with messages (`tests/papers/test_hyfdca_replay.py`), at a fraction of the cost. What an
iteration of the protocol costs is measured apart, in the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.solvers.hyfdca.iterations_without_messages import IterationsWithoutMessages
from weft.solvers.hyfdca.local_methods import Safe
from weft.storage.atomic_files import part_of
from weft.sums.gap_certificate import Certificate
from weft_papers.hyfdca.parties_ready_for_replay import Seated, joined, parted


class ReplayedHyfdca:
    """The parties' α, feature sums and weights, and the totals of all, iteration by iteration."""

    def __init__(self, seated: Seated) -> None:
        self._seated, self._run, self._halves = seated, seated.run, seated.halves
        safe = isinstance(self._halves[0].method, Safe)
        self._moves = IterationsWithoutMessages(self._run, self._halves)
        self._pair = _PairUnderWay(seated) if safe else None
        #: The last iteration that is done.
        self.completed = 0

    def advance(self, last: int) -> None:
        """Iterations up to ``last``, counted from 1."""
        for t in range(self.completed + 1, last + 1):
            self._iterate(t)
            self.completed = t

    def _iterate(self, t: int) -> None:
        run = self._run
        run.iteration = t
        present = self._seated.present(t)
        if self._pair is not None:
            self._pair.ask(present)
        self._moves.iterate(t, present, omega=run.omega)
        names = run.holdings.parties
        for k in present:
            run.seen[names[k]] = t
        if self._pair is not None:
            self._pair.freeze(t, self._moves.alpha())

    # ── files ─────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """All that the next iteration depends on."""
        own: dict[str, NDArray[Any]] = {
            name: joined(arrays) for name, arrays in self._of_parties().items()
        }
        own |= {f"total.{name}": array for name, array in self._run.totals().items()}
        own["seen"] = np.array(list(self._run.seen.values()), np.int64)
        if self._pair is not None:
            own |= self._pair.state()
        return own

    def restore(self, state: Mapping[str, NDArray[Any]], t: int) -> None:
        """The inverse of `state`, after iteration ``t``."""
        for name, arrays in self._of_parties().items():
            parted(state[name], arrays)
        self._run.iteration = self.completed = t
        self._run.take_totals(part_of(state, "total"))
        self._run.seen = dict(zip(self._run.seen, state["seen"].tolist(), strict=True))
        if self._pair is not None:
            self._pair.restore(state)

    def _of_parties(self) -> dict[str, list[Any]]:
        return {
            **{f"party_{name}": [getattr(h, name) for h in self._halves] for name in "vw"},
            "party_alpha": [half.alpha for half in self._halves],
            "sent_z": [half.z_sum.sent for half in self._halves],
            "sent_v": [half.v_sum.sent for half in self._halves],
        }


class _PairUnderWay:
    """When the pairs that ``safe`` freezes are certified, and D of each: ω doubles where D fell.

    A pair takes three turns of every party, one after the other: feature sums, products, losses.
    """

    _TURNS = 3

    def __init__(self, seated: Seated) -> None:
        self._seated, self._run = seated, seated.run
        count = len(seated.halves)
        self._iteration, self._turns_done = -1, 0
        self._waiting = np.ones(count, bool)
        self._private = [len(half.alpha) - len(rows) for half, rows in self._parties()]
        self._alpha: list[Floats] = []

    def _parties(self) -> list[tuple[Any, Any]]:
        return list(zip(self._seated.halves, self._seated.rows, strict=True))

    def freeze(self, t: int, alpha: Floats) -> None:
        """Take α after iteration ``t``, if a pair is due and none is under way."""
        run = self._run
        if self._iteration >= 0 or (t - 1) % run.certify_every:
            return
        self._iteration, self._turns_done = t, 0
        self._waiting[:] = True
        # A party's private samples are nobody else's to change.
        self._alpha = [
            np.concatenate([alpha[rows], half.alpha[len(rows) :]]) for half, rows in self._parties()
        ]

    def ask(self, present: list[int]) -> None:
        """Those who are present answer; the last one of the last turn completes the pair."""
        if self._iteration < 0:
            return
        self._waiting[present] = False
        if self._waiting.any():
            return
        self._turns_done += 1
        self._waiting[:] = True
        if self._turns_done == self._TURNS:
            dual = self._dual()
            nowhere = (float("inf"),) * len(dual)
            self._run.certify(Certificate(self._iteration, nowhere, dual), frozen=True)
            self._iteration = -1

    def _dual(self) -> tuple[float, ...]:
        """D = −λ/2 ‖w(α)‖² − Σ l*(−α)/N, per class."""
        first, run = self._seated.halves[0], self._run
        lam, samples = first.settings.lam, first.view.n_samples
        total = np.zeros((run.column_layout.n_shared, first.alpha.shape[1]))
        squares, conjugates = np.zeros(total.shape[1]), np.zeros(total.shape[1])
        for half, columns, alpha in zip(
            self._seated.halves, self._seated.columns, self._alpha, strict=True
        ):
            sums = np.zeros_like(half.v)
            half.table.accumulate(None, alpha, sums)
            total[columns] += sums[: len(columns)]
            squares += (sums[len(columns) :] ** 2).sum(axis=0)
            counted = half.view.counted_rows
            told = half.loss.conjugate(alpha[counted], half.labels[counted])
            conjugates += told.sum(axis=0)
        squares += (total**2).sum(axis=0)
        dual = -0.5 * squares / (lam * samples**2) - conjugates / samples
        return tuple(dual.tolist())

    def state(self) -> dict[str, NDArray[Any]]:
        run, best = self._run, self._run.certificate
        dual = np.zeros(0) if best is None else np.array(best.dual)
        at = -1 if best is None else best.iteration
        numbers = np.array([self._iteration, self._turns_done, at], np.int64)
        return {
            "pair": numbers,
            "pair_waiting": self._waiting,
            "pair_alpha": joined(self._alpha) if self._alpha else np.zeros(0),
            "pair_dual": dual,
            "pair_omega": np.array([run.omega, run.best_dual]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        run = self._run
        self._iteration, self._turns_done, at = (int(n) for n in state["pair"])
        self._waiting = state["pair_waiting"]
        self._alpha = [np.zeros_like(half.alpha) for half in self._seated.halves]
        if len(state["pair_alpha"]):
            parted(state["pair_alpha"], self._alpha)
        run.omega, run.best_dual = (float(n) for n in state["pair_omega"])
        if at >= 0:
            dual = tuple(float(d) for d in state["pair_dual"])
            run.certificate = Certificate(at, (float("inf"),) * len(dual), dual)
            run.certified_frozen = True
