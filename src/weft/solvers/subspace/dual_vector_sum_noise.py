"""A party's part of the noise in sums of dual vectors (`weft.guards.sum_noise_size`)."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from numpy.typing import NDArray

from weft.crypto.discrete_gaussian import discrete_gaussian
from weft.errors import ConfigError
from weft.guards.sum_noise_size import parts_of
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.sums.party_contribution import Wire

#: Bytes that the noise of some vectors follows from.
_SEED_BYTES = 32
#: √ of the most features for which rounding is allowed for, by a unit for every holder.
_ROUNDED = 1024.0
#: Fixed point has room for so many standard deviations.
_ROOM = 12.0


class VectorNoise:
    """Draws noise in units of fixed point, fresh for every sum, and books it before it is sent.

    Parameters
    ----------
    variance
        Of this party's part, in units of fixed point squared.
    rho
        What one vector costs.
    """

    def __init__(self, variance: int, rho: float, context: PartyContext) -> None:
        self.variance = variance
        self._rho = rho
        self._draws, self._spend = context.draws, context.spend_rho

    @classmethod
    def of(cls, context: PartyContext, settings: Settings, wire: Wire) -> Self | None:
        """Of a party that shares columns; None: no noise was asked for."""
        noise, view = settings.sum_noise, context.view
        if noise is None or not view.n_shared_columns:
            return None
        sigma = context.sum_sigma * wire.units + noise.multiplier * _ROUNDED * view.row_holders
        if sigma * math.sqrt(int(view.column_sharers.max())) * _ROOM > wire.room:
            raise ConfigError(
                f"multiplier = {noise.multiplier:g} in [sum_noise] makes noise too large to be "
                "summed; lower it, or bring more samples"
            )
        return cls(math.ceil(sigma**2 / parts_of(context.contributors)), noise.rho, context)

    def draw(self, vectors: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Noise for the feature sums of some new vectors."""
        self._spend(vectors * self._rho)
        seed = self._draws.random("sum noise", _SEED_BYTES)
        return discrete_gaussian(seed, self.variance, shape)
