"""HyFDCA, a party's half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.guards.min_batch import MinBatch, SeenBatches
from weft.protocol import Answer, answer, answers
from weft.protocol.message import Nothing, malformed
from weft.protocol.parts import AcknowledgedRequest, PadLinks, Ring
from weft.solvers.hyfdca.curvature import CurvatureParty
from weft.solvers.hyfdca.local_methods import LocalMethod, Practical, Safe, Theory
from weft.solvers.hyfdca.messages import (
    AGAIN,
    BEGIN,
    DUAL,
    FUSED,
    GATHER,
    NORMS,
    SPREAD,
    STEP,
    WEIGHTS,
    AgainReply,
    AgainRequest,
    BeginRequest,
    DualReply,
    DualRequest,
    FusedReply,
    FusedRequest,
    StepReply,
    StepRequest,
    WeightsReply,
    WeightsRequest,
)
from weft.solvers.hyfdca.party_sampling import Drawing, Turn, drawing_of
from weft.solvers.messages import Constants, SequencedReply
from weft.solvers.party_context import PartyContext
from weft.solvers.settings import Settings
from weft.sums.certificate import FrozenParty, class_sums, feature_cipher
from weft.sums.contribution import Contribution, Wire, own_slots
from weft.sums.messages import FREEZE, PAIR_LOSSES, PAIR_PRODUCTS, FreezeReply, FreezeRequest
from weft.sums.scalar_sums import pack_scalars

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]

#: Feature sums are kept incrementally; this often they are summed anew against drift.
RESUM_EVERY = 1000
_NO_SLOTS = np.zeros(0, np.int32)

Flags = NDArray[np.bool_]
Q = TypeVar("Q", bound=AcknowledgedRequest)
S = TypeVar("S", bound=SequencedReply)


class HyfdcaParty:
    """α of its samples, its feature sums and its slice of w, and the steps on them.

    Phases (↓ what comes, ↑ what goes back):

    ``weights``  v totals ↓, partial inner products of drawn samples ↑
    ``step``     z totals ↓, new α and feature sums ↑ (``practical`` and ``theory``: only
    proposals for changes of α, whose sum comes back in ``dual``)
    ``dual``     changes of α, or new α ↓, feature sums ↑
    """

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        view = self.view = context.view
        table = self.table = context.table
        labels = self.labels = context.labels
        self.settings = settings
        self.loss = settings.make_loss()
        cipher = self.cipher = context.cipher
        bounds = self.bounds = context.bounds
        classes = labels.shape[1]
        self.alpha: Floats = np.zeros((view.n_rows, classes))
        self.v: Floats = np.zeros((view.n_columns, classes))
        self.w: Floats = np.zeros((view.n_columns, classes))
        rows, columns = view.n_shared_rows, view.n_shared_columns
        self.z_sum = Contribution("z", rows, classes, bounds.z, cipher, windows=True)
        open_ = feature_cipher(cipher, settings)
        self.v_sum = Contribution("v", columns, classes, bounds.v, open_, 1.0 / view.n_samples)
        self.alpha_wire = Wire("alpha", rows, bounds.alpha, cipher)
        self.delta_wire = Wire("delta", rows, bounds.alpha, cipher)
        self.drawing: Drawing = drawing_of(settings, view)
        self.method: LocalMethod = self._method()
        self.frozen = FrozenParty(self)
        # The theorems speak of the norms themselves, not of bounds on them.
        norms = "cohort" if settings.norms == "cohort" and settings.local == "safe" else "sample"
        self.curvature = CurvatureParty(view, table, cipher, norms, settings.seed)
        self._sequence = 0
        #: Rows moved by the last reply, and their α before; None rows: all.
        self._undo: tuple[Slots | None, Floats] | None = None
        #: ‖w‖² as it was counted last, and as it was told last.
        self._norm_counted = self._norm_told = np.zeros(classes)
        #: Whether the loss itself keeps α within what can be summed.
        self._bounded = bool(np.isfinite(self.loss.lipschitz))
        self._computing = view.computing[view.row_cohort][:, None].astype(np.float64)
        self._turn = self.drawing.turn(0, 1, False)
        self._iteration = 0
        #: Per phase, the last iteration whose scalars were told, and among whom.
        self._told: dict[str, tuple[int, object]] = {}
        guarded = view.exposed[view.row_cohort]
        atom = np.where(guarded, view.row_cohort, -1).astype(np.int64)
        self._guard = MinBatch(atom, view.min_batch) if guarded.any() else None
        #: Dual vectors of another solver, in whose place this one works: α keeps apart from them.
        self.earlier: SeenBatches | None = None

    def take_over(
        self,
        alpha: Floats,
        w: Floats,
        z: Floats,
        v: Floats,
        v_pads: PadLinks | None,
        z_pads: PadLinks | None,
    ) -> tuple[bytes | None, bytes | None]:
        """Begin at the α that another solver has reached, and at its w(α).

        ``z`` and ``v`` are what this party puts into the sums, of shared rows and columns: the
        totals of cohorts that it speaks for, and zero elsewhere. From there on it tells changes of
        its own parts, so that whoever is gone stays in the totals with what it had put in. Returns
        its blocks of v and z.
        """
        self.alpha = self.alpha_wire.on_grid(alpha)
        self.w[:] = w
        self._norm_counted = self._norm_told = self._norms(w)
        self._resum()
        rows, columns = self.view.n_shared_rows, self.view.n_shared_columns
        mine = self.table.products(None, w)[:rows] if rows else z
        return (
            self.v_sum.start(self.v[:columns], v, v_pads) if columns else None,
            self.z_sum.start(mine, z, z_pads) if rows else None,
        )

    def weights(self, model: int | None) -> Floats:
        """w as it stands, or that of a frozen pair."""
        return self.w if model is None else self.frozen.weights[model]

    def _method(self) -> LocalMethod:
        view, settings = self.view, self.settings
        if settings.local == "practical":
            return Practical(self.loss, settings.lam, view.n_samples)
        if settings.local == "theory":
            return Theory(self.loss, settings.lam, 1.0)
        norms = np.ones((view.n_rows, 1))
        return self._safe(norms)

    def _safe(self, norms: Floats) -> Safe:
        return Safe(
            self.loss,
            self.settings.lam,
            self.view.n_samples,
            norms,
            self.drawing.counts,
            self.view.sizes,
        )

    def _on_begin(self, message: BeginRequest) -> Nothing:
        if self.settings.local == "theory" and message.z is not None:
            self.curvature.take_norms(message.z)
        self._take_constants(message.constants)
        return Nothing()

    def _take_constants(self, constants: Constants) -> None:
        """Take what setting up found out."""
        if self.settings.local == "theory":
            self.curvature.check_unit()
            if constants.share is None:
                raise malformed("constants.share", "is missing")
            self.method = Theory(self.loss, self.settings.lam, constants.share)
        elif self.settings.local == "safe":
            if constants.omega is None:
                raise malformed("constants.omega", "is missing")
            self.method = self._safe(self.curvature.norms)
            self.method.set_omega(constants.omega)

    def phases(self) -> dict[str, Answer]:
        """What this half answers."""
        return answers(
            answer(NORMS, self.curvature.share_norms),
            answer(SPREAD, self.curvature.spread),
            answer(GATHER, self.curvature.gather),
            answer(BEGIN, self._on_begin),
            answer(WEIGHTS, self._moving(self._on_weights)),
            answer(STEP, self._moving(self._on_step)),
            answer(FUSED, self._moving(self._on_fused)),
            answer(DUAL, self._moving(self._on_dual)),
            answer(AGAIN, self._on_again),
            answer(FREEZE, self._on_freeze),
            answer(PAIR_PRODUCTS, self.frozen.products),
            answer(PAIR_LOSSES, self.frozen.losses),
        )

    def _moving(self, handler: Callable[[Q], S]) -> Callable[[Q], S]:
        """A phase whose reply changes what the coordinator and this party must agree on."""

        def moved(message: Q) -> S:
            self.settle(message.ack)
            self.z_sum.accept()
            self.v_sum.accept()
            self._undo = None
            reply = handler(message)
            self._sequence += 1
            reply.sequence = self._sequence
            return reply

        return moved

    def _on_freeze(self, message: FreezeRequest) -> FreezeReply:
        # The pair is the state both sides agree on.
        self.settle(message.ack)
        return self.frozen.freeze(message)

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _on_weights(self, message: WeightsRequest) -> WeightsReply:
        turn = self._draw(message)
        reply = WeightsReply()
        self._tell_norms(message, reply)
        if self.view.n_shared_rows:
            z = self.table.products(turn.window, self.w)
            if turn.window is None:
                reply.z = self.z_sum.increment(z, message.z_pads)
            else:
                reply.z = self.z_sum.increment(z, message.z_pads, turn.window)
                reply.z_slots = turn.window
            if turn.want is not None and turn.want is not turn.window:
                reply.want = turn.want
        return reply

    def _on_fused(self, message: FusedRequest) -> FusedReply:
        """Weights and step in one: every sample is this party's alone."""
        self._draw(message)
        reply = FusedReply()
        self._tell_norms(message, reply)
        self._step(message, None, reply)
        if not message.still and not isinstance(self.method, Safe):
            reply.v = self._feature_sums(message.v_pads)
        return reply

    def _draw(self, message: WeightsRequest | FusedRequest) -> Turn:
        """Take w, and say which samples this iteration touches."""
        iteration = message.iteration
        self._take_weights(message.v)
        if iteration % RESUM_EVERY == 0:
            self._resum()
        self._turn = self.drawing.turn(iteration, message.ahead, message.every)
        self._iteration = iteration
        self._tell_once("weights", message.ring)
        return self._turn

    def _tell_norms(
        self, message: WeightsRequest | FusedRequest, reply: WeightsReply | FusedReply
    ) -> None:
        if self.settings.coordinator_sees == "weights":
            reply.w = self.w[self.view.owned]
        if message.every:
            norms = self._norms(self.w)
            reply.norms = pack_scalars(self.cipher, message, "norms", *norms.tolist())
        if message.measure:
            reply.norm_change = self._norm_change(message)

    def _on_step(self, message: StepRequest) -> StepReply:
        reply = StepReply()
        self._step(message, message.z, reply)
        return reply

    def _step(self, message: StepRequest, totals: bytes | None, reply: StepReply) -> None:
        """Move α of the samples drawn, or propose changes."""
        turn = self._turn
        self._tell_once("step", message.ring)
        if message.omega is not None and isinstance(self.method, Safe):
            self.method.set_omega(message.omega)
        z = self._opened(totals)
        if turn.every:
            sums = self._certificate_sums(z)
            reply.losses = pack_scalars(self.cipher, message, "losses", *sums)
        if message.still:
            return
        slots, z = self._drawn(z)
        alpha, labels = self.alpha, self.labels
        if slots is not None:
            alpha, labels = alpha.take(slots, axis=0), labels.take(slots, axis=0)
        if message.measure:
            sums = self._estimate_sums(slots, z, labels)
            reply.estimate = pack_scalars(self.cipher, message, "estimate", *sums)
        change = self.method.change(slots, alpha, z, labels, message.gamma)
        if isinstance(self.method, Safe):
            new, reply.held = self._guarded(slots, self.alpha_wire.on_grid(alpha + change))
            self._move(slots, alpha, new)
            self._post(reply, turn.shared, alpha, message.send, message.alpha_pads)
            reply.v = self._feature_sums(message.v_pads)
        else:
            self._propose(message, reply, change * message.gamma)

    def _on_dual(self, message: DualRequest) -> DualReply:
        """New values of α, or changes of it, from the others."""
        width = self.alpha.shape[1]
        reply = DualReply()
        shared = self.view.n_shared_rows
        if message.alpha_slots is not None:
            slots = own_slots(message.alpha_slots, "alpha_slots", shared)
            new = self.alpha_wire.open(message.alpha, width, slots)
            self._move(slots, self.alpha.take(slots, axis=0), new)
        else:
            slots = _NO_SLOTS
            if message.delta_slots is not None or message.delta is not None:
                slots = own_slots(message.delta_slots, "delta_slots", shared)
            old = self.alpha.take(slots, axis=0)
            if len(slots):
                new = old + self.delta_wire.open(message.delta, width, slots)
                new, reply.held = self._guarded(slots, new)
                self._move(slots, old, new)
            self._post(reply, slots, old, message.send, message.alpha_pads)
        reply.v = self._feature_sums(message.v_pads)
        return reply

    def _on_again(self, message: AgainRequest) -> AgainReply:
        """Post α of some cohorts that moved last: the one who should have fell silent."""
        reply = AgainReply()
        if self._undo is not None:
            slots, old = self._undo
            shared = self._turn.shared if slots is None else slots[slots < self.view.n_shared_rows]
            self._post(reply, shared, old, message.send, message.alpha_pads)
        return reply

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _tell_once(self, phase: str, ring: Ring | None) -> None:
        """Scalars of an iteration go into sums over one set of parties only.

        The difference of two totals would be the value of whoever is in one of them.
        """
        iteration, before = self._told.get(phase, (0, None))
        if ring is None:
            # Without neighbours there are no scalars either, but under a cipher without masks.
            return
        if iteration == self._iteration and ring.keys != before:
            raise ProtocolError(
                f"a request wants scalars of iteration {iteration} in a sum over other parties "
                "than before"
            )
        self._told[phase] = (self._iteration, ring.keys)

    def _take_weights(self, v: bytes | None) -> None:
        shared = self.view.n_shared_columns
        lam = self.settings.lam
        if shared:
            self.w[:shared] = self.v_sum.open(v, self.w.shape[1]) / lam
        if shared < self.view.n_columns:
            self.w[shared:] = self.v[shared:] / (lam * self.view.n_samples)

    def _opened(self, totals: bytes | None) -> Floats | None:
        """z of the shared rows asked for."""
        want = self._turn.want
        if not (self.view.n_shared_rows if want is None else len(want)):
            return None
        return self.z_sum.open(totals, self.alpha.shape[1], want)

    def _drawn(self, z: Floats | None) -> tuple[Slots | None, Floats]:
        """The rows drawn here, shared ones first, with their z; None: all rows."""
        turn = self._turn
        shared = np.empty((0, self.alpha.shape[1]))
        if z is not None:
            shared = z if turn.drawn_in_want is None else z[turn.drawn_in_want]
        if not len(turn.private):
            return turn.drawn, shared
        private = self.table.products(turn.private, self.w)
        if not len(shared):
            return turn.drawn, private
        return turn.drawn, np.concatenate([shared, private])

    def _guarded(self, slots: Slots | None, new: Floats) -> tuple[Floats, int]:
        """New α of some rows, as far as enough samples of a cohort change together.

        Returns how many changes were held back, too.
        """
        if self._guard is None:
            return new, 0
        alpha = new.copy()
        if slots is not None:
            alpha = self.alpha.copy()
            alpha[slots] = new
        held = int(
            self.view.counts[self._guard.atoms[self._guard.hold_back(alpha, self.alpha)]].sum()
        )
        if self.earlier is not None:
            near = self.earlier.hold_apart(alpha, self.alpha)
            held += int(self.view.counts[self.earlier.atoms[near]].sum())
        return (alpha if slots is None else alpha[slots]), held

    def _move(self, slots: Slots | None, old: Floats, new: Floats) -> None:
        """Set α and keep the feature sums in step, touching only these rows."""
        if not self._bounded:
            self.alpha_wire.check(new)
        if slots is None:
            self._undo = (None, self.alpha)
            self.alpha = new
        else:
            self._undo = (slots, old)
            self.alpha[slots] = new
        self.table.accumulate(slots, new - old, self.v)

    def _post(
        self,
        reply: StepReply | DualReply | AgainReply,
        shared: Slots,
        old: Floats,
        send: Flags | None,
        pads: PadLinks | None,
    ) -> None:
        """α at shared rows that moved, of the cohorts that this party speaks for, so that absent
        holders find it later. Without ``send``: all of them."""
        new, old = self.alpha[shared], old[: len(shared)]
        if send is not None:
            if send.shape != self.view.sizes.shape:
                raise malformed("send", "has no flag per cohort")
            chosen = send[self.view.row_cohort[shared]]
            if not chosen.all():
                shared, new, old = shared[chosen], new[chosen], old[chosen]
        # A cipher of whole chunks waits for everybody who was asked, also if nothing changed.
        if len(shared) or (pads is not None and pads.chain is not None):
            reply.alpha_slots = shared
            reply.alpha = self.alpha_wire.post(new, old, shared, pads, send)

    def _propose(self, message: StepRequest, reply: StepReply, change: Floats) -> None:
        """γ/|B_i| Δα for shared rows, to be averaged; private rows move at once."""
        shared, private = self._turn.shared, self._turn.private
        count = len(shared)
        if len(private):
            old = self.alpha[private]
            new, reply.held = self._guarded(private, self.alpha_wire.on_grid(old + change[count:]))
            self._move(private, old, new)
        pads = message.delta_pads
        if count or (pads is not None and pads.chain is not None):
            holders: Any = message.active
            if holders is None:
                holders = self._computing.take(shared, axis=0)
            reply.delta_slots = shared
            reply.delta = self.delta_wire.propose(change[:count] / holders, shared, pads)

    def _feature_sums(self, pads: PadLinks | None) -> bytes | None:
        """How this party's feature sums changed, where it shares a feature with anybody."""
        return self.v_sum.increment(self.v, pads) if self.view.n_shared_columns else None

    def _norm_change(self, message: WeightsRequest | FusedRequest) -> bytes:
        """How ‖w‖² changed since it was counted last; what was told may have been given up."""
        if message.counted:
            self._norm_counted = self._norm_told
        self._norm_told = self._norms(self.w)
        change = float((self._norm_told - self._norm_counted).sum())
        return pack_scalars(self.cipher, message, "norm_change", change)

    def _norms(self, w: Floats) -> Floats:
        """‖w‖² over the columns this party counts, per class."""
        squared: Floats = np.einsum("ij,ij->j", w[self.view.owned], w[self.view.owned])
        return squared

    def _certificate_sums(self, z: Floats | None) -> list[float]:
        """Losses and conjugates of the rows counted here, per class, over N."""
        full = np.zeros((self.view.n_rows, self.alpha.shape[1]))
        shared = self.view.n_shared_rows
        if z is not None:
            if self._turn.want is None:
                full[:shared] = z
            else:
                full[self._turn.want] = z
        if shared < self.view.n_rows:
            full[shared:] = self.table.products(self.drawing.private_rows, self.w)
        return class_sums(self, full, self.alpha)

    def _estimate_sums(self, slots: Slots | None, z: Floats, labels: Floats) -> list[float]:
        """Loss of the drawn rows counted here, and their number, over N."""
        counted = self.view.counted_rows if slots is None else self.view.counted_rows[slots]
        loss = self.loss.value(z, labels)[counted].sum() / self.view.n_samples
        return [float(loss), float(counted.sum()) / self.view.n_samples]

    def _resum(self) -> None:
        self.v[:] = 0.0
        self.table.accumulate(None, self.alpha, self.v)

    def settle(self, ack: int) -> None:
        """Take back the last reply if ``ack`` says that the coordinator never got it."""
        if ack < self._sequence:
            self._take_back()

    def _take_back(self) -> None:
        self._sequence -= 1
        self.z_sum.undo()
        self.v_sum.undo()
        if self._undo is not None:
            slots, old = self._undo
            now = self.alpha if slots is None else self.alpha[slots]
            self.table.accumulate(slots, old - now, self.v)
            if slots is None:
                self.alpha = old
            else:
                self.alpha[slots] = old
            self._undo = None

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next iteration depends on; taken between iterations."""
        return {
            "alpha": self.alpha,
            "v": self.v,
            "w": self.w,
            "z_sent": self.z_sum.sent,
            "v_sent": self.v_sum.sent,
            "sequence": np.array(self._sequence),
            "norms_told": np.stack([self._norm_counted, self._norm_told]),
            "norms": self.curvature.norms,
            **{f"frozen.{name}": value for name, value in self.frozen.state().items()},
        }

    def restore(self, state: Mapping[str, NDArray[Any]], constants: Constants) -> None:
        """The inverse of :meth:`state`, with the constants of setting up."""
        self.alpha, self.v, self.w = state["alpha"], state["v"], state["w"]
        self.z_sum.sent, self.v_sum.sent = state["z_sent"], state["v_sent"]
        self._sequence = int(state["sequence"])
        self._norm_counted, self._norm_told = state["norms_told"]
        self.curvature.norms = state["norms"]
        self.frozen.restore(
            {name[7:]: value for name, value in state.items() if name.startswith("frozen.")}
        )
        self._undo = None
        self._take_constants(constants)
