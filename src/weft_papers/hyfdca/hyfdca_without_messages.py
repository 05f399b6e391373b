"""HyFDCA's iterations on the library's own parties, without messages between them.

A run of the library spends most of its time around small arrays: messages, their checks, pads. Here
one loop does what coordinator and parties do, with the same draws, products and fixed point in the
same order, and comes to the same bits (`tests/papers/test_hyfdca_replay.py`), at a fraction of the
cost. What an iteration of the protocol costs is measured apart, in the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.crypto.fixed_point import FixedPoint, encode_block_increment, encode_increment
from weft.solvers.hyfdca.local_methods import Safe, Turn
from weft.solvers.hyfdca.party import RESUM_EVERY
from weft.sums.gap_certificate import Certificate
from weft.sums.latest_values_and_request_sums import Changes
from weft_papers.hyfdca.incremental_feature_sums import FeatureTotals
from weft_papers.hyfdca.parties_ready_for_replay import Integers, Seated, joined, parted


class ReplayedHyfdca:
    """The parties' α, feature sums and weights, and the totals of all, iteration by iteration."""

    def __init__(self, seated: Seated) -> None:
        self._seated, self._run, self._halves = seated, seated.run, seated.halves
        first, run = self._halves[0], seated.run
        classes, bounds = first.alpha.shape[1], first.bounds
        self._safe = isinstance(first.method, Safe)
        self._lam, self._samples = first.settings.lam, first.view.n_samples
        self._of_z = FixedPoint(bounds.z, "inner products")
        self._of_v = FixedPoint(bounds.v, "feature sums")
        self._of_alpha = FixedPoint(bounds.alpha, "dual variables")
        self._v_scale = self._of_v.scale * (1.0 / self._samples)
        self._z: Integers = np.zeros((run.row_layout.n_shared, classes), np.int64)
        self._delta = np.zeros_like(self._z)
        self._v: Integers = np.zeros((run.column_layout.n_shared, classes), np.int64)
        #: The newest α of every shared sample, and when it changed.
        self._alpha: Floats = np.zeros(self._z.shape)
        self._changed = Changes(len(self._z))
        self._seen = np.zeros(len(self._halves), np.int64)
        self._z_sent = [np.zeros((len(rows), classes), np.int64) for rows in seated.rows]
        self._v_sent = [np.zeros((len(some), classes), np.int64) for some in seated.columns]
        self._holders = [
            half.view.computing[half.view.row_cohort][:, None].astype(np.float64)
            for half in self._halves
        ]
        self._feature_totals = FeatureTotals(
            self._v, seated.columns, [h.table for h in self._halves]
        )
        self._turns: dict[int, Turn] = {}
        self._pair = _PairUnderWay(seated) if self._safe else None
        #: The last iteration that is done.
        self.completed = 0

    def advance(self, last: int) -> None:
        """Iterations up to ``last``, counted from 1."""
        for t in range(self.completed + 1, last + 1):
            self._iterate(t)
            self.completed = t

    def _iterate(self, t: int) -> None:
        self._run.iteration = t
        present = self._seated.present(t)
        if self._pair is not None:
            self._pair.ask(present)
        self._rejoin(present, t)
        self._send_products(present, t)
        if self._safe:
            self._step(present, t)
        else:
            self._propose_and_move(present, t)
        self._seen[present] = t
        if self._pair is not None:
            self._pair.freeze(t, self._alpha)

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _rejoin(self, present: list[int], t: int) -> None:
        """α that changed while a party was away."""
        known: dict[tuple[int, int], Slots] = {}
        for k in present:
            since = int(self._seen[k])
            if since >= t - 1:
                continue
            rows, key = self._seated.rows[k], (self._seated.row_group[k], since)
            if key not in known:
                known[key] = self._changed.among(rows, since).astype(np.int32)
            slots = known[key]
            if len(slots):
                self._move(k, slots, self._alpha[rows[slots]])
                self._tell_sums(k)

    def _send_products(self, present: list[int], t: int) -> None:
        """Weights from the totals, and products of the samples that are drawn soon."""
        ahead = self._run.participation.horizon
        for k in present:
            half = self._halves[k]
            self._take_weights(k)
            if t % RESUM_EVERY == 0:
                half.v[:] = 0.0
                half.table.accumulate(None, half.alpha, half.v)
                self._feature_totals.moved(k, None)
            turn = self._turns[k] = half.drawing.turn(t, ahead, False)
            rows, sent = self._seated.rows[k], self._z_sent[k]
            if not len(rows):
                continue
            format_ = self._of_z
            z = half.table.products(turn.window, half.w)
            if turn.window is None:
                out = np.empty(sent.shape, np.int64)
                fits = encode_block_increment(z, format_.scale, format_.limit, sent, out)
                rows_sent = rows
            else:
                out = np.empty((len(turn.window), sent.shape[1]), np.int64)
                fits = encode_increment(z, turn.window, format_.scale, format_.limit, sent, out)
                rows_sent = rows[turn.window]
            if not fits:
                format_.refuse()
            self._z[rows_sent] += out

    def _take_weights(self, k: int) -> None:
        half, columns = self._halves[k], self._seated.columns[k]
        shared = len(columns)
        if shared:
            self._feature_totals.open_weights(k, self._of_v.unit, self._lam, half.w)
        if shared < len(half.w):
            np.divide(half.v[shared:], self._lam * self._samples, half.w[shared:])

    def _step(self, present: list[int], t: int) -> None:
        """``safe``: all holders take the same step."""
        moved: list[NDArray[np.int64]] = []
        for k in present:
            half, turn = self._halves[k], self._turns[k]
            half.method.set_omega(self._run.omega)
            slots, z = self._drawn(k)
            alpha, change = self._change(half, slots, z)
            new = self._on_grid(alpha + change)
            self._move(k, slots, new)
            rows = self._seated.rows[k][turn.shared]
            self._alpha[rows] = new[: len(rows)]
            moved.append(rows)
            self._tell_sums(k)
        self._changed.mark(np.unique(np.concatenate(moved)), t)

    def _propose_and_move(self, present: list[int], t: int) -> None:
        """``practical``: what the holders who drew a sample propose is averaged."""
        proposed = [self._propose(k) for k in present]
        slots = np.unique(np.concatenate(proposed))
        places: dict[int, Slots] = {}
        for k in present:
            rows, group = self._seated.rows[k], self._seated.row_group[k]
            if group not in places:
                places[group] = _places(rows, slots)
            mine = places[group]
            if len(mine):
                where = rows[mine]
                change = self._delta[where].astype(np.float64) * self._of_alpha.unit
                new = self._halves[k].alpha.take(mine, axis=0) + change
                self._move(k, mine, new)
                self._alpha[where] = new
            self._tell_sums(k)
        self._delta[slots] = 0
        self._changed.mark(slots, t)

    def _propose(self, k: int) -> NDArray[np.int64]:
        """Add one party's proposals to the sums; returns the samples."""
        half, turn = self._halves[k], self._turns[k]
        slots, z = self._drawn(k)
        _, change = self._change(half, slots, z)
        count = len(turn.shared)
        if len(turn.private):
            old = half.alpha[turn.private]
            self._move(k, turn.private, self._on_grid(old + change[count:]))
        rows = self._seated.rows[k][turn.shared]
        if count:
            share = change[:count] / self._holders[k].take(turn.shared, axis=0)
            self._delta[rows] += self._of_alpha.encode(share)
        return rows

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _drawn(self, k: int) -> tuple[Slots | None, Floats]:
        """The rows drawn here, with their z; None: all rows."""
        half, turn, rows = self._halves[k], self._turns[k], self._seated.rows[k]
        wanted = rows if turn.want is None else rows[turn.want]
        z = self._z[wanted].astype(np.float64) * self._of_z.unit
        if len(turn.private):
            z = np.concatenate([z, half.table.products(turn.private, half.w)])
        return turn.drawn, z

    def _change(self, half: Any, slots: Slots | None, z: Floats) -> tuple[Floats, Floats]:
        alpha, labels = half.alpha, half.labels
        if slots is not None:
            alpha, labels = alpha.take(slots, axis=0), labels.take(slots, axis=0)
        return alpha, half.method.change(slots, alpha, z, labels, 1.0)

    def _move(self, k: int, slots: Slots | None, new: Floats) -> None:
        half = self._halves[k]
        if slots is None:
            change = new - half.alpha
            half.alpha[:] = new
        else:
            change = new - half.alpha.take(slots, axis=0)
            half.alpha[slots] = new
        half.table.accumulate(slots, change, half.v)
        self._feature_totals.moved(k, slots)

    def _tell_sums(self, k: int) -> None:
        told = (self._halves[k].v, self._v_scale, self._of_v.limit, self._v_sent[k])
        if not self._feature_totals.add(k, *told):
            self._of_v.refuse()

    def _on_grid(self, values: Floats) -> Floats:
        scaled: Floats = values * self._of_alpha.scale
        return np.rint(scaled, scaled) / self._of_alpha.scale

    # ── files ─────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """All that the next iteration depends on."""
        own: dict[str, NDArray[Any]] = {
            name: joined(arrays) for name, arrays in self._of_parties().items()
        }
        own |= {"total_z": self._z, "total_v": self._v, "alpha": self._alpha, "seen": self._seen}
        own["changed"] = self._changed.stamp
        if self._pair is not None:
            own |= self._pair.state()
        return own

    def restore(self, state: Mapping[str, NDArray[Any]], t: int) -> None:
        """The inverse of `state`, after iteration ``t``."""
        for name, arrays in self._of_parties().items():
            parted(state[name], arrays)
        self._z, self._v, self._alpha = state["total_z"], state["total_v"], state["alpha"]
        self._feature_totals.restore(self._v)
        self._seen, self.completed = state["seen"], t
        self._changed.restore(state["changed"], t)
        if self._pair is not None:
            self._pair.restore(state)

    def _of_parties(self) -> dict[str, list[Any]]:
        return {
            **{f"party_{name}": [getattr(h, name) for h in self._halves] for name in "vw"},
            "party_alpha": [half.alpha for half in self._halves],
            "sent_z": self._z_sent,
            "sent_v": self._v_sent,
        }


def _places(mine: NDArray[np.int64], proposed: NDArray[np.int64]) -> Slots:
    """Where in ``mine`` (ascending) the proposed slots lie."""
    at = np.searchsorted(mine, proposed)
    inside = at < len(mine)
    inside[inside] = mine[at[inside]] == proposed[inside]
    return at[inside].astype(np.int32)


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
