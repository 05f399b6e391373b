"""``pad``: the additively homomorphic stream cipher of Castelluccia, Mykletun and Tsudik.

A value travels as value · factor + pad modulo 2^64. The coordinator adds such words without
being able to read them; the holders of a cohort take the pads off and divide by the cohort's
secret odd factor. The result must lie within ±2^49: a word that somebody changed, sent again,
left out or made up is one of 2^64 at random, of which one in 2^14 passes (unless the coordinator
makes up pad ids that fit a part of the sum). As every slot is checked by itself, any subset of
slots can be forwarded.
"""

from __future__ import annotations

from typing import Any

from weft.crypto.ciphers.block_format import KIND_CODES, SIGN
from weft.crypto.ciphers.cipher import (
    WHAT,
    Cipher,
    Flags,
    Floats,
    Integers,
    Slots,
    Tails,
    linked,
    refuse_newer,
)
from weft.crypto.pads.pad_streams import Streams, Words, signed_off
from weft.errors import ProtocolError
from weft.protocol.parts import PadIds, PadLinks


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

    def _contribute(
        self,
        kind: str,
        slots: Slots | None,
        values: Integers,
        pads: PadLinks | None,
        tails: Tails | None,
    ) -> bytes:
        streams = self._streams[kind]
        pad_id = self.pad_id
        minus = linked(None if pads is None else pads.chain, kind, streams.cohorts)
        code = KIND_CODES[kind]
        if tails is None:
            words, status = streams.hide(code, slots, values, pad_id, minus)
        else:
            words, status = streams.hide(code, slots, values, pad_id, minus, tails.marks)
        if status == 2:
            refuse_newer(kind)
        if status == 1:
            self._untie(words, kind, slots, minus, pads, tails)
        return self._pack(kind, values.shape, self._close(words))

    def _propose(self, kind: str, slots: Slots, values: Integers, pads: PadLinks | None) -> bytes:
        return self._fresh(kind, slots, values)

    def _post(
        self,
        kind: str,
        slots: Slots,
        new: Integers,
        old: Integers,
        pads: PadLinks | None,
        cohorts: Flags | None,
    ) -> bytes:
        return self._fresh(kind, slots, new)

    def _fresh(self, kind: str, slots: Slots, values: Integers) -> bytes:
        """A block under a new pad alone."""
        words, _ = self._streams[kind].hide(KIND_CODES[kind], slots, values, self.pad_id)
        return self._pack(kind, values.shape, self._close(words))

    def _reveal(
        self,
        kind: str,
        slots: Slots | None,
        count: int,
        width: int,
        packed: Any,
        since: int,
        unit: float,
    ) -> Floats:
        carried, words = self._words(kind, count, width, packed)
        return self._streams[kind].show(
            KIND_CODES[kind], slots, words, carried, since, unit, lambda: self.where(kind)
        )

    def _untie(
        self,
        words: Words,
        kind: str,
        slots: Slots | None,
        minus: PadIds,
        pads: PadLinks | None,
        tails: Tails | None,
    ) -> None:
        """Take off the pads where a mark stands for several pad ids."""
        streams = self._streams[kind]
        table = self.knots(None if pads is None else pads.chain_sets, kind)
        for position in range(len(words)):
            slot = position if slots is None else int(slots[position])
            mark, knots = int(minus[streams.cohort_of[slot]]), table
            if mark == 0 and tails is not None:
                mark, knots = int(tails.marks[slot]), tails.knots
            if not mark & int(SIGN):
                continue
            number = mark & ~int(SIGN)
            if number >= len(knots):
                raise ProtocolError(
                    f"a request names pads under the {WHAT[kind]} that it does not list"
                )
            off = tuple(signed_off(pad_id) for pad_id in knots[number])
            streams.add(words, KIND_CODES[kind], position, slot, off)

    def _close(self, words: Words) -> bytes:
        """Words on their way to the coordinator."""
        return words.tobytes()
