"""Letters from one party to another, which whoever carries them can neither read nor write.

Unlike a sealed box (:meth:`PublicIdentity.seal`), a letter shows who wrote it: its key follows from
both identities. It also fits nowhere but into the place that it was written for.
"""

from __future__ import annotations

from os import urandom

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret

_NONCE: int = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES


def write_letter(writer: Identity, reader: PublicIdentity, place: bytes, content: bytes) -> bytes:
    """Encrypt for ``reader`` (XChaCha20-Poly1305).

    Parameters
    ----------
    place
        What the letter is for: run, step, names. Only the same place opens it.
    """
    context = writer.public.to_bytes() + reader.to_bytes() + place
    key = writer.shared_with(reader).derive("weft letter", context)
    nonce = urandom(_NONCE)
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(content, context, nonce, key.reveal())


def read_letter(reader: Identity, writer: PublicIdentity, place: bytes, letter: bytes) -> Secret:
    """Open what ``writer`` wrote for this place.

    Raises
    ------
    LetterError
        Somebody else wrote it, or for another place, or it was changed on its way.
    """
    context = writer.to_bytes() + reader.public.to_bytes() + place
    key = reader.shared_with(writer).derive("weft letter", context)
    content = _opened(letter, context, key)
    if content is None:
        raise LetterError("a letter was not written by the party that it should be from")
    return content


def lock(key: Secret, content: bytes, nonce: bytes) -> bytes:
    """Encrypt for whoever has the key (XChaCha20-Poly1305); ``nonce`` is 24 fresh random bytes."""
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(content, None, nonce, key.reveal())


def unlock(key: Secret, locked: bytes) -> Secret:
    """The inverse of :func:`lock`.

    Raises
    ------
    LetterError
        It was locked under another key, or changed on its way.
    """
    content = _opened(locked, None, key)
    if content is None:
        raise LetterError("something was locked under another key")
    return content


class LetterError(Exception):
    """A letter that its reader cannot take for what it should be."""


def _opened(letter: bytes, context: bytes | None, key: Secret) -> Secret | None:
    # None in the place of an exception, which would carry the key in its frames.
    try:
        return Secret(
            crypto_aead_xchacha20poly1305_ietf_decrypt(
                letter[_NONCE:], context, letter[:_NONCE], key.reveal()
            )
        )
    except (CryptoError, ValueError):
        return None
