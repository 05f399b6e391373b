"""What must survive a power cut is on the disk before anything counts on it."""

from __future__ import annotations

import os

import pytest

from weft.privacy.ledger.ledger_contents import LedgerContents
from weft.privacy.ledger.ledger_file import Book
from weft.storage.atomic_files import write_private
from weft.storage.journal import Journal


@pytest.fixture
def flushed(monkeypatch, tmp_path):
    """What was flushed, in order: a folder's names, or the bytes of a file and its name."""
    found = []

    def flush(file):
        there = os.fstat(file)
        if os.path.samestat(there, tmp_path.stat()):
            found.append(sorted(path.name for path in tmp_path.iterdir()))
            return
        (name,) = (p.name for p in tmp_path.iterdir() if os.path.samestat(p.stat(), there))
        found.append((name, os.pread(file, 1000, 0)))

    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, flush)
    return found


def test_a_file_is_flushed_before_it_takes_its_name_and_the_name_after_it(flushed, tmp_path):
    write_private(tmp_path / "kept", b"old")
    assert flushed == []
    write_private(tmp_path / "kept", b"new", durable=True)
    (draft, content), names = flushed
    assert draft != "kept"
    assert content == b"new"
    assert names == ["kept"]


def test_a_ledger_is_on_the_disk_before_a_run_goes_on(flushed, tmp_path):
    Book(tmp_path, "north").write(LedgerContents.new())
    (draft, content), names = flushed
    assert draft != "north.npz"
    assert content.startswith(b"PK")
    assert names == ["north.npz"]


def test_a_record_is_flushed_with_its_journal_unless_it_need_not_last(flushed, tmp_path):
    journal = Journal(tmp_path / "journal")
    flushed.clear()
    journal.append(b"first", durable=False)
    assert flushed == []
    journal.append(b"second")
    assert flushed[-1][0] == "journal"
    assert b"second" in flushed[-1][1]
    flushed.clear()
    journal.drop_last()
    assert b"first" in flushed[-1][1]
    assert b"second" not in flushed[-1][1]
    flushed.clear()
    journal.keep([range(1)])
    (draft, content), names = flushed
    assert draft != "journal"
    assert b"first" in content
    assert names == ["journal"]
    journal.close()
