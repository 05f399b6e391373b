"""Ciphers for vectors of integers, behind one interface: the party's half.

A cipher works on blocks: the integers of one party at some slots of one kind of sum. The
coordinator's half (:mod:`weft.crypto.coordinator_adder`) adds and forwards blocks with public
material only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b
from time import thread_time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Slots
from weft.crypto.ciphers.block_format import (
    HEAD,
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
from weft.crypto.ciphers.cipher_arguments_and_results import (
    WHAT,
    Incoming,
    Integers,
    Joined,
    Outgoing,
    asked_in,
    check_older,
    linked,
    minus_told,
    newest_in,
)
from weft.crypto.ciphers.contribution_masks import (
    Contributed,
    ContributionMasks,
    Encrypt,
    carried_by,
)
from weft.crypto.pads.cohort_mask_neighbours import MaskRing
from weft.crypto.pads.pad_ids_per_total_slot import Tails
from weft.crypto.scalar_mask_neighbours import Sharers
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import Message
from weft.protocol.message_bytes import Question, question_digest
from weft.protocol.metering import EncryptionCost
from weft.protocol.shared_fields import (
    IterationRequest,
    PadIds,
    PadLinks,
    PadNews,
    SumRequest,
)


class Masking(Protocol):
    """Masks that cancel over all parties of a sum."""

    def everyone(self) -> Sharers: ...

    def labelled(self) -> Sharers: ...

    def attending(self, bits: NDArray[np.uint8] | None, *, harmless: bool = False) -> Sharers: ...

    def sum(self, question: Question, over: Sharers, count: int) -> list[int] | None: ...


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
    #: Whether values travel under pads, or under a key, so that ids say which those are.
    hides = True
    #: Seconds of the processor, of which the cost of encryption is made.
    clock: Callable[[], float] = staticmethod(thread_time)

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
        #: A hash of what the request asks alike; empty: not needed yet.
        self._digest = b""
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
        #: What hides its contributions to sums from those who can open them; None: nothing does.
        self.sum_masks: ContributionMasks | None = None

    def begin(self, message: Message, phase: str = "") -> None:
        """A request begins: its number must be new, since pad ids come from it.

        A request without a number may neither ask for anything encrypted nor bring it.
        """
        if self._clear is not None:
            self._clear.begin(message, phase)
        self._phase, self._message, self._turn, self._digest = phase, message, None, b""
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
            asked = self._digest = self._digest or question_digest(self._message)
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

    @property
    def next_request(self) -> int:
        """The least pad id of any request to come."""
        return pad_id_of(self.epoch, self._round + 1, 0)

    def contribute(self, sent: Outgoing) -> bytes:
        """Hide an increment of a linked sum."""
        start = self.clock()
        return self._sent(start, sent, self._contribute(sent))

    def mend(self, kind: str, pads: PadLinks) -> tuple[bytes, Slots | None]:
        """Nothing but masks to be taken off a contribution whose neighbour fell silent.

        Returns the block, and the slots of that contribution.
        """
        if self.sum_masks is None:
            raise ProtocolError(f"a request wants masks taken off {WHAT[kind]} that were not sent")
        last = self.sum_masks.reopen(kind, asked_in(pads), self._base)
        if last.tails is not None and pads.news is not None:
            self.learn(kind, last.tails, pads.news)
        values = np.zeros(last.shape, np.int64)
        sent = Outgoing(kind, last.slots, values, pads, last.tails, last.context, last)
        return self.contribute(sent), last.slots

    def learn(self, kind: str, tails: Tails, news: PadNews) -> None:
        """Take over what the coordinator says of pads under single slots."""
        sets = self.knots(news.sets, kind)
        if not tails.learn(news.slots, news.lengths, news.marks, sets):
            raise ProtocolError(f"the news of pads under {WHAT[kind]} are malformed")

    def mended(self, kind: str, request: int) -> int:
        """The request in which a contribution's masks were taken off, if they were, or its own."""
        return request if self.sum_masks is None else self.sum_masks.mended(kind, request)

    def repeats(self, kind: str, pads: PadLinks | None) -> bool:
        """Whether a request says that this party has contributed to its sum before."""
        return self.sum_masks is not None and self.sum_masks.place(kind, asked_in(pads)).again

    def _join(
        self, sent: Outgoing, units: int, encrypt: Encrypt, chunks: tuple[int, Encrypt] | None
    ) -> Joined:
        """How a contribution is joined to those of others: pads to take off, and masks.

        ``units`` is the number of cohorts; ``chunks`` the number of chunks, where there are any.
        """
        told = None if sent.pads is None else sent.pads.chain
        minus = linked(told, sent.kind, units)
        masks, asked = self.sum_masks, asked_in(sent.pads)
        if masks is None:
            return Joined(minus, ((), ()))
        if (asked.torn is not None) != (sent.mends is not None):
            raise ProtocolError(f"a request for {WHAT[sent.kind]} wants masks taken off, or none")
        place = masks.place(sent.kind, asked)
        mark = self.question(sent.kind).mark() + (asked.torn or 0).to_bytes(8, "big")
        if sent.alone and (not place.asked.all() or minus_told(place, minus)):
            raise ProtocolError(f"a request for {WHAT[sent.kind]} is not for a new sum of everyone")
        if sent.tails is None or chunks is not None:
            newest = self._newest_of(minus, sent)
            minus = carried_by(place, minus, self._base, newest, sent.last)
        else:
            # What lies under single slots is looked at slot by slot.
            ahead = np.full(units, sent.last, np.uint64)
            nothing = np.zeros(units, np.uint64)
            minus = carried_by(place, nothing, self._base, ahead, sent.last)
        rings = [masks.ring(place, self._base, mark, encrypt)]
        if chunks is not None:
            rings.append(masks.check_ring(asked, self._base, mark, *chunks))
        every: list[tuple[MaskRing, ...]] = [(ring,) for ring in rings]
        if sent.mends is not None:
            off = masks.taken_off(sent.kind, asked, sent.mends)
            every = [(ring, old) for ring, old in zip(rings, off, strict=True)]
        if sent.mends is not None:
            return Joined(minus, tuple(every))
        masks.keep(
            sent.kind,
            Contributed(
                self._base,
                sent.slots,
                sent.values.shape,
                sent.tails,
                place.asked,
                tuple(rings),
                sent.alone,
            ),
        )
        return Joined(minus, tuple(every))

    def _newest_of(self, marks: PadIds, sent: Outgoing) -> PadIds:
        """The newest pad id that each mark stands for."""
        several = (marks & SIGN) != 0
        if not np.count_nonzero(several):
            return marks
        knots = self.knots(None if sent.pads is None else sent.pads.chain_sets, sent.kind)
        newest = marks.copy()
        for at in np.flatnonzero(several).tolist():
            newest[at] = newest_in(knots, int(marks[at]), sent.kind)
        return newest

    def propose(self, sent: Outgoing) -> bytes:
        """Hide a contribution to a sparse sum: at any slots that this party chooses."""
        start = self.clock()
        return self._sent(start, sent, self._propose(sent))

    def post(
        self, sent: Outgoing, old: Callable[[], Integers], cohorts: Flags | None = None
    ) -> bytes:
        """Hide values that take the place of ``old`` ones; ``cohorts``: those it speaks for."""
        start = self.clock()
        return self._sent(start, sent, self._post(sent, old, cohorts))

    def reveal(self, total: Incoming) -> Floats:
        """Open totals."""
        start, cost = self.clock(), self.cost
        values = self._reveal(total)
        cost.decrypted += values.size
        cost.seconds += self.clock() - start
        return values

    def _sent(self, start: float, sent: Outgoing, packed: bytes) -> bytes:
        cost = self.cost
        cost.encrypted += sent.values.size
        cost.bytes += len(packed)
        cost.seconds += self.clock() - start
        return packed

    @abstractmethod
    def _contribute(self, sent: Outgoing) -> bytes: ...

    @abstractmethod
    def _propose(self, sent: Outgoing) -> bytes: ...

    @abstractmethod
    def _post(
        self, sent: Outgoing, old: Callable[[], Integers], cohorts: Flags | None
    ) -> bytes: ...

    @abstractmethod
    def _reveal(self, total: Incoming) -> Floats: ...

    def knots(self, flat: PadIds | None, kind: str) -> list[tuple[int, ...]]:
        """The table of marks that stand for several pad ids, all older than ours."""
        if flat is None:
            return []
        knots = read_knots(flat)
        check_older(np.zeros(0, np.uint64), knots, self._base, kind)
        return knots

    # ── parts ─────────────────────────────────────────────────────────────────────────────

    def _pack(self, kind: str, shape: tuple[int, ...], *body: bytes | memoryview) -> bytes:
        pad_id = self.newest = self.pad_id
        if not pad_id:
            raise ProtocolError(f"a request for {WHAT[kind]} has no number; the run stops")
        head = head_of(self.name, kind, self.key, pad_id, shape[0], shape[1])
        return b"".join((head, *body))

    def _words(self, total: Incoming) -> WordBlock:
        """Pad ids, words and tags of a block of words."""
        kind, count, width, packed = total.kind, total.n_slots, total.width, total.packed
        found = quick_words(packed, self.name, kind, self.key, self._base, count, width)
        if found is not None:
            return found
        return word_block(self._read(total), self.where(kind))

    def _read(self, total: Incoming) -> Block:
        """A block that is what was asked for, now."""
        kind, count, width, packed = total.kind, total.n_slots, total.width, total.packed
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
    hides = False
    #: Nothing is spent on encryption, and to ask what the processor spent takes half as long as
    #: to pack a small block.
    clock = staticmethod(float)

    def _contribute(self, sent: Outgoing) -> bytes:
        return self._pack(sent.kind, sent.values.shape, sent.values.tobytes())

    def _propose(self, sent: Outgoing) -> bytes:
        return self._contribute(sent)

    def _post(self, sent: Outgoing, old: Callable[[], Integers], cohorts: Flags | None) -> bytes:
        return self._contribute(sent)

    def _reveal(self, total: Incoming) -> Floats:
        kind, count, width, packed = total.kind, total.n_slots, total.width, total.packed
        head = head_of("plain", kind, self.key, self._base, count, width)
        if (
            type(packed) is bytes
            and len(packed) == HEAD + 8 * count * width
            and packed.startswith(head)
        ):
            values: Integers = np.ndarray((count, width), np.int64, packed, HEAD)
        else:
            words = word_block(self._read(total), self.where(kind)).words
            values = words.view(np.int64)
        # In two steps: a product of two types goes through a buffer.
        opened: Floats = values.astype(np.float64)
        opened *= total.unit
        return opened
