"""Original files of named data sets, found in a data directory."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from weft.errors import DataError

T = TypeVar("T")

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


def options_of(loader: Callable[..., object]) -> tuple[str, ...]:
    """What a loader takes besides its folder."""
    return tuple(name for name in inspect.signature(loader).parameters if name != "folder")


def load_with(
    loader: Callable[..., T], folder: DataFolder, options: Mapping[str, object], what: str
) -> T:
    """Call a loader; refuses options that it does not take.

    Parameters
    ----------
    what
        What is loaded, for the refusal: "data set 'mnist'".
    """
    known = options_of(loader)
    for option in options:
        if option not in known:
            raise DataError(
                f"{what} has no option {option!r}; it takes {', '.join(known) or 'none'}."
            )
    return loader(folder, **options)
