"""The certificate of a method in rounds: P(w) of a frozen point, and a D that bounds P* from below.

Any w proves something. With z = Xw known to the label holders, a_i = −l'(z_i) is a dual vector, so
that D(a) ≤ P* ≤ P(w). For smooth losses P(w) − D(a) = ‖∇P(w)‖²/2λ, which vanishes at the optimum;
a method that has dual variables of its own gives those instead.

The point is frozen after some iteration. Its questions ride with those of the next iterations, so
that they cost no round trip, and each party answers when it is next present: inner products, then
losses and conjugates with the feature sums of a (where some holders lack labels, those get a
first), then the norm of these sums. When all have answered, the point is certified.

Guards compare a with the last one whose feature sums anybody got. A point may be given up before
that, when some holders have a new a and others do not; so the coordinator names the point that
counts, and all holders compare with the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder, Cipher
from weft.errors import ProtocolError
from weft.guards.min_batch import MinBatch
from weft.losses import Loss
from weft.matching.holding_map import HoldingMap
from weft.matching.party_view import PartyView
from weft.protocol import Message, Request
from weft.protocol.message import array, integer
from weft.solvers.cohort_speakers import CohortSpeakers
from weft.solvers.settings import Settings
from weft.storage.files import part_of
from weft.sums.certificate import Certificate
from weft.sums.contribution import Wire, own_slots
from weft.sums.fixed_point_bounds import Bounds
from weft.sums.local_table import LocalTable
from weft.sums.posted_totals import PostedTotals
from weft.sums.running_totals import RunningTotals
from weft.sums.scalar_sums import add_scalars, pack_scalars
from weft.sums.slot_layout import Layout

Floats = NDArray[np.float64]
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

    def point(self, message: Message) -> Floats: ...

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
        self._z_wire = Wire("z", rows, reach, cipher)
        self._v_wire = Wire("v", columns, bounds.v, cipher)
        self._alpha_wire = Wire("alpha", rows, bounds.alpha, cipher)
        classes = half.labels.shape[1]
        self._w: Floats = np.zeros((view.n_columns, classes))
        self._z: Floats = np.zeros((view.n_rows, classes))
        self._alpha: Floats = np.zeros((view.n_rows, classes))
        self._sum: Floats = np.zeros((view.n_columns, classes))
        self._labelled = view.labelled[view.row_cohort]
        guarded = view.exposed[view.row_cohort]
        atom = np.where(guarded, view.row_cohort, -1).astype(np.int64)
        # What a method shows of its own dual vector in every iteration, it guards itself.
        guards = guarded.any() and not half.dual_is_shown
        self._guard = MinBatch(atom, view.min_batch) if guards else None
        #: a of the point that counts for guards and of the one in progress, by iteration.
        self._duals: dict[int, Floats] = {}
        self._iteration = self._last = -1
        self._held = 0
        self.weights: dict[int, Floats] = {}

    def phases(self) -> dict[str, Callable[[Message], Message]]:
        return {
            "measure.products": self._products,
            "measure.losses": self._losses,
            "measure.spread": self._spread,
            "measure.norms": self._norms,
        }

    def _products(self, message: Message) -> Message:
        """w of the point, and this party's part of z with it."""
        half, view = self._half, self._half.view
        self._w = half.point(message)
        self._z = half.table.products(None, self._w)
        # Of older points only the certified one may still be released.
        keep = integer(message, "keep", -1)
        self.weights = {i: w for i, w in self.weights.items() if i == keep}
        self._iteration, self._last = integer(message, "iteration"), integer(message, "last", -1)
        self.weights[self._iteration] = self._w
        mine = self._w[view.owned]
        squares = np.einsum("ij,ij->j", mine, mine).tolist()
        reply: Message = {"norms": pack_scalars(half.cipher, message, "norms", *squares)}
        if half.settings.coordinator_sees == "weights":
            reply["w"] = mine
        if view.n_shared_rows:
            reply["z"] = self._z_wire.send(self._z[: view.n_shared_rows], message)
        return reply

    def _losses(self, message: Message) -> Message:
        """Losses and conjugates of the rows counted here; a, or its feature sums."""
        half, view = self._half, self._half.view
        rows = view.n_shared_rows
        if rows and view.labelled.any():
            self._z[:rows] = self._z_wire.open(message.get("z"), self._z.shape[1])
        self._alpha = self._new_dual()
        counted = view.counted_rows
        z, alpha, y = self._z[counted], self._alpha[counted], half.labels[counted]
        losses = half.loss.value(z, y).sum(axis=0) * half.sample_weight
        conjugates = half.loss.conjugate(alpha, y).sum(axis=0) * half.sample_weight
        sums = [*losses.tolist(), *conjugates.tolist()]
        reply: Message = {"losses": pack_scalars(half.cipher, message, "losses", *sums)}
        if self._held:
            reply["held"] = self._held
        if "send" in message:
            reply.update(self._posts(message))
        else:
            reply.update(self._feature_sums(message))
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
            before = self._duals.get(self._last, np.zeros_like(alpha))
            held = self._guard.hold_back(alpha, before)
            self._held = int(half.view.counts[self._guard.atoms[held]].sum())
            self._duals = {self._last: before, self._iteration: alpha}
        return alpha

    def _posts(self, message: Message) -> Message:
        """a of the shared cohorts that this party speaks for, to holders without labels."""
        view = self._half.view
        flags = array(message, "send")
        if flags.shape != view.sizes.shape or flags.dtype != bool:
            raise ProtocolError("a message is malformed: 'send' has no flag per cohort")
        shared = np.arange(view.n_shared_rows, dtype=np.int32)
        slots = shared[flags[view.row_cohort[shared]]]
        if not len(slots) and "alpha.chain" not in message:
            return {}
        new = self._alpha[slots]
        posted = self._alpha_wire.post(new, np.zeros_like(new), slots, message)
        return {"alpha.slots": slots, "alpha": posted}

    def _spread(self, message: Message) -> Message:
        """a of rows whose labels this party lacks; then the feature sums."""
        if "alpha" in message:
            slots = own_slots(message, "alpha.slots", self._half.view.n_shared_rows)
            told = self._alpha_wire.open(message["alpha"], self._alpha.shape[1], slots)
            lacking = ~self._labelled[slots]
            self._alpha[slots[lacking]] = told[lacking]
        return self._feature_sums(message)

    def _feature_sums(self, message: Message) -> Message:
        half, shared = self._half, self._half.view.n_shared_columns
        self._sum = np.zeros_like(self._sum)
        half.table.accumulate(None, self._alpha * half.sample_weight, self._sum)
        return {"v": self._v_wire.send(self._sum[:shared], message)} if shared else {}

    def _norms(self, message: Message) -> Message:
        """This party's part of ‖Σ p_i a_i x_i‖²."""
        half, shared = self._half, self._half.view.n_shared_columns
        if shared:
            self._sum[:shared] = self._v_wire.open(message.get("v"), self._sum.shape[1])
        mine = self._sum[half.view.owned]
        squares = np.einsum("ij,ij->j", mine, mine).tolist()
        return {"bound": pack_scalars(half.cipher, message, "bound", *squares)}

    def state(self) -> dict[str, NDArray[np.float64]]:
        """For a checkpoint: a point in progress is given up when a run is resumed."""
        return {
            **{f"weights.{i}": w for i, w in self.weights.items()},
            **{f"dual.{i}": a for i, a in self._duals.items()},
        }

    def restore(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        self.weights, self._duals = _numbered(state, "weights"), _numbered(state, "dual")


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
    """

    def __init__(
        self,
        iteration: int,
        holdings: HoldingMap,
        totals: Mapping[str, RunningTotals],
        layouts: tuple[Layout, Layout],
        adder: Adder,
        settings: Settings,
        classes: int,
        certified: int | None,
        last: int,
    ) -> None:
        rows, columns = layouts
        self.iteration = iteration
        self._holdings = holdings
        self._totals = totals
        self._adder = adder
        self._lam = settings.lam
        self._classes = classes
        self._certified = certified
        self._last = last
        self._z = RunningTotals("z", rows, classes, adder)
        self._v = RunningTotals("v", columns, classes, adder)
        self._board = PostedTotals("alpha", rows, classes, adder)
        self._senders = CohortSpeakers(holdings, labelled=True).of(list(holdings.parties))
        self._spreads = not holdings.labels_everywhere
        self.stage: Stage = "products"
        self.waiting = set(holdings.parties)
        self._scalars: dict[str, dict[str, Message]] = {"norms": {}, "losses": {}, "bound": {}}
        #: What the parties told of w, where the coordinator may see it, and what guards held back.
        self.told: dict[str, Message] = {}
        self.held = 0
        self.certificate: Certificate | None = None
        # Scalars of a point come in over many requests, under the masks of one.
        self._context = adder.fresh_context()
        self._round = 0

    def request(self, present: Iterable[str]) -> Request:
        """What to ask the parties that are present and still owe an answer."""
        asked = [p for p in present if p in self.waiting]
        messages: dict[str, Message] = self._adder.open(asked)
        self._round = self._adder.round
        for message in messages.values():
            message["iteration"] = self.iteration
            if self._certified is not None:
                message["keep"] = self._certified
            if self._last >= 0:
                message["last"] = self._last
        if self.stage == "products":
            for totals in self._totals.values():
                _give(messages, totals)
            self._z.invite(messages)
        elif self.stage == "losses":
            _give(messages, self._z, self._holdings.label_parties)
            if self._spreads:
                for party, message in messages.items():
                    message["send"] = self._senders[party]
                self._board.invite(messages, {p: self._senders[p] for p in asked})
            else:
                self._v.invite(messages)
        elif self.stage == "spread":
            since = {p: -1 for p in asked if p in self._holdings.partly_unlabelled}
            for party, (slots, alpha) in self._board.changes(since).items():
                messages[party].update({"alpha.slots": slots, "alpha": alpha})
            self._v.invite(messages)
        else:
            _give(messages, self._v)
        if self.stage != "spread":
            self._adder.mask(messages, self._context, self._holdings.parties)
        return Request(f"measure.{self.stage}", messages)

    def receive(self, replies: Mapping[str, Message]) -> None:
        """Add the answers; go on to the next stage when all are in."""
        if self.stage == "products":
            self._z.add(replies, self.iteration)
            self._keep(replies, "norms", self._classes)
            self.told.update(replies)
        elif self.stage == "losses":
            self._keep(replies, "losses", 2 * self._classes)
            self.held += sum(integer(reply, "held", 0) for reply in replies.values())
            if self._spreads:
                self._board.post(replies, self.iteration, self._round)
        elif self.stage == "norms":
            self._keep(replies, "bound", self._classes)
        if self.stage == "spread" or (self.stage == "losses" and not self._spreads):
            self._v.add(replies, self.iteration)
        self.waiting -= replies.keys()
        if not self.waiting:
            self._advance()

    @property
    def shown(self) -> bool:
        """Whether somebody may have got feature sums of the dual vector."""
        return self.stage == "norms"

    def _keep(self, replies: Mapping[str, Message], field: str, count: int) -> None:
        """One field of each reply, checked now rather than when the last party has answered."""
        add_scalars(replies, field, count, ())
        kept = {party: {field: reply[field]} for party, reply in replies.items()}
        self._scalars[field].update(kept)

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
        norms = add_scalars(self._scalars["norms"], "norms", classes, everyone)
        losses = add_scalars(self._scalars["losses"], "losses", 2 * classes, everyone)
        bound = add_scalars(self._scalars["bound"], "bound", classes, everyone)
        if norms is None or losses is None or bound is None:
            return
        self.certificate = Certificate(
            self.iteration,
            tuple(0.5 * self._lam * n + l for n, l in zip(norms, losses[:classes], strict=True)),
            tuple(-0.5 * b / self._lam - c for b, c in zip(bound, losses[classes:], strict=True)),
        )


def _give(
    messages: Mapping[str, Message], totals: RunningTotals, only: Iterable[str] | None = None
) -> None:
    """Put each party's totals into its message."""
    parties = messages if only is None else [p for p in messages if p in set(only)]
    for party, block in totals.blocks(parties).items():
        messages[party][totals.kind] = block
