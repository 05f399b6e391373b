"""Journals: whole records after a kill at any byte, a sentence about damage or a full disk."""

from __future__ import annotations

import os
import resource
import stat
from itertools import product

import pytest

from weft.storage.atomic_files import DamagedFile, StorageError
from weft.storage.journal import Journal

RECORDS = [b"first", b"second" * 4, b"\0" * 9, b"last"]


def write(path, records=RECORDS):
    journal = Journal(path)
    for record in records:
        journal.append(record)
    journal.close()
    return path


def read(path):
    journal = Journal(path)
    try:
        assert len(journal) == len(list(journal))
        return list(journal)
    finally:
        journal.close()


def test_records_come_back_in_order_for_their_owner_alone(tmp_path):
    path = write(tmp_path / "run" / "journal")
    assert read(path) == RECORDS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_journal_cut_at_any_byte_keeps_its_whole_records_and_goes_on(tmp_path):
    whole = write(tmp_path / "whole").read_bytes()
    ends = [whole.index(RECORDS[0]) + len(RECORDS[0])]
    for record in RECORDS[1:]:
        ends.append(ends[-1] + 12 + len(record))
    assert ends[-1] == len(whole)
    for size in range(len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:size])
        kept = RECORDS[: sum(end <= size for end in ends)]
        journal = Journal(path)
        assert list(journal) == kept
        journal.append(b"more")
        journal.close()
        assert read(path) == [*kept, b"more"]


@pytest.mark.parametrize("tail", [b"\0" * 5, b"\0" * 4096])
def test_zeros_that_a_power_cut_left_at_the_end_are_cut_off(tmp_path, tail):
    path = write(tmp_path / "journal")
    with path.open("ab") as file:
        file.write(tail)
    assert read(path) == RECORDS


def test_a_flipped_bit_never_changes_a_record(tmp_path):
    """It is told, or the journal ends before it: then the other side knows more, and says so."""
    path = tmp_path / "journal"
    whole = write(path).read_bytes()
    told = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        try:
            found = read(path)
        except StorageError:
            told += 1
        else:
            assert found == RECORDS[: len(found)]
            assert len(found) < len(RECORDS)
    assert told > len(whole) / 2


def lengths(whole):
    """Where the length of each record lies."""
    begin = whole.index(RECORDS[0]) - 12
    for record in RECORDS:
        yield range(begin, begin + 8)
        begin += 12 + len(record)
    assert begin == len(whole)


def test_a_damaged_length_is_no_unfinished_record(tmp_path):
    """Else all that comes after it would be lost without a word."""
    path = tmp_path / "journal"
    whole = write(path).read_bytes()
    for place, field in enumerate(lengths(whole)):
        for position, bit in product(field, range(8)):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(DamagedFile, match="damaged: a record in its middle"):
                Journal(path)
            assert path.read_bytes() == changed
            # Whoever can do without some has all others.
            if bytes(changed[field.start : field.stop]).strip(b"\0"):
                lenient = Journal(path, lenient=True)
                assert list(lenient) == [*RECORDS[:place], b"", *RECORDS[place + 1 :]]
                lenient.close()


def test_damage_in_the_middle_is_told_and_nothing_is_cut(tmp_path):
    path = write(tmp_path / "journal")
    changed = path.read_bytes().replace(b"secondsecond", b"secondSecond", 1)
    path.write_bytes(changed)
    with pytest.raises(DamagedFile, match="damaged: a record in its middle") as told:
        Journal(path)
    # A copy from before would let a party use pads twice.
    assert "restore nothing" in str(told.value)
    assert "start a new one" in told.value.told
    assert str(tmp_path) not in told.value.told
    assert path.read_bytes() == changed


