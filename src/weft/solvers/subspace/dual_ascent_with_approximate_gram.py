"""A dual vector by coordinate ascent in each cohort, with what is known of how its samples overlap.

A step of ascent in every sample at once, as if each were alone, is far too long: samples overlap.
The Gram matrix X Xᵀ of the samples would say how much, but nobody has whole rows. Holders of labels
do have Z, which are products of their rows with the vectors of the run: from an orthonormal basis
of these, they have the part of X Xᵀ that lies in the span, and take the rest as a diagonal. In
that model every cohort ascends by itself, sample after sample, some times over.

The result is a dual vector wherever it leads, so bounds hold. All holders of a cohort come to the
same one, bit by bit: sums are taken in a fixed order, over the samples of one cohort alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints
from weft.losses import Loss
from weft.losses.compiled_sample_losses import LOGISTIC, Formula, formula_of, step
from weft.numba_options import INNER, OUTER
from weft.protocol.declared_message_fields import malformed
from weft.solvers.subspace.vectors_kept_by_party import Kept

#: Vectors that a basis is made of, at most: fewer take more round trips, more take more time.
MOST_IN_BASIS = 128
#: Samples whose Z are copied at once.
_CHUNK = 4096
#: Times that every sample of a cohort takes its step. Those of smooth losses take longer, and more
#: of them gain nothing.
_PASSES, _PASSES_OF_SMOOTH = 20, 10
#: What lies outside the span counts so many times: there, samples are taken as if they did not
#: overlap, which they do.
_OUTSIDE = 3.0
#: Steps of a smooth loss are as short as if no sample had a larger square than this in the span,
#: nor outside. Longer ones lead in straight lines from one bend to another, so that almost every
#: sample differs between two vectors, as guards ask, and yet one may bend alone between three and
#: show its row. For the same reason all samples of a cohort are shortened alike, and what lies
#: outside has no bend where a sample comes to lie in the span: it is rounded off, so much.
_LONGEST, _ROUNDED = 20.0, 0.5
#: Scores of a logistic loss are brought nearer to zero by this factor, until samples of a cohort
#: bend as much as this many times ``min_batch`` could, or as this share of all can. Else vectors
#: would differ in so few samples that guards stop small tables.
_NEARER, _BENDING, _SHARE = 1.25, 2.0, 0.5
#: So often, any finite score comes near zero.
_TIMES_NEARER = 4000
#: The least share of a sample's length that counts as outside.
_LEAST = 0.02


def ascended(
    loss: Loss,
    alpha: Floats,
    z: Floats,
    labels: Floats,
    used: Flags,
    cohort_start: Ints,
    vectors: Sequence[Kept],
    basis: Floats,
    curvature: Floats,
    overlap: float = 1.0,
    least: int = 1,
) -> Floats:
    """α after some passes of ascent in every cohort, problem by problem.

    Parameters
    ----------
    alpha, z
        Where it begins: dual variables, and the scores of the w that belongs to them.
    used
        Per row and problem, whether it has a label and is trained on; others stay as they are.
    cohort_start
        The first row of every cohort, and the number of rows.
    vectors
        Z of some vectors.
    basis
        Coefficients of these (vectors × directions × problems) in directions that are orthonormal,
        in units in which a sample as long as most has the square ``curvature``.
    overlap
        How many times the samples of a cohort are taken to overlap as they do: with more, they
        leave room for what samples of other cohorts do at the same time.
    least
        ``min_batch``: in so many samples, vectors have to differ.
    """
    formula, passes = formula_of(loss), _PASSES_OF_SMOOTH if loss.smooth else _PASSES
    found = alpha.copy()
    for p in range(alpha.shape[1]):
        inside = _inside(vectors, math.sqrt(overlap) * basis[:, :, p], p, len(alpha))
        length = overlap * float(curvature[p])
        if loss.smooth:
            _shorten(inside, cohort_start, _LONGEST)
            length = min(length, _LONGEST / _OUTSIDE)
        mine, here, label, some = (
            np.ascontiguousarray(every[:, p]) for every in (found, z, labels, used)
        )
        if formula.family == LOGISTIC:
            here = _near_zero(here, some, cohort_start, float(least))
        _ascend(formula, mine, here, label, some, cohort_start, inside, length, loss.smooth, passes)
        found[:, p] = mine
    if not np.isfinite(found).all():
        raise malformed("ascent.basis", "leads to numbers that are too large")
    return found


def _inside(vectors: Sequence[Kept], basis: Floats, problem: int, rows: int) -> NDArray[np.float32]:
    """What every sample has in each direction: (samples × directions)."""
    inside = np.zeros((rows, basis.shape[1]), np.float32)
    if not len(vectors):
        return inside
    coefficients = np.ascontiguousarray(basis)
    first = (coefficients != 0.0).argmax(axis=1)
    for start in range(0, rows, _CHUNK):
        some = slice(start, start + _CHUNK)
        z = np.stack([v[some, problem] for v in vectors], axis=1, dtype=np.float64)
        _combine(z, coefficients, first, inside[some])
    if not np.isfinite(inside).all():
        raise malformed("ascent.basis", "leads to numbers that are too large")
    return inside


@numba.njit(**OUTER)
def _shorten(inside: Any, cohort_start: Any, most: float) -> None:
    """Let no sample have a larger square, by one factor for all of its cohort."""
    for c in range(cohort_start.shape[0] - 1):
        largest = 0.0
        for i in range(cohort_start[c], cohort_start[c + 1]):
            largest = max(largest, _dot(inside[i], inside[i]))
        if largest > most:
            less = math.sqrt(most / largest)
            for i in range(cohort_start[c], cohort_start[c + 1]):
                for j in range(inside.shape[1]):
                    inside[i, j] *= less


@numba.njit(**OUTER)
def _near_zero(z: Any, used: Any, cohort_start: Any, least: float) -> Any:
    """Scores of every cohort over the same number, one or more, so that enough samples bend."""
    near = z.copy()
    for c in range(cohort_start.shape[0] - 1):
        rows = range(cohort_start[c], cohort_start[c + 1])
        count = 0
        for i in rows:
            count += used[i]
        enough = min(_BENDING * least, _SHARE * count)
        for _ in range(_TIMES_NEARER):
            if _bending(near, used, cohort_start[c], cohort_start[c + 1]) >= enough:
                break
            for i in rows:
                near[i] /= _NEARER
    return near


@numba.njit(**OUTER)
def _bending(z: Any, used: Any, start: int, end: int) -> float:
    """Curvature of the logistic loss over all samples, in units of the most that one can have."""
    total = 0.0
    for i in range(start, end):
        if used[i]:
            odds = math.exp(-abs(z[i]))
            total += 4.0 * odds / (1.0 + odds) ** 2
    return total


@numba.njit(**OUTER)
def _combine(z: Any, coefficients: Any, first: Any, out: Any) -> None:
    """out = z · coefficients, which are zero before the ``first`` of every line.

    Vector after vector: the bits of a sample do not depend on others, as those of BLAS may.
    """
    total = np.empty(out.shape[1])
    for i in range(z.shape[0]):
        total[:] = 0.0
        for k in range(z.shape[1]):
            value = z[i, k]
            for j in range(first[k], total.shape[0]):
                total[j] += value * coefficients[k, j]
        out[i] = total


@numba.njit(**INNER)
def _dot(a: Any, b: Any) -> float:
    """a·b, in four sums side by side: one alone waits for every addition."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = a.shape[0] // 4 * 4
    for j in range(0, whole, 4):
        s0 += a[j] * b[j]
        s1 += a[j + 1] * b[j + 1]
        s2 += a[j + 2] * b[j + 2]
        s3 += a[j + 3] * b[j + 3]
    for j in range(whole, a.shape[0]):
        s0 += a[j] * b[j]
    return (s0 + s1) + (s2 + s3)


