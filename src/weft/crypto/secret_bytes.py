"""Secrets that do not show themselves.

A secret leaves its object through :meth:`Secret.reveal` only: not through ``repr``, a format
string, ``pickle`` or a deep copy.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from os import urandom
from typing import NoReturn, Self, SupportsIndex

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

#: Bytes of every key: Ed25519 seeds and points, X25519 scalars and points.
KEY_BYTES = 32
#: HKDF-SHA256 gives at most 255 blocks of 32 bytes (RFC 5869, section 2.3).
_MOST_DERIVED = 255 * 32
_SHA256 = SHA256()


class StaysHere:
    """Refuses to be pickled or copied: what is written down is no longer secret."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is never pickled or copied; pass it on as it is")


class Secret(StaysHere):
    """Bytes that must not be shown.

    Parameters
    ----------
    content
        The bytes; as many random ones as there are secrets to keep apart, 32 as a rule.
    """

    __slots__ = ("_content",)
    # No member of sets or keys of dicts: those compare in a time that tells where they differ.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: bytes) -> None:
        self._content = bytes(content)

    @classmethod
    def random(cls, length: int = KEY_BYTES) -> Self:
        """Fresh bytes from the operating system, never from a run's seed."""
        return cls(urandom(length))

    def reveal(self) -> bytes:
        """The bytes themselves; call it where they are used, and keep no name for them."""
        return self._content

    def fingerprint(self, purpose: str) -> str:
        """16 hex digits to know a secret by; safe to show where the secret is a random key.

        Parameters
        ----------
        purpose
            What the fingerprint is for; the same secret has others for other purposes.
        """
        # blake2b takes keys of up to 64 bytes; longer secrets are hashed first, as HMAC does.
        key = self if len(self._content) <= 64 else Secret(blake2b(self._content).digest())
        return blake2b(
            purpose.encode(), digest_size=8, key=key._content, person=b"weft fingerprint"
        ).hexdigest()

    def derive(self, label: str, context: bytes = b"", length: int = KEY_BYTES) -> Secret:
        """A subkey by HKDF-SHA256 (RFC 5869), which tells nothing about this secret.

        Parameters
        ----------
        label
            Names the use; every use has its own.
        context
            What sets this subkey apart from others of the same use.
        length
            Bytes wanted.
        """
        if not 1 <= length <= _MOST_DERIVED:
            raise ValueError(f"a subkey has 1 to {_MOST_DERIVED} bytes, not {length}")
        name = label.encode()
        # The length in front keeps ("ab", b"c") and ("a", b"bc") apart.
        info = len(name).to_bytes(4, "big") + name + context
        return Secret(HKDF(_SHA256, length, None, info).derive(self._content))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._content, other._content)

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, specification: str) -> str:
        return repr(self)
