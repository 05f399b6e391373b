"""Results of single runs as JSON files, so that finished runs need not be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft.errors import DataError
from weft.storage.atomic_files import replacing

T = TypeVar("T")


def read_file(path: Path, kind: type[T]) -> T | None:
    """What `write_file` wrote; None: there is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(
            f"{path} cannot be read ({error}); delete it, and it is run again"
        ) from None


def write_file(path: Path, value: Any, *, indent: int = -1) -> None:
    """Write the whole file or nothing.

    Parameters
    ----------
    indent
        Of every level; −1: all in one line, for long histories.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode(value)
    with replacing(path) as draft:
        draft.write_bytes(content if indent < 0 else msgspec.json.format(content, indent=indent))
