"""The fast solvers, a party's half: it holds vectors, the coordinator thinks in coefficients.

A dual vector a (a number per sample) has three images: b = Xᵀa/N at the holders of the columns,
Z = Xb at the holders of the rows, and o = −1/N Σ l*(−a_i), a scalar. Each gives a bound that holds
everywhere, R(w) ≥ o − b·w, and w, gradients and directions are all combinations of b's. So the
solvers need three phases, and none of them ever sees a vector:

``spread``  totals of new b ↓, inner products of the b's and partial Z ↑
``search``  totals of Z, coefficients of a target ↓, losses along the way there ↑, and the partial
            b of dual vectors at guessed steps
``gather``  a step, or a direction ↓, the partial b of the dual vector there ↑

``follow`` brings dual vectors to holders of samples without labels. ``point`` and ``close`` form w
and measure it afresh. A phase that is asked twice, because the reply was lost, is answered twice
but changes things once.

``hand`` begins HyFDCA beside all this, when another party is away; ``inherit`` takes α that it has
reached as one more dual vector, when all are back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol import Message
from weft.protocol.message import array, floats, integer, number, text
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.party_context import PartyContext
from weft.solvers.settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.loss_table_limits import MOST_STEPS, most_steps
from weft.solvers.subspace.party_fallback import Successor
from weft.solvers.subspace.party_rows import Rows
from weft.solvers.subspace.party_vectors import Vectors, inner, padded
from weft.solvers.subspace.vector_guard import Guard
from weft.sums.contribution import Wire, own_slots
from weft.sums.scalar_sums import pack_scalars

Floats = NDArray[np.float64]
Handler = Callable[[Message], Message]


class SubspaceParty:
    """A party of every solver that works with the span of dual vectors."""

    def __init__(self, party_context: PartyContext, settings: Settings) -> None:
        self.party_context = party_context
        self.settings = settings
        self.cipher = party_context.cipher
        view, bounds = party_context.view, party_context.bounds
        self.problems = Problems(party_context.labels.shape[1], settings.folds)
        width = self.problems.width
        self.columns = Vectors(self._anchor(width))
        self.rows = Rows(party_context, settings, self.problems)
        columns, rows = view.n_shared_columns, view.n_shared_rows
        self._v = Wire("v", columns, bounds.v, self.cipher, 1.0 / view.n_samples)
        self._products = Wire("z", rows, bounds.products, self.cipher)
        self._z = Wire("z", rows, bounds.point, self.cipher)
        self._alpha = Wire("alpha", rows, bounds.alpha, self.cipher)
        self._guard = Guard.of(party_context, settings, self.rows, self._alpha)
        self._piecewise = not np.isfinite(settings.make_loss().smoothness)
        self._serial = 0
        #: The last phase and the context of its masks, and whether it ended halfway.
        self._asked: tuple[str, object] = ("", None)
        self._broken = False
        #: This party's own part of the feature sums under way.
        self._partial: Floats = np.zeros((view.n_columns, 0))
        #: Partial Z of new vectors, or partial z of a point, of rows that nobody else holds.
        self._private: Floats = np.zeros((0, 0))
        self._fresh: list[Floats] = []
        self._point: Floats = np.zeros((0, 0))
        self._norms = self._bound = np.zeros(width)
        #: Steps at which dual vectors were guessed, and whether a vector there was cut off.
        self._guesses: Floats = np.zeros((0, width))
        self._cut_off: NDArray[np.bool_] = np.zeros((0, width), bool)
        #: Dual vectors of the last search or gather, of rows with a label here.
        self._duals: Floats = np.zeros((view.n_rows, 0))
        #: w of every model that the run has finished.
        self.models: dict[int, Floats] = {}
        self._answers: dict[str, Handler] = {}
        #: HyFDCA in the place of this solver, while a party is away: the newest, and those whose
        #: α is yet to be taken over.
        self._successor: Successor | None = None
        self._heirs: dict[int, Successor] = {}

    def _anchor(self, width: int) -> Floats:
        view, start = self.party_context.view, self.party_context.start
        anchor = np.zeros((view.n_columns, width))
        if start is not None:
            anchor[:] = np.tile(start, (1, width // start.shape[1]))
        return anchor

    def weights(self, model: int | None) -> Floats:
        """w of a finished model on all samples; None: as HyFDCA left it."""
        if model is None and self._successor is not None:
            return self._successor.half.w
        return self.models[model or 0][:, : self.problems.classes]

    def phases(self) -> dict[str, Handler]:
        """What this half answers, by full name of the phase."""
        self._answers |= {
            f"span.{phase}": self._once(phase, take, tell)
            for phase, take, tell in (
                ("spread", self._take_vectors, self._spread),
                ("point", self._take_point, self._tell_point),
                ("search", self._take_search, self._tell_search),
                ("gather", self._take_gather, self._tell_gather),
                ("follow", self._take_duals, self._tell_sums),
                ("inherit", self._take_inherited, self._tell_scalars),
                ("close", self._take_close, self._tell_close),
            )
        }
        self._answers |= {
            "span.keep": self._keep,
            "span.hand": self._hand,
            "span.here": lambda message: {},
        }
        return self._answers

    def _once(self, phase: str, take: Callable[[Message], None], tell: Handler) -> Handler:
        """A phase whose first half changes this party's state: it must not be done twice.

        A question that is asked again must be the same: under the same masks, which hide one
        answer only.
        """

        def answer(message: Message) -> Message:
            serial, asked = integer(message, "serial"), (phase, message.get("context"))
            if self._broken:
                raise ProtocolError(
                    f"this party broke down in the middle of phase {self._serial + 1} and cannot "
                    "go on; start the run again"
                )
            if serial == self._serial + 1:
                self._broken = True
                take(message)
                self._serial, self._asked, self._broken = serial, asked, False
            elif (serial, asked) != (self._serial, self._asked):
                raise ProtocolError(
                    f"phase {serial} of this run comes after phase {self._serial}: this party "
                    "missed something, or has lost its memory; start the run again"
                )
            return tell(message)

        return answer

    # ── columns ───────────────────────────────────────────────────────────────────────────

    def _forget(self, message: Message) -> None:
        """Drop vectors that are not needed any more."""
        if "keep" in message:
            fold = floats(message, "fold", len(self.columns), self.problems.width)
            keep = self._kept(message)
            self.columns.fold(fold, keep)
            self.rows.fold(fold, keep)

    def _kept(self, message: Message) -> NDArray[Any]:
        """Which of the vectors held a message speaks of."""
        keep = array(message, "keep")
        rises = keep.ndim == 1 and keep.dtype.kind == "i" and bool((np.diff(keep) > 0).all())
        if not rises or (len(keep) and not 0 < keep[0] <= keep[-1] < len(self.columns)):
            raise ProtocolError("a message is malformed: 'keep' names vectors that are not held")
        return keep

    def _take_vectors(self, message: Message) -> None:
        """Complete new vectors with the others' parts."""
        view, width = self.party_context.view, self.problems.width
        self._forget(message)
        wire: Wire = self._v
        if "inherit" in message:
            half = self._settled_heir(message)
            self._duals, self._partial, wire = half.alpha.copy(), half.v, half.v_sum
            self._part_with_heirs(integer(message, "inherit"))
        if not self._partial.shape[1]:
            raise ProtocolError("a message comes too early: no vector is under way")
        new = self._partial / view.n_samples
        shared = view.n_shared_columns
        if shared:
            new[:shared] = wire.open(message.get("v"), new.shape[1])
        self._fresh = [
            np.ascontiguousarray(part) for part in np.split(new, new.shape[1] // width, axis=1)
        ]
        self.columns.append(self._fresh)
        self.rows.remember(self._duals)
        if "products" in message:
            self._point = self.party_context.table.products(None, new)

    def _spread(self, message: Message) -> Message:
        owned = self.party_context.view.owned
        if text(message, "gram") == "columns":
            products = self.columns.products(self._fresh, owned)
        else:
            mine = [vector[owned] for vector in self._fresh]
            products = np.array([[inner(a, b) for b in mine] for a in mine])
        reply: Message = {
            "gram": pack_scalars(self.cipher, message, "gram", *products.ravel().tolist())
        }
        if "first" in message:
            square = self.party_context.table.squares.sum() / self.party_context.view.n_samples
            reply["squares"] = pack_scalars(self.cipher, message, "squares", float(square))
        shared = self.party_context.view.n_shared_rows
        if "products" in message:
            self._private = self._point[shared:]
            if shared:
                reply["z"] = self._products.send(self._point[:shared], message)
        return reply

    def _take_point(self, message: Message) -> None:
        """Form w from its coefficients, and λw(α) of a mixture, to bound P* by."""
        self._forget(message)
        w = self._combined(message, "point")
        self._point = self.party_context.table.products(None, w)
        self._private = self._point[self.party_context.view.n_shared_rows :]
        owned = self.party_context.view.owned
        mine = w[owned]
        self._norms = inner(mine, mine)
        self._told = mine[:, : self.problems.classes]
        if "model" in message:
            mixed = self._combined(message, "weights")[owned]
            self._bound = inner(mixed, mixed)
            self.models[self._model(message)] = w

    def _combined(self, message: Message, field: str) -> Floats:
        """A combination of all vectors held."""
        return self.columns.combine(floats(message, field, len(self.columns), self.problems.width))

    def _model(self, message: Message) -> int:
        number_ = integer(message, "model")
        if not 0 <= number_ < len(self.settings.lambdas):
            raise ProtocolError(f"a message is malformed: there is no model {number_}")
        return number_

    def _tell_point(self, message: Message) -> Message:
        norms = self._norms.tolist()
        reply: Message = {"norms": pack_scalars(self.cipher, message, "norms", *norms)}
        shared = self.party_context.view.n_shared_rows
        if shared:
            reply["z"] = self._z.send(self._point[:shared], message)
        if "model" in message:
            bound = self._bound.tolist()
            reply["bound"] = pack_scalars(self.cipher, message, "bound", *bound)
            if self.settings.coordinator_sees == "weights":
                reply["w"] = self._told
        return reply

    # ── rows ──────────────────────────────────────────────────────────────────────────────

    def _opened(self, message: Message, wire: Wire, width: int) -> Floats:
        """Totals of the rows with a label here; zero elsewhere."""
        view = self.party_context.view
        shared = view.n_shared_rows
        z = np.zeros((view.n_rows, width))
        z[shared:] = self._private
        mine = self.rows.labelled_shared
        if mine is None:
            if shared:
                z[:shared] = wire.open(message.get("z"), width)
        elif len(mine):
            z[mine] = wire.open(message.get("z"), width, mine)
        return z

    def _take_z(self, message: Message) -> Floats | None:
        """Z of the vectors that came last, or z of a point, which is returned."""
        width = self.problems.width
        if "of" not in message:
            return None
        if text(message, "of") == "vectors":
            self.rows.append(self._opened(message, self._products, len(self._fresh) * width))
            return None
        return self._opened(message, self._z, width)

    def _move(self, message: Message) -> None:
        """Take the step that was chosen, unless sums there went beyond what can be added."""
        moved = floats(message, "moved", 2, self.problems.width)
        if self._cut_off.any():
            taken = (self._guesses == moved[1]) & (self._guesses == 1.0 - moved[0])
            if (taken & self._cut_off).any():
                self._alpha.refuse()
        self.rows.move(moved)

    def _take_search(self, message: Message) -> None:
        self._move(message)
        z = self._take_z(message)
        width = self.problems.width
        if z is None:
            z = self.rows.vectors.combine(floats(message, "point", len(self.rows.vectors), width))
        self.rows.aim(z)
        guesses = self._steps(message, "at", width)
        duals, shares = self._guess(guesses), _shares(guesses)
        exact = self._piecewise and "weights" not in message
        if "weights" in message:
            # Another guess: where a step of coordinate ascent and its momentum lead.
            self.rows.mix(floats(message, "weights", None, width))
            curvature = floats(message, "curvature", width)
            duals = np.hstack([duals, self.rows.ascended(curvature)])
            shares = np.concatenate([shares, _shares(np.ones((1, width)))])
        self._collect(duals, shares, exact=exact)

    def _tell_search(self, message: Message) -> Message:
        steps = self._steps(message, "steps", 2, self.problems.width)
        view = self.party_context.view
        if len(steps) > most_steps(int(view.counted_rows.sum()), view.min_batch):
            raise ProtocolError(
                f"a message asks for losses at {len(steps)} points, which is too fine for the "
                f"samples counted here and min_batch = {view.min_batch}"
            )
        losses = self.rows.losses_along(steps)
        reply: Message = {
            "losses": pack_scalars(self.cipher, message, "losses", *losses.ravel().tolist())
        }
        if self._duals.shape[1]:
            reply.update(self._tell_gather(message))
        return reply

    def _guess(self, guesses: Floats) -> Floats:
        """Dual vectors at guessed steps; a bad guess may lie beyond what can be added."""
        duals = self.rows.duals_at(guesses)
        limit = self.party_context.bounds.alpha / 2
        self._guesses = guesses
        beyond = (np.abs(duals) > limit).any(axis=0)
        self._cut_off = np.asarray(beyond).reshape(guesses.shape)
        # What is cut off is still a dual vector, if not the gradient of that point.
        return np.clip(duals, -limit, limit) if beyond.any() else duals

    def _go_there(self, message: Message) -> None:
        """Take the step that was chosen, with z as it was measured last."""
        self._move(message)
        z = self._take_z(message)
        if z is not None:
            # The point is the anchor, whose z was just measured.
            self.rows.adopt(z)

    def _take_gather(self, message: Message) -> None:
        self._go_there(message)
        width = self.problems.width
        if "direction" in message:
            direction = floats(message, "direction", len(self.rows.vectors), width)
            self._collect(self.rows.bent(direction))
        else:
            steps = self._steps(message, "at", width)
            self._collect(self.rows.duals_at(steps), _shares(steps))

    def _steps(self, message: Message, field: str, *shape: int) -> Floats:
        """Steps, not more of them than a table of losses may have."""
        steps = floats(message, field, None, *shape)
        if len(steps) > MOST_STEPS:
            raise ProtocolError(f"a message is malformed: '{field}' asks for {len(steps)} steps")
        return steps

    def _tell_scalars(self, message: Message) -> Message:
        """What the coordinator must know of new dual vectors."""
        reply: Message = {}
        if "direction" not in message:
            offsets = self.rows.offsets(self._duals).ravel().tolist()
            reply["offsets"] = pack_scalars(self.cipher, message, "offsets", *offsets)
        if text(message, "gram") == "rows":
            cross = self.rows.cross(self._duals)
            reply["cross"] = pack_scalars(self.cipher, message, "cross", *cross.ravel().tolist())
        return reply

    def _tell_gather(self, message: Message) -> Message:
        reply = self._tell_scalars(message)
        if "first" in message:
            sizes = self.rows.training_sizes()
            reply["sizes"] = pack_scalars(self.cipher, message, "sizes", *sizes.tolist())
        if "send" in message:
            reply.update(self._posts(message))
        if self._guard is not None:
            reply["held"] = self._guard.restrained
        return {**reply, **self._tell_sums(message)}

    def _collect(self, duals: Floats, shares: Floats | None = None, *, exact: bool = False) -> None:
        """Start the feature sums of new dual vectors.

        ``shares`` of point and target (vectors × 2 × problems) say where they were taken.
        """
        # Other holders of a row may only learn the vector as it travels. Slopes of a piecewise
        # linear loss are whole numbers, which travel as they are.
        self._duals = duals if exact else self._alpha.on_grid(duals)
        if duals.shape[1]:
            if self._guard is not None:
                self._guard.keep(self._duals, shares)
            self._partial = self.rows.feature_sums(self._duals)
            self._told_sums = self._partial

    def _posts(self, message: Message) -> Message:
        """Dual vectors of the cohorts that this party speaks for, to holders without labels."""
        view = self.party_context.view
        flags = array(message, "send")
        if flags.shape != view.sizes.shape or flags.dtype != bool:
            raise ProtocolError("a message is malformed: 'send' has no flag per cohort")
        slots = np.flatnonzero(flags[view.row_cohort[: view.n_shared_rows]]).astype(np.int32)
        if not len(slots) and "alpha.chain" not in message:
            return {}
        new = self._duals[slots]
        posted = self._alpha.post(new, np.zeros_like(new), slots, message)
        return {"alpha": posted, "alpha.slots": slots}

    def _take_duals(self, message: Message) -> None:
        """Dual vectors of samples whose labels others have."""
        view = self.party_context.view
        width = integer(message, "width")
        if width % self.problems.width or not 0 < width <= MOST_STEPS * self.problems.width:
            raise ProtocolError(f"a message is malformed: dual vectors of width {width}")
        slots = own_slots(message, "alpha.slots", view.n_shared_rows)
        # Who has no label at all was not asked for dual vectors of its own: there are old ones.
        if self._duals.shape[1] != width or not self.rows.labelled.any():
            self._duals = np.zeros((view.n_rows, width))
            self._partial = np.zeros((view.n_columns, self.rows.sums_width(width)))
        told = np.zeros((view.n_rows, width))
        told[slots] = self._alpha.open(message.get("alpha"), width, slots)
        told[self.rows.labelled] = 0.0
        self._told_sums = self.rows.feature_sums(told)
        self._duals = self._duals + told
        self._partial = self._partial + self._told_sums

    def _tell_sums(self, message: Message) -> Message:
        shared = self.party_context.view.n_shared_columns
        return {"v": self._v.send(self._told_sums[:shared], message)} if shared else {}

    # ── the end of a model ────────────────────────────────────────────────────────────────

    def _take_close(self, message: Message) -> None:
        z = self._take_z(message)
        if z is None:
            raise ProtocolError("a message is malformed: nothing was measured that can be closed")
        self._closing = z

    def _tell_close(self, message: Message) -> Message:
        losses = self.rows.losses_at(self._closing)
        reply: Message = {"losses": pack_scalars(self.cipher, message, "losses", *losses.tolist())}
        if self.problems.folds:
            scores = self.rows.validation(self._closing)
            reply["scores"] = pack_scalars(self.cipher, message, "scores", *scores.ravel().tolist())
        return reply

    # ── when a party is away ──────────────────────────────────────────────────────────────

    def _keep(self, message: Message) -> Message:
        """Form w as it stands: the run stops here."""
        self._forget(message)
        point = padded(floats(message, "point", None, self.problems.width), len(self.columns))
        self.models[self._model(message)] = self.columns.combine(point)
        return {}

    def _hand(self, message: Message) -> Message:
        """Let HyFDCA go on from a mixture of dual vectors; all that is here stays as it is."""
        if self._broken:
            raise ProtocolError(
                "this party broke down in the middle of a phase and cannot go on; start the run "
                "again"
            )
        successor = Successor(
            self.party_context, self.settings, number(message, "lam"), integer(message, "number")
        )
        if self._guard is not None:
            successor.half.earlier = self._guard.batches
        point, weights = self._renumbered(message)
        reply = successor.begin(
            self.rows.mixed_alpha(weights),
            self.columns.combine(padded(point, len(self.columns))),
            self.rows.combined(point),
            message,
        )
        self._successor = successor
        if not self.problems.folds:
            self._heirs[successor.number] = successor
        self._answers |= successor.half.phases()
        return reply

    def _renumbered(self, message: Message) -> tuple[Floats, Floats]:
        """Coefficients and weights of the mixture, in the numbers that vectors have here.

        Some parties have dropped vectors in the phase that was not completed, some have not.
        """
        width = self.problems.width
        point, weights = (floats(message, field, None, width) for field in ("point", "weights"))
        if "keep" not in message or self._serial >= integer(message, "serial"):
            return point, weights
        keep = self._kept(message)
        if len(point) > len(keep) + 1 or len(weights) > len(keep):
            raise ProtocolError("a message is malformed: a mixture has vectors that are dropped")
        ours = np.zeros((len(self.columns), width))
        ours[keep[: len(point) - 1]] = point[1:]
        mixed = np.zeros((len(self.columns) - 1, width))
        mixed[keep[: len(weights)] - 1] = weights
        return ours, mixed

    def _settled_heir(self, message: Message) -> HyfdcaParty:
        """HyFDCA's half at the α that everybody has agreed on."""
        successor = self._heirs.get(integer(message, "inherit"))
        if successor is None:
            raise ProtocolError("a message comes too early: there is no α that could be taken over")
        successor.half.settle(integer(message, "ack"))
        return successor.half

    def _take_inherited(self, message: Message) -> None:
        """α of HyFDCA becomes a dual vector: others have seen its sums already."""
        self._go_there(message)
        self._duals = self._settled_heir(message).alpha.copy()
        if self._guard is not None:
            self._guard.note(self._duals)

    def _part_with_heirs(self, number_: int) -> None:
        """Nobody will speak of these any more."""
        self._heirs = {k: heir for k, heir in self._heirs.items() if k > number_}
        if not self._heirs and self._successor is not None:
            for phase in self._successor.half.phases():
                self._answers.pop(phase, None)
            self._successor = None

    def settle(self, ack: int) -> None:
        """Nothing is ever taken back: phases are asked again until they are answered."""

    def state(self) -> dict[str, NDArray[Any]]:
        raise ProtocolError(f"solver '{self.settings.solver}' keeps no checkpoints")

    def restore(self, state: Mapping[str, NDArray[Any]], message: Message) -> None:
        raise ProtocolError(f"solver '{self.settings.solver}' keeps no checkpoints")


def _shares(steps: Floats) -> Floats:
    """Shares of point and target at steps on the way from one to the other."""
    return np.stack([1.0 - steps, steps], axis=1)
