"""What a party announces to all others where ids are matched, and how many ids it may ask about.

The coordinator carries announcements and reads them: by its number of rows it knows how many
letters a party may have for key holders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.matching.id_and_name_forms import MOST_BARE
from weft.thread_safe_decoding import prepared

if TYPE_CHECKING:
    from weft.crypto.party_key_pairs import PublicIdentity

#: A party may ask for every row and for its loose form, and for some without what all begin with.
FORMS = 2
#: Ids in a letter: some seconds of work, and a message of two megabytes.
PART = 1 << 16


class Announcement(msgspec.Struct, frozen=True, array_like=True):
    """What a party tells all others of itself.

    Attributes
    ----------
    public, key
        Its public identity, and the public key of its matching key.
    rows
        How many rows it has, in all its tiles.
    tag
        Shows that the run secret was known to whoever wrote this.
    """

    name: str
    public: bytes
    key: bytes
    rows: int
    tag: bytes

    @property
    def identity(self) -> PublicIdentity:
        # The coordinator, which has no use for it, loads nothing of identities.
        from weft.crypto.party_key_pairs import PublicIdentity

        return PublicIdentity.from_bytes(self.public)


def read_announcement(content: bytes) -> Announcement | None:
    """An announcement, whoever wrote it; None: it is none."""
    try:
        return msgspec.msgpack.decode(content, type=prepared(Announcement))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def most_ids(rows: int) -> int:
    """About how many ids a party with so many rows may ask."""
    return FORMS * rows + min(rows, MOST_BARE)


def parts_of(ids: int) -> int:
    """How many letters to a key holder so many ids are; none are an empty one."""
    return max(1, -(-ids // PART))


def range_of(part: int) -> slice:
    """Which of the ids are in a part."""
    return slice(PART * part, PART * (part + 1))


def may_follow(before: list[int], ids: int) -> bool:
    """Whether a part of so many ids may come after those: all but the last are full."""
    return ids <= PART and (not before or (ids > 0 and before[-1] == PART))
