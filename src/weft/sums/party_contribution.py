"""A party's half of a sum: fixed point and cipher, increments, and what was sent before.

Sums over samples that a party opens are counted, and those in which its own products stand
(`SumCounter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Slots
from weft.crypto.ciphers.block_format import MOST_PARTIES
from weft.crypto.ciphers.cipher_arguments_and_results import ANY_LATER, WHAT, Incoming, Outgoing
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.fixed_point import FixedPoint, encode_block_increment, encode_increment
from weft.crypto.pads.pad_ids_per_total_slot import Tails
from weft.errors import ProtocolError
from weft.matching.party_view import ToldView
from weft.numba_options import OUTER
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import PadIds, PadLinks
from weft.sums.count_sums_shown_to_party import News
from weft.sums.table_scaling_and_certificate_messages import MendReply, MendRequest

Integers = NDArray[np.int64]


_NO_IDS = np.zeros(0, np.uint64)


class Wire:
    """Values of one kind as they travel: fixed point, then the cipher.

    Parameters
    ----------
    kind
        Name of the sum, and of the block's field in messages.
    slots
        How many shared slots this party has.
    bound
        A proven bound on values and totals, in units of ``unit``.
    unit
        Factor applied before encoding: feature sums travel as v/N, so that their range does
        not grow with the number of samples.
    everyone
        Whether totals over samples go to every holder, not only to those with the label.
    some
        Whether sums may go over some parties only.
    """

    def __init__(
        self,
        kind: str,
        slots: int,
        bound: float,
        cipher: Cipher,
        unit: float = 1.0,
        *,
        everyone: bool = False,
        some: bool = False,
    ) -> None:
        self.kind = kind
        self._some = some
        self._n = slots
        self._format = FixedPoint(bound, WHAT[kind])
        self._unit = unit
        self._scale = self._format.scale * unit
        self._limit = self._format.limit
        self._unit_of_one = self._format.unit
        self._cipher = cipher
        #: Least pad id of the request in which this party contributed last: the next total must
        #: be of that one.
        self._mine = 0
        running = kind in ("z", "v")
        #: Whether all parts of a total come in one request.
        self._of_one_request = running
        #: Whether parties contribute to all slots of a cohort at once.
        self._whole = running
        #: Whether a total must hold something of this party's.
        self._holds_own = running and cipher.hides
        self._everyone = everyone
        self._sent_news, self._opened_news = News(), News()

    @property
    def units(self) -> float:
        """How many units of fixed point a number of one is."""
        return self._format.scale

    @property
    def room(self) -> float:
        """How many units are surely left in a total for noise."""
        return self._format.limit

    def send(self, values: Floats, pads: PadLinks | None, noise: Integers | None = None) -> bytes:
        """Encrypt a contribution to a new sum, at all shared slots, with noise if there is any."""
        integers = self._format.encode(values, self._scale)
        if noise is not None:
            integers += noise
        self._count_shown(None, integers)
        sent = Outgoing(self.kind, None, integers, pads, alone=not self._some)
        packed = self._cipher.contribute(sent)
        self._mine = self._cipher.request
        return packed

    def propose(self, values: Floats, slots: Slots, pads: PadLinks | None) -> bytes:
        """Encrypt proposals for some slots."""
        integers = self._format.encode(values, self._scale)
        # Proposals that are opened next were made in this request, by whomever.
        self._mine = self._cipher.request
        return self._cipher.propose(Outgoing(self.kind, slots, integers, pads))

    def post(
        self,
        new: Floats,
        old: Floats,
        slots: Slots,
        pads: PadLinks | None,
        cohorts: Flags | None = None,
    ) -> bytes:
        """Encrypt values that take the place of others; ``cohorts``: those it speaks for."""
        encode = self._format.encode
        sent = Outgoing(self.kind, slots, encode(new), pads)
        return self._cipher.post(sent, lambda: encode(old), cohorts)

    def refuse(self) -> None:
        """Say that a value of this kind cannot be summed."""
        self._format.refuse()

    def check(self, values: Floats) -> None:
        """Refuse values that could not be summed."""
        self._format.encode(values, self._scale)

    def open(self, packed: Any, width: int, slots: Slots | None = None) -> Floats:
        """Decrypt totals (in units of ``unit``)."""
        cipher, kind = self._cipher, self.kind
        since, until = self._mine, ANY_LATER
        if self._holds_own and not since:
            raise ProtocolError("a message brings a total that this party has not contributed to")
        count = self._n if slots is None else len(slots)
        if self._of_one_request and since:
            # Totals of two requests would differ in what the coordinator likes.
            since = cipher.mended(kind, since)
            until = since + MOST_PARTIES
        elif kind in ("alpha", "delta"):
            # Nothing, under no pad at all, is no value that somebody told.
            since = since or 1
        unit, whole = self._unit_of_one, self._whole
        totals = cipher.reveal(
            Incoming(kind, slots, count, width, packed, since, unit, False, None, until, whole)
        )
        if kind == "z" and cipher.sum_counter is not None and self._opened_news(slots, totals):
            cipher.sum_counter.receive(slots, width)
        return totals

    def _count_shown(self, slots: Slots | None, values: Integers) -> None:
        """Sums over samples are counted before they are sent, where they say anything new."""
        sum_counter = self._cipher.sum_counter
        if self.kind == "z" and sum_counter is not None and self._sent_news(slots, values):
            sum_counter.show(slots, values.shape[1], everyone=self._everyone)

    def on_grid(self, values: Floats) -> Floats:
        """Values rounded to what can travel, so that all holders agree on them."""
        scaled: Floats = values * self._scale
        return np.rint(scaled, scaled) / self._scale


def mend(cipher: Cipher, message: MendRequest) -> MendReply:
    """Close rings of masks again whose last one went away with a party."""
    reply = MendReply()
    for kind in ("v", "z", "delta"):
        pads: PadLinks | None = getattr(message, f"{kind}_pads")
        if pads is not None:
            block, slots = cipher.mend(kind, pads)
            setattr(reply, kind, block)
            setattr(reply, f"{kind}_slots", slots)
    return reply


def speaks(view: ToldView, flags: Flags | None) -> bool:
    """Whether a party with these flags, one per cohort, posts values of a shared cohort.

    None: it posts those of all.
    """
    shared = len(view.shared_rows) - 1
    return shared > 0 and (flags is None or bool(np.count_nonzero(flags[:shared])))


def own_slots(named: Slots | None, field: str, slots: int) -> Slots:
    """Slots that a message names: they must be this party's shared ones."""
    if named is None:
        raise malformed(field, "is missing")
    if _strays(named, slots):
        raise malformed(field, "names slots that are not shared")
    return named


