"""How functions in machine code are compiled."""

from __future__ import annotations

from typing import Any

#: Of functions that are called from compiled code alone: entries from Python would take up to a
#: third of the time to compile them, which every fresh installation waits for.
INNER: Any = {"cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
#: Of functions that Python calls, and C does not. They let other threads go on: those of other
#: parties.
OUTER: Any = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
#: Of functions that compiled code calls at one place: a part of their caller for the compiler. Any
#: other function it optimizes by itself, and again with each function that calls it.
PASTED: Any = {"cache": True, "inline": "always"}
