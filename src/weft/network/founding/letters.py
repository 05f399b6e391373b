"""The letters by which a federation is founded: JSON, signed by their writers, nothing secret.

Everything in them may be read by whoever carries them. What may not be exchanged follows from one
fingerprint, the inviter's, which all others hear from it: it signs the invitation and the founding
letters, and through these the authority of the kits and the keys of all members.
"""

from __future__ import annotations

import os
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.errors import ConfigError, WeftError
from weft.guards.privacy_terms import Terms
from weft.network.kits.federation_plan import FederationPlan, planned
from weft.privacy.agreement.cards_and_roster_drafts import Card, draft_roster
from weft.privacy.agreement.limits_and_site_policy import Limits
from weft.privacy.agreement.signed_roster import Hex, SignedRoster, from_hex, to_hex
from weft.storage.atomic_files import replacing
from weft.thread_safe_decoding import prepared

T = TypeVar("T", bound=msgspec.Struct)
#: Says what is signed, so that no signature for another purpose can stand for one of a letter.
_DOMAIN = b"weft founding letter 1\n"
#: No letter comes near this: a larger file was not written by Weft.
_MOST_BYTES = 5_000_000


class Invitation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a federation is to be, as its inviter proposes it.

    Attributes
    ----------
    inviter
        Card of the member that begins, and organises the kits.
    invited
        Names of the other members.
    submitter
        Who may submit runs, at the inviter's.
    host, port
        Where the coordinator will be.
    terms, limits, labels, model, matching, expires
        As the roster will have them.
    number
        Random: no letter about one invitation fits another.
    """

    federation: str
    inviter: Card
    invited: tuple[str, ...]
    submitter: str
    host: str
    port: int
    terms: Terms
    limits: Limits
    labels: tuple[str, ...] | None
    model: tuple[str, ...] | None
    matching: tuple[str, ...]
    expires: date | None
    number: Hex

    @property
    def members(self) -> tuple[str, ...]:
        return (self.inviter.name, *self.invited)

    @property
    def plan(self) -> FederationPlan:
        """Who gets a kit."""
        return planned(self.federation, self.host, self.port, self.members, [self.submitter])

    def roster(self, cards: dict[str, Card]) -> SignedRoster:
        """The roster that it proposes, with the keys of all members; signed by nobody."""
        return draft_roster(
            self.federation,
            [cards[name] for name in self.members],
            self.terms,
            limits=self.limits,
            labels=self.labels,
            model=self.model,
            matching=self.matching,
            expires=self.expires,
        )


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer to an invitation: who takes part under which keys.

    Attributes
    ----------
    invitation
        Fingerprint of the invitation that is answered.
    card
        The member's public keys; None: the coordinator, which has none.
    request
        Signing request for the kit's certificate.
    """

    invitation: str
    name: str
    card: Card | None
    request: str


class Founding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one recipient gets when all have accepted.

    Attributes
    ----------
    kit
        The kit's archive, without a key.
    roster, signatures
        The roster to sign, and the inviter's signature; None, as what follows: the coordinator's.
    public, box
        The federation's public keys, and the run secret, sealed to this member.
    """

    invitation: str
    name: str
    kit: Hex
    roster: dict[str, Any] | None = None
    signatures: dict[str, Hex] = {}
    public: str | None = None
    box: Hex | None = None


Kind = Literal["invitation", "acceptance", "founding"]
_TYPES: dict[Kind, type[Invitation] | type[Acceptance] | type[Founding]] = {
    "invitation": Invitation,
    "acceptance": Acceptance,
    "founding": Founding,
}


class Letter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A letter as its file has it; the signature of a coordinator, which has no keys, is empty."""

    kind: Kind
    content: dict[str, Any]
    signature: Hex | None

    @classmethod
    def of(cls, kind: Kind, content: msgspec.Struct, writer: Identity | None) -> Letter:
        """Write one."""
        plain = msgspec.json.decode(msgspec.json.encode(content, enc_hook=to_hex))
        unsigned = cls(kind, plain, None)
        if writer is None:
            return unsigned
        return cls(kind, plain, Hex(writer.sign(unsigned.signed_bytes)))

    @property
    def signed_bytes(self) -> bytes:
        """What its writer signs."""
        head = _DOMAIN + self.kind.encode() + b"\n"
        return head + msgspec.json.encode(self.content, order="sorted")

    def insist(self, writer: PublicIdentity, whose: str) -> None:
        """Refuse a letter that somebody else has written, or changed."""
        try:
            writer.verify(self.signed_bytes, bytes(self.signature or b""))
        except WeftError:
            raise ConfigError(
                f"the {self.kind} was not signed by {whose} ({writer.fingerprint}), or was changed "
                "on its way; do not use it, and ask for it again"
            ) from None

    @property
    def fingerprint(self) -> str:
        """128 bits of it, by which other letters refer to it."""
        return blake2b(self.signed_bytes, digest_size=16, person=b"weft founding").hexdigest()

    def read(self, kind: type[T]) -> T:
        """What it says, if it is of a kind."""
        if _TYPES[self.kind] is not kind:
            raise ConfigError(f"it is a letter of another kind: {self.kind}")
        return msgspec.convert(self.content, prepared(kind), dec_hook=from_hex)


def read_letter(path: Path) -> Letter:
    """Read a letter; whether it is its writer's, `Letter.insist` says."""
    again = "ask its sender for it again"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError("it is too large")
        letter = msgspec.json.decode(path.read_bytes(), type=prepared(Letter), dec_hook=from_hex)
        letter.read(_TYPES[letter.kind])
    except FileNotFoundError:
        raise ConfigError(f"there is no letter {path}; correct the path, or {again}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, WeftError) as error:
        raise ConfigError(
            f"{path} is damaged or no letter of a founding ({error}); {again}"
        ) from None
    return letter


def write_letter(path: Path, letter: Letter) -> None:
    """Write a letter, as a new file."""
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already; move it away, or delete it first")
    with replacing(path) as draft:
        draft.write_bytes(msgspec.json.encode(letter, enc_hook=to_hex) + b"\n")


def compared(found: dict[str, str], heard: list[str]) -> list[str]:
    """Names of those whose fingerprints somebody has heard; one that is nobody's is refused.

    Parameters
    ----------
    found
        Fingerprints of a letter, by name.
    heard
        As they were read out, with any blanks.
    """
    plain = {"".join(digits.split()).lower(): name for name, digits in found.items()}
    known = []
    for digits in heard:
        name = plain.get("".join(digits.split()).lower())
        if name is None:
            raise ConfigError(
                f"nobody in this letter has the fingerprint {digits!r}: somebody may have "
                "exchanged keys on their way; do not go on, and ask for the letter by another way"
            )
        known.append(name)
    return known
