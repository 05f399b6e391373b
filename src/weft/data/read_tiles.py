"""Reading a party's tile from the file or database that it has.

Ids are read as text, exactly as written ("007" is not "7") but for surrounding blanks, which
are stripped, as they are from column names. A blank cell is a missing cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from weft.data.columns_to_tile import tile_of_columns
from weft.data.file_or_database_address import Source, is_database, source_of
from weft.data.findings_with_config_fixes import Finding, Findings, insist
from weft.data.libsvm_and_npz_files import NUMBER_FILES, read_number_file
from weft.data.read_tables import (
    TABLES,
    is_table,
    names_in_federation,
    open_table,
    read_table,
    reading,
)
from weft.data.reading_options import AS_FOUND, ReadingOptions
from weft.data.tile import Tile, with_data
from weft.errors import DataError


@dataclass(frozen=True)
class Examined:
    """A file, and all that was found in it.

    Attributes
    ----------
    file
        Its name.
    tile
        What could be read: cells that are no numbers count as zero, rows without an id of their own
        left out. To be trained on only where no finding is graver than a note. None: nothing.
    header
        Names of the columns as the file has them.
    """

    file: str
    tile: Tile | None
    findings: tuple[Finding, ...]
    header: tuple[str, ...] = ()


def read_tile(
    source: str | Source,
    *,
    id_column: str = "id",
    label_column: str | None = None,
    features: Sequence[str] | None = None,
    party: str = "",
    options: ReadingOptions = AS_FOUND,
) -> Tile:
    """Read one party's tile; the suffix of the file says how.

    Parameters
    ----------
    source : path or address
        ``.csv``, ``.tsv`` or ``.txt``, also with ``.gz``, ``.xz`` or ``.zip`` at the end,
        ``.parquet``, ``.feather``, ``.arrow``, ``.xlsx``: a table with a header. ``.duckdb``,
        ``.sqlite``, ``.db`` or ``postgresql://HOST/NAME``: a database, which needs a query.
        ``.libsvm`` or ``.svm``: the label comes first in each line, features are called "1",
        "2", … after their 1-based index, and the ids are the lines of a text file beside it
        called like it with ``.ids`` at the end, or else the row numbers "1", "2", ….
        ``.npz``: arrays ``ids``, ``features`` and ``X``, or for a sparse tile ``data``,
        ``indices``, ``indptr`` and ``shape`` of its CSR form, and labels ``y`` if any.
    id_column : str
        Column of the sample ids (tables only).
    label_column : str, optional
        Column of the labels (tables only); without it no column is taken as labels.
    features : sequence of str, optional
        Feature columns to read; by default all columns but ids and labels.
    party : str
        Name of the party, for error messages.
    options : ReadingOptions
        How the file is written, where that cannot be found out by looking, and what its columns
        are called in the federation.

    Returns
    -------
    Tile
        With the file's name as its source.

    Raises
    ------
    DataError
        When the file cannot be used as it is; the message names the column or the sample.
    """
    examined = examine(
        source,
        id_column=id_column,
        label_column=label_column,
        features=features,
        party=party,
        options=options,
    )
    insist(examined.findings)
    assert examined.tile is not None
    return examined.tile


def examine(
    source: str | Source,
    *,
    id_column: str = "id",
    label_column: str | None = None,
    features: Sequence[str] | None = None,
    party: str = "",
    options: ReadingOptions = AS_FOUND,
) -> Examined:
    """Read a file as `read_tile` does, and collect all of its problems instead of raising one."""
    if isinstance(source, str):
        source = source_of(source)
    found = Findings(party, source.name)
    columns = _Columns(id_column, label_column, features)
    tile: Tile | None = None
    header: tuple[str, ...] = ()
    try:
        with reading(source):
            if is_table(source):
                tile, header = _read_table(source, columns, options, found)
            else:
                tile = _some_features(_read_numbers(source), features, options)
                header = tuple(tile.features.tolist())
        if tile is not None:
            _insist_on_content(tile, source)
            tile = _scaled(tile, options)
            if options.storage == "float32":
                tile = tile.in_single_precision()
    except DataError as error:
        found.stop(error)
    return Examined(source.name, tile, tuple(found.found), header)


@dataclass(frozen=True)
class _Columns:
    """Which columns are wanted, by their names in the federation."""

    id: str
    label: str | None
    features: Sequence[str] | None


def _read_table(
    source: Source, columns: _Columns, options: ReadingOptions, found: Findings
) -> tuple[Tile, tuple[str, ...]]:
    """A tile from a table; only the columns asked for are parsed."""
    if isinstance(source, Path) and not source.is_file():
        raise DataError(f"{source.name}: there is no such file ({source}); check the path.")
    where = source.name
    table = open_table(source, options, found)
    header = tuple(name.strip() for name in table.header)
    names = names_in_federation(table.header, options, where)
    features = _features(columns, names, where)
    texts = [name for name in (columns.id, columns.label) if name is not None]
    texts += [name for name in features if options.rule_of(name).kind != "number"]
    wanted = list(dict.fromkeys([columns.id, *features, *texts]))
    raw = read_table(table, names, wanted, texts, found)
    tile = tile_of_columns(raw, columns.id, columns.label, features, options, found)
    if is_database(source):
        # A database promises no order of rows.
        tile = tile.rows(np.argsort(tile.ids.astype(str), kind="stable"))
    return tile, header


def _features(columns: _Columns, names: Collection[str], where: str) -> list[str]:
    """Which columns are features."""
    _require([columns.id], names, "id column", where)
    if columns.label is not None:
        _require([columns.label], names, "label column", where)
    if columns.features is None:
        return [name for name in names if name not in (columns.id, columns.label)]
    _require(columns.features, names, "feature column", where)
    for name in (columns.id, columns.label):
        if name in columns.features:
            raise DataError(
                f"{where}: column {name!r} cannot be a feature, since it holds the ids or "
                "the labels; take it out of 'features'."
            )
    return list(columns.features)


def _require(names: Iterable[str], available: Collection[str], kind: str, where: str) -> None:
    for name in names:
        if name not in available:
            near = get_close_matches(name, available, n=3, cutoff=0.6)
            listed = ", ".join(repr(column) for column in (near or list(available)[:5]))
            found = f"the closest is {listed}" if near else f"its columns begin with {listed}"
            advice = "correct the name or the file"
            if kind == "label column":
                advice += ", or set label = false where a party has no labels"
            elif kind == "id column":
                advice += ", or name another id column (id = … in a config, --id on a command line)"
            raise DataError(
                f"{where}: the {kind} {name!r} is not there; {found if listed else 'it is empty'}; "
                f"{advice}.",
                harmless=f"does not have the {kind} {name!r}",
            )


def _read_numbers(source: Source) -> Tile:
    assert isinstance(source, Path)
    if not source.is_file():
        raise DataError(f"{source.name}: there is no such file ({source}); check the path.")
    if not source.name.lower().endswith(NUMBER_FILES):
        raise DataError(
            f"{source.name}: the suffix {source.suffix!r} is unknown; use {', '.join(TABLES)}, "
            ".libsvm, .svm or .npz."
        )
    return read_number_file(source)


def _some_features(tile: Tile, features: Sequence[str] | None, options: ReadingOptions) -> Tile:
    names = [options.named(name) for name in tile.features.tolist()]
    dropped = set(options.drop or ())
    if features is not None:
        _require(features, names, "feature column", tile.source)
    kept = [name for name in (names if features is None else features) if name not in dropped]
    if kept == tile.features.tolist():
        return tile
    place = {name: position for position, name in enumerate(names)}
    chosen = tile.columns(np.array([place[name] for name in kept], dtype=np.int64))
    return Tile(chosen.ids, np.array(kept, dtype=object), chosen.block, chosen.labels, tile.source)


def _scaled(tile: Tile, options: ReadingOptions) -> Tile:
    """The tile with columns in the federation's units."""
    factors = np.array([(options.scale or {}).get(name, 1.0) for name in tile.features.tolist()])
    if (factors == 1.0).all():
        return tile
    if isinstance(tile.block, np.ndarray):
        # In its place: it was made from the file, and nobody else has it.
        np.multiply(tile.block, factors, out=tile.block)
        return tile
    return replace(tile, block=with_data(tile.block, tile.block.data * factors[tile.block.indices]))


def _insist_on_content(tile: Tile, source: Source) -> None:
    if not tile.n:
        raise DataError(f"{source.name}: the file has no rows; export it again with its data.")
    if not tile.m and tile.declared is None:
        raise DataError(
            f"{source.name}: no feature columns are left besides ids and labels; add at least "
            "one or check 'features'."
        )
