"""What becomes of the blank cells of a tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.data.findings import MOST_EXAMPLES, Finding
from weft.data.tile import Block, MissingPolicy, Tile, with_data
from weft.errors import DataError


def find_blanks(tile: Tile, party: str = "") -> list[Finding]:
    """A finding about all blank cells, column by column; none, if there are none."""
    row, column = _blank_places(tile.block)
    if not len(row):
        return []
    counts = np.bincount(column, minlength=tile.m)
    worst = np.argsort(-counts, kind="stable")[: min(MOST_EXAMPLES, int((counts > 0).sum()))]
    listed = tuple(f"{tile.features[place]!r}: {counts[place]}" for place in worst.tolist())
    more = ", …" if (counts > 0).sum() > len(worst) else ""
    return [
        Finding(
            "error",
            f"column {tile.features[column[0]]!r} has no value for sample {tile.ids[row[0]]!r} "
            f"({len(row)} missing cells in all; {', '.join(listed)}{more})",
            "fill the blanks in, or choose the missing-cell policy 'zero' or 'mean'",
            party=party,
            file=tile.source or "the tile",
            count=len(row),
            examples=listed,
            setting=("missing", "mean"),
            for_all=True,
        )
    ]


def _blank_places(block: Block) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the blank cells."""
    if isinstance(block, np.ndarray):
        rows, columns = np.nonzero(np.isnan(block))
        return rows, columns
    blank = np.flatnonzero(np.isnan(block.data))
    rows = np.searchsorted(block.indptr, blank, side="right") - 1
    return np.asarray(rows, np.intp), np.asarray(block.indices[blank], np.intp)


def settle_missing(tile: Tile, policy: MissingPolicy = "error", party: str = "") -> Tile:
    """Decide what becomes of the missing (NaN) cells of a tile.

    Parameters
    ----------
    tile : Tile
        The tile as read.
    policy : {"error", "zero", "mean"}
        "error" refuses the tile and names the first missing cell. "zero" puts 0 there. "mean"
        leaves NaN in place: federated scaling centres the column and then puts 0, which is
        the mean of all parties' values.
    party : str
        Name of the party, for the message.
    """
    if policy not in ("error", "zero", "mean"):
        raise DataError(
            f"missing-cell policy {policy!r} is unknown; choose 'error', 'zero' or 'mean'."
        )
    values = tile.block if isinstance(tile.block, np.ndarray) else tile.block.data
    gaps = np.isnan(values) if policy != "mean" else np.zeros(0, dtype=bool)
    if not gaps.any():
        return tile
    if policy == "error":
        (found,) = find_blanks(tile, party)
        raise DataError(
            f"{found.sentence()}.",
            # Which sample and column it is, is for its owner alone.
            told="a party has blank cells, and this run has no rule for them; set missing = "
            '"zero" or missing = "mean" in [data], or let the party fill them in',
        )
    filled = np.where(gaps, 0.0, values)
    if isinstance(tile.block, np.ndarray):
        return replace(tile, block=filled)
    return replace(tile, block=with_data(tile.block, filled))
