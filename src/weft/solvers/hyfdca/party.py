"""HyFDCA, a party's half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft.array_types import Flags, Floats, Slots
from weft.crypto.scalar_mask_neighbours import Sharers
from weft.errors import ProtocolError
from weft.protocol import Answer, answer, answers
from weft.protocol.declared_message_fields import Nothing, malformed
from weft.protocol.shared_fields import AcknowledgedRequest, PadLinks
from weft.solvers.hyfdca.local_methods import Safe, Turn
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
from weft.solvers.hyfdca.party_state import HyfdcaState
from weft.solvers.setup_result_and_checkpoint_messages import SequencedReply
from weft.sums.party_contribution import lacks, own_slots, speaks
from weft.sums.scalar_sums import over_attending, over_labelled, pack_scalars
from weft.sums.table_scaling_and_certificate_messages import (
    FREEZE,
    PAIR_LOSSES,
    PAIR_PRODUCTS,
    FreezeReply,
    FreezeRequest,
)

#: Feature sums are kept incrementally; this often they are summed anew against drift.
RESUM_EVERY = 1000
_NO_SLOTS = np.zeros(0, np.int32)

Q = TypeVar("Q", bound=AcknowledgedRequest)
S = TypeVar("S", bound=SequencedReply)


class HyfdcaParty(HyfdcaState):
    """α of its samples, its feature sums and its slice of w, and the steps on them.

    Phases (↓ what comes, ↑ what goes back):

    ``weights``  v totals ↓, partial inner products of drawn samples ↑
    ``step``     z totals ↓, new α and feature sums ↑ (``practical`` and ``theory``: only
    proposals for changes of α, whose sum comes back in ``dual``)
    ``dual``     changes of α, or new α ↓, feature sums ↑
    """

    def _on_begin(self, message: BeginRequest) -> Nothing:
        self.data_norms.finish(message)
        if self.settings.local == "theory" and message.z is not None:
            self.data_norms.take_norms(message.z)
        self._take_constants(message.constants)
        return Nothing()

    def phases(self) -> dict[str, Answer]:
        """What this half answers."""
        return answers(
            answer(NORMS, self.data_norms.share_norms),
            answer(SPREAD, self.data_norms.spread),
            answer(GATHER, self.data_norms.gather),
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
            self.end_request()
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
        self._step(message, None, reply, None)
        if not message.still and not isinstance(self.method, Safe):
            reply.v = self._feature_sums(message.v_pads)
        return reply

    def _draw(self, message: WeightsRequest | FusedRequest) -> Turn:
        """Take w, and say which samples this iteration touches."""
        iteration = message.iteration
        self._take_weights(message.v)
        if iteration % RESUM_EVERY == 0:
            self.resum()
        self._turn = self.drawing.turn(iteration, message.ahead, message.every)
        self._iteration, self._turn_open = iteration, True
        return self._turn

    def _tell_norms(
        self, message: WeightsRequest | FusedRequest, reply: WeightsReply | FusedReply
    ) -> None:
        if self.settings.coordinator_sees == "weights":
            reply.w = self.w[self.view.owned]
        if message.every:
            if message.ack < self._told_from:
                # Whoever has steps taken back at will would choose among totals, one by one.
                raise ProtocolError("a request takes a step back and asks for norms of all")
            norms = self._norms(self.w)
            reply.norms = pack_scalars(self.cipher, "norms", *norms.tolist())
        if message.measure:
            reply.norm_change = self._norm_change(message)

    def _on_step(self, message: StepRequest) -> StepReply:
        reply = StepReply()
        if not self._turn_open:
            # Losses at other totals, step after step, would tell of single samples.
            raise ProtocolError("a request wants a step without products of its own turn")
        self._step(message, message.z, reply, over_labelled(self.cipher))
        return reply

    def _step(
        self, message: StepRequest, totals: bytes | None, reply: StepReply, over: Sharers | None
    ) -> None:
        """Move α of the samples drawn, or propose changes.

        ``over`` says over whom losses are summed; None: everyone.
        """
        turn = self._turn
        self._turn_open = False
        if message.omega is not None and isinstance(self.method, Safe):
            self.method.set_omega(message.omega)
        z = self._opened(totals)
        if turn.every:
            sums = self._certificate_sums(z)
            reply.losses = pack_scalars(self.cipher, "losses", *sums, over=over)
        if message.still:
            return
        slots, z = self._drawn(z)
        alpha, labels = self.alpha, self.labels
        if slots is not None:
            alpha, labels = alpha.take(slots, axis=0), labels.take(slots, axis=0)
        if message.measure:
            sums = self.estimate_sums(slots, z, labels)
            some = over_attending(self.cipher, message.attending)
            reply.estimate = pack_scalars(self.cipher, "estimate", *sums, over=some)
        change = self.method.change(slots, alpha, z, labels, message.gamma)
        if isinstance(self.method, Safe):
            new, reply.held = self._guarded(slots, self.alpha_wire.on_grid(alpha + change))
            self._compute(slots, alpha, new)
            self._post(reply, turn.shared, alpha, message.send, message.alpha_pads)
            reply.v = self._feature_sums(message.v_pads)
        else:
            self._propose(
                message, reply, change if message.gamma == 1.0 else change * message.gamma
            )

    def _on_dual(self, message: DualRequest) -> DualReply:
        """New values of α, or changes of it, from the others."""
        width = self.alpha.shape[1]
        reply = DualReply()
        shared = self.view.n_shared_rows
        if message.alpha_slots is not None:
            slots = own_slots(message.alpha_slots, "alpha_slots", shared)
            newest = self.alpha_wire.told_at(slots)
            new = self.alpha_wire.take(message.alpha, width, slots)
            self.insist_on_enough(slots, new)
            self._move(slots, self.alpha.take(slots, axis=0), new, newest)
        else:
            slots = _NO_SLOTS
            if message.delta_slots is not None or message.delta is not None:
                slots = own_slots(message.delta_slots, "delta_slots", shared)
            self._insist_on_proposed(slots)
            old = self.alpha.take(slots, axis=0)
            if len(slots):
                new = old + self.delta_wire.open(message.delta, width, slots)
                new, reply.held = self._guarded(slots, new)
                self._compute(slots, old, new)
            self._post(reply, slots, old, message.send, message.alpha_pads)
        reply.v = self._feature_sums(message.v_pads)
        return reply

    def _insist_on_proposed(self, slots: Slots) -> None:
        """Refuse changes that leave out samples for which this party proposed some.

        Changes of single samples would show in the sum of all conjugates.
        """
        proposed, self._proposed = self._proposed, None
        if proposed is None:
            few = bool(self.view.labelled[self.view.row_cohort[slots]].any())
        else:
            few = lacks(slots, proposed, self.view.n_shared_rows)
        if few:
            raise malformed("delta_slots", "do not name all samples that were proposed")

    def _on_again(self, message: AgainRequest) -> AgainReply:
        """Post α of some cohorts that moved last: the one who should have fell silent."""
        reply = AgainReply()
        shared, old = _NO_SLOTS, self.alpha[:0]
        if self._undo is not None:
            slots, old, _ = self._undo
            shared = self._turn.shared if slots is None else slots[slots < self.view.n_shared_rows]
        self._post(reply, shared, old, message.send, message.alpha_pads)
        return reply

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _opened(self, totals: bytes | None) -> Floats | None:
        """z of the shared rows asked for."""
        want = self._turn.want
        if not (self.view.n_shared_rows if want is None else len(want)):
            return None
        return self.z_sum.open(totals, self.alpha.shape[1], want)

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
        if send is not None and send.shape != self.view.sizes.shape:
            raise malformed("send", "has no flag per cohort")
        # The coordinator waits for everybody who speaks for a cohort, also if nothing changed.
        if not speaks(self.view, send):
            return
        old = old[: len(shared)]
        if send is not None:
            chosen = send[self.view.row_cohort[shared]]
            if np.count_nonzero(chosen) < len(chosen):
                shared, old = shared[chosen], old[chosen]
        reply.alpha_slots = shared
        new = self.alpha.take(shared, axis=0)
        reply.alpha = self.alpha_wire.post(new, old, shared, pads, send)

    def _propose(self, message: StepRequest, reply: StepReply, change: Floats) -> None:
        """γ/|B_i| Δα for shared rows, to be averaged; private rows move at once."""
        shared, private = self._turn.shared, self._turn.private
        count = len(shared)
        if len(private):
            old = self.alpha[private]
            new, reply.held = self._guarded(private, self.alpha_wire.on_grid(old + change[count:]))
            self._compute(private, old, new)
        if self.view.n_shared_rows:
            holders: Any = message.active
            if holders is None:
                holders = self.holders(shared)
            reply.delta_slots = self._proposed = shared
            reply.delta = self.delta_wire.propose(
                change[:count] / holders, shared, message.delta_pads
            )

    def _feature_sums(self, pads: PadLinks | None) -> bytes | None:
        """How this party's feature sums changed, where it shares a feature with anybody."""
        return self.v_sum.increment(self.v, pads) if self.view.n_shared_columns else None

    def _norm_change(self, message: WeightsRequest | FusedRequest) -> bytes:
        change = self.norm_change(counted=message.counted)
        some = over_attending(self.cipher, message.attending)
        return pack_scalars(self.cipher, "norm_change", change, over=some)
