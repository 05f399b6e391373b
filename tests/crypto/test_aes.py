"""AES-256 inside compiled loops gives what FIPS 197 and the cryptography library give."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.crypto.primitives.aes import _has_instructions, expand_key, hardware_block, software_block

WAYS = [
    pytest.param(software_block, id="tables"),
    pytest.param(
        hardware_block,
        id="instructions",
        marks=pytest.mark.skipif(not _has_instructions(), reason="no AES instructions here"),
    ),
]


def encrypted(way, key: bytes, block: bytes) -> bytes:
    low, high = np.frombuffer(block, np.uint64)
    return np.array(way(low, high, expand_key(key)), np.uint64).tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_the_example_of_the_standard(way):
    key, block = bytes(range(32)), bytes.fromhex("00112233445566778899aabbccddeeff")
    assert encrypted(way, key, block).hex() == "8ea2b7ca516745bfeafc49904b496089"


@pytest.mark.parametrize("way", WAYS)
@examples(200, deadline=None)
@given(key=st.binary(min_size=32, max_size=32), block=st.binary(min_size=16, max_size=16))
def test_any_key_and_block_as_the_library_does_it(way, key, block):
    judge = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    assert encrypted(way, key, block) == judge.update(block)


def test_a_key_of_another_length_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        expand_key(bytes(16))
