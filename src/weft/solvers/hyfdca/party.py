"""HyFDCA, a party's half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.guards.min_batch import MinBatch, SeenBatches
from weft.protocol import Message
from weft.protocol.message import array, integer, number
from weft.solvers.hyfdca.curvature import CurvatureParty
from weft.solvers.hyfdca.local_methods import LocalMethod, Practical, Safe, Theory
from weft.solvers.hyfdca.party_sampling import Drawing, drawing_of
from weft.solvers.party_context import PartyContext
from weft.solvers.settings import Settings
from weft.sums.certificate import FrozenParty, class_sums, feature_cipher
from weft.sums.contribution import Contribution, Wire, own_slots
from weft.sums.scalar_sums import pack_scalars

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]

#: Feature sums are kept incrementally; this often they are summed anew against drift.
RESUM_EVERY = 1000
_NO_SLOTS = np.zeros(0, np.int32)

Handler = Callable[[Message], Message]


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
        self, alpha: Floats, w: Floats, z: Floats, v: Floats, message: Message
    ) -> Message:
        """Begin at the α that another solver has reached, and at its w(α).

        ``z`` and ``v`` are what this party puts into the sums, of shared rows and columns: the
        totals of cohorts that it speaks for, and zero elsewhere. From there on it tells changes of
        its own parts, so that whoever is gone stays in the totals with what it had put in.
        """
        self.alpha = self.alpha_wire.on_grid(alpha)
        self.w[:] = w
        self._norm_counted = self._norm_told = self._norms(w)
        self._resum()
        rows, columns = self.view.n_shared_rows, self.view.n_shared_columns
        reply: Message = {}
        if columns:
            reply["v"] = self.v_sum.start(self.v[:columns], v, message)
        if rows:
            reply["z"] = self.z_sum.start(self.table.products(None, w)[:rows], z, message)
        return reply

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
        self._iteration = iteration
        self._tell_once("weights", message)
        reply: Message = {}
        if self.settings.coordinator_sees == "weights":
            reply["w"] = self.w[self.view.owned]
        if every:
            norms = self._norms(self.w)
            reply["norms"] = pack_scalars(self.cipher, message, "norms", *norms.tolist())
        if "measure" in message:
            reply["norm change"] = self._norm_change(message)
        if "fuse" in message:
            return {**self._on_step(message), **reply}
        if self.view.n_shared_rows:
            z = self.table.products(turn.window, self.w)
            if turn.window is None:
                reply["z"] = self.z_sum.increment(z, message)
            else:
                reply["z"] = self.z_sum.increment(z, message, turn.window)
                reply["z.slots"] = turn.window
            if turn.want is not None and turn.want is not turn.window:
                reply["want"] = turn.want
        return reply

    def _on_step(self, message: Message) -> Message:
        turn = self._turn
        self._tell_once("step", message)
        if "omega" in message and isinstance(self.method, Safe):
            self.method.set_omega(number(message, "omega"))
        z = self._opened(message)
        reply: Message = {}
        if turn.every:
            sums = self._certificate_sums(z)
            reply["losses"] = pack_scalars(self.cipher, message, "losses", *sums)
        if "still" in message:
            return reply
        slots, z = self._drawn(z)
        alpha, labels = self.alpha, self.labels
        if slots is not None:
            alpha, labels = alpha.take(slots, axis=0), labels.take(slots, axis=0)
        gamma = number(message, "gamma")
        if "measure" in message:
            sums = self._estimate_sums(slots, z, labels)
            reply["estimate"] = pack_scalars(self.cipher, message, "estimate", *sums)
        change = self.method.change(slots, alpha, z, labels, gamma)
        if isinstance(self.method, Safe):
            new = self._guarded(reply, slots, self.alpha_wire.on_grid(alpha + change))
            self._move(slots, alpha, new)
            reply.update(self._posts(message, turn.shared, alpha))
            reply.update(self._feature_sums(message))
        else:
            reply.update(self._proposals(message, slots, change * gamma))
        return reply

    def _on_dual(self, message: Message) -> Message:
        """New values of α, or changes of it, from the others."""
        width = self.alpha.shape[1]
        reply: Message = {}
        shared = self.view.n_shared_rows
        if "alpha.slots" in message:
            slots = own_slots(message, "alpha.slots", shared)
            new = self.alpha_wire.open(message.get("alpha"), width, slots)
            self._move(slots, self.alpha.take(slots, axis=0), new)
        else:
            slots = _NO_SLOTS
            if "delta.slots" in message or "delta" in message:
                slots = own_slots(message, "delta.slots", shared)
            old = self.alpha.take(slots, axis=0)
            if len(slots):
                new = old + self.delta_wire.open(message.get("delta"), width, slots)
                self._move(slots, old, self._guarded(reply, slots, new))
            reply.update(self._posts(message, slots, old))
        return {**reply, **self._feature_sums(message)}

    def _on_again(self, message: Message) -> Message:
        """Post α of some cohorts that moved last: the one who should have fell silent."""
        if self._undo is None:
            return {}
        slots, old = self._undo
        shared = self._turn.shared if slots is None else slots[slots < self.view.n_shared_rows]
        return self._posts(message, shared, old)

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _tell_once(self, phase: str, message: Message) -> None:
        """Scalars of an iteration go into sums over one set of parties only.

        The difference of two totals would be the value of whoever is in one of them.
        """
        peers = message.get("peers.keys")
        iteration, before = self._told.get(phase, (0, None))
        if peers is None:
            return
        if iteration == self._iteration and peers != before:
            raise ProtocolError(
                f"a request wants scalars of iteration {iteration} in a sum over other parties "
                "than before"
            )
        self._told[phase] = (self._iteration, peers)

    def _take_weights(self, message: Message) -> None:
        shared = self.view.n_shared_columns
        lam = self.settings.lam
        if shared:
            self.w[:shared] = self.v_sum.open(message.get("v"), self.w.shape[1]) / lam
        if shared < self.view.n_columns:
            self.w[shared:] = self.v[shared:] / (lam * self.view.n_samples)

    def _opened(self, message: Message) -> Floats | None:
        """z of the shared rows asked for."""
        want = self._turn.want
        if not (self.view.n_shared_rows if want is None else len(want)):
            return None
        return self.z_sum.open(message.get("z"), self.alpha.shape[1], want)

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

    def _guarded(self, reply: Message, slots: Slots | None, new: Floats) -> Floats:
        """New α of some rows, as far as enough samples of a cohort change together."""
        if self._guard is None:
            return new
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
        reply["held"] = held
        return alpha if slots is None else alpha[slots]

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

    def _posts(self, message: Message, shared: Slots, old: Floats) -> Message:
        """α at shared rows that moved, of the cohorts that this party speaks for, so that absent
        holders find it later. Without ``send`` in the message: all of them."""
        new, old = self.alpha[shared], old[: len(shared)]
        if "send" in message:
            flags = array(message, "send")
            if flags.shape != self.view.sizes.shape or flags.dtype != bool:
                raise ProtocolError("a message is malformed: 'send' has no flag per cohort")
            chosen = flags[self.view.row_cohort[shared]]
            if not chosen.all():
                shared, new, old = shared[chosen], new[chosen], old[chosen]
        # A cipher of whole chunks waits for everybody who was asked, also if nothing changed.
        if not len(shared) and "alpha.chain" not in message:
            return {}
        return {"alpha.slots": shared, "alpha": self.alpha_wire.post(new, old, shared, message)}

    def _proposals(self, message: Message, slots: Slots | None, change: Floats) -> Message:
        """γ/|B_i| Δα for shared rows, to be averaged; private rows move at once."""
        shared, private = self._turn.shared, self._turn.private
        count = len(shared)
        reply: Message = {}
        if len(private):
            old = self.alpha[private]
            new = self.alpha_wire.on_grid(old + change[count:])
            self._move(private, old, self._guarded(reply, private, new))
        if count or "delta.chain" in message:
            if "active" in message:
                holders: Any = number(message, "active")
            else:
                holders = self._computing.take(shared, axis=0)
            reply["delta.slots"] = shared
            reply["delta"] = self.delta_wire.propose(change[:count] / holders, shared, message)
        if "fuse" in message:
            reply.update(self._feature_sums(message))
        return reply

    def _feature_sums(self, message: Message) -> Message:
        """How this party's feature sums changed, where it shares a feature with anybody."""
        if not self.view.n_shared_columns:
            return {}
        return {"v": self.v_sum.increment(self.v, message)}

    def _norm_change(self, message: Message) -> bytes:
        """How ‖w‖² changed since it was counted last; what was told may have been given up."""
        if "counted" in message:
            self._norm_counted = self._norm_told
        self._norm_told = self._norms(self.w)
        change = float((self._norm_told - self._norm_counted).sum())
        return pack_scalars(self.cipher, message, "norm change", change)

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

    def restore(self, state: Mapping[str, NDArray[Any]], message: Message) -> None:
        """The inverse of :meth:`state`; ``message`` carries the constants of setting up."""
        self.alpha, self.v, self.w = state["alpha"], state["v"], state["w"]
        self.z_sum.sent, self.v_sum.sent = state["z_sent"], state["v_sent"]
        self._sequence = int(state["sequence"])
        self._norm_counted, self._norm_told = state["norms_told"]
        self.curvature.norms = state["norms"]
        self.frozen.restore(
            {name[7:]: value for name, value in state.items() if name.startswith("frozen.")}
        )
        self._undo = None
        self._on_begin(message)
