"""e^z as a sum of sines and cosines on |z| ≤ τ: slope and loss of a Poisson model, but for labels.

Let w be one on the interval and fall off to zero beyond it, as an error function does: e^z w(z) has
the transform 2 sin(ua)/u · e^{−s²u²/4} at u = ω + i, with a the middle of the fall and s its width.
Copies of it at all multiples of P = 2a add up to a series at multiples of 2π/P, where sin(ua) is
±i sinh a. On the interval a copy is e^{2g} erfc(g/s)/2 of e^τ at most, with g = a − τ.

A score of a sample has an e^z of its own size; the series is as exact as e^τ lets it be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cache, cached_property

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.solvers.secret_sharing.masked_sine_kernels import SINE_ERROR
from weft.solvers.secret_sharing.sample_weight_digit_widths import LOSS_NOISE
from weft.solvers.secret_sharing.sine_series import SCORE_BITS, SERIES, Series
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES

#: How far beyond the interval the fall has its middle, and how wide it is.
_BEYOND, _WIDTH = Decimal("3.3"), Decimal("0.6")
#: The frequency up to which there are terms.
_HIGHEST = 17.5
#: Binary digits that e^z may have in all.
_MOST_DIGITS = 60
_PI = Decimal("3.1415926535897932384626433832795028841971693993751")
_GRID = 1 << (64 - SCORE_BITS)


@dataclass(frozen=True)
class ExponentialSeries:
    """Terms that hold for scores within ±``reach`` of their centre, where e^z is 2^``doublings``.

    A power of two changes no factor, and so no bit of one. Weights of samples, times which e^z is
    made, leave so many digits fewer.
    """

    reach: float
    doublings: int = 0
    weight_digits: int = 0

    @property
    def centre(self) -> float:
        return self.doublings * math.log(2.0)

    @property
    def scale(self) -> float:
        return 2.0**self.doublings

    @property
    def most(self) -> float:
        """The largest e^z."""
        return self.scale * math.exp(self.reach)

    def most_at(self, scores: float) -> float:
        """The largest e^z where scores are no farther from the centre."""
        return self.scale * math.exp(min(scores, self.reach))

    @cached_property
    def _multiple(self) -> int:
        """Of the first frequency, 2π/P."""
        return math.floor(_GRID / (2 * (self.reach + float(_BEYOND))))

    @cached_property
    def terms(self) -> int:
        return math.ceil(_HIGHEST / (2.0 * np.pi / _GRID * self._multiple))

    @cached_property
    def words(self) -> Words:
        """The frequencies, as multiples of 2π/2^64 of the masked words."""
        return np.arange(1, self.terms + 1, dtype=np.uint64) * np.uint64(self._multiple)

    @property
    def level(self) -> float:
        return float(self._all[0][0])

    @cached_property
    def cosines(self) -> Floats:
        """Of cosines: the same bits on every machine, since all parties must round alike."""
        return np.array([float(each) for each, _ in self._all[1:]])

    @cached_property
    def sines(self) -> Floats:
        return np.array([float(each) for _, each in self._all[1:]])

    @cached_property
    def _all(self) -> list[tuple[Decimal, Decimal]]:
        """The level, and factors of cosines and sines."""
        with localcontext(Context(prec=50)):
            period = Decimal(_GRID) / self._multiple
            height = ((period / 2).exp() - (-period / 2).exp()) / period
            found = []
            for k in range(self.terms + 1):
                frequency = 2 * _PI * k / period
                size = height * (_WIDTH**2 * (1 - frequency**2) / 4).exp() / (1 + frequency**2)
                size *= (-1) ** k * (1 if k == 0 else 2)
                cosine, sine = _cosine_sine(_WIDTH**2 * frequency / 2)
                # i(ω − i)(cos − i sin) is what is left of the transform.
                found.append(
                    (size * (cosine + frequency * sine), -size * (frequency * cosine - sine))
                )
            return found

    @cached_property
    def slope_error(self) -> float:
        """How far e^z may be off, for any score in reach: copies, terms left out, rounding."""
        beyond = 0.5 * _GRID / self._multiple - self.reach
        copies = math.exp(self.reach + 2 * beyond) * math.erfc(beyond / float(_WIDTH))
        frequencies = 2.0 * np.pi * self._multiple / _GRID * np.arange(self.terms + 1, 9000)
        height = math.exp(self.reach + beyond) * self._multiple / _GRID
        left_out = np.exp(float(_WIDTH) ** 2 * (1 - frequencies**2) / 4) / frequencies
        size = float(np.abs(self.cosines).sum() + np.abs(self.sines).sum())
        off = copies + 2 * height * float(left_out.sum()) + 4 * SINE_ERROR * size
        return self.scale * off

    # ── digits ────────────────────────────────────────────────────────────────────────────

    @property
    def total(self) -> int:
        """Binary digits of e^z behind the point, before it is cut."""
        return _MOST_DIGITS - self.weight_digits - math.ceil(math.log2(self.most))

    @property
    def dealt(self) -> int:
        """Of dealt sines and cosines; factors from opened words have the rest."""
        return round((self._digits + math.log2(math.sqrt(self._square / self.terms))) / 2)

    @property
    def public(self) -> int:
        """Of factors that parties compute from opened words."""
        return self._digits - self.dealt

    @property
    def _digits(self) -> int:
        """As many as if the centre were zero."""
        return self.total + self.doublings

    @property
    def _square(self) -> float:
        return float(self.cosines @ self.cosines + self.sines @ self.sines)

    @property
    def variance(self) -> float:
        """Of e^z, by dithered rounding."""
        rounded = self._square * 4.0**-self.dealt + 2 * self.terms * 4.0**-self.public
        return self.scale**2 * rounded / 4

    @property
    def noise_scale(self) -> float:
        """By how much noise in gradients is larger than where means are one."""
        return max(1.0, math.sqrt(self.scale))

    @property
    def label_digits(self) -> float:
        """Binary digits that counts have, of half of the samples: the others may have no events.

        Of counts of a small mean m that is m·log₂(e/m) each, as many as it takes to say which of
        them are not zero; of others at least one, and above e the formula would be negative.
        """
        if self.doublings >= 0:
            return 0.5
        return 0.5 * min(1.0, self.scale * (math.log2(math.e) - self.doublings))

    def loss_digits(self, rows: int, label: float, weight: float) -> int:
        """Digits with which a total over so many rows does not wrap.

        No label or weight is larger. To e^z labels add y log y − y, and −y times an offset.
        """
        largest = weight * (self.most + label * (math.log1p(label) + _MOST_OFFSET))
        return min(48, self.total - 1, 60 - math.ceil(math.log2(rows * largest)))

    def loss_noise(self, rows: int, label: float, weight: float) -> int:
        """Noise of each party in such a total is even within ±2^(this − 1) units."""
        unit = 2.0 ** self.loss_digits(rows, label, weight)
        return max(1, math.ceil(math.log2(LOSS_NOISE * weight * rows * unit)))

    def at(self, scores: Floats) -> Floats:
        """The series itself."""
        angles = np.outer(scores - self.centre, self.words.astype(float) * (2.0 * np.pi / _GRID))
        waves = np.cos(angles) @ self.cosines + np.sin(angles) @ self.sines
        return np.asarray(self.scale * (self.level + waves))


def _cosine_sine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """By their series: angles are small."""
    cosine, sine, term = Decimal(0), Decimal(0), Decimal(1)
    for n in range(0, 120, 2):
        cosine += term
        term *= angle / (n + 1)
        sine += term
        term *= -angle / (n + 2)
    return cosine, sine


#: What a run may take for its slopes.
AnySeries = Series | ExponentialSeries
#: Above the reach of every series, and one.
_MOST_OFFSET = 16.0
REACHES = (4.0, 5.5, 7.0, 9.0, 11.0)
#: Centres that a run may have, as powers of two.
MOST_DOUBLINGS = 12


@cache
def series_for(loss: str, doublings: int = 0, weight_digits: int = 0) -> tuple[AnySeries, ...]:
    """Series of a loss, by reach, the shortest first; a squared loss takes none."""
    if loss not in EXPONENTIAL_LOSSES:
        return SERIES
    return tuple(ExponentialSeries(reach, doublings, weight_digits) for reach in REACHES)


def centre_of(mean: float) -> int:
    """The power of two nearest to the mean of labels."""
    if not mean > 0:
        return 0
    return max(-MOST_DOUBLINGS, min(MOST_DOUBLINGS, round(math.log2(mean))))
