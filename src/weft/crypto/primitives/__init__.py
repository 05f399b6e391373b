"""Building blocks of the cryptography: AES, ristretto255, an oblivious function, wide integers."""
