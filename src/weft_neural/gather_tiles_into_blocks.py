"""Tables as blocks: which columns are whose, and the cells of every sample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.tile import Tile
from weft.errors import DataError
from weft_neural.settings import Block


@dataclass(frozen=True, eq=False)
class Gathered:
    """Tiles of one hand as blocks, one row per sample.

    Attributes
    ----------
    labels
        None where there is none.
    blocks
        Their cells; NaN where a cell is blank, or not there.
    columns
        By block, the names of its columns.
    whole
        Which samples have all blocks.
    """

    ids: NDArray[np.object_]
    labels: NDArray[np.object_]
    blocks: Mapping[str, Floats]
    columns: Mapping[str, tuple[str, ...]]
    whole: NDArray[np.bool_]


def gathered(tiles: Sequence[Tile], blocks: Mapping[str, Block], holder: str) -> Gathered:
    """All samples of some tiles, with those of the blocks that they have columns of.

    Parameters
    ----------
    holder
        Whose they are, for refusals, such as ``party north``.
    """
    names = _columns(tiles, blocks, holder)
    number: dict[str, int] = {}
    for tile in tiles:
        for sample in tile.ids.tolist():
            number.setdefault(sample, len(number))
    labels = np.full(len(number), None, object)
    filled = {name: np.full((len(number), len(own)), np.nan) for name, own in names.items()}
    held = {name: np.zeros((len(number), len(own)), bool) for name, own in names.items()}
    for tile in tiles:
        rows = np.array([number[sample] for sample in tile.ids.tolist()], np.int64)
        if tile.labels is not None:
            _take_labels(labels, rows[tile.labelled], tile, holder)
        features = {feature: at for at, feature in enumerate(tile.features.tolist())}
        for name, own in names.items():
            here = [(k, features[column]) for k, column in enumerate(own) if column in features]
            if here:
                to, of = (np.array(part, np.int64) for part in zip(*here, strict=True))
                cells = tile.block[:, of]
                dense = cells if isinstance(cells, np.ndarray) else cells.toarray()
                filled[name][rows[:, None], to] = dense
                held[name][rows[:, None], to] = True
    whole = np.ones(len(number), bool)
    for mask in held.values():
        whole &= mask.all(axis=1)
    shaped = {
        name: cells.reshape(-1, *(blocks[name].shape or (len(names[name]),)))
        for name, cells in filled.items()
    }
    columns = {name: tuple(own) for name, own in names.items()}
    return Gathered(np.array(list(number), object), labels, shaped, columns, whole)


def _take_labels(
    labels: NDArray[np.object_], rows: NDArray[np.int64], tile: Tile, holder: str
) -> None:
    """Take over the labels of a tile, unless another tile says otherwise."""
    if tile.labels is None:
        return
    told = tile.labels[tile.labelled].astype(object)
    for row, label, sample in zip(rows.tolist(), told, tile.ids[tile.labelled], strict=True):
        if labels[row] is not None and labels[row] != label:
            raise DataError(
                f"{holder}: sample {sample} has the labels {labels[row]} and {label} in two of its "
                "files; correct one of them"
            )
        labels[row] = label


def _columns(
    tiles: Sequence[Tile], blocks: Mapping[str, Block], holder: str
) -> dict[str, list[str]]:
    """Per block that it holds, its columns in an order that is the same at all parties."""
    known = {feature for tile in tiles for feature in tile.features.tolist()}
    found: dict[str, list[str]] = {}
    taken: dict[str, str] = {}
    for name, block in blocks.items():
        own = matching_columns(known, name, block)
        if not own:
            continue
        if block.shape is not None and prod(block.shape) != len(own):
            raise DataError(
                f"{holder} has {len(own)} columns of block {name}, whose shape "
                f"{list(block.shape)} takes {prod(block.shape)}; correct its columns or its shape"
            )
        for column in own:
            if column in taken:
                raise DataError(
                    f"{holder}: column {column} belongs to the blocks {taken[column]} and "
                    f"{name}; let the blocks' columns differ"
                )
            taken[column] = name
        found[name] = own
    if not found:
        raise DataError(
            f"{holder} has columns of none of the blocks {', '.join(blocks)}; check the "
            "names and patterns under columns"
        )
    return found


def matching_columns(known: set[str], name: str, block: Block) -> list[str]:
    """Columns of a block among those that are known, in an order that all parties find."""
    if block.columns is None:
        prefix = re.compile(re.escape(name) + r"[^A-Za-z]")
        return sorted((c for c in known if c == name or prefix.match(c)), key=_natural)
    own: list[str] = []
    for pattern in block.columns:
        matched = [c for c in known if c == pattern or fnmatchcase(c, pattern)]
        own += [c for c in sorted(matched, key=_natural) if c not in own]
    return own


def _natural(name: str) -> list[tuple[int, int, str]]:
    """So that pixel 2 comes before pixel 10."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
