"""Revocations: a member's signed word that it stands by a roster no more.

A roster counts because every member has signed it. So each of them can withdraw it, for whatever
reason: a member left, a key was stolen, a term was a mistake. Sites that have the revocation refuse
the roster and all before it, whoever signed those; one with a higher serial takes its place.
"""

from __future__ import annotations

from typing import Literal, Self

import msgspec

from weft.crypto.party_key_pairs import Identity
from weft.errors import ConfigError, ProtocolError
from weft.privacy.agreement.signed_roster import Hex, SignedRoster

#: Says what is signed, so that no signature for another purpose can stand for a revocation.
_DOMAIN = b"weft revocation 1\n"


class Revocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member's withdrawal of a roster.

    Attributes
    ----------
    federation, serial, fingerprint
        Which roster; those with lower serials fall with it.
    by
        The member that withdraws it.
    signature
        Ed25519, of all the rest.
    """

    format: Literal[1] = 1
    federation: str
    serial: int
    fingerprint: str
    by: str
    signature: Hex = Hex()

    @classmethod
    def of(cls, roster: SignedRoster, by: str, identity: Identity) -> Self:
        """A member's revocation of a roster, which must list its keys."""
        member = roster.members.get(by)
        if member is None or identity.public != member.identity:
            raise ConfigError(
                f"the roster of '{roster.charter.federation}' lists no member '{by}' with these "
                "keys; only a member can revoke it, with the keys that it signed with"
            )
        unsigned = cls(
            federation=roster.charter.federation,
            serial=roster.charter.serial,
            fingerprint=roster.fingerprint,
            by=by,
        )
        return msgspec.structs.replace(unsigned, signature=Hex(identity.sign(unsigned._signed())))

    def _signed(self) -> bytes:
        content = [self.federation, self.serial, self.fingerprint, self.by]
        return _DOMAIN + msgspec.json.encode(content)

    def revokes(self, roster: SignedRoster) -> bool:
        """Whether it names this very roster, and one of its members has signed it."""
        charter, member = roster.charter, roster.members.get(self.by)
        named = self.federation, self.serial, self.fingerprint
        if member is None or named != (charter.federation, charter.serial, roster.fingerprint):
            return False
        try:
            member.identity.verify(self._signed(), bytes(self.signature))
        except ProtocolError:
            return False
        return True
