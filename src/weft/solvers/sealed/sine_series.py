"""The slope of the logistic loss as a sum of sines, σ(z) − ½ ≈ Σ b_k sin(ω_k z) on |z| ≤ τ.

Frequencies are free, which takes a third of the terms that harmonics need; they lie on the grid of
multiples of 2π/2^18 on which they close in the ring (`SCORE_BITS` binary digits behind the point).
The loss is the integral of the same terms. Found by least squares with variable projection; the
errors are bounded on a grid when a series is first used (`Series.slope_error`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words

#: Binary digits of a score behind the point: it lies within ±2^17.
SCORE_BITS = 46
#: Points at which the errors are measured.
_POINTS = 40_001


#: Terms of the alarm, Σ sin⁸(πz/P).
ALARM_TERMS = 4


def alarm_multiples(period: int) -> Words:
    """Frequencies of the eighth power of a sine of that period, a power of two."""
    step = np.uint64((1 << (64 - SCORE_BITS)) // period)
    return np.arange(1, ALARM_TERMS + 1, dtype=np.uint64) * step


@dataclass(frozen=True)
class Series:
    """Terms that hold for scores within ±``reach``."""

    reach: float
    multiples: tuple[int, ...]
    sines: tuple[float, ...]

    @property
    def terms(self) -> int:
        return len(self.multiples)

    @cached_property
    def words(self) -> Words:
        """The frequencies, as multiples of 2π/2^64 of the masked words."""
        return np.array(self.multiples, np.uint64)

    @cached_property
    def frequencies(self) -> Floats:
        return np.array(self.multiples) * (2.0 * np.pi / 2.0 ** (64 - SCORE_BITS))

    @cached_property
    def odd(self) -> Floats:
        """b_k: the slope is Σ b_k sin(ω_k z)."""
        return np.array(self.sines)

    @cached_property
    def even(self) -> Floats:
        """a_k: the loss log 2cosh(z/2) is its level and Σ a_k cos(ω_k z)."""
        return -self.odd / self.frequencies

    @cached_property
    def level(self) -> float:
        """The middle of what the cosines leave of the loss."""
        left = self._loss_left
        return float(0.5 * (left.max() + left.min()))

    @cached_property
    def slope_error(self) -> float:
        """How far the slope may be off, for any score in reach."""
        z = self._grid
        off = np.abs(np.sin(np.outer(z, self.frequencies)) @ self.odd - (expit(z) - 0.5)).max()
        return float(off + self._between(float(np.abs(self.odd) @ self.frequencies**2) + 0.1))

    @cached_property
    def loss_error(self) -> float:
        """How far a loss may be off, for any score in reach."""
        left = self._loss_left
        return float(0.5 * (left.max() - left.min())) + self._between(
            float(np.abs(self.even) @ self.frequencies**2) + 0.25
        )

    @property
    def _grid(self) -> Floats:
        # Both functions are odd or even.
        return np.linspace(0.0, self.reach, _POINTS)

    @property
    def _loss_left(self) -> Floats:
        z = self._grid
        return np.logaddexp(z / 2, -z / 2) - np.cos(np.outer(z, self.frequencies)) @ self.even

    def _between(self, curvature: float) -> float:
        """What a function of that curvature may add between two points of the grid."""
        return curvature * (self.reach / (_POINTS - 1)) ** 2 / 8.0


#: By reach, the shortest first: a run takes the next where scores come too near to the end.
SERIES = (
    Series(
        12.0,
        (
            4132,
            17115,
            32857,
            49699,
            67385,
            85806,
            104906,
            124652,
            144998,
            165535,
        ),
        (
            0.743392475308,
            0.213847279835,
            0.0665454902819,
            0.0196513270128,
            0.00541916115726,
            0.00140617818789,
            0.000345514461863,
            8.06774707393e-05,
            1.79020774609e-05,
            3.65802230043e-06,
        ),
    ),
    Series(
        17.0,
        (
            3567,
            13398,
            25077,
            37407,
            50167,
            63279,
            76699,
            90397,
            104355,
            118559,
            132999,
            147659,
            162481,
            177098,
        ),
        (
            0.701035387428,
            0.224603941042,
            0.0896065683464,
            0.0361426506476,
            0.0142052005842,
            0.00542356711931,
            0.00201752270379,
            0.000733404837577,
            0.00026106060288,
            9.11303173175e-05,
            3.12187305487e-05,
            1.04962524087e-05,
            3.45441475485e-06,
            1.06407570191e-06,
        ),
    ),
    Series(
        24.0,
        (
            2289,
            9805,
            18693,
            27890,
            37275,
            46817,
            56498,
            66303,
            76222,
            86244,
            96361,
            106563,
            116840,
            127174,
            137528,
            147819,
            157797,
            166487,
        ),
        (
            0.772418795831,
            0.25512945431,
            0.113329752657,
            0.0554109574197,
            0.0275111945437,
            0.0135808867741,
            0.00663659995452,
            0.00320982889548,
            0.00153753326776,
            0.000730126899076,
            0.000343938085789,
            0.000160822438001,
            7.46766618805e-05,
            3.44594624877e-05,
            1.58079396487e-05,
            7.1993558961e-06,
            3.21688385987e-06,
            1.22952242879e-06,
        ),
    ),
    Series(
        34.0,
        (
            1125,
            6889,
            13496,
            20202,
            26969,
            33790,
            40662,
            47581,
            54543,
            61544,
            68582,
            75654,
            82758,
            89896,
            97067,
            104273,
            111516,
            118802,
            126133,
            133516,
            140956,
            148462,
            156042,
            163698,
            171388,
            178943,
        ),
        (
            1.03562764543,
            0.287426135425,
            0.133178757358,
            0.0740962141845,
            0.0434953149357,
            0.0259343818225,
            0.0155057538495,
            0.00925623560475,
            0.00550971817355,
            0.00326918483428,
            0.00193378017399,
            0.00114079526602,
            0.000671179156791,
            0.000393858135987,
            0.000230622610464,
            0.000134730458479,
            7.85091005189e-05,
            4.56237991326e-05,
            2.64457588097e-05,
            1.52883991645e-05,
            8.82118274413e-06,
            5.08846122638e-06,
            2.94846388039e-06,
            1.73305092487e-06,
            1.04739407514e-06,
            6.39853493121e-07,
        ),
    ),
    Series(
        48.0,
        (
            615,
            4847,
            9574,
            14334,
            19109,
            23896,
            28694,
            33503,
            38322,
            43151,
            47988,
            52831,
            57675,
            62512,
            67331,
            72120,
            76870,
            81587,
            86301,
            91056,
            95885,
            100799,
            105792,
            110852,
            115966,
            121123,
            126315,
            131536,
            136779,
            142038,
            147302,
            152554,
            157748,
            162681,
        ),
        (
            1.301442235,
            0.301007997261,
            0.145021669019,
            0.0878160909711,
            0.0576034808484,
            0.0390711425554,
            0.0268961241735,
            0.0186366618808,
            0.0129488760274,
            0.00900425831964,
            0.00626035401215,
            0.00434890250129,
            0.00301771926621,
            0.0020912823125,
            0.00144746615527,
            0.00100161206871,
            0.000694731511442,
            0.000484828375523,
            0.000341229573032,
            0.000241573993733,
            0.00017086858451,
            0.000120065011641,
            8.3654453601e-05,
            5.78334587825e-05,
            3.97338625466e-05,
            2.71615848113e-05,
            1.84885202653e-05,
            1.25416691317e-05,
            8.48395317742e-06,
            5.72500399032e-06,
            3.85359760113e-06,
            2.58314971306e-06,
            1.7107837553e-06,
            1.02778339017e-06,
        ),
    ),
)
