"""Ciphers for vectors of integers, behind one interface: the party's half.

A cipher works on blocks: the integers of one party at some slots of one kind of sum. The
coordinator's half (:mod:`weft.crypto.adder`) adds and forwards blocks with public material only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Slots
from weft.crypto.ciphers.block_format import (
    CIPHER_CODES,
    SIGN,
    Block,
    WordBlock,
    head_of,
    pad_id_of,
    quick_words,
    read_block,
    read_knots,
    word_block,
)
from weft.crypto.mask_neighbours import Sharers
from weft.crypto.pads.mask_ring import MaskRing
from weft.crypto.pads.pad_chains import learn_marks
from weft.crypto.primitives.wide_integers import Limbs
from weft.errors import ConfigError, ProtocolError
from weft.protocol.common_question import Question, question_digest
from weft.protocol.message import Message
from weft.protocol.metering import EncryptionCost
from weft.protocol.shared_fields import IterationRequest, PadIds, PadLinks, PadNews, SumRequest

Integers = NDArray[np.int64]

#: So many contributions of a kind are remembered, should their masks be taken off again.
_KEPT = 4

#: What the kinds of sums are called in messages to people.
WHAT = {
    "z": "inner products",
    "v": "feature sums",
    "alpha": "dual variables",
    "delta": "changes of dual variables",
}


@dataclass
class Tails:
    """What a party knows of the pads under a running total, per local slot."""

    marks: PadIds
    knots: list[tuple[int, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, slots: int) -> Tails:
        return cls(np.zeros(slots, np.uint64))

    def learn(
        self,
        slots: Slots,
        lengths: NDArray[np.uint32],
        marks: PadIds,
        knots: list[tuple[int, ...]],
    ) -> bool:
        """Take over runs of marks that changed; false where they do not fit the slots.

        A single slot stands for as many in a row as there are marks.
        """
        if knots:
            several = (marks & SIGN) != 0
            marks = np.where(several, marks + np.uint64(len(self.knots)), marks)
            self.knots += knots
        return bool(learn_marks(self.marks, slots, lengths, marks))


class Outgoing(NamedTuple):
    """A party's integers on their way into a sum.

    Attributes
    ----------
    slots
        Where they belong; None: all shared slots.
    pads
        Which pads to take off.
    tails
        What the party knows of pads under single slots.
    """

    kind: str
    slots: Slots | None
    values: Integers
    pads: PadLinks | None
    tails: Tails | None = None


class Sent(NamedTuple):
    """A contribution under masks, of which something may have to be taken off again.

    Attributes
    ----------
    rings
        The party's neighbours: in its cohorts, and in its chunks where there are any.
    """

    slots: Slots | None
    shape: tuple[int, ...]
    tails: Tails | None
    rings: tuple[MaskRing, ...]


class Incoming(NamedTuple):
    """Totals that a party opens.

    Attributes
    ----------
    slots, n_slots
        Where they belong (None: all shared slots), and how many there must be.
    packed
        The block as it came.
    since
        Pad id of a contribution that the totals must hold.
    unit
        In which values come out.
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


class Masking(Protocol):
    """Masks that cancel over all parties of a sum."""

    def everyone(self) -> Sharers: ...

    def labelled(self) -> Sharers: ...

    def attending(self, bits: NDArray[np.uint8] | None, *, harmless: bool = False) -> Sharers: ...

    def sum(self, question: Question, over: Sharers, count: int) -> Limbs | None: ...

    def pair_seed(self, peer: int) -> bytes: ...


class Counting(Protocol):
    """Counts sums over samples that a party opens, and those that show its own products."""

    def receive(self, slots: Slots | None, width: int) -> None: ...

    def show(self, slots: Slots | None, width: int, *, everyone: bool) -> None: ...


