"""Tables out of databases; credentials come from the environment and appear nowhere else."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest

from weft.data import ReadingOptions, read_tile
from weft.data.file_or_database_address import Database, source_of
from weft.data.read_tables import table_columns
from weft.errors import ConfigError, DataError

ROWS = [("007", 41, 0.5, "yes"), ("7", None, 2.0, "no")]
MAKE = "create table patients (nr text, age integer, dose double precision, outcome text)"
QUERY = ReadingOptions(query="select nr, age, dose, outcome from patients where nr <> 'x'")
SECRET = "s3cret-Wörd"


def assert_read(source):
    source = source_of(str(source))
    tile = read_tile(source, id_column="nr", label_column="outcome", options=QUERY)
    assert tile.ids.tolist() == ["007", "7"]
    assert np.array_equal(tile.block, [[41, 0.5], [np.nan, 2]], equal_nan=True)
    assert tile.labels.tolist() == ["yes", "no"]
    assert table_columns(source, QUERY) == ["nr", "age", "dose", "outcome"]


@pytest.fixture
def sqlite_file(tmp_path):
    path = tmp_path / "clinic.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(MAKE)
        # In any order: rows come by id.
        connection.executemany("insert into patients values (?, ?, ?, ?)", ROWS[::-1])
    return path


def test_sqlite_files_are_asked_with_a_query(sqlite_file):
    assert_read(sqlite_file)


def test_duckdb_files_are_asked_with_a_query(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(MAKE)
        connection.executemany("insert into patients values (?, ?, ?, ?)", ROWS[::-1])
    assert_read(path)
    with pytest.raises(DataError, match="query cannot be answered"):
        read_tile(path, options=ReadingOptions(query="select * from nothing"))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (None, "needs a query"),
        ("delete from patients", "only reading is allowed"),
        ("select * from gone", "no such table: gone"),
        ("with gone as (select 1) delete from patients", "cannot be answered"),
    ],
)
def test_queries_that_do_not_read_are_refused(sqlite_file, query, words):
    before = sqlite_file.read_bytes()
    with pytest.raises(DataError, match=words):
        read_tile(sqlite_file, id_column="nr", options=ReadingOptions(query=query))
    assert sqlite_file.read_bytes() == before


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://anna:{SECRET}@host/clinic",
        "postgresql://anna@host/clinic",
        f"postgresql://host/clinic?password={SECRET}",
        f"postgresql://host/clinic?sslmode=require&user={SECRET}",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address):
    with pytest.raises(ConfigError, match="PGPASSWORD") as caught:
        Database(address)
    assert SECRET not in str(caught.value)
    assert "anna" not in str(caught.value)


def test_other_kinds_of_databases_are_refused():
    with pytest.raises(ConfigError, match="'oracle'"):
        Database("oracle://host/clinic")


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    named = shutil.which("initdb")
    if not (found or named):
        pytest.skip("PostgreSQL is not installed here")
    return (found[-1] if found else Path(str(named))).parent


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of this test alone, whose user needs a password; yields host and port."""
    pytest.importorskip("adbc_driver_postgresql")
    programs = _programs()
    folder = Path("/tmp") / f"weft-postgres-{os.getpid()}"
    folder.mkdir(mode=0o700)
    secret = folder / "password"
    secret.write_text(SECRET)
    # It refuses to run as root, so it runs as the user that its package brings along.
    owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    if owner:
        entry = pwd.getpwnam("postgres")
        for path in (folder, secret):
            os.chown(path, entry.pw_uid, entry.pw_gid)
    data = folder / "data"
    try:
        how = ["--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "anna", "--pwfile", secret, *how],
            check=True,
            capture_output=True,
            cwd="/",
            **owner,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        told = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
        control = [programs / "pg_ctl", "-D", data, "-l", folder / "log"]
        subprocess.run([*control, "-w", "-o", told, "start"], check=True, cwd="/", **owner)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=False, cwd="/", **owner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def logged_in(server, monkeypatch):
    from adbc_driver_postgresql import dbapi

    monkeypatch.setenv("PGUSER", "anna")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    with dbapi.connect(f"postgresql://{server}/postgres") as connection:
        with connection.cursor() as cursor:
            cursor.execute("drop table if exists patients")
            cursor.execute(MAKE.replace("double precision", "numeric(10, 3)"))
            cursor.execute(
                "insert into patients values ('7', null, 2, 'no'), ('007', 41, 0.5, 'yes')"
            )
        connection.commit()
    return f"postgresql://{server}/postgres"


def test_postgresql_is_asked_with_a_query(logged_in):
    assert_read(logged_in)


def test_postgresql_is_only_read(logged_in):
    query = "with gone as (delete from patients returning nr) select nr, 1 as age from gone"
    with pytest.raises(DataError, match="read-only"):
        read_tile(logged_in, id_column="nr", options=ReadingOptions(query=query))
    assert_read(logged_in)


def test_a_refused_login_names_no_credential(logged_in, server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", f"{SECRET}-of-yesterday")
    with pytest.raises(DataError, match="refuses the login; give user and password") as caught:
        read_tile(logged_in, id_column="nr", options=QUERY)
    assert SECRET not in str(caught.value)
    assert "anna" not in str(caught.value)
    monkeypatch.delenv("PGPASSWORD")
    with pytest.raises(DataError, match="cannot be reached"):
        read_tile("postgresql://127.0.0.1:1/postgres", id_column="nr", options=QUERY)