def test_a_full_disk_is_told_and_the_journal_can_be_used_again(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append(b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The system writes what fits, 300 kB of the record, and refuses the rest.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        with pytest.raises(StorageError, match=r"cannot be written .* free space"):
            journal.append(bytes(500_000))
        assert path.stat().st_size < 100
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.append(b"after")
    journal.close()
    assert read(path) == [b"before", b"after"]


def test_a_large_record_of_which_only_the_beginning_was_written_is_cut_off(tmp_path):
    """What is large is not copied behind its length and checksum, but written after them."""
    path, large = tmp_path / "journal", bytes(range(256)) * 20_000
    journal = Journal(path)
    for record in (b"before", large):
        journal.append(record)
    journal.close()
    whole = path.read_bytes()
    assert read(path) == [b"before", large]
    for lost in (1, len(large) - 1, len(large), len(large) + 1, len(large) + 12):
        path.write_bytes(whole[:-lost])
        journal = Journal(path)
        journal.append(b"after")
        journal.close()
        assert read(path) == [b"before", b"after"]


def test_a_half_record_that_could_not_be_cut_off_is_written_over(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal")
    journal.append(b"before")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", full)
        patched.setattr(os, "ftruncate", full)
        with pytest.raises(StorageError, match="No space left"):
            journal.append(b"a long record that does not count")
    journal.append(b"after")
    journal.close()
    assert read(tmp_path / "journal") == [b"before", b"after"]


def test_two_processes_cannot_write_one_journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    with pytest.raises(StorageError, match="in use by another process"):
        Journal(tmp_path / "journal")
    journal.close()
    Journal(tmp_path / "journal").close()


def test_a_record_that_does_not_count_is_dropped(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.append(b"one")
    journal.append(b"two")
    journal.drop_last()
    assert list(journal) == [b"one"]
    journal.append(b"three")
    journal.close()
    assert read(tmp_path / "journal") == [b"one", b"three"]
    Journal(tmp_path / "journal").delete()
    assert not (tmp_path / "journal").exists()


# ── shorter files ─────────────────────────────────────────────────────────────────────────────


def filled(path, count=6):
    journal = Journal(path)
    for number in range(count):
        journal.append(f"record {number}".encode())
    return journal


def test_records_that_are_kept_take_the_place_of_all(tmp_path):
    journal = filled(tmp_path / "journal")
    journal.keep([range(2), range(4, 6)])
    assert list(journal) == [b"record 0", b"record 1", b"record 4", b"record 5"]
    journal.append(b"more")
    journal.drop_last()
    journal.append(b"last")
    assert journal[3] == b"record 5"
    journal.close()
    again = Journal(tmp_path / "journal")
    assert list(again)[-2:] == [b"record 5", b"last"]
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_file_that_was_replaced_while_it_was_opened_belongs_to_nobody(tmp_path, monkeypatch):
    """Whoever opened the old one just before, and gets its lock just after, would go on from it."""
    journal, lock = filled(tmp_path / "journal"), Journal._lock

    def late(self, file):
        monkeypatch.setattr(Journal, "_lock", lock)
        journal.keep([range(1)])
        lock(self, file)

    monkeypatch.setattr(Journal, "_lock", late)
    with pytest.raises(StorageError, match="in use by another process"):
        Journal(tmp_path / "journal")
    assert list(journal) == [b"record 0"]
    journal.close()


def test_what_a_kill_left_of_a_new_file_is_deleted(tmp_path):
    filled(tmp_path / "journal").close()
    (tmp_path / ".journal.0123.draft").write_bytes(b"half")
    Journal(tmp_path / "journal").close()
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    journal = filled(tmp_path / "journal")

    def full(file, content, at):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="No space left"):
            journal.keep([range(1)])
    assert len(list(journal)) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    journal.append(b"more")
    journal.close()


def test_a_folder_that_cannot_be_written_leaves_the_new_file_until_it_can(tmp_path, monkeypatch):
    """Else its owner would look for records where they were in the old one."""
    journal, fsync = filled(tmp_path / "journal"), os.fsync

    def failing(file):
        if file != journal._file and os.path.samestat(os.fstat(file), tmp_path.stat()):
            raise OSError(5, "Input/output error")
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        journal.keep([range(1), range(5, 6)])
        assert list(journal) == [b"record 0", b"record 5"]
        # A power cut might bring back the old file: what must last is not written yet.
        with pytest.raises(StorageError, match="Input/output error"):
            journal.append(b"more")
        journal.append(b"any", durable=False)
        journal.drop_last()
    journal.append(b"more")
    journal.close()
    assert read(tmp_path / "journal") == [b"record 0", b"record 5", b"more"]


def test_an_owner_who_can_do_without_some_records_reads_them_as_no_bytes(tmp_path):
    journal = filled(tmp_path / "journal")
    at = journal._ends[2] - 1
    journal.close()
    content = bytearray((tmp_path / "journal").read_bytes())
    content[at] ^= 1
    (tmp_path / "journal").write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        Journal(tmp_path / "journal")
    journal = Journal(tmp_path / "journal", lenient=True)
    found = list(journal)
    assert [number for number, record in enumerate(found) if not record] == [1]
    assert found[2] == b"record 2"
    journal.close()
