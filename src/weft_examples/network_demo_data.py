"""The example of the network's demo: two hospitals and a laboratory, from FATE's two parties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.data import load
from weft.data.tile import Table, Tile
from weft.errors import DataError
from weft_papers.data.original_file_readers import fate_breast_tiles

Rows = NDArray[np.int64]

#: Features of scikit-learn's table that stand in for FATE's guest; the host has the others.
_GUEST_COLUMNS = 10
#: Of all samples, the share held out; of the rest, the share that moves to the third party, and of
#: what stays the share that it knows as well.
_HELD_OUT, _MOVED, _SHARED = 0.25, 1 / 3, 0.25


@dataclass(frozen=True)
class Example:
    """Three parties' tiles, the pooled table to compare with, and samples held out from all.

    Attributes
    ----------
    source
        Where the data is from, in words.
    tiles
        ``hospital`` (with labels, FATE's guest) and ``laboratory`` (FATE's host) hold different
        columns of the same samples; ``clinic``, a second hospital, holds all columns and labels of
        other samples, and of some of theirs.
    train, test
        Pooled tables.
    """

    source: str
    tiles: dict[str, tuple[Tile, ...]]
    train: Table
    test: Table


def breast_example(seed: int = 0) -> Example:
    """FATE's example, or scikit-learn's breast cancer where its files are not there."""
    try:
        pair = fate_breast_tiles()
        source = "FATE's two-party breast example"
    except DataError:
        pair = _halves(load("breast_cancer"))
        source = "scikit-learn's breast cancer, for FATE's files are not in WEFT_DATA"
    return cut(pair["guest"], pair["host"], source, seed)


def cut(guest: Tile, host: Tile, source: str = "", seed: int = 0) -> Example:
    """Make a third party from the rows of two that hold different columns of the same samples.

    It gets a third of the samples, which the others give away, with all their columns; and it knows
    a quarter of those that stay, as a clinic to which some patients of the others went too. So all
    three share samples and features, and no party holds a sample and a feature without their cell.
    """
    if guest.labels is None:
        raise DataError("the guest has no labels; name the tile that has them first")
    place = {sample: row for row, sample in enumerate(host.ids.tolist())}
    host = host.rows(np.array([place[sample] for sample in guest.ids.tolist()]))
    pooled = Table(
        guest.ids,
        np.concatenate([guest.features, host.features]),
        np.hstack([np.asarray(guest.block), np.asarray(host.block)]),
        guest.labels,
        "classification",
    )
    order = np.random.default_rng(seed).permutation(guest.n)
    test, rest = _parted(order, _HELD_OUT)
    moved, kept = _parted(rest, _MOVED)
    shared, _ = _parted(kept, _SHARED)
    tiles: dict[str, tuple[Tile, ...]] = {
        "hospital": (guest.rows(np.sort(kept)),),
        "laboratory": (host.rows(np.sort(kept)),),
        "clinic": (pooled.rows(np.sort(np.concatenate([moved, shared]))).to_tile(),),
    }
    return Example(source, tiles, pooled.rows(np.sort(rest)), pooled.rows(np.sort(test)))


def _parted(rows: Rows, share: float) -> tuple[Rows, Rows]:
    first = round(share * len(rows))
    return rows[:first], rows[first:]


def _halves(table: Table) -> dict[str, Tile]:
    whole = table.to_tile()
    guest = whole.columns(np.arange(_GUEST_COLUMNS))
    host = whole.columns(np.arange(_GUEST_COLUMNS, whole.m))
    return {"guest": guest, "host": Tile(host.ids, host.features, host.block)}
