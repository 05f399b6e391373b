"""What a party of a fast solver does with its features: vectors, points and models."""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.fast_small_array_operations import side_by_side
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import PadLinks
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.messages import (
    KeepRequest,
    PointReply,
    PointRequest,
    SpreadReply,
    SpreadRequest,
)
from weft.solvers.subspace.vectors_kept_by_party import Vectors, Wires, inner, padded, sized
from weft.sums.party_contribution import Wire
from weft.sums.scalar_sums import pack_scalars


class FeatureSide:
    """Completes new vectors, forms points from coefficients, and keeps models.

    Attributes
    ----------
    vectors
        All vectors held, over this party's columns.
    fresh
        Those that came last.
    private
        Z of the vectors, or z of the point, that came last, of rows that nobody else holds.
    models
        w of every model that the run has finished.
    """

    def __init__(
        self, context: PartyContext, settings: Settings, problems: Problems, wires: Wires
    ) -> None:
        self._view, self._table, self._cipher = context.view, context.table, context.cipher
        self._problems = problems
        self._wires = wires
        self._model_count = len(settings.lambdas)
        self._shows_weights = settings.coordinator_sees == "weights"
        self.vectors = Vectors(_anchor(context, problems.width))
        self._free = settings.frees_intercept(context.bias is not None)
        #: Columns that this party answers for and λ holds back.
        self._paid = self._view.owned
        if self._free:
            self._paid = self._view.owned.copy()
            self._paid[self._view.bias_slot :][: self._view.bias_slot >= 0] = False
            self.vectors.append([self._constant()])
        self.fresh: list[Floats] = []
        self.private: Floats = np.zeros((0, 0))
        #: The weights whose products with the rows are told next.
        self._measured: Floats = np.zeros((context.view.n_columns, 0))
        #: Of what z was measured last and not brought back yet: vectors, a point, or nothing.
        self.measured_last = ""
        self.models: dict[int, Floats] = {}
        #: The one that was formed last.
        self.finished = 0
        #: The point that was formed last.
        self._weights: Floats = np.zeros((0, problems.width))
        self._bound = np.zeros(problems.width)

    # ── vectors ───────────────────────────────────────────────────────────────────────────

    def complete(self, partial: Floats, message: SpreadRequest, wire: Wire) -> None:
        """Complete new vectors, of which this party has its own part, with the others' parts."""
        if not partial.shape[1]:
            raise ProtocolError("a message comes too early: no vector is under way")
        new = partial / self._view.n_samples
        shared = self._view.n_shared_columns
        if shared:
            new[:shared] = wire.open(message.v, new.shape[1])
        parts = side_by_side(new, self._problems.width)
        self.fresh = [np.ascontiguousarray(part) for part in parts]
        self.vectors.append(self.fresh)
        self.measured_last = ""
        if message.products:
            self._measured = new
            self.measured_last = "vectors"

    def tell_vectors(self, message: SpreadRequest) -> SpreadReply:
        """Inner products of the new vectors, and this party's part of their Z."""
        if message.by_rows:
            mine = [vector[self._paid] for vector in self.fresh]
            gram = np.array([[inner(a, b) for b in mine] for a in mine])
        else:
            gram = self.vectors.products(self.fresh, self._paid)
        told = self._problems.summed(gram).ravel().tolist()
        reply = SpreadReply(gram=pack_scalars(self._cipher, "gram", *told))
        if message.first:
            square = self._table.squares.sum() / self._view.n_samples
            reply.squares = pack_scalars(self._cipher, "squares", float(square))
        if message.products:
            reply.z = self._tell_products(self._wires.products, message.z_pads)
        return reply

    @property
    def products(self) -> Floats:
        """This party's own part of Z of the vectors, or of z of the point, that came last.

        Made anew: it is wanted once, and to keep it would be to keep a number for every row.
        """
        return self._table.products(None, self._measured)

    def _tell_products(self, wire: Wire, pads: PadLinks | None) -> bytes | None:
        """Its part of what was measured last, at shared rows; it keeps that of the others."""
        products, shared = self.products, self._view.n_shared_rows
        self.private = products[shared:].copy()
        return wire.send(products[:shared], pads) if shared else None

    # ── a free intercept ──────────────────────────────────────────────────────────────────

    def _constant(self) -> Floats:
        """The vector that is 1 at the constant column, and 0 elsewhere."""
        alone = np.zeros((self._view.n_columns, self._problems.width))
        if self._view.bias_slot >= 0:
            alone[self._view.bias_slot] = 1.0
        return alone

    def _entry(self, w: Floats) -> bytes | None:
        """Its entry at a free intercept, from the one party that answers for it."""
        if not self._free:
            return None
        slot = self._view.bias_slot
        answers = slot >= 0 and bool(self._view.owned[slot])
        entry = w[slot] if answers else np.zeros(self._problems.width)
        return pack_scalars(self._cipher, "intercepts", *entry.tolist())

    # ── points ────────────────────────────────────────────────────────────────────────────

    def take_point(self, message: PointRequest) -> None:
        """Form w from its coefficients, and λw(α) of a mixture, to bound P* by."""
        w = self._combined(message.point, "point")
        self._measured = self._weights = w
        self.measured_last = "point"
        if message.model is not None:
            mixed = self._combined(message.model.mixture, "model.mixture")
            self._bound = inner(mixed[self._paid], mixed[self._paid])
            self.finished = self._checked_model(message.model.number, "model.number")
            self.models[self.finished] = w

    def tell_point(self, message: PointRequest) -> PointReply:
        """‖w‖² of the point, and this party's part of its z."""
        w = self._weights
        norms = self._problems.summed(inner(w[self._paid], w[self._paid])).tolist()
        reply = PointReply(norms=pack_scalars(self._cipher, "norms", *norms))
        reply.intercepts = self._entry(w)
        reply.z = self._tell_products(self._wires.point, message.z_pads)
        if message.model is not None:
            bound = self._problems.summed(self._bound).tolist()
            reply.bound = pack_scalars(self._cipher, "bound", *bound)
            if self._shows_weights:
                reply.w = w[self._view.owned][:, : self._problems.classes]
        return reply

    def keep(self, message: KeepRequest) -> None:
        """Keep w as it stands; vectors that came since have no part in it."""
        sized(message.point, "point", None, self._problems.width)
        point = padded(message.point, len(self.vectors))
        self.models[self._checked_model(message.model, "model")] = self.vectors.combine(point)

    def _combined(self, coefficients: Floats, name: str) -> Floats:
        """A combination of all vectors held."""
        sized(coefficients, name, len(self.vectors), self._problems.width)
        return self.vectors.combine(coefficients)

    def _checked_model(self, number: int, name: str) -> int:
        if not 0 <= number < self._model_count:
            raise malformed(name, f"is {number}, but there is no such model")
        return number

    # ── samples that nobody else holds ────────────────────────────────────────────────────

    def measured(self, width: int) -> Floats:
        """Z or z of what came last, of this party's private rows: complete as it is."""
        if self.private.shape != (self._view.n_rows - self._view.n_shared_rows, width):
            raise ProtocolError("a message comes too early: nothing was measured yet")
        return self.private


def _anchor(context: PartyContext, width: int) -> Floats:
    """Zero, or the model that the run starts from."""
    anchor = np.zeros((context.view.n_columns, width))
    if context.start is not None:
        anchor[:] = np.tile(context.start, (1, width // context.start.shape[1]))
    return anchor
