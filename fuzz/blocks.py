"""Blocks of totals and contributions: header, pad ids, words; and tables of knots."""

from __future__ import annotations

import atheris
import numpy as np

with atheris.instrument_imports(include=["weft.crypto.ciphers.block_format"]):
    from weft.crypto.ciphers import block_format as payload

from harness import search

SLOTS = 12
COHORTS = np.repeat(np.arange(3, dtype=np.int32), 4)


def decode(data: bytes) -> None:
    """What happens to a block before its words are used."""
    flat = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
    table = payload.read_knots(flat)
    assert sum(map(len, table)) <= len(flat)
    block = payload.read_block(data, "a block")
    again = payload.pack_block(
        block.cipher, block.kind, block.key, block.pad_id, block.slots, block.width,
        bytes(block.body), block.carried,
    )  # fmt: skip
    assert again == data
    # A table of pad ids times slots: kept small here, see tests/crypto/test_decoders.py.
    if len(block.carried.pad_ids) < 1000:
        block.carried.per_slot(SLOTS, COHORTS, "a block")
    payload.words_of(block, "a block")


def seeds() -> list[bytes]:
    whole = np.full(SLOTS, 1, np.uint32)
    pad_ids = np.arange(1, SLOTS + 1, dtype=np.uint64) << np.uint64(20)
    body = bytes(8 * SLOTS)
    return [
        payload.pack_block("pad", "v", 7, 9 << 20, SLOTS, 1, body),
        payload.pack_block("pad", "v", 7, 9 << 20, SLOTS, 1, body,
                           payload.Carried(None, None, pad_ids[:3])),
        payload.pack_block("pad", "z", 7, 9 << 20, SLOTS, 1, body,
                           payload.Carried(whole, None, pad_ids)),
        payload.pack_block("pad", "z", 7, 9 << 20, SLOTS, 1, body,
                           payload.Carried(whole, whole, pad_ids)),
        payload.pack_block("bfv", "alpha", 7, 9 << 20, SLOTS, 2, b"\0" * 3),
        np.array([2, 1 << 20, 2 << 20, 1, 3 << 20], np.uint64).tobytes(),
    ]  # fmt: skip


if __name__ == "__main__":
    search(decode, seeds())
