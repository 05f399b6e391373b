"""HyFDCA in the place of a fast solver, a party's half: while another party is away.

All sums must go on as if the party that is away still stood where it was. Every holder of a cohort
knows its totals; one of them puts them in, the others nothing, and all go on telling how their own
parts change. So what the missing party had put in stays in, and no other party learns it.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import malformed
from weft.protocol.message_bytes import question_digest
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.messages import FallbackAlpha, FallbackReply, FallbackRequest
from weft.solvers.subspace.vectors_kept_by_party import check_kept, sized

#: Between the seeds of two fallbacks.
_APART = 0x10001


class FallbackParty:
    """HyFDCA's half, begun at a mixture of dual vectors.

    Parameters
    ----------
    message
        What the coordinator asked to begin with.

    Attributes
    ----------
    number
        Which of the run's fallbacks this is, from 1 on.
    asked
        A hash of what all parties were asked alike, on which its α depends.
    """

    def __init__(self, context: PartyContext, settings: Settings, message: FallbackRequest) -> None:
        self._view = context.view
        lam, number = message.lam, message.number
        self._lam = lam
        self.number = number
        self.asked = question_digest(message)
        #: The reply of HyFDCA up to which its α is taken over; None: not asked for yet.
        self.taken_at: int | None = None
        # Setting up sums norms and products over those who are there. The next time they may be
        # others, and differences of the two would be single parties': so never again the norms of
        # single samples, nor products with the same random vector.
        alone = msgspec.structs.replace(
            settings,
            solver="hyfdca",
            lam=lam,
            path=(),
            folds=0,
            groups=1,
            local="safe",
            norms=settings.norms if number == 1 else "cohort",
            seed=settings.seed + _APART * (number - 1),
        )
        self.half = HyfdcaParty(replace(context, start=None), alone, among_some=True)

    def begin(self, alpha: Floats, w: Floats, z: Floats, message: FallbackRequest) -> FallbackReply:
        """Stand at α, w(α) and its z, of the problems on all samples."""
        view = self._view
        rows, columns = view.n_shared_rows, view.n_shared_columns
        classes = self.half.alpha.shape[1]
        w, z = w[:, :classes], z[:rows, :classes]
        v = self._lam * view.n_samples * w[:columns]
        mine = _spoken_for(message.columns, "columns", view.column_cohort[:columns])
        v = np.where(mine[:, None], v, 0.0)
        mine = _spoken_for(message.rows, "rows", view.row_cohort[:rows])
        z = np.where(mine[:, None], z, 0.0)
        told_v, told_z = self.half.take_over(
            alpha[:, :classes], w, z, v, message.v_pads, message.z_pads
        )
        return FallbackReply(v=told_v, z=told_z)

    def has_put_in(self, message: FallbackRequest) -> bool:
        """Whether a request is of this fallback, and this party's totals are in its sums.

        Where the request says that they are not, its reply was lost.
        """
        view, half = self._view, self.half
        if message.number != self.number:
            return False
        if half.has_moved:
            return True
        if half.cipher.sum_masks is None:
            return not (message.rows.any() or message.columns.any())
        if view.n_shared_columns:
            return half.cipher.repeats("v", message.v_pads)
        return half.cipher.repeats("z", message.z_pads)

    def join(self, message: FallbackRequest) -> FallbackReply:
        """Put nothing more in: whoever comes back must not be alone in the sums."""
        view, half = self._view, self.half
        reply = FallbackReply()
        if view.n_shared_columns:
            reply.v = half.v_sum.nothing(message.v_pads)
        if view.n_shared_rows:
            reply.z = half.z_sum.nothing(message.z_pads)
        return reply


class Fallbacks:
    """The fallbacks of a run.

    Attributes
    ----------
    newest
        The last one, until its α is taken over.
    """

    def __init__(self) -> None:
        self.newest: FallbackParty | None = None
        self._last: FallbackParty | None = None
        #: Those whose α is yet to be taken over.
        self._waiting: dict[int, FallbackParty] = {}

    def add(self, fallback: FallbackParty, *, inherits: bool) -> None:
        """Another one has begun; with ``inherits``, its α may be taken over later."""
        if self._last is not None:
            # What the one before drew and sent must not be drawn and sent again, almost the same.
            if fallback.number < self._last.number:
                raise ProtocolError("a message begins a fallback that came before")
            fallback.half.go_on_from(self._last.half)
        self.newest = self._last = fallback
        if inherits:
            self._waiting[fallback.number] = fallback

    def settled(self, which: FallbackAlpha) -> FallbackParty:
        """A fallback, with HyFDCA's half at the α that all parties have agreed on.

        Scalars of one whose last step is taken back in between would differ by what a single
        party did.
        """
        fallback = self._waiting.get(which.number)
        if fallback is None:
            raise ProtocolError("a message comes too early: there is no α that could be taken over")
        if fallback.taken_at is None:
            fallback.half.settle(which.ack)
            fallback.taken_at = which.ack
        elif which.ack != fallback.taken_at:
            raise malformed("inherit.ack", "is not what it was")
        return fallback

    def forget(self, number: int) -> None:
        """Drop a fallback and those before it: their α is taken over, or given up."""
        self._waiting = {k: each for k, each in self._waiting.items() if k > number}
        if not self._waiting:
            self.newest = None


def renumbered(
    message: FallbackRequest, folds: int, held: int, width: int
) -> tuple[Floats, Floats]:
    """Coefficients and weights of the mixture, in the numbers that vectors have at this party.

    Some parties have dropped vectors in the phase that was not completed, some have not: this one
    has done so ``folds`` times, and holds ``held`` vectors.
    """
    point, weights, dropped = message.point, message.weights, message.dropped
    sized(point, "point", None, width)
    sized(weights, "weights", None, width)
    if dropped is None or folds == dropped.number:
        return point, weights
    if folds != dropped.number - 1:
        raise malformed("dropped.number", "is not of vectors that are dropped now")
    keep = dropped.keep
    check_kept(keep, "dropped.keep", held)
    if len(point) > len(keep) + 1 or len(weights) > len(keep):
        raise malformed("point", "has vectors that are dropped")
    ours = np.zeros((held, width))
    ours[keep[: len(point) - 1]] = point[1:]
    mixed = np.zeros((held - 1, width))
    mixed[keep[: len(weights)] - 1] = weights
    return ours, mixed


def _spoken_for(flags: Flags, name: str, cohort: NDArray[np.int32]) -> Flags:
    """Per slot, whether this party speaks for its cohort."""
    if len(flags) <= int(cohort.max(initial=-1)):
        raise malformed(name, "has no flag per cohort")
    chosen: Flags = flags[cohort]
    return chosen
