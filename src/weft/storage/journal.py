"""Journals: what happened in a run, so that it can happen again after a restart.

A journal is a file of frames (:mod:`weft.storage.framed_records`) after a first line. It only
grows, but for a record that turned out not to count. It belongs to one process at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.storage.files import StorageError
from weft.storage.framed_records import CutOff, Damage, framed, read_frames

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"weft journal 1\n"


class Journal:
    """Records of one run, in a file that only its owner can read.

    What a killed process had not written to its end is cut off at opening.

    Parameters
    ----------
    path
        The file; it is made, and its folder too, where it is missing.

    Raises
    ------
    StorageError
        Another process has it, it is damaged in its middle, or the disk does not do its part.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Where the records end; the first entry is the end of the first line.
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
        """All records that there are now, one after the other from the file."""
        with self._disk("read"), self.path.open("rb") as file:
            file.seek(len(_MAGIC))
            try:
                yield from (content for content, _ in read_frames(file, self._ends[-1]))
            except (CutOff, Damage):
                raise self._damaged() from None

    def append(self, record: bytes, *, durable: bool = True) -> None:
        """Write a record through to the disk, or none of it.

        A machine that loses its power must not forget what others build upon. A record that is not
        ``durable`` outlives its process, but maybe not a loss of power.
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
        """Take the last record back: it does not count."""
        with self._disk("written"):
            os.ftruncate(self._file, self._ends[-2])
            os.fdatasync(self._file)
        self._ends.pop()

    def close(self) -> None:
        """Leave the file to others."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        """Close, and delete the file."""
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
                f"{self.path} is in use by another process; end that one before this run goes on"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be locked ({error.strerror or error}); put the folder on a "
                "disk of this machine"
            ) from None

    def _find_ends(self) -> None:
        """Read the file once, and cut off what was not written to its end."""
        size = os.fstat(self._file).st_size
        if size < len(_MAGIC) and _MAGIC.startswith(os.pread(self._file, size, 0)):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, _MAGIC, 0)
            os.fdatasync(self._file)
            return
        with self.path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise StorageError(f"{self.path} is no journal of a run; move it away")
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
        # Should an earlier write have failed, and cutting it off too.
        if os.fstat(self._file).st_size != at:
            os.ftruncate(self._file, at)
        while rest:
            written = os.pwrite(self._file, rest, at)
            at, rest = at + written, rest[written:]
        if durable:
            os.fdatasync(self._file)

    @contextmanager
    def _disk(self, done: str) -> Iterator[None]:
        """Turn what a disk complains of into a sentence."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self.path}: the journal of the run cannot be {done} "
                f"({error.strerror or error}); check the folder's permissions and free space, "
                "then resume the run"
            ) from None

    def _damaged(self) -> StorageError:
        return StorageError(
            f"{self.path} is damaged: a record in its middle is not what was written; restore it "
            "from a backup, or start a new run"
        )
