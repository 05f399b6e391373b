"""Second moments as a reader of the model has them, from the shares of all parties.

They are for standard errors, correlations and the like. Entries of sparse columns would tell single
rows: only what is computed from the matrices is meant to leave the process that opened them. So
they are in no model file, report or summary, show nothing of themselves where they are printed, and
are never pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.secret_bytes import StaysHere
from weft.errors import DataError
from weft.federation.messages import (
    GradientShares,
    MatrixShares,
    ModelSlice,
    SecondMomentShares,
)
from weft.federation.model import Model
from weft.protocol.declared_message_fields import malformed
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.supported_losses import ALIKE
from weft.solvers.solver_interfaces_and_results import WITHHELD


@dataclass(frozen=True, eq=False, repr=False)
class SecondMoments(StaysHere):
    """The Hessian and the Gram matrix of a sealed run, over all columns.

    They are in the coordinates that the model was trained in: scaled columns x̃, and the constant
    one. Weights in raw units are ``to_raw @ w̃``: features' coefficients, then the intercept. So a
    covariance of weights becomes ``to_raw @ cov @ to_raw.T``, and `in_raw_units` has the matrices
    over raw columns and a column of ones.

    Attributes
    ----------
    names
        Features in the order of the model, and last the constant column, where there is one.
    samples, weighed
        N, and whether samples have weights ω, which l'' and l' below are then times.
    hessian
        (classes × columns × columns) H = 1/N Xᵀ diag(l''(z)) X at the released weights, class by
        class as in the model's ``coef``: of the mean loss alone, without λ. The information of all
        samples is N·H. Of a squared loss it is XᵀX/N. None: not asked for, or kept back by a party,
        as notes of the run say.
    gram
        (columns × columns) XᵀX, a sum over all samples. None: not asked for.
    hessian_error, gram_error
        By how much entries may be off, in arrays of the same shape.
    gradient
        (classes × columns) 1/N Xᵀ l'(z) there, where there is a Hessian that is no Gram matrix, and
        so many samples that it tells no labels. None: there is none.
    gradient_error
        How far each is off at most, in length.
    label_sum
        Σy of two classes, ±1, or of counts; None: there is none, or it would tell of one party.
    factorials
        Σ log y! of counts; None: the same.
    pearson, pearson_error
        Σ(y/μ − 1)² of a gamma model, and how far it may be off; None: of no other.
    to_raw
        What takes weights of these columns to coefficients and intercept in raw units; None: these
        columns have no raw units, as they are centred and there is no constant one.
    """

    names: NDArray[np.object_]
    samples: int
    weighed: bool
    hessian: Floats | None
    hessian_error: Floats | None
    gram: Floats | None
    gram_error: Floats | None
    gradient: Floats | None
    gradient_error: Floats | None
    label_sum: float | None
    factorials: float | None
    to_raw: Floats | None
    pearson: float | None = None
    pearson_error: float | None = None

    def __repr__(self) -> str:
        return f"SecondMoments of {len(self.names)} columns over {self.samples} samples"

    def in_raw_units(self) -> SecondMoments:
        """The same over raw columns and a column of ones: x̃ = to_rawᵀ x, so that z stays."""
        if self.to_raw is None:
            raise DataError(
                "second moments of centred columns have no raw units without a constant column; "
                "train with intercept = true, or with scaling = 'maxabs' or 'none'"
            )
        back = np.linalg.inv(self.to_raw)
        most = np.abs(back).sum(axis=0)

        def turned(matrix: Floats | None) -> Floats | None:
            return None if matrix is None else np.asarray(back.T @ matrix @ back)

        def widened(error: Floats | None) -> Floats | None:
            # All entries of one matrix may be off by the same.
            return None if error is None else np.asarray(error * np.outer(most, most))

        gradient, off = self.gradient, self.gradient_error
        return replace(
            self,
            gradient=None if gradient is None else np.asarray(gradient @ back),
            gradient_error=None if off is None else off * float(np.linalg.norm(back, 2)),
            hessian=turned(self.hessian),
            hessian_error=widened(self.hessian_error),
            gram=turned(self.gram),
            gram_error=widened(self.gram_error),
            to_raw=np.eye(len(self.names)),
        )


def join_moments(
    slices: Sequence[ModelSlice], model: Model, settings: Settings
) -> SecondMoments | None:
    """The matrices that the shares of all parties add up to; None: the run was to have none.

    ``model`` is the one that was joined of the same slices.
    """
    wanted = settings.second_moments
    if settings.inference != "none" and not wanted and slices[0].moments is not None:
        # What standard errors are made of, in sealed training.
        wanted = ("hessian",)
    if not wanted:
        return None
    parts = [_part(slice_) for slice_ in slices]
    if len({(part.samples, part.weighed) for part in parts}) != 1:
        raise malformed("samples", "are not as many, or not weighed alike, at all parties")
    order, names, bias = column_order(slices)
    samples, weighed = parts[0].samples, parts[0].weighed
    # With weights, the Hessian of a squared loss is a matrix of its own.
    squared = settings.loss in ALIKE and not weighed
    gram, gram_error = _added([part.gram for part in parts], order)
    hessian, hessian_error = _added([part.hessian for part in parts], order)
    rest, _ = _added([part.rest for part in parts], order)
    if (rest is None) != (hessian is None):
        raise malformed("moments", "have a Hessian without all of its digits")
    if hessian is not None and rest is not None:
        hessian = hessian + rest
    gradient, gradient_error = _added_vectors([part.gradient for part in parts], order)
    if squared:
        hessian, hessian_error = gram, gram_error
    if gradient is not None and hessian is None:
        raise malformed("moments", "have a gradient without a Hessian")
    # A Hessian may have been kept back, by any party: then there is none.
    if ("gram" in wanted or squared) and gram is None:
        raise malformed("moments", "are not those that the run was to have")
    if hessian is not None and hessian_error is not None:
        hessian, hessian_error = hessian / samples, hessian_error / samples
    labels = _labels([part.labels for part in parts], settings.loss, samples, bias)
    pearson, pearson_error = _pearson([part.pearson for part in parts])
    with_gram, with_hessian = "gram" in wanted, "hessian" in wanted
    return SecondMoments(
        names=names,
        samples=samples,
        weighed=weighed,
        hessian=hessian if with_hessian else None,
        hessian_error=hessian_error if with_hessian else None,
        gram=None if gram is None or not with_gram else gram[0],
        gram_error=None if gram_error is None or not with_gram else gram_error[0],
        gradient=None if gradient is None else gradient / samples,
        gradient_error=gradient_error,
        label_sum=labels[0],
        factorials=labels[1],
        to_raw=units_of(model, bias),
        pearson=pearson,
        pearson_error=pearson_error,
    )


def _part(slice_: ModelSlice) -> SecondMomentShares:
    if slice_.moments is None or slice_.shares is None or slice_.moments.samples < 1:
        raise malformed("moments", "are not there from every party")
    return slice_.moments


def column_order(slices: Sequence[ModelSlice]) -> tuple[Ints, NDArray[np.object_], float | None]:
    """Which columns of matrices the features of the model are, their names, and the value of the
    constant, which comes last; None: there is none."""
    columns = np.concatenate([_columns(slice_) for slice_ in slices])
    constant = np.concatenate([s.constant for s in slices])
    if len(columns) != len(constant):
        raise malformed("columns", "are not those of all features")
    names = np.concatenate([s.names for s in slices]).astype(object)
    order = np.concatenate([np.flatnonzero(~constant), np.flatnonzero(constant)[:1]])
    return columns[order], names[order], slices[0].bias_value if constant.any() else None


def _columns(slice_: ModelSlice) -> Ints:
    if slice_.shares is not None:
        return slice_.shares.columns
    return np.zeros(0, np.int64) if slice_.statistics is None else slice_.statistics.columns


def _added(
    parts: Sequence[MatrixShares | None], order: Ints
) -> tuple[Floats | None, Floats | None]:
    """Matrices in the order of the model, and how far their entries may be off."""
    found = _total(parts, (len(order),) * 2, order)
    if found is None:
        return None, None
    values, off = found
    matrices: Floats = values[:, order][:, :, order]
    errors: Floats = np.broadcast_to(off[:, None, None], matrices.shape).copy()
    return matrices, errors


def _added_vectors(
    parts: Sequence[GradientShares | None], order: Ints
) -> tuple[Floats | None, Floats | None]:
    """Vectors in the order of the model, and how far each may be off.

    None, too, where a party keeps its labels to itself: its words are noise.
    """
    if any(part is not None and (part.errors == WITHHELD).any() for part in parts):
        return None, None
    found = _total(parts, (len(order),), order)
    return (None, None) if found is None else (found[0][:, order], found[1])


def _labels(
    parts: Sequence[GradientShares | None], loss: str, samples: int, bias: float | None
) -> tuple[float | None, float | None]:
    """Σy, a whole number, and Σ log y! of counts; None: some party tells nothing of it."""
    if bias is None or any(part is None for part in parts):
        return None, None
    counts = loss == "poisson"
    found = _total(parts, (1 + counts,), np.arange(1 + counts))
    if found is None:
        return None, None
    told = found[0][0]
    if counts:
        return float(round(-told[0] / bias)), float(told[1])
    # As many labels of one kind as samples, less twice those of the other.
    total = -2.0 * float(told[0]) / bias
    return samples - 2.0 * round((samples - total) / 2.0), None


def _pearson(parts: Sequence[GradientShares | None]) -> tuple[float | None, float | None]:
    """What one number of all parties adds up to, and how far it may be off."""
    found = _total(parts, (1,), np.arange(1))
    return (None, None) if found is None else (float(found[0][0, 0]), float(found[1][0]))


def _total(
    parts: Sequence[MatrixShares | GradientShares | None], shape: tuple[int, ...], order: Ints
) -> tuple[Floats, Floats] | None:
    """What shares of all parties add up to, and how far it may be off; None: there are none."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    first = known[0]
    alike = len(known) == len(parts) and all(
        part.words.shape == first.words.shape
        and part.bits == first.bits
        and np.array_equal(part.errors, first.errors)
        for part in known
    )
    if not alike or len(first.errors) != len(first.words):
        raise malformed("moments", "are not there from every party")
    if first.words.shape[1:] != shape or order.max(initial=-1) >= len(order):
        raise malformed("moments", "are not over the columns of the model")
    total = np.zeros_like(first.words)
    for part in known:
        total += part.words
    return total.view(np.int64).astype(np.float64) * 2.0**-first.bits, first.errors


def units_of(model: Model, bias: float | None) -> Floats | None:
    """Takes weights to raw units: coef = w̃ · factor, intercept = w̃₀ · bias − coef · shift."""
    shift, factor = model.scaling
    if bias is None:
        return None if shift.any() else np.diag(factor)
    whole = np.diag(np.append(factor, bias))
    whole[-1, :-1] = -factor * shift
    return whole
