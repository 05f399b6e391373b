"""The certificate of a method in rounds: P(w) of a frozen point, and a D that bounds P* from below.

Any w proves something. With z = Xw known to the label holders, a_i = −l'(z_i) is a dual vector, so
that D(a) ≤ P* ≤ P(w). For smooth losses P(w) − D(a) = ‖∇P(w)‖²/2λ, which vanishes at the optimum;
a method that has dual variables of its own gives those instead.

The point is frozen after some iteration. Its questions ride with those of the next iterations, so
that they cost no round trip, and each party answers when it is next present: inner products, then
losses and conjugates with the feature sums of a (where some holders lack labels, those get a
first), then the norm of these sums. When all have answered, the point is certified.

Guards compare a with all those whose feature sums anybody got. A point may be given up before
that, when some holders have a new a and others do not; so the coordinator names the points that
count, and all holders compare with the same. A party that told of a point which is then not named
refuses to come too close to that one, too: nobody can make it compare with less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats
from weft.crypto import Adder, Cipher
from weft.errors import ProtocolError
from weft.guards.min_batch_between_sums import SeenBatches
from weft.losses import Loss
from weft.matching.holding_map import HoldingMap
from weft.matching.party_view import PartyView
from weft.protocol import Request
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import PadLinks
from weft.solvers.label_classes_for_guards import kinds_of_classes
from weft.solvers.participation import CohortSpeakers, Contributors
from weft.solvers.rounds.messages import (
    POINT_LOSSES,
    POINT_NORMS,
    POINT_PRODUCTS,
    POINT_SPREAD,
    Model,
    PointLossesReply,
    PointLossesRequest,
    PointNormsReply,
    PointNormsRequest,
    PointProductsReply,
    PointProductsRequest,
    PointSpreadReply,
    PointSpreadRequest,
)
from weft.solvers.run_settings import Settings
from weft.storage.atomic_files import part_of
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.gap_certificate import Certificate
from weft.sums.largest_possible_sums import Bounds
from weft.sums.latest_slot_values_and_proposals import LatestValues
from weft.sums.party_contribution import Gathering, Posts, own_slots, speaks
from weft.sums.party_table_products import LocalTable
from weft.sums.scalar_sums import add_scalars, pack_scalars
from weft.sums.shared_slots_by_party import Layout

Stage = Literal["products", "losses", "spread", "norms"]


class Measured(Protocol):
    """What a party of a method has, as far as certificates need it."""

    view: PartyView
    table: LocalTable
    labels: Floats
    loss: Loss
    cipher: Cipher
    bounds: Bounds
    settings: Settings

    @property
    def sample_weight(self) -> float: ...

    def point(self, totals: Model) -> Floats: ...

    def dual(self, z: Floats) -> Floats: ...

    @property
    def dual_is_shown(self) -> bool: ...


class PointParty:
    """A party's answers about a frozen point.

    Attributes
    ----------
    weights
        w of the point frozen last and of the one certified, by iteration.
    """

    def __init__(self, half: Measured, reach: float) -> None:
        self._half = half
        view, cipher, bounds = half.view, half.cipher, half.bounds
        rows, columns = view.n_shared_rows, view.n_shared_columns
        self._z_wire = Gathering("z", rows, reach, cipher)
        self._v_wire = Gathering("v", columns, bounds.v, cipher)
        self._alpha_wire = Posts("alpha", rows, bounds.alpha, cipher).begin()
        #: Shared rows whose labels others have.
        self._lacking = ~view.labelled[view.row_cohort[:rows]]
        classes = half.labels.shape[1]
        self._w: Floats = np.zeros((view.n_columns, classes))
        self._z: Floats = np.zeros((view.n_rows, classes))
        self._alpha: Floats = np.zeros((view.n_rows, classes))
        self._sum: Floats = np.zeros((view.n_columns, classes))
        self._labelled = view.trained_rows
        guarded = view.guarded_cohort
        # What a method shows of its own dual vector in every iteration, it guards itself.
        guards = (guarded >= 0).any() and not half.dual_is_shown
        kind = kinds_of_classes(half.labels, half.loss)
        self._guard: SeenBatches | None = None
        if guards:
            atom = np.where(self._labelled, guarded, -1)
            self._guard = SeenBatches(atom, view.min_batch, classes, kind)
        #: a of the points that were named as shown, and of others that this party has told.
        self._shown: dict[int, Floats] = {}
        self._told: dict[int, Floats] = {}
        self._iteration = self._last = -1
        #: Whether this party has opened a of rows whose labels it lacks, for the point at hand.
        self._opened = False
        self._held = 0
        self.weights: dict[int, Floats] = {}

    def products(self, message: PointProductsRequest) -> PointProductsReply:
        """w of the point, and this party's part of z with it."""
        half, view = self._half, self._half.view
        self._w = half.point(message)
        self._z = half.table.products(None, self._w)
        # Of older points only the certified one may still be released.
        self.weights = {i: w for i, w in self.weights.items() if i == message.keep}
        self._take_last(message.last)
        self._iteration, self._opened = message.iteration, False
        self.weights[self._iteration] = self._w
        mine = self._w[view.owned]
        squares = np.einsum("ij,ij->j", mine, mine).tolist()
        half.cipher.lasting(message.iteration)
        reply = PointProductsReply(norms=pack_scalars(half.cipher, "norms", *squares))
        if half.settings.coordinator_sees == "weights":
            reply.w = mine
        if view.n_shared_rows:
            reply.z = self._z_wire.put_in(
                message.iteration, self._z[: view.n_shared_rows], message.z_pads
            )
        return reply

    def _insist_on_frozen(self, iteration: int) -> None:
        if iteration != self._iteration:
            raise malformed("iteration", "is not that of the point that was frozen")

    def losses(self, message: PointLossesRequest) -> PointLossesReply:
        """Losses and conjugates of the rows counted here; a, or its feature sums."""
        self._insist_on_frozen(message.iteration)
        half, view = self._half, self._half.view
        rows = view.n_shared_rows
        if rows and view.labelled.any():
            self._z[:rows] = self._z_wire.open(message.z, self._z.shape[1])
        self._alpha = self._new_dual()
        counted = view.counted_rows
        z, alpha, y = self._z[counted], self._alpha[counted], half.labels[counted]
        losses = half.loss.value(z, y).sum(axis=0) * half.sample_weight
        conjugates = half.loss.conjugate(alpha, y).sum(axis=0) * half.sample_weight
        sums = [*losses.tolist(), *conjugates.tolist()]
        half.cipher.lasting(message.iteration)
        reply = PointLossesReply(losses=pack_scalars(half.cipher, "losses", *sums), held=self._held)
        if message.send is None:
            reply.v = self._feature_sums(message.v_pads)
        else:
            self._post(message.send, message.alpha_pads, reply)
        return reply

    def _new_dual(self) -> Floats:
        """A dual vector at the labelled rows, as far as guards let it change."""
        half = self._half
        alpha = np.zeros_like(self._alpha)
        rows = self._labelled
        alpha[rows] = half.loss.project(half.dual(self._z), half.labels)[rows]
        alpha = self._alpha_wire.on_grid(alpha)
        alpha[rows] = half.loss.project(alpha[rows], half.labels[rows])
        self._held = 0
        if self._guard is not None:
            held = self._guard.restrain(alpha)
            self._held = int(half.view.counts[self._guard.atoms[held]].sum())
            if any(self._guard.hold_back(alpha.copy(), told).any() for told in self._told.values()):
                # Holders who never made that one would not hold back the same.
                raise ProtocolError(
                    "a point to certify comes too close to one that was given up; start again"
                )
            self._told[self._iteration] = alpha
        return alpha

    def _take_last(self, last: int) -> None:
        """From here on, nothing comes too close to the point that was shown last.

        Whoever says so cannot make this party forget: points that it told of and that nobody
        names count as shown, too.
        """
        if last == self._last or self._guard is None:
            self._last = last
            return
        if last < self._last or last not in self._told:
            raise malformed("last", "names a point that was not shown last")
        self._last, self._shown[last] = last, self._told.pop(last)
        self._guard.note(self._shown[last])

    def _post(self, flags: Flags, pads: PadLinks | None, reply: PointLossesReply) -> None:
        """a of the shared cohorts that this party speaks for, to holders without labels."""
        view = self._half.view
        if flags.shape != view.sizes.shape:
            raise malformed("send", "has no flag per cohort")
        shared = np.arange(view.n_shared_rows, dtype=np.int32)
        slots = shared[flags[view.row_cohort[shared]]]
        if not speaks(view, flags):
            return
        new = self._alpha[slots]
        reply.alpha = self._alpha_wire.post(new, np.zeros_like(new), slots, pads, flags)
        reply.alpha_slots = slots

    def spread(self, message: PointSpreadRequest) -> PointSpreadReply:
        """a of rows whose labels this party lacks; then the feature sums.

        Asked once more, since its answer was lost, it goes on with the a that it has: what was told
        before is never opened again.
        """
        self._insist_on_frozen(message.iteration)
        if self._opened:
            return PointSpreadReply(v=self._feature_sums(message.v_pads))
        if message.alpha is not None:
            slots = own_slots(message.alpha_slots, "alpha_slots", self._half.view.n_shared_rows)
            width = self._alpha.shape[1]
            told = self._alpha_wire.take(message.alpha, width, slots, self._lacking)
            lacking = ~self._labelled[slots]
            self._alpha[slots[lacking]] = told[lacking]
        elif self._lacking.any():
            raise malformed("alpha", "is missing, and labels of some samples are")
        self._opened = True
        return PointSpreadReply(v=self._feature_sums(message.v_pads))

    def _feature_sums(self, pads: PadLinks | None) -> bytes | None:
        half, shared = self._half, self._half.view.n_shared_columns
        self._sum = np.zeros_like(self._sum)
        half.table.accumulate(None, self._alpha * half.sample_weight, self._sum)
        return self._v_wire.put_in(self._iteration, self._sum[:shared], pads) if shared else None

    def norms(self, message: PointNormsRequest) -> PointNormsReply:
        """This party's part of ‖Σ p_i a_i x_i‖²."""
        self._insist_on_frozen(message.iteration)
        half, shared = self._half, self._half.view.n_shared_columns
        if shared:
            self._sum[:shared] = self._v_wire.open(message.v, self._sum.shape[1])
        mine = self._sum[half.view.owned]
        squares = np.einsum("ij,ij->j", mine, mine).tolist()
        half.cipher.lasting(message.iteration)
        return PointNormsReply(bound=pack_scalars(half.cipher, "bound", *squares))

    def state(self) -> dict[str, NDArray[np.float64]]:
        """For a checkpoint: a point in progress is given up when a run is resumed."""
        return {
            **{f"weights.{i}": w for i, w in self.weights.items()},
            **{f"shown.{i}": a for i, a in self._shown.items()},
            **{f"told.{i}": a for i, a in self._told.items()},
        }

    def restore(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        self.weights = _numbered(state, "weights")
        self._shown, self._told = _numbered(state, "shown"), _numbered(state, "told")
        self._last = max(self._shown, default=-1)
        if self._guard is not None:
            for number in sorted(self._shown):
                self._guard.note(self._shown[number])


def _numbered(state: Mapping[str, Floats], name: str) -> dict[int, Floats]:
    return {int(key): array for key, array in part_of(state, name).items()}


class FrozenPoint:
    """The coordinator's side of one frozen point, until everyone has answered for it.

    Parameters
    ----------
    totals
        Copies of the totals that the model is made of.
    certified
        The last point certified, which parties must keep for the case that this one fails.
    last
        The last point whose dual vector's feature sums anybody got; −1: none.
    contributors
        Who may be asked for a sum with whom.
    """

    def __init__(
        self,
        iteration: int,
        holdings: HoldingMap,
        totals: Mapping[str, IncrementTotals],
        layouts: tuple[Layout, Layout],
        adder: Adder,
        settings: Settings,
        classes: int,
        certified: int | None,
        last: int,
        contributors: Contributors,
    ) -> None:
        rows, columns = layouts
        self._contributors = contributors
        self.iteration = iteration
        self._holdings = holdings
        self._totals = totals
        self._adder = adder
        self._lam = settings.lam
        self._classes = classes
        self._certified = certified
        self._last = last
        self._z = IncrementTotals("z", rows, classes, adder)
        self._v = IncrementTotals("v", columns, classes, adder)
        self._board = LatestValues("alpha", rows, classes, adder)
        self._senders = CohortSpeakers(holdings, labelled=True).of(list(holdings.parties))
        self._spreads = not holdings.labels_everywhere
        self.stage: Stage = "products"
        self.waiting = set(holdings.parties)
        self._norms: dict[str, PointProductsReply] = {}
        self._losses: dict[str, PointLossesReply] = {}
        self._bounds: dict[str, PointNormsReply] = {}
        #: What guards held back.
        self.held = 0
        self.certificate: Certificate | None = None
        self._round = 0

    @property
    def told(self) -> dict[str, Floats | None]:
        """What the parties told of w, where the coordinator may see it."""
        return {party: reply.w for party, reply in self._norms.items()}

    def request(self, present: Iterable[str]) -> Request[Any, Any]:
        """What to ask the parties that are present and still owe an answer."""
        there = list(present)
        asked = [p for p in there if p in self.waiting]
        self._round = self._adder.advance()
        if self.stage == "norms":
            return Request(POINT_NORMS, self._norms_of(asked))
        if self.stage != "losses" or not self._spreads:
            asked = self._contributors.joined(asked, there)
        if self.stage == "products":
            return Request(POINT_PRODUCTS, self._products(asked))
        if self.stage == "losses":
            return Request(POINT_LOSSES, self._losses_of(asked))
        return Request(POINT_SPREAD, self._spread(asked))

    def _products(self, asked: list[str]) -> dict[str, PointProductsRequest]:
        messages = {party: PointProductsRequest(**self._common()) for party in asked}
        for kind, totals in self._totals.items():
            for party, block in totals.blocks(asked).items():
                setattr(messages[party], kind, block)
        self._z.invite(messages)
        return messages

    def _losses_of(self, asked: list[str]) -> dict[str, PointLossesRequest]:
        messages = {party: PointLossesRequest(**self._common()) for party in asked}
        with_labels = [p for p in asked if p in self._holdings.label_parties]
        for party, block in self._z.blocks(with_labels).items():
            messages[party].z = block
        if self._spreads:
            for party, message in messages.items():
                message.send = self._senders[party]
            self._board.invite(messages, {p: self._senders[p] for p in asked})
        else:
            self._v.invite(messages)
        return messages

    def _spread(self, asked: list[str]) -> dict[str, PointSpreadRequest]:
        messages = {party: PointSpreadRequest(**self._common()) for party in asked}
        since = {p: -1 for p in asked if p in self._holdings.partly_unlabelled}
        for party, (slots, alpha) in self._board.changes(since).items():
            messages[party].alpha_slots, messages[party].alpha = slots, alpha
        self._v.invite(messages)
        return messages

    def _norms_of(self, asked: list[str]) -> dict[str, PointNormsRequest]:
        messages = {party: PointNormsRequest(**self._common()) for party in asked}
        for party, block in self._v.blocks(asked).items():
            messages[party].v = block
        return messages

    def _common(self) -> dict[str, Any]:
        """What every question about the point says; whoever sends it fills in ``ack``."""
        numbers = {"round": self._round, "iteration": self.iteration, "ack": 0}
        return {**numbers, "last": self._last, "keep": self._certified}

    def receive(self, replies: Mapping[str, Any]) -> None:
        """Add the answers; go on to the next stage when all are in."""
        # Scalars are checked now rather than when the last party has answered.
        if self.stage == "products":
            self._z.add(replies, self.iteration)
            add_scalars(replies, "norms", self._classes, ())
            self._norms.update(replies)
        elif self.stage == "losses":
            add_scalars(replies, "losses", 2 * self._classes, ())
            self._losses.update(replies)
            self.held += sum(replies[p].held for p in self.waiting.intersection(replies))
            if self._spreads:
                self._board.post(replies, self.iteration, self._round)
        elif self.stage == "norms":
            add_scalars(replies, "bound", self._classes, ())
            self._bounds.update(replies)
        if self.stage == "spread" or (self.stage == "losses" and not self._spreads):
            self._v.add(replies, self.iteration)
        self.waiting -= replies.keys()
        if not self.waiting:
            self._advance()

    @property
    def shown(self) -> bool:
        """Whether somebody may have got feature sums of the dual vector."""
        return self.stage == "norms"

    def _advance(self) -> None:
        if self.stage == "norms":
            self._certify()
            return
        following: dict[Stage, Stage] = {
            "products": "losses",
            "losses": "spread" if self._spreads else "norms",
            "spread": "norms",
        }
        self.stage = following[self.stage]
        self.waiting = set(self._holdings.parties)

    def _certify(self) -> None:
        everyone, classes = self._holdings.parties, self._classes
        norms = add_scalars(self._norms, "norms", classes, everyone)
        losses = add_scalars(self._losses, "losses", 2 * classes, everyone)
        bound = add_scalars(self._bounds, "bound", classes, everyone)
        if norms is None or losses is None or bound is None:
            return
        self.certificate = Certificate(
            self.iteration,
            tuple(0.5 * self._lam * n + l for n, l in zip(norms, losses[:classes], strict=True)),
            tuple(-0.5 * b / self._lam - c for b, c in zip(bound, losses[classes:], strict=True)),
        )
