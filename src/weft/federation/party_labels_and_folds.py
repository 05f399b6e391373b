"""What a party knows of the samples that it trains on: labels, classes, weights and folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.arrays_outside_heap import shared
from weft.crypto import Cipher
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError
from weft.federation.messages import CountReply, CountRequest
from weft.losses import Loss
from weft.matching.class_labels import refuse_responses
from weft.matching.party_view import PartyView
from weft.matching.tokens import encode_labels
from weft.privacy.ledger.fold_cuts_of_earlier_runs import FoldCut
from weft.solvers.party_context import GivenValues
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import (
    folds_of,
    held_out_share,
    large_folds_of,
    large_held_out_share,
)
from weft.sums.scalar_sums import pack_scalars


class Folds(NamedTuple):
    """The fold of every local row, and what the ledger is told of those that others see."""

    of_rows: NDArray[np.int8]
    cut: FoldCut


def _in_few_bytes(numbers: Floats) -> NDArray[np.signedinteger[Any]]:
    """Numbers of classes as they are kept for a run; −1 for NaN."""
    known = np.nan_to_num(numbers, nan=-1.0)
    return known.astype(np.min_scalar_type(-1 - int(known.max(initial=0.0))))


class TrainingLabels:
    """The labels in one party's tiles, as numbers of the classes that were agreed on.

    Attributes
    ----------
    tiles
        As they are scaled now.
    classes
        That were agreed on; None: a regression.
    listed
        Classes that it lists whether or not it has samples of them.
    """

    def __init__(
        self, party: str, tiles: Sequence[Tile], cipher: Cipher, view: Callable[[], PartyView]
    ) -> None:
        self._party, self._cipher, self._view = party, cipher, view
        self.tiles = list(tiles)
        self.classes: NDArray[Any] | None = None
        self._targets: list[NDArray[Any]] = []
        self.listed: tuple[float, ...] = ()

    @property
    def view(self) -> PartyView:
        return self._view()

    @property
    def problems(self) -> int:
        """How many weights a feature has: one, or one for each of three classes or more."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def known_labels(self) -> list[NDArray[Any]]:
        """The labels that it has, per tile, and those that it lists in any case.

        Responses are no classes: a model would be trained for each of them.
        """
        for tile in self.tiles:
            if tile.labels is not None:
                where = f"party {self._party}: {tile.labels_in_words}"
                refuse_responses(tile.labels[tile.labelled], where)
        held = [tile.labels[tile.labelled] for tile in self.tiles if tile.labels is not None]
        return [*held, np.array(self.listed)] if held and self.listed else held

    def encode_labels(self, classes: NDArray[Any] | None) -> list[Floats]:
        """Labels per tile as numbers, for the classes that were agreed on."""
        self.classes = classes
        found = [self._encoded(tile) for tile in self.tiles]
        self._targets = found if classes is None else [_in_few_bytes(part) for part in found]
        return found

    @property
    def targets(self) -> list[Floats]:
        """Labels per tile as numbers; NaN: there is none."""
        if self.classes is None:
            return self._targets
        return [np.where(part < 0, np.nan, part) for part in self._targets]

    def _encoded(self, tile: Tile) -> Floats:
        if tile.labels is None:
            return np.full(tile.n, np.nan)
        return encode_labels(tile.labels, tile.labelled, self.classes, tile.source or "its tile")

    def class_numbers(self, view: PartyView) -> Floats:
        """Per local row of a view, the number of its class; NaN: it has none, or no label here."""
        return np.full(view.n_rows, np.nan) if self.classes is None else self.target(view)

    def target(self, view: PartyView) -> Floats:
        """Per local row of a view, its label as a number; NaN: it has none here."""
        target = np.full(view.n_rows, np.nan)
        for rows, values in zip(view.tile_rows, self.targets, strict=True):
            known = (rows >= 0) & ~np.isnan(values)
            target[rows[known]] = values[known]
        return target

    def labels(self) -> Floats:
        """Targets per local row: the response, ±1, or a column of ±1 per class."""
        target = self.target(self.view)
        if self.classes is None:
            return shared(np.nan_to_num(target)[:, None])
        count = len(self.classes)
        positive = np.array([1]) if count == 2 else np.arange(count)
        return shared(np.where(target[:, None] == positive, 1.0, -1.0))

    def check_labels(self, loss: Loss) -> None:
        """Refuse labels that a loss has no meaning for."""
        for tile, target in zip(self.tiles, self.targets, strict=True):
            wrong = loss.refused_labels(target[~np.isnan(target)])
            if wrong:
                raise DataError(
                    f"party {self._party}: {tile.labels_in_words} {wrong},"
                    f" which loss '{loss.name}' has no meaning for; correct them, or choose "
                    "another family",
                    told=f"a party's labels do not fit loss '{loss.name}'; its log says more",
                )

    def given(self, settings: Settings) -> GivenValues | None:
        """Offsets and weights per local row; None: all weigh the same, without an offset."""
        weights = settings.class_weight
        told = any(t.offset is not None or t.weight is not None for t in self.tiles)
        if not told and not isinstance(weights, dict):
            return None
        view = self.view
        offset, weight = np.zeros((view.n_rows, 1)), np.ones((view.n_rows, 1))
        for tile, rows in zip(self.tiles, view.tile_rows, strict=True):
            known = (rows >= 0) & tile.labelled
            for values, into in ((tile.offset, offset), (tile.weight, weight)):
                if values is not None:
                    into[rows[known], 0] = values[known]
        if isinstance(weights, dict) and self.classes is not None:
            names = [str(name) for name in self.classes]
            strange = [name for name in weights if name not in names]
            if strange:
                raise ConfigError(
                    f"class_weight names class '{strange[0]}', but the classes are "
                    f"{', '.join(names)}; correct the name"
                )
            number = np.nan_to_num(self.target(view)).astype(int)
            weight[:, 0] *= np.array([weights.get(name, 1.0) for name in names])[number]
        return GivenValues(offset, weight)

    def count_classes(self, message: CountRequest) -> CountReply:
        """How many of the samples that it counts are of each class, by weight."""
        view = self.view
        numbers, counted = self.class_numbers(view), view.counted_rows & view.trained_rows
        weight = np.ones(view.n_rows)
        for tile, rows in zip(self.tiles, view.tile_rows, strict=True):
            known = (rows >= 0) & tile.labelled
            if tile.weight is not None:
                weight[rows[known]] = tile.weight[known]
        width = 0 if self.classes is None else len(self.classes)
        totals = [float(weight[counted & (numbers == k)].sum()) for k in range(width)]
        return CountReply(counts=pack_scalars(self._cipher, "counts", *totals))

    def folds(self, ids: Sequence[NDArray[Any]], settings: Settings) -> Folds:
        """The folds of all local rows; ``ids`` of the samples, per tile.

        Where others see sums, those of a class and cohort are spread by those who know the class;
        of samples whose labels others have, folds say nothing that is used.
        """
        view = self.view
        names = np.full(view.n_rows, "", dtype=object)
        for own, rows in zip(ids, view.tile_rows, strict=True):
            names[rows[rows >= 0]] = own[rows >= 0]
        share = settings.evaluation.held_out
        if share is None:
            folds = folds_of(names, settings.folds, settings.seed)
        else:
            folds = held_out_share(names, share, settings.seed)
        guarded = (view.guarded_cohort >= 0) & view.trained_rows
        classes = 1 if self.classes is None else len(self.classes)
        number = np.nan_to_num(self.class_numbers(view)).astype(np.int64)
        group = (view.cohort[view.row_cohort] * classes + number)[guarded]
        if share is None:
            folds[guarded] = large_folds_of(
                names[guarded], group, view.min_batch, settings.folds, settings.seed
            )
        else:
            folds[guarded] = large_held_out_share(
                names[guarded], group, view.min_batch, share, settings.seed
            )
        return Folds(folds, FoldCut(names[guarded], folds[guarded].astype(np.int32) + 1, group))
