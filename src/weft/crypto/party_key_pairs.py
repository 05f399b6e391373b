"""The key pairs of a party: what it signs, seals and agrees with.

Frames of failing calls are dropped, because a debugger or a crash report may print the local
variables of every frame that it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Self

from nacl.bindings import (
    crypto_box_keypair,
    crypto_box_seal,
    crypto_box_seal_open,
    crypto_scalarmult,
    crypto_scalarmult_base,
    crypto_sign,
    crypto_sign_keypair,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from weft.crypto.secret_bytes import KEY_BYTES, Secret, StaysHere
from weft.errors import ProtocolError

#: Bytes of an Ed25519 signature.
SIGNATURE_BYTES = 64


@dataclass(frozen=True, repr=False)
class PublicIdentity:
    """What everybody may know of a party's keys.

    Parameters
    ----------
    signing
        Ed25519 key that checks the party's signatures.
    sealing
        X25519 key that closes boxes which only the party can open.
    """

    signing: bytes
    sealing: bytes

    def __post_init__(self) -> None:
        # libsodium reads 32 bytes wherever it is pointed to: shorter keys must not reach it.
        if len(self.signing) != KEY_BYTES or len(self.sealing) != KEY_BYTES:
            raise ProtocolError(
                f"a public identity needs two keys of {KEY_BYTES} bytes, but has "
                f"{len(self.signing)} and {len(self.sealing)}; ask its party for it again"
            )

    def to_bytes(self) -> bytes:
        """Both keys, one after the other."""
        return self.signing + self.sealing

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what :meth:`to_bytes` gave."""
        return cls(content[:KEY_BYTES], content[KEY_BYTES:])

    @cached_property
    def fingerprint(self) -> str:
        """128 bits in groups of four digits, to be compared over the telephone."""
        # Long enough that nobody finds other keys with the same fingerprint.
        digits = blake2b(self.to_bytes(), digest_size=16, person=b"weft identity").hexdigest()
        return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def seal(self, content: bytes | Secret) -> bytes:
        """A box that only this party can open; it does not say who closed it."""
        box = _sealed(content, self.sealing)
        if box is None:
            raise ProtocolError(_WEAK_KEY)
        return box

    def verify(self, content: bytes, signature: bytes) -> None:
        """Check that this party signed ``content``.

        Raises
        ------
        ProtocolError
            The signature is another's, or one of something else.
        """
        # Checked first: signature and content travel through libsodium as one piece.
        if len(signature) != SIGNATURE_BYTES or not _signed(signature + content, self.signing):
            raise ProtocolError(
                "a signature does not belong to this content and key; ask its sender for both again"
            )

    def __repr__(self) -> str:
        return f"PublicIdentity({self.fingerprint})"


class Identity(StaysHere):
    """A party's own key pairs: Ed25519 to sign, X25519 to open boxes and to agree on secrets.

    Make one with :meth:`new`; :meth:`private` and :meth:`from_private` are for key files.
    """

    __slots__ = ("_sealing", "_signing", "public")

    def __init__(self, signing: Secret, sealing: Secret, public: PublicIdentity) -> None:
        self._signing = signing
        self._sealing = sealing
        self.public = public

    @classmethod
    def new(cls) -> Self:
        """Fresh key pairs."""
        verifying, signing = crypto_sign_keypair()
        closing, opening = crypto_box_keypair()
        return cls(Secret(signing), Secret(opening), PublicIdentity(verifying, closing))

    def private(self) -> Secret:
        """All that :meth:`from_private` needs: the Ed25519 seed and the X25519 key."""
        return Secret(self._signing.reveal()[:KEY_BYTES] + self._sealing.reveal())

    @classmethod
    def from_private(cls, private: Secret) -> Self:
        """The identity that :meth:`private` wrote down."""
        if len(private.reveal()) != 2 * KEY_BYTES:
            raise ProtocolError(
                f"a private identity has {2 * KEY_BYTES} bytes, not {len(private.reveal())}; "
                "restore it from a copy, or make a new one"
            )
        verifying, signing = crypto_sign_seed_keypair(private.reveal()[:KEY_BYTES])
        opening = Secret(private.reveal()[KEY_BYTES:])
        closing = crypto_scalarmult_base(opening.reveal())
        return cls(Secret(signing), opening, PublicIdentity(verifying, closing))

    def open(self, box: bytes) -> Secret:
        """What somebody sealed to this party.

        Raises
        ------
        ProtocolError
            The box was sealed to another party, or changed on its way.
        """
        content = _opened(box, self.public.sealing, self._sealing)
        if content is None:
            raise ProtocolError(
                "a sealed box does not open with this party's key: it was sealed to another "
                "identity or changed on its way; ask its sender to seal it again"
            )
        return content

    def shared_with(self, public: PublicIdentity) -> Secret:
        """A secret that only the two parties can compute; both get the same.

        X25519 gives the same point on both sides; HKDF then binds it to both identities, in an
        order that both sides know.
        """
        point = _agreed(self._sealing, public.sealing)
        if point is None:
            raise ProtocolError(_WEAK_KEY)
        first, second = sorted((self.public.to_bytes(), public.to_bytes()))
        return point.derive("weft pair", first + second)

    def sign(self, content: bytes) -> bytes:
        """An Ed25519 signature; the content should begin with what it is."""
        return crypto_sign(content, self._signing.reveal())[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"Identity({self.public.fingerprint})"


class ExchangeKey(StaysHere):
    """A key pair of one run (X25519), through which two parties agree on a secret.

    Parameters
    ----------
    private
        32 random bytes.
    """

    __slots__ = ("_private", "public")

    def __init__(self, private: Secret) -> None:
        self._private = private
        self.public: bytes = crypto_scalarmult_base(private.reveal())

    def agree(self, public: bytes) -> Secret:
        """A point that only the two parties can compute; to be derived from, not used itself."""
        point = _agreed(self._private, public)
        if point is None:
            raise ProtocolError(_WEAK_KEY)
        return point


_WEAK_KEY = (
    "a public sealing key is no usable X25519 key (a point of small order); ask its party for its "
    "public identity again"
)


# Each of these gives None where libsodium refuses, for the caller to raise from its own frame: an
# exception raised here would carry the frames of PyNaCl along, and the keys among their variables.


def _sealed(content: bytes | Secret, closing: bytes) -> bytes | None:
    try:
        return crypto_box_seal(
            content.reveal() if isinstance(content, Secret) else content, closing
        )
    except CryptoError:
        return None


def _opened(box: bytes, closing: bytes, opening: Secret) -> Secret | None:
    try:
        return Secret(crypto_box_seal_open(box, closing, opening.reveal()))
    except CryptoError:
        return None


def _agreed(opening: Secret, closing: bytes) -> Secret | None:
    try:
        return Secret(crypto_scalarmult(opening.reveal(), closing))
    except CryptoError:
        return None


def _signed(content: bytes, verifying: bytes) -> bool:
    try:
        crypto_sign_open(content, verifying)
    except CryptoError:
        return False
    return True
