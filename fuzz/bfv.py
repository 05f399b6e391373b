"""Sealed chunks and keys of BFV: frames are cut and checked before SEAL sees them."""

from __future__ import annotations

import atheris
import numpy as np

from harness import search
from weft.crypto.ciphers import bfv_by_seal
from weft.crypto.secret_bytes import Secret

for _name in ("_split", "_frame", "_checked"):
    setattr(bfv_by_seal, _name, atheris.instrument_func(getattr(bfv_by_seal, _name)))

SECRET = bfv_by_seal.BfvSecret.new()


def decode(data: bytes) -> None:
    """Open, add and read as a key whatever comes; the first byte says how many chunks."""
    if not data:
        return
    chunks, sealed = data[0] % 3, data[1:]
    totals = bfv_by_seal.BfvTotals(3)
    try:
        totals.add(np.arange(chunks), sealed)
    finally:
        taken = totals.take(np.arange(3))
    assert bfv_by_seal.BfvTotals(3).additions.sum() == 0
    words = SECRET.open(sealed, chunks)
    assert words.shape == (chunks, 4096)
    assert SECRET.open(taken, 3)[:chunks].tolist() == words.tolist()
    bfv_by_seal.BfvSecret.from_bytes(Secret(sealed))


def seeds() -> list[bytes]:
    sealed = SECRET.seal(np.arange(4096, dtype=np.uint64).reshape(1, -1))
    totals = bfv_by_seal.BfvTotals(1)
    totals.add(np.arange(1), sealed)
    return [b"\1" + sealed, b"\1" + totals.take(np.arange(1)), b"\2\0\0", b"\0" + SECRET.to_bytes()]


if __name__ == "__main__":
    search(decode, seeds())
