"""What one party's rows add to the sums that standard errors are made of."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import scipy

from weft.array_types import Floats
from weft.inference.fit_statistics import Totals
from weft.inference.standard_error_requirements import CANONICAL, Kind
from weft.losses import LOG_LINKED, Loss

#: What stands for a Pearson χ² without a bound.
_MOST_PEARSON = 2.0**40
#: Rows whose products are formed at once.
_BAND = 8192


def matrices_of(loss: Loss, kind: Kind) -> int:
    """How many matrices over all columns a fit needs: curvatures, and one more as a rule."""
    return 1 if kind == "model" and loss.name in CANONICAL else 2


def numbers_of(columns: int, loss: Loss, kind: Kind) -> int:
    """How many numbers `row_sums` gives: a matrix is told by its upper triangle."""
    return len(fields(Totals)) + columns + matrices_of(loss, kind) * columns * (columns + 1) // 2


def row_sums(
    x: Floats, z: Floats, y: Floats, offset: Floats, weight: Floats, loss: Loss, kind: Kind
) -> Floats:
    """Sums over rows: `Totals`, slopes by column, then upper triangles of matrices.

    Parameters
    ----------
    x : (rows × columns)
        Cells in the units of training, the constant column among them.
    z
        Scores at the final model, offsets included.
    y
        Responses, or ±1.
    """
    curved = weight * loss.curvature(z, y)
    slopes = -weight * loss.u(z, y)
    matrices = [weighed_products(x, curved)]
    total = x.T @ slopes
    if kind == "clustered":
        matrices.append(np.outer(total, total))
    elif kind == "robust":
        matrices.append(weighed_products(x, slopes**2))
    elif loss.name not in CANONICAL:
        matrices.append(weighed_products(x, weight * expected_curvature(loss, z)))
    triangle = np.triu_indices(x.shape[1])
    totals = _totals(z, y, offset, weight, loss)
    return np.concatenate([totals, total, *(matrix[triangle] for matrix in matrices)])


def matrices_in(numbers: Floats, columns: int) -> list[Floats]:
    """The matrices that `row_sums` wrote last."""
    rest, size = numbers[len(fields(Totals)) + columns :], columns * (columns + 1) // 2
    found = []
    for begin in range(0, len(rest), size):
        matrix = np.zeros((columns, columns))
        matrix[np.triu_indices(columns)] = rest[begin : begin + size]
        found.append(matrix + np.triu(matrix, 1).T)
    return found


def slopes_in(numbers: Floats, columns: int) -> Floats:
    """Σ ω l'(z) x, the slopes of all losses."""
    return numbers[len(fields(Totals)) :][:columns]


def totals_in(numbers: Floats) -> Totals:
    """The totals that `row_sums` wrote first."""
    return Totals(*numbers[: len(fields(Totals))].tolist())


def weights_of_rows(z: Floats, y: Floats, weight: Floats, loss: Loss, kind: Kind) -> list[Floats]:
    """How much each row weighs in the matrices; of sums by site nothing that a row has alone."""
    found = [weight * loss.curvature(z, y)]
    if kind == "robust":
        found.append((weight * loss.u(z, y)) ** 2)
    elif kind == "model" and loss.name not in CANONICAL:
        found.append(weight * expected_curvature(loss, z))
    return found


def expected_curvature(loss: Loss, z: Floats) -> Floats:
    """E l''(z) over responses: l'' is linear in the response, so that of its mean."""
    mean = np.ones_like(z) if loss.task == "classification" else loss.response(z)
    return loss.curvature(z, mean)


def weighed_products(x: Floats, weight: Floats) -> Floats:
    """Σ weight x xᵀ, in bands, so that a big table is never doubled in memory."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for begin in range(0, len(x), _BAND):
        part = x[begin : begin + _BAND]
        total += part.T @ (weight[begin : begin + _BAND, None] * part)
    return total


def _totals(z: Floats, y: Floats, offset: Floats, weight: Floats, loss: Loss) -> Floats:
    first, second = np.ones_like(z), y - offset if loss.name == "squared" else y
    if loss.name in LOG_LINKED and loss.name != "negative_binomial":
        power = {"poisson": 1.0, "gamma": 2.0}.get(loss.name) or loss.parameters()["power"]
        first, second = np.exp((2.0 - power) * offset), y * np.exp((1.0 - power) * offset)
    pearson = loss.u(z, y) ** 2 / np.maximum(expected_curvature(loss, z), np.finfo(float).tiny)
    return np.array(
        [
            float(len(z)),
            float((weight != 1.0).sum()),
            float((offset != 0.0).sum()),
            weight.sum(),
            (weight * loss.value(z, y)).sum(),
            (weight * loss.value(offset, y)).sum(),
            (weight * first).sum(),
            (weight * second).sum(),
            # Of a sample that was certain to be otherwise, it has no bound.
            min(float((weight * pearson).sum()), _MOST_PEARSON),
            _constant(y, weight, loss),
        ]
    )


def _constant(y: Floats, weight: Floats, loss: Loss) -> float:
    """What a log-likelihood has besides minus the loss: that of a perfect fit, where it exists."""
    if loss.name == "poisson":
        return float(
            (weight * (scipy.special.xlogy(y, y) - y - scipy.special.gammaln(y + 1.0))).sum()
        )
    if loss.name == "negative_binomial":
        k = 1.0 / loss.parameters()["dispersion"]
        perfect = scipy.special.xlogy(y, y) + k * np.log(k) - (y + k) * np.log(y + k)
        counted = (
            scipy.special.gammaln(y + k) - scipy.special.gammaln(k) - scipy.special.gammaln(y + 1.0)
        )
        return float((weight * (perfect + counted)).sum())
    if loss.name == "gamma":
        return float(np.log(y).sum())
    return float(np.log(weight).sum()) if loss.name == "squared" else 0.0
