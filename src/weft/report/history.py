"""The history of a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pandas as pd

from weft.solvers.base import Record

_COLUMNS = [field.name for field in fields(Record)]
_WHOLE = ["iteration", "present", "round_trips", "bytes_down", "bytes_up", "certified_at"]


def history_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row per iteration, one column per field of `Record`.

    ``primal``, ``dual`` and ``gap`` are of the newest certificate, which ``certified_at``
    dates; ``loss_estimate`` and ``gap_estimate`` are what the coordinator can tell without
    one. A value that there is not is missing, never zero.
    """
    columns = {name: [getattr(record, name) for record in records] for name in _COLUMNS}
    frame = pd.DataFrame(columns, columns=_COLUMNS)
    kinds = {name: "Int64" if name in _WHOLE else "float64" for name in _COLUMNS}
    return frame.astype(kinds)


def certificates(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows at which a new certificate came in."""
    known = frame[frame["certified_at"].notna()]
    return known[known["certified_at"].ne(known["certified_at"].shift()).fillna(True)]


def write_history(frame: pd.DataFrame, folder: Path) -> None:
    """Write ``history.csv`` and ``history.parquet``."""
    frame.to_csv(folder / "history.csv", index=False)
    frame.to_parquet(folder / "history.parquet", index=False)
