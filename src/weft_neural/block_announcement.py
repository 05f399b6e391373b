"""What a party tells of its blocks; the coordinator reads it, and loads no table for it."""

from __future__ import annotations

import msgspec

#: So many numbers may a sample have in a block, and so many outputs its extractor.
MOST_COLUMNS, MOST_FEATURES = 10_000_000, 65_536


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party tells the coordinator of a block that it has.

    Attributes
    ----------
    pixels
        Whether it consists of bytes, which are not scaled.
    mark
        The same at parties with the same columns, whose names it does not tell.
    """

    name: str
    shape: tuple[int, ...]
    pixels: bool
    mark: str
