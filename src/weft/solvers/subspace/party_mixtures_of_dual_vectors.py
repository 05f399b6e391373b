"""Dual vectors that a party keeps, since α is to be a mixture of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.fast_small_array_operations import side_by_side
from weft.protocol.declared_message_fields import malformed
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.loss_points_and_directions_limit import may_ascend
from weft.solvers.subspace.vectors_kept_by_party import combined, padded

#: How far α is carried on in the direction of its last change.
_MOMENTUM = 2.0
#: How far weights of a mixture may lie below 0, or their sum above 1.
_ROUNDING = 1e-6


class DualMixtures:
    """Mixtures are for HyFDCA where it stands in, and for cutting planes.

    Whether the latter are made, the first message says that asks for a dual vector.

    Parameters
    ----------
    nothing
        Zero in every row and problem.
    group
        The group of every row; None: they are all in one.
    alike
        Whether no sample has a weight or an offset of its own.

    Attributes
    ----------
    alpha
        The last mixture that ascent began from.
    """

    def __init__(
        self, settings: Settings, nothing: Floats, group: NDArray[np.int32] | None, *, alike: bool
    ) -> None:
        self._nothing, self._group, self._groups = nothing, group, settings.groups
        # Steps of ascent take all samples to weigh the same, and points no part of an offset.
        self._may_ascend = may_ascend(settings) and alike
        #: Whether cutting planes are made, for which mixtures and more cuts are asked for.
        self.ascends = False
        #: Whether dual vectors are kept.
        self.keeps = settings.hands_over
        #: Whether it is too late to begin.
        self._late = False
        #: The dual vectors of the vectors after the anchor, one for all groups of rows.
        self._held: list[Floats] = []
        self.alpha = self._before = nothing

    def begin(self) -> None:
        """Keep dual vectors from the first on, for ascent from mixtures of them."""
        if not self._may_ascend:
            raise malformed("keeps", "is for cutting planes, which nobody agreed to in this run")
        if self._late:
            raise malformed("keeps", "comes after the first dual vectors, or second moments")
        self.keeps = self.ascends = True

    def pass_by(self) -> None:
        """What was told already does not go together with ascent."""
        self._late = True

    def remember(self, duals: Floats) -> None:
        """Keep dual vectors whose sums are complete, where mixtures of them are wanted."""
        self.pass_by()
        if self.keeps:
            parts = side_by_side(duals, self._nothing.shape[1])
            self._held += [np.ascontiguousarray(part) for part in parts]

    def drop(self, keep: Ints) -> None:
        """Keep only those of some vectors; those of a mixture in use are always among them."""
        if self._held:
            # Vectors come in groups, which are kept or dropped together.
            which = np.unique((keep - 1) // self._groups)
            self._held = [self._held[k] for k in which.tolist()]

    def mix(self, weights: Floats) -> None:
        """Begin ascent from a mixture."""
        if not self.ascends:
            raise malformed("ascent", "is from dual vectors, which are not kept in this run")
        self._before, self.alpha = self.alpha, self.mixed(weights)

    @property
    def ahead(self) -> Floats:
        """α carried on in the direction of its last change."""
        ahead: Floats = self.alpha + _MOMENTUM * (self.alpha - self._before)
        return ahead

    def mixed(self, weights: Floats) -> Floats:
        """α as a mixture of dual vectors: (vectors × problems) without the anchor."""
        weights = padded(weights, len(self._held) * self._groups)
        by_group = weights.reshape(len(self._held), self._groups, -1)
        if (weights < -_ROUNDING).any() or (by_group.sum(axis=0) > 1.0 + _ROUNDING).any():
            # α would be no dual vector, and a step from it where the coordinator likes.
            raise malformed("weights", "are no mixture of dual vectors: below 0, or above 1 in all")
        if self._group is None and self._held:
            return combined(self._held, weights)
        alpha = np.zeros_like(self._nothing)
        if self._group is None:
            return alpha
        for dual, factors in zip(self._held, by_group, strict=True):
            if factors.any():
                alpha += factors[self._group] * dual
        return alpha
