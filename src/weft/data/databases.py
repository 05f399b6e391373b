"""Tables out of databases: PostgreSQL by address, DuckDB and SQLite by file.

Credentials come from the environment and from nowhere else: PostgreSQL's own variables (``PGUSER``,
``PGPASSWORD``, ``PGPASSFILE``, …). Addresses that hold any are refused, without being repeated, and
what drivers say while they connect is not passed on. Databases are opened for reading only.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from weft.data.cells_to_arrow import column_of_cells
from weft.data.file_or_database_address import HOW_TO_LOG_IN, Database, Source
from weft.errors import DataError

#: What a query must be, to be asked for its columns only.
_SELECT = re.compile(r"\s*(select|with|from|table|values)\b", re.IGNORECASE)


def read_query(source: Source, query: str | None, *, names_only: bool = False) -> pa.Table:
    """What a query gives, or only its columns without any row."""
    if query is None:
        raise DataError(
            f'{source.name}: a database needs a query; add it, such as query = "select * from '
            'patients".'
        )
    asked = query.strip().rstrip(";")
    if not _SELECT.match(asked):
        raise DataError(
            f"{source.name}: the query does not begin with select or with; only reading is allowed."
        )
    if names_only:
        asked = f"select * from ({asked}) as asked limit 0"
    if isinstance(source, Database):
        return _postgres(source, asked)
    if not source.is_file():
        raise DataError(f"{source}: there is no such file; check the path.")
    ask: Callable[[Path, str], pa.Table] = (
        _duckdb if source.name.lower().endswith(".duckdb") else _sqlite
    )
    return ask(source, asked)


def _postgres(source: Database, query: str) -> pa.Table:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise _not_installed(source, "the driver adbc-driver-postgresql") from None
    try:
        connection = dbapi.connect(source.address)
    except dbapi.Error as error:
        said = str(error).lower()
        refused = any(word in said for word in ("password", "authentication", "role", "pg_hba"))
        why = (
            f"it refuses the login; {HOW_TO_LOG_IN}"
            if refused
            else ("it cannot be reached; check host, port and name, and whether it runs")
        )
        raise DataError(f"{source.name}: {why}.") from None
    with connection, connection.cursor() as cursor:
        try:
            cursor.execute("set transaction read only")
            cursor.execute(query)
            return _plain(cursor.fetch_arrow_table())
        except dbapi.Error as error:
            raise _bad_query(source, error) from None


def _plain(table: pa.Table) -> pa.Table:
    """PostgreSQL's decimal numbers come as texts of a type of their own."""
    for place, column in enumerate(table.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            plain = pa.chunked_array(
                [chunk.storage for chunk in column.chunks], column.type.storage_type
            )
            if getattr(column.type, "type_name", "") == "numeric":
                plain = plain.cast(pa.float64())
            table = table.set_column(place, table.column_names[place], plain)
    return table


def _duckdb(source: Path, query: str) -> pa.Table:
    try:
        import duckdb
    except ImportError:
        raise _not_installed(source, "duckdb") from None
    try:
        with duckdb.connect(str(source), read_only=True) as connection:
            return connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise _bad_query(source, error) from None


def _sqlite(source: Path, query: str) -> pa.Table:
    address = f"{source.absolute().as_uri()}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True)
        try:
            cursor = connection.execute(query)
            names = [str(column[0]) for column in cursor.description]
            rows = cursor.fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise _bad_query(source, error) from None
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.Table.from_arrays([column_of_cells(column) for column in cells], names=names)


def _not_installed(source: Source, what: str) -> DataError:
    return DataError(
        f"{source.name}: reading it needs {what}; install it with pip install 'weft[sql]'."
    )


def _bad_query(source: Source, error: Exception) -> DataError:
    said = str(error).strip().partition("\n")[0].rstrip(".")
    for variable in ("PGPASSWORD", "PGUSER"):
        secret = os.environ.get(variable)
        said = said.replace(secret, "…") if secret else said
    return DataError(f"{source.name}: the query cannot be answered ({said}); correct 'query'.")
