"""The coordinator's round trips in sealed training: it adds ciphertext, deals, and asks again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto import Adder
from weft.crypto.primitives.seeded_words import SEED_BYTES, Words
from weft.errors import ProtocolError
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coordinator_ask_until_all_answered import AskAddDeal
from weft.solvers.secret_sharing.dealer import Dealer
from weft.solvers.secret_sharing.digit_widths import (
    EIGHTH_LEVEL,
    Errors,
    alarm_bits,
    choose_widths,
    intercept_units,
    loss_digits,
    product_cuts,
)
from weft.solvers.secret_sharing.exponential_fourier_series import (
    AnySeries,
    ExponentialSeries,
    centre_of,
    series_for,
)
from weft.solvers.secret_sharing.fold_rows import (
    FoldSizes,
    refuse_small,
    rows_of_folds,
    told_of_folds,
    told_of_labels,
    with_fold,
)
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA, GAMMA_CENTRE
from weft.solvers.secret_sharing.messages import (
    BEGIN,
    FIRST,
    HELD,
    KEEP,
    POINT,
    PRODUCTS,
    SCORES,
    SLOPES,
    TABLES,
    VECTOR,
    WEIGH,
    BeginRequest,
    FirstRequest,
    HeldRequest,
    KeepRequest,
    PointRequest,
    ProductsRequest,
    ScoresRequest,
    SlopesReply,
    SlopesRequest,
    TablesRequest,
    VectorRequest,
    WeighRequest,
)
from weft.solvers.secret_sharing.sample_weight_digit_widths import Weighing
from weft.solvers.secret_sharing.scalars_opened_in_total import Told, add_shares
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES
from weft.solvers.secret_sharing.table_bounds import BOUNDS, table_bounds
from weft.solvers.secret_sharing.table_positions import shapes_of, whole_table
from weft.solvers.subspace.class_fold_problems import Problems
from weft.sums.scalar_sums import add_scalars

_FULL, _WIDE = 64, 128


class SealedExchange(AskAddDeal):
    """All phases, each until everyone has answered, with what the dealer adds to them.

    Attributes
    ----------
    errors
        Bounds, widths and how far results may be off, once tables are masked.
    folds
        What is left out by which problem.
    """

    def __init__(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        problems: Problems,
        weight: float = 1.0,
        label: float = 1.0,
    ) -> None:
        super().__init__(channel, holdings, settings, adder)
        self._most = weight, label
        self._layout, self._squared = problems, settings.loss == "squared"
        self._left_out = rows_of_folds(int(holdings.rows.sizes.sum()), problems.folds)
        refuse_small(self._left_out.tolist(), holdings.terms.min_batch)
        self.notes: list[str] = []
        shapes = shapes_of(holdings)
        self._table = whole_table(shapes)
        free = settings.frees_intercept(holdings.bias_slot >= 0)
        constant = holdings.bias_slot if free else -1
        begin = BeginRequest(round=0, serial=0, shapes=shapes, constant=constant)
        self._dealer, self.errors, self.folds = self._set_up(begin)
        self._vectors = 0
        if free:
            self._vectors = 1
            self._dealer.free_intercept(np.arange(problems.width))
        self._problems: Ints = np.arange(problems.width)

    @property
    def intercept_length(self) -> float:
        """Of the vector of a free intercept, in units of gradients; zero: there is none."""
        free = self._settings.frees_intercept(self._holdings.bias_slot >= 0)
        return intercept_units(self.errors.widths) * self.errors.unit if free else 0.0

    @property
    def _centre(self) -> int:
        """Of series of a Poisson loss with a free intercept, which moves all scores alike."""
        free = self._settings.frees_intercept(self._holdings.bias_slot >= 0)
        # A sample that is left out has no intercept.
        whole = self.errors.bounds.rows == self.errors.bounds.samples
        moves = self._settings.loss in EXPONENTIAL_LOSSES and free and whole
        if moves and self._settings.loss == GAMMA:
            return GAMMA_CENTRE
        usual = 1.0 if self._weighing is None else self._weighing.size
        return centre_of(self.errors.bounds.label_square / usual) if moves else 0

    @property
    def ladder(self) -> tuple[AnySeries, ...]:
        digits = 0 if self._weighing is None else self._weighing.digits
        return series_for(self._settings.loss, self._centre, digits)

    @property
    def _weighing(self) -> Weighing | None:
        """What is known of weights of samples; None: all weigh one."""
        return self.errors.bounds.weighing

    # ── setting up ────────────────────────────────────────────────────────────────────────

    def _set_up(self, begin: BeginRequest) -> tuple[Dealer, Errors, FoldSizes]:
        holdings = self._holdings
        begun = self._ask(
            BEGIN, lambda p, n: msgspec.structs.replace(begin, round=n, serial=self._serial)
        )
        also = told_of_labels(self._settings.loss)
        more = told_of_folds(self._layout, also)
        totals = add_scalars(begun, "bounds", BOUNDS + more, holdings.parties)
        if totals is None or any(len(reply.seed) != SEED_BYTES for reply in begun.values()):
            raise ProtocolError("a party sent no seed for sealed training; the run stops")
        if not all(0.0 <= total < np.inf for total in totals):
            raise ProtocolError("the parties' bounds do not add up to any of a table; start again")
        bounds = table_bounds(totals[:BOUNDS], holdings, self._settings.loss, *self._most)
        sizes = FoldSizes.of(
            self._layout,
            self._left_out,
            totals[BOUNDS:],
            holdings.terms.min_batch,
            also,
        )
        widths = choose_widths(bounds, self._settings.loss, self._table.n_columns)
        errors = Errors(bounds, widths, len(holdings.parties), self._table.n_columns)
        dealer = Dealer([reply.seed for reply in begun.values()], self._table)
        return dealer, errors, sizes

    def first(self) -> None:
        """Masked tables to everyone, and slopes at w = 0."""
        widths = self.errors.widths
        told = self._ask(
            TABLES,
            lambda p, n: TablesRequest(
                round=n,
                serial=self._serial,
                slope=widths.slope,
                cut=widths.cut,
                weighed=self._weighing is not None,
                centre=self._centre,
            ),
        )
        tables = {party: reply.table for party, reply in told.items()}
        weights: Words | None = None
        if self._weighing is not None:
            self._dealer.weights_of_samples(self._serial)
            self._add(told, "weights")
            weights = self._total
        del told

        def others(party: str) -> Words:
            return np.concatenate(
                [np.zeros(0, np.uint64), *(t for p, t in tables.items() if p != party)]
            )

        replies = self._ask(
            FIRST,
            lambda p, n: FirstRequest(
                round=n, serial=self._serial, tables=others(p), weights=weights
            ),
        )
        self._take_slopes(replies)

    def held(self) -> None:
        """Slopes at w = 0 of what folds leave out."""
        self._take_slopes(self._ask(HELD, lambda p, n: HeldRequest(round=n, serial=self._serial)))

    def _take_slopes(self, replies: Mapping[str, SlopesReply]) -> None:
        self._add(replies, "slopes")
        self._dealer.slopes(self._serial, self._problems)

    # ── one gradient ──────────────────────────────────────────────────────────────────────

    def point(self, problems: Ints, coefficients: NDArray[np.int64]) -> None:
        """Form w of some problems, and its scores, all under masks: two round trips."""
        self._problems = problems
        sent = self._deal(lambda: self._dealer.point(self._serial + 1, problems))
        replies = self._ask(
            POINT,
            lambda p, n: PointRequest(
                round=n, serial=self._serial, problems=problems, point=coefficients, masks=sent(p)
            ),
        )
        self._add(replies, "point")
        scored = self._ask(
            SCORES, lambda p, n: ScoresRequest(round=n, serial=self._serial, point=self._total)
        )
        self._add(scored, "scores")
        began = perf_counter()
        self._dealer.scores(self._serial)
        self.dealer_seconds += perf_counter() - began

    def slopes(self, level: int, period: int, *, held: bool = False) -> Told:
        """Slopes under masks, of samples that a problem trains on, or of those it leaves out."""
        sent = self._deal(lambda: self._dealt_for_slopes(level, period))
        replies = self._ask(
            SLOPES,
            lambda p, n: SlopesRequest(
                round=n,
                serial=self._serial,
                scores=self._total,
                series=level,
                period=period,
                held=held,
                dealt=sent(p),
            ),
        )
        nothing = np.zeros(len(self._problems))
        alarms = self._alarms(replies) if period else nothing
        if self._weighing is not None or isinstance(self.ladder[level], ExponentialSeries):
            replies = self._weigh(replies, level)
        self._take_slopes(replies)
        if self._squared:
            return Told(nothing, nothing, nothing)
        return Told(*self._losses(replies, level), alarms)

    def _dealt_for_slopes(self, level: int, period: int) -> Words:
        dealer, serial, widths = self._dealer, self._serial + 1, self.errors.widths
        series = self.ladder[level]
        if isinstance(series, ExponentialSeries):
            weighed = self._weighing is not None
            return dealer.exponential(serial, series, period, weighed=weighed)
        if not self._squared:
            return dealer.series(serial, series, period, widths, self._weighing)
        if self._weighing is not None:
            return dealer.cut_weighed_scores(serial, self._weighing.score_cut)
        return dealer.cut_scores(serial, widths)

    def _weigh(self, replies: Mapping[str, SlopesReply], level: int) -> dict[str, SlopesReply]:
        """Cut slopes and losses that are weighed: one more round trip."""
        series, slope = None if self._squared else self.ladder[level], self.errors.widths.slope
        of = self.errors.bounds
        cuts = product_cuts(series, self._weighing, slope, of.rows, of.largest_label)
        self._add(replies, "slopes")
        sent = self._deal(lambda: self._dealer.cut_products(self._serial + 1, cuts))
        return self._ask(
            WEIGH,
            lambda p, n: WeighRequest(
                round=n, serial=self._serial, slopes=self._total, dealt=sent(p)
            ),
        )

    def _losses(self, replies: Mapping[str, SlopesReply], level: int) -> tuple[Floats, Floats]:
        """Over samples trained on, and over those that folds leave out."""
        series, of, problems = self.ladder[level], self.errors.bounds, self._problems
        weighing = self._weighing
        # A sample that is in no problem has a score of zero: of what a row counts, and it too.
        rest, idle = 0.0, 1.0
        if isinstance(series, ExponentialSeries):
            digits = series.loss_digits(of.rows, of.largest_label, of.most_weight)
            # Such a sample weighs nothing.
            idle = 1.0 if weighing is None else 0.0
        elif weighing is not None:
            digits, idle = weighing.total(of.rows, series), 0.0
        else:
            digits, rest, idle = loss_digits(of.rows, series).total, series.level, math.log(2.0)
        folded = with_fold(self._layout, problems)
        totals = add_shares(replies, "losses", len(problems) + len(folded), _FULL)
        sums = np.array(totals) * 2.0**-digits
        rows, samples = self.folds.rows[problems], self.folds.samples[problems]
        held = np.zeros(len(problems))
        held[folded] = sums[len(problems) :]

        def mean(sums: Floats, rows: Floats, samples: Floats) -> Floats:
            return np.asarray((sums + rest * rows - (rows - samples) * idle) / of.samples)

        trained = mean(sums[: len(problems)], of.rows - rows, of.samples - samples)
        return trained, mean(held, rows, samples)

    def _alarms(self, replies: Mapping[str, SlopesReply]) -> Floats:
        rows = self.errors.bounds.rows
        totals = add_shares(replies, "alarms", len(self._problems), _FULL)
        sums: Floats = np.array(totals) * 2.0 ** -sum(alarm_bits(rows)) + EIGHTH_LEVEL * rows
        return sums

    def vector(self, noise: Ints) -> Floats:
        """b = Xᵀα/N of the slopes, on shares; returns its inner products with all vectors.

        They are (vectors × problems), the last row those with itself. ``noise`` has its bits.
        """
        problems = self._problems
        sent = self._deal(lambda: self._dealer.vector(self._serial + 1))
        replies = self._ask(
            VECTOR,
            lambda p, n: VectorRequest(
                round=n,
                serial=self._serial,
                problems=problems,
                slopes=self._total,
                products=sent(p),
            ),
        )
        self._add(replies, "vector")
        return self._products(noise)

    def _products(self, noise: Ints) -> Floats:
        widths, problems = self.errors.widths, self._problems
        dealt = self._deal(lambda: self._dealer.products(self._serial + 1, widths))
        told = self._ask(
            PRODUCTS,
            lambda p, n: ProductsRequest(
                round=n, serial=self._serial, vector=self._total, noise=noise, dealt=dealt(p)
            ),
        )
        self._vectors += 1
        shape = self._vectors, len(problems)
        totals = add_shares(told, "products", self._vectors * len(problems), _WIDE)
        products: Floats = np.array([float(n) for n in totals]).reshape(shape)
        return products * self.errors.unit**2

    def keep(self, number: int, vectors: Ints) -> None:
        """Let parties keep their shares of the points where vectors were made, as a model."""
        self._ask(
            KEEP,
            lambda p, n: KeepRequest(round=n, serial=self._serial, number=number, vectors=vectors),
        )
