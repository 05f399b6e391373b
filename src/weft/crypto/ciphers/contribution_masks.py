"""A party's masks under its contributions to sums, and when it takes them off again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Slots
from weft.crypto.pads.cohort_mask_neighbours import CohortHolders, MaskRing, RingPlace, Words
from weft.crypto.pads.pad_ids_per_total_slot import Tails
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import Asked, PadIds

Encrypt = Callable[[Words], Words]

#: So many contributions of a kind are remembered, should their masks be taken off again.
_KEPT = 4


class Contributed(NamedTuple):
    """A contribution under masks, of which something may have to be taken off again.

    Attributes
    ----------
    context
        The id of its request.
    asked
        Who was asked.
    rings
        The party's neighbours: in its cohorts, and in its chunks where there are any.
    alone
        Whether it went into a sum of everyone: then no sum of those who are left is to be had.
    """

    context: int
    slots: Slots | None
    shape: tuple[int, ...]
    tails: Tails | None
    asked: Flags
    rings: tuple[MaskRing, ...]
    alone: bool


class ContributionMasks:
    """Masks that a party shares with neighbours, in the sums over its cohorts.

    Parameters
    ----------
    rows, columns
        Who holds its shared cohorts.
    secret
        What it shares with another party.
    """

    def __init__(
        self,
        rows: CohortHolders,
        columns: CohortHolders,
        party: int,
        secret: Callable[[int], bytes],
    ) -> None:
        self._rows, self._columns = rows, columns
        self._party = party
        self._secret = secret
        #: The last contributions, by kind and then by the id of their request.
        self._sent: dict[str, dict[int, Contributed]] = {}
        #: Who was left of those asked in a request, where its ring was opened.
        self._left: dict[tuple[str, int], bytes] = {}
        #: In which request masks of which one were taken off, by kind.
        self._mended: dict[str, tuple[int, int]] = {}

    def __reduce__(self) -> Any:
        raise TypeError("masks are not to be pickled: they hold keys")

    def _holders(self, kind: str) -> CohortHolders:
        return self._columns if kind == "v" else self._rows

    def place(self, kind: str, asked: Asked) -> RingPlace:
        """This party's place among those who are asked for a sum."""
        return self._holders(kind).place(asked)

    def ring(self, place: RingPlace, context: int, mark: bytes, encrypt: Encrypt) -> MaskRing:
        """Masks of one request under one question, which ``mark`` sets apart."""
        return place.ring.bound(context, mark + place.mark, encrypt)

    def check_ring(
        self, asked: Asked, context: int, mark: bytes, chunks: int, encrypt: Encrypt
    ) -> MaskRing:
        """The same for the check words of chunks, of which a party does not know all holders."""
        left, right = asked.checks_left, asked.checks_right
        if left is None or right is None or not left.shape == right.shape == (chunks,):
            raise malformed("asked", "does not say who shares masks under check words")
        if any(a == b >= 0 for a, b in zip(left.tolist(), right.tolist(), strict=True)):
            raise malformed("asked", "names neighbours that are none")
        ring = MaskRing.of(context, self._party, (left, right), self._secret)
        return ring.bound(context, mark, encrypt)

    def keep(self, kind: str, contributed: Contributed) -> None:
        """Remember what is sent."""
        before = self._sent.setdefault(kind, {})
        before[contributed.context] = contributed
        while len(before) > _KEPT:
            self._left.pop((kind, min(before)), None)
            del before[min(before)]

    def mended(self, kind: str, context: int) -> int:
        """The request in which masks of a contribution were taken off, or its own."""
        of, at = self._mended.get(kind, (0, 0))
        return at if of == context else context

    def reopen(self, kind: str, asked: Asked, base: int) -> Contributed:
        """A contribution whose ring was left open: masks are taken off, and others put on.

        Whoever is left of those who were asked, is left for good: it may be asked again, if one
        of them does not answer, but not among others.
        """
        found = self._sent.get(kind, {}).get(asked.torn or 0)
        if found is None:
            raise ProtocolError("a request wants masks taken off that were not put on")
        if found.alone:
            raise ProtocolError("a request wants masks taken off under a sum of everyone")
        left = self._holders(kind).flags(asked.parties, True)
        if (left & ~found.asked).any() or not (found.asked & ~left).any():
            raise malformed("asked", "is not of those who were asked before")
        if self._left.setdefault((kind, found.context), left.tobytes()) != left.tobytes():
            raise malformed("asked", "is not of those who were left before")
        self._mended[kind] = found.context, base
        return found

    def taken_off(self, kind: str, asked: Asked, earlier: Contributed) -> Iterator[MaskRing]:
        """Masks of an earlier contribution with the other sign, where somebody was silent."""
        holders = self._holders(kind)
        silent = earlier.asked & ~holders.flags(asked.parties, True)
        yield earlier.rings[0].turned(holders.with_any(silent))
        if len(earlier.rings) > 1:
            torn: PadIds | None = asked.checks_torn
            chunks = earlier.rings[1].signs.shape[1]
            if torn is None:
                torn = np.zeros(chunks, np.uint64)
            if torn.shape != (chunks,) or not np.isin(torn, [0, earlier.context]).all():
                raise malformed("asked", "names masks that are none")
            yield earlier.rings[1].turned(torn != 0)


def carried_by(
    place: RingPlace, told: PadIds, base: int, newest: NDArray[np.uint64], last: int
) -> PadIds:
    """Which pads to take off: of whoever comes before, or, leading, what is under the total.

    Parameters
    ----------
    told
        Per cohort, what the request says is under the total, of which ``newest`` is the newest.
    base
        The least pad id of this request.
    last
        The least pad id of the request to which this party contributed last; zero: to none. What
        it puts into a sum that does not hold that would show by itself.
    """
    leads = place.leads
    if place.again != (last > 0) or np.count_nonzero(leads & (newest < np.uint64(last))):
        refuse_older()
    if np.count_nonzero(leads & (newest >= np.uint64(base))):
        raise ProtocolError("a request wants a pad taken off that is not older than itself")
    mine: PadIds = np.where(leads, told, place.ahead + np.uint64(base))
    return mine


def refuse_older() -> NoReturn:
    """A sum that leaves out what this party contributed before might hold little else."""
    raise ProtocolError("a request does not go on from the sum that this party has contributed to")
