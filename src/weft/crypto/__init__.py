"""Ciphers and fixed point; imports nothing else of Weft but its errors."""

from weft.crypto.adder import Adder
from weft.crypto.ciphers.cipher import CIPHERS, Cipher
from weft.crypto.fixed_point import FixedPoint

__all__ = ["CIPHERS", "Adder", "Cipher", "FixedPoint"]
