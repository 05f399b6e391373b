"""A cut table as files: one or more for each party, and the config that names them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.config.needed_terms import lines_for
from weft.data.splits import Split
from weft.data.tile import Tile
from weft.data.writers import write_tile

_LOSSES = {"classification": "hinge", "regression": "squared"}


def write_federation(
    folder: Path, split: Split, *, name: str, suffix: str, id_column: str, label_column: str
) -> None:
    """Write the parties' files and a ``config.toml`` that trains on them.

    Parameters
    ----------
    folder
        A folder that exists and is empty.
    split
        What to write.
    name
        Name of the federation.
    suffix
        ``csv``, ``parquet`` or ``npz``.
    id_column, label_column
        Names of those columns in the files.
    """
    lines = [
        f"# {split.note}",
        f"name = {_text(name)}",
        "",
        "[data]",
        f"id = {_text(id_column)}",
        f"label = {_text(label_column)}",
        f"overlap = {_text(split.overlap)}",
        f"scaling = {_text(_scaling(split))}",
        "unit_rows = true",
        "",
        "[model]",
        f"loss = {_text(_LOSSES[split.task])}",
        "lambda = 1e-3",
        "",
        "[solver]",
        "gap = 1e-2",
        "iterations = 10000",
        "",
        *lines_for(split),
    ]
    for party, tiles in split.parties.items():
        labelled = any(tile.labels is not None for tile in tiles)
        files = [f"{party}.{suffix}"]
        if len(tiles) > 1:
            files = [f"{party}-{number}.{suffix}" for number in range(1, len(tiles) + 1)]
        for tile, file in zip(tiles, files, strict=True):
            write_tile(
                _with_labels(tile) if labelled else tile,
                folder / file,
                id_column=id_column,
                label_column=label_column,
            )
        lines += ["", "[[party]]", f"name = {_text(party)}"]
        lines.append(f"file = {_text(files[0])}" if len(files) == 1 else f"files = {_text(files)}")
        if not labelled:
            lines.append("label = false")
    (folder / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _scaling(split: Split) -> str:
    """The best scaling there is: shares cannot be scaled, and centring would fill zeros in."""
    if split.overlap == "sum":
        return "none"
    return "maxabs" if any(tile.is_sparse for _, tile in split.tiles()) else "standard"


def _with_labels(tile: Tile) -> Tile:
    """A label column in every file of a party that has labels, blank where it has none."""
    return tile if tile.labels is not None else replace(tile, labels=np.full(tile.n, np.nan))


def _text(value: str | list[str]) -> str:
    """TOML's basic strings and lists of them are written like JSON's."""
    return json.dumps(value, ensure_ascii=False)
