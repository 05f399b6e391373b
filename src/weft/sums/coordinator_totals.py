"""The coordinator's half of a sum: one total per shared slot, never opened.

Linked contributions add up over time (:class:`IncrementTotals`);
:mod:`weft.sums.latest_slot_values_and_proposals` has two more ways to fill a total.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import wraps
from itertools import accumulate
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints, Slots
from weft.crypto.ciphers.block_format import (
    HEAD,
    NOTHING,
    Carried,
    heads_of,
    pack_block,
    pad_id_of,
    read_block,
)
from weft.crypto.ciphers.cipher_arguments_and_results import WHAT
from weft.crypto.coordinator_adder import Adder, Part
from weft.errors import PartyAway, ProtocolError
from weft.protocol.declared_message_fields import Message
from weft.protocol.shared_fields import PadIds
from weft.sums.coordinator_pad_bookkeeping import PadBookkeeping
from weft.sums.shared_slots_by_party import Layout
from weft.sums.table_scaling_and_certificate_messages import MEND, MendRequest

#: Seconds between two questions to a party whose masks are needed: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 60.0

_NO_SLOTS = np.zeros(0, np.int32)

P = ParamSpec("P")
R = TypeVar("R")


def timed(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """Count the seconds of a method as cost of the cipher."""

    @wraps(method)
    def counted(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._adder.cost.timed():
            return method(self, *args, **kwargs)

    return counted


class Totals:
    """What every total has: a store, the pad ids in it, and blocks for the parties.

    A sum has the same fields in all messages that declare it. Those of ``v`` are ``v``, the block;
    ``v_slots``, which slots a block is of, where it is not of all; and ``v_pads``, which pads a
    contribution takes off. Here and in `PadBookkeeping` they are read and set by these names.

    Parameters
    ----------
    kind
        Name of the sum.
    width
        Values per slot (classes).
    clear
        Whether the coordinator may read this sum.
    """

    def __init__(
        self, kind: str, layout: Layout, width: int, adder: Adder, *, clear: bool = False
    ) -> None:
        self.kind = kind
        self._cipher = "plain" if clear else adder.name
        self._chunked = adder.whole and not clear
        self.layout = layout
        self.width = width
        self._adder = adder
        self._slots_field = f"{kind}_slots"
        self._clear = clear
        self._fresh_store()
        #: The chains of pads, where contributions are linked.
        self._bookkeeping: PadBookkeeping | None = None

    def _fresh_store(self) -> None:
        """An empty store, under the key that the parties have now."""
        self.store = self._adder.store(self.layout.n_shared, self.width, clear=self._clear)

    # ── reading ───────────────────────────────────────────────────────────────────────────

    def _read(
        self, replies: Mapping[str, Message], iteration: int, required: Container[str], round_: int
    ) -> list[Part]:
        """Check all blocks before any is used, and say of which slots they are.

        A party in ``required`` that shares slots must have sent one.
        """
        names: list[str] = []
        blocks: list[bytes] = []
        counts: list[int] = []
        chosen: dict[str, NDArray[Any]] = {}
        layout, adder = self.layout, self._adder
        for party in sorted(replies, key=layout.index.__getitem__):
            reply = replies[party]
            packed = getattr(reply, self.kind)
            if packed is None:
                if party in required and len(layout.own[party]):
                    raise ProtocolError(f"{self._where(party, iteration)} is missing")
                continue
            some = None if self._chunked else getattr(reply, self._slots_field, None)
            if some is None:
                count = len(layout.own[party])
            else:
                chosen[party] = some
                count = len(some)
            names.append(party)
            blocks.append(packed)
            counts.append(count)
        self._check_heads(names, blocks, counts, iteration, pad_id_of(adder.epoch, round_, 0))
        adder.cost.added += self.width * sum(counts)
        return [
            Part(memoryview(packed)[HEAD:], slots, party)
            for packed, slots, party in zip(
                blocks, self._slots(names, chosen, iteration), names, strict=True
            )
        ]

    def _check_heads(
        self, names: list[str], blocks: list[bytes], counts: list[int], iteration: int, base: int
    ) -> None:
        """Refuse a block that is not the one that was asked for; all are looked at at once."""
        pad_ids = [base + self.layout.index[party] for party in names]
        heads = heads_of(self._cipher, self.kind, self._adder.key, pad_ids, counts, self.width)
        bytes_only = all(type(packed) is bytes for packed in blocks)
        if bytes_only and b"".join([packed[:HEAD] for packed in blocks]) == heads:
            return
        for at, packed in enumerate(blocks):
            if type(packed) is not bytes or packed[:HEAD] != heads[HEAD * at : HEAD * (at + 1)]:
                where = self._where(names[at], iteration)
                self._refuse(packed, where, pad_ids[at], counts[at])

    def _refuse(self, packed: object, where: str, pad_id: int, count: int) -> NoReturn:
        """Say why a block is not the one that was asked for."""
        block = read_block(packed, where)
        if (block.cipher, block.kind) != (self._cipher, self.kind):
            raise ProtocolError(f"{where} holds {WHAT[block.kind]} under '{block.cipher}'")
        if block.key != self._adder.key:
            raise ProtocolError(f"{where} is encrypted under the key of another run")
        if (block.slots, block.width) != (count, self.width):
            raise ProtocolError(
                f"{where} has {block.slots} × {block.width} values, not {count} × {self.width}"
            )
        if block.pad_id != pad_id:
            raise ProtocolError(
                f"{where} carries the pad id of another request: it was sent before, or belongs to "
                "somebody else"
            )
        raise ProtocolError(f"{where} carries pad ids of totals, which only the coordinator has")

    def _store(self, parts: list[Part], iteration: int, *, put: bool = False) -> None:
        """Add the parts, or let them take the place of what was there."""
        try:
            (self.store.put if put else self.store.add)(parts)
        except ProtocolError as error:
            raise ProtocolError(f"{WHAT[self.kind]} in iteration {iteration}: {error}") from None

    def _slots(
        self, names: list[str], chosen: dict[str, NDArray[Any]], iteration: int
    ) -> list[Ints]:
        """Slots of each of many parties from their local numbers, all checked at once."""
        layout = self.layout
        if not chosen:
            # Of large tables, put together they would be millions of slots for each of the parties.
            return [layout.own[name] for name in names]
        locals_ = [
            chosen[p] if p in chosen else np.arange(len(layout.own[p]), dtype=np.int32)
            for p in names
        ]
        groups = [layout.group[party] for party in names]
        lengths = [len(some) for some in locals_]
        local = np.concatenate(locals_)
        at = np.repeat(layout.begin[groups], lengths) + local
        foreign = (local < 0) | (at >= np.repeat(layout.end[groups], lengths))
        if foreign.any():
            culprit = names[np.repeat(np.arange(len(names)), lengths)[foreign][0]]
            raise ProtocolError(
                f"{self._where(culprit, iteration)} is for a slot that the party does not share"
            )
        slots = layout.flat[at]
        ends = accumulate(lengths)
        return [slots[end - size : end] for size, end in zip(lengths, ends, strict=True)]

    def _named(self, parts: list[Part], replies: Mapping[str, Message], iteration: int) -> Ints:
        """The slots that replies of whole chunks say they are about."""
        names = [part.party for part in parts]
        named = {party: getattr(replies[party], self._slots_field) for party in names}
        slots = self._slots(names, self.checked_slots(named, iteration), iteration)
        return np.concatenate([np.zeros(0, np.int64), *slots])

    def checked_slots(self, named: Mapping[str, Slots | None], iteration: int) -> dict[str, Slots]:
        """Local slots that parties name, if each names its own; all are looked at together."""
        own = {party: slots for party, slots in named.items() if slots is not None}
        lengths = [len(slots) for slots in own.values()]
        local = np.concatenate([_NO_SLOTS, *own.values()])
        most = np.repeat([len(self.layout.own[party]) for party in own], lengths)
        foreign = (local < 0) | (local >= most)
        wrong = [party for party in named if party not in own]
        if foreign.any():
            wrong.append(list(own)[np.repeat(np.arange(len(own)), lengths)[foreign][0]])
        if wrong:
            raise ProtocolError(
                f"party {wrong[0]} names slots of {WHAT[self.kind]} in iteration {iteration} that "
                "are no numbers of its shared slots; the run stops"
            )
        return own

    def _pad_ids_of(self, parts: list[Part], round_: int) -> PadIds:
        """Under which pad each of the slots was sent."""
        numbers = [
            pad_id_of(self._adder.epoch, round_, self.layout.index[part.party]) for part in parts
        ]
        lengths = [len(part.slots) for part in parts]
        return np.repeat(np.array(numbers, np.uint64), np.array(lengths, np.int64))

    def _where(self, party: str, iteration: int) -> str:
        return f"the block of {WHAT[self.kind]} from party {party} in iteration {iteration}"

    # ── forwarding ────────────────────────────────────────────────────────────────────────

    def _carried(self, slots: Ints, ends: Sequence[int]) -> list[Carried]:
        """Ids of the pads at ``slots``, in parts."""
        if self._bookkeeping is None:
            return [NOTHING] * len(ends)
        return self._bookkeeping.carried(slots, ends)

    def _whole(self, group: int) -> bytes:
        """The block of all slots of a group of parties."""
        slots = self.layout.slots[group]
        (body,) = self.store.take(slots, [len(slots)])
        if self._bookkeeping is None:
            return self._block(len(slots), body, self._carried(slots, [len(slots)])[0])
        carried = self._bookkeeping.carried_whole(group)
        return self._block(len(slots), self._bookkeeping.prefix(group) + body, carried)

    def _block(self, count: int, body: bytes, carried: Carried) -> bytes:
        adder = self._adder
        pad_id = pad_id_of(adder.epoch, adder.round, 0)
        return pack_block(
            self._cipher, self.kind, adder.key, pad_id, count, self.width, body, carried
        )

    def take(self, party: str, slots: Slots | None = None) -> bytes:
        """A party's totals, at some of its local slots."""
        if slots is None:
            return self.blocks([party])[party]
        return self.pieces({party: slots})[party]

    @timed
    def blocks(self, parties: Iterable[str]) -> dict[str, bytes]:
        """Whole blocks for the parties that share slots; equal ones are made once."""
        gathered: dict[int, bytes] = {}
        out = {}
        for party in parties:
            group = self.layout.group[party]
            if not len(self.layout.slots[group]):
                continue
            if group not in gathered:
                gathered[group] = self._whole(group)
            out[party] = gathered[group]
            self._adder.cost.bytes += len(gathered[group])
        return out

    @timed
    def pieces(self, wanted: Mapping[str, Slots]) -> dict[str, bytes]:
        """Some totals for each of several parties, gathered at once."""
        if not wanted:
            return {}
        if self._chunked:
            return dict(self.blocks(wanted))
        lengths = [len(slots) for slots in wanted.values()]
        begin = self.layout.begin[[self.layout.group[party] for party in wanted]]
        at = np.repeat(begin, lengths) + np.concatenate(list(wanted.values()))
        slots = self.layout.flat[at]
        ends = np.cumsum(lengths).tolist()
        bodies = self.store.take(slots, ends)
        carried = self._carried(slots, ends)
        blocks = {
            party: self._block(length, body, under)
            for party, length, body, under in zip(wanted, lengths, bodies, carried, strict=True)
        }
        self._adder.cost.bytes += sum(map(len, blocks.values()))
        return blocks

    # ── keeping ───────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        links = {} if self._bookkeeping is None else self._bookkeeping.state()
        return {**self.store.state(), **links}

    def _take_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._fresh_store()
        self.store.restore(dict(state))
        if self._bookkeeping is not None:
            self._bookkeeping.restore(state)

    def _take_copy(self, other: Totals) -> None:
        """Take over what another one holds now."""
        self.store = other.store.copy()
        if self._bookkeeping is not None and other._bookkeeping is not None:
            self._bookkeeping.restore({n: a.copy() for n, a in other._bookkeeping.state().items()})


