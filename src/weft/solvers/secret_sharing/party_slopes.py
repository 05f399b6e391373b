"""A party's shares of slopes, losses and alarms: sums of dealt sines and cosines of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import scipy

from weft.array_types import Floats, Ints
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ProtocolError
from weft.fast_small_array_operations import among
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import GivenValues, PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.digit_widths import (
    EIGHTH_POWER,
    Widths,
    alarm_bits,
    alarm_noise_bits,
    loss_digits,
)
from weft.solvers.secret_sharing.exponential_fourier_series import AnySeries, series_for
from weft.solvers.secret_sharing.fold_rows import FoldRows, with_fold
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA
from weft.solvers.secret_sharing.label_telling_model_guard import refuse_standing_out
from weft.solvers.secret_sharing.masked_sine_kernels import add_cosines, add_waves, blocks_of
from weft.solvers.secret_sharing.party_answers_in_order import AnswersInOrder
from weft.solvers.secret_sharing.responses_unexplained_by_own_columns import (
    LOGISTIC,
    Responses,
    unexplained,
)
from weft.solvers.secret_sharing.scalars_opened_in_total import pack_shares
from weft.solvers.secret_sharing.share_arithmetic import DealtShares, noise
from weft.solvers.secret_sharing.sine_series import (
    ALARM_TERMS,
    LOSS_TERMS,
    SCORE_BITS,
    Series,
    alarm_multiples,
)
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES
from weft.solvers.secret_sharing.table_positions import WholeTable
from weft.solvers.secret_sharing.table_product_kernels import encoded
from weft.solvers.secret_sharing.wide_ring import numbers_of
from weft.solvers.subspace.class_fold_problems import Problems

_FULL, _RING = 64, 1 << 64


class SlopeShares(AnswersInOrder):
    """What scores become, per problem and row."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context)
        self._table: WholeTable | None = None
        self._widths = Widths(0, 0)
        self._all_problems = Problems(context.labels.shape[1], settings.folds)
        self._fold_rows = FoldRows(self._all_problems, np.zeros(0, np.int64))
        self._problems: Ints = np.arange(self._all_problems.width)
        self._lambdas = settings.lambdas
        self._loss, self._squared = settings.loss, settings.loss == "squared"
        #: Series of its slopes, and whether labels are responses.
        self._ladder = series_for(settings.loss)
        self._exponential = settings.loss in EXPONENTIAL_LOSSES
        self._responses = self._squared or self._exponential
        #: Rows that this party counts, their labels, and what is added to their scores.
        self._counted: Ints = np.flatnonzero(context.view.counted_rows)
        self._labels: Floats = context.labels[self._counted]
        self._offsets: Floats | None = None
        #: Of a gamma model: log y, while every label is one.
        self._log_responses: Floats = np.zeros(0)
        if context.given is not None:
            self._take_given(context.given)
        self._gamma = settings.loss == GAMMA
        if self._gamma:
            self._log_responses = np.log(self._labels[:, 0])
            self._labels = np.ones_like(self._labels)

    def _take_given(self, given: GivenValues) -> None:
        """Add offsets to scores; to squares of z − y they are as other labels are."""
        offsets = given.offset[self._counted]
        if self._squared:
            self._labels = self._labels - offsets
        else:
            self._offsets = offsets[:, 0]

    def _check_responses(self, cells: Floats) -> None:
        """Object to responses, and to offsets, of which few samples have nearly all.

        Each by itself: whoever tells offsets would find responses by runs that are refused.
        """
        context, least = self._context, self._context.min_batch
        if least <= 1 or not len(self._counted):
            return
        if self._responses and context.given is not None:
            for offsets in context.given.offset[self._counted].T:
                # Slopes have e^o of a mean, and of a gamma model y e^−o.
                sign = -1.0 if self._gamma else 1.0
                means = offsets if self._squared else np.exp(sign * (offsets - offsets.mean()))
                refuse_standing_out(means, "offsets", least)
        context.judge_responses(self._counted, lambda: self._judge_responses(cells))

    def _judge_responses(self, cells: Floats) -> None:
        """By squares, and labels too by what its own columns and offsets leave, weighed."""
        context, least = self._context, self._context.min_batch
        responses = context.labels[self._counted]
        weights, offsets = np.ones(len(responses)), np.zeros(len(responses))
        if context.given is not None and not context.given_by_others:
            weights = context.given.weight[self._counted, 0]
            offsets = context.given.offset[self._counted, 0]
        for column in responses.T if self._responses else ():
            refuse_standing_out(column, "responses", least, None if self._squared else weights**2)
        own = cells[self._counted]
        holders = self._view.cell_holders
        if holders is not None and self._view.overlap == "mean":
            # Else others would choose, by which cells they have too, what columns explain.
            own = own * holders[self._view.row_cohort[self._counted]][:, self._view.column_cohort]
        loss = self._loss if self._responses else LOGISTIC
        mend = "cut the largest" if self._responses else "use a larger lambda"
        what = f"{'responses' if self._responses else 'labels'} less what its own columns explain"
        for column, penalty in product(responses.T, self._penalties(len(own))):
            if self._squared:
                given = Responses(column - offsets, own, weights, 0 * offsets, loss)
            else:
                given = Responses(column, own, weights, offsets, loss)
            for left in unexplained(given, least, penalty, self._shared_columns):
                # Labels that columns nearly tell are usual: there falls say nothing.
                without = left.falls if self._responses else None
                refuse_standing_out(left.slopes, what, least, without=without, mend=mend)

    @property
    def _shared_columns(self) -> list[int]:
        """Places of one's own columns that others have too."""
        own = self._whole.places[self._party].columns
        others = [p.columns for n, p in enumerate(self._whole.places) if n != self._party]
        return np.flatnonzero(among(own, np.concatenate([*others, own[:0]]))).tolist()

    def _penalties(self, rows: int) -> list[float]:
        """None, and λN; what it is beside one's own rows alone depends on those of others. Labels
        that columns tell have no weights without one."""
        whole, none = self._whole.n_rows, [0.0] if self._responses else []
        counts = rows, math.sqrt(rows * whole), whole
        return sorted({*none, *(lam * count for lam in self._lambdas for count in counts)})

    @property
    def _largest_label(self) -> float:
        return 1.0 if self._gamma else self._context.bounds.label

    def _labels_of(self, problems: Ints) -> Floats:
        """(problems × counted rows) labels."""
        found: Floats = self._labels[:, self._all_problems.class_of[problems]].T
        return found

    @property
    def _whole(self) -> WholeTable:
        if self._table is None:
            raise ProtocolError("a phase of sealed training comes too early")
        return self._table

    def _waves(self, opened: Words, series: Series, dealt: DealtShares) -> tuple[Words, bytes]:
        """Shares of slopes, and of the sum of losses with noise."""
        widths = self._widths
        digits = loss_digits(self._whole.n_rows, series)
        slow, fast = series.even[:LOSS_TERMS], series.even.copy()
        fast[:LOSS_TERMS] = 0.0
        slopes, losses = np.zeros(opened.shape, np.uint64), np.zeros(opened.shape, np.uint64)
        odd = series.odd * 2.0 ** widths.public(series)
        even = fast * 2.0 ** (digits.total - widths.dealt(series))
        for at, seed, words in self._blocks(opened.shape, "wave", series.terms, dealt):
            add_waves(opened[at], series.words, odd, even, seed, words, slopes[at], losses[at])
        even = slow * 2.0 ** (digits.total - digits.dealt)
        for at, seed, words in self._blocks(opened.shape, "loss", LOSS_TERMS, dealt):
            add_cosines(opened[at], series.words[:LOSS_TERMS], even, seed, words, losses[at])
        return slopes, self._tell_losses(losses, digits.total, digits.noise)

    def _tell_losses(self, losses: Words, digits: int, size: int) -> bytes:
        """Sums of losses over rows that problems train on, and that folds leave out, with noise."""
        given = self._given_losses()
        if given is not None:
            losses[:, self._own_rows] += encoded(given, digits)
        left_out = self._fold_rows.left_out(self._problems)
        held = [int(row[out].sum()) for row, out in zip(losses, left_out, strict=True)]
        trained = [int(row.sum()) - out for row, out in zip(losses, held, strict=True)]
        folded = with_fold(self._all_problems, self._problems).tolist()
        told = trained + [held[at] for at in folded]
        return self._tell("losses", told, size)

    def _given_losses(self) -> Floats | None:
        """What labels and offsets o add to losses by themselves; None: nothing.

        Labels add −½ yz to a loss, to a Poisson loss y log y − y − yz: of weights by w·b_0, which
        the coordinator computes.
        """
        labels, offsets = self._labels_of(self._problems), self._offsets
        if self._exponential:
            given: Floats = scipy.special.xlogy(labels, labels) - labels
            return given if offsets is None else given - labels * offsets
        return None if offsets is None else -0.5 * labels * offsets

    @property
    def _own_rows(self) -> Ints:
        """Numbers of the rows that this party counts, in the whole table."""
        return self._whole.places[self._party].rows[self._counted]

    def _alarms(self, opened: Words, series: AnySeries, period: int, dealt: DealtShares) -> bytes:
        """Shares of Σ sin⁸(πz/P), with noise."""
        rows = self._whole.n_rows
        if period & (period - 1) or not 2 * series.reach <= period <= 1 << (64 - SCORE_BITS):
            raise malformed("period", "is none that the alarm can have")
        _, public = alarm_bits(rows)
        multiples, even = alarm_multiples(period), EIGHTH_POWER * 2.0**public
        alarms = np.zeros(opened.shape, np.uint64)
        for at, seed, words in self._blocks(opened.shape, "alarm", ALARM_TERMS, dealt):
            add_cosines(opened[at], multiples, even, seed, words, alarms[at])
        size = alarm_noise_bits(rows, series.reach, period, self._parties)
        # Over all rows: what folds leave out must lie in the reach of the series too.
        return self._tell("alarms", [int(row.sum()) for row in alarms], size)

    def _blocks(
        self, shape: tuple[int, ...], name: str, terms: int, dealt: DealtShares, times: str = ""
    ) -> Iterator[tuple[tuple[int, slice], np.uint64, Words]]:
        """Problem and rows of every block, where its dithers begin, and its share of waves.

        What is dealt ``times`` something is rounded as what is not.
        """
        problems, rows = shape
        # All parties round alike, other problems otherwise.
        dithers = [
            self._pads.common_word(f"{self._label()} {name} {problem}")
            for problem in range(problems)
        ]
        places = [(problem, part) for problem in range(problems) for part in blocks_of(rows)]
        sizes = [2 * terms * (part.stop - part.start) for _, part in places]
        words = dealt.blocks(f"{self._serial} {name}{times}", sizes)
        for (problem, part), some in zip(places, words, strict=True):
            seed = np.uint64((dithers[problem] + part.start) % _RING)
            yield (problem, part), seed, some

    def _tell(self, field: str, totals: list[int], size: int) -> bytes:
        """Shares of totals with this party's noise, for the coordinator to read in sum."""
        label = f"{self._serial} {field}"
        drawn = numbers_of(noise(self._own_seed, label, [size] * len(totals)))
        noisy = [share + extra for share, extra in zip(totals, drawn, strict=True)]
        return pack_shares(self._cipher, field, noisy, _FULL)
