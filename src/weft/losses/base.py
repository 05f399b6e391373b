"""What every loss offers to the algorithms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from weft.errors import ConfigError

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# An α that went through encryption's fixed point or an average of equal steps may sit this far
# outside the domain of the conjugate; it is read as lying on the boundary.
DOMAIN_TOLERANCE = 1e-9
# Room for α above the largest label where the loss does not bound it.
_ROOM = 256.0
# Samples per band of a table of losses, so that a band stays in the processor's cache.
_BAND = 4096


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss l(z) of one sample's margin or prediction z = xᵀw, with its label y.

    Every method works elementwise on float64 arrays that broadcast against each other,
    ``(n,)`` or ``(n, classes)``. Nothing is validated inside: these are hot paths.

    The dual variable α_i enters the dual objective as −l*(−α_i). Since the domain of l* is
    where slopes of l lie, that domain is |α| ≤ L for an L-Lipschitz loss, and 0 ≤ yα ≤ L for
    a classification loss, which never rises with yz.

    Attributes
    ----------
    name : str
        The name in ``LOSSES`` and in configs.
    task : {"classification", "regression"}
        Labels of a classification loss are −1 and +1.
    lipschitz : float
        Lipschitz constant L of l; infinite where there is none.
    smoothness : float
        Lipschitz constant of l'; infinite where l has a kink.
    rounds : bool
        Whether it has a kink that can be rounded off, over a width (`rounded_slope`).
    spreads : bool
        Whether its curvature, which no sample can have more of than another, can be spread over as
        many samples as it takes (`spread_curvature`).
    joint : bool
        Whether it is a loss of the scores of all classes at once, which are the last axis of all
        arrays then (`Softmax`); else each class has a loss of its own.
    """

    name: ClassVar[str]
    task: ClassVar[Literal["classification", "regression"]]
    lipschitz: ClassVar[float]
    rounds: ClassVar[bool] = False
    spreads: ClassVar[bool] = False
    joint: ClassVar[bool] = False

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Lipschitz constant of l'; infinite where l has a kink, or its curvature no bound."""

    @property
    def smooth(self) -> bool:
        """Whether l has no kink."""
        return math.isfinite(self.smoothness)

    @property
    def bounded(self) -> bool:
        """Whether its slope or its curvature has a bound."""
        return math.isfinite(self.lipschitz) or math.isfinite(self.smoothness)

    def response(self, z: Array) -> Array:
        """Return the response that a score predicts: the score itself."""
        return z

    def curvature_below(self, slope: float, label: float) -> float:
        """Return the largest l'' where |l'| ≤ slope, for labels up to ``label``."""
        return self.smoothness

    def largest_dual(self, label: float, reach: float = 0.0) -> float:
        """Return a bound on |α| for labels up to ``label``: L, else room above what it is at first.

        That is at |z| ≤ reach, the largest offset. Where it is room only, runs check every α.
        """
        return self.lipschitz if math.isfinite(self.lipschitz) else _ROOM * (label + reach)

    def largest_at(self, reach: float, label: float) -> float:
        """Return the largest l(z) for |z| ≤ reach, for labels up to ``label``: at a corner."""
        y = np.array([1.0, -1.0] if self.task == "classification" else [label, -label])
        return float(self.value(np.array([[-reach], [reach]]), y).max())

    def refused_labels(self, labels: Array) -> str:
        """Return what is wrong with these labels, in words; empty: they fit."""
        return ""

    @abstractmethod
    def value(self, z: Array, y: Array) -> Array:
        """Return l(z)."""

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(−a) = sup_z −az − l(z); +inf outside the domain.

        An ``a`` less than 1e-9 outside counts as lying on the boundary.
        """
        inside = self.project(a, y)
        return np.where(
            np.abs(a - inside) <= DOMAIN_TOLERANCE, self.conjugate_inside(inside, y), np.inf
        )

    @abstractmethod
    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return l*(−a) for ``a`` inside the domain."""

    @abstractmethod
    def u(self, z: Array, y: Array) -> Array:
        """Return −l'(z), or minus a subgradient where l has a kink."""

    def rounded_slope(self, z: Array, y: Array, width: Array) -> Array:
        """Return −l' of l with its kink rounded off: a dual variable of l itself."""
        raise NotImplementedError(f"no kink of {self.name!r} is rounded off")

    def spread_curvature(self, z: Array, y: Array, width: Array) -> Array:
        """Return l'', above zero everywhere, of l as if scores were nearer to where most of it is.

        By a factor of ``width`` from 1 on; of a loss with a kink, rounded off over this width.
        """
        raise NotImplementedError(f"the curvature of {self.name!r} is not spread")

    def sharpest(self, width: Array) -> Array:
        """Return the most that `spread_curvature` can be."""
        return np.full_like(width, self.smoothness)

    def table(
        self,
        z: Array,
        target: Array,
        y: Array,
        steps: Array,
        used: Flags | Array | None = None,
    ) -> Array:
        """Return Σ_i l at mixtures of two points: (steps × columns).

        Parameters
        ----------
        z, target, y : (n, columns) arrays
            The two points, and labels.
        steps : (steps, 2, columns) array
            Shares of either point.
        used : (n, columns) array, optional
            Which samples count, or how often.
        """
        out = np.zeros((len(steps), z.shape[1]))
        mask: Any = np.zeros((0, 0), bool) if used is None else used
        self._add_table(z, target, y, steps, mask, out)
        return out

    def _add_table(
        self, z: Array, target: Array, y: Array, steps: Array, mask: Flags, out: Array
    ) -> None:
        """Add Σ_i l to ``out``; an empty mask lets all samples count."""
        for start in range(0, len(z), _BAND):
            band = slice(start, start + _BAND)
            part, aim, labels = z[band], target[band], y[band]
            for k, (here, there) in enumerate(steps):
                losses = self.value(here * part + there * aim, labels)
                out[k] += (losses * mask[band] if mask.size else losses).sum(axis=0)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return l''(z); at a kink of l', that of one side. Zero for a piecewise linear loss."""
        return np.zeros(np.broadcast_shapes(z.shape, y.shape))

    def hessian_product(self, z: Array, y: Array, direction: Array) -> Array:
        """Return l''(z) times a direction."""
        return self.curvature(z, y) * direction

    def class_scores(self, z: Array) -> Array:
        """Return scores that tell each class from the others, from those of a model."""
        return z

    @abstractmethod
    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return the new α = α + argmax_δ −l*(−(α+δ)) − zδ − (q/2)δ².

        Parameters
        ----------
        alpha : array
            Current dual variables; may lie slightly outside the domain.
        z : array
            Current xᵀw.
        y : array
            Labels.
        q : array or float
            Curvature q = β‖x‖²/(λN) ≥ 0. At q = 0 the result is a limit of the argmax as
            q falls to 0.

        Returns
        -------
        array
            Inside the domain of the conjugate.
        """

    @abstractmethod
    def project(self, alpha: Array, y: Array) -> Array:
        """Return the α nearest to ``alpha`` inside the domain of the conjugate."""

    def parameters(self) -> dict[str, float]:
        """Return the parameters that ``get_loss`` needs to build this loss again."""
        return {
            field.name: float(getattr(self, field.name)) for field in fields(self) if field.init
        }


def check_parameter(loss: str, parameter: str, value: float, *, zero_allowed: bool) -> None:
    """Refuse a parameter that is not a finite number above (or at) zero."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and (value > 0 or (zero_allowed and value == 0)):
        return
    wanted = "zero or more" if zero_allowed else "above zero"
    raise ConfigError(
        f'parameter "{parameter}" of loss "{loss}" is {value!r}; '
        f"set it to a finite number {wanted}."
    )