class IncrementTotals(Totals):
    """Totals of increments.

    Parameters
    ----------
    windows
        Whether parties contribute to chosen slots (the same at all holders of a cohort that
        are asked), or always to all of theirs.
    """

    def __init__(
        self,
        kind: str,
        layout: Layout,
        width: int,
        adder: Adder,
        *,
        windows: bool = False,
        clear: bool = False,
    ) -> None:
        super().__init__(kind, layout, width, adder, clear=clear)
        if adder.linked and not clear:
            self._bookkeeping = PadBookkeeping(
                kind, layout, width, adder, windows=windows, masked=True
            )
        self._windows = windows
        self._round = 0

    def copy(self) -> IncrementTotals:
        """These totals as they are now, to be kept while the originals move on."""
        other = IncrementTotals(
            self.kind,
            self.layout,
            self.width,
            self._adder,
            windows=self._windows,
            clear=self._clear,
        )
        other._take_copy(self)
        return other

    @timed
    def invite(self, messages: Mapping[str, Message]) -> None:
        """Say in the messages of a request what each party's contribution takes off."""
        self._round = self._adder.round
        if self._bookkeeping is not None:
            self._bookkeeping.invite(messages)

    @timed
    def add(self, replies: Mapping[str, Message], iteration: int = 0) -> None:
        """Add all parties' increments: at ``kind_slots`` of a reply, else to the whole block.

        Nothing is added unless every reply is sound. A party that shares slots and sends nothing
        is an error too: its silence would spoil the totals. Where somebody asked is not among the
        replies, the others are asked at once to take off the masks that they share with it.
        """
        self._add(replies, iteration)
        if self._bookkeeping is not None and self._bookkeeping.torn:
            self._mend(self._bookkeeping, iteration)

    def _add(self, replies: Mapping[str, Message], iteration: int) -> None:
        parts = self._read(replies, iteration, replies, self._round)
        if parts:
            self._store(parts, iteration)
        if self._bookkeeping is not None:
            self._bookkeeping.record(parts)

    def _mend(self, bookkeeping: PadBookkeeping, iteration: int) -> None:
        """Nobody can open the total before everyone who answered has closed the ring again."""
        channel, pause = self._adder.channel, _FIRST_PAUSE
        if channel is None:
            raise RuntimeError("parties that have not met cannot be asked for masks")
        while torn := bookkeeping.torn:
            round_ = self._adder.advance()
            messages = {party: MendRequest(round=round_) for party in torn}
            self.invite(messages)
            replies = channel.ask(MEND, messages)
            replies.stop_on_refusal()
            # Masks of the ring that is left cancel when all of it has answered, in one request.
            if not replies.missing:
                self._add(replies.answered, iteration)
            else:
                if pause > _LONGEST_PAUSE:
                    raise PartyAway(
                        f"party {min(replies.missing)} fell silent in iteration {iteration} with "
                        f"masks of its own under {WHAT[self.kind]}; bring it back and resume the "
                        "run"
                    )
                channel.pause(pause)
                pause *= 2

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of :meth:`state`."""
        self._take_state(state)
