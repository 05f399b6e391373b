"""What one party's rows add to the sums that standard errors of a multinomial model are made of.

With probabilities p of K classes, the curvature of a sample's loss is (diag(p) − ppᵀ) ⊗ xxᵀ. Scores
of all classes may rise together, which changes nothing: its blocks add up to zero, so that those of
all classes but the first tell the rest. Block (k, l) is Σ ω p_k(δ_kl − p_l) x xᵀ.

Coefficients are those of a class against the first, the reference: β_k = w_k − w_0. The penalty is
of the weights of all classes alike, λ/2 Σ‖w_k‖², so that at the optimum they add up to zero. In
coordinates θ of that space, w = Qθ with Q orthonormal, it is λ/2 ‖θ‖², as of any other model: there
all matrices are made, and `contrasts` takes θ to β.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
import scipy

from weft.array_types import Floats
from weft.inference.fit_statistics import Totals
from weft.inference.party_sums_for_standard_errors import weighed_products
from weft.losses import Loss

#: What stands for a Pearson χ² without a bound.
_MOST_PEARSON = 2.0**40


class ClassSums(NamedTuple):
    """Totals over all samples, in the order of classes without the first.

    Attributes
    ----------
    counts
        (contrasts) Σ ω of the samples of each class.
    slopes
        (contrasts × columns) Σ ω (p_k − y_k) x.
    curvature
        (contrasts·columns square) in blocks by class.
    """

    totals: Totals
    counts: Floats
    slopes: Floats
    curvature: Floats


def blocks_of(classes: int) -> int:
    """How many matrices over all columns are told."""
    return classes * (classes - 1) // 2


def class_numbers_of(columns: int, classes: int) -> int:
    """How many numbers `class_statistics` gives."""
    each = (classes - 1) * (1 + columns)
    return len(fields(Totals)) + each + blocks_of(classes) * columns * (columns + 1) // 2


def class_statistics(x: Floats, z: Floats, y: Floats, weight: Floats, loss: Loss) -> Floats:
    """Sums over rows: `Totals`, counts, slopes, then upper triangles of blocks.

    Parameters
    ----------
    x : (rows × columns)
        Cells in the units of training, the constant column among them.
    z, y : (rows × classes)
        Scores at the final model, and labels, of which one is +1.
    """
    p, mine = scipy.special.softmax(z, axis=1), y > 0
    slopes = (weight[:, None] * (p - mine))[:, 1:].T @ x
    triangle = np.triu_indices(x.shape[1])
    blocks = [
        weighed_products(x, weight * p[:, k] * ((k == l) - p[:, l]))[triangle]
        for k, l in _pairs(z.shape[1])
    ]
    counts = (weight[:, None] * mine)[:, 1:].sum(axis=0)
    totals = _totals(z, y, p, weight, loss)
    return np.concatenate([totals, counts, slopes.ravel(), *blocks])


def class_sums_in(numbers: Floats, columns: int, classes: int) -> ClassSums:
    """What `class_statistics` wrote."""
    ends = np.cumsum([len(fields(Totals)), classes - 1, (classes - 1) * columns])
    totals, counts, slopes, rest = np.split(numbers, ends)
    size, triangle = columns * (columns + 1) // 2, np.triu_indices(columns)
    whole = np.zeros((classes - 1, columns, classes - 1, columns))
    for number, (k, l) in enumerate(_pairs(classes)):
        block = np.zeros((columns, columns))
        block[triangle] = rest[number * size : (number + 1) * size]
        block = block + np.triu(block, 1).T
        whole[k - 1, :, l - 1] = whole[l - 1, :, k - 1] = block
    side = (classes - 1) * columns
    return ClassSums(
        Totals(*totals.tolist()),
        counts,
        slopes.reshape(classes - 1, columns),
        whole.reshape(side, side),
    )


def weights_of_class_rows(z: Floats, weight: Floats) -> list[Floats]:
    """How much each row weighs in blocks: those that are told, and those that follow from them.

    Of the reference and every other class too: p_k(1 − p_k) of each, and p_k p_l of all pairs.
    """
    p, classes = scipy.special.softmax(z, axis=1), z.shape[1]
    own = [weight * p[:, k] * (1.0 - p[:, k]) for k in range(classes)]
    pairs = [weight * p[:, k] * p[:, l] for k in range(classes) for l in range(k + 1, classes)]
    return own + pairs


def balanced_basis(classes: int) -> Floats:
    """Q (classes × contrasts): orthonormal, and each column adds up to zero."""
    return np.asarray(np.linalg.svd(np.eye(classes) - 1.0 / classes)[0][:, :-1])


def contrasts(classes: int) -> Floats:
    """Takes θ to coefficients against the first class, for one column."""
    basis = balanced_basis(classes)
    found: Floats = basis[1:] - basis[0]
    return found


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(k, l) for k in range(1, classes) for l in range(k, classes)]


def _totals(z: Floats, y: Floats, p: Floats, weight: Floats, loss: Loss) -> Floats:
    # Σ (y_k − p_k)²/p_k of a sample is 1/p_y − 1.
    pearson = weight * (1.0 / np.maximum((p * (y > 0)).sum(axis=1), np.finfo(float).tiny) - 1.0)
    total = float(weight.sum())
    return np.array(
        [
            float(len(z)),
            float((weight != 1.0).sum()),
            0.0,
            total,
            (weight * loss.value(z, y)).sum(),
            (weight * loss.value(np.zeros_like(z), y)).sum(),
            total,
            0.0,
            min(float(pearson.sum()), _MOST_PEARSON),
            0.0,
        ]
    )
