"""Second moments on shares: XᵀX, and the Hessian's Xᵀ diag(σ'(z)) X at the point in hand.

All parties have E = X − A, the table less masks; A is the sum of what each party has drawn for its
own cells. So XᵀX = EᵀE + EᵀA + AᵀE + AᵀA takes no opening: a party's share of A is its own masks,
and shares of AᵀA are dealt. σ'(z) comes from the cosines of its series, is cut as scores are, and
multiplied with A, and the product with A again, by opened differences.

Shares stay with the parties, for who gets the model. Moments of sparse columns would tell single
rows, whoever reads them: see `refuse_sparse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ProtocolError
from weft.protocol import Answer, Nothing, answers
from weft.protocol.message import malformed
from weft.solvers.party_context import PartyContext
from weft.solvers.sealed.messages import (
    BENDS,
    CELLS,
    GRAM,
    HESSIAN,
    WEIGHTS,
    BendsReply,
    BendsRequest,
    CellsReply,
    CellsRequest,
    GramRequest,
    HessianRequest,
    WeightsReply,
    WeightsRequest,
)
from weft.solvers.sealed.moment_kernels import combine_cosines, cross_products, pair_counts
from weft.solvers.sealed.party import SealedParty
from weft.solvers.sealed.party_shares import cut_scores
from weft.solvers.sealed.sine_series import SERIES
from weft.solvers.sealed.widths import CELL_BITS, FEWEST_BENDS, ROWS_PER_COLUMN
from weft.solvers.settings import Settings

_REFUSED = "second moments of these columns would tell single rows; this party keeps them"


@dataclass(frozen=True)
class MomentShare:
    """A party's share of a matrix over all columns, modulo 2^64 in units of 2^−``bits``."""

    words: Words
    bits: int


def refuse_sparse(cells: NDArray[Any], shared_rows: Sequence[Ints], least: int) -> None:
    """Refuse moments that tell of fewer than ``least`` rows.

    A column's moments tell of the rows that differ from its most common value, a pair's of those
    where both do. Where two parties hold different columns of the same rows, each must have such
    rows in more than half of them, so that both together have enough, or none.

    Parameters
    ----------
    cells
        Of this party.
    shared_rows
        Which of its rows each party has that holds other columns.
    """
    if least <= 1:
        return
    unusual = np.zeros(cells.shape, np.int64)
    for j, column in enumerate(cells.T):
        values, counts = np.unique(column, return_counts=True)
        if len(values) > 1:
            unusual[:, j] = column != values[counts.argmax()]
    pairs = pair_counts(unusual)
    if ((pairs > 0) & (pairs < least)).any():
        raise ProtocolError(_REFUSED)
    for rows in shared_rows:
        told = unusual[rows].sum(axis=0)
        if ((told > 0) & (2 * told < len(rows) + least)).any():
            raise ProtocolError(_REFUSED)


