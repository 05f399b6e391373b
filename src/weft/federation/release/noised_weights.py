"""Noise in the weights that a party hands out (`weft.guards.model_noise_size`).

Whoever answers for a column adds the noise to its weight. It knows that weight from training: noise
would hide nothing from it, and nobody else knows the noise. Those who get the model and did not
train these columns see weights with noise only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.federation.messages import ReleaseRequest
from weft.guards.model_noise_size import (
    ModelNoise,
    gaussian,
    gaussian_sigma,
    row_bound,
    sensitivity,
)
from weft.solvers.run_settings import Settings


@dataclass(frozen=True)
class NoiseSize:
    """How much noise a run needs, from what everybody knows of it.

    Attributes
    ----------
    gap
        How far P(w) may be above the least, over all classes together: the gap that the run was
        asked for, of the loss at w = 0.
    moves
        The sensitivity Δ of all weights.
    sigma
        Standard deviation of the noise in every weight.
    """

    gap: float
    moves: float
    sigma: float

    @classmethod
    def of(
        cls, settings: Settings, *, samples: int, classes: int, holders: int, bias: float | None
    ) -> NoiseSize:
        """For a run with noise.

        Parameters
        ----------
        classes
            Weights per feature.
        holders
            The most parties that hold one sample.
        bias
            Value of the constant column; None: there is none.
        """
        noise, loss = settings.noise, settings.make_loss()
        assert noise is not None
        assert settings.gap is not None
        at_zero = float(loss.value(np.zeros(1), np.ones(1))[0])
        gap = classes * settings.gap * at_zero
        moves = sensitivity(
            lipschitz=loss.lipschitz,
            rows=row_bound(noise.row_norm, holders, bias),
            lam=settings.lam,
            samples=samples,
            classes=classes,
            gap=gap,
        )
        return cls(gap, moves, gaussian_sigma(moves, noise.epsilon, noise.delta))


class NoisyRelease:
    """Adds the noise of one party, to one model of a run and no other.

    Noise in a second model of the same run would cancel in their difference, and fresh noise in the
    same model would average out.
    """

    def __init__(self, noise: ModelNoise, size: NoiseSize, party: str) -> None:
        self.noise, self._size, self._party = noise, size, party
        #: The model that was handed out, and its weights with noise.
        self._released: tuple[int | None, Floats] | None = None

    def check(self, message: ReleaseRequest) -> None:
        """Refuse what the noise does not cover."""
        if message.everything:
            raise ProtocolError(
                f"party {self._party} adds noise to whole models only, but a party is gone; begin "
                "a new run"
            )
        told = message.suboptimality
        if told is None or not 0 <= told <= self._size.gap:
            raise ProtocolError(
                f"party {self._party} releases no model that is not certified as closely as its "
                "noise was made for; allow more iterations"
            )
        if self._released is not None and self._released[0] != message.model:
            raise ProtocolError(f"party {self._party} has released another model of this run")

    def add(self, weights: Floats, message: ReleaseRequest, seed: bytes) -> Floats:
        """The weights with noise, and the very same ones if they are asked for again.

        ``seed`` is fresh, and used the first time. Weights of later iterations never get the noise
        of earlier ones, which would cancel in their difference.
        """
        if self._released is None:
            noisy: Floats = weights + self._size.sigma * gaussian(seed, weights.shape)
            self._released = message.model, noisy
        return self._released[1]
