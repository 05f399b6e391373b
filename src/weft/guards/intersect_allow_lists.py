"""Names that all lists have: what several parties, or several documents of one, allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def in_all_lists(lists: Iterable[Sequence[str] | None]) -> tuple[str, ...] | None:
    """Names that are in all lists, in the order of the first list; None: there is no list."""
    listed = [names for names in lists if names is not None]
    if not listed:
        return None
    return tuple(name for name in listed[0] if all(name in names for names in listed))
