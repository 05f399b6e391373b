"""Totals as the coordinator keeps them: they add what parties sent, and open nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from weft.crypto.ciphers.chunks import CHECKS, MODULUS, chunks_of
from weft.errors import ProtocolError

Ints = NDArray[np.int64]
#: Up to so many parts are added one by one; more are joined first, being small as a rule.
_FEW = 64


class Part(NamedTuple):
    """What one party sent for some slots, without the header."""

    body: bytes
    slots: int
    party: str


class Store(ABC):
    """Totals that the coordinator keeps."""

    @abstractmethod
    def add(self, slots: Ints, parts: Sequence[Part]) -> None:
        """Add parts, whose slots follow each other in ``slots``; a slot may come repeatedly."""

    @abstractmethod
    def put(self, slots: Ints, parts: Sequence[Part]) -> None:
        """Let parts take the place of what was there."""

    @abstractmethod
    def take(self, slots: Ints, ends: Sequence[int]) -> list[bytes]:
        """Totals at ``slots``, in parts that end at ``ends``."""

    @abstractmethod
    def copy(self) -> Store: ...

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]: ...

    @abstractmethod
    def restore(self, state: dict[str, NDArray[Any]]) -> None: ...


class WordStore(Store):
    """Totals modulo 2^64, for ``pad`` and ``plain``."""

    def __init__(self, slots: int, width: int) -> None:
        self.words = np.zeros((slots, width), np.uint64)

    def add(self, slots: Ints, parts: Sequence[Part]) -> None:
        # All are checked before any is added.
        self._check(parts)
        if len(parts) > _FEW:
            add_words(self.words, slots, self._joined(parts))
            return
        end = 0
        for part in parts:
            begin, end = end, end + part.slots
            add_words(self.words, slots[begin:end], self._joined([part]))

    def put(self, slots: Ints, parts: Sequence[Part]) -> None:
        self._check(parts)
        self.words[slots] = self._joined(parts)

    def _check(self, parts: Sequence[Part]) -> None:
        width = self.words.shape[1]
        for part in parts:
            if len(part.body) != 8 * width * part.slots:
                raise ProtocolError(
                    f"the block from party {part.party} has {len(part.body)} bytes for "
                    f"{part.slots} slots of {width}"
                )

    def _joined(self, parts: Sequence[Part]) -> NDArray[np.uint64]:
        bodies = [part.body for part in parts]
        joined = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies), np.uint64)
        return joined.reshape(-1, self.words.shape[1])

    def take(self, slots: Ints, ends: Sequence[int]) -> list[bytes]:
        gathered = self.words.take(slots, axis=0)
        return [gathered[a:b].tobytes() for a, b in pairwise([0, *ends])]

    def copy(self) -> WordStore:
        other = WordStore(0, self.words.shape[1])
        other.words = self.words.copy()
        return other

    def state(self) -> dict[str, NDArray[Any]]:
        return {"words": self.words}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        if state["words"].shape != self.words.shape:
            raise ProtocolError("the checkpoint's totals are of another shape; start anew")
        self.words = state["words"]


class PaillierStore(Store):
    """Totals under Paillier, one ciphertext a value."""

    def __init__(self, public: bytes, slots: int, width: int) -> None:
        from weft.crypto.ciphers.paillier import PaillierTotals

        self._public = public
        self._width = width
        self._totals = PaillierTotals(public, slots * width)

    def _values(self, slots: Ints) -> Ints:
        """Numbers of the ciphertexts of slots."""
        out: Ints = (slots[:, None] * self._width + np.arange(self._width)).ravel()
        return out

    def add(self, slots: Ints, parts: Sequence[Part]) -> None:
        _each(self._totals.add, slots, parts, self._values)

    def put(self, slots: Ints, parts: Sequence[Part]) -> None:
        _each(self._totals.put, slots, parts, self._values)

    def take(self, slots: Ints, ends: Sequence[int]) -> list[bytes]:
        return [self._totals.take(self._values(slots[a:b])) for a, b in pairwise([0, *ends])]

    def copy(self) -> PaillierStore:
        other = PaillierStore(self._public, 0, self._width)
        other._totals = self._totals.copy()
        return other

    def state(self) -> dict[str, NDArray[Any]]:
        return self._totals.state()

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self._totals.restore(state)


class BfvStore(Store):
    """Totals under BFV, in chunks: parties contribute to all chunks that they have slots in."""

    def __init__(self, slots: int, width: int) -> None:
        from weft.crypto.ciphers.bfv import BfvTotals

        self._width = width
        every = self._chunks(np.arange(slots))
        chunks = int(every.max(initial=-1)) + 1
        self._totals = BfvTotals(chunks)
        self._checks = np.zeros((chunks, CHECKS), np.uint64)

    def _chunks(self, slots: Ints) -> Ints:
        return chunks_of(slots, self._width)

    def add(self, slots: Ints, parts: Sequence[Part]) -> None:
        _each(self._add, slots, parts, self._chunks)

    def _add(self, chunks: Ints, body: bytes) -> None:
        """Check words in front, then the ciphertexts."""
        end = 8 * CHECKS * len(chunks)
        if len(body) < end:
            raise ProtocolError("its check words are missing")
        checks = np.frombuffer(body, np.uint64, CHECKS * len(chunks)).reshape(-1, CHECKS)
        if (checks >= MODULUS).any():
            raise ProtocolError("its check words do not fit the cipher")
        self._totals.add(chunks, body[end:])
        self._checks[chunks] = (self._checks[chunks] + checks) % np.uint64(MODULUS)

    def put(self, slots: Ints, parts: Sequence[Part]) -> None:
        raise ProtocolError("blocks of whole chunks cannot take the place of single slots")

    def take(self, slots: Ints, ends: Sequence[int]) -> list[bytes]:
        parts = [self._chunks(slots[a:b]) for a, b in pairwise([0, *ends])]
        return [self._checks[part].tobytes() + self._totals.take(part) for part in parts]

    def copy(self) -> BfvStore:
        other = BfvStore(0, self._width)
        other._totals, other._checks = self._totals.copy(), self._checks.copy()
        return other

    def state(self) -> dict[str, NDArray[Any]]:
        return {**self._totals.state(), "checks": self._checks}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self._totals.restore(state)
        if state["checks"].shape != self._checks.shape:
            raise ProtocolError("the checkpoint's check words are of another shape; start anew")
        self._checks = state["checks"]


def _each(
    add: Callable[[Ints, bytes], None],
    slots: Ints,
    parts: Sequence[Part],
    units: Callable[[Ints], Ints],
) -> None:
    """Add part by part, and name the party whose part cannot be added."""
    at = 0
    for part in parts:
        try:
            add(units(slots[at : at + part.slots]), part.body)
        except ProtocolError as error:
            raise ProtocolError(f"the block from party {part.party}: {error}") from None
        at += part.slots


@numba.njit(cache=True)
def add_words(totals: Any, slots: Any, words: Any) -> None:
    """totals[slots[r]] += words[r] modulo 2^64; a slot may come repeatedly."""
    for r in range(slots.shape[0]):
        s = slots[r]
        for j in range(words.shape[1]):
            totals[s, j] += words[r, j]
