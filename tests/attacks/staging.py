"""A coordinator that lets an honest run go on up to some request, and then asks as it likes.

Not a test itself. Nothing is forged: totals and records are those that parties made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from asking_again import objects
from scene import run

from weft.crypto.ciphers.block_format import (
    Carried,
    pack_block,
    pad_id_of,
    read_block,
    word_block,
)
from weft.crypto.primitives.prime_field import PRIME
from weft.guards import Terms
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.solvers.run_settings import Settings
from weft.sums.scalar_sums import add_scalars

Replies = dict[str, dict[str, Any]]


class Done(BaseException):
    """The run has gone far enough."""


class Stage:
    """Parties of a run with careful terms that was stopped, and all that was said up to there.

    Parameters
    ----------
    phase, number
        The run stops when all have answered in this phase for the so-manieth time.
    by
        Or when this party has.
    before
        Or before anyone is asked.
    """

    def __init__(
        self,
        tiles: Mapping[str, Any],
        settings: Settings,
        phase: str,
        number: int = 1,
        *,
        by: str | None = None,
        before: bool = False,
        preprocessing: Any = None,
    ) -> None:
        self.names = list(tiles)
        self.handlers: dict[str, Any] = {}
        self.parties: dict[str, Any] = {}
        self.entries: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self._stop, self._left, self._before = phase, number, before
        self._by = by or self.names[-1]
        with pytest.raises(Done):
            run(tiles, settings, Terms(), preprocessing=preprocessing, around=self._around)

    def _around(self, name, handler):
        self.handlers[name], self.parties[name] = handler, handler.__self__

        def answer(phase, message):
            if self._before and phase == self._stop:
                self.next_message = dict(message)
                raise Done
            reply = handler(phase, message)
            self.entries.append((phase, name, dict(message), dict(reply)))
            if phase == self._stop and name == self._by:
                self._left -= 1
                if not self._left:
                    raise Done
            return reply

        return answer

    def last(self, phase: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a party was asked and answered last in a phase."""
        return next((m, r) for p, n, m, r in reversed(self.entries) if (p, n) == (phase, name))

    def bits(self, *names: str) -> np.ndarray:
        """These parties, as messages name them."""
        return np.packbits(np.isin(self.names, names))

    def half(self, name: str) -> Any:
        return self.parties[name]._half

    @property
    def n_samples(self) -> int:
        return int(self.parties[self.names[0]].view.n_samples)

    def mend(self, field: str, round_: int, torn: Total, left: list[str]) -> Total:
        """The total of those who are left, though nobody was silent."""
        flags = self.bits(*left)
        before = pad_id_of(0, torn.round, len(left) - 1)
        ask = {
            "round": round_,
            f"{field}_pads.chain": np.array([before], np.uint64),
            f"{field}_pads.asked.parties": flags,
            f"{field}_pads.asked.again": flags,
            f"{field}_pads.asked.torn": pad_id_of(0, torn.round, 0),
        }
        masks = [self.handlers[name]("sums.mend", ask)[field] for name in left]
        return Total.of([*(torn.blocks[name] for name in left), *masks], round_, len(left) - 1)


class FastStage(Stage):
    """The same of a fast solver, whose phases have numbers."""

    def __init__(
        self, tiles: Mapping[str, Any], settings: Settings, phase: str, number: int = 3
    ) -> None:
        super().__init__(tiles, settings, phase, number)
        message, _ = self.last(phase, self.names[0])
        self.serial, self.round = message["serial"], message["round"]
        self.common = {"iteration": message["iteration"]}

    def ask(self, phase: str, **fields: Any) -> Replies:
        """Put a question to all; where a field is a function, in its words for each party."""
        self.serial, self.round = self.serial + 1, self.round + 1
        numbers = {"serial": self.serial, "round": self.round, **self.common}
        return {
            name: handler(
                f"subspace.{phase}",
                {**numbers, **{k: v(name) if callable(v) else v for k, v in fields.items()}},
            )
            for name, handler in self.handlers.items()
        }


class Total(NamedTuple):
    """A sum of blocks as the coordinator has it.

    Attributes
    ----------
    blocks
        What it is of, by party where that matters.
    pad
        The pad under it.
    """

    words: np.ndarray
    tags: np.ndarray
    round: int
    pad: int
    blocks: Mapping[str, bytes]

    @classmethod
    def of(cls, blocks: Iterable[bytes] | Mapping[str, bytes], round_: int, last: int) -> Total:
        """``last``: the number of who added last, on whose pad the others' cancel."""
        named = blocks if isinstance(blocks, Mapping) else {}
        parts = blocks.values() if isinstance(blocks, Mapping) else blocks
        read = [word_block(read_block(packed, "sum"), "sum") for packed in parts]
        words = np.sum([block.words for block in read], axis=0, dtype=np.uint64)
        tags = np.sum([block.tags.astype(object) for block in read], axis=0) % PRIME
        return cls(words, tags.astype(np.uint64), round_, pad_id_of(0, round_, last), named)

    def plus(self, change: Total) -> Total:
        """A running sum after a change."""
        tags = (self.tags.astype(object) + change.tags.astype(object)) % PRIME
        return change._replace(words=self.words + change.words, tags=tags.astype(np.uint64))

    def packed(self, kind: str, key: Any, round_: int, slots: Any = None) -> bytes:
        """For a party to open; nothing, under no pad, but at some slots."""
        words, tags = self.words, self.tags
        pads = np.full(len(words), self.pad, np.uint64)
        if slots is not None:
            there = np.isin(np.arange(len(words)), slots)
            words = np.where(there[:, None], words, np.uint64(0))
            tags = np.where(there.reshape(-1, *[1] * (tags.ndim - 1)), tags, np.uint64(0))
            pads = np.where(there, pads, np.uint64(0))
        carried = Carried(np.ones(len(words), np.uint32), None, pads)
        body = words.tobytes() + tags.tobytes()
        request = pad_id_of(0, round_, 0)
        return pack_block("pad", kind, key, request, len(words), words.shape[1], body, carried)


def scalars(replies: Replies, field: str) -> np.ndarray:
    """The total that the coordinator reads of scalars of all who answered."""
    names = list(replies)
    count = len(replies[names[0]][field]) // SCALAR_BYTES
    return np.array(add_scalars(objects(replies), field, count, names))
