"""Journals: what happened in a run, so that it can happen again after a restart.

A journal is a file of frames (:mod:`weft.storage.framed_records`) after a first line. It grows, but
for a record that turned out not to count, and until its owner has no use for earlier ones. It
belongs to one process at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from weft.storage.atomic_files import DamagedFile, StorageError
from weft.storage.framed_records import PREFIX_BYTES, CutOff, Damage, prefix_of, read_frames

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"weft journal 1\n"
#: How names of files end that are to take the place of another, and bytes that are copied at once.
_DRAFT, _PART = ".draft", 1 << 20


class Journal:
    """Records in a file that only its owner can read.

    A record that a killed process did not finish is cut off when the file is opened.

    Parameters
    ----------
    path
        The file; it and its folder are created where they are missing.
    lenient
        Whether a damaged record in the middle is read as no bytes, by an owner who can do without
        some; else the file cannot be opened.

    Raises
    ------
    StorageError
        Another process uses the file, it is damaged in the middle, or the disk fails.
    """

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        self.path, self._lenient = path, lenient
        #: Where the first line and each record end.
        self._ends = [len(_MAGIC)]
        #: Whether a power cut leaves the file its name.
        self._named = True
        with self._disk("opened"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(self._file)
            with self._disk("opened"):
                self._check_current()
                self._delete_drafts()
                self._find_ends()
        except BaseException:
            os.close(self._file)
            raise

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[bytes]:
        """The records there are now, read one after the other."""
        return self._records(0, len(self))

    def __getitem__(self, place: int) -> bytes:
        """One record, read from the file."""
        return next(self._records(place, place + 1))

    def size(self, begin: int, end: int) -> int:
        """Bytes of the records from one to before another."""
        return self._ends[end] - self._ends[begin]

    @staticmethod
    def framed_size(record: bytes) -> int:
        """Bytes that a record takes in the file."""
        return PREFIX_BYTES + len(record)

    def _records(self, begin: int, end: int) -> Iterator[bytes]:
        with self._disk("read"), self.path.open("rb") as file:
            file.seek(self._ends[begin])
            frames = read_frames(file, self._ends[end], lenient=self._lenient)
            try:
                yield from (content for content, _ in frames)
            except (CutOff, Damage):
                raise self.damaged() from None

    def append(self, record: bytes, *, durable: bool = True) -> None:
        """Write a whole record or none of it.

        A ``durable`` record is on the disk when this returns. Any other one survives a kill of the
        process, but perhaps not a power cut.
        """
        prefix = prefix_of(record)
        try:
            with self._disk("written"):
                self._write(prefix, record, durable)
        except StorageError:
            with suppress(OSError):
                os.ftruncate(self._file, self._ends[-1])
            raise
        self._ends.append(self._ends[-1] + len(prefix) + len(record))

    def drop_last(self) -> None:
        """Remove the last record."""
        with self._disk("written"):
            os.ftruncate(self._file, self._ends[-2])
            os.fdatasync(self._file)
        self._ends.pop()

    def keep(self, places: Sequence[range]) -> None:
        """Leave only these records, in a file that takes the place of the old one as a whole.

        Whatever interrupts it, there is the old file or the new one, on the disk. An error means
        the old one: where only the folder cannot be written, the next durable record tries again.
        """
        with self._disk("written"):
            draft = self.path.with_name(f".{self.path.name}.{uuid4().hex}{_DRAFT}")
            file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_EXCL, 0o600)
            try:
                ends = self._copy(file, places)
                os.fsync(file)
                # Before it has the name: nobody else must get hold of it.
                self._lock(file)
                os.replace(draft, self.path)
            except BaseException:
                os.close(file)
                with suppress(OSError):
                    draft.unlink(missing_ok=True)
                raise
            old, self._file, self._ends = self._file, file, ends
            self._named = False
            with suppress(OSError):
                os.close(old)
                self._sync_folder()

    def _copy(self, file: int, places: Sequence[range]) -> list[int]:
        """Write the first line and some records to another file; where each ends there."""
        _write_all(file, _MAGIC, 0)
        ends = [len(_MAGIC)]
        for records in places:
            at, end = self._ends[records.start], self._ends[records.stop]
            shift = ends[-1] - at
            while at < end:
                part = os.pread(self._file, min(_PART, end - at), at)
                if not part:
                    raise self.damaged()
                _write_all(file, part, at + shift)
                at += len(part)
            ends += [self._ends[place + 1] + shift for place in records]
        return ends

    def _sync_folder(self) -> None:
        if os.name != "nt":  # pragma: no branch - Windows opens no folders.
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._named = True

    def close(self) -> None:
        """Let other processes open the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        """Close and delete the file."""
        self.close()
        with self._disk("deleted"):
            self.path.unlink(missing_ok=True)

    # ── the file ──────────────────────────────────────────────────────────────────────────

    def _lock(self, file: int) -> None:
        if fcntl is None:  # pragma: no cover - Windows has none.
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be locked ({error.strerror or error}); put the folder on a "
                "local disk"
            ) from None

    def _in_use(self) -> StorageError:
        return StorageError(f"{self.path} is in use by another process; end that process first")

    def _check_current(self) -> None:
        """Refuse a file that its owner has put another in the place of, before it was locked."""
        try:
            current = os.path.sameopenfile(self._file, found := os.open(self.path, os.O_RDONLY))
        except FileNotFoundError:
            raise self._in_use() from None
        os.close(found)
        if not current:
            raise self._in_use()

    def _delete_drafts(self) -> None:
        """What a process that was killed in `keep` has left."""
        for draft in self.path.parent.glob(f".{self.path.name}.*{_DRAFT}"):
            draft.unlink(missing_ok=True)

    def _find_ends(self) -> None:
        """Check all records, and cut off an unfinished one."""
        size = os.fstat(self._file).st_size
        if size < len(_MAGIC) and _MAGIC.startswith(os.pread(self._file, size, 0)):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, _MAGIC, 0)
            os.fdatasync(self._file)
            return
        with self.path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise StorageError(f"{self.path} is not a journal; move it away")
            try:
                for _, end in read_frames(file, size, lenient=self._lenient):
                    self._ends.append(end)
            except CutOff:
                pass
            except Damage as damage:
                if not damage.last:
                    raise self.damaged() from None
        os.ftruncate(self._file, self._ends[-1])

    def _write(self, prefix: bytes, record: bytes, durable: bool) -> None:
        if durable and not self._named:
            # Else a power cut might bring back the old file, without this record.
            self._sync_folder()
        at = self._ends[-1]
        # An earlier write failed, and so did cutting it off.
        if os.fstat(self._file).st_size != at:
            os.ftruncate(self._file, at)
        if len(record) > _PART:
            # One call less is worth a copy of what is small.
            _write_all(self._file, prefix, at)
            _write_all(self._file, record, at + len(prefix))
        else:
            _write_all(self._file, prefix + record, at)
        if durable:
            os.fdatasync(self._file)

    @contextmanager
    def _disk(self, done: str) -> Iterator[None]:
        """Say in a sentence what the disk could not do."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self.path}: the journal of the run cannot be {done} "
                f"({error.strerror or error}); check the folder's permissions and free space, "
                "then resume the run"
            ) from None

    def damaged(self) -> StorageError:
        """The error for a record that its owner cannot do without."""
        # An older copy would let a party use pads a second time.
        mend = "give the run up with --forget and start a new one, and restore nothing of it"
        return DamagedFile(
            f"{self.path} is damaged: a record in its middle is not what was written; {mend}",
            told=f"its journal of the run is damaged; {mend}",
        )


def _write_all(file: int, content: bytes, at: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, at)
        at, rest = at + written, rest[written:]
