"""Ciphers, fixed point, masks and keys: everything that hides numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.lazy_names import found_on_first_use

if TYPE_CHECKING:
    from weft.crypto.ciphers.block_format import CIPHERS
    from weft.crypto.ciphers.party_cipher import Cipher
    from weft.crypto.coordinator_adder import Adder
    from weft.crypto.fixed_point import FixedPoint

__all__ = ["CIPHERS", "Adder", "Cipher", "FixedPoint"]

__getattr__ = found_on_first_use(
    __name__,
    {
        "Adder": "weft.crypto.coordinator_adder",
        "CIPHERS": "weft.crypto.ciphers.block_format",
        "Cipher": "weft.crypto.ciphers.party_cipher",
        "FixedPoint": "weft.crypto.fixed_point",
    },
)
