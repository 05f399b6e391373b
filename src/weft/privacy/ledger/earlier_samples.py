"""Which samples take part in a run, as a party tells its own ledger, and which did before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from weft.data.columns.raw_column_cells import CategoryCells, DeclaredColumns
from weft.guards.min_batch_across_runs import standing_alone
from weft.matching.id_and_name_forms import normal_features
from weft.matching.party_view import PartyView
from weft.privacy.ledger.hash_of_counting_role import roles_of
from weft.sums.party_table_products import Block

Names = NDArray[np.object_]


class Held(Protocol):
    """What is told of a tile."""

    @property
    def ids(self) -> Names: ...

    @property
    def features(self) -> Names: ...

    @property
    def block(self) -> Block: ...

    @property
    def labels(self) -> NDArray[Any] | None: ...

    @property
    def declared(self) -> DeclaredColumns | None: ...


@dataclass(frozen=True)
class Attendance:
    """The samples of a party in a run.

    Attributes
    ----------
    ids
        Of each.
    places
        As in :class:`weft.privacy.ledger.earlier_samples.Memory`.
    contents
        Hashes of their cells and labels.
    roles
        Which part of them this party counts
        (`weft.privacy.ledger.hash_of_counting_role.roles_of`).
    rows
        Local rows of the view.
    rules
        What becomes of which column of theirs, as bytes; empty: its numbers are used as they are.
    """

    ids: Names
    places: NDArray[np.int32]
    contents: Hashes
    roles: Hashes
    rows: NDArray[np.int64]
    rules: Mapping[str, bytes]


def attendance(
    view: PartyView, tiles: Sequence[Held], rules: Mapping[str, bytes], *, everyone: bool = False
) -> Attendance | None:
    """Who takes part under a view, with tiles as files have them, and rules of their columns.

    A view may have more tiles behind these, which no file has.

    None where others see no feature sum with any of these samples. ``everyone``: training is on
    shares, so that the model, and totals of the run, are about all of them, whoever holds them.
    """
    shown = view.exposed
    if everyone:
        shown = np.ones(len(view.sizes), bool)
    elif view.min_batch == 1:
        # Nothing guards them, so that nobody counted whom it would have to guard.
        shown = np.full(len(view.sizes), view.n_shared_columns > 0)
    if not shown.any():
        return None
    numbers = np.arange(1, len(view.sizes) + 1)
    places = np.where(shown, numbers, -numbers)[view.row_cohort].astype(np.int32)
    ids = np.full(view.n_rows, "", dtype=object)
    contents = np.zeros(view.n_rows, np.uint64)
    for tile, slots in zip(tiles, view.tile_rows[: len(tiles)], strict=True):
        held = slots >= 0
        ids[slots[held]] = tile.ids[held]
        # A sum, for samples that several tiles hold parts of; no tile holds one twice.
        contents[slots[held]] += _contents(tile)[held]
    kept = ~view.left_out
    roles = roles_of(view)[view.row_cohort[kept]]
    return Attendance(ids[kept], places[kept], contents[kept], roles, np.flatnonzero(kept), rules)


def _contents(tile: Held) -> Hashes:
    """Hashes of rows and labels, in whatever order the columns are.

    Names of columns are not in them, nor what a study's rules make of cells: a column under another
    name, or cut elsewhere, would let all rows look changed where one is.
    """
    names = normal_features(tile.features)
    order = np.argsort(names.astype(str), kind="stable")
    start = blake2b(digest_size=8)
    labels = [""] * len(tile.ids) if tile.labels is None else tile.labels.tolist()
    digests = []
    rows, texts = _rows(tile.block, order), _declared(tile.declared, len(labels))
    for row, more, label in zip(rows, texts, labels, strict=True):
        state = start.copy()
        state.update(row)
        state.update(more)
        state.update(str(label).encode())
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _declared(columns: DeclaredColumns | None, rows: int) -> list[bytes]:
    """The cells of each row as bytes, of columns that rules are declared for."""
    found = [b""] * rows
    if columns is None:
        return found
    for _, cells in sorted(columns.cells.items()):
        if isinstance(cells, CategoryCells):
            texts = [*(text.encode() + b"\x00" for text in cells.texts), b"\x00"]
            told = [texts[code] for code in cells.codes.tolist()]
        else:
            told = [value.tobytes() for value in cells.values]
        found = [before + more for before, more in zip(found, told, strict=True)]
    return found


def _rows(block: Block, order: NDArray[np.int64]) -> Iterator[bytes]:
    """The cells of each row as bytes, columns in an order of their own."""
    if isinstance(block, np.ndarray):
        for row in block:
            yield np.asarray(row[order], np.float64).tobytes()
        return
    place = np.argsort(order)
    for begin, end in zip(block.indptr[:-1].tolist(), block.indptr[1:].tolist(), strict=True):
        columns = place[block.indices[begin:end]]
        sort = np.argsort(columns)
        yield columns[sort].tobytes() + block.data[begin:end][sort].tobytes()


Hashes = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Places = NDArray[np.int32]

#: Runs over different samples that are remembered; equal ones take one place. Whoever chooses the
#: samples of runs chooses what is forgotten: by 8, eight runs over others made a party forget one.
MOST_RUNS = 32


@dataclass
class Memory:
    """Who took part in the last runs.

    Attributes
    ----------
    runs
        When each began, the last one at the end.
    sample
        Keyed hashes, ascending, of all who are remembered.
    places
        (runs × samples) zero: took no part; k: in cohort k − 1 of the run, in feature sums that
        others saw; −k: in that cohort, but in no such sums.
    """

    runs: list[str]
    sample: Hashes
    places: Places

    @classmethod
    def new(cls) -> Self:
        """No run yet."""
        return cls([], np.zeros(0, np.uint64), np.zeros((0, 0), np.int32))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> Self | None:
        """The inverse of :meth:`to_arrays`; None: that is no memory."""
        found = [arrays.get(f"{name}.{part}") for part in ("runs", "sample", "places")]
        runs, sample, places = found
        if runs is None or sample is None or places is None:
            return None
        whole = (
            runs.dtype.kind == "U"
            and runs.ndim == 1
            and sample.dtype == np.uint64
            and sample.ndim == 1
            and bool((sample[1:] > sample[:-1]).all())
            and places.dtype == np.int32
            and places.shape == (len(runs), len(sample))
        )
        return cls(runs.tolist(), sample, places) if whole else None

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {
            f"{name}.runs": np.array(self.runs, dtype="U32"),
            f"{name}.sample": self.sample,
            f"{name}.places": self.places,
        }

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """When each run began, and how many samples others saw feature sums of."""
        return [
            (began, int((places > 0).sum()))
            for began, places in zip(self.runs, self.places, strict=True)
        ]

    def remember(self, samples: Hashes, places: Places, began: str) -> None:
        """Take down who takes part in a run that others see feature sums of."""
        everybody, all_places = self._with(samples, places)
        here = all_places != 0
        same = [k for k in range(len(self.runs)) if (here[k] == here[-1]).all()]
        for number in same:
            shown = all_places[number] > 0
            all_places[-1] = np.where(shown, np.abs(all_places[-1]), all_places[-1])
        kept = [k for k in range(len(self.runs)) if k not in same][1 - MOST_RUNS :]
        self.runs = [*(self.runs[k] for k in kept), began]
        all_places = all_places[[*kept, -1]]
        known = all_places.any(axis=0)
        self.sample, self.places = everybody[known], all_places[:, known]

    def set_apart(
        self, samples: Hashes, places: Places, at_least: int
    ) -> tuple[str, Hashes, Hashes] | None:
        """Whom a run over these samples would set apart in groups of fewer than ``at_least``.

        Returns an earlier run, by when it began, and who of them has come and who has gone since.
        """
        if not self.runs:
            return None
        everybody, all_places = self._with(samples, places)
        # Who was never in a sum that others saw is nobody's to find.
        shown = (all_places > 0).any(axis=0)
        everybody, all_places = everybody[shown], all_places[:, shown]
        present = all_places != 0
        alone = standing_alone(present, _cohorts(all_places), at_least)
        if not alone.any():
            return None
        for number in reversed(range(len(self.runs))):
            changed = alone & (present[number] != present[-1])
            if changed.any():
                came = changed & present[-1]
                return self.runs[number], everybody[came], everybody[changed & ~came]
        raise AssertionError("whoever stands alone was away from some run")

    def _with(self, samples: Hashes, places: Places) -> tuple[Hashes, Places]:
        """Everybody, and their places in all runs with one more at the end."""
        everybody: Hashes = np.union1d(self.sample, samples)
        found = np.zeros((len(self.runs) + 1, len(everybody)), np.int32)
        found[:-1, np.searchsorted(everybody, self.sample)] = self.places
        found[-1, np.searchsorted(everybody, samples)] = places
        return everybody, found


def _cohorts(places: Places) -> NDArray[np.int64]:
    """The cohort of each sample in the last run; of those who are gone, the one of their cohort.

    Where the rest of a cohort is spread over several now, or nobody is left of it, those who are
    gone stay for themselves: whoever knows the others may not know them.
    """
    *earlier, now = np.abs(places).astype(np.int64)
    found: NDArray[np.int64] = now.copy()
    for number, run in reversed(list(enumerate(earlier, start=1))):
        gone = (found == 0) & (run != 0)
        stayed = (now != 0) & (run != 0)
        links = np.unique(np.stack([run[stayed], now[stayed]]), axis=1)
        cohorts, first, heirs = np.unique(links[0], return_index=True, return_counts=True)
        # No cohort of now has a negative number.
        home = -(np.arange(run.max(initial=0) + 1) * (len(earlier) + 1) + number)
        home[cohorts[heirs == 1]] = links[1][first[heirs == 1]]
        found[gone] = home[run[gone]]
    return found


def read_per_sample(
    arrays: Mapping[str, NDArray[Any]], sample: str, value: str, kind: type[np.generic]
) -> tuple[Hashes, NDArray[Any]] | None:
    """Samples, ascending, and a value of each; of a file from before there were any, none.

    None: these are no such arrays.
    """
    samples, values = arrays.get(sample), arrays.get(value)
    if samples is None and values is None:
        return np.zeros(0, np.uint64), np.zeros(0, kind)
    if samples is None or values is None:
        return None
    whole = (
        samples.dtype == np.uint64
        and samples.ndim == 1
        and bool((samples[1:] > samples[:-1]).all())
        and values.dtype == kind
        and values.shape == samples.shape
    )
    return (samples, values) if whole else None
