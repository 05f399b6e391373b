"""What `span-newton` alone asks of a party's samples.

Curvature, as second moments of vectors; kinks that are rounded off so that there is some; points
beside the way to the target; and ascent in whole cohorts.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.losses.compiled_sample_losses import has_formula
from weft.matching.party_view import PartyView
from weft.protocol.declared_message_fields import malformed
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.dual_ascent_with_approximate_gram import MOST_IN_BASIS
from weft.solvers.subspace.loss_points_and_directions_limit import (
    MOST_STEPS,
    most_directions,
    tells_moments,
    weighing,
)
from weft.solvers.subspace.messages import DualsRequest, SearchRequest
from weft.solvers.subspace.party_sample_values import Rows
from weft.solvers.subspace.settings import SPAN_NEWTON
from weft.solvers.subspace.vectors_kept_by_party import sized

#: The least width over which a kink is rounded off; far below what any gap asks for.
_NARROWEST = 1e-20


class CurvatureAnswers:
    """Refuses what was not agreed on, or would be too fine for the samples counted here."""

    def __init__(self, view: PartyView, settings: Settings, problems: Problems, rows: Rows) -> None:
        self._view, self._problems, self._rows = view, problems, rows
        self._loss = settings.make_loss()
        self._piecewise = not self._loss.smooth
        self._is_span_newton = settings.solver == SPAN_NEWTON
        counted = int(view.counted_rows.sum())
        self._tells_moments = tells_moments(settings, counted, view.min_batch)
        self._most_directions = most_directions(weighing(settings, counted), view.min_batch)

    def round(self, message: DualsRequest) -> None:
        """Take slopes of the loss as it is, or with its kink rounded off."""
        width = message.rounding
        if width is not None:
            if not (self._piecewise and self._tells_moments):
                # Nor are sums of samples that no other party sees guarded for that.
                raise malformed(
                    "rounding",
                    f"is for '{SPAN_NEWTON}', losses with a kink, and parties that count enough "
                    f"samples for min_batch = {self._view.min_batch}",
                )
            sized(width, "rounding", self._problems.width)
            if not (np.isfinite(width) & (width >= _NARROWEST)).all():
                raise malformed("rounding", f"has a width below {_NARROWEST:g}")
            if self._rows.unlike:
                # Of many samples next to the kink, one could weigh more than all others.
                raise ProtocolError(
                    "a message rounds a kink off, but samples of this run do not weigh the same"
                )
        self._rows.rounding = width

    def points_beside(self, points: Floats | None) -> list[Floats]:
        """z of points beside the way to the target, from what they are combined of."""
        if points is None:
            return []
        if not self._makes_planes:
            raise malformed("beside", f"is for cutting planes of '{SPAN_NEWTON}'")
        vectors = self._rows.vectors
        steps_of(points, "beside", len(vectors), self._problems.width)
        return [vectors.combine(point) for point in points]

    @property
    def _makes_planes(self) -> bool:
        """Whether cutting planes were begun in the place of Newton's method in the span."""
        return self._is_span_newton and self._rows.mixtures.ascends

    def check_basis(self, basis: Floats) -> None:
        """Refuse a basis of vectors that are not held, or that no solver asked for."""
        if not self._makes_planes or not has_formula(self._loss):
            raise malformed("ascent.basis", f"is for cutting planes of '{SPAN_NEWTON}'")
        sized(basis, "ascent.basis", None, None, self._problems.width)
        most = min(MOST_IN_BASIS, len(self._rows.vectors))
        if not (0 < len(basis) <= most and 0 < basis.shape[1] <= most):
            raise malformed("ascent.basis", "has no vectors, or more than are held and may be used")

    def moments(self, message: SearchRequest) -> Floats:
        """Second moments of the vectors' Z, at the first guessed step."""
        view, vectors = self._view, len(self._rows.vectors)
        if self._makes_planes:
            raise malformed("moments", "are not told where cutting planes are made")
        if not self._tells_moments:
            raise ProtocolError(
                f"a message asks for second moments, which are told with '{SPAN_NEWTON}', without "
                "[sum_noise], for losses whose curvature can be spread over many samples, and by "
                f"parties that count enough of them for min_batch = {view.min_batch}"
            )
        if not len(message.at):
            raise malformed("moments", "are asked for at no step")
        if self._piecewise and message.rounding is None:
            raise malformed("rounding", "is missing where a loss with a kink has no curvature")
        if vectors > self._most_directions:
            raise ProtocolError(
                f"a message asks for second moments of {vectors} vectors, which are too many for "
                f"the samples counted here and min_batch = {view.min_batch}"
            )
        self._rows.mixtures.pass_by()
        return self._rows.moments(message.at[0])


def steps_of(steps: Floats | None, name: str, *shape: int) -> Floats:
    """Steps, not more of them than a table of losses may have."""
    if steps is None:
        raise malformed(name, "is missing")
    sized(steps, name, None, *shape)
    if len(steps) > MOST_STEPS:
        raise malformed(name, f"asks for {len(steps)} steps")
    return steps
