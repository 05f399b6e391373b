"""A party's shares of curvatures at a released model, σ'(z) or e^z, and of sums that guards need.

Few rows must not have nearly all of a Hessian. How much they have follows from the model: so
parties open counts of rows that have a part in it, to all of them, with noise that each draws for
itself, and may keep the Hessian back.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words, seeded_words
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.curvature_series import CURVATURES, CurvatureSeries
from weft.solvers.secret_sharing.exponential_fourier_series import ExponentialSeries
from weft.solvers.secret_sharing.few_rows_dominate_poisson_hessian import (
    BROAD,
    STEEP,
    MeanCaps,
    is_beyond,
    mean_counts,
    surely,
)
from weft.solvers.secret_sharing.label_leak_of_gradient import (
    column_size,
    digits_told,
    label_digits,
    tells_gradient,
    tells_of_few,
)
from weft.solvers.secret_sharing.masked_sine_kernels import add_waves
from weft.solvers.secret_sharing.messages import BendsReply, BendsRequest
from weft.solvers.secret_sharing.party import SealedParty
from weft.solvers.secret_sharing.sample_weight_digit_widths import TIMES_MASKS
from weft.solvers.secret_sharing.second_moment_digits_and_errors import (
    FEWEST_BENDS,
    MOST_BENDS,
    bend_cuts,
    bend_digits,
    bend_total,
    square_noise,
    sum_noise,
)
from weft.solvers.secret_sharing.second_moment_guard import row_groups, too_decided
from weft.solvers.secret_sharing.share_arithmetic import DealtShares, noise
from weft.solvers.secret_sharing.sine_series import SCORE_BITS
from weft.solvers.secret_sharing.table_positions import WholeTable
from weft.solvers.secret_sharing.table_product_kernels import encoded
from weft.solvers.solver_interfaces_and_results import WITHHELD, MomentShare


class CurvatureShares(SealedParty):
    """What scores of a released model become, row by row."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._asked_for = settings.second_moments
        #: The problem of a kept model whose Hessian is being made.
        self._kept: tuple[int, int] | None = None
        #: Leading digits of its curvatures, those that follow, and digits that are cut off them and
        #: slopes.
        self._bend_digits, self._rest_digits, self._cuts = 0, 0, (0, 0, 0)
        #: Of sums that guards need: under which pads they go, and how far each may be off by row.
        self._sums_label, self._bend_error = "", 0.0
        #: Of a Poisson model: its series, and shares of what rows add to two counts.
        self._means: ExponentialSeries | None = None
        self._mean_counts: dict[str, Words] = {}
        #: Of its own columns.
        self._largest_column = 0.0
        #: Whether a gradient would tell labels of few rows by these.
        self._columns_tell = False

    def _check_table(self, table: WholeTable, cells: Floats) -> None:
        super()._check_table(table, cells)
        self._largest_column = column_size(self._view, cells)
        if "hessian" in self._asked_for and not self._squared:
            self._columns_tell = tells_of_few(self._view, cells, self._fewest_digits)

    def _bends(self, message: BendsRequest) -> BendsReply:
        """Shares of σ'(z) and of σ(z) − ½ of one problem, or of e^z twice, under masks."""
        opened = self._open(message.scores)
        if self._kept is None or self._gamma or not 0 <= message.series < len(self._ladder):
            raise malformed("series", "has no curvature at a model that was kept")
        series = self._ladder[message.series]
        self._means = series if isinstance(series, ExponentialSeries) else None
        curvature = self._means or CURVATURES[message.series]
        total = bend_total(curvature, self._weighing)
        cuts = bend_cuts(total, message.width, message.rest, self._widths.slope)
        # Few digits are enough where they are right on average, as those of e^z are.
        least = FEWEST_BENDS if self._means is None else FEWEST_BENDS - MOST_BENDS
        if not least <= message.width <= MOST_BENDS or not 0 <= message.rest <= MOST_BENDS:
            raise malformed("width", "is not one that curvatures can have")
        if not all(0 < cut < 62 for cut in cuts):
            raise malformed("width", "is not one that curvatures can have")
        self._bend_digits, self._rest_digits, self._cuts = message.width, message.rest, cuts
        dealt = self._dealt(message.dealt)
        if isinstance(curvature, ExponentialSeries):
            found = np.repeat(self._exponentials(opened, curvature, "bend", dealt), 2, axis=0)
            self._count_means(opened, curvature, dealt)
        else:
            found = self._bend_shares(opened, curvature, dealt)
        dealt.end()
        return BendsReply(bends=self._hide(found + self._mask("bends", *found.shape)))

    def _bend_shares(self, opened: Words, series: CurvatureSeries, dealt: DealtShares) -> Words:
        """(2 × rows) shares of σ'(z) and σ(z) − ½, times weights."""
        weighing, self._bend_error = self._weighing, series.error
        digits = bend_digits(series, weighing)
        odd, even = (f * 2.0**digits.public for f in (series.slope_factors, series.factors))
        shares = np.zeros((2, 2, self._whole.n_rows), np.uint64)
        for number, times in enumerate(("", TIMES_MASKS) if weighing is not None else ("",)):
            for at, seed, words in self._blocks(opened.shape, "bend", series.terms, dealt, times):
                bends, slopes = shares[number, :, at[1]]
                add_waves(opened[at], series.words, odd, even, seed, words, slopes, bends)
        return shares[0] if weighing is None else self._weighed(shares[0], shares[1])

    def _count_means(self, opened: Words, series: ExponentialSeries, dealt: DealtShares) -> None:
        """Shares of what every row adds to the counts of means beyond caps, less a half."""
        rows = self._whole.n_rows
        caps = MeanCaps.of(self._whole, self._view.min_batch, series)
        for name, count in mean_counts(series.reach).items():
            from_cap = opened - encoded(np.array(series.centre + caps.of_count(name)), SCORE_BITS)
            odd = count.factors * 2.0 ** count.digits(rows).public
            found, nothing = np.zeros((2, *opened.shape), np.uint64)
            for at, seed, words in self._blocks(opened.shape, name, len(odd), dealt):
                add_waves(
                    from_cap[at], count.words, odd, 0.0 * odd, seed, words, found[at], nothing[at]
                )
            self._mean_counts[name] = found[0]

    # ── sums for guards ───────────────────────────────────────────────────────────────────

    def _sums_of(self, leading: Words) -> Words:
        """Shares of sums over groups of rows, with noise that even the dealer does not know."""
        groups = row_groups(self._whole)
        if self._means is not None:
            sums, bits = self._mean_sums(self._means)
        else:
            # Of a squared loss, what one sample can add is four times as large.
            bits = [sum_noise(self._bend_digits, self._weighing) + 2 * self._squared] * len(groups)
            sums = [leading[rows].sum() for rows in groups]
        if self._weighing is not None:
            # Whoever counts a sample knows its weight.
            squares = np.zeros(self._whole.n_rows)
            squares[self._own_rows] = (self._counted_weights / self._weighing.most) ** 2
            words = encoded(squares, self._bend_digits)
            sums += [words[rows].sum() for rows in groups]
            bits += [square_noise(self._bend_digits)] * len(groups)
        drawn = noise(self._own_seed, f"{self._serial} sums", bits)[:, 0]
        return drawn + np.array(sums, np.uint64)

    def _mean_sums(self, series: ExponentialSeries) -> tuple[list[np.uint64], list[int]]:
        """Of means: how many times the lower cap goes into those of a group, and how many of all
        are above the upper one; and bits of noise."""
        rows, counts = self._whole.n_rows, mean_counts(series.reach)
        groups = row_groups(self._whole)
        sums = [self._mean_counts[BROAD][some].sum() for some in groups]
        bits = [counts[BROAD].noise(rows, self._parties)] * len(groups)
        beyond, fine = self._mean_counts[STEEP].sum(), counts[STEEP].noise(rows, self._parties)
        return [*sums, beyond], [*bits, fine]

    def _too_decided(self, told: Words) -> bool:
        """Whether few samples have nearly all of the Hessian."""
        if self._means is not None:
            return self._too_few_means(told, self._means)
        groups = row_groups(self._whole)
        weighed, most = self._weighing is not None, self._most_weight
        count, unit = len(groups), 2.0**-self._bend_digits
        sums = self._pads.take_off(told, count * (1 + weighed), self._sums_label)
        values = sums.view(np.int64) * unit
        sizes = np.array([len(rows) for rows in groups])
        # By the largest weight, and at least.
        bends = np.maximum(values[:count] / most - sizes * (self._bend_error + unit / most), 0.0)
        squares = np.maximum(values[count:] + self._parties / 64, unit) if weighed else None
        undecided, least = self._undecided(bends, squares), self._context.min_batch
        return too_decided(self._view, self._whole, undecided.tolist(), least, weighed=weighed)

    def _undecided(self, bends: Floats, squares: Floats | None) -> Floats:
        """How many samples have a part in a Hessian, at least, by sums of curvatures."""
        found: Floats = 4 * bends
        # (Σωσ')²/Σ(ωσ')², whose denominator is no more than Σω²/16.
        return found if squares is None else np.maximum(found, 16 * bends**2 / squares)

    def _too_few_means(self, told: Words, series: ExponentialSeries) -> bool:
        groups, rows, least = row_groups(self._whole), self._whole.n_rows, self._context.min_batch
        counts, parties = mean_counts(series.reach), self._parties
        caps = MeanCaps.of(self._whole, self._view.min_batch, series)
        sums = self._pads.take_off(told, len(groups) + 1, self._sums_label).view(np.int64)
        values = sums * 2.0 ** -counts[BROAD].digits(rows).total
        # A row is at half of what it adds where its mean is at the cap.
        found = [
            surely(float(value) + 0.5 * len(some), len(some), parties, series.reach)
            for value, some in zip(values[:-1], groups, strict=True)
        ]
        beyond = float(values[-1]) + 0.5 * rows
        if least > 1 and is_beyond(beyond, rows, series.reach):
            return True
        alike = [caps.rows_alike(count) for count in found]
        return too_decided(self._view, self._whole, alike, least, weighed=False)

    @property
    def _most_weight(self) -> float:
        return 1.0 if self._weighing is None else self._weighing.most

    @property
    def _noise_scale(self) -> float:
        """By how much slopes are larger than where samples weigh one, and counts are about one."""
        return self._most_weight if self._means is None else self._means.noise_scale

    @property
    def _own_values(self) -> Floats:
        """(rows × problems) labels of which some may be rare: classes, counts or amounts."""
        if self._gamma:
            return self._log_responses[:, None]
        return self._labels if self._responses else np.where(self._labels > 0, 1.0, -1.0)

    @property
    def _fewest_digits(self) -> float:
        """Of a label, as it is counted; of a count or an amount, half of that of two classes."""
        return 0.5 if self._exponential or self._gamma else 1.0

    def _told_digits(self) -> float | None:
        """The same, as far as all know how large counts are; None: nobody knows.

        The smaller they are, the fewer digits they have.
        """
        if self._means is None or self._gamma:
            return self._fewest_digits
        known = self._constant >= 0 and self._whole.n_rows == self._view.n_samples
        return self._means.label_digits if known and not self._view.left_out.any() else None

    @property
    def _lets_gradient(self) -> bool:
        """Whether it lets readers have a gradient: by shapes and its columns, not by its labels.

        Of a squared loss there is none. The coordinator is told. Nobody has a part of it unless all
        let them: a reader that has a column which tells labels of others would have all shares but
        its own.
        """
        digits, problems = self._told_digits(), self._all_problems.classes
        if self._squared or digits is None or self._columns_tell:
            return False
        return tells_gradient(
            self._whole, self._view.n_samples, problems, digits, largest=self._largest_column
        )

    @property
    def _labels_are_few(self) -> bool:
        """Whether a gradient would tell this party's own labels, which few values are."""
        if self._context.min_batch <= 1:
            return False
        own = label_digits(self._own_values, self._view.label_parties)
        if self._weighing is not None and len(self._counted_weights):
            # As many samples of one weight would come to the same.
            weights = self._counted_weights
            own *= float(weights.sum()) ** 2 / float((weights**2).sum()) / len(weights)
        return own < digits_told(self._whole, self._all_problems.classes, self._largest_column)

    def _gradient_for_readers(
        self, problem: int, share: Words, bits: int, error: float
    ) -> MomentShare:
        """Its share of a gradient; where that would tell its labels, uniform words.

        Of these nobody but readers learns: that a party keeps it back says that its classes are
        rare. Without this share others are uniform, and who could have it has the labels.
        """
        if not self._labels_are_few:
            return MomentShare(share, bits, error)
        words = seeded_words(self._own_seed, f"{self._serial} withheld {problem}", *share.shape)
        return MomentShare(words, bits, WITHHELD)
