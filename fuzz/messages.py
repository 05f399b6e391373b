"""Messages as a network brings them, and the fields of requests about pads."""

from __future__ import annotations

import atheris
import numpy as np

with atheris.instrument_imports(include=["weft.protocol.packing", "weft.protocol.message"]):
    from weft.protocol import message, packing

from harness import search
from weft.crypto.ciphers.cipher import Plain, read_chain


def decode(data: bytes) -> None:
    """Read a message, then what a party reads first of it."""
    found = packing.unpack(b"WEFT1" + data)
    assert isinstance(found, dict)
    assert message.size_of(found) <= len(data) * 9
    for field in found:
        for reader in (message.array, message.text, message.binary, message.integer):
            try:
                reader(found, field)
            except message.ProtocolError:
                continue
    read_chain(found, "z", "chain", 3)
    Plain().begin(found)


def seeds() -> list[bytes]:
    messages: list[message.Message] = [
        {"round": 7, "iteration": 3, "z.chain": np.arange(3, dtype=np.uint64)},
        {"v": b"Wb" + bytes(30), "gamma": 1.0, "every": True, "name": "p1"},
        {"send": np.array([True, False]), "classes": np.array(["a", "b"]), "x": np.zeros((2, 3))},
        {"want": np.arange(5, dtype=np.int32), "f": np.float64(0.5), "h": np.zeros(2, ">f2")},
    ]
    return [packing.pack(one)[5:] for one in messages]


if __name__ == "__main__":
    search(decode, seeds())
