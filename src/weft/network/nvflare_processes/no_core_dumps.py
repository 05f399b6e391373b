"""Keeps what a process has in its memory from the disk."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec


def write_no_core() -> None:
    """Let the system write no memory to disk where this process, or one that it starts, crashes.

    Keys, tables and pads are in it, and would stay in a file that nobody knows of.
    """
    if find_spec("resource") is None:  # pragma: no cover - Windows has none.
        return
    resource = import_module("resource")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
