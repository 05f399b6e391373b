"""Sums of 64-bit words under Paillier's scheme: one ciphertext a word.

With n = p·q a word m is sealed as (1 + m·n)·ρ mod n², where ρ is a random n-th residue; the
product of ciphertexts seals the sum of their words modulo n. ``phe`` makes keys, ``gmpy2`` does the
arithmetic; powers with secret exponents take a time that does not depend on them.

Sums never wrap: a plaintext is the sum of N words below 2^64, and N would have to reach
n / 2^64, which is more than 2^1983 for 2048 bits, before it exceeded n. So the sum is known as
an integer and its remainder modulo 2^64 is exact.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import gmpy2  # type: ignore[import-untyped]
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray
from phe import paillier  # type: ignore[import-untyped]

from weft.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    # The coordinator, which adds with this module, loads nothing that can hold a secret.
    from weft.crypto.secret_bytes import Secret

Words = NDArray[np.uint64]

#: Lengths of n. Below 2,048 bits a key is only good for tests; the upper end keeps a hostile
#: message from costing minutes of arithmetic.
_BITS = range(512, 8192 + 1, 16)
_DIGEST = 16


class PaillierSecret:
    """The key that all parties of one cohort hold: seals words and opens totals."""

    def __init__(self, p: int, q: int) -> None:
        self._p, self._q = mpz(p), mpz(q)
        self._n = self._p * self._q
        self._p2, self._q2, self._n2 = self._p**2, self._q**2, self._n**2
        self._p2_inverse = gmpy2.invert(self._p2, self._q2)
        # (1 + n)^(p−1) = 1 + (p−1)·n modulo p²: so decryption divides by (p−1)·q = −q modulo p.
        self._p_scale, self._q_scale = gmpy2.invert(-self._q, p), gmpy2.invert(-self._p, q)
        self._p_inverse = gmpy2.invert(self._p, q)
        self._width = self._n.bit_length() // 4

    @classmethod
    def new(cls, bits: int = 2048) -> PaillierSecret:
        if bits not in _BITS:
            raise ConfigError(f"a key has {_BITS[0]} to {_BITS[-1]} bits, in multiples of 16")
        _, key = paillier.generate_paillier_keypair(n_length=bits)
        return cls(key.p, key.q)

    @classmethod
    def from_bytes(cls, secret: Secret) -> PaillierSecret:
        """The key that ``to_bytes`` wrote."""
        # No frame that raises has a part of the key among its local variables.
        primes = _primes_of(secret)
        if primes is None:
            raise ProtocolError("a secret key is damaged or was made for another cipher")
        return cls(*primes)

    def to_bytes(self) -> bytes:
        """The key itself: only for parties of the same cohort, over a private channel."""
        half = self._width // 4
        body = int(self._p).to_bytes(half, "big") + int(self._q).to_bytes(half, "big")
        return body + _key_digest(body)

    def public(self) -> bytes:
        """The modulus n, with which ``PaillierTotals`` adds."""
        return int(self._n).to_bytes(self._width // 2, "big")

    def seal(self, words: Words) -> bytes:
        """Encrypt each word freshly, in as many bytes as n² has (512 for 2,048 bits)."""
        if words.ndim != 1 or words.dtype != np.uint64:
            raise ProtocolError("words to seal must be 64-bit, unsigned and in one row")
        sealed = ((1 + word * self._n) * self._residue() % self._n2 for word in words.tolist())
        return b"".join(int(value).to_bytes(self._width, "big") for value in sealed)

    def open(self, sealed: bytes, count: int) -> Words:
        """Decrypt to words modulo 2^64."""
        values = _values(sealed, count, self._n2, self._width)
        return np.fromiter((int(self._plain(v) % 2**64) for v in values), np.uint64, count)

    def _plain(self, sealed: mpz) -> mpz:
        """The sum of words in a ciphertext, by the remainders modulo p and q."""
        a = (gmpy2.powmod_sec(sealed % self._p2, self._p - 1, self._p2) - 1) // self._p
        b = (gmpy2.powmod_sec(sealed % self._q2, self._q - 1, self._q2) - 1) // self._q
        a, b = a * self._p_scale % self._p, b * self._q_scale % self._q
        return a + self._p * ((b - a) * self._p_inverse % self._q)

    def _residue(self) -> mpz:
        """A random n-th residue modulo n², distributed like r^n for random r prime to n.

        r^n mod p² depends on r mod p only, as (r + k·p)^p = r^p mod p², and raising to the
        power q permutes the p-th powers modulo p² (they form a group of p − 1 elements, and q
        is prime to p − 1). So y^p mod p² for random y below p has the same distribution, and
        likewise modulo q²: two powers with exponents and moduli of half the length, about four
        times faster than r^n. Only who knows p and q can do this; parties do.
        """
        # Exponents are secret: in a time that does not depend on them.
        a = gmpy2.powmod_sec(mpz(secrets.randbelow(int(self._p) - 1) + 1), self._p, self._p2)
        b = gmpy2.powmod_sec(mpz(secrets.randbelow(int(self._q) - 1) + 1), self._q, self._q2)
        return a + self._p2 * ((b - a) * self._p2_inverse % self._q2)

    def __repr__(self) -> str:
        return "PaillierSecret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not pickled; use to_bytes where it may travel")


class PaillierTotals:
    """The coordinator's half: running totals of sealed words that it cannot read.

    Parameters
    ----------
    public
        What ``PaillierSecret.public`` gave.
    slots
        How many totals to keep.
    """

    def __init__(self, public: bytes, slots: int) -> None:
        n, bits = mpz.from_bytes(public, byteorder="big"), 8 * len(public)
        if bits not in _BITS or n.bit_length() != bits or n.is_even():
            raise ProtocolError("a public key is damaged or was made for another cipher")
        self._n2 = n**2
        self._width = 2 * len(public)
        # 1 is a ciphertext of 0, the total over nothing.
        self._totals = [mpz(1)] * slots

    def add(self, slots: NDArray[np.int64], sealed: bytes) -> None:
        """Add sealed word i to total ``slots[i]``; a refusal changes nothing."""
        self._check(slots)
        values = _values(sealed, len(slots), self._n2, self._width)
        for slot, value in zip(slots.tolist(), values, strict=True):
            self._totals[slot] = self._totals[slot] * value % self._n2

    def put(self, slots: NDArray[np.int64], sealed: bytes) -> None:
        """Let sealed words take the place of what was there."""
        self._check(slots)
        values = _values(sealed, len(slots), self._n2, self._width)
        for slot, value in zip(slots.tolist(), values, strict=True):
            self._totals[slot] = value

    def take(self, slots: NDArray[np.int64]) -> bytes:
        """Some totals, as ``PaillierSecret.open`` expects them."""
        self._check(slots)
        return b"".join(int(self._totals[s]).to_bytes(self._width, "big") for s in slots.tolist())

    def copy(self) -> PaillierTotals:
        twin = object.__new__(PaillierTotals)
        twin._n2, twin._width, twin._totals = self._n2, self._width, self._totals.copy()
        return twin

    def state(self) -> dict[str, NDArray[Any]]:
        """All totals as arrays for a checkpoint."""
        sealed = self.take(np.arange(len(self._totals)))
        return {"sealed": np.frombuffer(sealed, np.uint8).copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up the totals of a checkpoint; a refusal changes nothing."""
        sealed = state.get("sealed")
        if not isinstance(sealed, np.ndarray) or sealed.dtype != np.uint8:
            raise ProtocolError("a checkpoint holds no sealed totals")
        self._totals = _values(sealed.tobytes(), len(self._totals), self._n2, self._width)

    def _check(self, slots: NDArray[np.int64]) -> None:
        if slots.ndim != 1 or ((slots < 0) | (slots >= len(self._totals))).any():
            raise ProtocolError(f"slots must be numbered from 0 to {len(self._totals) - 1}")


def _primes_of(secret: Secret) -> tuple[int, int] | None:
    """The primes of a key, or None for one that is none."""
    content = secret.reveal()
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    half, bits = len(body) // 2, 8 * len(body)
    p, q = int.from_bytes(body[:half], "big"), int.from_bytes(body[half:], "big")
    # The digest, because damage can turn one prime into another. If p·q has all its bits, so have
    # p and q, and then neither prime divides the other less 1, as decryption needs.
    if bits not in _BITS or digest != _key_digest(body) or (p * q).bit_length() != bits:
        return None
    if p == q or not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
        return None
    return p, q


def _key_digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST, person=b"weft paillier").digest()


def _values(sealed: bytes, count: int, n2: mpz, width: int) -> list[mpz]:
    """The ciphertexts in a byte string, each in [1, n²)."""
    if len(sealed) != count * width:
        raise ProtocolError(f"{count} sealed words take {count * width} bytes, not {len(sealed)}")
    starts = range(0, len(sealed), width)
    values = [mpz.from_bytes(sealed[i : i + width], byteorder="big") for i in starts]
    if not all(0 < value < n2 for value in values):
        raise ProtocolError("a sealed word does not fit the public key")
    return values
