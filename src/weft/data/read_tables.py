"""Any table with a header: text files, Parquet, Feather, workbooks and databases.

A table is opened first, which tells its columns, and read then, which may leave columns unread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from weft.data.databases import read_query
from weft.data.file_or_database_address import DATABASES, Database, Source, is_database
from weft.data.findings_with_config_fixes import Findings
from weft.data.raw_columns_and_decimal_signs import RawColumns, RenamedColumns, is_text, signs_of
from weft.data.reading_options import AS_FOUND, ReadingOptions
from weft.data.text_file_layout import TEXT_FAILURES, TEXTS
from weft.data.text_table import TextTable
from weft.data.workbooks import WORKBOOKS, read_workbook
from weft.errors import DataError

#: Suffixes of tables with a header.
TABLES = (*TEXTS, ".parquet", ".feather", ".arrow", *WORKBOOKS, *DATABASES)
#: Bytes of columns of numbers that are read at a time, where a file can be read by columns.
AT_ONCE = 1 << 26
_FAILURES = (*TEXT_FAILURES, pa.ArrowException)


class OpenTable(Protocol):
    """A table whose columns are known."""

    @property
    def header(self) -> list[str]:
        """Names of its columns, as the file has them."""

    def read(self, wanted: Sequence[str], texts: Sequence[str], found: Findings) -> RawColumns:
        """Some columns; ``texts`` are those among them that need not be numbers."""


@dataclass(frozen=True)
class LoadedTable:
    """A table that is in memory, since its kind of file is read as a whole."""

    table: pa.Table
    options: ReadingOptions

    @property
    def header(self) -> list[str]:
        return list(self.table.column_names)

    def read(self, wanted: Sequence[str], texts: Sequence[str], found: Findings) -> RawColumns:
        columns = self.table.select([self.header.index(name) for name in wanted])
        return RawColumns(columns, signs_of(columns, texts, self.options, found))


@dataclass(frozen=True)
class ParquetTable:
    """A file that is read some columns at a time."""

    path: Path
    options: ReadingOptions

    @property
    def header(self) -> list[str]:
        return list(pyarrow.parquet.read_schema(self.path).names)

    def read(self, wanted: Sequence[str], texts: Sequence[str], found: Findings) -> RawColumns:
        schema = pyarrow.parquet.read_schema(self.path)
        asked = [n for n in wanted if n not in texts and is_text(schema.field(n).type)]
        written = pyarrow.parquet.read_table(self.path, columns=asked) if asked else pa.table({})
        signs = signs_of(written, texts, self.options, found)
        return RawColumns(ParquetColumns(self.path, wanted), signs)


class ParquetColumns:
    """Columns of a file, of which some that follow each other are in memory at a time.

    Parameters
    ----------
    wanted
        Columns in the order in which they will be asked for: in another one, files are read again
        and again.
    """

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self._path, self._wanted = path, list(wanted)
        rows = pyarrow.parquet.read_metadata(path).num_rows
        self._count = max(1, AT_ONCE // max(1, 8 * rows))
        self._held = pa.table({})

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        if name not in self._held.column_names:
            at = self._wanted.index(name)
            some = self._wanted[at : at + self._count]
            self._held = pa.table({})
            self._held = pyarrow.parquet.read_table(self._path, columns=some)
        return self._held[name]


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Say in a sentence why a source cannot be read."""
    try:
        yield
    except _FAILURES as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(
            f"{source.name}: cannot be read as it is ({reason}); repair it or export it again."
        ) from error


def is_table(source: Source) -> bool:
    """Whether a source has a header, as far as its name tells."""
    return isinstance(source, Database) or source.name.lower().endswith(TABLES)


def open_table(source: Source, options: ReadingOptions, found: Findings) -> OpenTable:
    """Find out what columns a table has, and how it is written."""
    name = source.name.lower()
    if is_database(source):
        # A database promises no order of rows; their ids give one.
        return LoadedTable(read_query(source, options.query), options)
    assert isinstance(source, Path)
    if name.endswith(".parquet"):
        return ParquetTable(source, options)
    if name.endswith((".feather", ".arrow")):
        return LoadedTable(pyarrow.feather.read_table(source), options)
    if name.endswith(WORKBOOKS):
        return LoadedTable(read_workbook(source, options, found), options)
    return TextTable.opened(source, options, found)


def read_table(
    table: OpenTable,
    names: Mapping[str, str],
    wanted: Sequence[str],
    texts: Sequence[str],
    found: Findings,
) -> RawColumns:
    """The wanted columns, under their names in the federation.

    ``names`` has their names in the file.
    """
    raw = table.read([names[name] for name in wanted], [names[name] for name in texts], found)
    return RawColumns(RenamedColumns(raw.columns, names), raw.signs)


def names_in_federation(
    header: Sequence[str], options: ReadingOptions, where: str
) -> dict[str, str]:
    """Names of columns, without blanks around them and renamed, to their names in the file.

    Columns without a name are left out, and so are those that the options drop.
    """
    names: dict[str, str] = {}
    for raw in header:
        name = options.named(raw.strip())
        if not name or name in (options.drop or ()):
            continue
        if name in names:
            raise DataError(f"{where}: column {name!r} occurs more than once; rename one of them.")
        names[name] = raw
    return names


def table_columns(source: Source, options: ReadingOptions = AS_FOUND) -> list[str] | None:
    """Names in the federation of a table's columns; None: the source is no table, or not there."""
    if not is_table(source) or (isinstance(source, Path) and not source.is_file()):
        return None
    with reading(source):
        if is_database(source):
            header = list(read_query(source, options.query, names_only=True).column_names)
        else:
            header = open_table(source, options, Findings(file=source.name)).header
        return list(names_in_federation(header, options, source.name))
