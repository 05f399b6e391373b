"""Ciphers for sums of vectors: the interface, and plain, pad, BFV and Paillier behind it."""
