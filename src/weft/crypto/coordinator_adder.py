"""The coordinator's half of the ciphers: numbers requests, adds and forwards, reads nothing.

An `Adder` knows what is public of a run's encryption; its totals are in a `Store`, which adds what
parties sent, and opens nothing.

Nothing in this file can take a secret: an adder is made from a cipher's name and learns public
keys and the public number of the run's key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec
import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.ciphers.block_format import TAG, WHOLE_CIPHERS, check_cipher, pad_id_of
from weft.crypto.ciphers.chunk_layout import CHECKS, MODULUS, chunks_of
from weft.crypto.primitives.prime_field import add_modulo
from weft.crypto.scalar_mask_neighbours import attendance
from weft.errors import ProtocolError
from weft.numba_options import OUTER
from weft.protocol.channel import Channel
from weft.protocol.metering import EncryptionCost

_NO_SLOTS = np.zeros(0, np.int64)
#: Up to so many parts are added one by one; more are joined first, being small as a rule.
_FEW_PARTS = 64


class Attended(Protocol):
    """A request for scalars, in a sum that may go over some parties only."""

    attending: NDArray[np.uint8] | None


class Adder:
    """What the coordinator knows of a run's encryption: public things only.

    Attributes
    ----------
    epoch, round
        Together they number the requests; a resumed run goes on in a later epoch.
    key
        Public number of the run's key, the same at all parties.
    """

    def __init__(self, cipher: str) -> None:
        check_cipher(cipher)
        self.name = cipher
        self.epoch = 0
        self.round = 0
        self.key = 0
        #: What the parties said in the clear about the key that all of them share.
        self.public = b""
        self.cost = EncryptionCost()
        #: To the parties, once they have met, for what totals must ask by themselves.
        self.channel: Channel | None = None
        self._index: dict[str, int] = {}

    @property
    def whole(self) -> bool:
        """Whether blocks are added and forwarded as a whole."""
        return self.name in WHOLE_CIPHERS

    @property
    def linked(self) -> bool:
        """Whether contributions carry pads."""
        return self.name != "plain"

    def meet(self, parties: Sequence[str], key: int, public: bytes) -> None:
        """Take over what the parties announced."""
        self._index = {name: number for number, name in enumerate(parties)}
        self.key, self.public = key, public

    def index(self, party: str) -> int:
        return self._index[party]

    def advance(self) -> int:
        """The number of a new request; blocks made from now on belong to it."""
        self.round += 1
        return self.round

    def attend(self, messages: Mapping[str, Attended]) -> None:
        """Tell the parties of a request that a sum of scalars goes over them only.

        Without it, it goes over all parties of the run, or over all that have labels.
        """
        if not self.linked or len(messages) == len(self._index):
            return
        bits = attendance(len(self._index), [self._index[party] for party in messages])
        for message in messages.values():
            message.attending = bits

    def store(self, slots: int, width: int, *, clear: bool = False) -> Store:
        """An empty total, on wish of numbers in the clear."""
        if clear or not self.linked:
            return WordStore(slots, width)
        if self.name == "bfv":
            return BfvStore(slots, width)
        if self.name == "paillier":
            return TaggedStore(PaillierStore(self.public, slots, width), slots)
        return TaggedStore(WordStore(slots, width), slots)

    def pad_id(self, party: str) -> int:
        """The pad id that a party's contribution to the current request must have."""
        return pad_id_of(self.epoch, self.round, self._index[party])


# ── totals ──────────────────────────────────────────────────────────────────────────────


class Part(msgspec.Struct, frozen=True):
    """What one party sent for some slots, without the header; a view, since blocks are large."""

    body: memoryview
    slots: Ints
    party: str


def slots_of(parts: Sequence[Part]) -> Ints:
    """The slots of all parts, one part after the other."""
    return np.concatenate([_NO_SLOTS, *(part.slots for part in parts)])


class Store(ABC):
    """Totals that the coordinator keeps."""

    @abstractmethod
    def add(self, parts: Sequence[Part]) -> None:
        """Add parts; a slot may come repeatedly."""

    @abstractmethod
    def put(self, parts: Sequence[Part]) -> None:
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
    """Totals modulo 2^64, for ``plain`` and, with tags, for ``pad``."""

    def __init__(self, slots: int, width: int) -> None:
        self.words = np.zeros((slots, width), np.uint64)

    def add(self, parts: Sequence[Part]) -> None:
        # All are checked before any is added.
        self._check(parts)
        if len(parts) > _FEW_PARTS:
            add_words(self.words, slots_of(parts), self._joined(parts))
            return
        for part in parts:
            add_words(self.words, part.slots, self._joined([part]))

    def put(self, parts: Sequence[Part]) -> None:
        self._check(parts)
        self.words[slots_of(parts)] = self._joined(parts)

    def _check(self, parts: Sequence[Part]) -> None:
        width = self.words.shape[1]
        for part in parts:
            if len(part.body) != 8 * width * len(part.slots):
                raise ProtocolError(
                    f"the block from party {part.party} has {len(part.body)} bytes for "
                    f"{len(part.slots)} slots of {width}"
                )

    def _joined(self, parts: Sequence[Part]) -> NDArray[np.uint64]:
        bodies = [part.body for part in parts]
        joined = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies), np.uint64)
        return joined.reshape(-1, self.words.shape[1])

    def take(self, slots: Ints, ends: Sequence[int]) -> list[bytes]:
        gathered, size = self.words.take(slots, axis=0).tobytes(), 8 * self.words.shape[1]
        return [gathered[size * a : size * b] for a, b in pairwise([0, *ends])]

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


