"""HyFDCA's iterations on the parties of one process, without messages between them.

A run spends most of its time around small arrays: messages, their checks, blocks. Here one loop
does what coordinator and parties do, with the same draws, products and fixed point in the same
order, on the very arrays that they have. So a run may go on with messages at any time, as it does
for certificates, and comes to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints, Slots
from weft.crypto.coordinator_adder import add_words
from weft.crypto.fixed_point import FixedPoint, encode_block_increment, encode_increment
from weft.errors import ProtocolError
from weft.solvers.hyfdca.coordinator_run_state import Measured, Run
from weft.solvers.hyfdca.incremental_feature_sums import FeatureTotals
from weft.solvers.hyfdca.local_methods import Safe, Turn
from weft.solvers.hyfdca.party import RESUM_EVERY, HyfdcaParty
from weft.sums.scalar_sums import clear_scalars

Integers = NDArray[np.int64]

_NO_ROWS = np.zeros(0, np.int64)


class IterationsWithoutMessages:
    """Moves the parties' α, feature sums and weights, and the totals of all.

    Parameters
    ----------
    run
        What the coordinator keeps. Its totals are not encrypted.
    halves
        The parties' parts of the algorithm, in the order of the run. No guard holds any back.
    """

    def __init__(self, run: Run, halves: Sequence[HyfdcaParty]) -> None:
        self._run, self._halves = run, halves
        first = halves[0]
        bounds = first.bounds
        self._lam, self._samples = first.settings.lam, first.view.n_samples
        self._of_z = FixedPoint(bounds.z, "inner products")
        self._of_v = FixedPoint(bounds.v, "feature sums")
        self._of_alpha = FixedPoint(bounds.alpha, "dual variables")
        self._v_scale = self._of_v.scale * (1.0 / self._samples)
        names = run.holdings.parties
        #: Where each party's shared samples and features lie among those of all.
        self.rows = [run.row_layout.own[name] for name in names]
        self.columns = [run.column_layout.own[name] for name in names]
        #: A number that parties with the same shared samples have alike.
        self._row_group = [run.row_layout.group[name] for name in names]
        self._delta: Integers = np.zeros((len(self._z), first.alpha.shape[1]), np.int64)
        tables = [half.table for half in halves]
        self._feature_totals = FeatureTotals(self._v, self.columns, tables)
        self._turns: dict[int, Turn] = {}
        self._measured: Measured | None = None
        #: The party whose turn it is.
        self._now = 0
        #: The last iteration that was gone through here.
        self._last = 0

    # ── the coordinator's totals ──────────────────────────────────────────────────────────

    @property
    def _z(self) -> Integers:
        return _words(self._run.z)

    @property
    def _v(self) -> Integers:
        return _words(self._run.v)

    @property
    def _alpha(self) -> Integers:
        return _words(self._run.alpha)

    def alpha(self) -> Floats:
        """The newest α of every shared sample."""
        return self._of_alpha.decode(self._alpha)

    # ── one iteration ─────────────────────────────────────────────────────────────────────

    def iterate(
        self,
        t: int,
        present: list[int],
        gamma: float = 1.0,
        omega: float | None = None,
        active: float | None = None,
        measured: Measured | None = None,
    ) -> int:
        """Iteration ``t`` of those parties who are there; returns the round trips of messages.

        What a request for a step says besides: ``gamma``, ``omega`` of the local method `safe`,
        and how many are ``active`` where that is not how many hold a sample. What parties tell
        for an estimate of the gap goes into ``measured``, if there is any.
        """
        self._measured = measured
        try:
            return self._iterate(t, present, gamma, omega, active)
        except ProtocolError as error:
            # As a channel says who refuses.
            name = self._run.holdings.parties[self._now]
            raise ProtocolError(f"party {name}: {error}") from None

    def _iterate(
        self, t: int, present: list[int], gamma: float, omega: float | None, active: float | None
    ) -> int:
        if self._last != t - 1:
            self._take_up()
        self._last = t
        trips = self._rejoin(present, t)
        self._send_products(present, t)
        if isinstance(self._halves[0].method, Safe):
            self._step(present, t, gamma, omega)
            trips += 2
        else:
            self._propose_and_move(present, t, gamma, active)
            trips += 3
        # Where no sample is shared, all goes into one envelope.
        return trips if self._run.holdings.rows.n_shared else 1

    def _take_up(self) -> None:
        """Go on from what messages, or a file, have left."""
        self._feature_totals.restore(self._v)
        for name, half in zip(self._run.holdings.parties, self._halves, strict=True):
            half.go_on_without_messages(self._run.ack[name])

    def _rejoin(self, present: list[int], t: int) -> int:
        """α that changed while a party was away; returns whether that takes a round trip."""
        known: dict[tuple[int, int], Slots] = {}
        run, names, newest = self._run, self._run.holdings.parties, self._alpha
        rejoined = 0
        for k in present:
            self._now, since = k, run.seen[names[k]]
            if since >= t - 1:
                continue
            rows, key = self.rows[k], (self._row_group[k], since)
            if key not in known:
                known[key] = run.alpha.changed.among(rows, since).astype(np.int32)
            slots = known[key]
            if len(slots):
                old = self._halves[k].alpha.take(slots, axis=0)
                self._move(k, slots, old, self._of_alpha.decode(newest[rows[slots]]))
                self._tell_sums(k)
                rejoined = 1
        return rejoined

    def _send_products(self, present: list[int], t: int) -> None:
        """Weights from the totals, and products of the samples that are drawn soon."""
        ahead, format_ = self._run.participation.horizon, self._of_z
        scale, limit = format_.scale, format_.limit
        places, changes = [_NO_ROWS], [self._delta[:0]]
        for k in present:
            self._now, half = k, self._halves[k]
            self._take_weights(k)
            if t % RESUM_EVERY == 0:
                half.resum()
                self._feature_totals.moved(k, None)
            if self._measured is not None:
                change = half.norm_change(counted=self._measured.counted[k])
                self._measured.norm_changes[k] = clear_scalars(change)
            turn = self._turns[k] = half.drawing.turn(t, ahead, False)
            rows, sent = self.rows[k], half.z_sum.sent
            if not len(rows):
                continue
            z = half.table.products(turn.window, half.w)
            if turn.window is None:
                out = np.empty(sent.shape, np.int64)
                fits = encode_block_increment(z, scale, limit, sent, out)
                places.append(rows)
            else:
                out = np.empty((len(turn.window), sent.shape[1]), np.int64)
                fits = encode_increment(z, turn.window, scale, limit, sent, out)
                places.append(rows.take(turn.window))
            if not fits:
                format_.refuse()
            changes.append(out)
        _add(self._z, places, changes)

    def _take_weights(self, k: int) -> None:
        half, columns = self._halves[k], self.columns[k]
        shared = len(columns)
        if shared:
            self._feature_totals.open_weights(k, self._of_v.unit, self._lam, half.w)
        if shared < len(half.w):
            np.divide(half.v[shared:], self._lam * self._samples, half.w[shared:])

    def _step(self, present: list[int], t: int, gamma: float, omega: float | None) -> None:
        """``safe``: all holders take the same step."""
        places, values, totals = [_NO_ROWS], [], self._z
        for k in present:
            self._now, half, turn = k, self._halves[k], self._turns[k]
            if omega is not None and isinstance(half.method, Safe):
                half.method.set_omega(omega)
            slots, alpha, change = self._change(k, totals, gamma)
            new = half.alpha_wire.on_grid(alpha + change)
            self._move(k, slots, alpha, new)
            rows = self.rows[k].take(turn.shared)
            places.append(rows)
            values.append(new[: len(rows)])
            self._tell_sums(k)
        moved = np.concatenate(places)
        self._alpha[moved] = self._of_alpha.encode(np.concatenate(values))
        self._run.alpha.changed.mark(self._distinct(moved), t)

    def _propose_and_move(
        self, present: list[int], t: int, gamma: float, active: float | None
    ) -> None:
        """``practical``: what the holders who drew a sample propose is averaged."""
        slots = self._propose_all(present, gamma, active)
        flags = np.zeros(len(self._delta), bool)
        flags[slots] = True
        # α is on the grid, as its changes are: so are their sums.
        change, newest = self._of_alpha.decode(self._delta), self._alpha
        places: dict[int, Slots] = {}
        for k in present:
            self._now, rows, group = k, self.rows[k], self._row_group[k]
            if group not in places:
                places[group] = np.flatnonzero(flags.take(rows)).astype(np.int32)
            mine = places[group]
            if len(mine):
                old = self._halves[k].alpha.take(mine, axis=0)
                self._move(k, mine, old, old + change.take(rows.take(mine), axis=0))
            self._tell_sums(k)
        newest[slots] += self._delta[slots]
        self._delta[slots] = 0
        self._run.alpha.changed.mark(slots, t)

    def _propose_all(
        self, present: list[int], gamma: float, active: float | None
    ) -> NDArray[np.int64]:
        """Sums of all proposals; private rows move at once. Returns the samples."""
        totals, proposals = self._z, _Proposals(self._delta.shape[1])
        try:
            for k in present:
                self._now = k
                self._propose(k, totals, proposals, gamma, active)
        except ProtocolError:
            # Who refuses first is who does so with messages.
            self._encoded(proposals)
            raise
        _add(self._delta, proposals.places, [self._encoded(proposals)])
        return self._distinct(np.concatenate(proposals.places))

    def _propose(
        self,
        k: int,
        totals: Integers,
        proposals: _Proposals,
        gamma: float,
        active: float | None,
    ) -> None:
        half, turn = self._halves[k], self._turns[k]
        _, alpha, change = self._change(k, totals, gamma)
        if gamma != 1.0:
            change = change * gamma
        count = len(turn.shared)
        if len(turn.private):
            old = alpha[count:]
            self._move(k, turn.private, old, half.alpha_wire.on_grid(old + change[count:]))
        if count:
            over = half.holders(turn.shared) if active is None else active
            proposals.add(k, self.rows[k].take(turn.shared), change[:count] / over)

    def _encoded(self, proposals: _Proposals) -> Integers:
        """All of them in fixed point; refused as the first party whose values do not fit."""
        try:
            return self._of_alpha.encode(np.concatenate(proposals.values))
        except ProtocolError:
            for k, values in zip(proposals.owners, proposals.values[1:], strict=True):
                self._now = k
                self._of_alpha.encode(values)
            raise

    def _distinct(self, rows: Ints) -> NDArray[np.int64]:
        """Each of these once, in ascending order."""
        flags = np.zeros(len(self._delta), bool)
        flags[rows] = True
        return np.flatnonzero(flags)

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _change(
        self, k: int, totals: Integers, gamma: float
    ) -> tuple[Slots | None, Floats, Floats]:
        """The rows drawn here (None: all), their α, and how far the local method moves it."""
        half, turn, rows = self._halves[k], self._turns[k], self.rows[k]
        wanted = rows if turn.want is None else rows.take(turn.want)
        z = self._of_z.decode(totals.take(wanted, axis=0))
        if len(turn.private):
            z = np.concatenate([z, half.table.products(turn.private, half.w)])
        slots, alpha, labels = turn.drawn, half.alpha, half.labels
        if slots is not None:
            alpha, labels = alpha.take(slots, axis=0), labels.take(slots, axis=0)
        if self._measured is not None:
            sums = half.estimate_sums(slots, z, labels)
            self._measured.estimates[k] = clear_scalars(*sums)
        return slots, alpha, half.method.change(slots, alpha, z, labels, gamma)

    def _move(self, k: int, slots: Slots | None, old: Floats, new: Floats) -> None:
        self._halves[k].move_alpha(slots, old, new)
        self._feature_totals.moved(k, slots)

    def _tell_sums(self, k: int) -> None:
        half = self._halves[k]
        told = (half.v, self._v_scale, self._of_v.limit, half.v_sum.sent)
        if not self._feature_totals.add(k, *told):
            self._of_v.refuse()


class _Proposals:
    """Changes of α at shared samples that parties propose in one iteration."""

    def __init__(self, width: int) -> None:
        self.owners: list[int] = []
        self.places: list[Ints] = [_NO_ROWS]
        self.values: list[Floats] = [np.zeros((0, width))]

    def add(self, k: int, places: Ints, values: Floats) -> None:
        self.owners.append(k)
        self.places.append(places)
        self.values.append(values)


def _words(totals: Any) -> Integers:
    """The numbers of a total in the clear, to be changed in place."""
    words: Integers = totals.store.words.view(np.int64)
    return words


def _add(totals: Integers, places: Sequence[Ints], changes: Sequence[Integers]) -> None:
    """Add changes of all parties, of which several may be to one number."""
    words = np.concatenate(changes).view(np.uint64)
    add_words(totals.view(np.uint64), np.concatenate(places), words)
