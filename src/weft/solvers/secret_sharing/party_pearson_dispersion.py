"""A party's shares of Pearson's χ² of a gamma model: Σ(y/μ − 1)², its dispersion but for a count.

Ratios y/μ are e^s of scores s that are on shares. Cut to few digits, r − 1 is opened under masks v,
as f; its square is f² + 2fv + v², of which the last is dealt in one sum over all rows. What readers
get is that sum, with noise. As slopes are 1 − r, the gradient follows from the same opening.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.crypto.primitives.seeded_words import Words, seeded_words
from weft.errors import ProtocolError
from weft.protocol import Answer, Nothing, answers
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.digit_widths import CELL_BITS, Widths
from weft.solvers.secret_sharing.exponential_fourier_series import ExponentialSeries
from weft.solvers.secret_sharing.messages import (
    CUT_RATIOS,
    PEARSON,
    RATIOS,
    CutRatiosReply,
    CutRatiosRequest,
    PearsonRequest,
    RatiosReply,
    RatiosRequest,
)
from weft.solvers.secret_sharing.party_sample_weighted_moments import WeightedMomentsParty
from weft.solvers.secret_sharing.second_moment_digits_and_errors import (
    MOST_BENDS,
    gradient_noise,
    pearson_noise,
)
from weft.solvers.secret_sharing.share_arithmetic import cut_scores, noise
from weft.solvers.secret_sharing.table_product_kernels import transposed_products
from weft.solvers.solver_interfaces_and_results import MomentShare, MomentShares


class PearsonParty(WeightedMomentsParty):
    """Answers all phases of sealed training, those of a gamma model's dispersion among them."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._ratio_series: ExponentialSeries | None = None
        self._ratio_digits, self._ratio_serial = 0, 0
        self._pearson: MomentShare | None = None
        self._ratio_gradients: tuple[MomentShare, ...] = ()

    def phases(self) -> dict[str, Answer]:
        return {
            **super().phases(),
            **answers(
                self._once(RATIOS, self._ratios),
                self._once(CUT_RATIOS, self._cut_ratios),
                self._once(PEARSON, self._sum_squares),
            ),
        }

    def moment_shares(self, model: int | None) -> MomentShares:
        found = super().moment_shares(model)
        if self._gamma:
            return replace(found, pearson=self._pearson, gradients=self._ratio_gradients)
        return found

    def _ratios(self, message: RatiosRequest) -> RatiosReply:
        """Shares of e^s at the model in hand, under masks."""
        opened = self._open(message.scores)
        if self._kept is None or not self._gamma or self._pearson is not None:
            raise ProtocolError("a dispersion was asked for that this run is not to have")
        if not 0 <= message.series < len(self._ladder):
            raise malformed("series", "is not known")
        series = self._ladder[message.series]
        assert isinstance(series, ExponentialSeries)
        self._ratio_series, dealt = series, self._dealt(message.dealt)
        found = self._exponentials(opened, series, "ratio", dealt)[0]
        dealt.end()
        return RatiosReply(ratios=self._hide(found + self._mask("ratios", *found.shape)))

    def _cut_ratios(self, message: CutRatiosRequest) -> CutRatiosReply:
        """Shares of e^s − 1 in few digits, less masks."""
        opened, series = self._open(message.ratios), self._ratio_series
        cut = 0 if series is None else series.total - message.width
        if not 0 < message.width <= MOST_BENDS or not 0 < cut < 62:
            raise malformed("width", "is not one that ratios can have")
        dealt = self._dealt(message.dealt)
        low = dealt.take(f"{self._serial} low", *opened.shape)
        top = dealt.take(f"{self._serial} top", *opened.shape)
        dealt.end()
        share = cut_scores(opened, (low, top), cut, self._first)
        if self._first:
            share = share - np.uint64(1 << message.width)
        self._ratio_digits, self._ratio_serial = message.width, self._serial
        masked = self._hide(share - self._mask("pearson", *share.shape))
        return CutRatiosReply(ratios=masked, gradient=self._lets_gradient)

    def _sum_squares(self, message: PearsonRequest) -> Nothing:
        opened = self._open(message.ratios)
        dealt = self._dealt(message.dealt)
        total = dealt.take(f"{self._serial} squares", 1).copy()
        crossed = dealt.take(f"{self._serial} gradient", self._whole.n_columns)
        dealt.end()
        masks = seeded_words(self._seed, f"{self._ratio_serial} pearson", *opened.shape)
        total += (opened * (masks + masks)).sum(dtype=np.uint64)
        if self._first:
            total += (opened * opened).sum(dtype=np.uint64)
        digits = 2 * self._ratio_digits
        size = pearson_noise(len(opened), digits)
        total += noise(self._own_seed, f"{self._serial} pearson", [size])[:, 0]
        self._pearson, self._kept = MomentShare(total, digits, message.error), None
        if message.gradient and self._lets_gradient:
            # Slopes are 1 − r.
            slopes = np.zeros_like(crossed) - crossed - self._products_of(opened, masks)
            bits = CELL_BITS + self._ratio_digits
            self._ratio_gradients = (
                self._gradient_for_readers(0, slopes, bits, message.slope_error),
            )
        return Nothing()

    def _products_of(self, opened: Words, masks: Words) -> Words:
        """Own cells times what was opened, all masked cells times its masks, and noise."""
        table, place = self._whole, self._place
        size = gradient_noise(table.n_rows, Widths(self._ratio_digits, 0), 1.0)
        drawn = noise(self._own_seed, f"{self._serial} gradient", [size] * table.n_columns)
        share: Words = drawn[:, 0].copy()
        for there, masked in zip(table.places, self._masked, strict=True):
            share[there.columns] += transposed_products(masked, masks[None], there.rows)[0]
        share[place.columns] += transposed_products(self._cells, opened[None], place.rows)[0]
        return share
