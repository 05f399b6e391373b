"""Journals: what happened in a run, so that it can happen again after a restart.

A journal is a file of frames (:mod:`weft.storage.framed_records`) after a first line. It only
grows, but for a record that turned out not to count. It belongs to one process at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.storage.atomic_files import DamagedFile, StorageError
from weft.storage.framed_records import CutOff, Damage, framed, read_frames

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"weft journal 1\n"


class Journal:
    """Records in a file that only its owner can read.

    A record that a killed process did not finish is cut off when the file is opened.

    Parameters
    ----------
    path
        The file; it and its folder are created where they are missing.

    Raises
    ------
    StorageError
        Another process uses the file, it is damaged in the middle, or the disk fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Where the first line and each record end.
        self._ends = [len(_MAGIC)]
        with self._disk("opened"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            with self._disk("opened"):
                self._find_ends()
        except StorageError:
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

    def _records(self, begin: int, end: int) -> Iterator[bytes]:
        with self._disk("read"), self.path.open("rb") as file:
            file.seek(self._ends[begin])
            try:
                yield from (content for content, _ in read_frames(file, self._ends[end]))
            except (CutOff, Damage):
                raise self._damaged() from None

    def append(self, record: bytes, *, durable: bool = True) -> None:
        """Write a whole record or none of it.

        A ``durable`` record is on the disk when this returns. Any other one survives a kill of the
        process, but perhaps not a power cut.
        """
        frame = framed(record)
        try:
            with self._disk("written"):
                self._write(frame, durable)
        except StorageError:
            with suppress(OSError):
                os.ftruncate(self._file, self._ends[-1])
            raise
        self._ends.append(self._ends[-1] + len(frame))

    def drop_last(self) -> None:
        """Remove the last record."""
        with self._disk("written"):
            os.ftruncate(self._file, self._ends[-2])
            os.fdatasync(self._file)
        self._ends.pop()

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

    def _lock(self) -> None:
        if fcntl is None:  # pragma: no cover - Windows has none.
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"{self.path} is in use by another process; end that process first"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be locked ({error.strerror or error}); put the folder on a "
                "local disk"
            ) from None

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
                for _, end in read_frames(file, size):
                    self._ends.append(end)
            except CutOff:
                pass
            except Damage as damage:
                if not damage.last:
                    raise self._damaged() from None
        os.ftruncate(self._file, self._ends[-1])

    def _write(self, frame: bytes, durable: bool) -> None:
        at, rest = self._ends[-1], memoryview(frame)
        # An earlier write failed, and so did cutting it off.
        if os.fstat(self._file).st_size != at:
            os.ftruncate(self._file, at)
        while rest:
            written = os.pwrite(self._file, rest, at)
            at, rest = at + written, rest[written:]
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

    def _damaged(self) -> StorageError:
        # An older copy would let a party use pads a second time.
        mend = "give the run up with --forget and start a new one, and restore nothing of it"
        return DamagedFile(
            f"{self.path} is damaged: a record in its middle is not what was written; {mend}",
            told=f"its journal of the run is damaged; {mend}",
        )
