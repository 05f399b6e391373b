"""The history of a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from weft.solvers.solver_interfaces_and_results import Record

_COLUMNS = [field.name for field in fields(Record)]
_WHOLE = ["iteration", "present", "round_trips", "bytes_down", "bytes_up", "certified_at"]


def history_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row per iteration, one column per field of `Record`.

    ``primal``, ``dual`` and ``gap`` are of the newest certificate, which ``certified_at``
    dates; ``loss_estimate`` and ``gap_estimate`` are what the coordinator can tell without
    one. A value that there is not is missing, never zero.
    """
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        values = [getattr(record, name) for record in records]
        # Of their type at once: to cast a frame of objects takes four times as long.
        whole = name in _WHOLE
        columns[name] = pd.array(values, dtype="Int64") if whole else np.array(values, float)
    return pd.DataFrame(columns, columns=_COLUMNS)


def certificates(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows at which a new certificate came in."""
    known = frame[frame["certified_at"].notna()]
    return known[known["certified_at"].ne(known["certified_at"].shift()).fillna(True)]


def write_history(frame: pd.DataFrame, folder: Path) -> None:
    """Write ``history.csv`` and ``history.parquet``."""
    frame.to_csv(folder / "history.csv", index=False)
    frame.to_parquet(folder / "history.parquet", index=False)
