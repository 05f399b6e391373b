"""A party's shares of slopes, losses and alarms: sums of dealt sines and cosines of scores."""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats, Ints
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ProtocolError
from weft.protocol.message import malformed
from weft.solvers.party_context import PartyContext
from weft.solvers.sealed.digit_widths import (
    EIGHTH_POWER,
    LOSS_TERMS,
    Widths,
    alarm_bits,
    alarm_noise_bits,
    loss_digits,
)
from weft.solvers.sealed.fold_rows import FoldRows, with_fold
from weft.solvers.sealed.masked_sine_kernels import combine_dealt
from weft.solvers.sealed.party_shares import DealtShares, noise
from weft.solvers.sealed.phase_order import PhaseOrder
from weft.solvers.sealed.share_scalars import pack_shares
from weft.solvers.sealed.sine_series import ALARM_TERMS, SCORE_BITS, Series, alarm_multiples
from weft.solvers.sealed.table_positions import WholeTable
from weft.solvers.sealed.wide_ring import numbers_of
from weft.solvers.settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems

_FULL = 64


class SlopeShares(PhaseOrder):
    """What scores become, per problem and row."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context)
        self._table: WholeTable | None = None
        self._widths = Widths(0, 0)
        self._all_problems = Problems(context.labels.shape[1], settings.folds)
        self._fold_rows = FoldRows(self._all_problems, np.zeros(0, np.int64))
        self._problems: Ints = np.arange(self._all_problems.width)

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
        slopes, totals = self._combine(
            opened,
            series.words,
            "wave",
            (
                series.odd * 2.0 ** widths.public(series),
                fast * 2.0 ** (digits.total - widths.dealt(series)),
            ),
            dealt,
        )
        factors = np.zeros(LOSS_TERMS), slow * 2.0 ** (digits.total - digits.dealt)
        _, more = self._combine(opened, series.words[:LOSS_TERMS], "loss", factors, dealt)
        pairs = list(zip(totals, more, strict=True))
        trained = [some[0] + others[0] for some, others in pairs]
        folded = [pairs[at] for at in with_fold(self._all_problems, self._problems).tolist()]
        left_out = [some[1] + others[1] for some, others in folded]
        return slopes, self._tell("losses", trained + left_out, digits.noise)

    def _alarms(self, opened: Words, series: Series, period: int, dealt: DealtShares) -> bytes:
        """Shares of Σ sin⁸(πz/P), with noise."""
        rows = self._whole.n_rows
        if period & (period - 1) or not 2 * series.reach <= period <= 1 << (64 - SCORE_BITS):
            raise malformed("period", "is none that the alarm can have")
        _, public = alarm_bits(rows)
        factors = np.zeros(ALARM_TERMS), EIGHTH_POWER * 2.0**public
        _, totals = self._combine(opened, alarm_multiples(period), "alarm", factors, dealt)
        size = alarm_noise_bits(rows, series.reach, period, self._parties)
        # Over all rows: what folds leave out must lie in the reach of the series too.
        return self._tell("alarms", [sum(each) for each in totals], size)

    def _combine(
        self,
        opened: Words,
        multiples: Words,
        name: str,
        factors: tuple[Floats, Floats],
        dealt: DealtShares,
    ) -> tuple[Words, list[tuple[int, int]]]:
        """Shares of odd terms per score, and of totals of even ones.

        The latter are per problem, over rows that it trains on and over those that it leaves out.
        """
        problems, rows = opened.shape
        shape = problems * rows, len(multiples)
        cosines = dealt.take(f"{self._serial} {name} cosines", *shape)
        sines = dealt.take(f"{self._serial} {name} sines", *shape)
        shares, totals = np.zeros(opened.shape, np.uint64), []
        left_out = self._fold_rows.left_out(self._problems)
        for problem in range(problems):
            part = slice(problem * rows, (problem + 1) * rows)
            # All parties round alike, other problems otherwise.
            dither = np.uint64(self._pads.common_word(f"{self._label()} {name} {problem}"))
            totals.append(
                combine_dealt(
                    opened[problem],
                    multiples,
                    *factors,
                    dither,
                    cosines[part],
                    sines[part],
                    left_out[problem],
                    shares[problem],
                )
            )
        return shares, [(int(used), int(held)) for used, held in totals]

    def _tell(self, field: str, totals: list[int], size: int) -> bytes:
        """Shares of totals with this party's noise, for the coordinator to read in sum."""
        label = f"{self._serial} {field}"
        drawn = numbers_of(noise(self._own_seed, label, size, len(totals)))
        noisy = [share + extra for share, extra in zip(totals, drawn, strict=True)]
        return pack_shares(self._cipher, field, noisy, _FULL)
