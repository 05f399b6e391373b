"""Messages as a network brings them, read as every phase declares them."""

from __future__ import annotations

import atheris
import numpy as np

with atheris.instrument_imports(
    include=["weft.protocol.message_bytes", "weft.protocol.declared_message_fields"]
):
    from weft.protocol import declared_message_fields, message_bytes

from harness import search
from weft.all_messages import declared_phases
from weft.crypto.ciphers.party_cipher import Plain


def decode(data: bytes) -> None:
    """Read fields, then what every phase makes of them as a request and as a reply."""
    found = message_bytes.unpack(b"WEFT1" + data)
    assert isinstance(found, dict)
    for phase in declared_phases().values():
        for kind in (phase.request, phase.reply):
            try:
                read = declared_message_fields.message_of(kind, found)
            except declared_message_fields.ProtocolError:
                continue
            assert declared_message_fields.fields_of(read).keys() <= found.keys()
            assert declared_message_fields.size_of(read) <= len(data) * 9
            try:
                Plain().begin(read)
            except declared_message_fields.ProtocolError:
                continue


def seeds() -> list[bytes]:
    messages: list[declared_message_fields.Fields] = [
        {"round": 7, "unit": 1.0, "z_pads.chain": np.arange(3, dtype=np.uint64)},
        {"round": 7, "digit": 1, "prefix": np.zeros(2, np.uint64)},
        {"seeds.content": b"box", "seeds.lengths": np.array([3]), "seeds.makers": np.array([1])},
        {"run": bytes(16), "matching": "hmac", "classes": np.array(["a", "b"])},
    ]
    return [message_bytes.pack(one)[5:] for one in messages]


if __name__ == "__main__":
    search(decode, seeds())
