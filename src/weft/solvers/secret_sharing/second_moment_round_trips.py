"""The coordinator's round trips for second moments, at the end of a sealed run.

Parties keep their shares of the matrices for whoever gets the model. The coordinator learns
nothing of them: it knows from bounds how far their entries may be off, and tells the parties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft.crypto.primitives.seeded_words import Words
from weft.errors import ConfigError
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coordinator_primal_and_dual_bounds import ReleasedPoint
from weft.solvers.secret_sharing.coordinator_round_trips import SealedExchange
from weft.solvers.secret_sharing.curvature_series import CURVATURES
from weft.solvers.secret_sharing.dealer import Dealer
from weft.solvers.secret_sharing.digit_widths import Errors
from weft.solvers.secret_sharing.exponential_fourier_series import ExponentialSeries
from weft.solvers.secret_sharing.fold_rows import FoldSizes
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA
from weft.solvers.secret_sharing.messages import (
    BENDS,
    CELLS,
    CUT_RATIOS,
    GRAM,
    HESSIAN,
    KEPT_POINT,
    PEARSON,
    RATIOS,
    SAMPLE_WEIGHTS,
    SCORES,
    WEIGHTS,
    BeginRequest,
    BendsRequest,
    CellsRequest,
    CutRatiosRequest,
    GramRequest,
    HessianRequest,
    KeptPointRequest,
    PearsonRequest,
    RatiosRequest,
    SampleWeightsRequest,
    ScoresRequest,
    WeightsReply,
    WeightsRequest,
)
from weft.solvers.secret_sharing.second_moment_digits_and_errors import (
    bend_cuts,
    bend_digits,
    bend_total,
    bend_width,
    exponential_hessian_error,
    exponential_vector,
    exponential_widths,
    fine_vector,
    gram_error,
    hessian_error,
    pearson_error,
    pearson_width,
    rest_width,
    weighed_gram_error,
    weight_width,
)
from weft.solvers.secret_sharing.supported_losses import ALIKE, EXPONENTIAL_LOSSES

_KEPT_BACK = (
    "no Hessian: {} keeps it back, since it would tell the rows of the few samples that are "
    "undecided at this model; take a larger lambda, or ask for the Gram matrix alone"
)

_LARGE_MEANS = (
    "no Hessian: {} keeps it back, since it would tell the rows of the few samples that have the "
    "largest means at this model; take a larger lambda, or leave such samples out, and agree on "
    "allow_exposure = true where ledgers are kept, in which this model's counts stand as a Hessian"
)

_WEIGHS_FEW = (
    "no Hessian: {} keeps it back, since it would tell the rows of the few samples that weigh "
    "most; make weights less uneven"
)

_WEIGHED = (
    "sealed training makes no standard errors of a {} loss whose samples have weights; leave "
    "weights, or inference and second_moments, out, or train with mode = 'sums'"
)

_WEIGHED_GRAM = (
    "sealed training makes no Gram matrix of a squared loss whose samples have weights beside its "
    "Hessian, which weighs them; set second_moments = ['hessian'], or leave weights out"
)


class _Bends(NamedTuple):
    """How curvatures are made: digits of them, and how far matrix and gradient may be off."""

    width: int
    rest: int
    total: int
    error: float
    slope_error: float


class MomentExchange(SealedExchange):
    """All phases of sealed training, and those of its second moments."""

    def _set_up(self, begin: BeginRequest) -> tuple[Dealer, Errors, FoldSizes]:
        dealer, errors, folds = super()._set_up(begin)
        loss, weighing = self._settings.loss, errors.bounds.weighing
        weighs_squares = self._squared and weighing is not None
        if self._settings.second_moments and weighing is not None and loss in EXPONENTIAL_LOSSES:
            raise ConfigError(_WEIGHED.format(loss))
        if "gram" in self._settings.second_moments and weighs_squares:
            raise ConfigError(_WEIGHED_GRAM)
        if self._settings.second_moments:
            # What does not fit is refused now, not after hours of training.
            gram_error(errors.bounds, self._cell_holders)
            if weighs_squares:
                weight_width(errors.bounds)
            elif self._settings.loss not in EXPONENTIAL_LOSSES:
                bend_width(errors.bounds)
        return dealer, errors, folds

    def moments(
        self, settings: Settings, number: int, points: Sequence[ReleasedPoint], level: int
    ) -> None:
        """Let parties make shares of what the settings ask for.

        Parameters
        ----------
        number
            Under which the released model was kept.
        points
            What is known of it, problem by problem.
        level
            The series in whose reach all of its scores lie.
        """
        weighed = self.errors.bounds.weighing is not None
        if settings.second_moments and self._squared and weighed:
            self._weighed_gram(number)
        # Else the Hessian of a squared loss is the Gram matrix, by the number of samples.
        elif settings.second_moments and (
            "gram" in settings.second_moments or settings.loss in ALIKE
        ):
            self.gram()
        if "hessian" in settings.second_moments and settings.loss == GAMMA:
            self._kept_point(number, 0)
            self._pearson(level, points[0])
        elif "hessian" in settings.second_moments and not self._squared:
            for problem, point in enumerate(points):
                self._kept_point(number, problem)
                if not self._hessian(level, point):
                    break

    @property
    def _cell_holders(self) -> int:
        """The most parties that hold one cell, each of which rounds its part to half a unit.

        To a whole one where a party has a cell twice and another's table covers it without a value,
        so that one of them has no part in it: see `split_overlapping_cells_into_integers`.
        """
        most = min(self._holdings.row_holders, self._holdings.column_holders)
        return max(most, 2 * (most - 1))

    def gram(self) -> None:
        """Let parties make shares of XᵀX: one round trip."""
        error = gram_error(self.errors.bounds, self._cell_holders)
        sent = self._deal(lambda: self._dealer.gram(self._serial + 1))
        self._ask(
            GRAM,
            lambda p, n: GramRequest(round=n, serial=self._serial, error=error, dealt=sent(p)),
        )

    def _weighed_gram(self, number: int) -> None:
        """Let parties make shares of Xᵀ diag(ω) X: three round trips."""
        bounds = self.errors.bounds
        width, error = weight_width(bounds), weighed_gram_error(bounds, self._cell_holders)
        rest = rest_width(width, bounds.most_weight)
        self._dealer.sample_weights(self._serial + 1)
        weights = self._ask(
            SAMPLE_WEIGHTS,
            lambda p, n: SampleWeightsRequest(
                round=n, serial=self._serial, number=number, width=width, rest=rest
            ),
        )
        self._spread(weights, error, 0.0)

    def _kept_point(self, number: int, problem: int) -> None:
        """Scores of one problem of a model under masks: two round trips."""
        self._dealer.kept_point(self._serial + 1)
        points = self._ask(
            KEPT_POINT,
            lambda p, n: KeptPointRequest(
                round=n, serial=self._serial, number=number, problem=problem
            ),
        )
        self._add(points, "point")
        self._dealer.scores(self._serial + 1)
        scores = self._ask(
            SCORES, lambda p, n: ScoresRequest(round=n, serial=self._serial, point=self._total)
        )
        self._add(scores, "scores")

    def _pearson(self, level: int, point: ReleasedPoint) -> None:
        """Let parties make shares of Σ(y/μ − 1)² at the scores in hand: three round trips."""
        series, dealer, errors = self.ladder[level], self._dealer, self.errors
        assert isinstance(series, ExponentialSeries)
        waves = self._deal(lambda: dealer.ratios(self._serial + 1, series))
        ratios = self._ask(
            RATIOS,
            lambda p, n: RatiosRequest(
                round=n, serial=self._serial, scores=self._total, series=level, dealt=waves(p)
            ),
        )
        self._add(ratios, "ratios")
        width = pearson_width(errors, series, point.value, point.scores)
        cut = self._deal(lambda: dealer.cut_ratios(self._serial + 1, series.total - width))
        cut_ratios = self._ask(
            CUT_RATIOS,
            lambda p, n: CutRatiosRequest(
                round=n, serial=self._serial, ratios=self._total, width=width, dealt=cut(p)
            ),
        )
        self._add(cut_ratios, "ratios")
        told = all(reply.gradient for reply in cut_ratios.values())
        off = pearson_error(errors, series, point.value, point.norm, point.scores, width)
        slope = exponential_vector(errors, series, point.value, point.norm, point.scores)
        slope += 1.5 * 2.0**-width * errors.bounds.spread
        squares = self._deal(lambda: dealer.pearson(self._serial + 1))
        self._ask(
            PEARSON,
            lambda p, n: PearsonRequest(
                round=n,
                serial=self._serial,
                ratios=self._total,
                error=off,
                gradient=told,
                slope_error=slope,
                dealt=squares(p),
            ),
        )

    def _bends(self, level: int, point: ReleasedPoint) -> _Bends:
        bounds, weighing, holders = self.errors.bounds, self._weighing, self._cell_holders
        series, columns = self.ladder[level], self._table.n_columns
        if isinstance(series, ExponentialSeries):
            most = series.most_at(point.scores)
            off = exponential_hessian_error(bounds, series, columns, point.norm, holders, most)
            slope = exponential_vector(self.errors, series, point.value, point.norm, point.scores)
            return _Bends(*exponential_widths(bounds, most), series.total, off, slope)
        curvature, width = CURVATURES[level], bend_width(bounds)
        return _Bends(
            width,
            rest_width(width, bounds.most_weight),
            bend_total(curvature, weighing),
            hessian_error(bounds, curvature, columns, point.norm, holders),
            fine_vector(self.errors, curvature, point.norm),
        )

    def _dealt_for_bends(self, level: int) -> Words:
        series, serial, weighing = self.ladder[level], self._serial + 1, self._weighing
        if isinstance(series, ExponentialSeries):
            return self._dealer.exponential_bends(serial, series)
        digits = bend_digits(CURVATURES[level], weighing).dealt
        weighed = weighing is not None
        return self._dealer.bends(serial, CURVATURES[level], digits, weighed=weighed)

    def _hessian(self, level: int, point: ReleasedPoint) -> bool:
        """Let parties make shares of Xᵀ diag(σ'(z)) X at the scores in hand: four round trips.

        Returns whether there is one: a party may keep it back.
        """
        made, dealer = self._bends(level, point), self._dealer
        sent = self._deal(lambda: self._dealt_for_bends(level))
        bends = self._ask(
            BENDS,
            lambda p, n: BendsRequest(
                round=n,
                serial=self._serial,
                scores=self._total,
                series=level,
                width=made.width,
                rest=made.rest,
                dealt=sent(p),
            ),
        )
        self._add(bends, "bends")
        cuts = bend_cuts(made.total, made.width, made.rest, self.errors.widths.slope)
        low = self._deal(lambda: dealer.weights(self._serial + 1, cuts))
        weights = self._ask(
            WEIGHTS,
            lambda p, n: WeightsRequest(
                round=n, serial=self._serial, bends=self._total, dealt=low(p)
            ),
        )
        return self._spread(weights, made.error, made.slope_error)

    def _spread(
        self, weights: Mapping[str, WeightsReply], error: float, slope_error: float
    ) -> bool:
        """Curvatures times cells, twice: two round trips; returns whether no party objects."""
        dealer, counts = self._dealer, self._settings.loss in EXPONENTIAL_LOSSES
        self._add(weights, "sums")
        sums = self._total
        self._add(weights, "weights")
        mixed = self._deal(lambda: dealer.cells(self._serial + 1))
        cells = self._ask(
            CELLS,
            lambda p, n: CellsRequest(
                round=n, serial=self._serial, weights=self._total, sums=sums, dealt=mixed(p)
            ),
        )
        for party, reply in cells.items():
            if reply.cells is None:
                why = _LARGE_MEANS if counts else _WEIGHS_FEW if self._squared else _KEPT_BACK
                self.notes.append(why.format(party))
                return False
        told = all(reply.gradient for reply in cells.values())
        self._add(cells, "cells")
        last = self._deal(lambda: dealer.hessian(self._serial + 1, counts=counts))
        self._ask(
            HESSIAN,
            lambda p, n: HessianRequest(
                round=n,
                serial=self._serial,
                cells=self._total,
                error=error,
                gradient=told,
                slope_error=slope_error,
                dealt=last(p),
            ),
        )
        return True
