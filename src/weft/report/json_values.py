"""Values that JSON can hold, and no more digits of them than may be told."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The same values, but None for every number that there is not."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rounded(value: float) -> float:
    """A size or a time with two digits, for those who may not know how large others' tables are."""
    return type(value)(float(f"{value:.1e}"))
