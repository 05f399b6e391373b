"""What the members of a federation agreed on, what a site adds, and what a party then refuses.

A roster is signed by every member (`SignedRoster`); a site may have a stricter policy of its own
(`SitePolicy`); a party keeps to both in every run (`Consent`).
"""

from weft.consortium.consent import Consent
from weft.consortium.files import (
    Card,
    card_of,
    read_card,
    read_roster,
    write_card,
    write_roster,
)
from weft.consortium.limits import Limits
from weft.consortium.policy import SitePolicy
from weft.consortium.roster import ROLES, Charter, Hex, Member, Role, SignedRoster

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
