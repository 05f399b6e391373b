"""Cutting a table into parties: as files, one or more for each, and the config that names them.

The config's ``[privacy]`` section has what the parties would have to agree on before the table can
be trained on as it is cut.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.config.strict_reading import checked, closest
from weft.data.read_tiles import read_tile
from weft.data.splits import SPLITS, Split
from weft.data.tile import Labels, Table, Task, Tile
from weft.data.write_tile_file import write_tile
from weft.errors import ConfigError, DataError
from weft.guards import Terms
from weft.matching.build_holdings import Holding, build_holdings
from weft.matching.holding_map import HoldingMap

# Whole numbers with more different values than this are taken as a response, not as classes.
_MOST_CLASSES = 20


def cut_table(table: Table, name: str, options: Mapping[str, object]) -> Split:
    """Cut a table by the name of the way to cut it.

    Parameters
    ----------
    name
        One of ``SPLITS``.
    options
        What that way takes; texts such as "3" are read as the numbers they stand for.
    """
    if name not in SPLITS:
        raise ConfigError(
            f"there is no split '{name}'{closest(name, SPLITS)}; choose one of {', '.join(SPLITS)}"
        )
    way = SPLITS[name]
    read = checked(_options_of(name), dict(options), f"split '{name}'", strict=False)
    return way(table, **{option: getattr(read, option) for option in options})


def _options_of(name: str) -> type[msgspec.Struct]:
    """The parameters of a way to cut, but for the table itself."""
    way = SPLITS[name]
    hints = get_type_hints(way)
    fields = [
        (option, hints[option])
        if parameter.default is inspect.Parameter.empty
        else (option, hints[option], parameter.default)
        for option, parameter in inspect.signature(way).parameters.items()
        if option != "table"
    ]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def table_of_file(path: Path, *, id_column: str, label_column: str) -> Table:
    """Read a table; its labels tell whether it is for classification or regression."""
    tile = read_tile(path, id_column=id_column, label_column=label_column)
    if tile.labels is None or not tile.labelled.any():
        raise DataError(f"{path.name}: no sample has a label; name the label column with --label")
    task = _task(tile.labels[tile.labelled])
    name = path.name.partition(".")[0]
    return Table(tile.ids, tile.features, tile.block, tile.labels, task, name, path.name)


def _task(labels: Labels) -> Task:
    if labels.dtype.kind not in "biuf":
        return "classification"
    values = np.unique(labels.astype(np.float64))
    whole = bool((values == np.floor(values)).all())
    return "classification" if whole and len(values) <= _MOST_CLASSES else "regression"


#: Share of the samples that a guard may leave out before it is switched off.
_BEARABLE = 0.01
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


# ── terms ─────────────────────────────────────────────────────────────────────────────────────


def lines_for(split: Split) -> list[str]:
    """A ``[privacy]`` section under which a cut table can be trained on, with no more allowed."""
    holding_map = _roster(split)
    careful = Terms()
    lines = ["[privacy]", "# What the parties agree on; weft check says what each line means."]
    guarded = replace(holding_map, terms=careful)
    small = guarded.exposed & (holding_map.rows.sizes < careful.min_batch)
    lost = int(holding_map.rows.sizes[small].sum())
    if lost > _BEARABLE * holding_map.n_samples:
        lines += [
            f"# {careful.min_batch} is the default, but would leave out {lost} samples in groups "
            "smaller than that.",
            "min_batch = 1",
        ]
    else:
        lines.append(f"min_batch = {careful.min_batch}")
    if _pairs(holding_map):
        lines.append("allow_pairs = true")
    if len(holding_map.label_parties) == 1 < len(holding_map.parties):
        lines.append("allow_lone_labels = true")
    if (holding_map.foreign == 1).any():
        lines.append("allow_one_column = true")
    if holding_map.crossed.any():
        lines.append("allow_crossed_cells = true")
    if (holding_map.foreign > 0).any():
        lines += [
            "# A party may get as many sums about samples as it lacks columns, and work these out.",
            "allow_exposure = true",
        ]
    return lines


def _pairs(holding_map: HoldingMap) -> bool:
    """Whether some sum has two parties."""
    held = [axis.holders.lengths for axis in (holding_map.rows, holding_map.columns)]
    return (
        any((lengths == 2).any() for lengths in held)
        or len(holding_map.label_parties) == 2
        or len(holding_map.parties) == 2
    )


def _roster(split: Split) -> HoldingMap:
    """Who holds what, found from the ids themselves: whoever cuts a table has them all."""
    tiles = [tile for _, tile in split.tiles()]
    rows = _numbered([tile.ids for tile in tiles])
    columns = _numbered([tile.features for tile in tiles])
    holdings, at = [], 0
    for held in split.parties.values():
        end = at + len(held)
        holdings.append(
            Holding(
                rows=tuple(rows[at:end]),
                columns=tuple(columns[at:end]),
                labelled=tuple(tile.labelled for tile in held),
                labels=tuple(np.zeros(tile.n, np.uint64) for tile in held),
                loose=np.concatenate(rows[at:end]),
                bare=np.zeros(0, np.uint64),
                similar=np.concatenate(columns[at:end]),
            )
        )
        at = end
    return build_holdings(
        list(split.parties),
        holdings,
        overlap=split.overlap,
        bias=True,
        confirm_separate_ids=True,
    )


def _numbered(names: Sequence[NDArray[np.object_]]) -> list[NDArray[np.uint64]]:
    """Equal names get equal numbers."""
    if not names:
        return []
    codes, _ = pd.factorize(np.concatenate(names))
    bounds = np.cumsum([len(part) for part in names])[:-1]
    return np.split(codes.astype(np.uint64), bounds)
