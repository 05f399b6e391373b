"""A party whose columns are described: it tells sums over its cells, and trains nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.errors import ProtocolError
from weft.federation.descriptive_statistics_messages import (
    DESCRIBE_CENTRES,
    DESCRIBE_COUNTS,
    DESCRIBE_MIDDLE,
    DESCRIBE_NAMES,
    DESCRIBE_SIZES,
    DESCRIBE_SPREADS,
    RESPONSE,
    SPREADS,
    CentresReply,
    CentresRequest,
    DistributionReply,
    DistributionRequest,
    NamesReply,
    NamesRequest,
    SpreadRequest,
)
from weft.federation.party import Party
from weft.federation.terms_enforced_by_phase import DescriptionTerms
from weft.guards.cells_safe_to_describe import (
    TAIL,
    ColumnLine,
    DescribedColumn,
    described_column,
    described_counts,
    described_levels,
    reached_by,
)
from weft.protocol import Message, Nothing, Phase, answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.protocol.message_bytes import question_digest
from weft.sums.maxima_from_digit_sums import LargestParty
from weft.sums.party_table_with_overlap_weights import counted_once
from weft.sums.scalar_sums import pack_scalars
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

#: What of a run it answers besides: everything up to sums.
_BEFORE = ("announce", "classes", "columns.", "match.", "rare.")


class DescribeParty(Party):
    """A party that tells what `descriptive_statistics_coordinator.py` adds up, each of it once.

    Parameters
    ----------
    tells_names
        Whether others may read what its columns are called.
    """

    #: It gets no model.
    saved_models: ClassVar = {}
    ledger_kind: ClassVar = "describe"
    insisted: ClassVar = DescriptionTerms

    def __init__(self, *given: Any, tells_names: bool = True, **more: Any) -> None:
        super().__init__(*given, **more, signs_transcript=False)
        self._tells_names = tells_names
        self._places: Ints = np.zeros(0, np.int64)
        self._width, self._centres, self._step = 0, np.zeros(0), ""
        self._largest = {
            phase.name: LargestParty(self._cipher) for phase in (DESCRIBE_SIZES, DESCRIBE_SPREADS)
        }
        self._phases = {
            **{name: found for name, found in self._phases.items() if name.startswith(_BEFORE)},
            **answers(
                answer(DESCRIBE_NAMES, self._name),
                answer(DESCRIBE_SIZES, self._tell_sizes),
                answer(DESCRIBE_CENTRES, self._tell_centres),
                answer(DESCRIBE_MIDDLE, self._take_middle),
                answer(DESCRIBE_SPREADS, self._tell_spreads),
                answer(DESCRIBE_COUNTS, self._tell_counts),
            ),
        }

    @property
    def exposure(self) -> str:
        return "no sum over samples or features, since columns were only described"

    @property
    def _least(self) -> int:
        return self._consent.least_told(self.view)

    def _tells(self, phase: Phase[Any, Any], reply: Message) -> bool:
        """Whether a reply counts as taking part."""
        return phase.name.startswith("describe.")

    def _go_on(self, step: str, after: str) -> None:
        """Every step is taken once: other units would be other questions about the same cells."""
        if self._step != after:
            raise ProtocolError("a request of a description comes again, or too early")
        self._step = step

    # ── what may be told ──────────────────────────────────────────────────────────────────

    def _may_tell(self, holders: int) -> bool:
        """Whether statistics over so many parties may be told."""
        terms = self._terms
        alone = self._consent.alone(self.view.n_parties)
        return alone or terms.allow_site_statistics or terms.allows(holders)

    @cached_property
    def _tells_of(self) -> Flags:
        """Per column of its own, whether it tells anything of it."""
        view, names = self.view, self._names
        holders = view.column_sharers[view.column_cohort].tolist()
        allowed = np.array([self._may_tell(number) for number in holders], bool)
        # Products of columns would tell how many have two levels at once.
        # The constant column has no name.
        known = np.array([name != "" and name not in self._products for name in names], bool)
        told: Flags = known & allowed
        return told

    @cached_property
    def _names(self) -> list[str]:
        names = [""] * self.view.n_columns
        for tile, columns in zip(self.tiles, self.view.tile_columns, strict=True):
            for name, column in zip(tile.features.tolist(), columns.tolist(), strict=True):
                names[column] = str(name)
        return names

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The declared column of every one that is a level of a category, or a bin."""
        found = {}
        for column in self.transformation.columns:
            if column.rule.kind == "category" or column.rule.bins is not None:
                flags = column.features()[: -1 if column.rule.indicator else None]
                found.update(dict.fromkeys(flags, column.name))
        return found

    @cached_property
    def _products(self) -> set[str]:
        known = {f for c in self.transformation.columns for f in c.features()}
        pairs = self.transformation.interactions
        return {n for n in self._names if n not in known and pairs and "*" in n}

    @cached_property
    def _told_columns(self) -> list[DescribedColumn]:
        """Per column of its own, the cells that it counts, as they may be described."""
        least, cells = self._least, self._counted_cells()
        levels: dict[str, list[int]] = {}
        for column, name in enumerate(self._names):
            if name in self._origins:
                levels.setdefault(self._origins[name], []).append(column)
        for group in levels.values():
            flags = described_levels(np.stack([cells[column] for column in group], axis=1), least)
            cells.update({column: flags[:, place] for place, column in enumerate(group)})
        nothing = DescribedColumn(np.zeros(0), 0)
        return [
            described_column(cells[column], least) if told else nothing
            for column, told in enumerate(self._tells_of.tolist())
        ]

    def _counted_cells(self) -> dict[int, Floats]:
        """Cells by column, of samples that no holder before this one counts."""
        view = self.view
        parts: dict[int, list[Floats]] = {column: [] for column in range(view.n_columns)}
        for number, tile in enumerate(self.tiles):
            kept = view.tile_rows[number] >= 0
            weights = counted_once(view, number, tile.block)
            block: Any = tile.block
            dense = block if isinstance(block, np.ndarray) else block.toarray()
            for place, column in enumerate(view.tile_columns[number].tolist()):
                mine = kept if weights is None else kept & (weights[:, place] > 0)
                parts[column].append(dense[mine, place])
        return {column: np.concatenate([np.zeros(0), *some]) for column, some in parts.items()}

    @cached_property
    def _outcome(self) -> Floats:
        """Labels of the samples that it counts, as numbers."""
        counted = self.view.counted_rows & self.view.trained_rows
        return self.data.target(self.view)[counted]

    @property
    def _tells_outcome(self) -> bool:
        return self._may_tell(self.view.label_parties) or self._terms.allow_lone_labels

    @property
    def _tells_site(self) -> bool:
        return self._terms.allow_site_statistics and bool(len(self._outcome))

    @cached_property
    def _everything(self) -> list[tuple[int, DescribedColumn]]:
        """What is told of which column of all; a response is one more."""
        found = list(zip(self._places.tolist(), self._told_columns, strict=True))
        if self.data.classes is None and self._tells_outcome:
            found.append((self._width - 1, described_column(self._outcome, self._least)))
        return found

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _name(self, message: NamesRequest) -> NamesReply:
        self._go_on("names", "")
        view, sizes = self.holdings.settled_view, message.sizes
        number = view.column_number
        known = (sizes >= 0).all() and (number < len(sizes)).all()
        if not known or (sizes[number] != view.column_sizes).any():
            raise malformed("sizes", "are not those of this party's columns")
        start = np.concatenate([[0], np.cumsum(sizes)])
        cohort = view.column_cohort
        first = np.concatenate([[0], np.cumsum(view.column_sizes)])
        self._places = start[number[cohort]] + np.arange(view.n_columns) - first[cohort]
        self._width = int(start[-1]) + (self.data.classes is None)
        # Parties that took one column for different ones would not be summed.
        self._cipher.agree(question_digest(message))
        shown = [
            (name if self._tells_names else f"column {place + 1}") if told else ""
            for name, place, told in zip(
                self._names, self._places.tolist(), self._tells_of.tolist(), strict=True
            )
        ]
        origins = [self._origins.get(name, "") for name in self._names]
        if not self._tells_names:
            origins = [""] * len(origins)
        return NamesReply(
            names=np.array(shown, dtype=str),
            origins=np.array(origins, dtype=str),
            tells_site=self._tells_site,
        )

    def _tell_sizes(self, message: DigitRequest) -> DigitReply:
        if message.digit == 0:
            self._go_on("sizes", "names")
        return self._largest[DESCRIBE_SIZES.name].tell(message, lambda: self._reaches(0.0)[0])

    def _tell_centres(self, message: CentresRequest) -> CentresReply:
        self._go_on("centres", "sizes")
        units = self._insist(message.units, "units", least=0.0)
        told = np.zeros((self._width, 3))
        for place, column in self._everything:
            told[place] = len(column.cells), column.blank, (column.cells / units[place]).sum()
        return CentresReply(sums=self._packed("sums", told))

    def _take_middle(self, message: SpreadRequest) -> Nothing:
        self._go_on("middle", "centres")
        self._centres = self._insist(message.centres, "centres")
        self._cipher.agree(question_digest(message))
        return Nothing()

    def _tell_spreads(self, message: DigitRequest) -> DigitReply:
        if message.digit == 0:
            self._go_on("spreads", "middle")
        return self._largest[DESCRIBE_SPREADS.name].tell(
            message, lambda: self._reaches(self._centres).ravel()
        )

    def _reaches(self, centres: Floats | float) -> Floats:
        """Per column of all, how far from a centre ``min_batch`` of its cells are, and a share."""
        found, middle = np.zeros((2, self._width)), np.broadcast_to(centres, self._width)
        for place, column in self._everything:
            sizes = np.abs(column.cells - middle[place])
            some = max(self._least, int(len(sizes) * TAIL))
            found[:, place] = reached_by(sizes, self._least), reached_by(sizes, some)
        return found

    def _tell_counts(self, message: DistributionRequest) -> DistributionReply:
        self._go_on("counts", "spreads")
        units = self._insist(message.units, "units", least=0.0)
        lengths = self._insist(message.lengths, "lengths", least=0.0)
        lines = {
            place: ColumnLine.around(float(self._centres[place]), float(lengths[place]))
            for place, column in self._everything
            if len(column.cells)
        }
        chosen = self._chosen(lines)
        intervals = len(ColumnLine(0.0, 1.0).line.start)
        told = np.zeros((self._width, SPREADS + intervals))
        for place, column in self._everything:
            if not len(column.cells):
                continue
            deviation = (column.cells - self._centres[place]) / units[place]
            told[place, :SPREADS] = deviation.sum(), (deviation**2).sum()
            line, leaf = lines[place].line, lines[place].leaf_of(column.cells)
            at = np.searchsorted(line.end[chosen[place]], leaf, side="right")
            np.add.at(told[place], SPREADS + chosen[place][at], 1.0)
        return DistributionReply(
            counts=self._packed("counts", told),
            outcomes=self._packed("outcomes", self._outcomes(units)),
        )

    def _chosen(self, lines: Mapping[int, ColumnLine]) -> dict[int, Ints]:
        """Where cells are counted; with a ledger, so that edges keep apart from earlier ones."""
        columns = dict(self._everything)
        names = dict(zip(self._places.tolist(), self._names, strict=True))
        called = {place: names.get(place, "") for place in lines}

        def cut(earlier: Callable[[str], Floats]) -> dict[str, Floats]:
            found = {}
            for place, line in lines.items():
                known = earlier(called[place])
                places = line.places(columns[place].cells, self._least, known)
                found[called[place]] = line.edges_of(places)
            return found

        edges = self.ledger.note_edges(cut, some=bool(lines))
        return {place: line.between(edges[called[place]]) for place, line in lines.items()}

    def _outcomes(self, units: Floats) -> Floats:
        """How many have which class, in all and at this site; of responses, sums of this site."""
        view, classes, least = self.view, self.data.classes, self._least
        if classes is None:
            told = np.zeros((view.n_parties, RESPONSE))
            if self._tells_site and self._tells_outcome:
                cells = self._everything[-1][1].cells
                deviation = (cells - self._centres[-1]) / units[-1]
                told[view.party] = len(cells), deviation.sum(), (deviation**2).sum()
            return told
        counts = np.bincount(self._outcome.astype(np.int64), minlength=len(classes))
        shown = described_counts(counts, least).astype(np.float64)
        told = np.zeros((1 + view.n_parties, len(classes) + 1))
        told[0] = shown if self._tells_outcome else 0.0
        if self._tells_site:
            told[1 + view.party] = shown
        return told

    def _insist(self, values: Floats, field: str, least: float = -np.inf) -> Floats:
        if values.shape != (self._width,) or not ((values > least) & np.isfinite(values)).all():
            raise malformed(field, "are not one number for each column")
        return values

    def _packed(self, field: str, told: Floats) -> bytes:
        return pack_scalars(self._cipher, field, *told.ravel().tolist())
