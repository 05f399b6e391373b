"""What a party of a fast solver does with its samples: searches, dual vectors, losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import PadLinks
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.dual_vector_sum_noise import VectorNoise
from weft.solvers.subspace.dual_vectors_within_bounds import without_cohorts_beyond
from weft.solvers.subspace.loss_points_and_directions_limit import (
    MOST_STEPS,
    most_steps,
)
from weft.solvers.subspace.messages import (
    CloseReply,
    CloseRequest,
    DualsReply,
    DualsRequest,
    EvaluateReply,
    EvaluateRequest,
    FollowReply,
    FollowRequest,
    GatherReply,
    GatherRequest,
    InheritReply,
    InheritRequest,
    MoveRequest,
    SearchReply,
    SearchRequest,
)
from weft.solvers.subspace.min_batch_between_dual_vectors import Guard, ToldVectors
from weft.solvers.subspace.party_dual_ascent import ascend
from weft.solvers.subspace.party_feature_vectors_and_models import FeatureSide
from weft.solvers.subspace.party_held_out_score_counts import HeldOutScores
from weft.solvers.subspace.party_sample_values import Rows
from weft.solvers.subspace.party_span_newton_answers import CurvatureAnswers, steps_of
from weft.solvers.subspace.told_losses_and_vectors_limit import MeasurementLimit
from weft.solvers.subspace.vectors_kept_by_party import Wires, sized
from weft.sums.party_contribution import Wire, own_slots, speaks
from weft.sums.scalar_sums import over_labelled, pack_scalars


class SampleSide:
    """Measures losses where the party has labels, and makes dual vectors.

    Attributes
    ----------
    duals
        Dual vectors of the last search or gather, of rows with a label here, and of others as
        their label holders told them; without rows, once their vectors are complete.
    partial
        This party's own part of the feature sums of those.
    guard
        Sees to ``min_batch`` in dual vectors; None: no other party sees sums of these samples.
    """

    def __init__(
        self,
        context: PartyContext,
        settings: Settings,
        problems: Problems,
        rows: Rows,
        features: FeatureSide,
        wires: Wires,
    ) -> None:
        view = self._view = context.view
        self._cipher = context.cipher
        self._problems, self._scoring = problems, settings.scoring
        self._rows, self._features, self._wires = rows, features, wires
        self._largest_dual = context.bounds.alpha / 2
        self._loss = settings.make_loss()
        self._curvature = CurvatureAnswers(view, settings, problems, rows)
        self.guard = Guard.of(context, settings, rows, wires.duals)
        self._told_before = ToldVectors.of(context, settings, rows)
        self._noise = VectorNoise.of(context, settings, wires.vectors)
        self.duals: Floats = np.zeros((view.n_rows, 0))
        self.partial: Floats = np.zeros((view.n_columns, 0))
        #: Whether they are still to be completed, and before that, to be told.
        self.under_way = self._due = False
        #: What of the feature sums the next reply tells, and with which noise.
        self._told_sums = self.partial
        self._told_noise: NDArray[np.int64] | None = None
        #: Steps at which dual vectors were guessed, and whether some of a vector was left out.
        self._guesses: Floats = np.zeros((0, problems.width))
        self._left_out: NDArray[np.bool_] = np.zeros((0, problems.width), bool)
        #: Tables of losses that may be asked for until something is measured again.
        self._searches = 0
        self._limit = MeasurementLimit.of(settings)
        self._closing: Floats = np.zeros((0, 0))
        self._held_out = HeldOutScores.of(context, settings, problems)
        #: z of finished models, where somebody will ask for them.
        self._infers = settings.inference != "none"
        self.closed: dict[int, Floats] = {}

    # ── z, and the step that was chosen ───────────────────────────────────────────────────

    def _opened(self, z: bytes | None, wire: Wire, width: int) -> Floats:
        """Totals of the rows with a label here; zero elsewhere."""
        shared, mine = self._view.n_shared_rows, self._rows.labelled_shared
        if mine is None and 0 < shared == self._view.n_rows:
            return wire.open(z, width)
        found = np.zeros((self._view.n_rows, width))
        found[shared:] = self._features.measured(width)
        if mine is None:
            if shared:
                found[:shared] = wire.open(z, width)
        elif len(mine):
            found[mine] = wire.open(z, width, mine)
        return found

    def _take_z(self, message: MoveRequest) -> Floats | None:
        """Z of the vectors that came last, or z of a point, which is returned."""
        width = self._problems.width
        if message.of is None:
            return None
        if message.of not in ("vectors", "point"):
            raise malformed("of", "names neither vectors nor a point")
        # Totals of another measurement, or the same ones changed here and there, would show the
        # margins of single samples in the losses.
        if message.of != self._features.measured_last:
            raise ProtocolError("a message brings z that was not measured last, or brings it again")
        self._features.measured_last = ""
        self._searches = 1
        if message.of == "vectors":
            count = len(self._features.fresh)
            self._rows.append(self._opened(message.z, self._wires.products, count * width))
            return None
        return self._opened(message.z, self._wires.point, width)

    def _move(self, moved: Floats) -> None:
        """Take the step that was chosen, unless sums there went beyond what can be added."""
        sized(moved, "moved", None, self._problems.width)
        if not 2 <= len(moved) <= self._rows.points:
            raise malformed("moved", "is not of the points of the last search")
        if self._left_out.any():
            taken = (self._guesses == moved[1]) & (self._guesses == 1.0 - moved[0])
            if (taken & self._left_out).any():
                self._wires.duals.refuse()
        self._rows.move(moved)

    def _go_there(self, message: MoveRequest) -> None:
        """Take the step that was chosen, with z as it was measured last."""
        self._move(message.moved)
        z = self._take_z(message)
        if z is not None:
            # The point is the anchor, whose z was just measured.
            self._rows.adopt(z)

    # ── search and gather ─────────────────────────────────────────────────────────────────

    def take_search(self, message: SearchRequest) -> None:
        """Aim at the target, and make dual vectors at guessed steps on the way there."""
        self._curvature.round(message)
        self._move(message.moved)
        target = self._take_z(message)
        if self._searches < 1:
            # Many tables along one line would show where the loss of every sample has its kink.
            raise ProtocolError("a message asks for losses again, and nothing was measured since")
        self._searches -= 1
        self._limit.tell_table()
        width, vectors = self._problems.width, self._rows.vectors
        if target is not None and message.point is not None:
            raise malformed("point", "comes with z of a point")
        if target is None:
            if message.point is None:
                raise malformed("point", "is missing")
            sized(message.point, "point", len(vectors), width)
            target = vectors.combine(message.point)
        beside = self._curvature.points_beside(message.beside)
        self._rows.aim(target, beside)
        steps = steps_of(message.steps, "steps", self._rows.points, width)
        if (steps[:, 1:].any(axis=2).sum(axis=1) > 1).any():
            raise malformed("steps", "leads to several points at once")
        guesses = steps_of(message.at, "at", width)
        shares = _shares(guesses)
        if message.stretched is not None:
            # The same scores, times something: other slopes of the same samples.
            some = steps_of(message.stretched, "stretched", width)
            shares = np.concatenate([shares, np.stack([np.zeros_like(some), some], axis=1)])
        shares = _with_points_beside(shares, len(beside))
        duals = self._guess(guesses, shares)
        if message.ascent is not None:
            # Other guesses: where coordinate ascent leads.
            risen = ascend(message.ascent, self._rows, self._curvature, smooth=self._loss.smooth)
            duals = np.hstack([duals, *(self._within(one)[0] for one in risen)])
            there = np.zeros((len(risen), shares.shape[1], width))
            there[:, 1] = 1.0
            shares = np.concatenate([shares, there])
        # Slopes of a piecewise linear loss are whole numbers, which travel as they are.
        exact = not self._loss.smooth and message.ascent is None and message.rounding is None
        self._collect(duals, shares, exact=exact, later=message.later)

    def tell_search(self, message: SearchRequest) -> SearchReply:
        """Losses along the way, and what the new dual vectors give."""
        steps, view = message.steps, self._view
        if len(steps) > most_steps(int(view.counted_rows.sum()), view.min_batch):
            raise ProtocolError(
                f"a message asks for losses at {len(steps)} points, which is too fine for the "
                f"samples counted here and min_batch = {view.min_batch}"
            )
        losses = self._rows.losses_along(steps).ravel().tolist()
        reply = SearchReply(losses=self._packed("losses", losses))
        if self.duals.shape[1]:
            reply.offsets = self._offsets()
            self._tell_duals(message, reply)
        if message.moments:
            moments = self._curvature.moments(message)
            reply.moments = self._packed("moments", moments.ravel().tolist())
        return reply

    def take_gather(self, message: GatherRequest) -> None:
        """Make dual vectors at some steps, or what the Hessian makes of a direction."""
        if message.keeps:
            self._rows.mixtures.begin()
            self._limit.begin_planes()
        self._curvature.round(message)
        self._go_there(message)
        width = self._problems.width
        if message.direction is not None:
            sized(message.direction, "direction", len(self._rows.vectors), width)
            self._collect(self._rows.bent(message.direction), later=message.later)
        else:
            shares = _shares(steps_of(message.at, "at", width))
            self._collect(self._rows.duals_at(shares), shares, later=message.later)

    def tell_gather(self, message: GatherRequest) -> GatherReply:
        """What the new dual vectors give."""
        reply = GatherReply()
        if message.direction is None:
            reply.offsets = self._offsets()
        if message.first:
            sizes = self._rows.training_sizes().tolist()
            reply.sizes = self._packed("sizes", sizes)
        self._tell_duals(message, reply)
        return reply

    def take_alpha(self, message: InheritRequest, alpha: Floats) -> None:
        """α of HyFDCA becomes a dual vector: others have seen its sums already."""
        self._go_there(message)
        self.duals = alpha.copy()
        if self.guard is not None:
            self.guard.note(self.duals)

    def tell_alpha(self, message: InheritRequest) -> InheritReply:
        """What the coordinator must know of α as a dual vector."""
        return InheritReply(offsets=self._offsets(), cross=self._cross(message))

    # ── dual vectors ──────────────────────────────────────────────────────────────────────

    def _guess(self, guesses: Floats, shares: Floats) -> Floats:
        """Dual vectors at guessed steps; a bad guess may lie beyond what can be added.

        ``shares`` of points are those of the guesses, and of others behind them.
        """
        duals, beyond = self._within(self._rows.duals_at(shares))
        self._guesses = guesses
        self._left_out = beyond.reshape(len(shares), guesses.shape[1])[: len(guesses)]
        return duals

    def _within(self, duals: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Dual vectors as they can be added, and which of them lack a cohort for that."""
        found, lacking = without_cohorts_beyond(duals, self._largest_dual, self._view)
        if lacking.any():
            by_step = lacking.reshape(-1, self._problems.width)
            self._limit.leave_out(int(by_step.any(axis=1).sum()))
        return found, lacking

    def _collect(
        self, duals: Floats, shares: Floats | None = None, *, later: bool, exact: bool = False
    ) -> None:
        """Start the feature sums of new dual vectors.

        ``shares`` of points (vectors × points × problems) say where they were taken. What is told
        ``later`` cannot be completed before.
        """
        self._due = later
        # Other holders of a row may only learn the vector as it travels.
        self.duals = duals if exact else self._wires.duals.on_grid(duals)
        if shares is not None:
            self.duals = self._rows.inside(self.duals)
        if duals.shape[1]:
            self._limit.tell_vectors(duals.shape[1] // self._problems.width)
            if self.guard is not None:
                self.guard.keep(self.duals, shares)
            self.partial = self._told_sums = self._rows.feature_sums(self.duals)
            self.under_way = not later
            self._draw_noise()

    def _packed(self, field: str, values: list[float]) -> bytes:
        """Its part of sums over all parties that have labels."""
        return pack_scalars(self._cipher, field, *values, over=over_labelled(self._cipher))

    def _offsets(self) -> bytes:
        return self._packed("offsets", self._rows.offsets(self.duals).ravel().tolist())

    def _cross(self, message: MoveRequest) -> bytes | None:
        if not message.by_rows:
            return None
        cross = self._rows.cross(self.duals).ravel().tolist()
        return self._packed("cross", cross)

    def _tell_duals(self, message: DualsRequest, reply: DualsReply) -> None:
        """Inner products, feature sums, and dual vectors that holders without labels need."""
        reply.cross = self._cross(message)
        entries = self._rows.entries(self.duals)
        if entries is not None:
            reply.intercepts = self._packed("intercepts", entries.ravel().tolist())
        if message.send is not None:
            self._post(message, reply)
        if self.guard is not None:
            reply.held = self.guard.restrained
        if not message.later:
            reply.v = self._tell_sums(message.v_pads)

    def _post(self, message: DualsRequest, reply: DualsReply) -> None:
        """Dual vectors of the cohorts that this party speaks for, to holders without labels."""
        view, flags, pads = self._view, message.send, message.alpha_pads
        if flags is None or flags.shape != view.sizes.shape:
            raise malformed("send", "has no flag per cohort")
        slots = np.flatnonzero(flags[view.row_cohort[: view.n_shared_rows]]).astype(np.int32)
        if not speaks(view, flags):
            return
        new = self.duals[slots]
        reply.alpha = self._wires.duals.post(new, np.zeros_like(new), slots, pads, flags)
        reply.alpha_slots = slots

    def take_duals(self, message: FollowRequest) -> None:
        """Dual vectors of samples whose labels others have."""
        view, rows, width = self._view, self._rows, message.width
        if width % self._problems.width or not 0 < width <= MOST_STEPS * self._problems.width:
            raise malformed("width", f"is {width}, which no dual vectors have")
        if not rows.labelled.any():
            # It was not asked for dual vectors of its own: these are old.
            self.duals = np.zeros((view.n_rows, width))
            self.partial = np.zeros((view.n_columns, rows.sums_width(width)))
        elif not self._due or self.duals.shape[1] != width:
            raise ProtocolError("a message asks for vectors that are told, or not made yet")
        self._due = False
        lacking = ~view.labelled[view.row_cohort[: view.n_shared_rows]]
        if lacking.any():
            slots = own_slots(message.alpha_slots, "alpha_slots", view.n_shared_rows)
            told = np.zeros((view.n_rows, width))
            told[slots] = self._wires.duals.take(message.alpha, width, slots, lacking)
            told[rows.labelled] = 0.0
            if self._told_before is not None:
                self._told_before.take(told)
            self.duals = self.duals + told
            self.partial = self.partial + rows.feature_sums(told)
        elif message.alpha is not None:
            raise malformed("alpha", "brings dual vectors of samples whose labels are here")
        self._told_sums = self.partial
        if not rows.labelled.any():
            # The others have drawn theirs for the dual vectors of their own samples.
            self._draw_noise()
        self.under_way = True

    def tell_followed(self, message: FollowRequest) -> FollowReply:
        """This party's part of the vectors."""
        return FollowReply(v=self._tell_sums(message.v_pads))

    def _tell_sums(self, pads: PadLinks | None) -> bytes | None:
        shared = self._view.n_shared_columns
        if not shared:
            return None
        return self._wires.vectors.send(self._told_sums[:shared], pads, self._told_noise)

    def _draw_noise(self) -> None:
        """Noise for the feature sums of the vectors under way, once for each."""
        if self._noise is not None:
            shape = (self._view.n_shared_columns, self._told_sums.shape[1])
            self._told_noise = self._noise.draw(self.duals.shape[1], shape)

    def finish_duals(self) -> None:
        """Remember dual vectors whose sums are complete, if need be; nobody asks for them again."""
        self._rows.mixtures.remember(self.duals)
        self._forget_duals()

    def pass_over_duals(self) -> None:
        """Another question came: what was told of dual vectors is not asked for again."""
        if not self._due and not self._rows.mixtures.keeps:
            self._forget_duals()

    def _forget_duals(self) -> None:
        self.duals = self.duals[:0].copy()

    # ── the end of a model ────────────────────────────────────────────────────────────────

    def take_close(self, message: CloseRequest) -> None:
        """z of the finished model."""
        if self._features.measured_last != "point":
            raise ProtocolError("a message brings z that was not measured last, or brings it again")
        self._features.measured_last = ""
        self._closing = self._opened(message.z, self._wires.point, self._problems.width)
        if self._held_out is not None:
            self._held_out.keep(self._features.finished, self._rows.held_out(self._closing))
        if self._infers:
            classes = self._problems.classes
            self.closed[self._features.finished] = self._closing[:, :classes]

    def tell_close(self, message: CloseRequest) -> CloseReply:
        """Losses of the finished model, and its scores on samples that folds left out."""
        losses = self._rows.losses_at(self._closing).tolist()
        reply = CloseReply(losses=self._packed("losses", losses))
        if self._problems.folds:
            left_out = self._rows.held_out(self._closing)
            scores = left_out.per_fold(self._loss, self._problems.folds, self._scoring)
            reply.scores = self._packed("scores", scores.ravel().tolist())
        return reply

    def take_evaluate(self, message: EvaluateRequest) -> None:
        """Judge a finished model on the samples that folds left out."""
        if self._held_out is None:
            raise ProtocolError("a message asks for scores, but no samples of classes are left out")
        self._held_out.judge(message.model)

    def tell_evaluate(self, message: EvaluateRequest) -> EvaluateReply:
        """Counts of scores, in buckets that are never of a few samples."""
        assert self._held_out is not None
        return EvaluateReply(counts=self._packed("counts", self._held_out.told.tolist()))


def _with_points_beside(shares: Floats, count: int) -> Floats:
    """Shares of so many further points too, at each of which one more vector is made."""
    if not count:
        return shares
    steps, _, width = shares.shape
    found = np.zeros((steps + count, 2 + count, width))
    found[:steps, :2] = shares
    found[range(steps, steps + count), range(2, 2 + count)] = 1.0
    return found


def _shares(steps: Floats) -> Floats:
    """Shares of point and target at steps on the way from one to the other."""
    return np.stack([1.0 - steps, steps], axis=1)