@numba.njit(**OUTER)
def _strays(named: Any, slots: int) -> bool:
    """Whether some of these are no numbers of slots: numpy would look four times as long."""
    strays = 0
    for slot in named:
        strays += slot < 0 or slot >= slots
    return strays > 0


@numba.njit(**OUTER)
def lacks(named: Any, wanted: Any, slots: int) -> bool:
    """Whether one of the slots that are wanted is not among those named."""
    found = np.zeros(slots, np.uint8)
    for slot in named:
        found[slot] = 1
    lacking = 0
    for slot in wanted:
        lacking += not found[slot]
    return lacking > 0


class Gathering(Wire):
    """What one party puts into a sum to which parties contribute as they come, each once.

    Where too few of those who come share a cohort, others are asked again beside them, and put
    nothing in.
    """

    def __init__(
        self, kind: str, slots: int, bound: float, cipher: Cipher, unit: float = 1.0
    ) -> None:
        super().__init__(kind, slots, bound, cipher, unit)
        self._of_one_request = False
        self._number = -1

    def put_in(self, number: int, values: Floats, pads: PadLinks | None) -> bytes:
        """Encrypt a contribution to the sum of this number, or nothing where it has been told."""
        again = self._cipher.repeats(self.kind, pads)
        if again and number != self._number:
            raise ProtocolError("a request says that this party has contributed to a new sum")
        integers = self._format.encode(values, self._scale)
        if again:
            integers[:] = 0
        else:
            self._count_shown(None, integers)
        last = self._mine if again else 0
        sent = Outgoing(self.kind, None, integers, pads, None, last)
        packed = self._cipher.contribute(sent)
        self._mine, self._number = self._cipher.request, number
        return packed


