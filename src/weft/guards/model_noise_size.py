"""Gaussian noise in a released model: differential privacy by output perturbation.

Two tables are neighbours if they differ in one sample: all its cells, at all its holders, and its
label. The minimiser of P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw) then moves by at most 2LR/(λN), where L is
the Lipschitz constant of l and R bounds all ‖x_i‖ (Chaudhuri, Monteleoni and Sarwate 2011). A run
ends a little beside it: with P(w) − P* ≤ G, which its certificate proves, strong convexity gives
‖w − w*‖ ≤ √(2G/λ), on either table. K classes are K such problems side by side, so that

    Δ = √K · 2LR/(λN) + 2 √(2G/λ)

with G the sum over the classes. Noise N(0, σ²) in every weight makes the model
(ε, δ)-differentially private with the smallest σ for which

    Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) ≤ δ

(Balle and Wang 2018, theorem 8). docs/noise.md derives it, and says what it does not cover.
"""

from __future__ import annotations

import math
from hashlib import shake_256

import msgspec
import numpy as np
import scipy

from weft.array_types import Floats
from weft.errors import ConfigError

#: Steps of the bisection for σ: more digits than a float has.
_STEPS = 200


class ModelNoise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wish for a differentially private model.

    Attributes
    ----------
    epsilon, delta
        What the released model may tell of one sample.
    row_norm
        The longest part of a row that a party brings: longer ones are shortened to it.
    """

    epsilon: float
    delta: float = 1e-6
    row_norm: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"epsilon is {self.epsilon:g}; give a number above 0, such as 1")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta is {self.delta:g}; give a small number above 0, such as 1e-6")
        if not 0 < self.row_norm < math.inf:
            raise ConfigError(f"row_norm is {self.row_norm:g}; give a length above 0, such as 1")


def row_bound(row_norm: float, holders: int, bias: float | None) -> float:
    """R: the longest row whose parts, of at most so many holders, are no longer than ``row_norm``.

    The constant column is in it too, at its value.
    """
    return math.sqrt(holders * row_norm**2 + (bias or 0.0) ** 2)


def sensitivity(
    *, lipschitz: float, rows: float, lam: float, samples: int, classes: int, gap: float
) -> float:
    """Δ, by how much one sample can move all weights together.

    Parameters
    ----------
    rows
        R, which bounds the length of all rows.
    gap
        G: P(w) − P*, summed over the classes, at most.
    """
    exact = 2.0 * lipschitz * rows / (lam * samples)
    return math.sqrt(classes) * exact + 2.0 * math.sqrt(2.0 * gap / lam)


def gaussian_delta(epsilon: float, ratio: float) -> float:
    """δ of Gaussian noise at this ε, for a ratio Δ/σ."""
    left = scipy.special.ndtr(0.5 * ratio - epsilon / ratio)
    return float(left - math.exp(epsilon + scipy.special.log_ndtr(-0.5 * ratio - epsilon / ratio)))


def gaussian_sigma(moves: float, epsilon: float, delta: float) -> float:
    """The least σ for a sensitivity; δ falls as σ rises, so that bisection finds it."""
    low, high = -60.0, 60.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if gaussian_delta(epsilon, math.exp(-middle)) <= delta:
            high = middle
        else:
            low = middle
    # The end at which δ holds.
    return moves * math.exp(high)


def gaussian(seed: bytes, shape: tuple[int, ...]) -> Floats:
    """Standard normal numbers that follow from secret bytes, and from nothing else."""
    count = math.prod(shape)
    words = np.frombuffer(shake_256(b"weft model noise " + seed).digest(8 * count), "<u8")
    chances = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    drawn: Floats = scipy.special.ndtri(chances).reshape(shape)
    return drawn
