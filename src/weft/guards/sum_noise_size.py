"""Noise in feature sums: zero-concentrated differential privacy of what others see of samples.

A sum over samples Σ a_i x_i / N moves by at most Δ = 2AR/N if one sample is another: A bounds
|a_i|, the slope of the loss, and R the length of all rows, which parties enforce. With normal noise
of variance σ² the sum is ρ-zCDP with ρ = Δ²/2σ² (Bun and Steinke 2016), and the ρ of all sums of a
run add up, whatever steps are taken in between. Parties add their parts of the noise inside their
contributions: whoever reads a total knows its own part only. docs/noise.md has the rest.
"""

from __future__ import annotations

import math

import msgspec

from weft.errors import ConfigError

#: The chance that a certificate is wrong because noise was larger than it allows for.
_CHANCE = 1e-9
#: Sums of one run that this chance is meant for.
_SUMS = 2**20


class SumNoise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wish for noise in feature sums.

    Attributes
    ----------
    multiplier
        σ/Δ: the noise in a sum by what one sample can move it.
    delta
        δ for which ε is told.
    row_norm
        The longest part of a row that a party brings: longer ones are shortened to it.
    """

    multiplier: float
    delta: float = 1e-6
    row_norm: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ConfigError(
                f"multiplier is {self.multiplier:g}; give a number above 0, such as 10"
            )
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta is {self.delta:g}; give a small number above 0, such as 1e-6")
        if not 0 < self.row_norm < math.inf:
            raise ConfigError(f"row_norm is {self.row_norm:g}; give a length above 0, such as 1")

    @property
    def rho(self) -> float:
        """ρ of one sum over samples: of one class, at one point."""
        return 1.0 / (2.0 * self.multiplier**2)

    def sigma(self, *, lipschitz: float, rows: float, samples: int) -> float:
        """σ of the noise in Σ a_i x_i / N, of those whose part the reader does not know."""
        return self.multiplier * 2.0 * lipschitz * rows / samples


def epsilon_of(rho: float, delta: float) -> float:
    """ε for which ρ-zCDP is (ε, δ)-differentially private (Bun and Steinke, proposition 1.3)."""
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def parts_of(contributors: int) -> int:
    """Into how many parts σ² is cut, where so many parties at least are in every sum.

    Whoever reads a sum knows its own part: the others' must do. Two parties add all of it each.
    """
    return max(contributors, 2) - 1


def longest_noise(sigma: float, features: int, holders: int) -> float:
    """No noise of a run is longer, over all features, but with a chance of 1e-9.

    At most ``holders`` parties are in a sum, each with σ² at most. The noise is sub-Gaussian: so
    ‖η‖² ≤ s² (d + 2√(dt) + 2t) with a chance of 1 − e^−t (Hsu, Kakade and Zhang 2012).
    """
    t = math.log(_SUMS / _CHANCE)
    return sigma * math.sqrt(holders * (features + 2.0 * math.sqrt(features * t) + 2.0 * t))
