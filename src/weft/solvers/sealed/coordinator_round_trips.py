"""The coordinator's round trips in sealed training: it adds ciphertext, deals, and asks again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto import Adder
from weft.crypto.primitives.seeded_words import SEED_BYTES, Words
from weft.errors import PartyAway, ProtocolError
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Message, Phase
from weft.protocol.request_reply import R
from weft.solvers.sealed.dealer import Dealer
from weft.solvers.sealed.digit_widths import (
    EIGHTH_LEVEL,
    Errors,
    alarm_bits,
    choose_widths,
    intercept_units,
    loss_digits,
)
from weft.solvers.sealed.fold_rows import (
    FoldSizes,
    refuse_small,
    rows_of_folds,
    told_of_folds,
    with_fold,
)
from weft.solvers.sealed.messages import (
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
    SealedRequest,
    SlopesReply,
    SlopesRequest,
    TablesRequest,
    VectorRequest,
    WeighRequest,
)
from weft.solvers.sealed.share_scalars import Told, add_shares
from weft.solvers.sealed.sine_series import SERIES
from weft.solvers.sealed.table_bounds import BOUNDS, table_bounds
from weft.solvers.sealed.table_positions import shapes_of, whole_table
from weft.solvers.sealed.weight_digits import Weighing
from weft.solvers.settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.sums.scalar_sums import add_scalars

Asked = TypeVar("Asked", bound=SealedRequest)

#: Seconds between two questions to a party that does not answer: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_FULL, _WIDE = 64, 128


class SealedExchange:
    """All phases, each until everyone has answered, with what the dealer adds to them.

    Attributes
    ----------
    errors
        Bounds, widths and how far results may be off, once tables are masked.
    folds
        What is left out by which problem.
    dealer_seconds, dealt_bytes, opened_bytes
        What dealing has taken, what it has sent, and what parties have opened.
    """

    def __init__(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        problems: Problems,
        weight: float = 1.0,
    ) -> None:
        self._channel, self._holdings = channel, holdings
        self._settings, self._adder, self._weight = settings, adder, weight
        self._layout, self._squared = problems, settings.loss == "squared"
        self._left_out = rows_of_folds(int(holdings.rows.sizes.sum()), problems.folds)
        refuse_small(self._left_out.tolist(), holdings.terms.min_batch)
        self._serial = 0
        self.notes: list[str] = []
        self.dealer_seconds, self.dealt_bytes, self.opened_bytes = 0.0, 0, 0
        self._last = holdings.parties[-1]
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
        #: What parties have told under masks and pads, added up.
        self._total: Words = np.zeros(0, np.uint64)
        self._problems: Ints = np.arange(problems.width)

    @property
    def intercept_length(self) -> float:
        """Of the vector of a free intercept, in units of gradients; zero: there is none."""
        free = self._settings.frees_intercept(self._holdings.bias_slot >= 0)
        return intercept_units(self.errors.widths) * self.errors.unit if free else 0.0

    @property
    def _weighing(self) -> Weighing | None:
        """What is known of weights of samples; None: all weigh one."""
        return self.errors.bounds.weighing

    # ── asking ────────────────────────────────────────────────────────────────────────────

    def _ask(
        self,
        phase: Phase[Asked, R],
        build: Callable[[str, int], Asked],
    ) -> dict[str, R]:
        """Ask everyone, and again whoever did not answer; phases are answered once."""
        self._serial += 1
        answers: dict[str, R] = {}
        began, pause = self._channel.elapsed, _FIRST_PAUSE
        while True:
            round_ = self._adder.advance()
            waiting = [p for p in self._holdings.parties if p not in answers]
            replies = self._channel.ask(phase, {p: build(p, round_) for p in waiting})
            replies.stop_on_refusal()
            answers.update(replies.answered)
            if not replies.missing:
                return {party: answers[party] for party in self._holdings.parties}
            if self._channel.elapsed - began + pause > self._settings.patience:
                party, failure = next(iter(replies.missing.items()))
                raise PartyAway(
                    f"{party} did not answer ({failure.reason}), and sealed training needs "
                    "everyone; bring it back, and resume the run or start again"
                )
            self._channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _add(self, replies: Mapping[str, Message], field: str) -> None:
        """Add what parties sent, word by word, without reading it."""
        total: Words | None = None
        for party, reply in replies.items():
            words: Words | None = getattr(reply, field)
            if words is None or (total is not None and words.shape != total.shape):
                raise ProtocolError(f"party {party} sent a malformed field '{field}'")
            total = words.copy() if total is None else total + words
            self.opened_bytes += words.nbytes
        assert total is not None
        self._total = total

    def _deal(self, make: Callable[[], Words]) -> Callable[[str], Words | None]:
        """What is dealt: to the last party, whose share does not follow from a seed."""
        began = perf_counter()
        words = make().reshape(-1)
        self.dealer_seconds += perf_counter() - began
        self.dealt_bytes += words.nbytes
        return lambda party: words if party == self._last else None

    # ── setting up ────────────────────────────────────────────────────────────────────────

    def _set_up(self, begin: BeginRequest) -> tuple[Dealer, Errors, FoldSizes]:
        holdings = self._holdings
        begun = self._ask(
            BEGIN, lambda p, n: msgspec.structs.replace(begin, round=n, serial=self._serial)
        )
        more = told_of_folds(self._layout, squared=self._squared)
        totals = add_scalars(begun, "bounds", BOUNDS + more, holdings.parties)
        if totals is None or any(len(reply.seed) != SEED_BYTES for reply in begun.values()):
            raise ProtocolError("a party sent no seed for sealed training; the run stops")
        if not all(0.0 <= total < np.inf for total in totals):
            raise ProtocolError("the parties' bounds do not add up to any of a table; start again")
        bounds = table_bounds(totals[:BOUNDS], holdings, self._squared, self._weight)
        sizes = FoldSizes.of(
            self._layout,
            self._left_out,
            totals[BOUNDS:],
            holdings.terms.min_batch,
            squared=self._squared,
        )
        widths = choose_widths(bounds, self._squared, self._table.n_columns)
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
        if self._weighing is not None:
            replies = self._weigh(replies, level)
        self._take_slopes(replies)
        if self._squared:
            return Told(nothing, nothing, nothing)
        return Told(*self._losses(replies, level), alarms)

    def _dealt_for_slopes(self, level: int, period: int) -> Words:
        dealer, serial, widths = self._dealer, self._serial + 1, self.errors.widths
        if not self._squared:
            return dealer.series(serial, SERIES[level], period, widths, self._weighing)
        if self._weighing is not None:
            return dealer.cut_weighed_scores(serial, self._weighing.score_cut)
        return dealer.cut_scores(serial, widths)

    def _weigh(self, replies: Mapping[str, SlopesReply], level: int) -> dict[str, SlopesReply]:
        """Cut slopes and losses that are weighed: one more round trip."""
        weighing, rows = self._weighing, self.errors.bounds.rows
        assert weighing is not None
        series = None if self._squared else SERIES[level]
        cuts = [weighing.slope_cut(series, self.errors.widths.slope)]
        if series is not None:
            cuts.append(weighing.loss_cut(rows, series))
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
        series, of, problems = SERIES[level], self.errors.bounds, self._problems
        weighing = self._weighing
        digits = loss_digits(of.rows, series).total
        if weighing is not None:
            digits = weighing.total(of.rows, series)
        folded = with_fold(self._layout, problems)
        totals = add_shares(replies, "losses", len(problems) + len(folded), _FULL)
        sums = np.array(totals) * 2.0**-digits
        rows, samples = self.folds.rows[problems], self.folds.samples[problems]
        held = np.zeros(len(problems))
        held[folded] = sums[len(problems) :]

        def mean(sums: Floats, rows: Floats, samples: Floats) -> Floats:
            if weighing is not None:
                return np.asarray(sums / of.samples)
            # A sample that is in no problem has a score of zero.
            out = (sums + series.level * rows - (rows - samples) * np.log(2.0)) / of.samples
            return np.asarray(out)

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