@numba.njit(**INNER)
def _outside(square: float, length: float, smooth: bool) -> float:
    """What of a sample is taken to lie outside the span."""
    if not smooth:
        return _OUTSIDE * max(length - square, _LEAST * length)
    left = 1.0 - square / length
    return _OUTSIDE * length * 0.5 * (left + math.sqrt(left * left + _ROUNDED * _ROUNDED))


@numba.njit(**OUTER)
def _ascend(
    formula: Formula,
    alpha: Any,
    z: Any,
    labels: Any,
    used: Any,
    cohort_start: Any,
    inside: Any,
    curvature: float,
    smooth: bool,
    passes: int,
) -> None:
    """Change α in place, cohort by cohort."""
    squares, outside = np.empty(alpha.shape[0]), np.empty(alpha.shape[0])
    for i in range(alpha.shape[0]):
        squares[i] = _dot(inside[i], inside[i])
        outside[i] = _outside(squares[i], curvature, smooth)
    moved = np.zeros(inside.shape[1])
    begun = alpha.copy()
    for c in range(cohort_start.shape[0] - 1):
        moved[:] = 0.0
        for _ in range(passes):
            for i in range(cohort_start[c], cohort_start[c + 1]):
                if not used[i]:
                    continue
                score = z[i] + _dot(inside[i], moved) + outside[i] * (alpha[i] - begun[i])
                new = step(formula, alpha[i], score, labels[i], squares[i] + outside[i])
                change = new - alpha[i]
                if change != 0.0:
                    alpha[i] = new
                    for j in range(moved.shape[0]):
                        moved[j] += change * inside[i, j]
