"""What goes into a cipher and comes out of it, and the pads that a request names."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots
from weft.crypto.ciphers.block_format import ID_BITS, SIGN
from weft.crypto.ciphers.contribution_masks import Contributed
from weft.crypto.pads.cohort_mask_neighbours import MaskRing, RingPlace
from weft.crypto.pads.pad_ids_per_total_slot import Tails
from weft.crypto.pads.pad_kernels import newest_of
from weft.errors import ProtocolError
from weft.protocol.shared_fields import Asked, PadIds, PadLinks

Integers = NDArray[np.int64]

#: No pad id is as large.
ANY_LATER = int(ID_BITS)

#: What the kinds of sums are called in messages to people.
WHAT = {
    "z": "inner products",
    "v": "feature sums",
    "alpha": "dual variables",
    "delta": "changes of dual variables",
}


class Outgoing(msgspec.Struct, frozen=True):
    """A party's integers on their way into a sum.

    A struct, as what comes is: thousands of parties make several with every request, and a named
    tuple takes seven times as long.

    Attributes
    ----------
    slots
        Where they belong; None: all shared slots.
    pads
        Which pads to take off, and who else contributes.
    tails
        What the party knows of pads under single slots.
    last
        The least pad id of the request in which the party contributed to this sum last; zero: of
        none.
    alone
        The sum is of this request alone, and of everyone.
    mends
        The contribution whose ring these integers, which are zeros, close again.
    """

    kind: str
    slots: Slots | None
    values: Integers
    pads: PadLinks | None
    tails: Tails | None = None
    last: int = 0
    mends: Contributed | None = None
    alone: bool = False


class Joined(NamedTuple):
    """How a contribution is joined to those of others.

    Attributes
    ----------
    minus
        Per cohort, the id of the pad to take off, or the number of a set of ids.
    rings
        Masks in the cohorts, and in the chunks where there are any.
    """

    minus: PadIds
    rings: tuple[tuple[MaskRing, ...], ...]


class Incoming(msgspec.Struct, frozen=True):
    """Totals that a party opens.

    Attributes
    ----------
    slots, n_slots
        Where they belong (None: all shared slots), and how many there must be.
    packed
        The block as it came.
    since, until
        Pad ids that the totals carry are not below the first, and below the second.
    unit
        In which values come out.
    whole
        All slots of a cohort are of the same requests, as they were summed together.
    posts
        They are no sums: all of a cohort must come from one post of one holder.
    newest
        Per shared slot, the newest pad id under what was opened there, which must not be older
        now; None: they need not be. It is brought up to date.
    """

    kind: str
    slots: Slots | None
    n_slots: int
    width: int
    packed: Any
    since: int = 0
    unit: float = 1.0
    posts: bool = False
    newest: PadIds | None = None
    until: int = ANY_LATER
    whole: bool = False


def minus_told(place: RingPlace, told: PadIds) -> bool:
    """Whether something is said to be under a sum, where this party leads."""
    return bool((told[place.leads] != 0).any())


def asked_in(pads: PadLinks | None) -> Asked:
    """Who is asked for a sum; where a request does not say it, everyone, who are all new to it."""
    return Asked() if pads is None or pads.asked is None else pads.asked


def linked(minus: PadIds | None, kind: str, units: int) -> PadIds:
    """What a request says is to be taken off, per cohort or chunk."""
    if minus is None or minus.shape != (units,):
        raise ProtocolError(f"a request for {WHAT[kind]} does not say which pads to take off")
    return minus


def newest_in(knots: list[tuple[int, ...]], mark: int, kind: str) -> int:
    """The newest pad id in the set that a mark stands for; 0: no total carries such a set."""
    number = mark & ~int(SIGN)
    if number >= len(knots):
        raise ProtocolError(f"a request names pads under the {WHAT[kind]} that it does not list")
    listed = np.array(knots[number], np.uint64)
    return int(newest_of(listed, 0, len(listed), True))


def refuse_newer(kind: str) -> NoReturn:
    """A chain that points forwards could cancel the pads of two contributions."""
    raise ProtocolError(
        f"a request for {WHAT[kind]} wants a pad taken off that is not older than this contribution"
    )


def check_older(marks: PadIds, knots: list[tuple[int, ...]], pad_id: int, kind: str) -> None:
    """All pad ids that are to be taken off must be older than ``pad_id``, and listed."""
    several = (marks & SIGN) != 0
    newest = int(marks[~several].max(initial=0))
    for pad_ids in knots:
        newest = max(newest, *(part & ~int(SIGN) for part in pad_ids), 0)
    listed = not several.any() or int((marks[several] & ~SIGN).max()) < len(knots)
    if newest >= pad_id or not listed:
        refuse_newer(kind)
