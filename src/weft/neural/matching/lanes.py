"""Passes over large layers by several threads, each with rows of its own: the same bits as one."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

#: Entries below which handing out work takes longer than the work.
_SMALL = 1 << 19
#: More threads than this wait for the memory.
_MOST = 8


def by_rows(rows: int, width: int, work: Callable[[slice], None]) -> None:
    """Let ``work`` pass over all rows, some at a time.

    Parameters
    ----------
    rows, width
        Size of what is passed over.
    work
        Does some rows, and nothing that another call for other rows touches; it must let go of
        Python's lock.
    """
    lanes = _lanes()
    if lanes == 1 or rows * width < _SMALL:
        work(slice(0, rows))
        return
    cuts = [rows * lane // lanes for lane in range(lanes + 1)]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    for _ in _pool().map(work, parts):
        pass


@cache
def _lanes() -> int:
    allowed = getattr(os, "sched_getaffinity", None)
    count = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    return min(_MOST, count)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_lanes(), "weft-matching")