class SealedMomentsParty(SealedParty):
    """Answers the phases of sealed training, and those of its second moments."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._least = max(1, context.view.min_batch)
        self._checked = False
        self._bend_digits = 0
        self._cut_digits = 0
        self._cut_share: Words = np.zeros((0, 0), np.uint64)
        self._gram: MomentShare | None = None
        self._hessian: MomentShare | None = None

    def phases(self) -> dict[str, Answer]:
        return {
            **super().phases(),
            **answers(
                self._once(GRAM, self._make_gram),
                self._once(BENDS, self._bends),
                self._once(WEIGHTS, self._weights),
                self._once(CELLS, self._spread_cells),
                self._once(HESSIAN, self._make_hessian),
            ),
        }

    def gram_share(self) -> MomentShare:
        """Its share of XᵀX."""
        return _made(self._gram)

    def hessian_share(self) -> MomentShare:
        """Its share of Xᵀ diag(σ'(z)) X."""
        return _made(self._hessian)

    # ── the table ─────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        if self._checked:
            return
        table, place = self._whole, self._place
        if table.n_rows < ROWS_PER_COLUMN * table.n_columns:
            raise ProtocolError(_REFUSED)
        shared = [
            np.flatnonzero(np.isin(place.rows, other.rows))
            for other in table.places
            if not np.isin(other.columns, place.columns).all()
        ]
        refuse_sparse(self._cells, shared, self._least)
        self._checked = True

    def _all_masked(self) -> Words:
        """E as one table."""
        total = np.zeros((self._whole.n_rows, self._whole.n_columns), np.uint64)
        for place, masked in zip(self._whole.places, self._masked, strict=True):
            total[np.ix_(place.rows, place.columns)] += masked
        return total

    def _own_masks(self) -> Words:
        """A of this party's cells."""
        return self._cells.astype(np.int64).view(np.uint64) - self._masked[self._party]

    # ── XᵀX ───────────────────────────────────────────────────────────────────────────────

    def _make_gram(self, message: GramRequest) -> Nothing:
        self._check()
        columns = self._whole.n_columns
        dealt = self._dealt(message.dealt)
        share = dealt.take(f"{self._serial} gram", columns, columns).copy()
        dealt.end()
        masked = self._all_masked()
        place = self._place
        crossed = cross_products(masked[place.rows], self._own_masks())
        share[:, place.columns] += crossed
        share[place.columns] += crossed.T
        if self._first:
            share += cross_products(masked, masked)
        self._gram = MomentShare(share, 2 * CELL_BITS)
        return Nothing()

    # ── Xᵀ diag(σ'(z)) X ──────────────────────────────────────────────────────────────────

    def _bends(self, message: BendsRequest) -> BendsReply:
        """Shares of σ'(z) of one problem, in the digits of slopes, under masks."""
        self._check()
        opened = self._open(message.scores)
        slope = self._widths.slope
        if self._squared or len(opened) != 1 or not 0 <= message.series < len(SERIES):
            raise malformed("series", "has no curvature of one problem")
        if not FEWEST_BENDS <= message.width < slope:
            raise malformed("width", "is not one that curvatures can have")
        series = SERIES[message.series]
        self._bend_digits, self._cut_digits = message.width, slope - message.width
        dealt = self._dealt(message.dealt)
        shape = opened.shape[1], series.terms
        cosines = dealt.take(f"{self._serial} bend cosines", *shape)
        sines = dealt.take(f"{self._serial} bend sines", *shape)
        dealt.end()
        shares = np.zeros(opened.shape, np.uint64)
        dither = np.uint64(self._pads.common_word(f"{self._label()} bend"))
        factors = series.bends * 2.0 ** self._widths.public(series)
        combine_cosines(opened[0], series.words, factors, dither, cosines, sines, shares[0])
        return BendsReply(bends=self._hide(shares + self._mask("bends", *shares.shape)))

    def _weights(self, message: WeightsRequest) -> WeightsReply:
        """Cut σ'(z), so that its products with two cells do not wrap, and put it under masks."""
        opened = self._open(message.bends)
        dealt = self._dealt(message.dealt)
        shares = (
            dealt.take(f"{self._serial} low", *opened.shape),
            dealt.take(f"{self._serial} top", *opened.shape),
        )
        dealt.end()
        self._cut_share = cut_scores(opened, shares, self._cut_digits, self._first)
        masks = self._mask("weights", *opened.shape)
        return WeightsReply(weights=self._hide(self._cut_share - masks))

    def _spread_cells(self, message: CellsRequest) -> CellsReply:
        """σ'(z) times cells: its share times E, and what was opened times its own masks."""
        opened = self._open(message.weights)[0]
        table, place = self._whole, self._place
        dealt = self._dealt(message.dealt)
        shape = table.n_rows, table.n_columns
        share = dealt.take(f"{self._serial} cells", *shape) + (
            self._cut_share[0][:, None] * self._all_masked()
        )
        dealt.end()
        share[np.ix_(place.rows, place.columns)] += opened[place.rows, None] * self._own_masks()
        self._cut_share = share
        return CellsReply(cells=self._hide(share - self._mask("spread", *shape)))

    def _make_hessian(self, message: HessianRequest) -> Nothing:
        opened = self._open(message.cells)
        columns, place = self._whole.n_columns, self._place
        dealt = self._dealt(message.dealt)
        share = dealt.take(f"{self._serial} hessian", columns, columns) + cross_products(
            self._all_masked(), self._cut_share
        )
        dealt.end()
        share[place.columns] += cross_products(self._own_masks(), opened[place.rows])
        self._hessian = MomentShare(share, 2 * CELL_BITS + self._bend_digits)
        self._cut_share = np.zeros((0, 0), np.uint64)
        return Nothing()


def _made(share: MomentShare | None) -> MomentShare:
    if share is None:
        raise ProtocolError("second moments were asked for that there are not")
    return share
