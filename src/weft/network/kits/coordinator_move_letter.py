"""Letters that say where the coordinator is reached now, signed by the federation's authority.

Whoever could make a kit take another address could have its owner talk to another machine. So a
kit follows only its own authority, and never back to an address that it has left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from weft.errors import ConfigError
from weft.network.kits.certificates import Authority, read_certificate
from weft.network.kits.kit_folder import Kit, packed_json
from weft.storage.atomic_files import write_private
from weft.thread_safe_decoding import prepared

#: Name of the newest letter, in an authority's folder and in a kit's ``startup``.
ADDRESS = "address.json"
_DOMAIN = b"weft address 1\n"
_HASH = hashes.SHA256()
_PADDING = padding.PSS(padding.MGF1(_HASH), padding.PSS.DIGEST_LENGTH)


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the coordinator is reached.

    Attributes
    ----------
    number
        How often it has moved.
    signature
        Of the authority under all else, as hex digits.
    """

    format: Literal[1] = 1
    federation: str
    host: str
    port: int
    number: int
    signature: str = ""

    @property
    def signed_bytes(self) -> bytes:
        return _DOMAIN + msgspec.json.encode(msgspec.structs.replace(self, signature=""))

    def signed_by(self, authority: Authority) -> Address:
        signature = authority.key.sign(self.signed_bytes, _PADDING, _HASH)
        return msgspec.structs.replace(self, signature=signature.hex())

    def to_json(self) -> bytes:
        return packed_json(msgspec.to_builtins(self))


def read_address(path: Path) -> Address:
    """Read a letter; whose it is, `follow` finds out."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=prepared(Address))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror or error}); correct the path"
        ) from None
    except msgspec.MsgspecError:
        raise ConfigError(
            f"{path} is damaged, or does not say where a coordinator is; ask the organiser of the "
            "federation for it again"
        ) from None


def follow(kit: Kit, address: Address) -> Kit:
    """Let a site's or submitter's kit reach the coordinator where a letter says.

    Raises
    ------
    ConfigError
        The letter is not of the kit's authority, or older than one that it has followed.
    """
    if kit.kind == "coordinator":
        raise ConfigError(
            f"{kit.path} is the coordinator's kit, whose certificate has the name of its host; "
            "put a new one in with 'weft federation install --renew'"
        )
    _check_signature(kit, address)
    number = last_move(kit)
    if address.number < number:
        raise ConfigError(
            f"the coordinator has moved {number} time(s) by what {kit.path} has followed, and this "
            f"letter is of move {address.number}; ask the organiser for the newest"
        )
    (startup,) = (path for path in kit.startup.glob("fed_*.json"))
    settings = msgspec.json.decode(startup.read_bytes())
    _place(settings, kit, address)
    write_private(startup, packed_json(settings))
    # Last: until it is there, the letter can be followed again.
    write_private(kit.startup / ADDRESS, address.to_json())
    return Kit.open(kit.path)


def last_move(kit: Kit) -> int:
    """How often the coordinator has moved, by what a kit has followed."""
    path = kit.startup / ADDRESS
    return read_address(path).number if path.exists() else 0


def vouched_move(kit: Kit) -> int:
    """The move by which the authority vouches for the address in a kit; 0 if it does not."""
    if not (kit.startup / ADDRESS).exists():
        return 0
    address = read_address(kit.startup / ADDRESS)
    _check_signature(kit, address)
    return address.number if (address.host, address.port) == (kit.host, kit.port) else 0


def _check_signature(kit: Kit, address: Address) -> None:
    key = read_certificate(kit.authority.read_bytes()).public_key()
    try:
        if not isinstance(key, RSAPublicKey) or address.federation != kit.federation:
            raise InvalidSignature
        key.verify(bytes.fromhex(address.signature), address.signed_bytes, _PADDING, _HASH)
    except (InvalidSignature, ValueError):
        raise ConfigError(
            f"the letter is not signed by the authority of {kit.path}; ask the organiser of the "
            "federation for it again"
        ) from None


def _place(settings: dict[str, Any], kit: Kit, address: Address) -> None:
    if kit.kind == "submitter":
        admin = settings["admin"]
        admin["host"], admin["port"] = address.host, address.port
        admin["server_identity"] = address.host
        return
    (server,) = settings["servers"]
    server["service"]["target"] = f"{address.host}:{address.port}"
    server["identity"] = address.host
