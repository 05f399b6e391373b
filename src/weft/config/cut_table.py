"""Tables to cut into parties: from a file with all columns, by the name of a way to cut them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

import msgspec
import numpy as np

from weft.config.reader import checked, closest
from weft.data.readers import read_tile
from weft.data.splits import SPLITS, Split
from weft.data.tile import Labels, Table, Task
from weft.errors import ConfigError, DataError

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
