"""Membership cards, and rosters drafted from them: JSON on disk, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from weft.crypto.keys.load_keys import read_identity
from weft.crypto.keys.public_keys_file import check_names
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.secret_bytes import KEY_BYTES
from weft.errors import ConfigError, WeftError
from weft.guards.privacy_terms import Terms
from weft.privacy.agreement.limits_and_site_policy import Limits
from weft.privacy.agreement.roster_revocation import Revocation
from weft.privacy.agreement.signed_roster import (
    Charter,
    Hex,
    Member,
    Role,
    SignedRoster,
    from_hex,
    to_hex,
)
from weft.storage.atomic_files import replacing
from weft.thread_safe_decoding import prepared

T = TypeVar("T")


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a site tells of itself to whoever drafts the roster; nothing in it is secret.

    It need not be signed: a site signs no roster that lists other keys of it than its own.

    Attributes
    ----------
    name
        The party.
    signing, sealing
        Its public identity.
    matching_key
        The public key of its matching key, for the role ``matching``.
    """

    format: Literal[1]
    name: str
    signing: Hex
    sealing: Hex
    matching_key: Hex | None = None

    def __post_init__(self) -> None:
        check_names([self.name])
        keys = (self.signing, self.sealing, self.matching_key)
        if any(key is not None and len(key) != KEY_BYTES for key in keys):
            raise ConfigError(f"it has a key of '{self.name}' that is not {KEY_BYTES} bytes long")

    @classmethod
    def of_public(cls, name: str, public: PublicIdentity) -> Card:
        """A card without a matching key, which takes the private keys."""
        return cls(format=1, name=name, signing=Hex(public.signing), sealing=Hex(public.sealing))

    @property
    def identity(self) -> PublicIdentity:
        return PublicIdentity(bytes(self.signing), bytes(self.sealing))


class _RosterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    roster: dict[str, Any]
    signatures: dict[str, Hex]


def card_of(folder: Path, party: str) -> Card:
    """The card of a party whose private keys are in a folder of keys."""
    # Whoever only reads cards does without curves.
    from weft.crypto.primitives.oprf import matching_key

    identity = read_identity(folder, party)
    card = Card.of_public(party, identity.public)
    return msgspec.structs.replace(card, matching_key=Hex(matching_key(identity).public))


def read_roster(path: Path) -> SignedRoster:
    """Read a roster; whether all have signed it is for `SignedRoster.insist` to say."""
    return _read(path, _roster_of, "roster", "ask the member that sent it for the file again")


def _roster_of(content: bytes) -> SignedRoster:
    file = msgspec.json.decode(content, type=prepared(_RosterFile), dec_hook=from_hex)
    return SignedRoster(file.roster, file.signatures)


def write_roster(path: Path, roster: SignedRoster, *, new: bool = False) -> None:
    """Write a roster; a ``new`` one does not take the place of a file."""
    signatures = {name: Hex(signature) for name, signature in roster.signatures.items()}
    _write(path, _RosterFile(dict(roster.content), signatures), new=new)


def read_card(path: Path) -> Card:
    """Read a membership card."""
    return _read(path, _card_of, "membership card", "ask its site for it again")


def read_revocation(path: Path) -> Revocation:
    """Read a revocation; whose it is, `Revocation.revokes` finds out."""
    return _read(path, _revocation_of, "revocation", "ask the member that made it for it again")


def _revocation_of(content: bytes) -> Revocation:
    return msgspec.json.decode(content, type=prepared(Revocation), dec_hook=from_hex)


def write_revocation(path: Path, revocation: Revocation) -> None:
    """Write a revocation."""
    _write(path, revocation, new=True)


def _card_of(content: bytes) -> Card:
    return msgspec.json.decode(content, type=prepared(Card), dec_hook=from_hex)


def write_card(path: Path, card: Card) -> None:
    """Write a membership card."""
    _write(path, card, new=True)


def _read(path: Path, decode: Callable[[bytes], T], kind: str, remedy: str) -> T:
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"there is no {kind} {path}; correct the path, or {remedy}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, WeftError) as error:
        raise ConfigError(f"{path} is damaged or no {kind} ({error}); {remedy}") from None


def _write(path: Path, content: msgspec.Struct, *, new: bool) -> None:
    if new and os.path.lexists(path):
        raise ConfigError(f"{path} exists already; name another file, or delete it first")
    with replacing(path) as draft:
        packed = msgspec.json.encode(content, enc_hook=to_hex)
        draft.write_bytes(msgspec.json.format(packed, indent=2) + b"\n")


