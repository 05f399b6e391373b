"""A party's shares of the gradient of a squared loss at a released model, for readers of the model.

Training made it: the vector at the point that became the model is on shares already, and as exact
as slopes are. So nothing is opened: each party takes its share and adds noise, as to the gradient
of any loss, once all have said that they let readers have it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.crypto.primitives.seeded_words import Words
from weft.errors import ProtocolError
from weft.protocol import Answer, Nothing, answers
from weft.protocol.message import malformed
from weft.solvers.base import MomentShares
from weft.solvers.party_context import PartyContext
from weft.solvers.sealed.digit_widths import CELL_BITS
from weft.solvers.sealed.messages import GRADIENT, GradientRequest, KeepRequest
from weft.solvers.sealed.moment_digits import gradient_noise
from weft.solvers.sealed.party_second_moments import SealedMomentsParty
from weft.solvers.sealed.party_shares import noise
from weft.solvers.settings import Settings


class SquaredGradientParty(SealedMomentsParty):
    """Answers the phases of second moments, and that of a squared loss's gradient."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        #: By model, of each problem the vector that was made at its point.
        self._made_at: dict[int, list[int]] = {}

    def phases(self) -> dict[str, Answer]:
        return {**super().phases(), **answers(self._once(GRADIENT, self._keep_gradients))}

    def moment_shares(self, model: int | None) -> MomentShares:
        found = super().moment_shares(model)
        if not self._squared or self._weighing is not None:
            return found
        made = [self._gradients.get((model or 0, k)) for k in range(self._all_problems.classes)]
        return replace(found, gradients=tuple(share for share in made if share is not None))

    def _keep(self, message: KeepRequest) -> Nothing:
        done = super()._keep(message)
        self._made_at[message.number] = message.vectors.tolist()
        return done

    def _keep_gradients(self, message: GradientRequest) -> Nothing:
        if not self._gradient_beside_gram:
            raise ProtocolError("a gradient was asked for that this run is not to have")
        if message.number not in self._models or self._gradients:
            raise malformed("number", "is not that of the one model whose gradient is told")
        if len(message.errors) != self._all_problems.classes:
            raise malformed("errors", "are not those of all classes")
        bits = CELL_BITS + self._widths.slope
        for problem, error in enumerate(message.errors.tolist()):
            share = self._gradient_at(message.number, problem)
            self._gradients[message.number, problem] = self._gradient_for_readers(
                problem, share, bits, error
            )
        return Nothing()

    def _gradient_at(self, model: int, problem: int) -> Words:
        """Its share of Xᵀα of one problem of a model, and noise."""
        vector = self._vectors[self._made_at[model][problem]].of(np.array([problem]))
        share = vector.share(self._first)[0, :, 0] << np.uint64(self._widths.cut)
        size = gradient_noise(self._whole.n_rows, self._widths, self._noise_scale)
        label = f"{self._serial} gradient {problem}"
        drawn = noise(self._own_seed, label, [size] * self._whole.n_columns)
        found: Words = share + drawn[:, 0]
        return found