class Cipher(ABC):
    """A party's half: knows the keys of its own cohorts.

    Attributes
    ----------
    key
        Public number of the run's key, in every header.
    newest
        Pad id of this party's last contribution.
    """

    name: str

    def __init__(self) -> None:
        self.key = 0
        self.party = 0
        self.party_name = ""
        self.epoch = 0
        self.iteration = 0
        self.newest = 0
        self._round = 0
        self._base = self.pad_id = 0
        self._phase, self._message = "", Message()
        self._turn: tuple[int, bytes | None] | None = None
        #: A hash of what all were told alike before, on which later answers depend.
        self._agreed = b""
        #: The last answer per phase, field and epoch.
        self._answers: dict[tuple[str, str, int], tuple[Question, bytes]] = {}
        self.cost = EncryptionCost()
        #: What hides this party's scalars; None: nothing does.
        self.masks: Masking | None = None
        #: Counts what this party sees and shows of samples; None: nobody does.
        self.sum_counter: Counting | None = None
        self._clear: Plain | None = None
        #: The last contributions under masks, by kind and then by the id of their request.
        self._masked: dict[str, dict[int, Sent]] = {}

    def begin(self, message: Message, phase: str = "") -> None:
        """A request begins: its number must be new, since pad ids come from it.

        A request without a number may neither ask for anything encrypted nor bring it.
        """
        if self._clear is not None:
            self._clear.begin(message, phase)
        self._phase, self._message, self._turn = phase, message, None
        if not isinstance(message, SumRequest):
            self._base = self.pad_id = 0
            return
        round_ = message.round
        if round_ <= self._round:
            raise ProtocolError(
                f"request {round_!r} comes after request {self._round}: a message was repeated, "
                "and answering it again would use a pad twice"
            )
        self._round = round_
        self._name_pad()
        if isinstance(message, IterationRequest):
            self.iteration = message.iteration

    def raise_epoch(self, epoch: int) -> None:
        """Go on in a later epoch: no pad id of an earlier one can come again."""
        if epoch <= self.epoch:
            raise ProtocolError(
                f"epoch {epoch} was used before; this run cannot be resumed from that checkpoint"
            )
        self.epoch = epoch
        self._name_pad()
        if self._clear is not None:
            self._clear.key = self.key
            self._clear.raise_epoch(epoch)

    def lasting(self, turn: int, asked: bytes | None = None) -> None:
        """Scalars of this request belong to a turn of its phase, for which others may ask too.

        ``asked`` is a hash of all that was asked alike up to this turn; None: of this request.
        """
        self._turn = turn, asked

    def agree(self, told: bytes) -> None:
        """Make scalars depend on what all parties must have been told alike from now on."""
        self._agreed = blake2b(self._agreed + told, digest_size=32, person=b"weft agreed").digest()

    def question(self, field: str) -> Question:
        """What this request asks for in a field, by all that this party knows itself."""
        turn, asked = self._turn or (None, None)
        if asked is None:
            asked = question_digest(self._message)
        asked += self._agreed
        number = self._round if turn is None else turn
        return Question(self._phase, field, self.epoch, number, turn is not None, asked)

    def answer_once(self, question: Question, packed: bytes) -> None:
        """Masks hide one value only: whoever asks again must be told the same."""
        where = question.phase, question.field, question.epoch
        before, told = self._answers.get(where, (question, packed))
        if question.number < before.number:
            raise ProtocolError(f"a request for '{question.field}' goes back to an earlier turn")
        if question.number == before.number and told != packed:
            raise ProtocolError(f"a request wants another '{question.field}' in the same turn")
        self._answers[where] = question, packed

    def in_the_clear(self) -> Plain:
        """The same party without encryption, for what the coordinator may see."""
        if self._clear is None:
            clear = self._clear = Plain()
            clear.key, clear.party, clear.party_name = self.key, self.party, self.party_name
            clear.epoch, clear._round, clear.cost = self.epoch, self._round, self.cost
            clear._base, clear.pad_id = self._base, self.pad_id
        return self._clear

    def _name_pad(self) -> None:
        self._base = pad_id_of(self.epoch, self._round, 0)
        #: The pad id of what this party contributes to the current request.
        self.pad_id = self._base + self.party

    def where(self, kind: str) -> str:
        """A block from the coordinator, in words."""
        return (
            f"the coordinator's block of {WHAT[kind]} for party {self.party_name} in iteration "
            f"{self.iteration} (request {self._round})"
        )

    @property
    def request(self) -> int:
        """The least pad id of the current request."""
        return self._base

    def contribute(self, sent: Outgoing) -> bytes:
        """Hide an increment of a linked sum."""
        start = perf_counter()
        return self._sent(start, sent, self._contribute(sent))

    def mend(self, kind: str, pads: PadLinks) -> tuple[bytes, Slots | None]:
        """Nothing but masks to be taken off a contribution whose neighbour fell silent.

        Returns the block, and the slots of that contribution.
        """
        known = self._masked.get(kind)
        if not known:
            raise ProtocolError(f"a request wants masks taken off {WHAT[kind]} that were not sent")
        last = known[max(known)]
        if last.tails is not None and pads.news is not None:
            self.learn(kind, last.tails, pads.news)
        values = np.zeros(last.shape, np.int64)
        return self.contribute(Outgoing(kind, last.slots, values, pads, last.tails)), last.slots

    def learn(self, kind: str, tails: Tails, news: PadNews) -> None:
        """Take over what the coordinator says of pads under single slots."""
        sets = self.knots(news.sets, kind)
        if not tails.learn(news.slots, news.lengths, news.marks, sets):
            raise ProtocolError(f"the news of pads under {WHAT[kind]} are malformed")

    def _rings(self, sent: Outgoing, units: tuple[int, ...]) -> list[list[MaskRing]]:
        """Masks to put on what is sent, and those of earlier contributions to take off.

        One list for the cohorts, and another for the chunks where there are any; ``units`` says
        how many there are.
        """
        if self.masks is None:
            return [[] for _ in units]
        told = None if sent.pads is None else sent.pads.ring
        if told is None:
            raise ProtocolError(f"a request for {WHAT[sent.kind]} does not say who shares masks")
        sides = ((told.left, told.right, told.torn),
                 (told.checks_left, told.checks_right, told.checks_torn))  # fmt: skip
        before = self._masked.setdefault(sent.kind, {})
        new, every = [], []
        for number, (left, right, torn) in enumerate(sides[: len(units)]):
            ring = self._ring(sent.kind, left, right, units[number])
            new.append(ring)
            every.append([ring, *self._taken_off(sent.kind, torn, units[number], number)])
        before[self._base] = Sent(sent.slots, sent.values.shape, sent.tails, tuple(new))
        while len(before) > _KEPT:
            del before[min(before)]
        return every

    def _ring(
        self, kind: str, left: NDArray[np.int32] | None, right: NDArray[np.int32] | None, units: int
    ) -> MaskRing:
        if left is None or right is None or not left.shape == right.shape == (units,):
            raise ProtocolError(f"a request for {WHAT[kind]} does not say who shares masks")
        twice = any(a == b >= 0 for a, b in zip(left.tolist(), right.tolist(), strict=True))
        if twice or self.masks is None:
            raise ProtocolError("a request for sums names neighbours that are none")
        return MaskRing.of(self._base, self.party, (left, right), self.masks.pair_seed)

    def _taken_off(
        self, kind: str, torn: PadIds | None, units: int, number: int
    ) -> Iterator[MaskRing]:
        """Masks of earlier contributions that were left without a counterpart."""
        if torn is None:
            return
        if torn.shape != (units,):
            raise ProtocolError(f"a request for {WHAT[kind]} names masks that are none")
        for context in np.unique(torn[torn != 0]).tolist():
            earlier = self._masked[kind].get(context)
            if earlier is None:
                raise ProtocolError(f"a request for {WHAT[kind]} names masks that are none")
            yield earlier.rings[number].turned(torn == context)

    def propose(self, sent: Outgoing) -> bytes:
        """Hide a contribution to a sparse sum: at any slots that this party chooses."""
        start = perf_counter()
        return self._sent(start, sent, self._propose(sent))

    def post(self, sent: Outgoing, old: Integers, cohorts: Flags | None = None) -> bytes:
        """Hide values that take the place of ``old`` ones; ``cohorts``: those it speaks for."""
        start = perf_counter()
        return self._sent(start, sent, self._post(sent, old, cohorts))

    def reveal(self, total: Incoming) -> Floats:
        """Open totals."""
        start = perf_counter()
        values = self._reveal(total)
        self.cost.decrypted += values.size
        self.cost.seconds += perf_counter() - start
        return values

    def _sent(self, start: float, sent: Outgoing, packed: bytes) -> bytes:
        cost = self.cost
        cost.encrypted += sent.values.size
        cost.bytes += len(packed)
        cost.seconds += perf_counter() - start
        return packed

    @abstractmethod
    def _contribute(self, sent: Outgoing) -> bytes: ...

    @abstractmethod
    def _propose(self, sent: Outgoing) -> bytes: ...

    @abstractmethod
    def _post(self, sent: Outgoing, old: Integers, cohorts: Flags | None) -> bytes: ...

    @abstractmethod
    def _reveal(self, total: Incoming) -> Floats: ...

    def knots(self, flat: PadIds | None, kind: str) -> list[tuple[int, ...]]:
        """The table of marks that stand for several pad ids, all older than ours."""
        if flat is None:
            return []
        knots = read_knots(flat)
        check_older(np.zeros(0, np.uint64), knots, self.pad_id, kind)
        return knots

    # ── parts ─────────────────────────────────────────────────────────────────────────────

    def _pack(self, kind: str, shape: tuple[int, ...], body: bytes) -> bytes:
        pad_id = self.newest = self.pad_id
        if not pad_id:
            raise ProtocolError(f"a request for {WHAT[kind]} has no number; the run stops")
        return head_of(self.name, kind, self.key, pad_id, shape[0], shape[1]) + body

    def _words(self, total: Incoming) -> WordBlock:
        """Pad ids, words and tags of a block of words."""
        kind, _, count, width, packed, *_ = total
        found = quick_words(packed, self.name, kind, self.key, self._base, count, width)
        if found is not None:
            return found
        return word_block(self._read(total), self.where(kind))

    def _read(self, total: Incoming) -> Block:
        """A block that is what was asked for, now."""
        kind, _, count, width, packed, *_ = total
        block = read_block(packed, lambda: self.where(kind))
        if block[:6] != (self.name, kind, width, self.key, count, self._base):
            self._refuse(block, kind, count, width)
        return block

    def _refuse(self, block: Block, kind: str, count: int, width: int) -> None:
        where = self.where(kind)
        if (block.cipher, block.kind) != (self.name, kind):
            raise ProtocolError(
                f"{where} holds {WHAT[block.kind]} under '{block.cipher}', not under '{self.name}'"
            )
        if block.key != self.key:
            raise ProtocolError(f"{where} was encrypted under the key of another run")
        if (block.slots, block.width) != (count, width):
            raise ProtocolError(
                f"{where} has {block.slots} × {block.width} values, not {count} × {width}"
            )
        raise ProtocolError(f"{where} belongs to another request: it was sent before")


class Plain(Cipher):
    """No encryption: fixed point only, for simulation."""

    name = "plain"

    def _contribute(self, sent: Outgoing) -> bytes:
        return self._pack(sent.kind, sent.values.shape, sent.values.tobytes())

    def _propose(self, sent: Outgoing) -> bytes:
        return self._contribute(sent)

    def _post(self, sent: Outgoing, old: Integers, cohorts: Flags | None) -> bytes:
        return self._contribute(sent)

    def _reveal(self, total: Incoming) -> Floats:
        words = self._words(total).words
        return np.multiply(words.view(np.int64), total.unit, dtype=np.float64)


def linked(minus: PadIds | None, kind: str, units: int) -> PadIds:
    """What a request says is to be taken off, per cohort or chunk."""
    if minus is None or minus.shape != (units,):
        raise ProtocolError(f"a request for {WHAT[kind]} does not say which pads to take off")
    return minus


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


#: Weft's own.
CIPHERS = tuple(CIPHER_CODES)


def check_cipher(name: str) -> None:
    """Refuse a cipher that does not exist."""
    if name not in CIPHER_CODES:
        known = ", ".join(sorted(CIPHER_CODES))
        raise ConfigError(f"unknown cipher '{name}'; choose one of {known}")
