"""What everybody may know of a federation's keys: ``public.json``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self

import msgspec

from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.thread_safe_decoding import prepared

PUBLIC = "public.json"

#: Categories of Unicode that no name may hold: controls, half surrogates, breaks of lines.
_UNPRINTED = {"Cc", "Cs", "Zl", "Zp"}


class KeysError(WeftError):
    """Keys on disk that are missing, damaged, open to others or at odds with each other."""


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    signing: bytes
    sealing: bytes


class _PublicFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    run: str
    made_by: str
    parties: list[_Member]


@dataclass(frozen=True)
class PublicKeys:
    """What everybody may know: ``public.json``.

    Parameters
    ----------
    members
        The public identity of every party, by name.
    run
        Fingerprint of the run secret that they share.
    made_by
        The party that made it.
    """

    members: Mapping[str, PublicIdentity]
    run: str
    made_by: str

    def to_json(self) -> bytes:
        """As ``public.json`` has it; the same keys give the same bytes."""
        parties = [_Member(name, p.signing, p.sealing) for name, p in self.members.items()]
        return msgspec.json.encode(_PublicFile(1, self.run, self.made_by, parties))

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read what :meth:`to_json` gave."""
        file = msgspec.json.decode(content, type=prepared(_PublicFile))
        check_names([party.name for party in file.parties])
        members = {p.name: PublicIdentity(p.signing, p.sealing) for p in file.parties}
        if file.made_by not in members:
            raise ProtocolError("the maker of the run secret is no member")
        # It becomes part of a path.
        if not re.fullmatch("[0-9a-f]{16}", file.run):
            raise ProtocolError("the run's fingerprint is not 16 hex digits")
        return cls(members, file.run, file.made_by)

    @cached_property
    def digest(self) -> bytes:
        """A hash of all of it, which the maker signs: members cannot be exchanged unnoticed."""
        return blake2b(self.to_json(), digest_size=32, person=b"weft public keys").digest()


def read_public(folder: Path) -> PublicKeys:
    """Read ``public.json``; whether its maker signed it shows when a box is opened."""
    path = folder / PUBLIC
    try:
        return PublicKeys.from_json(path.read_bytes())
    except FileNotFoundError:
        raise KeysError(
            f"{path} does not exist; make keys with 'weft keys new', or copy it from the party "
            "that made them"
        ) from None
    except OSError as error:
        raise KeysError(f"{path} cannot be read ({error.strerror or error})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, WeftError) as error:
        raise KeysError(
            f"{path} is damaged or of another kind ({error}); copy it again from the party that "
            "made the run secret"
        ) from None


def check_names(parties: Sequence[str]) -> None:
    """Refuse names that cannot be told apart, printed or written."""
    if not parties:
        raise ConfigError("there are no parties to make keys for; name at least one")
    seen = set()
    for name in parties:
        # A line break in a name would break messages; half a surrogate cannot be written at all.
        if not name.strip() or {unicodedata.category(sign) for sign in name} & _UNPRINTED:
            raise ConfigError(f"{name!a} cannot be a party's name; use letters, digits and signs")
        if name in seen:
            raise ConfigError(f"two parties are called '{name}'; rename one")
        seen.add(name)


def what_is_signed(public: PublicKeys, recipient: PublicIdentity, box: bytes) -> bytes:
    """Says what it is, for which federation and run, and to whom."""
    return b"weft run box 1\n" + public.digest + recipient.to_bytes() + box


def print_of(run: Secret) -> str:
    """The fingerprint by which everybody knows a run secret."""
    return run.fingerprint("run")
