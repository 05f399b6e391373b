"""Where demos leave their reports: in a folder that the next demo may write anew."""

from __future__ import annotations

import json as json_text
from pathlib import Path

from weft.errors import ConfigError
from weft.storage.atomic_folder import refuse_existing

_RESULTS = Path("results")


def folder_for(out: Path | None, name: str, title: str, *, json: bool) -> Path | None:
    """The folder to write: the one asked for, else ``results/NAME``; None: none, as for programs.

    A folder that is not of an earlier demo is never replaced.
    """
    if out is not None:
        refuse_existing(out)
        return out
    if json:
        return None
    folder = _RESULTS / name
    if folder.exists() and _title_in(folder) != title:
        raise ConfigError(f"{folder} is there and not of a demo; name another folder with --out")
    return folder


def _title_in(folder: Path) -> str | None:
    try:
        found = json_text.loads((folder / "summary.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found.get("name") if isinstance(found, dict) else None
