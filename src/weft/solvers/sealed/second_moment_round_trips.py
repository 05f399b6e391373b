"""The coordinator's round trips for second moments, at the end of a sealed run.

Parties keep their shares of the matrices for whoever gets the model. The coordinator learns
nothing of them: it knows from bounds how far their entries may be off, and tells the parties.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import ConfigError
from weft.solvers.sealed.coordinator_round_trips import SealedExchange
from weft.solvers.sealed.curvature_series import CURVATURES
from weft.solvers.sealed.dealer import Dealer
from weft.solvers.sealed.digit_widths import Errors
from weft.solvers.sealed.fold_rows import FoldSizes
from weft.solvers.sealed.messages import (
    BENDS,
    CELLS,
    GRAM,
    HESSIAN,
    KEPT_POINT,
    SCORES,
    WEIGHTS,
    BeginRequest,
    BendsRequest,
    CellsRequest,
    GramRequest,
    HessianRequest,
    KeptPointRequest,
    ScoresRequest,
    WeightsRequest,
)
from weft.solvers.sealed.moment_digits import (
    bend_cuts,
    bend_digits,
    bend_width,
    fine_vector,
    gram_error,
    hessian_error,
)
from weft.solvers.settings import Settings

_KEPT_BACK = (
    "no Hessian: {} keeps it back, since it would tell the rows of the few samples that are "
    "undecided at this model; take a larger lambda, or ask for the Gram matrix alone"
)

_WEIGHED = (
    "sealed training makes no standard errors of a squared loss whose samples have weights; leave "
    "weights, or inference and second_moments, out, or train with mode = 'sums'"
)


class MomentExchange(SealedExchange):
    """All phases of sealed training, and those of its second moments."""

    def _set_up(self, begin: BeginRequest) -> tuple[Dealer, Errors, FoldSizes]:
        dealer, errors, folds = super()._set_up(begin)
        if self._settings.second_moments and self._squared and errors.bounds.weighing is not None:
            raise ConfigError(_WEIGHED)
        if self._settings.second_moments:
            # What does not fit is refused now, not after hours of training.
            gram_error(errors.bounds, self._cell_holders)
            bend_width(errors.bounds)
        return dealer, errors, folds

    def moments(self, settings: Settings, number: int, norms: Sequence[float], level: int) -> None:
        """Let parties make shares of what the settings ask for.

        Parameters
        ----------
        number
            Under which the released model was kept.
        norms
            Of its weights at most, problem by problem.
        level
            The series in whose reach all of its scores lie.
        """
        # The Hessian of a squared loss is the Gram matrix, by the number of samples.
        if "gram" in settings.second_moments or (settings.second_moments and self._squared):
            self.gram()
        if "hessian" in settings.second_moments and not self._squared:
            for problem, norm in enumerate(norms):
                self._kept_point(number, problem)
                if not self._hessian(level, norm):
                    break

    @property
    def _cell_holders(self) -> int:
        """The most parties that hold one cell: each rounds its part."""
        return min(self._holdings.row_holders, self._holdings.column_holders)

    def gram(self) -> None:
        """Let parties make shares of XᵀX: one round trip."""
        error = gram_error(self.errors.bounds, self._cell_holders)
        sent = self._deal(lambda: self._dealer.gram(self._serial + 1))
        self._ask(
            GRAM,
            lambda p, n: GramRequest(round=n, serial=self._serial, error=error, dealt=sent(p)),
        )

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

    def _hessian(self, level: int, norm: float) -> bool:
        """Let parties make shares of Xᵀ diag(σ'(z)) X at the scores in hand: four round trips.

        Returns whether there is one: a party may keep it back.
        """
        bounds, series = self.errors.bounds, CURVATURES[level]
        columns, holders = self._table.n_columns, self._cell_holders
        error = hessian_error(bounds, series, columns, norm, holders)
        slope_error = fine_vector(self.errors, series, norm)
        weighing, width, dealer = bounds.weighing, bend_width(bounds), self._dealer
        digits = bend_digits(series, weighing)
        sent = self._deal(
            lambda: dealer.bends(
                self._serial + 1, series, digits.dealt, weighed=weighing is not None
            )
        )
        bends = self._ask(
            BENDS,
            lambda p, n: BendsRequest(
                round=n,
                serial=self._serial,
                scores=self._total,
                series=level,
                width=width,
                dealt=sent(p),
            ),
        )
        self._add(bends, "bends")
        cuts = bend_cuts(series, weighing, width, self.errors.widths.slope)
        low = self._deal(lambda: dealer.weights(self._serial + 1, cuts))
        weights = self._ask(
            WEIGHTS,
            lambda p, n: WeightsRequest(
                round=n, serial=self._serial, bends=self._total, dealt=low(p)
            ),
        )
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
                self.notes.append(_KEPT_BACK.format(party))
                return False
        self._add(cells, "cells")
        last = self._deal(lambda: dealer.hessian(self._serial + 1))
        self._ask(
            HESSIAN,
            lambda p, n: HessianRequest(
                round=n,
                serial=self._serial,
                cells=self._total,
                error=error,
                slope_error=slope_error,
                dealt=last(p),
            ),
        )
        return True