class Posts(Wire):
    """Values of whole cohorts, which one of their holders tells the others.

    Whoever gets them cannot check them against its own, as it can totals. So all that it lacks
    must be there, of each cohort what one holder told in one request, and none that was told
    before the last ones were opened.
    """

    def begin(self) -> Self:
        """Open nothing that was told up to now: other values of this kind, for other ends."""
        self._mine = self._cipher.next_request
        return self

    def take(self, packed: Any, width: int, slots: Slots, lacking: Flags) -> Floats:
        """Open posts at some slots, of which those ``lacking`` here must be some."""
        named = np.zeros(self._n, bool)
        named[slots] = True
        if (lacking & ~named).any():
            raise malformed("alpha_slots", "do not name all samples without a label here")
        unit, since = self._format.unit, max(1, self._mine)
        cipher, count = self._cipher, len(slots)
        told = cipher.reveal(Incoming(self.kind, slots, count, width, packed, since, unit, True))
        self._mine = cipher.request
        return told


class Latest(Wire):
    """The newest value of each slot, as some holder posted it: never an older one again.

    Attributes
    ----------
    newest
        Per slot, the pad id of what this party was told last, or the least one of the request in
        which it computed the value itself: whoever computed the same told it in that request, or
        later. Without pads there are no ids to go by.
    """

    def __init__(self, kind: str, slots: int, bound: float, cipher: Cipher) -> None:
        super().__init__(kind, slots, bound, cipher)
        self.newest: PadIds = np.zeros(slots, np.uint64) if cipher.hides else _NO_IDS

    def take(self, packed: Any, width: int, slots: Slots) -> Floats:
        """Open what others posted at some slots."""
        total = Incoming(
            self.kind, slots, len(slots), width, packed, 1, self._format.unit, newest=self.newest
        )
        return self._cipher.reveal(total)

    def told_at(self, slots: Slots | None) -> PadIds:
        """``newest`` of some slots, or of all; slots that are not shared have none."""
        return self.newest[self._shared(slots)].copy() if len(self.newest) else _NO_IDS

    def set_at(self, slots: Slots | None, newest: PadIds) -> None:
        """The inverse of :meth:`told_at`."""
        if len(self.newest):
            self.newest[self._shared(slots)] = newest

    def compute(self, slots: Slots | None) -> PadIds:
        """Some slots, or all, get values of this party's own in the current request.

        Returns what :meth:`told_at` said before.
        """
        if not len(self.newest):
            return _NO_IDS
        shared = self._shared(slots)
        before = self.newest[shared].copy()
        self.newest[shared] = self._cipher.request
        return before

    def _shared(self, slots: Slots | None) -> Slots | slice:
        return slice(None) if slots is None else slots[slots < len(self.newest)]


