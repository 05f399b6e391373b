"""Keeps the memory of long-lived processes from growing."""

from __future__ import annotations

import ctypes
import gc
import time
from contextlib import suppress
from threading import Thread

#: Numbers of options of glibc's mallopt (malloc.h).
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
#: Pools of memory in a process; by default eight for each core.
_POOLS = 2
#: Seconds between two looks for garbage.
COLLECTED_EVERY = 10.0
#: Larger blocks are given back to the system as soon as they are freed.
_LARGE = 128 * 1024


def share_pools() -> None:
    """Let all threads use the same few pools of memory.

    By default threads get pools of their own, and what they free stays there for good.
    """
    _set(_M_ARENA_MAX, _POOLS)


def return_large_blocks() -> None:
    """Give every large block back when it is freed.

    For processes that do not compute: the engine takes 1 MB for every message that it sends, and
    glibc's own limit grows to 32 MB with the first block that is freed.
    """
    _set(_M_MMAP_THRESHOLD, _LARGE)


def collect_garbage_often() -> None:
    """Look for objects that only refer to each other every few seconds.

    For processes in which little else happens: the engine leaves such with 1 MB for every message
    that it sends, and Python looks for them by the number of new objects, not by their size. A
    coordinator went from 260 to 835 MB in five runs before Python looked.
    """
    # What is there now stays, and is not looked at each time.
    gc.collect()
    gc.freeze()
    Thread(target=_collect, name="weft garbage", daemon=True).start()


def _collect() -> None:
    while True:
        time.sleep(COLLECTED_EVERY)
        gc.collect()


def _set(option: int, value: int) -> None:
    # Other C libraries than glibc have no such function, and no such pools.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(ctypes.c_int(option), ctypes.c_int(value))
