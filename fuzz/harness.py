"""What all fuzz targets share: only Weft's own errors may leave a decoder."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

#: Errors that are known and not yet mended, by name; a search goes on over them.
KNOWN = set(filter(None, os.environ.get("FUZZ_KNOWN", "").split(",")))


def search(decode: Callable[[bytes], object], seeds: Iterable[bytes]) -> None:
    """Feed a decoder with mutations of ``seeds`` until something else than a WeftError escapes.

    Options of libFuzzer come from the command line; without a folder among them, the corpus
    lies in a new temporary one.
    """
    from weft.errors import WeftError

    def one(data: bytes) -> None:
        try:
            decode(data)
        except WeftError:
            pass
        except Exception as error:
            if type(error).__name__ not in KNOWN:
                raise

    arguments = list(sys.argv)
    folders = [a for a in arguments[1:] if not a.startswith("-")]
    if not folders:
        arguments.append(tempfile.mkdtemp(prefix="weft-fuzz-"))
    folder = Path((folders or arguments[-1:])[0])
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup(arguments, one)
    atheris.Fuzz()
