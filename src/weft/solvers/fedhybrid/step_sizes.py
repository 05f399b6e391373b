"""Step sizes of FedHybrid: μ for all, and for each party its own a_i and b_i.

Three rules. Each is a few numbers that the coordinator tells everybody, from which a party makes
its own pair out of its own m_i and ℓ_i:

`Auto` (the default)
    needs the means m̄ and ℓ̄ of all m_i and ℓ_i, hence two scalar sums and nothing of any one
    party. Where the reasons below are exact (equal Hessians h at all parties) it is near the
    best; elsewhere it is measured, and the `Safeguard` halves the steps should they be too long.

    *Newton-type*, a = 1. The parts of (x_i, λ_i/(h + μ)) that differ among parties obey
    t² − t + b = 0 whatever h is: b = 1/4 gives the rate 1/2. The mean of x shrinks by μ/(h + μ),
    and the mean of λ by 1 − b(h + μ)/μ, which asks for b ≤ μ/(ℓ + μ). So b = min{1/4, μ/(ℓ̄ + μ)};
    with unequal Hessians the mean of λ is moved by mean(b D_i), which is why ℓ̄ is the mean and
    not the largest. Small μ is good for the mean of x (rate 1 − m/μ) and bad for the
    differences (1 − μ/ℓ): both are 1 − √(m/ℓ) at μ = √(m̄ ℓ̄).

    *Gradient-type*, a = 1.5/(ℓ_i + μ), or 1/κ where the curvature κ along the gradient is so
    small that this is longer (ℓ_i of a logistic loss may be ten times what there is); b = μ/2,
    half of what removes the mean of λ at once. Differences shrink by 1 − b/(ℓ + μ) only, so μ is
    doubled where somebody is of this type.
`Theory`
    condition (4.2) with equality: proven, and very slow.
`Fixed`
    numbers as they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from weft.errors import ConfigError
from weft.solvers.fedhybrid.local_function import Curvature

_NEWTON_DUAL = 0.25
_GRADIENT_PRIMAL = 1.5
_GRADIENT_DUAL = 0.5


@dataclass(frozen=True)
class Pair:
    """A party's own steps a_i and b_i.

    With ``search`` above zero a_i fits itself to the point: a Newton-type one is cut where it
    is too long (Armijo), a gradient-type one is lengthened to ``search``/κ, κ the curvature
    along the gradient.
    """

    a: float
    b: float
    search: float = 0.0


class Rule(Protocol):
    """What everybody is told about steps."""

    @property
    def mu(self) -> float: ...

    def own(self, curvature: Curvature, newton: bool) -> Pair: ...


@dataclass(frozen=True)
class Auto:
    """Steps that need no tuning.

    Attributes
    ----------
    upper
        ℓ̄, the mean of all ℓ_i.
    primal, dual
        Factors on the a_i of gradient-type parties, and on all b_i: users may give them, and
        the `Safeguard` halves them.
    """

    mu: float
    upper: float
    primal: float = 1.0
    dual: float = 1.0

    @classmethod
    def of(cls, mean_lower: float, mean_upper: float, all_newton: bool) -> Auto:
        """From the means of all m_i and ℓ_i."""
        mu = math.sqrt(mean_lower * mean_upper)
        return cls(mu if all_newton else 2.0 * mu, mean_upper)

    def own(self, curvature: Curvature, newton: bool) -> Pair:
        if newton:
            b = min(_NEWTON_DUAL, self.mu / (self.upper + self.mu))
            return Pair(1.0, self.dual * b, 1.0)
        a = self.primal * _GRADIENT_PRIMAL / (curvature.upper + self.mu)
        return Pair(a, self.dual * _GRADIENT_DUAL * self.mu, self.primal)


@dataclass(frozen=True)
class Fixed:
    """Steps as somebody chose them: one a and one b for each type."""

    mu: float
    gradient: Pair
    newton: Pair

    def __post_init__(self) -> None:
        numbers = (self.mu, self.gradient.a, self.gradient.b, self.newton.a, self.newton.b)
        if not all(0 < number < math.inf for number in numbers):
            raise ConfigError(
                f"mu and the steps of FedHybrid are {', '.join(f'{n:g}' for n in numbers)}; give "
                "positive numbers."
            )

    def own(self, curvature: Curvature, newton: bool) -> Pair:
        return self.newton if newton else self.gradient


@dataclass(frozen=True)
class Theory:
    """Condition (4.2) of Theorem 4.1 with equality.

    Attributes
    ----------
    upper
        ℓ, the largest ℓ_i.
    beta
        min{μ/9, α m²/21}, with α the smallest of a_i (gradient-type) and a_i/(ℓ_i + μ).
    rate
        ρ: 13 Δ_λ + Δ_x falls at least by the factor 1 − ρ an iteration. It is min{3β̲/(13(μ +
        ℓ)), mα/2}, as the proof has it; the theorem's statement prints m for ℓ.
    """

    mu: float
    upper: float
    beta: float
    rate: float

    @classmethod
    def of(
        cls, curvatures: Sequence[Curvature], newton: Sequence[bool], mu: float | None = None
    ) -> Theory:
        """From all parties' bounds; without a μ, the one with the best proven rate."""
        if mu is None:
            largest = max(c.upper for c in curvatures)
            candidates = largest * np.logspace(-8, 2, 201)
            return max(
                (cls.of(curvatures, newton, float(mu)) for mu in candidates), key=lambda t: t.rate
            )
        lower = min(c.lower for c in curvatures)
        upper = max(c.upper for c in curvatures)
        reach = 1.0 / (22.0 * mu / 9.0 + 2.0 * upper)
        # Of a Newton-type party both a_i/(ℓ_i + μ) and b_i(m_i + μ) lose this factor.
        spread = min(
            [
                (c.lower + mu) / (c.upper + mu) if second else 1.0
                for c, second in zip(curvatures, newton, strict=True)
            ]
        )
        alpha = spread * reach
        beta = min(mu / 9.0, alpha * lower**2 / 21.0)
        rate = min(3.0 * spread * beta / (13.0 * (mu + upper)), lower * alpha / 2.0)
        return cls(mu, upper, beta, rate)

    def own(self, curvature: Curvature, newton: bool) -> Pair:
        reach = 1.0 / (22.0 * self.mu / 9.0 + 2.0 * self.upper)
        if newton:
            return Pair(
                (curvature.lower + self.mu) * reach, self.beta / (curvature.upper + self.mu)
            )
        return Pair(reach, self.beta)


class Safeguard:
    """Says when steps are too long: when the residual has grown far above its smallest.

    A primal-dual method is not monotone, so only growth by a large factor counts. After a
    verdict the count starts anew from the residual reached.
    """

    GROWTH = 10.0

    def __init__(self, smallest: float = math.inf) -> None:
        self.smallest = smallest

    def too_long(self, residual: float) -> bool:
        """Whether to halve the steps, after the mean residual of this iteration."""
        if residual <= self.GROWTH * self.smallest:
            self.smallest = min(self.smallest, residual)
            return False
        if math.isfinite(residual):
            self.smallest = residual
        return True
