"""Sealed words and keys of Paillier's scheme."""

from __future__ import annotations

import atheris
import numpy as np

with atheris.instrument_imports(include=["weft.crypto.ciphers.paillier_scheme"]):
    from weft.crypto.ciphers import paillier_scheme as paillier

from harness import search
from weft.crypto.secret_bytes import Secret

SECRET = paillier.PaillierSecret.new(512)
PUBLIC = SECRET.public()


def decode(data: bytes) -> None:
    """Open, add and read as keys whatever comes; the first byte says how many words."""
    if not data:
        return
    count, sealed = data[0] % 4, data[1:]
    for reader in (
        lambda b: paillier.PaillierSecret.from_bytes(Secret(b)),
        lambda b: paillier.PaillierTotals(b, 1),
    ):
        try:
            reader(sealed)
        except paillier.ProtocolError:
            continue
    totals = paillier.PaillierTotals(PUBLIC, 4)
    totals.add(np.arange(count), sealed)
    words = SECRET.open(sealed, count)
    assert words.shape == (count,)
    assert SECRET.open(totals.take(np.arange(count)), count).tolist() == words.tolist()


def seeds() -> list[bytes]:
    words = np.arange(3, dtype=np.uint64)
    return [b"\3" + SECRET.seal(words), b"\0", b"\1" + PUBLIC, b"\1" + SECRET.to_bytes()]


if __name__ == "__main__":
    search(decode, seeds())