class Contribution(Wire):
    """What one party puts into the shared slots of one running sum.

    Only differences travel: new − what was sent last. The coordinator's total then always
    holds everyone's last contribution, also of those who are absent. With ``current``, only slots
    are opened to which this party contributed last, as they stood then.
    """

    def __init__(
        self,
        kind: str,
        slots: int,
        width: int,
        bound: float,
        cipher: Cipher,
        unit: float = 1.0,
        *,
        windows: bool = False,
        everyone: bool = False,
        current: bool = False,
    ) -> None:
        super().__init__(kind, slots, bound, cipher, unit, everyone=everyone)
        self._of_one_request = current
        self._whole = self._whole and not windows
        # Before the first contribution nothing is in the sum, and that may be opened; but not
        # where totals are opened as they stood when this party contributed.
        self._holds_own = self._holds_own and current
        self.sent: Integers = np.zeros((slots, width), np.int64)
        self._last: tuple[Slots | None, Integers, int, PadIds] | None = None
        #: Pads under single slots, where there are pads, and not the same under all slots.
        self._tails = Tails.of(slots) if windows and cipher.hides else None

    def increment(self, values: Floats, pads: PadLinks | None, slots: Slots | None = None) -> bytes:
        """Encrypt the change of ``values`` at ``slots`` (of all shared slots when None)."""
        if slots is None:
            out = np.empty(self.sent.shape, np.int64)
            fits = encode_block_increment(values, self._scale, self._limit, self.sent, out)
        else:
            out = np.empty((len(slots), self.sent.shape[1]), np.int64)
            fits = encode_increment(values, slots, self._scale, self._limit, self.sent, out)
        if not fits:
            self._format.refuse()
        self._count_changes(slots, out)
        self._last = (slots, out, self._mine, self._own(slots))
        return self._put_in(slots, out, pads)

    def add(self, change: Floats, pads: PadLinks | None) -> bytes:
        """Encrypt a change of the total at all shared slots, whatever was put in before."""
        integers = self._format.encode(change, self._scale)
        self._last = (None, np.zeros_like(self.sent), self._mine, self._own(None))
        return self._put_in(None, integers, pads)

    def nothing(self, pads: PadLinks | None) -> bytes:
        """Put nothing in, at all shared slots: so that others need not contribute alone."""
        return self._put_in(None, np.zeros_like(self.sent), pads)

    def _put_in(self, slots: Slots | None, integers: Integers, pads: PadLinks | None) -> bytes:
        tails = self._tails
        if tails is not None:
            self._learn(tails, pads)
        packed = self._cipher.contribute(
            Outgoing(self.kind, slots, integers, pads, tails, self._mine)
        )
        self._mine = self._cipher.request
        if tails is not None:
            tails.own[slice(None) if slots is None else slots] = self._mine
        return packed

    def _own(self, slots: Slots | None) -> PadIds:
        """In which requests this party contributed last at some slots, where that is kept."""
        if self._tails is None:
            return _NO_IDS
        return self._tails.own.copy() if slots is None else self._tails.own.take(slots)

    def start(self, own: Floats, told: Floats, pads: PadLinks | None) -> bytes:
        """Put something into a sum as if ``own`` had been put in: changes count from there."""
        self.sent = self._format.encode(own, self._scale)
        integers = self._format.encode(told, self._scale)
        self._count_shown(None, integers)
        return self._put_in(None, integers, pads)

    def _count_changes(self, slots: Slots | None, change: Integers) -> None:
        """The same for increments, which are zero where nothing is new."""
        sum_counter = self._cipher.sum_counter
        if self.kind == "z" and sum_counter is not None and np.count_nonzero(change):
            sum_counter.show(slots, change.shape[1], everyone=self._everyone)

    def _learn(self, tails: Tails, pads: PadLinks | None) -> None:
        """What the coordinator says of pads that this party must take off."""
        if pads is None or pads.news is None:
            return
        self._cipher.learn(self.kind, tails, pads.news)

    def accept(self) -> None:
        """The coordinator has everything that was sent."""
        self._last = None

    def undo(self) -> None:
        """Take back the last increment: the coordinator never got it."""
        if self._last is not None:
            slots, out, mine, own = self._last
            where = slice(None) if slots is None else slots
            self.sent[where] -= out
            self._mine = mine
            if self._tails is not None:
                self._tails.own[where] = own
            self._last = None

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint: what was sent, and in which requests."""
        last = np.array([self._mine], np.uint64)
        return {"sent": self.sent, "own": np.concatenate([last, self._own(None)])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of :meth:`state`."""
        self.sent, own = state["sent"], state["own"]
        self._mine = int(own[0])
        if self._tails is not None:
            self._tails.own[:] = own[1:]
