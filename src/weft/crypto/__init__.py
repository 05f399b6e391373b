"""Ciphers, fixed point, masks and keys: everything that hides numbers."""

from weft.crypto.ciphers.cipher import CIPHERS, Cipher
from weft.crypto.coordinator_adder import Adder
from weft.crypto.fixed_point import FixedPoint

__all__ = ["CIPHERS", "Adder", "Cipher", "FixedPoint"]
