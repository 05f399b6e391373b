"""Standard errors of a released model, from what all parties sealed with it.

The matrices behind them stay in the process that opened them; what leaves it is the summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints
from weft.errors import DataError, WeftError
from weft.federation.messages import ModelSlice, StatisticsShare
from weft.federation.model import Model
from weft.federation.release.masked_standard_error_sums import opened
from weft.federation.release.reader_join_second_moments import SecondMoments, column_order, units_of
from weft.inference.coefficient_summary import Summary
from weft.inference.fit_statistics import FitStatistics, Totals
from weft.inference.last_newton_step_without_penalty import without_stand_in
from weft.inference.party_sums_for_multinomial_standard_errors import (
    ClassSums,
    class_numbers_of,
    class_sums_in,
    contrasts,
)
from weft.inference.party_sums_for_standard_errors import (
    matrices_in,
    numbers_of,
    slopes_in,
    totals_in,
)
from weft.inference.standard_error_requirements import CANONICAL, Kind
from weft.losses import Loss
from weft.matching.id_and_name_forms import normal_features
from weft.protocol.declared_message_fields import malformed
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.digit_widths import CELL_BITS

#: A column by whose unit of training odds change more than three thousandfold, e^8.
_BEYOND = 8.0


class _KeptBack(DataError):
    """A party tells no sums at this model, by its guards."""


class Inference(NamedTuple):
    """A summary, or why there is none.

    ``reached``: P at most and P* at least of the summary's coefficients, where these are not those
    that training ended with, since some weights go without a penalty.
    """

    summary: Summary | None
    why_not: str
    reached: tuple[float, float] | None = None


class _Matrices(NamedTuple):
    """What is known of all samples, in the order of the model's coefficients."""

    curvature: Floats
    information: Floats | None
    scores: Floats | None
    slopes: Floats | None
    slope_error: float
    error: float
    totals: Totals | None
    samples: int
    longest_row: float
    cells_off: float = 0.0
    label_sum: float | None = None
    factorials: float | None = None
    weighed: bool = False
    counts: Floats | None = None
    pearson: float | None = None
    expected: bool = False


def infer(
    slices: Sequence[ModelSlice], model: Model, settings: Settings, moments: SecondMoments | None
) -> Inference:
    """The summary of a model that was joined of these slices; ``moments``: of a sealed run."""
    try:
        fit = _fit(slices, model, settings, moments)
        return Inference(Summary.of(fit), "", fit.reached)
    except _KeptBack as error:
        return Inference(None, f"{error}{_running_away(model, settings)}")
    except WeftError as error:
        # Whatever is wrong with its standard errors must not cost anybody the model.
        return Inference(None, str(error))


def _running_away(model: Model, settings: Settings) -> str:
    """Which coefficient is beyond all measure, where guards keep back what would show why.

    Nearly all samples of a separated outcome are decided, so that parties tell no sums; the model
    says as much by itself.
    """
    sizes = np.abs(model.coef[0] / np.where(model.scaling[1] > 0, model.scaling[1], 1.0))
    if settings.loss != "logistic" or len(model.coef) != 1 or sizes.max(initial=0.0) < _BEYOND:
        return ""
    name = model.features[int(sizes.argmax())]
    return (
        f"; the coefficient of '{name}' is very large, and runs away if its column separates the "
        "outcome: leave it out then"
    )


def without_penalty(names: NDArray[np.object_], settings: Settings) -> Flags:
    """Which coefficients have no penalty by λ or by their factor."""
    free = [name for name, factor in settings.penalty_factors.items() if factor == 0.0]
    named = normal_features(np.array(free, dtype=object)).astype(str)
    found: Flags = np.isin(normal_features(names).astype(str), named)
    return found | settings.without_penalty


def _fit(
    slices: Sequence[ModelSlice], model: Model, settings: Settings, moments: SecondMoments | None
) -> FitStatistics:
    loss = settings.make_loss()
    kind: Kind = "model" if settings.inference == "none" else settings.inference
    if moments is not None:
        found = _of_moments(moments, slices, loss)
    else:
        shares = [slice_.statistics for slice_ in slices]
        classes = len(model.coef) if loss.joint else 1
        found = _of_shares(shares, slices, loss, kind, classes)
    _, names, bias = column_order(slices)
    to_raw = units_of(model, bias)
    if to_raw is None:
        raise DataError(
            "there are no standard errors of centred columns without a constant column; train "
            "with intercept = true, or with scaling = 'maxabs' or 'none'"
        )
    weights = model.coef if bias is None else np.column_stack([model.coef, model.intercept])
    penalty = np.full(weights.shape[1], found.samples * model.lam)
    if settings.frees_intercept(bias is not None):
        penalty[-1] = 0.0
    penalty[without_penalty(names, settings)] = 0.0
    coef, columns, reference = weights[0], None, None
    if loss.joint:
        turn = contrasts(len(weights))
        coef = (weights[1:] - weights[0]).ravel()
        to_raw = np.asarray(np.kron(turn, to_raw), np.float64)
        penalty = np.tile(penalty, len(turn))
        found, columns = in_balanced_basis(found, turn), np.tile(names, len(turn))
        names, reference = class_names(model, names)
    mean_loss, loss_error, steepest = _measured(model)
    fit = FitStatistics(
        names=names,
        coef=coef,
        to_raw=to_raw,
        samples=found.samples,
        loss=loss,
        lam=0.0 if settings.without_penalty else model.lam,
        curvature=found.curvature,
        information=found.information,
        scores=found.scores,
        slopes=found.slopes,
        slope_error=found.slope_error,
        kind=kind,
        error=found.error,
        penalty=penalty,
        totals=found.totals,
        mean_loss=mean_loss,
        loss_error=loss_error,
        steepest=steepest,
        gap=_gap(model),
        longest_row=found.longest_row,
        sites=len(slices),
        cells_off=found.cells_off,
        label_sum=found.label_sum,
        factorials=found.factorials,
        weighed=found.weighed,
        pearson=found.pearson,
        expected=found.expected,
        columns=columns,
        reference=reference,
        counts=found.counts,
    )
    return without_stand_in(fit) if settings.frees_weights else fit


