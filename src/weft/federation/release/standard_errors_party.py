"""A party's part in the sums that standard errors are made of, where all hold all columns.

It adds up its own rows at the final model: of a sample that several parties hold, the one does that
counts its loss. What it tells goes to readers in the letters of the model, under masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.crypto import Cipher
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ConfigError, DataError, ProtocolError
from weft.federation.messages import StatisticsShare
from weft.federation.release.masked_standard_error_sums import LIMBS, masked_words
from weft.federation.training_data import TrainingData
from weft.inference.party_sums_for_multinomial_standard_errors import (
    blocks_of,
    class_numbers_of,
    class_statistics,
    weights_of_class_rows,
)
from weft.inference.party_sums_for_standard_errors import (
    matrices_of,
    numbers_of,
    row_sums,
    weights_of_rows,
)
from weft.inference.standard_error_requirements import Kind, refuse_few_samples, refuse_few_sites
from weft.matching.party_view import PartyView
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coalition_knowledge import ROWS_PER_NUMBER, Told, unions
from weft.solvers.secret_sharing.second_moment_guard import (
    MANY_GROUPS,
    numbers_told,
    refuse_combinations,
    refuse_few_rows,
    refuse_few_weighed,
    refuse_site_alone,
    refuse_sparse,
)
from weft.solvers.solver_interfaces_and_results import InferringHalf

#: Rows of equal weight for each column in sums of squared slopes, most of which are small: so many
#: that these have four times as many cells as the matrix has numbers.
_SQUARED_ROWS = 2
#: How far scores of one's own cells may be from those of the run, by what they come to.
_SAME = 1e-6


@dataclass(frozen=True)
class StatisticsGuard:
    """What a party insists on.

    Attributes
    ----------
    least
        Of how many rows each number must tell; one: any number.
    site
        Whether sums may tell of one site alone.
    foresee
        Objects to how many numbers are told, with those of earlier runs.
    """

    least: int
    site: bool
    foresee: Callable[[Told], None]


class StatisticsParty:
    """Makes a party's sums at the end of a run, if they tell no single rows.

    Parameters
    ----------
    longest_row
        No ‖x‖² of any party's rows is above it.
    by_site
        Whether parties have a column of their own, for the intercept of their site.
    """

    def __init__(
        self,
        party: str,
        data: TrainingData,
        settings: Settings,
        cipher: Cipher,
        guard: StatisticsGuard,
        longest_row: float,
        *,
        by_site: bool,
    ) -> None:
        if settings.inference == "none":
            raise ProtocolError("sums for standard errors were asked for that no run is to have")
        self._party, self._data, self._cipher, self._guard = party, data, cipher, guard
        self._kind: Kind = settings.inference
        self._loss, self._settings = settings.make_loss(), settings
        self._longest_row, self._by_site = longest_row, by_site
        #: Which model it told of, and what: masks hide one answer.
        self._told: tuple[int | None, StatisticsShare] | None = None

    @property
    def _view(self) -> PartyView:
        return self._data.view

    @property
    def _features(self) -> Ints:
        """Local slots of its features, which all parties hold in the same order.

        But for the intercept of its site, which is the last.
        """
        slots = np.arange(self._view.n_columns)
        kept: Ints = slots[slots != self._view.bias_slot]
        return kept

    @property
    def _columns(self) -> int:
        return len(self._features) + (self._data.bias is not None)

    @property
    def _places(self) -> Ints:
        """Which columns of the matrices its features are; sites have places behind all others."""
        own, view = len(self._features), self._view
        if not self._has_site:
            return np.arange(own)
        return np.append(np.arange(own - 1), own - 1 + view.party)

    @property
    def _width(self) -> int:
        """Columns of the matrices; with sites, there is one for every party, and the last is the
        constant."""
        shared = len(self._features) - self._has_site
        sites = self._view.n_parties if self._by_site else 0
        return shared + sites + (self._data.bias is not None)

    @property
    def _has_site(self) -> bool:
        """Whether the last of its features is the intercept of its site."""
        return self._data.site is not None

    # ── before training ───────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Refuse sums that would tell single rows of this party to readers of the model."""
        view, columns = self._view, self._columns
        if self._classes > 2 and not self._loss.joint:
            raise ConfigError(f"party {self._party} refuses inference for more than two classes")
        features = self._features[:-1] if self._has_site else self._features
        shared_by = view.column_sharers[view.column_cohort[features]]
        if (shared_by != view.n_parties).any() or view.foreign.any():
            raise ConfigError(
                f"party {self._party} refuses inference in sums, since not all parties hold all "
                "columns; set mode = 'sealed' in [privacy], or leave inference out"
            )
        contrasts = self._classes - 1 if self._loss.joint else 1
        refuse_few_samples(view.n_samples, columns * contrasts)
        refuse_few_sites(self._kind, view.n_parties)
        matrices = matrices_of(self._loss, self._kind)
        if self._loss.joint:
            matrices = blocks_of(self._classes)
        if view.n_parties > 1 and self._guard.least > 1:
            cells = self._cells()[:, self._features]
            if not self._guard.site:
                refuse_site_alone(cells[~view.left_out])
            for rows in self._regions():
                refuse_few_rows(len(rows), columns, matrices)
                refuse_sparse(np.hstack([cells, self._beside()])[rows], self._guard.least)
                refuse_combinations(cells[rows], self._guard.least)
        told = numbers_told(columns, matrices)
        everything = np.arange(view.n_rows)
        self._guard.foresee(Told(((everything, told),), np.full(view.n_rows, told)))

    @property
    def _classes(self) -> int:
        classes = self._data.classes
        return 0 if classes is None else len(classes)

    def _beside(self) -> Floats:
        """Offsets and weights: sums of them tell those of a few samples that have any."""
        given = self._data.given(self._settings)
        if given is None:
            return np.zeros((self._view.n_rows, 0))
        return np.hstack([given.offset, given.weight])

    def _regions(self) -> list[Ints]:
        """Its rows that are trained on, and those of them that groups of other parties lack.

        Readers that are parties take off what they hold themselves.
        """
        there = ~self._view.left_out
        known = unions(self._held_by_others())
        if known is None:
            raise ConfigError(MANY_GROUPS)
        regions = [there, *(there & ~some for some in known)]
        found = {region.tobytes(): np.flatnonzero(region) for region in regions}
        return [rows for rows in found.values() if len(rows)]

    def _held_by_others(self) -> list[Flags]:
        """Per other party, which of this one's rows it holds."""
        view, sheets = self._view, self._view.row_sheets
        held = []
        for other in np.unique(sheets.holders[sheets.holders != view.party]).tolist():
            cohorts = np.unique(sheets.cohort[sheets.holders == other])
            held.append(np.isin(view.row_cohort, cohorts))
        return held

    # ── the sums ──────────────────────────────────────────────────────────────────────────

    def share(self, half: InferringHalf, model: int | None) -> StatisticsShare:
        """Its sums at a finished model, under masks; asked again, the same."""
        if self._told is None:
            self._told = model, self._made(half, model)
        if self._told[0] != model:
            raise ProtocolError(
                f"party {self._party} has told its sums for standard errors of another model"
            )
        return self._told[1]

    def _made(self, half: InferringHalf, model: int | None) -> StatisticsShare:
        try:
            values = self._sums(half, model)
        except (ConfigError, DataError) as error:
            # The model is not lost: its readers hear why it has no standard errors.
            told = error.told
            who = "" if told.startswith("party ") else f"party {self._party} "
            return self._as_share(np.zeros((LIMBS, 0), np.uint64), refusal=f"{who}{told}")
        # A run that is taken up again has the same masks, and may have another model.
        label = f"statistics {self._cipher.epoch} {model}"
        return self._as_share(masked_words(values, self._cipher.masks, label))

    def _as_share(self, words: Words, refusal: str = "") -> StatisticsShare:
        return StatisticsShare(
            words=words,
            columns=self._own_columns(),
            width=self._width,
            samples=self._view.n_samples,
            longest_row=self._longest_row,
            refusal=refusal,
        )

    def _own_columns(self) -> Ints:
        """Which columns of the matrices its slice of the model has; the constant one is last."""
        place = np.full(self._view.n_columns, self._width - 1, np.int64)
        place[self._features] = self._places
        return place[self._data.released_columns()]

    def _sums(self, half: InferringHalf, model: int | None) -> Floats:
        view, loss = self._view, self._loss
        counted = np.flatnonzero(view.counted_rows & view.trained_rows)
        scores = half.closed_scores(model)
        if scores is None:
            raise ConfigError(
                f"party {self._party} has no scores of a model that was never measured by itself; "
                "train until the gap is reached"
            )
        problems = self._classes if loss.joint else 1
        x, z = self._design(half.weights(model), scores[counted, :problems], counted)
        given = self._data.given(self._settings)
        offset = np.zeros(view.n_rows) if given is None else given.offset[:, 0]
        weight = np.ones(view.n_rows) if given is None else given.weight[:, 0]
        labels = self._data.labels()[counted]
        if loss.joint:
            return self._sums_of_classes(x, z, labels, weight[counted], counted)
        z, some = z[:, 0] + offset[counted], (labels[:, 0], offset[counted], weight[counted])
        if view.n_parties > 1 and self._guard.least > 1:
            self._refuse_few_weighed(
                counted, weights_of_rows(z, some[0], some[2], loss, self._kind)
            )
        values = row_sums(x, z, *some, loss, self._kind)
        assert len(values) == numbers_of(self._width, loss, self._kind)
        return values

    def _sums_of_classes(
        self, x: Floats, z: Floats, labels: Floats, weight: Floats, counted: Ints
    ) -> Floats:
        """The same of a multinomial model, where every pair of classes weighs rows by itself."""
        if self._view.n_parties > 1 and self._guard.least > 1:
            self._refuse_few_weighed(counted, weights_of_class_rows(z, weight))
        values = class_statistics(x, z, labels, weight, self._loss)
        assert len(values) == class_numbers_of(self._width, z.shape[1])
        return values

    def _refuse_few_weighed(self, counted: Ints, weights: list[Floats]) -> None:
        """Refuse matrices of which few rows have nearly all."""
        cells = self._cells()[counted][:, self._features]
        for rows in self._regions():
            mine = np.isin(counted, rows)
            if not mine.any():
                continue
            # Squared slopes come second; of classes, all are curvatures.
            second = ROWS_PER_NUMBER if self._loss.joint else _SQUARED_ROWS
            for number, weight in enumerate(weights):
                rows_each = second if number else ROWS_PER_NUMBER
                refuse_few_weighed(cells[mine], weight[mine], self._guard.least, rows_each)

    def _design(self, weights: Floats, scores: Floats, counted: Ints) -> tuple[Floats, Floats]:
        """Cells of the rows it counts, the constant column last, and their scores by problem.

        ``scores`` are as the run added them up over all holders, in fixed point.
        """
        weights = weights[:, : scores.shape[1]]
        cells = self._cells()[counted][:, self._features]
        x = np.zeros((len(counted), self._width))
        x[:, self._places] = cells
        own = cells @ weights[self._features]
        if self._data.bias is not None:
            x[:, -1] = self._data.bias
            own = own + weights[self._view.bias_slot] * self._data.bias if len(x) else own
        if (np.abs(own - scores) > _SAME * (1.0 + np.abs(own))).any():
            raise DataError(
                f"party {self._party} has other cells than another party for samples that both "
                "hold, so that its sums would not be those of the model; let them agree on these "
                "cells, or leave inference out",
                told=f"party {self._party} has other cells than another party for samples that "
                "both hold; let them agree on these, or leave inference out",
            )
        return x, own

    def _cells(self) -> Floats:
        """Its cells as they are in the table, whoever else holds them."""
        return self._data.whole_cells()
