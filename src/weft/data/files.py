"""Files: found in a data directory, and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from weft.errors import DataError

DATA_VARIABLE = "WEFT_DATA"


@dataclass(frozen=True)
class DataFolder:
    """Where a named data set looks for its original files.

    The folder is the one given, else the one that the environment variable WEFT_DATA names.
    """

    data_set: str
    root: Path | None

    @classmethod
    def of(cls, data_set: str, data_dir: str | os.PathLike[str] | None) -> DataFolder:
        """The folder given, else that of the environment."""
        chosen = data_dir or os.environ.get(DATA_VARIABLE)
        return cls(data_set, Path(chosen) if chosen else None)

    def file(self, relative: str) -> Path:
        """Path of a file in the folder; refuses when there is no folder or no such file."""
        if self.root is None:
            raise DataError(
                f"data set {self.data_set!r} needs the file {relative} from a data directory; set "
                f"the environment variable {DATA_VARIABLE} to that directory or pass data_dir."
            )
        path = self.root / relative
        if not path.is_file():
            raise DataError(
                f"data set {self.data_set!r} needs the file {path}, which does not exist; put it "
                f"there, or set {DATA_VARIABLE} or data_dir to the directory that holds "
                f"{relative}."
            )
        return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without error.

    A reader therefore sees the old file or the whole new one, and an interrupted write leaves
    nothing behind.
    """
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist; create it first.")
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder's "
            "permissions and free space."
        ) from error
    finally:
        draft.unlink(missing_ok=True)
