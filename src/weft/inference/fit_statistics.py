"""What standard errors of a fit are computed from: sums over all samples at the final model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto.secret_bytes import StaysHere
from weft.inference.standard_error_requirements import FAMILY_NAMES, Kind
from weft.losses import Loss


@dataclass(frozen=True)
class Totals:
    """Sums over all samples beside the matrices.

    With weight ω, offset o and score z of a sample, and l its loss, half its deviance:

    Attributes
    ----------
    samples, weighted, shifted
        How many samples there are; how many have a weight that is not one, and an offset.
    weight
        Σ ω.
    loss, loss_without
        Σ ω l(z), and Σ ω l(o): with no coefficient at all.
    first, second
        What an intercept alone is fitted from: Σ ω e^{(2−p)o} and Σ ω y e^{(1−p)o} of a log link
        (p = 1 for counts, 2 for gamma), Σ ω and Σ ω (y − o) of others.
    pearson
        Σ ω (y − μ)²/V(μ).
    constant
        What log-likelihoods have besides; of gamma Σ log y, of gaussian Σ log ω.
    """

    samples: float
    weighted: float
    shifted: float
    weight: float
    loss: float
    loss_without: float
    first: float
    second: float
    pearson: float
    constant: float


class Certified(NamedTuple):
    """The best estimate, and how far it and P are from the optimum; inf: not known.

    Coefficients are in units of the table, and ``gap`` is that of the model.
    """

    coef: Floats
    distances: Floats
    gap: float


@dataclass(frozen=True, eq=False, repr=False)
class FitStatistics(StaysHere):
    """A fit, and the matrices of all samples at it; these stay in the process that opened them.

    Matrices are in the units that the model was trained in: scaled columns, the constant one last.

    Attributes
    ----------
    names, coef
        Of all coefficients in the units of the table, the intercept last where there is one; of
        several classes one class after the other.
    columns, reference
        Of several classes, the column of each coefficient, and the class that others are against.
    to_raw
        Takes weights as they were trained to these.
    samples
        N.
    curvature
        N·∇²R = Σ ω l''(z) x xᵀ, of the losses alone.
    information
        The same with expected curvatures; None: it is not known, or the same.
    scores
        Σ s sᵀ of slopes s = ω l'(z) x of samples, or of their sums by site; None: not asked for.
    slopes
        Σ ω l'(z) x, which the penalty balances at the optimum; None: not known.
    slope_error
        How far these may be off by N, in length, beside rounding of floats.
    error
        How far an entry of a matrix may be off.
    penalty
        Nλ of each weight; zero for a free intercept, and for weights without a penalty.
    totals
        None: only what the certificate tells is known.
    mean_loss, loss_error
        1/N Σ ω l(z) as a sealed run measured it, and how far that may be off; None: it is not
        known, or there are totals.
    steepest
        ‖∇P‖ at most, in units of training, where a sealed run bounds it; infinite: nobody knows.
    gap
        P − P* at most, where P is the mean loss and penalty; None: nothing is certified.
    longest_row
        No ‖x‖² of a sample is above it, in units of training; infinite: nobody knows. Of several
        classes twice that: scores of two classes come apart by √2 times their length at most.
    counts
        Σ ω of each class but the reference; None: not of several classes.
    sites
        How many parties took part.
    cells_off
        How far a cell is from the one that matrices are made of; zero: they are the same.
    label_sum
        Σy of two classes, ±1, or of counts, where there are no totals and all samples weigh one,
        without offsets; None: not known.
    factorials
        Σ log y! of these counts.
    weighed
        Whether samples have weights, where there are no totals to tell.
    pearson
        Σ(y/μ − 1)² of a gamma model, where there are no totals; None: not known.
    expected
        Whether the curvature is what is expected of it, so that it proves nothing of this fit.
    proved, reached
        Where weights go without a penalty, what is proved of them, and P at most and P* at least.
    """

    names: NDArray[np.object_]
    coef: Floats
    to_raw: Floats
    samples: int
    loss: Loss
    lam: float
    curvature: Floats
    information: Floats | None
    scores: Floats | None
    slopes: Floats | None
    slope_error: float
    kind: Kind
    error: float
    penalty: Floats
    totals: Totals | None
    mean_loss: float | None
    gap: float | None
    longest_row: float
    sites: int
    loss_error: float = 0.0
    steepest: float = np.inf
    cells_off: float = 0.0
    label_sum: float | None = None
    factorials: float | None = None
    weighed: bool = False
    pearson: float | None = None
    expected: bool = False
    proved: Certified | None = None
    reached: tuple[float, float] | None = None
    columns: NDArray[np.object_] | None = None
    reference: str | None = None
    counts: Floats | None = None

    def __repr__(self) -> str:
        return f"FitStatistics of {len(self.names)} coefficients over {self.samples} samples"

    @property
    def column_names(self) -> NDArray[np.object_]:
        """The column of each coefficient."""
        return self.names if self.columns is None else self.columns

    @property
    def family(self) -> str:
        return FAMILY_NAMES[self.loss.name]
