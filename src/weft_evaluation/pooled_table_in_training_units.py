"""The table that nobody has, in the units of training: what a judge looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.apply_scaling import ColumnScaling
from weft.data.pooled_table import pool
from weft.data.splits import Split
from weft.data.tile import Block, Names, Tile, block_columns, block_rows
from weft.errors import ConfigError, DataError
from weft.federation.party import Party
from weft.matching.id_and_name_forms import normal_features, normal_ids
from weft.matching.overlap_rule import Overlap
from weft.matching.tokens import encode_labels

Tiles = Mapping[str, Sequence[Tile]]


@dataclass(frozen=True)
class Units:
    """How cells become those that are trained on, and what a sample's label means.

    Attributes
    ----------
    bias
        Value of the constant column; None: there is none.
    classes
        Class values; None: labels are responses.
    overlap
        What becomes of a cell at several holders.
    """

    scaling: ColumnScaling
    bias: float | None
    classes: NDArray[Any] | None
    overlap: Overlap

    @classmethod
    def of(cls, parties: Iterable[Party], classes: NDArray[Any] | None, overlap: Overlap) -> Units:
        """Those that assembled parties have agreed on."""
        found: dict[str, tuple[float, float]] = {}
        bias = None
        for party in parties:
            own = party.data.units
            values = zip(own.shift.tolist(), own.factor.tolist(), strict=True)
            found.update(zip(normal_features(own.features).tolist(), values, strict=True))
            bias = party.data.bias
        shift, factor = np.array(list(found.values()), np.float64).reshape(-1, 2).T
        scaling = ColumnScaling(np.array(list(found), dtype=object), shift, factor)
        return cls(scaling, bias, classes, overlap)


@dataclass(frozen=True)
class PooledTable:
    """Samples as a central solver would have them.

    Attributes
    ----------
    block
        Scaled cells, without the constant column.
    targets
        Class numbers, or responses.
    weights
        What each sample weighs in the objective; their sum is one.
    """

    features: Names
    block: Block
    targets: Floats
    weights: Floats
    units: Units

    @property
    def n(self) -> int:
        return len(self.targets)

    @property
    def design(self) -> Any:
        """The cells with the constant column, as a central solver takes them."""
        if self.units.bias is None:
            return self.block
        constant = np.full((self.n, 1), self.units.bias)
        if isinstance(self.block, np.ndarray):
            return np.hstack([self.block, constant])
        whole = sp.csr_array(sp.hstack([self.block, sp.csr_array(constant)]))
        # liblinear takes no others.
        whole.indices, whole.indptr = whole.indices.astype(np.int32), whole.indptr.astype(np.int32)
        return whole

    @property
    def signs(self) -> Floats:
        """Responses, or ±1 with a column per class; of two classes only the second."""
        classes = self.units.classes
        if classes is None:
            return self.targets[:, None]
        wanted = np.arange(len(classes)) if len(classes) > 2 else np.array([1])
        return np.where(self.targets[:, None] == wanted, 1.0, -1.0)

    def of_features(self, names: Names) -> PooledTable:
        """The same samples with some features only."""
        place = {name: column for column, name in enumerate(self.features.tolist())}
        columns = np.array([place[name] for name in names.tolist()], dtype=int)
        return replace(self, features=names, block=block_columns(self.block, columns))

    def to_tile(self) -> Tile:
        """As the tile of a party that has everything, with class numbers for labels."""
        ids = np.array([f"{number:d}" for number in range(self.n)], dtype=object)
        return Tile.make(ids, self.features, self.block, self.targets, source="the pooled table")


def pooled(tiles: Tiles, units: Units, *, weigh: str = "samples") -> PooledTable:
    """Put tiles together, each cell once and scaled; samples without a label are left out.

    A cell that nobody holds is at the centre of its column, as it is in training.
    """
    scaled = {
        name: tuple(_scaled(tile, units, name) for tile in held if tile.n)
        for name, held in tiles.items()
    }
    table = pool(Split(scaled, units.overlap, ""))
    labels = np.asarray(table.labels, np.float64)
    known = np.flatnonzero(~np.isnan(labels))
    holders = _holders(scaled, table.ids[known]) if weigh == "parties" else None
    return PooledTable(
        table.features,
        block_rows(table.block, known),
        labels[known],
        _weights(len(known), holders),
        units,
    )


def _scaled(tile: Tile, units: Units, party: str) -> Tile:
    named = replace(tile, ids=normal_ids(tile.ids), features=normal_features(tile.features))
    labels = np.full(tile.n, np.nan)
    if tile.labels is not None:
        where = f"party {party!r}, {tile.source or 'its tile'}"
        labels = encode_labels(tile.labels, tile.labelled, units.classes, where)
    return replace(units.scaling.apply(named, party), labels=labels)


def _holders(tiles: Tiles, ids: Names) -> NDArray[np.int64]:
    """Number of the first party that holds each sample."""
    first: dict[str, int] = {}
    for number, held in enumerate(tiles.values()):
        for tile in held:
            for sample in tile.ids.tolist():
                first.setdefault(sample, number)
    return np.array([first[sample] for sample in ids.tolist()], dtype=np.int64)


def _weights(n: int, holders: NDArray[np.int64] | None) -> Floats:
    if holders is None:
        return np.full(n, 1.0 / max(n, 1))
    counts = np.bincount(holders)
    shares: Floats = 1.0 / ((counts > 0).sum() * counts[holders])
    return shares


def trained_on(tiles: Tiles, parties: Mapping[str, Party]) -> dict[str, tuple[Tile, ...]]:
    """The rows that took a view: those with a label somewhere, as far as guards let them in."""
    return {
        name: tuple(
            tile.rows(np.flatnonzero(rows >= 0))
            for tile, rows in zip(tiles[name], party.view.tile_rows, strict=True)
        )
        for name, party in parties.items()
    }


def hold_out(
    tiles: Tiles, share: float, seed: int
) -> tuple[dict[str, tuple[Tile, ...]], dict[str, tuple[Tile, ...]]]:
    """Tiles to train on, and the same tiles of the samples that are left out, by their ids alone.

    Parameters
    ----------
    share
        Of the samples, about how many are held out.
    """
    if not 0 < share < 1:
        raise ConfigError(f"--test-share is {share:g}; give a share above 0 and below 1")
    kept: dict[str, tuple[Tile, ...]] = {}
    out: dict[str, tuple[Tile, ...]] = {}
    for name, held in tiles.items():
        masks = [_falls_out(tile.ids, share, seed) for tile in held]
        pairs = list(zip(held, masks, strict=True))
        kept[name] = tuple(tile.rows(np.flatnonzero(~mask)) for tile, mask in pairs)
        out[name] = tuple(tile.rows(np.flatnonzero(mask)) for tile, mask in pairs)
        if not any(tile.n for tile in kept[name]):
            raise DataError(f"party {name} has no sample left to train on; hold out fewer samples")
    if not any(tile.labelled.any() for held in out.values() for tile in held):
        raise DataError("no sample with a label is held out; hold out more samples, or none")
    return kept, out


def _falls_out(ids: Names, share: float, seed: int) -> NDArray[np.bool_]:
    """A hash of seed and id decides, so that all holders of a sample decide the same."""
    key = f"weft held out {seed}".encode()
    normal = cast("list[str]", normal_ids(ids).tolist())
    draws = [blake2b(sample.encode(), digest_size=8, key=key).digest() for sample in normal]
    numbers = np.frombuffer(b"".join(draws), np.dtype("<u8")).astype(np.float64)
    return numbers < share * 2.0**64
