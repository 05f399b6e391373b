"""Identity in a federation: a certificate of its authority, and the key to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from weft.errors import ProtocolError
from weft.network.kits.certificates import (
    CertificateError,
    check_signed,
    name_of,
    read_certificate,
    read_key,
)
from weft.network.kits.kit_folder import Kit

_HASH = hashes.SHA256()
_PADDING = padding.PSS(padding.MGF1(_HASH), padding.PSS.DIGEST_LENGTH)


class AuthenticationFailed(ProtocolError):
    """The other side cannot prove that it is who it should be."""


@dataclass(frozen=True)
class Credential:
    """What one side shows, and which authority it trusts.

    Parameters
    ----------
    certificate, key
        Its own.
    authority
        Whose certificates it accepts.
    """

    certificate: x509.Certificate
    key: RSAPrivateKey
    authority: x509.Certificate

    @classmethod
    def of(cls, kit: Kit) -> Self:
        """That of a kit."""
        return cls(
            read_certificate(kit.certificate.read_bytes()),
            read_key(kit.key.read_bytes()),
            read_certificate(kit.authority.read_bytes()),
        )

    @property
    def certificate_bytes(self) -> bytes:
        """The certificate as it travels."""
        return self.certificate.public_bytes(Encoding.DER)

    def sign(self, content: bytes) -> bytes:
        return self.key.sign(content, _PADDING, _HASH)

    def verify(self, certificate_bytes: bytes, name: str, content: bytes, signature: bytes) -> None:
        """Refuse content that the holder of that name has not signed.

        Parameters
        ----------
        shown
            The certificate that came with it.
        name
            Who must have signed it.

        Raises
        ------
        Stranger
            The certificate is of another authority or name or has expired, or the signature is
            not its owner's.
        """
        try:
            certificate = x509.load_der_x509_certificate(certificate_bytes)
            check_signed(certificate, self.authority)
        except (ValueError, CertificateError):
            raise AuthenticationFailed("shows no certificate of this federation") from None
        if name_of(certificate) != name:
            raise AuthenticationFailed(
                f"shows the certificate of '{name_of(certificate)}', not of '{name}'"
            )
        now = datetime.now(UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise AuthenticationFailed(f"shows a certificate of '{name}' that is not valid now")
        key = certificate.public_key()
        if not isinstance(key, RSAPublicKey):
            raise AuthenticationFailed("shows a certificate of another kind")
        try:
            key.verify(signature, content, _PADDING, _HASH)
        except InvalidSignature:
            raise AuthenticationFailed(f"does not have the key of '{name}'") from None
