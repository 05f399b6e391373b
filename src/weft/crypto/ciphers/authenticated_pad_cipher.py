"""``pad``: the additively homomorphic stream cipher of Castelluccia, Mykletun and Tsudik.

A value travels as value · factor + pad modulo 2^64, with a tag beside each slot. The coordinator
adds words and tags without being able to read them; the holders of a cohort take the pads off and
check the tags: a word that somebody changed, sent again, left out or made up passes with
probability 2^-61. As every slot has its own tag, any subset of slots can be forwarded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.array_types import Flags, Floats
from weft.crypto.ciphers.block_format import KIND_CODES, SIGN, Carried
from weft.crypto.ciphers.cipher_arguments_and_results import (
    Incoming,
    Integers,
    Outgoing,
    newest_in,
    refuse_newer,
)
from weft.crypto.ciphers.contribution_masks import refuse_older
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.pads.pad_streams import Hidden, Streams, Words, failed_check
from weft.protocol.shared_fields import PadIds

_NO_MARKS = np.zeros(0, np.uint64)
#: Sums whose contributions take off the pad before them; the others are of one request.
CHAINED = ("z", "v")


class Pad(Cipher):
    """A party's half of ``pad``."""

    name = "pad"
    #: What its pads come from.
    streams: type[Streams] = Streams

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[str, Streams] = {}

    def take_streams(self, rows: Streams, columns: Streams) -> None:
        """The pads of this party's row and column cohorts."""
        self._streams = {"z": rows, "alpha": rows, "delta": rows, "v": columns}

    def _contribute(self, sent: Outgoing) -> bytes:
        kind, slots, values, tails = sent.kind, sent.slots, sent.values, sent.tails
        streams = self._streams[kind]
        joined = self._join(sent, streams.cohorts, streams.encrypt, None)
        minus, rings = joined.minus, joined.rings[0]
        marks, own = (_NO_MARKS, _NO_MARKS) if tails is None else (tails.marks, tails.own)
        hidden = streams.hide(
            KIND_CODES[kind], slots, values, self.pad_id, minus, marks, own, rings
        )
        if hidden.status == 2:
            refuse_newer(kind)
        if hidden.status == 3:
            refuse_older()
        if hidden.status == 1:
            self._untie(hidden, sent, minus)
        return self._pack(kind, values.shape, self._close(hidden.words), hidden.tags.data)

    def _propose(self, sent: Outgoing) -> bytes:
        """A block under a new pad alone."""
        kind, slots, values = sent.kind, sent.slots, sent.values
        hidden = self._streams[kind].hide(KIND_CODES[kind], slots, values, self.pad_id)
        return self._pack(kind, values.shape, self._close(hidden.words), hidden.tags.data)

    def _post(self, sent: Outgoing, old: Callable[[], Integers], cohorts: Flags | None) -> bytes:
        return self._propose(sent)

    def _reveal(self, total: Incoming) -> Floats:
        kind, slots = total.kind, total.slots
        carried, words, tags = self._words(total)
        if (total.posts or total.newest is not None) and not self._new_posts(total, carried):
            raise failed_check(self.where(kind))
        if total.whole and not self._by_cohort(total, carried):
            raise failed_check(self.where(kind))
        values = self._streams[kind].show(
            KIND_CODES[kind],
            slots,
            words,
            tags,
            carried,
            (total.since, total.until),
            lambda: self.where(kind),
            chained=kind in CHAINED,
        )
        # In two steps: a product of two types goes through a buffer.
        opened: Floats = values.astype(np.float64)
        opened *= total.unit
        return opened

    def _by_cohort(self, total: Incoming, carried: Carried) -> bool:
        """Whether all slots of a cohort are of the same requests."""
        if carried.lengths is None:
            return True
        streams = self._streams[total.kind]
        cohorts = streams.cohort_of if total.slots is None else streams.cohort_of[total.slots]
        marks = carried.per_slot(len(cohorts), cohorts, self.where(total.kind))
        of_cohort = np.zeros((len(marks), streams.cohorts), np.uint64)
        of_cohort[:, cohorts] = marks
        return bool((of_cohort[:, cohorts] == marks).all())

    def _new_posts(self, total: Incoming, carried: Carried) -> bool:
        """Whether every slot, or every cohort, is what one holder posted, and nothing older."""
        cohorts = self._streams[total.kind].cohort_of
        cohorts = cohorts if total.slots is None else cohorts[total.slots]
        marks = carried.per_slot(len(cohorts), cohorts, self.where(total.kind))
        if len(marks) != 1:
            return False
        if total.newest is not None:
            where = slice(None) if total.slots is None else total.slots
            if (marks[0] < total.newest[where]).any():
                return False
            total.newest[where] = marks[0]
        if not total.posts:
            return True
        of_cohort = np.zeros(self._streams[total.kind].cohorts, np.uint64)
        of_cohort[cohorts] = marks[0]
        return bool((of_cohort[cohorts] == marks[0]).all())

    def _untie(self, hidden: Hidden, sent: Outgoing, minus: PadIds) -> None:
        """Take off the pads where a mark stands for several pad ids."""
        kind, slots, pads, tails = sent.kind, sent.slots, sent.pads, sent.tails
        streams = self._streams[kind]
        table = self.knots(None if pads is None else pads.chain_sets, kind)
        for position in range(len(hidden.words)):
            slot = position if slots is None else int(slots[position])
            mark, knots = int(minus[streams.cohort_of[slot]]), table
            if mark == 0 and tails is not None:
                mark, knots = int(tails.marks[slot]), tails.knots
            if not mark & int(SIGN):
                continue
            newest = newest_in(knots, mark, kind)
            if tails is not None and newest < int(tails.own[slot]):
                refuse_older()
            listed = knots[mark & ~int(SIGN)]
            streams.take_off(hidden, KIND_CODES[kind], position, slot, listed)

    def _close(self, words: Words) -> bytes | memoryview:
        """Words on their way to the coordinator."""
        return words.data
