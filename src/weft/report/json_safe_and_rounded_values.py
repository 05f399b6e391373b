"""Values that JSON can hold, and no more digits of them than may be told."""

from __future__ import annotations

import json
import math
from typing import Any


def finite(value: Any) -> Any:
    """Replace NaN and infinities by None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: Any, indent: int = 2) -> str:
    """JSON to read, with a newline at its end; numbers that are not finite become null."""
    return json.dumps(finite(value), ensure_ascii=False, indent=indent, allow_nan=False) + "\n"


def rounded(value: float) -> float:
    """A size or a time with two digits, for those who may not know how large others' tables are."""
    return type(value)(float(f"{value:.1e}"))