def draft_roster(
    federation: str,
    cards: Sequence[Card],
    terms: Terms,
    *,
    limits: Limits | None = None,
    labels: Collection[str] | None = None,
    model: Collection[str] | None = None,
    matching: Collection[str] = (),
    rows: Mapping[str, int] | None = None,
    serial: int = 1,
    expires: date | None = None,
) -> SignedRoster:
    """A roster in which every member brings data.

    Parameters
    ----------
    federation
        Its name.
    cards
        What the sites tell of themselves, in the order of the members.
    labels, model
        Who may bring labels, and who gets the model; None: everybody.
    matching
        Who holds a matching key; their cards must have one.
    rows
        The most rows that a member may match.
    serial, expires
        As `Charter` has them.
    """
    known = [card.name for card in cards]
    for what, names in (
        ("labels", labels),
        ("model", model),
        ("matching", matching),
        ("rows", rows),
    ):
        _refuse_strangers(what, names or (), known)
    roles: dict[Role, Collection[str]] = {
        "data": known,
        "labels": known if labels is None else labels,
        "matching": matching,
        "model": known if model is None else model,
    }
    members = [_member(card, roles, (rows or {}).get(card.name)) for card in cards]
    charter = Charter(
        format=1,
        federation=federation,
        members=tuple(members),
        terms=terms,
        limits=limits or Limits(),
        serial=serial,
        expires=expires,
    )
    return SignedRoster.draft(charter)


def amend_roster(
    roster: SignedRoster,
    cards: Sequence[Card],
    *,
    remove: Collection[str] = (),
    labels: Collection[str] = (),
    model: Collection[str] = (),
    matching: Collection[str] = (),
    expires: date | None = None,
) -> SignedRoster:
    """The next roster of a federation, unsigned: the same terms and roles, other members or keys.

    Parameters
    ----------
    roster
        The one that counts now.
    cards
        Of members that come, and of members that have new keys.
    remove
        Members that leave.
    labels, model, matching
        Which of those that come bring labels, get the model, and hold a matching key.
    """
    charter = roster.charter
    known = [member.name for member in charter.members]
    coming = [card for card in cards if card.name not in known]
    for name in remove:
        if name not in known or name in {card.name for card in cards}:
            raise ConfigError(
                f"'{name}' cannot be removed, for the members are {', '.join(known)}, and who has "
                "a card stays; correct the name"
            )
    for what, names in (("labels", labels), ("model", model), ("matching", matching)):
        _refuse_strangers(what, names, [card.name for card in coming])
    renewed = {card.name: card for card in cards}
    roles: dict[Role, Collection[str]] = {
        "data": [card.name for card in coming],
        "labels": labels,
        "matching": matching,
        "model": model,
    }
    members = [
        _renewed(member, renewed.get(member.name))
        for member in charter.members
        if member.name not in remove
    ]
    members += [_member(card, roles, None) for card in coming]
    return SignedRoster.draft(
        msgspec.structs.replace(
            charter, members=tuple(members), serial=charter.serial + 1, expires=expires
        )
    )


def _renewed(member: Member, card: Card | None) -> Member:
    """A member as it was, with the keys of its card."""
    if card is None:
        return member
    if "matching" in member.roles and card.matching_key is None:
        raise _no_matching_key(card)
    return msgspec.structs.replace(
        member,
        signing=card.signing,
        sealing=card.sealing,
        matching_key=card.matching_key if "matching" in member.roles else None,
    )


def _no_matching_key(card: Card) -> ConfigError:
    return ConfigError(
        f"the card of '{card.name}' has no matching key, which the role matching takes; let its "
        "site make the card with 'weft federation join'"
    )


def _refuse_strangers(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    strange = [name for name in names if name not in known]
    if strange:
        raise ConfigError(
            f"--{what} names '{strange[0]}', which is none of {', '.join(known) or 'nobody'}; "
            "correct the name"
        )


def _member(card: Card, roles: Mapping[Role, Collection[str]], rows: int | None) -> Member:
    own = tuple(role for role, names in roles.items() if card.name in names)
    if "matching" in own and card.matching_key is None:
        raise _no_matching_key(card)
    return Member(
        name=card.name,
        signing=card.signing,
        sealing=card.sealing,
        roles=own,
        most_rows=rows,
        matching_key=card.matching_key if "matching" in own else None,
    )
