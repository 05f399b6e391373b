"""Lists of names, counts and ranges, as sentences about exposure have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Names that are listed before the rest is counted.
_LISTED = 4


def distinct(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which they come."""
    return list(dict.fromkeys(names))


def listed(names: Sequence[str], of: str = ", ") -> str:
    """Some names, and how many more there are."""
    if len(names) > _LISTED + 1:
        return f"{of.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    if of != ", " or len(names) < 2:
        return of.join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def counted(number: int, what: str) -> str:
    """So many of something, in the plural unless it is one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def span(numbers: Sequence[int]) -> str:
    """The smallest and the largest of some numbers."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
