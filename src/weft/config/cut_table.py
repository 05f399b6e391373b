"""Cutting a table by the name of the way to cut it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import get_type_hints

import msgspec

from weft.config.reader import closest, known_keys, plain
from weft.data.splits import SPLITS, Split
from weft.data.tile import Table
from weft.errors import ConfigError


def cut_table(table: Table, name: str, options: Mapping[str, object]) -> Split:
    """Cut a table by the name of the way to cut it.

    Parameters
    ----------
    table
        What to cut.
    name
        One of ``SPLITS``.
    options
        What that way takes; texts such as "3" are read as the numbers they stand for.
    """
    if name not in SPLITS:
        raise ConfigError(
            f"there is no split '{name}'{closest(name, SPLITS)}; choose one of "
            f"{', '.join(SPLITS)}{SPLITS.left_out()}"
        )
    way = SPLITS[name]
    known = {n: p for n, p in inspect.signature(way).parameters.items() if n != "table"}
    known_keys(options, known, f"split '{name}'")
    for option, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ConfigError(f"split '{name}' needs {option}; give it a value")
    hints = get_type_hints(way)
    values = {}
    for option, value in options.items():
        try:
            values[option] = msgspec.convert(value, hints[option], strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"split '{name}': {option} = {value!r}: {plain(error)}") from None
    return way(table, **values)
