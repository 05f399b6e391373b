"""Ciphers by their names: Weft's own, and those that are registered from outside."""

from __future__ import annotations

from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.ciphers.block_format import DEALT_CIPHERS, check_cipher, name_cipher
from weft.crypto.ciphers.external_cipher_hiding_check import check_hiding
from weft.crypto.ciphers.party_cipher import Cipher, Plain
from weft.crypto.pads.pad_streams import Streams
from weft.errors import ConfigError

_KINDS: dict[str, type[Cipher]] = {kind.name: kind for kind in (Plain, Pad)}


def new_cipher(name: str) -> Cipher:
    """A party's half of a cipher, without keys."""
    check_cipher(name)
    if name in DEALT_CIPHERS:
        # Loaded by those who use them: their schemes bring large libraries.
        from weft.crypto.ciphers.paillier_and_bfv_ciphers import BfvCipher, PaillierCipher

        return {kind.name: kind for kind in (BfvCipher, PaillierCipher)}[name]()
    return _KINDS[name]()


def register_cipher(kind: type[Pad], code: int) -> None:
    """Let settings and terms name a cipher of your own: padded words, with pads of another make.

    No terms allow it by themselves: every party must name it in its ``ciphers``, in its policy, in
    the signed roster or in ``[privacy]``, and must have registered it, from the same code. A
    coordinator on another machine has no party's half and calls
    :func:`weft.crypto.ciphers.block_format.name_cipher` instead.

    Parameters
    ----------
    kind
        A subclass of :class:`Pad` with a ``name`` and ``streams`` of its own.
    code
        What stands for it in headers of blocks, 128 to 255.

    Raises
    ------
    ConfigError
        If name or code are taken, or it makes no pads of its own, hides nothing, uses pads again
        or does not open what it hid.
    """
    if not (isinstance(kind, type) and issubclass(kind, Pad)):
        raise ConfigError(f"{kind!r} is no cipher of padded words; register a subclass of Pad")
    if kind.streams is Streams or not issubclass(kind.streams, Streams):
        raise ConfigError(
            f"cipher '{kind.name}' makes the same pads as 'pad'; give it streams of its own, a "
            "subclass of Streams"
        )
    check_hiding(kind)
    name_cipher(kind.name, code)
    _KINDS[kind.name] = kind
