"""What the members of a federation agreed on, what a site adds, and what a party then refuses.

A roster is signed by every member (`SignedRoster`); a site may have a stricter policy of its own
(`SitePolicy`); a party keeps to both in every run (`Consent`).
"""

from weft.privacy.agreement.cards_and_roster_drafts import (
    Card,
    card_of,
    read_card,
    read_roster,
    write_card,
    write_roster,
)
from weft.privacy.agreement.limits_and_site_policy import Limits, SitePolicy
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.agreement.signed_roster import ROLES, Charter, Hex, Member, Role, SignedRoster

__all__ = [
    "ROLES",
    "Card",
    "Charter",
    "Consent",
    "Hex",
    "Limits",
    "Member",
    "Role",
    "SignedRoster",
    "SitePolicy",
    "card_of",
    "read_card",
    "read_roster",
    "write_card",
    "write_roster",
]
