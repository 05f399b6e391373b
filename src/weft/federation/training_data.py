"""What a party trains on: its tiles and labels as they were agreed on, scaled, by slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto import Cipher
from weft.data.apply_scaling import ColumnScaling
from weft.data.tile import MissingPolicy, Tile
from weft.data.tile_digest import add_tile
from weft.errors import ConfigError
from weft.federation.messages import (
    COUNT_CLASSES,
    GradientShares,
    MatrixShares,
    ModelSlice,
    SecondMomentShares,
    WeightShares,
)
from weft.federation.model import Model
from weft.federation.party_labels_and_folds import TrainingLabels
from weft.guards.replace_rare_column_values import rare_columns, without_columns
from weft.matching.id_and_name_forms import normal_features
from weft.matching.party_view import PartyView
from weft.protocol import Answer, Nothing, answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.protocol.message_bytes import question_digest
from weft.solvers.run_settings import MOST_PENALTY
from weft.solvers.solver_interfaces_and_results import ModelShare, MomentShare, MomentShares
from weft.sums.maxima_from_digit_sums import LargestParty
from weft.sums.party_table_products import Block, LocalTable
from weft.sums.party_table_with_overlap_weights import build_table, rows_times
from weft.sums.scaling_party import ScalingParty
from weft.sums.table_scaling_and_certificate_messages import (
    COLUMN_SPREAD,
    COLUMN_SUMS,
    EXTREMES,
    FINISH_SCALING,
    LONGEST_ROW,
    PENALTIES,
    ROW_NORMS,
    ROW_SIZE,
    SCALE_ROWS,
    SIZE,
    DigitReply,
    DigitRequest,
    FinishScalingRequest,
    PenaltiesRequest,
    ScaleRowsRequest,
)

#: Name of the constant column in models.
INTERCEPT = "(intercept)"


class TrainingData(TrainingLabels):
    """The tiles of one party, on the way from its files to the table that it trains on.

    Parameters
    ----------
    party
        Its name.
    view
        Gives its view of the holdings; an error before it has one.
    sample_norms
        Whether it shows norms of single rows.
    missing
        What becomes of blank cells, for the model to do the same.
    sample_columns
        Whether some columns are offsets or weights of samples.
    site
        What the column of its site's own intercept is called; None: it has none.

    Attributes
    ----------
    bias
        Value of the constant column as it trains on it; None: there is none.
    penalties
        Features that λ holds back more or less than others, by name, and how many times.
    """

    def __init__(
        self,
        party: str,
        tiles: Sequence[Tile],
        cipher: Cipher,
        view: Callable[[], PartyView],
        *,
        sample_norms: bool,
        missing: MissingPolicy = "error",
        sample_columns: bool = False,
        site: str | None = None,
    ) -> None:
        super().__init__(party, tiles, cipher, view)
        self.site = site
        self._sample_columns = sample_columns
        self._missing = missing
        self._sample_norms = sample_norms
        self.bias: float | None = None
        self.penalties: dict[str, float] = {}
        self._scaling: ScalingParty | None = None
        self._table: LocalTable | None = None
        self._largest = LargestParty(cipher)
        #: Whether some cells are NaN because they were left out.
        self._gaps = False

    def answers(self) -> dict[str, Answer]:
        """The phases of scaling, which need nothing but the data."""
        return answers(
            answer(EXTREMES, lambda m: self._scaler.extremes(m)),
            answer(COLUMN_SUMS, lambda m: self._scaler.sums(m)),
            answer(COLUMN_SPREAD, lambda m: self._scaler.spread(m)),
            answer(FINISH_SCALING, self._finish_scaling),
            answer(PENALTIES, self._hold_back),
            answer(ROW_SIZE, lambda m: self._scaler.size(self._blocks(), m)),
            answer(ROW_NORMS, lambda m: self._scaler.norms(m)),
            answer(LONGEST_ROW, lambda m: self._scaler.longest(m)),
            answer(SCALE_ROWS, self._scale_rows),
            answer(SIZE, self._size),
            answer(COUNT_CLASSES, self.count_classes),
        )

    # ── what is left out ──────────────────────────────────────────────────────────────────

    def leave_out_columns(self) -> int:
        """Leave out columns that too few samples of a group have; returns of how many cells.

        What most of the group have takes their place. Where too few have it, they count as missing
        from here on: in scaling, and as zero in the table.
        """
        view, cells, tiles = self.view, 0, []
        for tile, slots in zip(self.tiles, view.tile_rows, strict=True):
            group = np.where(slots >= 0, view.guarded_cohort[slots], -1)
            rare = rare_columns(tile.block, group, view.min_batch)
            if rare.any():
                self._gaps = True
                left = without_columns(tile.block, group, rare, view.min_batch)
                if isinstance(left, np.ndarray) or isinstance(tile.block, np.ndarray):
                    cells += int(rare.sum(axis=1)[group[group >= 0]].sum())
                else:
                    # What a sparse tile does not name is zero before and after.
                    cells += tile.block.nnz - left.nnz
                tile = replace(tile, block=left)
            tiles.append(tile)
        self.tiles = tiles
        return cells

    def _blocks(self) -> list[Block]:
        """The cells as they are scaled now; those that are missing are zero."""
        blocks = [tile.block for tile in self.tiles]
        if not self._gaps:
            return blocks
        return [
            np.nan_to_num(block, nan=0.0) if isinstance(block, np.ndarray) else block
            for block in blocks
        ]

    # ── scaling ───────────────────────────────────────────────────────────────────────────

    @property
    def _scaler(self) -> ScalingParty:
        if self._scaling is None:
            blocks = [t.block for t in self.tiles]
            self._scaling = ScalingParty(
                self.view,
                blocks,
                self.bias,
                self._cipher,
                sample_norms=self._sample_norms,
                # Over the samples of its site it is constant, and says nothing once it is centred.
                as_they_are=np.flatnonzero(self._names() == self.site),
            )
        return self._scaling

    def _finish_scaling(self, message: FinishScalingRequest) -> Nothing:
        self._scaler.finish(message)
        scaled = []
        for tile, columns in zip(self.tiles, self.view.tile_columns, strict=True):
            scaling = ColumnScaling(
                tile.features, self._scaler.shift[columns], self._scaler.factor[columns]
            )
            scaled.append(scaling.apply(tile, self._party))
        self.tiles, self._gaps = scaled, False
        return Nothing()

    def _hold_back(self, message: PenaltiesRequest) -> Nothing:
        """Multiply columns by 1/√f, so that λ w² of them is λ f w² in the units of others."""
        factors = message.factors
        # By these alone: whether a product of theirs fits would tell something about cells.
        sound = (factors >= 1 / MOST_PENALTY) & (factors <= MOST_PENALTY)
        if message.features.shape != factors.shape or not sound.all():
            raise malformed(
                "factors",
                f"are not one from {1 / MOST_PENALTY:.2g} to {MOST_PENALTY:.2g} for each feature",
            )
        self.penalties = dict(zip(message.features.tolist(), message.factors.tolist(), strict=True))
        asked = normal_features(message.features.astype(object)).tolist()
        by_name = dict(zip(asked, factors.tolist(), strict=True))
        own = normal_features(self._names()).tolist()
        held = np.array([by_name.get(name, 1.0) for name in own])
        factor = 1.0 / np.sqrt(held)
        self._scaler.hold_back(factor)
        # Holders of a column who multiply it differently would add up different things.
        self._cipher.agree(question_digest(message))
        self.tiles = [
            replace(tile, block=_times(tile.block, factor[columns]))
            if isinstance(tile.block, np.ndarray)
            else ColumnScaling(tile.features, np.zeros(tile.m), factor[columns]).apply(tile)
            for tile, columns in zip(self.tiles, self.view.tile_columns, strict=True)
        ]
        return Nothing()

    def _scale_rows(self, message: ScaleRowsRequest) -> Nothing:
        factor = message.factor
        self._scaler.take_row_factor(factor)
        self.tiles = [
            replace(tile, block=_times(tile.block, np.float64(factor)))
            if isinstance(tile.block, np.ndarray)
            else replace(tile, block=tile.block * factor)
            for tile in self.tiles
        ]
        if self.bias is not None:
            self.bias *= factor
        return Nothing()

    def _size(self, message: DigitRequest) -> DigitReply:
        """One digit of the largest part of ‖x_i‖², and of the largest label, of any party."""
        return self._largest.tell(message, self._sizes)

    def _sizes(self) -> Floats:
        self._table = self._arranged()
        sizes = [self._table.squares.max(initial=0.0), np.abs(self.labels()).max(initial=0.0)]
        if self._sample_columns:
            offsets = [tile.offset for tile in self.tiles if tile.offset is not None]
            weights = [tile.weight for tile in self.tiles if tile.weight is not None]
            sizes.append(max((float(np.abs(one).max(initial=0.0)) for one in offsets), default=0.0))
            sizes.append(max((float(one.max(initial=0.0)) for one in weights), default=1.0))
        return np.array(sizes)

    # ── training ──────────────────────────────────────────────────────────────────────────

    def weights_of(self, model: Model) -> Floats:
        """The weights of its columns in a model, in the units it was trained in."""
        view, known = self.view, len(model.coef)
        classes = self.problems
        if known != classes:
            raise ConfigError(
                f"the model to start from has weights for {known} class(es), but this problem has "
                f"{classes}; start without it"
            )
        start = np.zeros((view.n_columns, classes))
        for tile, columns in zip(self.tiles, view.tile_columns, strict=True):
            start[columns] = model.trained_weights(tile.features)
        if view.bias_slot >= 0 and self.bias:
            start[view.bias_slot] = model.centre_score / self.bias
        return start

    @property
    def table(self) -> LocalTable:
        """Its cells, arranged for its view: anew, as long as they may still be scaled."""
        return self._arranged() if self._table is None else self._table

    def _arranged(self) -> LocalTable:
        return build_table(self.view, self._blocks(), self.bias)

    def shorten_rows(self, longest: float) -> None:
        """Shorten its part of every row to a length; the constant column stays as it is.

        Raises
        ------
        ConfigError
            The table is scaled by what it holds, so that a sample moves the rows of others too.
        """
        scaler = self._scaling
        if scaler is not None and not (
            (scaler.shift == 0).all() and (scaler.factor == 1).all() and scaler.row_factor == 1
        ):
            raise ConfigError(
                f"party {self._party} refuses noise in a model of scaled columns or rows, since "
                "every sample has a say in how they are scaled; use scaling = 'none' without "
                "unit_rows, and row_norm in [noise]"
            )
        view = self.view
        blocks = self._blocks()
        squares = build_table(view, blocks, None).squares[:, 0]
        factor = np.minimum(1.0, longest / np.maximum(np.sqrt(squares), np.finfo(float).tiny))
        shortened = []
        for tile, block, rows in zip(self.tiles, blocks, view.tile_rows, strict=True):
            share = np.where(rows >= 0, factor[np.maximum(rows, 0)], 1.0)
            shortened.append(replace(tile, block=rows_times(block, share)))
        self.tiles = shortened
        self._table = self._arranged()

    @property
    def units(self) -> ColumnScaling:
        """How its cells become those that it trains on."""
        names = self._names()
        columns = np.arange(self.view.n_columns) != self.view.bias_slot
        if self._scaling is None:
            zeros = np.zeros(int(columns.sum()))
            return ColumnScaling(names[columns], zeros, zeros + 1.0)
        scaler = self._scaling
        factor = scaler.factor[columns] * scaler.row_factor
        return ColumnScaling(names[columns], scaler.shift[columns], factor)

    def feature_names(self, columns: NDArray[np.int64]) -> list[str]:
        """Names of some of its local columns."""
        names: list[str] = self._names()[columns].tolist()
        return names

    def _names(self) -> NDArray[np.object_]:
        """Names of its columns."""
        names = np.full(self.view.n_columns, INTERCEPT, dtype=object)
        for tile, columns in zip(self.tiles, self.view.tile_columns, strict=True):
            names[columns] = tile.features
        return names

    # ── the model ─────────────────────────────────────────────────────────────────────────

    def share_of(self, share: ModelShare) -> ModelSlice:
        """The columns this party answers for, with its shares in the place of their weights."""
        nothing = np.zeros((self.view.n_columns, len(share.words)))
        slice_ = self.slice_of(nothing, everything=False)
        columns = self.released_columns()
        slice_.shares = WeightShares(
            words=share.words, columns=share.columns[columns], bits=share.bits
        )
        return slice_

    def moments_of(self, shares: MomentShares, longest_row: float) -> SecondMomentShares:
        """Its shares of second moments, as they travel."""
        gram = () if shares.gram is None else (shares.gram,)
        return SecondMomentShares(
            samples=self.view.n_samples,
            weighed=shares.weighed,
            longest_row=longest_row,
            gram=_matrices(gram),
            hessian=_matrices(shares.hessians),
            rest=_matrices(shares.rests),
            gradient=_gradients(shares.gradients),
            labels=None if shares.labels is None else _gradients((shares.labels,)),
            pearson=None if shares.pearson is None else _gradients((shares.pearson,)),
        )

    def slice_of(self, w: Floats, *, everything: bool) -> ModelSlice:
        """The weights ``w`` of the columns this party answers for, in the order of its files.

        With ``everything`` those of all its columns, for when another party is gone. Weights are
        in the units of the scaled table.
        """
        view, scaler = self.view, self._scaling
        shift = scaler.shift if scaler is not None else np.zeros(view.n_columns)
        factor = scaler.factor if scaler is not None else np.ones(view.n_columns)
        columns = self._columns_in_order()
        if not everything:
            columns = columns[view.owned[columns]]
        return ModelSlice(
            names=self._names()[columns].astype(str),
            weights=w[columns],
            shift=shift[columns],
            factor=factor[columns],
            row_factor=float(scaler.row_factor) if scaler is not None else 1.0,
            constant=columns == view.bias_slot,
            missing=self._missing,
            overlap=self.view.overlap,
            bias_value=None if self.bias is None else float(self.bias),
        )

    def released_columns(self) -> NDArray[np.int64]:
        """Its columns that it answers for, in the order of its slice of the model."""
        columns = self._columns_in_order()
        return columns[self.view.owned[columns]]

    def whole_cells(self) -> Floats:
        """Its cells by local row and column, not divided among holders, without the constant.

        Of cells in several of its own tiles, their mean, or the first of them.
        """
        view = self.view
        total, count = (np.zeros((view.n_rows, view.n_columns)) for _ in range(2))
        for block, rows, columns in zip(
            self._blocks(), view.tile_rows, view.tile_columns, strict=True
        ):
            kept = rows >= 0
            where = np.ix_(rows[kept], columns)
            cells = block[kept] if isinstance(block, np.ndarray) else block[kept].toarray()
            free = count[where] == 0 if view.overlap == "first" else 1.0
            total[where] += cells * free
            count[where] += 1.0 * free
        return total / np.maximum(count, 1.0)

    def _columns_in_order(self) -> NDArray[np.int64]:
        """All its columns as its files first name them, the constant one last."""
        slots: list[NDArray[Any]] = [*self.view.tile_columns, np.arange(self.view.n_columns)]
        return np.asarray(pd.unique(np.concatenate(slots)), np.int64)

    @cached_property
    def content(self) -> NDArray[np.uint8]:
        """A hash of all that this party trains on, to know it again."""
        digest = blake2b(f"{self.view.overlap} {self.bias!r}".encode())
        for tile, target in zip(self.tiles, self.targets, strict=True):
            add_tile(digest.update, tile)
            digest.update(np.ascontiguousarray(target).tobytes())
        return np.frombuffer(digest.digest(), np.uint8)


def _matrices(shares: Sequence[MomentShare]) -> MatrixShares | None:
    if not shares:
        return None
    return MatrixShares(
        words=np.stack([share.words for share in shares]),
        bits=shares[0].bits,
        errors=np.array([share.error for share in shares]),
    )


def _gradients(shares: Sequence[MomentShare]) -> GradientShares | None:
    if not shares:
        return None
    return GradientShares(
        words=np.stack([share.words for share in shares]),
        bits=shares[0].bits,
        errors=np.array([share.error for share in shares]),
    )


def _times(block: Floats, factors: Floats | np.float64) -> Floats:
    """A dense block times factors in double precision, kept as it was."""
    return (block * factors).astype(block.dtype, copy=False)
