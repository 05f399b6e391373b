"""A party's memory of a run on disk, so that a killed party can take the run up again."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from urllib.parse import quote, unquote

from weft.storage.files import StorageError, replacing

_SUFFIX = ".memory"


class FileMemory(MutableMapping[str, bytes]):
    """Named values in files of their own, for their owner's eyes only.

    A value is on the disk, whole, before it is used anywhere: a kill or a power cut leaves all
    values that anything depends on.

    Parameters
    ----------
    folder
        Where they lie; it is made if there is none. One run of one party has one folder, which no
        two processes use at once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            # A kill in the middle of writing leaves a draft, which nobody has used.
            for draft in folder.glob(f".*{_SUFFIX}.*.tmp"):
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"the folder {folder} for a party's memory cannot be made or read "
                f"({error.strerror or error}); check its permissions, or name another folder"
            ) from None

    def __repr__(self) -> str:
        return f"FileMemory({str(self._folder)!r})"

    def _file(self, name: str) -> Path:
        return self._folder / f"{quote(name, safe=' ')}{_SUFFIX}"

    def __getitem__(self, name: str) -> bytes:
        path = self._file(name)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None
        except OSError as error:
            raise StorageError(
                f"{path} cannot be read ({error.strerror or error}); check its permissions and its "
                "disk, then start this party again"
            ) from None

    def __setitem__(self, name: str, value: bytes) -> None:
        with replacing(self._file(name), durable=True) as draft:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(value)

    def __delitem__(self, name: str) -> None:
        try:
            self._file(name).unlink()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        # All at once: what is deleted on the way must not be missed.
        found = sorted(self._folder.glob(f"*{_SUFFIX}"))
        return iter([unquote(path.name.removesuffix(_SUFFIX)) for path in found])

    def __len__(self) -> int:
        return sum(1 for _ in self)
