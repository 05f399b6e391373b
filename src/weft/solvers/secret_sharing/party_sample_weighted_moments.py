"""Shares of Xᵀ diag(ω) X: the Hessian of a squared loss whose samples have weights ω.

Whoever counts a sample knows its weight, and all others have a share of zero. So weights need not
be made on shares, as curvatures are: each party splits its own into leading digits and those that
follow, and all goes on as with curvatures, with the same guards. There is no gradient with it.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ProtocolError
from weft.protocol import Answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.solvers.secret_sharing.messages import (
    SAMPLE_WEIGHTS,
    SampleWeightsRequest,
    TablesReply,
    TablesRequest,
    WeightsReply,
)
from weft.solvers.secret_sharing.party_second_moments import SealedMomentsParty
from weft.solvers.secret_sharing.second_moment_digits_and_errors import (
    FEWEST_BENDS,
    MOST_BENDS,
    split_weights,
)
from weft.solvers.secret_sharing.table_positions import WholeTable


class WeightedMomentsParty(SealedMomentsParty):
    """Answers the phases of sealed training and its second moments, those of weights among them."""

    def phases(self) -> dict[str, Answer]:
        return {
            **super().phases(),
            **answers(self._once(SAMPLE_WEIGHTS, self._weights_of_samples)),
        }

    @property
    def _makes_gram(self) -> bool:
        return super()._makes_gram and not (self._squared and self._weighing is not None)

    def _check_table(self, table: WholeTable, cells: Floats) -> None:
        # A weight that is not one may be anybody's: all know the largest.
        own = self._sample_weights is not None
        self._weighs_squares = self._squared and (own or self._context.bounds.weight != 1.0)
        super()._check_table(table, cells)

    def _mask_table(self, message: TablesRequest) -> TablesReply:
        if message.weighed and self._squared and self._matrices and not self._weighs_squares:
            # Weights of others, of which none is above one.
            self._weighs_squares = True
            assert self._block is not None
            self._check_moments(self._whole, self._block)
        return super()._mask_table(message)

    def _weights_of_samples(self, message: SampleWeightsRequest) -> WeightsReply:
        """Its weights as curvatures are, and no slopes."""
        model, weighing = message.number, self._weighing
        if not self._squared or weighing is None or "hessian" not in self._asked_for:
            raise ProtocolError("a Hessian was asked for that this run is not to have")
        if model not in self._models or self._hessians or self._keeps_back:
            raise malformed("number", "is not that of the one model whose Hessian is made")
        if not FEWEST_BENDS <= message.width < 62 or not 0 <= message.rest <= MOST_BENDS:
            raise malformed("width", "is not one that weights can have")
        self._kept, self._problems = (model, 0), np.array([0])
        self._bend_digits, self._rest_digits = message.width, message.rest
        shares = np.zeros((3, self._whole.n_rows), np.uint64)
        shares[:2] = split_weights(self._own_weights, weighing, message.width, self._rest_digits)
        return self._hide_curvatures(shares)

    def _undecided(self, bends: Floats, squares: Floats | None) -> Floats:
        # No curvature of a squared loss is above its weight, where that of others is a quarter.
        if not self._squared or squares is None:
            return super()._undecided(bends, squares)
        found: Floats = np.maximum(bends, bends**2 / squares)
        return found

    def _make_gradient(self, slopes: Words, dealt: Words) -> None:
        if not self._squared:
            super()._make_gradient(slopes, dealt)