def _of_moments(moments: SecondMoments, slices: Sequence[ModelSlice], loss: Loss) -> _Matrices:
    if moments.hessian is None:
        have = "a few undecided samples have nearly all; take a larger lambda"
        if loss.name == "squared":
            have = "a few samples have nearly all, by their weights; make these less uneven"
        if loss.name == "poisson":
            have = (
                "samples with large means have too much; leave such samples out, or take a larger "
                "lambda"
            )
        raise _KeptBack(
            "there are no standard errors: a party keeps the Hessian of this model back, of which "
            f"{have}"
        )
    if moments.hessian_error is None or len(moments.hessian) != 1:
        raise malformed("moments", "are not one Hessian")
    part = slices[0].moments
    assert part is not None
    count, gradient, off = moments.samples, moments.gradient, moments.gradient_error
    return _Matrices(
        curvature=count * moments.hessian[0],
        information=None,
        scores=None,
        slopes=None if gradient is None else count * gradient[0],
        slope_error=0.0 if off is None else float(off[0]),
        error=count * float(moments.hessian_error.max()),
        totals=None,
        samples=count,
        longest_row=part.longest_row,
        # Each holder of a cell rounds its part.
        cells_off=len(slices) * 2.0 ** -(CELL_BITS + 1),
        label_sum=moments.label_sum,
        factorials=moments.factorials,
        weighed=moments.weighed,
        pearson=moments.pearson,
        expected=loss.name == "gamma",
    )


def _of_shares(
    shares: Sequence[StatisticsShare | None],
    slices: Sequence[ModelSlice],
    loss: Loss,
    kind: Kind,
    classes: int,
) -> _Matrices:
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        raise DataError(
            "there are no standard errors, since a party was away at the end of the run, and sums "
            "of the others are worth nothing without its own; train again with everyone"
        )
    for share in known:
        if share.refusal:
            raise _KeptBack(f"there are no standard errors: {share.refusal}")
    order, _, _ = column_order(slices)
    values, samples, width = opened(known), known[0].samples, known[0].width
    numbers = class_numbers_of(width, classes) if loss.joint else numbers_of(width, loss, kind)
    if len(values) != numbers or order.max(initial=-1) >= width:
        raise malformed("words", "are not as many sums as the model has columns for")
    totals = totals_in(values)
    alike = {(share.samples, share.longest_row, share.width) for share in known} == {
        (samples, known[0].longest_row, width)
    }
    if not alike or totals.samples != samples:
        raise malformed("samples", "are not those that all parties added up")
    if loss.joint:
        return _of_classes(class_sums_in(values, width, classes), order, known[0])
    matrices = [matrix[np.ix_(order, order)] for matrix in matrices_in(values, width)]
    second = matrices[1] if len(matrices) > 1 else None
    by_model = kind == "model"
    return _Matrices(
        curvature=matrices[0],
        information=second if by_model and loss.name not in CANONICAL else None,
        scores=None if by_model else second,
        slopes=slopes_in(values, width)[order],
        slope_error=0.0,
        error=0.0,
        totals=totals,
        samples=samples,
        longest_row=known[0].longest_row,
    )


def _of_classes(sums: ClassSums, order: Ints, told: StatisticsShare) -> _Matrices:
    """Of a multinomial model, one class after the other."""
    contrasts, width = sums.slopes.shape
    places = (np.arange(contrasts)[:, None] * width + order).ravel()
    return _Matrices(
        curvature=sums.curvature[np.ix_(places, places)],
        information=None,
        scores=None,
        slopes=sums.slopes[:, order].ravel(),
        slope_error=0.0,
        error=0.0,
        totals=sums.totals,
        samples=told.samples,
        # Scores of two classes come apart by √2 times their length at most.
        longest_row=2.0 * told.longest_row,
        counts=sums.counts,
    )


def in_balanced_basis(found: _Matrices, turn: Floats) -> _Matrices:
    """Sums over classes but the first in the coordinates that the penalty is alike in."""
    assert found.slopes is not None
    whole = np.kron(turn, np.eye(len(found.slopes) // len(turn)))
    return found._replace(
        curvature=whole.T @ found.curvature @ whole, slopes=whole.T @ found.slopes
    )


def class_names(model: Model, names: NDArray[np.object_]) -> tuple[NDArray[np.object_], str]:
    """Names of coefficients, class by class, and the class that they are against."""
    assert model.classes is not None
    first, *others = (str(value) for value in model.classes.tolist())
    told = [f"{value}: {name}" for value in others for name in names.tolist()]
    return np.array(told, dtype=object), first


def _gap(model: Model) -> float | None:
    proof = model.certificate
    return float(proof["primal"][0] - proof["dual"][0]) if proof else None


def _measured(model: Model) -> tuple[float | None, float, float]:
    """The mean loss that a sealed run measured, how far it may be off, and ‖∇P‖ at most."""
    found = model.certificate.get("measured")
    if not found:
        return None, 0.0, np.inf
    mean, error, slope = (float(value) for value in found[0])
    return mean, error, slope
