"""Raw rows from Python, as a data frame has them, as the features that a model knows."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from weft.data.columns.table_transformation import Transformation
from weft.data.columns_to_tile import tile_of_columns
from weft.data.findings_with_config_fixes import Findings, insist
from weft.data.raw_columns_and_decimal_signs import RawColumns, signs_of
from weft.data.reading_options import ReadingOptions
from weft.data.tile import Tile

_ROW = "(row)"


def tile_of_frame(frame: Any, wanted: list[str], transformation: Transformation) -> Tile:
    """Some columns of a data frame, transformed as they were for training.

    Raises
    ------
    FoundProblems
        Cells are not what their columns are to hold.
    """
    options = reading_of(transformation, wanted)
    columns = pa.table(
        {name: pa.Array.from_pandas(frame[name]) for name in wanted}
        | {_ROW: pa.array([str(row) for row in range(1, len(frame) + 1)])}
    )
    found = Findings(file="the table")
    texts = [_ROW, *(name for name in wanted if options.rule_of(name).kind != "number")]
    raw = RawColumns(columns, signs_of(columns, texts, options, found))
    tile = tile_of_columns(raw, _ROW, None, wanted, options, found)
    insist(found.found)
    return transformation.apply(tile).insist()


def reading_of(
    transformation: Transformation, held: list[str], base: ReadingOptions | None = None
) -> ReadingOptions:
    """How columns are read again as they were for training; ``base`` says how the file is written.

    How a file writes its dates and its levels is for the file's own options to say.
    """
    base = base or ReadingOptions()
    rules = {}
    for name, rule in transformation.rules.items():
        if name in held:
            own = (base.columns or {}).get(name, rule)
            rules[name] = msgspec.structs.replace(rule, format=own.format, map=own.map)
    pairs = [pair for pair in transformation.interactions if set(pair) <= set(held)]
    return msgspec.structs.replace(base, columns=rules or None, interactions=pairs or None)


def raw_columns_of(transformation: Transformation, features: Any) -> list[str]:
    """Columns that the features of a model are made of: declared ones, and plain features."""
    made = {f for column in transformation.columns for f in column.features()}
    declared = [column.name for column in transformation.columns]
    paired = {name for pair in transformation.interactions for name in pair}
    plain = [
        name
        for name in np.asarray(features).tolist()
        if name not in made and name not in declared and not _is_product(name, transformation, made)
    ]
    return [*plain, *declared, *(sorted(paired - set(plain) - set(declared)))]


def _is_product(name: str, transformation: Transformation, made: set[str]) -> bool:
    for left, right in transformation.interactions:
        known = transformation.rules
        lefts = made if left in known else {left}
        rights = made if right in known else {right}
        for at, sign in enumerate(name):
            if sign == "*" and name[:at] in lefts and name[at + 1 :] in rights:
                return True
    return False
