"""What Hypothesis works out in every process before its first example, told to it.

In a fresh clone it tries which characters UTF-8 has, a million of them, and reads the source of all
that is loaded for literals to draw: ten processor seconds in each worker.
"""

from __future__ import annotations

from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet

Known = tuple[IntervalSet, IntervalSet]

#: All characters but surrogates; and there is none that would come back as another.
UTF_8: Known = IntervalSet([(0, 0xD7FF), (0xE000, 0x10FFFF)]), IntervalSet([])

#: As Hypothesis does it.
find_intervals = charmap.intervals_from_codec


def tell_intervals() -> None:
    """Let UTF-8 be known."""
    charmap.intervals_from_codec = _known_intervals


def draw_no_literals() -> None:
    """Draw no literals of the source, for the few examples of every change.

    They would be other examples whenever a literal anywhere changes.
    """
    providers._get_local_constants = lambda: providers._local_constants


def _known_intervals(codec: str) -> Known:
    return UTF_8 if codec == "utf-8" else find_intervals(codec)
