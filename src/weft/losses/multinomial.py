"""The loss of a multinomial model: of all classes of a sample at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy

from weft.losses.base import DOMAIN_TOLERANCE, Array, Flags, Loss

#: Classes that a model may have: the fixed point of all sums leaves room for their loss at w = 0.
MOST_CLASSES = 1024


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross-entropy of softmax probabilities, l(z) = log Σ_k e^{z_k} − z_y.

    The last axis of every array is that of the classes: scores, dual variables and labels, of which
    one is +1 and the others are −1 (in samples without a label all are 0). Values and conjugates
    are of a sample, so that their arrays lack that axis.

    Dual variables are α = e_y − p with probabilities p, and l*(−α) = Σ_k p_k log p_k.
    """

    name: ClassVar[str] = "softmax"
    task: ClassVar[Literal["classification", "regression"]] = "classification"
    joint: ClassVar[bool] = True
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.5

    def largest_at(self, reach: float, label: float) -> float:
        """Return the largest l(z) of so many classes for |z| ≤ reach."""
        return math.log(MOST_CLASSES) + 2.0 * reach

    def value(self, z: Array, y: Array) -> Array:
        """Return log Σ_k e^{z_k} − z_y."""
        total: Array = scipy.special.logsumexp(z, axis=-1) - np.where(y > 0, z, 0.0).sum(axis=-1)
        return total

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return Σ_k p_k log p_k with p = e_y − a; +inf where p is not on the simplex."""
        inside = self.project(a, y)
        near = (np.abs(a - inside) <= DOMAIN_TOLERANCE).all(axis=-1)
        return np.where(near, self.conjugate_inside(inside, y), np.inf)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return Σ_k p_k log p_k with p = e_y − a."""
        p = np.maximum(np.where(y > 0, 1.0, 0.0) - a, 0.0)
        total: Array = scipy.special.xlogy(p, p).sum(axis=-1)
        return total

    def u(self, z: Array, y: Array) -> Array:
        """Return e_y less the probabilities; zero in samples without a label."""
        mine = y > 0
        slopes: Array = mine - scipy.special.softmax(z, axis=-1)
        return np.where(mine.any(axis=-1, keepdims=True), slopes, 0.0)

    def hessian_product(self, z: Array, y: Array, direction: Array) -> Array:
        """Return p (d − pᵀd); zero in samples without a label."""
        p = scipy.special.softmax(z, axis=-1)
        product = p * (direction - (p * direction).sum(axis=-1, keepdims=True))
        return np.where((y > 0).any(axis=-1, keepdims=True), product, 0.0)

    def likeliest(self, alpha: Array, y: Array) -> Flags:
        """Return where the likeliest class of every sample is, the first of several."""
        p = np.where(y > 0, 1.0, 0.0) - alpha
        most = p == p.max(axis=-1, keepdims=True)
        first: Flags = most & (most.cumsum(axis=-1) == 1)
        return first

    def class_scores(self, z: Array) -> Array:
        """Return the log-odds of every class against all others."""
        others = [
            scipy.special.logsumexp(np.delete(z, k, axis=-1), axis=-1) for k in range(z.shape[-1])
        ]
        odds: Array = z - np.stack(others, axis=-1)
        return odds

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Methods that change one dual variable at a time refuse this loss."""
        raise NotImplementedError

    def project(self, alpha: Array, y: Array) -> Array:
        """Return e_y − p for the p on the simplex that is nearest (Held, Wolfe and Crowder)."""
        mine = np.where(y > 0, 1.0, 0.0)
        p = mine - alpha
        falling = -np.sort(-p, axis=-1)
        surplus = falling.cumsum(axis=-1) - 1.0
        place = np.arange(1, p.shape[-1] + 1)
        count = (falling * place > surplus).sum(axis=-1, keepdims=True)
        shift = np.take_along_axis(surplus, count - 1, axis=-1) / count
        found: Array = mine - np.maximum(p - shift, 0.0)
        return found
