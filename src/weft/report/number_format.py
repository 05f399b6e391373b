"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    unit = 0
    while abs(count) >= 1000 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:,.0f} B" if unit == 0 else f"{count:.3g} {_UNITS[unit]}"


def seconds(value: float) -> str:
    """A time, short ones in milliseconds."""
    if 0 < value < 0.1:
        return f"{1e3 * value:.2g} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def power(value: float | None) -> str:
    """A distance or a gap, which may be far below one."""
    if value is None:
        return "–"
    return "0" if abs(value) < 1e-12 else f"{value:.1e}"


def algorithm_name(row: dict[str, Any]) -> str:
    """Whose row of a comparison it is."""
    return f"{row['algorithm']} (pooled)" if row["kind"] == "pooled" else str(row["algorithm"])


def count(number: int, what: str) -> str:
    """So many of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def names(given: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more there are."""
    if len(given) > most + 1:
        return f"{', '.join(given[:most])} and {len(given) - most:,} more"
    return " and ".join(filter(None, [", ".join(given[:-1]), *given[-1:]]))


def heading(words: str) -> str:
    """With a capital letter at its beginning, unless a setting or a Greek letter stands there."""
    first = words.split(" ", 1)[0]
    return words if "_" in first or not first.isascii() else words[:1].upper() + words[1:]


def capital(sentence: str) -> str:
    """With a capital letter at its beginning, and a full stop."""
    whole = heading(sentence)
    return whole if whole.endswith((".", "!", "?", "…")) else f"{whole}."


def digits(value: float, most: int = 6) -> float:
    """As many digits as a picture shows."""
    return float(f"{value:.{most}g}")


def time_text(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
