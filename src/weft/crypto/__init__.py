"""Ciphers and fixed point; imports nothing else of Weft but its errors."""

from weft.crypto.cipher import Adder, Cipher, Payload, adder_of, cipher_of
from weft.crypto.fixed_point import FixedPoint

__all__ = ["Adder", "Cipher", "FixedPoint", "Payload", "adder_of", "cipher_of"]
