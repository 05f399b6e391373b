"""The clock that every wait of a run goes by; tests put another in its place."""

from __future__ import annotations

import time
from threading import Condition, Thread


def now() -> float:
    """Seconds by a clock that is never set back."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


def wait(change: Condition, seconds: float) -> None:
    """Until something changes, for so many seconds at most; the condition's lock is held."""
    change.wait(max(0.0, seconds))


def join(thread: Thread, seconds: float) -> None:
    """Until a thread has ended, for so many seconds at most."""
    thread.join(seconds)