class TaggedStore(Store):
    """Totals with a tag per slot, behind the words (`weft.crypto.pads.pad_streams`)."""

    def __init__(self, words: Store, slots: int) -> None:
        self.words = words
        self._tags = np.zeros(slots, np.uint64)

    def add(self, parts: Sequence[Part]) -> None:
        parts, tags = self._split(parts)
        self.words.add(parts)
        if len(parts) > _FEW_PARTS:
            add_modulo(self._tags, slots_of(parts), np.frombuffer(b"".join(tags), np.uint64))
            return
        for part, some in zip(parts, tags, strict=True):
            add_modulo(self._tags, part.slots, np.frombuffer(some, np.uint64))

    def put(self, parts: Sequence[Part]) -> None:
        parts, tags = self._split(parts)
        self.words.put(parts)
        self._tags[slots_of(parts)] = np.frombuffer(b"".join(tags), np.uint64)

    def _split(self, parts: Sequence[Part]) -> tuple[list[Part], list[memoryview]]:
        words, tags = [], []
        for part in parts:
            end = len(part.body) - TAG * len(part.slots)
            if end < 0:
                raise ProtocolError(f"the block from party {part.party} lacks tags")
            words.append(Part(part.body[:end], part.slots, part.party))
            tags.append(part.body[end:])
        return words, tags

    def take(self, slots: Ints, ends: Sequence[int]) -> list[bytes]:
        tags = self._tags.take(slots)
        words = self.words.take(slots, ends)
        cuts = pairwise([0, *ends])
        return [part + tags[a:b].tobytes() for part, (a, b) in zip(words, cuts, strict=True)]

    def copy(self) -> TaggedStore:
        other = TaggedStore(self.words.copy(), 0)
        other._tags = self._tags.copy()
        return other

    def state(self) -> dict[str, NDArray[Any]]:
        return {**self.words.state(), "tags": self._tags}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self.words.restore(state)
        if state["tags"].shape != self._tags.shape:
            raise ProtocolError("the checkpoint's tags are of another shape; start anew")
        self._tags = state["tags"]


class PaillierStore(Store):
    """Totals under Paillier, one ciphertext a value."""

    def __init__(self, public: bytes, slots: int, width: int) -> None:
        from weft.crypto.ciphers.paillier_scheme import PaillierTotals

        self._public = public
        self._width = width
        self._totals = PaillierTotals(public, slots * width)

    def _values(self, slots: Ints) -> Ints:
        """Numbers of the ciphertexts of slots."""
        out: Ints = (slots[:, None] * self._width + np.arange(self._width)).ravel()
        return out

    def add(self, parts: Sequence[Part]) -> None:
        _each(self._totals.add, parts, self._values)

    def put(self, parts: Sequence[Part]) -> None:
        _each(self._totals.put, parts, self._values)

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
        from weft.crypto.ciphers.bfv_by_seal import BfvTotals

        self._width = width
        every = self._chunks(np.arange(slots))
        chunks = int(every.max(initial=-1)) + 1
        self._totals = BfvTotals(chunks)
        self._checks = np.zeros((chunks, CHECKS), np.uint64)

    def _chunks(self, slots: Ints) -> Ints:
        return chunks_of(slots, self._width)

    def add(self, parts: Sequence[Part]) -> None:
        _each(self._add, parts, self._chunks)

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

    def put(self, parts: Sequence[Part]) -> None:
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
    add: Callable[[Ints, bytes], None], parts: Sequence[Part], units: Callable[[Ints], Ints]
) -> None:
    """Add part by part, and name the party whose part cannot be added."""
    for part in parts:
        try:
            add(units(part.slots), bytes(part.body))
        except ProtocolError as error:
            raise ProtocolError(f"the block from party {part.party}: {error}") from None


@numba.njit(**OUTER)
def add_words(totals: Any, slots: Any, words: Any) -> None:
    """totals[slots[r]] += words[r] modulo 2^64; a slot may come repeatedly."""
    for r in range(slots.shape[0]):
        s = slots[r]
        for j in range(words.shape[1]):
            totals[s, j] += words[r, j]
