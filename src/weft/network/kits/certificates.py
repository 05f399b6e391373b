"""The federation's own certificate authority, and what it signs.

Certificates have the fields that the engine's own tools (``nvflare provision``, ``nvflare cert
approve``) give them. Those tools themselves are not used: they end the process on a mistake, and
keep records in their caller's home folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from weft.errors import ConfigError

#: How long the authority and a kit's certificate are valid.
AUTHORITY_DAYS, KIT_DAYS = 3650, 365
#: A certificate counts from a little before it was made: clocks of machines differ.
_SLACK = timedelta(hours=1)
#: Smallest key that is signed; the engine signs with RSA and knows no other kind.
_KEY_BITS = 2048


class CertificateError(ConfigError):
    """A certificate, key or signing request that is damaged, foreign or expired."""


@dataclass(frozen=True)
class Authority:
    """The holder of its key decides who takes part in the federation."""

    certificate: x509.Certificate
    key: RSAPrivateKey

    @classmethod
    def new(cls, federation: str) -> Self:
        """A new authority for a federation of this name."""
        tools = _tools()
        key, public = tools.generate_keys()
        now = datetime.now(UTC)
        certificate = tools.generate_cert(
            subject=tools.Identity(federation),
            issuer=tools.Identity(federation),
            signing_pri_key=key,
            subject_pub_key=public,
            ca=True,
            not_valid_before=now - _SLACK,
            not_valid_after=now + timedelta(days=AUTHORITY_DAYS),
        )
        return cls(certificate, key)

    def issue(
        self,
        public: RSAPublicKey,
        name: str,
        organisation: str,
        *,
        role: str | None = None,
        host: str | None = None,
    ) -> x509.Certificate:
        """Sign a certificate.

        Parameters
        ----------
        public
            The key that it speaks for.
        name, organisation
            Whose it is.
        role
            Role of a submitter with the engine.
        host
            Of the coordinator: the name by which it is reached.
        """
        now = datetime.now(UTC)
        end = min(now + timedelta(days=KIT_DAYS), self.certificate.not_valid_after_utc)
        if end <= now:
            raise CertificateError(
                f"the authority of '{name_of(self.certificate)}' expired on {format_day(end)}; "
                "provision the federation anew in another folder"
            )
        tools = _tools()
        certificate: x509.Certificate = tools.generate_cert(
            subject=tools.Identity(name, organisation, role),
            issuer=tools.Identity(name_of(self.certificate)),
            signing_pri_key=self.key,
            subject_pub_key=public,
            server_default_host=host,
            not_valid_before=now - _SLACK,
            not_valid_after=end,
            extra_extensions=_usage(submitter=role is not None),
        )
        return certificate


def _tools() -> Any:
    """What the engine's own provisioning makes keys and certificates with."""
    try:
        from nvflare.lighter import utils
    except ImportError:
        raise ConfigError(
            "start-up kits need the engine; install it with pip install 'weft[network]'"
        ) from None
    return utils


def _usage(*, submitter: bool) -> list[tuple[x509.ExtensionType, bool]]:
    """What a key may be used for, as ``nvflare cert approve`` has it."""
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=submitter,
        key_encipherment=not submitter,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if not submitter:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (usage, True),
        (x509.ExtendedKeyUsage(purposes), False),
    ]


# ── keys and requests ─────────────────────────────────────────────────────────────────────────


def new_key() -> RSAPrivateKey:
    """A new key of the engine's kind."""
    key: RSAPrivateKey = _tools().generate_keys()[0]
    return key


def new_request(key: RSAPrivateKey, name: str) -> x509.CertificateSigningRequest:
    """A signing request: proves that its sender has the key, and says who it is."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())


def requested_key(request: x509.CertificateSigningRequest) -> RSAPublicKey:
    """The key that a request asks to be signed; it must be its sender's and of the right kind."""
    key = request.public_key()
    if not isinstance(key, RSAPublicKey) or key.key_size < _KEY_BITS:
        raise CertificateError(f"its key is no RSA key of {_KEY_BITS} bits or more")
    if not request.is_signature_valid:
        raise CertificateError("it is not signed by the key that it names")
    return key


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def name_of(document: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The common name; empty where there is none."""
    return _attribute(document, NameOID.COMMON_NAME)


def organisation_of(certificate: x509.Certificate) -> str:
    """The organisation; empty where there is none."""
    return _attribute(certificate, NameOID.ORGANIZATION_NAME)


def _attribute(
    document: x509.Certificate | x509.CertificateSigningRequest, kind: x509.ObjectIdentifier
) -> str:
    found = document.subject.get_attributes_for_oid(kind)
    return str(found[0].value) if found else ""


def format_day(moment: datetime) -> str:
    """A date for people to read."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def fingerprint(document: x509.Certificate | x509.CertificateSigningRequest | RSAPublicKey) -> str:
    """Of the public key in it, to be compared by telephone: 16 groups of 4 hex digits."""
    key = document if isinstance(document, RSAPublicKey) else document.public_key()
    packed = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digits = sha256(packed).hexdigest()
    return " ".join(digits[start : start + 4] for start in range(0, 64, 4))


def check_signed(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    """Refuse a certificate that the authority did not sign."""
    key = authority.public_key()
    algorithm = certificate.signature_hash_algorithm
    if isinstance(key, RSAPublicKey) and algorithm is not None:
        try:
            key.verify(
                certificate.signature,
                certificate.tbs_certificate_bytes,
                padding.PKCS1v15(),
                algorithm,
            )
        except InvalidSignature:
            pass
        else:
            return
    raise CertificateError("its certificate is not signed by the authority that it names")


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────


def key_bytes(key: RSAPrivateKey) -> bytes:
    """A private key as PEM, in the engine's format."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def read_key(content: bytes) -> RSAPrivateKey:
    """Read what `key_bytes` gave."""
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise CertificateError("its key is damaged or of another kind")
    return key


def pem(document: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """A certificate or request as PEM."""
    return document.public_bytes(Encoding.PEM)


def read_certificate(content: bytes) -> x509.Certificate:
    """Read a certificate from PEM."""
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise CertificateError("its certificate is damaged or of another kind") from None


def read_request(content: bytes) -> x509.CertificateSigningRequest:
    """Read a signing request from PEM."""
    try:
        return x509.load_pem_x509_csr(content)
    except ValueError:
        raise CertificateError("it is damaged or no signing request") from None
