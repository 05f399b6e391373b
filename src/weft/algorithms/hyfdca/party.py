"""HyFDCA, a party's half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.hyfdca.curvature import CurvatureParty
from weft.algorithms.hyfdca.drawing import Drawing, drawing_of
from weft.algorithms.hyfdca.local_methods import LocalMethod, Practical, Safe, Theory
from weft.algorithms.settings import Settings
from weft.channels import Message
from weft.channels.message import array, integer, number
from weft.crypto import Cipher
from weft.matching.seat import Seat
from weft.sums.certificate import FrozenParty, class_sums
from weft.sums.contribution import Contribution, Wire
from weft.sums.local_table import LocalTable
from weft.sums.scalars import pack_scalars

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]

#: Feature sums are kept incrementally; this often they are summed anew against drift.
RESUM_EVERY = 1000

Handler = Callable[[Message], Message]


class HyfdcaParty:
    """α of its samples, its feature sums and its slice of w, and the steps on them.

    Phases (↓ what comes, ↑ what goes back):

    ``weights``  v totals ↓, partial inner products of drawn samples ↑
    ``step``     z totals ↓, change of α and feature sums ↑ (``practical`` and ``theory``: only
    the change of α, whose average comes back in ``dual``)
    ``dual``     α totals ↓, feature sums ↑
    """

    def __init__(
        self, seat: Seat, table: LocalTable, labels: Floats, settings: Settings, cipher: Cipher
    ) -> None:
        self.seat = seat
        self.table = table
        self.labels = labels
        self.settings = settings
        self.loss = settings.make_loss()
        self.cipher = cipher
        classes = labels.shape[1]
        self.alpha: Floats = np.zeros((seat.n_rows, classes))
        self.v: Floats = np.zeros((seat.n_columns, classes))
        self.w: Floats = np.zeros((seat.n_columns, classes))
        many = seat.contributors
        self.z_sum = Contribution("z", seat.n_shared_rows, classes, many, cipher)
        self.v_sum = Contribution(
            "v", seat.n_shared_columns, classes, many, cipher, 1.0 / seat.n_samples
        )
        self.alpha_wire = Wire("alpha", many, cipher)
        self.drawing: Drawing = drawing_of(settings, seat)
        self.method: LocalMethod = self._method()
        self.frozen = FrozenParty(self)
        # The theorems speak of the norms themselves, not of bounds on them.
        norms = settings.norms if settings.local == "safe" else "sample"
        self.curvature = CurvatureParty(seat, table, cipher, norms, settings.seed)
        self._sequence = 0
        #: Rows moved by the last reply, and their α before; None rows: all.
        self._undo: tuple[Slots | None, Floats] | None = None
        self._norm_sent = self._norm_before = np.zeros(classes)
        #: Whether the loss itself keeps α within what can be summed.
        self._bounded = self.loss.lipschitz <= 1.0
        self._computing = seat.computing[seat.row_cohort][:, None].astype(np.float64)
        self._turn = self.drawing.turn(0, 1, False)

    def _method(self) -> LocalMethod:
        seat, settings = self.seat, self.settings
        if settings.local == "practical":
            return Practical(self.loss, settings.lam, seat.n_samples)
        if settings.local == "theory":
            return Theory(self.loss, settings.lam, 1.0)
        norms = np.ones((seat.n_rows, 1))
        return self._safe(norms)

    def _safe(self, norms: Floats) -> Safe:
        return Safe(
            self.loss,
            self.settings.lam,
            self.seat.n_samples,
            norms,
            self.drawing.counts,
            self.seat.sizes,
        )

    def _on_begin(self, message: Message) -> Message:
        """Take the constants that setting up found out."""
        if self.settings.local == "theory":
            if "z" in message:
                self.curvature.take_norms(message)
            self.curvature.check_unit()
            self.method = Theory(self.loss, self.settings.lam, number(message, "share"))
        elif self.settings.local == "safe":
            self.method = self._safe(self.curvature.norms)
            self.method.set_omega(number(message, "omega"))
        return {}

    def phases(self) -> dict[str, Callable[[Message], Message]]:
        """What this half answers, by full name of the phase."""
        return {
            "hyfdca.size": self.curvature.size,
            "hyfdca.norms": self.curvature.share_norms,
            "hyfdca.spread": self.curvature.spread,
            "hyfdca.gather": self.curvature.gather,
            "hyfdca.begin": self._on_begin,
            "hyfdca.weights": self._moving(self._on_weights),
            "hyfdca.step": self._moving(self._on_step),
            "hyfdca.dual": self._moving(self._on_dual),
            "hyfdca.again": self._on_again,
            "certify.freeze": self._settled(self.frozen.freeze),
            "certify.products": self.frozen.products,
            "certify.losses": self.frozen.losses,
        }

    def _moving(self, handler: Handler) -> Handler:
        """A phase whose reply changes what the coordinator and this party must agree on."""

        def answer(message: Message) -> Message:
            self.settle(integer(message, "ack"))
            self.z_sum.accept()
            self.v_sum.accept()
            self._undo = None
            self._norm_before = self._norm_sent
            reply = handler(message)
            self._sequence += 1
            reply["sequence"] = self._sequence
            return reply

        return answer

    def _settled(self, handler: Handler) -> Handler:
        """A phase that must see the state both sides agree on."""

        def answer(message: Message) -> Message:
            self.settle(integer(message, "ack"))
            return handler(message)

        return answer

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _on_weights(self, message: Message) -> Message:
        iteration = integer(message, "iteration")
        every = "every" in message
        self._take_weights(message)
        if iteration % RESUM_EVERY == 0:
            self._resum()
        turn = self._turn = self.drawing.turn(iteration, integer(message, "ahead", 1), every)
        reply: Message = {}
        if every:
            reply["norms"] = pack_scalars(*self._norms(self.w))
        if "measure" in message:
            norms = self._norms(self.w)
            reply["norm change"] = pack_scalars(float((norms - self._norm_sent).sum()))
            self._norm_sent = norms
        if "fuse" in message:
            return {**self._on_step(message), **reply}
        if self.seat.n_shared_rows:
            if turn.window is None:
                z = self.table.products(None, self.w)
                reply["z"] = self.z_sum.increment(z)
            else:
                z = self.table.products(turn.window, self.w)
                reply["z"] = self.z_sum.increment(z, turn.window)
                reply["z.slots"] = turn.window
            if turn.want is not None and turn.want is not turn.window:
                reply["want"] = turn.want
        return reply

    def _on_step(self, message: Message) -> Message:
        turn = self._turn
        if "omega" in message and isinstance(self.method, Safe):
            self.method.set_omega(number(message, "omega"))
        z = self._opened(message)
        reply: Message = {}
        if turn.every:
            reply["losses"] = pack_scalars(*self._certificate_sums(z))
        if "still" in message:
            return reply
        slots, z = self._drawn(z)
        alpha, labels = self.alpha, self.labels
        if slots is not None:
            alpha, labels = alpha.take(slots, axis=0), labels.take(slots, axis=0)
        gamma = number(message, "gamma")
        if "measure" in message:
            reply["estimate"] = pack_scalars(*self._estimate_sums(slots, z, labels))
        change = self.method.change(slots, alpha, z, labels, gamma)
        if isinstance(self.method, Safe):
            self._move(slots, alpha, self.alpha_wire.on_grid(alpha + change))
            reply.update(self._increments(message, slots, alpha))
            reply["v"] = self.v_sum.increment(self.v)
        else:
            reply.update(self._proposals(message, slots, change * gamma))
        return reply

    def _on_dual(self, message: Message) -> Message:
        slots = array(message, "alpha.slots")
        new = self.alpha_wire.open(array(message, "alpha"), slots)
        self._move(slots, self.alpha.take(slots, axis=0), new)
        return {"v": self.v_sum.increment(self.v)}

    def _on_again(self, message: Message) -> Message:
        """Send the α increments of some cohorts: their sender fell silent in ``step``."""
        if self._undo is None:
            return {}
        return self._increments(message, *self._undo)

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _take_weights(self, message: Message) -> None:
        shared = self.seat.n_shared_columns
        lam = self.settings.lam
        if shared:
            self.w[:shared] = self.v_sum.open(array(message, "v")) / lam
        if shared < self.seat.n_columns:
            self.w[shared:] = self.v[shared:] / (lam * self.seat.n_samples)

    def _opened(self, message: Message) -> Floats | None:
        """z of the shared rows asked for."""
        if "z" not in message:
            return None
        return self.z_sum.open(array(message, "z"), self._turn.want)

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

    def _increments(self, message: Message, slots: Slots | None, old: Floats) -> Message:
        """Changes of α for the cohorts that this party speaks for, so that absent holders
        find them later. Without ``send`` in the message: all shared ones."""
        shared = self._turn.shared
        if not len(shared):
            return {}
        change = (self.alpha if slots is None else self.alpha[slots])[: len(shared)]
        change = change - old[: len(shared)]
        if "send" in message:
            chosen = array(message, "send")[self.seat.row_cohort[shared]]
            if not chosen.all():
                shared, change = shared[chosen], change[chosen]
        return {"alpha.slots": shared, "alpha": self.alpha_wire.send(change, shared)}

    def _proposals(self, message: Message, slots: Slots | None, change: Floats) -> Message:
        """γ/|B_i| Δα for shared rows, to be averaged; private rows move at once."""
        shared, private = self._turn.shared, self._turn.private
        count = len(shared)
        if len(private):
            old = self.alpha[private]
            self._move(private, old, self.alpha_wire.on_grid(old + change[count:]))
        reply: Message = {}
        if count:
            if "active" in message:
                holders: Any = number(message, "active")
            else:
                holders = self._computing.take(shared, axis=0)
            reply["alpha.slots"] = shared
            reply["alpha"] = self.alpha_wire.send(change[:count] / holders, shared)
        if "fuse" in message:
            reply["v"] = self.v_sum.increment(self.v)
        return reply

    def _norms(self, w: Floats) -> Floats:
        """‖w‖² over the columns this party counts, per class."""
        squared: Floats = np.einsum("ij,ij->j", w[self.seat.owned], w[self.seat.owned])
        return squared

    def _certificate_sums(self, z: Floats | None) -> list[float]:
        """Losses and conjugates of the rows counted here, per class, over N."""
        full = np.zeros((self.seat.n_rows, self.alpha.shape[1]))
        shared = self.seat.n_shared_rows
        if z is not None:
            if self._turn.want is None:
                full[:shared] = z
            else:
                full[self._turn.want] = z
        if shared < self.seat.n_rows:
            full[shared:] = self.table.products(self.drawing.private_rows, self.w)
        return class_sums(self, full, self.alpha)

    def _estimate_sums(self, slots: Slots | None, z: Floats, labels: Floats) -> list[float]:
        """Loss of the drawn rows counted here, and their number, over N."""
        counted = self.seat.counted_rows if slots is None else self.seat.counted_rows[slots]
        loss = self.loss.value(z, labels)[counted].sum() / self.seat.n_samples
        return [float(loss), float(counted.sum()) / self.seat.n_samples]

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
        self._norm_sent = self._norm_before
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
            "norm_sent": self._norm_sent,
            "norms": self.curvature.norms,
            **{f"frozen.{name}": value for name, value in self.frozen.state().items()},
        }

    def restore(self, state: Mapping[str, NDArray[Any]], message: Message) -> None:
        """The inverse of :meth:`state`; ``message`` carries the constants of setting up."""
        self.alpha, self.v, self.w = state["alpha"], state["v"], state["w"]
        self.z_sum.sent, self.v_sum.sent = state["z_sent"], state["v_sent"]
        self._sequence = int(state["sequence"])
        self._norm_sent = state["norm_sent"]
        self.curvature.norms = state["norms"]
        self.frozen.restore(
            {name[7:]: value for name, value in state.items() if name.startswith("frozen.")}
        )
        self._undo = None
        self._on_begin(message)
