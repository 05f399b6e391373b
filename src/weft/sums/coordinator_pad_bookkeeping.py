"""Which pads lie under the totals of shared slots, as the coordinator tells parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.crypto.ciphers.block_format import Carried, pad_id_of
from weft.crypto.coordinator_adder import Adder, Part, slots_of
from weft.crypto.pads.pad_ids_in_totals import CohortChain, SlotChain, runs_of
from weft.protocol.declared_message_fields import Message
from weft.protocol.shared_fields import Asked, PadIds, PadLinks, PadNews
from weft.sums.shared_slots_by_party import Layout

_NONE = np.zeros(0, np.int64)
_EVERY = np.zeros(0, bool)


class PadBookkeeping:
    """Which pad ids a total carries, and what each contribution takes off.

    Parameters
    ----------
    windows
        Whether parties contribute to chosen slots of their cohorts.
    masked
        Whether neighbours share masks under what they contribute.
    """

    def __init__(
        self,
        kind: str,
        layout: Layout,
        width: int,
        adder: Adder,
        *,
        windows: bool = False,
        masked: bool = False,
    ) -> None:
        self._masked = masked
        #: The field of messages that says which pads a contribution takes off.
        self._field = f"{kind}_pads"
        self._layout = layout
        self._width = width
        self._adder = adder
        by_slot = windows and not adder.whole
        self.chain = (
            SlotChain(layout.holders, layout.start) if by_slot else CohortChain(layout.holders)
        )
        #: Ciphers that work on whole chunks have check words in each, which are linked too.
        self.checks: CohortChain | None = None
        if adder.whole:
            self.checks = CohortChain(layout.chunk_holders(width))
        #: Who shares anything along this axis.
        self._sharing = np.diff(self.chain.holders.bounds) > 0
        #: Who is asked now, in which request, and who has contributed before.
        self._asked, self._context = self._flags([]), 0
        self._contributed = self._flags([])
        #: Parties that left masks in the total without a counterpart, and in which request.
        self._open: list[str] = []
        self._torn = 0

    def _flags(self, parties: Sequence[str]) -> Flags:
        """A flag per party of the federation."""
        out: Flags = np.zeros(len(self._layout.parties), bool)
        out[[self._layout.index[party] for party in parties]] = True
        return out

    def invite(
        self, messages: Mapping[str, Message], chosen: Mapping[str, Flags] | None = None
    ) -> None:
        """Say in the messages of a request what each party's contribution takes off.

        With ``chosen``, a party contributes to those of its cohorts that have a flag only.
        """
        asked, pairs = self._flags(list(messages)), _EVERY
        if chosen is not None:
            asked, pairs = self._chosen(chosen)
        self._asked, self._context = asked, pad_id_of(self._adder.epoch, self._adder.round, 0)
        links: dict[str, PadLinks] = {}
        for party, off, sets in self._linked(self.chain, messages, asked, pairs):
            links[party] = PadLinks(chain=off, chain_sets=sets)
        if isinstance(self.chain, SlotChain):
            self._tell(self.chain, links)
        if self.checks is not None:
            for party, off, sets in self._linked(self.checks, messages, asked, _EVERY):
                mine = links.setdefault(party, PadLinks())
                mine.checks, mine.checks_sets = off, sets
        if self._masked:
            self._tell_asked(links)
        for party, mine in links.items():
            setattr(messages[party], self._field, mine)

    def _tell_asked(self, links: Mapping[str, PadLinks]) -> None:
        """Who contributes in this request, and which masks are left to be taken off."""
        again = self._asked & self._contributed
        common = Asked(
            parties=None if self._asked.all() else np.packbits(self._asked),
            again=np.packbits(again) if again.any() else None,
        )
        if self._open:
            common = replace(common, torn=self._torn)
        for mine in links.values():
            mine.asked = common
        if self.checks is not None:
            self._tell_neighbours(self.checks, links)

    def _tell_neighbours(self, checks: CohortChain, links: Mapping[str, PadLinks]) -> None:
        """The same for check words, of whose chunks a party does not know all holders."""
        left, right, torn = checks.ring()
        for party, mine in links.items():
            k = self._layout.index[party]
            own = slice(checks.holders.bounds[k], checks.holders.bounds[k + 1])
            if mine.asked is not None:
                mine.asked = replace(
                    mine.asked,
                    checks_left=left[own],
                    checks_right=right[own],
                    checks_torn=torn[own] if torn[own].any() else None,
                )

    @property
    def torn(self) -> list[str]:
        """Parties that left masks in the total without a counterpart."""
        return self._open

    def _chosen(self, chosen: Mapping[str, Flags]) -> tuple[Flags, Flags]:
        """Parties with a flag for some shared cohort, and the flags of all pairs."""
        holders = self._layout.holders
        asked, pairs = self._flags([]), np.zeros(len(holders.party), bool)
        for party, flags in chosen.items():
            k = self._layout.index[party]
            mine = holders.pairs(k)
            pairs[mine] = flags[: len(mine)]
            asked[k] = bool(pairs[mine].any())
        return asked, pairs

    def _linked(
        self, chain: CohortChain, messages: Mapping[str, Message], asked: Flags, pairs: Flags
    ) -> Iterator[tuple[str, PadIds, PadIds | None]]:
        """Per party that contributes: what it takes off, and the sets of ids in that."""
        adder, holders = self._adder, chain.holders
        # Check words are linked in the order of parties, which each of them can check.
        again = self._flags([]) if chain is self.checks else asked & self._contributed
        minus, tied = chain.invite(asked, pairs, adder.epoch, adder.round, again)
        bounds, index = holders.bounds, self._layout.index
        for party in messages:
            k = index[party]
            begin, end = bounds[k], bounds[k + 1]
            if begin == end or not asked[k]:
                continue
            if tied:
                yield party, *chain.knots.rewrite(minus[begin:end])
            else:
                yield party, minus[begin:end], None

    def _tell(self, chain: SlotChain, links: dict[str, PadLinks]) -> None:
        """Marks that changed, for those who lead a cohort now."""
        pair, slots = chain.news()
        if not len(slots):
            return
        layout = self._layout
        party = layout.holders.party[pair]
        order = np.argsort(party * layout.n_shared + slots)
        pair, slots, party = pair[order], slots[order], party[order]
        local = (slots - layout.start[chain.cohort_of[slots]] + layout.local_start[pair]).astype(
            np.int32
        )
        first = np.flatnonzero(np.append(True, party[1:] != party[:-1]))
        ends = [*first[1:].tolist(), len(party)]
        runs = runs_of(chain.marks[slots], ends)
        for number, begin, end, (lengths, marks) in zip(
            party[first].tolist(), first.tolist(), ends, runs, strict=True
        ):
            marks, sets = chain.knots.rewrite(marks)
            mine = local[begin:end]
            # Slots in a row are named by the first of them.
            in_a_row = bool((np.diff(mine) == 1).all())
            links.setdefault(layout.parties[number], PadLinks()).news = PadNews(
                slots=mine[:1] if in_a_row else mine, lengths=lengths, marks=marks, sets=sets
            )

    def record(self, parts: Sequence[Part]) -> None:
        """The contributions that came in."""
        names = [part.party for part in parts]
        answered = self._flags(names)
        if self._masked:
            self._leave_open(names, answered)
        if isinstance(self.chain, SlotChain):
            numbers = np.array([self._layout.index[name] for name in names], np.int64)
            lengths = np.array([len(part.slots) for part in parts], np.int64)
            self.chain.record_slots(answered, slots_of(parts), np.repeat(numbers, lengths))
        else:
            self.chain.record(answered)
        if self.checks is not None:
            self.checks.record(answered)

    def _leave_open(self, names: Sequence[str], answered: Flags) -> None:
        """Note whose masks are left without a counterpart: somebody asked did not answer."""
        self._contributed |= answered
        silent = self._asked & self._sharing & ~answered
        # Whoever contributed has taken off what it had left there before.
        self._open = list(names) if silent.any() else []
        self._torn = self._context
        if self.checks is not None:
            self.checks.tear(answered)

    def carried(self, slots: Ints, ends: Sequence[int]) -> list[Carried]:
        """Ids of the pads at ``slots``, in parts that end at ``ends``."""
        chain = self.chain
        by_slot = isinstance(chain, SlotChain)
        marks = chain.marks[slots if by_slot else self._layout.cohort_of[slots]]
        return [chain.knots.carried(n, m, _NONE) for n, m in runs_of(marks, ends)]

    def carried_whole(self, group: int) -> Carried:
        """Ids of the pads in the whole block of a group of parties."""
        chain = self.chain
        if isinstance(chain, SlotChain):
            slots = self._layout.slots[group]
            return self.carried(slots, [len(slots)])[0]
        cohorts = self._layout.cohorts[group]
        return chain.knots.carried(None, chain.marks[cohorts], self._layout.sizes[cohorts])

    def prefix(self, group: int) -> bytes:
        """The pad ids under the check words of a whole block, in front of its body."""
        if self.checks is None:
            return b""
        marks = self.checks.marks[self._layout.chunks(group, self._width)]
        lists = [self.checks.knots.pad_ids(mark) for mark in marks.tolist()]
        counts = np.array([len(pad_ids) for pad_ids in lists], np.uint32)
        flat = np.array([pad_id for pad_ids in lists for pad_id in pad_ids], np.uint64)
        return counts.tobytes() + flat.tobytes()

    def state(self) -> dict[str, NDArray[Any]]:
        state = {f"chain.{n}": a for n, a in self.chain.state().items()}
        state["contributed"] = self._contributed
        if self.checks is not None:
            state.update({f"checks.{n}": a for n, a in self.checks.state().items()})
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.chain.restore({n[6:]: a for n, a in state.items() if n.startswith("chain.")})
        self._contributed = state["contributed"].astype(bool)
        if self.checks is not None:
            self.checks.restore({n[7:]: a for n, a in state.items() if n.startswith("checks.")})
