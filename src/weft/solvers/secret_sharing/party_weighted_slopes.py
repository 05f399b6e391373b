"""A party's shares of ω·slope and ω·loss, where samples have weights ω.

Whoever counts a sample knows its weight, and nobody else does. At the start all parties open
E = ω − a under masks a, of which each has drawn a part; the dealer knows a, as it knows u, which
hides scores. So it deals a·sin(κu) beside sin(κu): a share of ω·s is E times one of s, and the same
sum with what was dealt times a. Nothing more is opened until products are cut.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats, Ints
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ConfigError
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import GivenValues, PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coalition_knowledge import Told
from weft.solvers.secret_sharing.digit_widths import product_cuts
from weft.solvers.secret_sharing.exponential_fourier_series import (
    MOST_DOUBLINGS,
    AnySeries,
    ExponentialSeries,
    series_for,
)
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA_CENTRE, common_factor
from weft.solvers.secret_sharing.label_telling_model_guard import refuse_uneven
from weft.solvers.secret_sharing.masked_sine_kernels import add_cosines, add_waves
from weft.solvers.secret_sharing.messages import SlopesReply, SlopesRequest, WeighRequest
from weft.solvers.secret_sharing.party_slopes import SlopeShares
from weft.solvers.secret_sharing.sample_weight_digit_widths import (
    COUNT_WEIGHT_DIGITS,
    TIMES_MASKS,
    WEIGHT_DIGITS,
    Weighing,
    told_of_weights,
)
from weft.solvers.secret_sharing.share_arithmetic import DealtShares, cut_scores, public_scores
from weft.solvers.secret_sharing.sine_series import LOSS_TERMS, SCORE_BITS, Series
from weft.solvers.secret_sharing.table_bounds import rounded_up
from weft.solvers.secret_sharing.table_product_kernels import encoded

_LONE_LABELS = (
    "refuses weights of samples, being the only one with labels: the coordinator would learn from "
    "the loss of the start how many samples each class has, or how much they weigh; leave weights "
    "and class_weight out, or agree on allow_lone_labels = true"
)

_SCALED_INTERCEPT = (
    "has a constant column that is not one, from which sealed training of this model could "
    "not begin; set intercept_scaling = 1 and leave unit_rows out, or train with mode = 'sums'"
)


class WeightedSlopeShares(SlopeShares):
    """What scores become where samples weigh differently."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        #: Of the rows that this party counts; None: it has none, and all of them weigh one.
        self._sample_weights: Floats | None = None
        super().__init__(context, settings)
        #: What a run with weights knows of them; None: there are none at anybody's.
        self._weighing: Weighing | None = None
        self._weights_label = ""
        #: Its own weights by row, its share of what hides all of them, and E.
        self._own_weights: Words = np.zeros(0, np.uint64)
        self._weight_masks: Words = np.zeros(0, np.uint64)
        self._masked_weights: Words = np.zeros(0, np.uint64)
        #: The series of slopes that are still to be cut, and whether folds leave their rows out.
        self._series: AnySeries | None = None
        self._held = False
        #: The phase whose masks hide slopes.
        self._slope_serial = 0

    def _take_given(self, given: GivenValues) -> None:
        super()._take_given(given)
        if (given.weight != 1.0).any():
            self._sample_weights = given.weight[self._counted, 0]

    # ── weights under masks ───────────────────────────────────────────────────────────────

    def _told_of_weights(self) -> list[float]:
        """What the coordinator gets in total; of weights that are all one the first is zero."""
        if self._sample_weights is None:
            # Else a lone label holder would tell how many of its samples are left out.
            counts = self._responses or self._context.tells_counts
            return [0.0, rounded_up(float(counts * len(self._counted)))]
        if not (self._responses or self._context.tells_counts):
            raise ConfigError(_LONE_LABELS)
        weighing = self._known_weighing
        return [rounded_up(value) for value in told_of_weights(self._sample_weights, weighing)]

    def _check_weights(self, told: Told) -> None:
        """Object to weights that make a model of few samples."""
        if self._sample_weights is not None:
            weights = np.ones(self._view.n_rows)
            weights[self._counted] = self._sample_weights
            context = self._context
            refuse_uneven(told, weights, context.min_batch, wide=context.wide_models)

    @property
    def _known_weighing(self) -> Weighing:
        digits = COUNT_WEIGHT_DIGITS if self._exponential else WEIGHT_DIGITS
        return Weighing(self._context.bounds.weight, digits=digits)

    @property
    def _counted_weights(self) -> Floats:
        """Of all rows that it counts."""
        mine = self._sample_weights
        return np.ones(len(self._counted)) if mine is None else mine

    def _mask_weights(self, weighed: bool) -> Words | None:
        """Its weights less its masks, to be opened; None: no sample of this run has any."""
        if not weighed:
            if self._sample_weights is not None:
                raise malformed("weighed", "is false, but this party has weights")
            return None
        weighing = self._weighing = self._known_weighing
        rows = self._own_rows
        self._own_weights = np.zeros(self._whole.n_rows, np.uint64)
        self._own_weights[rows] = weighing.words(self._counted_weights)
        self._weight_masks = self._mask("weights of samples", self._whole.n_rows)
        self._weights_label = f"{self._label()} weights"
        return self._pads.put_on(self._own_weights - self._weight_masks, self._weights_label)

    def _take_centre(self, doublings: int, weighed: bool) -> None:
        """Series of a Poisson loss are for scores about this one."""
        if abs(doublings) > (MOST_DOUBLINGS if self._exponential else 0):
            raise malformed("centre", "is none that a series can have")
        if doublings and self._view.bias_slot >= 0 and self._context.bias != 1.0:
            raise ConfigError(_SCALED_INTERCEPT)
        if self._gamma:
            if doublings != (GAMMA_CENTRE if self._divides else 0):
                raise malformed("centre", "is not that of a gamma model")
            given = 0.0 if self._offsets is None else self._offsets
            self._offsets = self._divided_responses - given
        if self._exponential:
            digits = COUNT_WEIGHT_DIGITS if weighed else 0
            self._ladder = series_for(self._loss, doublings, digits)

    @property
    def _divides(self) -> bool:
        """Whether responses of a gamma model are divided by the same number."""
        raise NotImplementedError

    @property
    def _common_factor(self) -> float:
        """Its logarithm, which a free intercept makes good."""
        return common_factor(self._context.bounds.label) if self._divides else 0.0

    @property
    def _divided_responses(self) -> Floats:
        """What is added to scores of a gamma model, but for offsets."""
        found: Floats = self._log_responses - self._common_factor
        return found

    def _take_weights(self, total: Words | None) -> None:
        if (total is None) != (self._weighing is None):
            raise malformed("weights", "are there in a run without any, or are not")
        if total is not None:
            rows = self._whole.n_rows
            self._masked_weights = self._pads.take_off(total, rows, self._weights_label)

    def _label_slopes(self, problems: Ints) -> Words:
        """(problems × counted rows) what its labels add to slopes."""
        labels = self._labels_of(problems)
        if self._sample_weights is not None:
            labels = labels * self._sample_weights
        return encoded(-labels if self._responses else -0.5 * labels, self._widths.slope)

    # ── weighed slopes ────────────────────────────────────────────────────────────────────

    def _weighed(self, shares: Words, times_masks: Words) -> Words:
        """Shares of ω·s from those of s and a·s: (ω − a)·s + a·s."""
        found: Words = self._masked_weights * shares + times_masks
        return found

    def _weighed_scores(self, opened: Words, dealt: DealtShares) -> Words:
        """Shares of ω·z, z cut, under masks; (1 × problems × rows)."""
        assert self._weighing is not None
        self._series, digits = None, self._weighing.score_cut
        name = str(self._serial)
        low, top, low_times, top_times = (
            dealt.take(f"{name} {part}{times}", *opened.shape)
            for times in ("", TIMES_MASKS)
            for part in ("low", "top")
        )
        plain = cut_scores(opened, (low, top), digits, self._first)
        times = cut_scores(opened, (low_times, top_times), digits, False)
        # What is public of a score, times its share of a.
        times += self._weight_masks * public_scores(opened, digits)
        return self._hide_products(self._weighed(plain, times)[None])

    def _weighed_waves(self, opened: Words, series: Series, dealt: DealtShares) -> Words:
        """Shares of ω·slope and ω·loss under masks; (2 × problems × rows)."""
        assert self._weighing is not None
        self._series, digits = series, self._weighing.products(series)
        slow, fast = series.even[:LOSS_TERMS], series.even.copy()
        fast[:LOSS_TERMS] = 0.0
        odd = series.odd * 2.0 ** (digits.slope - digits.dealt)
        even = fast * 2.0 ** (digits.loss - digits.dealt)
        # Without a's factor, and with it; slopes, and losses.
        shares = np.zeros((2, 2, *opened.shape), np.uint64)
        for number, times in enumerate(("", TIMES_MASKS)):
            slopes, losses = shares[number]
            for at, seed, words in self._blocks(opened.shape, "wave", series.terms, dealt, times):
                add_waves(opened[at], series.words, odd, even, seed, words, slopes[at], losses[at])
        even = slow * 2.0 ** (digits.loss - digits.slow)
        for number, times in enumerate(("", TIMES_MASKS)):
            losses = shares[number, 1]
            for at, seed, words in self._blocks(opened.shape, "loss", LOSS_TERMS, dealt, times):
                add_cosines(opened[at], series.words[:LOSS_TERMS], even, seed, words, losses[at])
        found = self._weighed(shares[0], shares[1])
        # The level of a series, of which every loss has as much as it weighs.
        found[1] += self._own_weights * encoded(np.array(series.level), digits.loss)
        return self._hide_products(found)

    def _exponentials(
        self, opened: Words, series: ExponentialSeries, name: str, dealt: DealtShares
    ) -> Words:
        """Shares of e^z, times weights; (problems × rows)."""
        # How far scores are from the centre, which all know.
        opened = opened - encoded(np.array(series.centre), SCORE_BITS)
        public = 2.0**series.public
        odd, even = series.sines * public, series.cosines * public
        level = encoded(np.array(series.level), series.public + series.dealt)
        found: Words = np.zeros((2, *opened.shape), np.uint64)
        for number, times in enumerate(self._factors):
            sines, cosines = np.zeros((2, *opened.shape), np.uint64)
            for at, seed, words in self._blocks(opened.shape, name, series.terms, dealt, times):
                add_waves(opened[at], series.words, odd, even, seed, words, sines[at], cosines[at])
            found[number] = sines + cosines
        total: Words = found[0]
        if self._weighing is not None:
            total = self._weighed(found[0], found[1]) + self._own_weights * level
        elif self._first:
            total = total + level
        return total

    @property
    def _factors(self) -> tuple[str, ...]:
        """What is dealt: without a's factor, and, where samples have weights, with it."""
        return ("",) if self._weighing is None else ("", TIMES_MASKS)

    def _hide_products(self, products: Words) -> Words:
        return self._hide(products + self._mask("weighed", *products.shape))

    def _cut_products(self, total: Words, dealt: DealtShares) -> tuple[Words, bytes | None]:
        """Shares of ω·slope in the digits of slopes; those of the sum of losses, with noise."""
        weighing, series, rows = self._weighing, self._series, self._whole.n_rows
        opened = self._open(total)
        if weighing is None and not isinstance(series, ExponentialSeries):
            raise malformed("slopes", "are to be cut in a run that has no use for it")
        label = self._largest_label
        cuts = product_cuts(series, weighing, self._widths.slope, rows, label)
        shape = len(cuts), *opened.shape[1:]
        # Of a Poisson loss, slope and loss are the same, but for labels and digits.
        opened = np.broadcast_to(opened, shape)
        low = dealt.take(f"{self._serial} low", *shape)
        top = dealt.take(f"{self._serial} top", *shape)
        dealt.end()
        slopes, *losses = (
            cut_scores(words, (shares[0], shares[1]), cut, self._first)
            for words, *shares, cut in zip(opened, low, top, cuts, strict=True)
        )
        if isinstance(series, ExponentialSeries):
            most = 1.0 if weighing is None else weighing.most
            digits = series.loss_digits(rows, label, most)
            size = series.loss_noise(rows, label, most)
        elif series is not None and weighing is not None:
            digits, size = weighing.total(rows, series), weighing.noise(rows, series)
        else:
            return slopes, None
        return slopes, self._tell_losses(losses[0], digits, size)

    def _given_losses(self) -> Floats | None:
        given, mine = super()._given_losses(), self._sample_weights
        return given if given is None or mine is None else given * mine

    # ── slopes, weighed or not ────────────────────────────────────────────────────────────

    def _slopes(self, message: SlopesRequest) -> SlopesReply:
        opened = self._open(message.scores)
        dealt = self._dealt(message.dealt)
        self._held = message.held
        if self._squared and self._weighing is not None:
            products = self._weighed_scores(opened, dealt)
            dealt.end()
            return SlopesReply(slopes=products)
        if self._squared:
            digits = SCORE_BITS - self._widths.slope
            shares = (
                dealt.take(f"{self._serial} low", *opened.shape),
                dealt.take(f"{self._serial} top", *opened.shape),
            )
            dealt.end()
            slopes = cut_scores(opened, shares, digits, self._first)
            return SlopesReply(slopes=self._hide_slopes(slopes, held=message.held))
        if not 0 <= message.series < len(self._ladder):
            raise malformed("series", "is not known")
        series = self._ladder[message.series]
        reply = SlopesReply(slopes=np.zeros(0, np.uint64))
        if isinstance(series, ExponentialSeries):
            self._series = series
            found = self._exponentials(opened, series, "wave", dealt)
            reply.slopes = self._hide_products(found[None])
            opened = opened - encoded(np.array(series.centre), SCORE_BITS)
        elif self._weighing is None:
            slopes, reply.losses = self._waves(opened, series, dealt)
            reply.slopes = self._hide_slopes(slopes, held=message.held)
        else:
            reply.slopes = self._weighed_waves(opened, series, dealt)
        if message.period:
            reply.alarms = self._alarms(opened, series, message.period, dealt)
        dealt.end()
        return reply

    def _weigh(self, message: WeighRequest) -> SlopesReply:
        """Cut slopes and losses that are weighed, and go on as where all samples weigh one."""
        slopes, losses = self._cut_products(message.slopes, self._dealt(message.dealt))
        return SlopesReply(slopes=self._hide_slopes(slopes, held=self._held), losses=losses)

    def _hide_slopes(self, slopes: Words, *, held: bool) -> Words:
        """Add what its labels say, and hide slopes under masks.

        Slopes are zero but in rows that a problem trains on, or leaves out if those are ``held``.
        """
        slopes[:, self._own_rows] += self._label_slopes(self._problems)
        left_out = self._fold_rows.left_out(self._problems)
        slopes[~left_out if held else left_out] = 0
        self._slope_serial = self._serial
        return self._hide(slopes - self._mask("slopes", *slopes.shape))
