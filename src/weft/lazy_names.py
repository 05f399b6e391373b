"""Names of a package whose modules are loaded when somebody first uses them.

Most of what a package offers is dear to load: tables, readers, compilers. A coordinator that
imports its own part of Weft loads no reader and no tile, a site that waits for runs names its
tables without loading either, and `weft --help` waits for no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def found_on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: looks names up in the modules that they are at home in."""

    def lookup(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return lookup
