"""What becomes of the blank cells of a tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.data.findings_with_config_fixes import MOST_EXAMPLES, Finding
from weft.data.tile import Block, MissingPolicy, Tile, with_data
from weft.errors import DataError


def find_blanks(tile: Tile, party: str = "") -> list[Finding]:
    """A finding about all blank cells, column by column; none, if there are none."""
    row, column = _blank_places(tile.block)
    first = [(int(row[0]), str(tile.features[column[0]]))] if len(row) else []
    counts = dict(zip(tile.features.tolist(), np.bincount(column, minlength=tile.m), strict=True))
    for name, blank in _blank_declared(tile).items():
        first.append((int(blank[0]), name))
        counts[name] = len(blank)
    if not first:
        return []
    worst = sorted(
        (name for name, count in counts.items() if count), key=lambda name: -counts[name]
    )
    listed = tuple(f"{name!r}: {counts[name]}" for name in worst[:MOST_EXAMPLES])
    more = ", …" if len(worst) > len(listed) else ""
    total = int(sum(counts.values()))
    return [
        Finding(
            "error",
            f"column {first[0][1]!r} has no value for sample {tile.ids[first[0][0]]!r} "
            f"({total} missing cells in all; {', '.join(listed)}{more})",
            "fill the blanks in, or choose the missing-cell policy 'zero' or 'mean', or declare "
            "blank for a column",
            party=party,
            file=tile.source or "the tile",
            count=total,
            examples=listed,
            setting=("missing", "mean"),
            for_all=True,
            harmless=f"has blank cells in {_columns(worst)}",
        )
    ]


def _columns(names: list[str]) -> str:
    """Columns with blank cells, the first few in the order of the alphabet: counts order them."""
    listed = [repr(name) for name in sorted(names)[:MOST_EXAMPLES]]
    more = " and others" if len(names) > len(listed) else ""
    return f"column{'s' * (len(names) > 1)} {', '.join(listed)}{more}"


def _blank_places(block: Block) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the blank cells."""
    if isinstance(block, np.ndarray):
        rows, columns = np.nonzero(np.isnan(block))
        return rows, columns
    blank = np.flatnonzero(np.isnan(block.data))
    rows = np.searchsorted(block.indptr, blank, side="right") - 1
    return np.asarray(rows, np.intp), np.asarray(block.indices[blank], np.intp)


def _blank_declared(tile: Tile) -> dict[str, NDArray[np.intp]]:
    """Rows with blank cells of declared columns that do not say what stands for them."""
    if tile.declared is None:
        return {}
    blank = {
        name: np.flatnonzero(cells.blank)
        for name, cells in tile.declared.cells.items()
        if tile.declared.rules[name].blank is None
    }
    return {name: rows for name, rows in blank.items() if len(rows)}


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
    if policy == "error" and (gaps.any() or _blank_declared(tile)):
        (found,) = find_blanks(tile, party)
        rule = 'set missing = "zero" or missing = "mean" in [data], or let the party fill them in'
        raise DataError(
            f"{found.sentence()}.",
            # Which sample it is, and how many, is for its owner alone.
            told=f"a party has blank cells, and this run has no rule for them; {rule}",
            harmless=f"{found.harmless}, for which this run has no rule; {rule}",
        )
    if not gaps.any():
        return tile
    filled = np.where(gaps, 0.0, values)
    if isinstance(tile.block, np.ndarray):
        return replace(tile, block=filled)
    return replace(tile, block=with_data(tile.block, filled))
