"""Passes over large layers by several threads, each with rows of its own: the same bits as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

from threadpoolctl import ThreadpoolController, threadpool_limits

#: Entries below which handing out work takes longer than the work.
_SMALL = 1 << 19
#: More threads than this wait for the memory.
_MOST = 8
_MOST_BLAS = 4


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


@contextmanager
def few_blas_threads() -> Iterator[None]:
    """Let products of matrices use no more threads than the passes between them.

    On a machine of 16 cores the libraries' own choice, all of them, took half as long again: their
    threads wait by spinning, in the way of ours.
    """
    most = max((library.num_threads for library in _libraries()), default=1)
    if most <= _MOST_BLAS:
        yield
        return
    with threadpool_limits(_MOST_BLAS, user_api="blas"):
        yield


@cache
def _libraries() -> list[Any]:
    found = ThreadpoolController().select(user_api="blas")
    return list(found.lib_controllers)
