"""What a party of HyFDCA keeps: α of its samples, its feature sums, its slice of w."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.guards.keep_apart_from_other_sent_duals import SentAside
from weft.guards.min_batch_between_sums import MinBatch, SeenBatches
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import PadIds, PadLinks
from weft.solvers.hyfdca.data_norms import DataNormsParty
from weft.solvers.hyfdca.local_methods import (
    Drawing,
    LocalMethod,
    Practical,
    Safe,
    Theory,
    drawing_of,
)
from weft.solvers.label_classes_for_guards import common_kinds
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.storage.atomic_files import part_of
from weft.sums.gap_certificate import FrozenParty, class_sums, feature_cipher
from weft.sums.party_contribution import Contribution, Latest, Wire


class HyfdcaState:
    """α, feature sums and w of one party, the steps on them, and how they are taken back.

    Parameters
    ----------
    among_some
        Whether it works in the place of another solver, while a party is away.
    """

    def __init__(
        self, context: PartyContext, settings: Settings, *, among_some: bool = False
    ) -> None:
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
        self.z_sum = Contribution("z", rows, classes, bounds.z, cipher, windows=True, current=True)
        open_ = feature_cipher(cipher, settings)
        self.v_sum = Contribution("v", columns, classes, bounds.v, open_, 1.0 / view.n_samples)
        self.alpha_wire = Latest("alpha", rows, bounds.alpha, cipher)
        self.delta_wire = Wire("delta", rows, bounds.alpha, cipher)
        self.drawing: Drawing = drawing_of(settings, view)
        self.method: LocalMethod = self._method()
        self.frozen = FrozenParty(self)
        # The theorems speak of the norms themselves, not of bounds on them.
        norms = "cohort" if settings.norms == "cohort" and settings.local == "safe" else "sample"
        self.data_norms = DataNormsParty(
            view, table, cipher, norms, settings.seed, among_some=among_some
        )
        self._sequence = 0
        #: Which reply must have arrived before it tells scalars over all samples again.
        self._told_from = 0
        #: Shared rows for which changes were proposed in this turn; None: none were.
        self._proposed: Slots | None = None
        #: Rows moved by the last reply, their α before (None rows: all), and when others told it.
        self._undo: tuple[Slots | None, Floats, PadIds] | None = None
        #: ‖w‖² as it was counted last, and as it was told last.
        self._norm_counted = self._norm_told = np.zeros(classes)
        #: Whether the loss itself keeps α within what can be summed.
        self._bounded = bool(np.isfinite(self.loss.lipschitz))
        self._computing = view.computing[view.row_cohort][:, None].astype(np.float64)
        self._turn = self.drawing.turn(0, 1, False)
        #: Whether products were sent in this turn and no step was taken yet.
        self._turn_open = False
        self._iteration = 0
        guarded = view.guarded_cohort
        kind = common_kinds(view, labels, self.loss)
        some = bool((guarded >= 0).any())
        self._guard = MinBatch(guarded, view.min_batch, kind) if some else None
        #: α that was sent and is not that of the steps: they keep apart from it, too.
        self.aside = None if self._guard is None else SentAside(self._guard, rows)
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
        self.resum()
        rows, columns = self.view.n_shared_rows, self.view.n_shared_columns
        mine = self.table.products(None, w)[:rows] if rows else z
        return (
            self.v_sum.start(self.v[:columns], v, v_pads) if columns else None,
            self.z_sum.start(mine, z, z_pads) if rows else None,
        )

    @property
    def is_guarded(self) -> bool:
        """Whether changes of few samples may be held back."""
        return self._guard is not None or self.aside is not None or self.earlier is not None

    @property
    def has_moved(self) -> bool:
        """Whether it has answered in an iteration."""
        return self._sequence > 0

    def go_on_from(self, before: HyfdcaState) -> None:
        """Keep apart from what this party sent when it began the same before."""
        if before.aside is not None:
            before.aside.note(before.alpha)
            self.aside = before.aside

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

    def _take_constants(self, constants: Constants) -> None:
        """Take what setting up found out."""
        if self.settings.local == "theory":
            self.data_norms.check_unit()
            if constants.share is None:
                raise malformed("constants.share", "is missing")
            self.method = Theory(self.loss, self.settings.lam, constants.share)
        elif self.settings.local == "safe":
            if constants.omega is None:
                raise malformed("constants.omega", "is missing")
            self.method = self._safe(self.data_norms.norms)
            self.method.set_omega(constants.omega)

    def _take_weights(self, v: bytes | None) -> None:
        shared = self.view.n_shared_columns
        lam = self.settings.lam
        if shared:
            np.divide(self.v_sum.open(v, self.w.shape[1]), lam, self.w[:shared])
        if shared < self.view.n_columns:
            np.divide(self.v[shared:], lam * self.view.n_samples, self.w[shared:])

    def _drawn(self, z: Floats | None) -> tuple[Slots | None, Floats]:
        """The rows drawn here, shared ones first, with their z; None: all rows."""
        turn = self._turn
        if z is None:
            shared: Floats = np.empty((0, self.alpha.shape[1]))
        else:
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
        if self.aside is not None:
            near = self.aside.hold_apart(alpha, self.alpha)
            held += int(self.view.counts[self._guard.atoms[near]].sum())
        return (alpha if slots is None else alpha[slots]), held

    def insist_on_enough(self, slots: Slots, new: Floats) -> None:
        """Refuse α from others that differs in too few samples of a cohort from what was sent.

        Whoever computed it kept to that; whoever carries it may have left something out.
        """
        self._insist_on_draws(slots)
        if self._guard is None or self.aside is None:
            return
        alpha = self.alpha.copy()
        alpha[slots] = new
        self.aside.insist_apart(alpha, self.alpha)
        if self._guard.hold_back(alpha, self.alpha).any():
            raise malformed("alpha", "is not all that others posted")

    def _insist_on_draws(self, slots: Slots) -> None:
        """Refuse α from others at some of the samples that were drawn.

        Single ones would show in the sum of all conjugates, which the coordinator reads.
        """
        if self.settings.local == "safe":
            # All holders of a cohort draw the same of it, and tell all that they drew.
            cohorts = self.drawing.counts
            named = np.bincount(self.view.row_cohort[slots], minlength=len(cohorts))
            few = bool(((named > 0) & (named < cohorts)).any())
        else:
            here = self.settings.participation == "everyone"
            few = here and 0 < len(slots) < self.view.min_batch
        if few:
            raise malformed("alpha_slots", "do not name all samples that were drawn")

    def note_frozen(self, alpha: Floats) -> None:
        """Sums of this α are sent beside those of the steps."""
        if self.aside is not None:
            self.aside.note(alpha)
            self.aside.pass_by(self.alpha)

    def _move(self, slots: Slots | None, old: Floats, new: Floats, newest: PadIds) -> None:
        """Set α and keep the feature sums in step, touching only these rows.

        ``newest`` is when others had told α of them before.
        """
        if not self._bounded:
            self.alpha_wire.check(new)
        if slots is None:
            self._undo = (None, self.alpha, newest)
            self.alpha = new
        else:
            self._undo = (slots, old, newest)
            self.alpha[slots] = new
        self.table.accumulate(slots, new - old, self.v)
        if self.aside is not None:
            self.aside.pass_by(self.alpha)

    def _compute(self, slots: Slots | None, old: Floats, new: Floats) -> None:
        """Set α to values of this party's own."""
        self._move(slots, old, new, self.alpha_wire.compute(slots))

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

    def norm_change(self, *, counted: bool) -> float:
        """How ‖w‖² changed since it was counted last; what was told may have been given up."""
        if counted:
            self._norm_counted = self._norm_told
        self._norm_told = self._norms(self.w)
        return float((self._norm_told - self._norm_counted).sum())

    def estimate_sums(self, slots: Slots | None, z: Floats, labels: Floats) -> list[float]:
        """Loss of the drawn rows counted here, and their number, over N."""
        counted = self.view.counted_rows if slots is None else self.view.counted_rows[slots]
        loss = self.loss.value(z, labels)[counted].sum() / self.view.n_samples
        return [float(loss), float(counted.sum()) / self.view.n_samples]

    def resum(self) -> None:
        """Sum features anew, against drift."""
        self.v[:] = 0.0
        self.table.accumulate(None, self.alpha, self.v)

    def holders(self, slots: Slots) -> Floats:
        """Over how many holders changes that are proposed at some samples are averaged."""
        over: Floats = self._computing.take(slots, axis=0)
        return over

    def end_request(self) -> None:
        """The coordinator has all that was sent; nothing of it can be taken back any more."""
        self.z_sum.accept()
        self.v_sum.accept()
        self._undo = None
        self.data_norms.closed = True

    def go_on_without_messages(self, ack: int) -> None:
        """Nobody takes steps back from here on; the last one, if the coordinator never got it."""
        self.settle(ack)
        self.end_request()
        self._told_from = 0

    def move_alpha(self, slots: Slots | None, old: Floats, new: Floats) -> None:
        """Set α for good and keep the feature sums in step, where no messages tell of it."""
        if not self._bounded:
            self.alpha_wire.check(new)
        change = new - old
        if slots is None:
            self.alpha[:] = new
        else:
            self.alpha[slots] = new
        self.table.accumulate(slots, change, self.v)

    def settle(self, ack: int) -> None:
        """Take back the last reply if ``ack`` says that the coordinator never got it."""
        if ack < self._sequence:
            self._take_back()

    def _take_back(self) -> None:
        self._sequence -= 1
        self._told_from = self._sequence + 1
        self._turn_open, self._proposed = False, None
        self.z_sum.undo()
        self.v_sum.undo()
        if self._undo is not None:
            slots, old, newest = self._undo
            self.alpha_wire.set_at(slots, newest)
            if self.aside is not None:
                # The coordinator may have its sums all the same.
                self.aside.note(self.alpha)
            now = self.alpha if slots is None else self.alpha[slots]
            self.table.accumulate(slots, old - now, self.v)
            if slots is None:
                self.alpha = old
            else:
                self.alpha[slots] = old
            self._undo = None
            if self.aside is not None:
                self.aside.pass_by(self.alpha)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next iteration depends on; taken between iterations."""
        return {
            "alpha": self.alpha,
            "v": self.v,
            "w": self.w,
            **{f"z_sum.{name}": value for name, value in self.z_sum.state().items()},
            **{f"v_sum.{name}": value for name, value in self.v_sum.state().items()},
            "alpha_newest": self.alpha_wire.newest,
            "sequence": np.array(self._sequence),
            "norms_told": np.stack([self._norm_counted, self._norm_told]),
            "norms": self.data_norms.norms,
            **{f"frozen.{name}": value for name, value in self.frozen.state().items()},
            **{f"aside.{name}": value for name, value in self._sent_aside().items()},
        }

    def _sent_aside(self) -> dict[str, NDArray[Any]]:
        return {} if self.aside is None else self.aside.state()

    def restore(self, state: Mapping[str, NDArray[Any]], constants: Constants) -> None:
        """The inverse of :meth:`state`, with the constants of setting up."""
        self.alpha, self.v, self.w = state["alpha"], state["v"], state["w"]
        self.z_sum.restore(part_of(state, "z_sum"))
        self.v_sum.restore(part_of(state, "v_sum"))
        self.alpha_wire.newest = state["alpha_newest"].copy()
        self._sequence = int(state["sequence"])
        self._norm_counted, self._norm_told = state["norms_told"]
        self.data_norms.norms = state["norms"]
        self.data_norms.closed = True
        self.frozen.restore(part_of(state, "frozen"))
        if self.aside is not None:
            self.aside.restore(part_of(state, "aside"))
        self._undo = None
        self._take_constants(constants)
