"""libsodium with the group ristretto255, as the package rbcl brings it.

rbcl carries the shared library as text in one of its modules. Importing that module writes 2.8 MB
to the temporary folder of every process and never deletes them. So the module is read, not run:
the library goes into anonymous memory, which ends with the process however that ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from ctypes import CDLL
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

#: What a shared library begins with where memory can be loaded as a file (Linux).
_ELF = b"\x7fELF".hex()


def load_sodium() -> Any:
    """The library, ready for use."""
    carried = _carried_library() if hasattr(os, "memfd_create") else None
    sodium = _load_and_delete() if carried is None else _load_from_memory(carried)
    # 1: it was initialised before, by rbcl.
    if sodium.sodium_init() not in (0, 1):
        raise ImportError("libsodium cannot be initialised; install the package rbcl again")
    return sodium


def _carried_library() -> bytes | None:
    """The shared library in rbcl's compiled module; None: this version keeps it elsewhere."""
    package = find_spec("rbcl")
    if package is None:
        raise ImportError("the package rbcl is missing; install Weft with its dependencies")
    module = PathFinder.find_spec("rbcl._sodium", package.submodule_search_locations)
    loader: Any = None if module is None else module.loader
    code: CodeType | None = None if loader is None else loader.get_code("rbcl._sodium")
    texts = [text for text in (code.co_consts if code else ()) if isinstance(text, str)]
    return next((bytes.fromhex(text) for text in texts if text.startswith(_ELF)), None)


def _load_from_memory(library: bytes) -> CDLL:
    handle = os.memfd_create("libsodium")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(library)
        return CDLL(f"/proc/self/fd/{handle}")
    finally:
        # What is loaded stays mapped.
        os.close(handle)


def _load_and_delete() -> Any:
    """Let rbcl write its file, and delete it where the system lets go of a loaded library."""
    carrier = import_module("rbcl._sodium")
    # Windows keeps it until the process ends.
    with suppress(OSError):
        Path(carrier.lib_path).unlink()
    return carrier._sodium
