"""Numba compiles a function in one of several processes; the others take it from its cache.

Workers begin together, in a fresh clone with an empty cache: each would compile what another is
just compiling, which takes a minute of a processor for all functions. So would the parties that
tests start as processes of their own.

To look a function up, Numba compares all options of compilation, each read by a call of its own:
two million calls for one solver's functions. Here they are read at once.
"""

from __future__ import annotations

import fcntl
import os
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.targetconfig import TargetConfig

#: Tells processes that a test starts which folder that is.
FOLDER = "WEFT_TESTS_COMPILING"


def compile_once(locks: Path) -> None:
    """From now on, let a function that another process is compiling be waited for.

    Parameters
    ----------
    locks
        A folder that all of the processes use.
    """
    os.environ[FOLDER] = str(locks)
    compile_here = Dispatcher.compile
    ours: set[str] = set()

    def compile_or_wait(dispatcher: Any, signature: Any) -> Any:
        name = f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}"
        # A function whose compilation asks for itself must not wait for itself.
        if name in ours:
            return compile_here(dispatcher, signature)
        # One thread at a time, as Numba has it: else two could wait for each other's files.
        with global_compiler_lock, (locks / name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ours.add(name)
            try:
                return compile_here(dispatcher, signature)
            finally:
                ours.discard(name)

    Dispatcher.compile = compile_or_wait
    TargetConfig.values = _all_options


def _all_options(config: Any) -> dict[str, Any]:
    """What ``TargetConfig.values`` says: every option, as it was set or by default."""
    return {**_defaults(type(config)), **config._values}


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}
