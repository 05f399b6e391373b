"""Dual vectors that a party makes by coordinate ascent, from a mixture of those it keeps."""

from __future__ import annotations

from functools import partial

from weft.array_types import Floats
from weft.protocol.declared_message_fields import malformed
from weft.solvers.subspace.messages import Ascent
from weft.solvers.subspace.party_sample_values import Rows
from weft.solvers.subspace.party_span_newton_answers import CurvatureAnswers
from weft.solvers.subspace.vectors_kept_by_party import sized

#: How much room a cohort leaves to others in a second ascent, of a smooth loss: there, samples that
#: step as if they were alone point nowhere, since none has a kink to come to.
_ROOM = 4.0
#: A step of ascent along something steeper goes nowhere.
_STEEPEST = 1e100


def ascend(
    message: Ascent, rows: Rows, curvature: CurvatureAnswers, *, smooth: bool
) -> list[Floats]:
    """One or two dual vectors.

    Parameters
    ----------
    curvature
        Knows whether a basis may be brought.
    smooth
        Whether the loss has no kink.
    """
    sized(message.weights, "ascent.weights", None, rows.width)
    sized(message.curvature, "ascent.curvature", rows.width)
    if not ((message.curvature > 0.0) & (message.curvature < _STEEPEST)).all():
        raise malformed("ascent.curvature", f"is not above 0 and below {_STEEPEST:g}")
    rows.mixtures.mix(message.weights)
    if message.basis is None:
        if smooth:
            # Steps of any length bend at single samples.
            raise malformed("ascent.basis", "is missing where the loss is smooth")
        return [rows.ascended(message.curvature)]
    curvature.check_basis(message.basis)
    in_cohorts = partial(rows.ascended_in_cohorts, message.curvature, message.basis)
    if smooth:
        return [in_cohorts(1.0), in_cohorts(_ROOM)]
    return [rows.ascended(message.curvature), in_cohorts(1.0)]
