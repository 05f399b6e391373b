"""AES-256 on arrays of blocks gives what FIPS 197 says, whatever their number."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from weft.crypto.primitives.aes import Aes256
from weft.crypto.secret_bytes import Secret


def test_the_example_of_the_standard():
    block = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), np.uint64)
    found = Aes256(Secret(bytes(range(32)))).encrypt(block.reshape(1, 2).copy())
    assert found.tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_blocks_are_encrypted_each_by_itself_whatever_came_before():
    cipher, blocks = Aes256(Secret(bytes(32))), np.arange(40, dtype=np.uint64).reshape(20, 2)
    judge = Cipher(algorithms.AES(bytes(32)), modes.ECB())
    for count in (0, 1, 7, 20, 1):
        some = blocks[:count]
        expected = judge.encryptor().update(some.tobytes())
        assert cipher.encrypt(some).tobytes() == expected


def test_a_key_of_another_length_is_refused():
    with pytest.raises(ValueError, match="key"):
        Aes256(Secret(bytes(16)))
