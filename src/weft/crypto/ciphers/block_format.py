"""One byte string per block: a versioned header, the pad ids under it, and the encrypted words.

The header names cipher, kind of sum, key, size and pad id, so that a block of another run, kind
or time is refused before anything of it is used. Whoever opens a total needs the pad ids of the
pads that it carries; they follow the header, per slot (in runs) or per cohort.

A pad id is the number of one contribution, never used twice: it says in which epoch of a run, in
answer to which request and by which party something was encrypted: epoch · 2^52 + round · 2^20 +
party. Pad ids of later requests are larger, and so are those of later parties within a request; a
chain of pads can therefore only point backwards. What a total carries at one place is a *mark*: a
pad id, or a *knot* of several signed pad ids (`Knots`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, ProtocolError
from weft.guards.privacy_terms import admit_cipher
from weft.protocol.shared_fields import PadIds

#: What to call a block in an error; a function where the words cost more than the block.
Where = str | Callable[[], str]

#: magic, version, cipher, kind, flags, width, key, count, runs, pad ids, pad id
_HEADER = struct.Struct("<2sBBBBHIIIIQ")
_MAGIC, _VERSION = b"Wb", 1
_PER_COHORT, _SINGLE = 1, 2
HEAD = _HEADER.size
#: A table of pad ids larger than this would be an attack on memory.
_MOST_PADS = 1 << 20


def named(where: Where) -> str:
    """A block in words."""
    return where if isinstance(where, str) else where()


def _bad(where: Where, what: str) -> ProtocolError:
    return ProtocolError(f"{named(where)} {what}")


CIPHER_CODES = {"plain": 1, "pad": 2, "bfv": 3, "paillier": 4}
#: Weft's own.
CIPHERS = tuple(CIPHER_CODES)
#: Ciphers under a key that one party deals to all; their blocks are no 64-bit words.
DEALT_CIPHERS = ("bfv", "paillier")
#: Those of them whose blocks are added and forwarded as a whole.
WHOLE_CIPHERS = ("bfv",)
#: Bytes of the tag that follows the words of a block for every slot.
TAG = 8
#: Codes below are Weft's own.
_FIRST_FOREIGN = 128
KIND_CODES = {"z": 1, "v": 2, "alpha": 3, "delta": 4}


class Carried(NamedTuple):
    """Ids of the pads in a block of totals.

    Attributes
    ----------
    lengths
        Slots per run; None: one run per cohort of the receiver.
    counts
        Pad ids per run; None: one each.
    pad_ids
        Run by run; zero is no pad, the sign bit marks a pad that was taken off.
    """

    lengths: NDArray[np.uint32] | None
    counts: NDArray[np.uint32] | None
    pad_ids: PadIds

    def per_slot(self, slots: int, cohort_of: NDArray[np.int32], where: str) -> PadIds:
        """A row of pad ids per pad, a column per slot."""
        if self.lengths is None:
            if len(self.pad_ids) <= int(cohort_of.max(initial=-1)) or len(cohort_of) != slots:
                raise ProtocolError(
                    f"{named(where)} names the pads of other cohorts than it covers"
                )
            return self.pad_ids[cohort_of][None]
        lengths = self.lengths.astype(np.int64)
        if int(lengths.sum()) != slots:
            raise ProtocolError(
                f"{named(where)} names the pads of {lengths.sum()} slots, not {slots}"
            )
        if self.counts is None:
            return np.repeat(self.pad_ids, lengths)[None]
        counts = self.counts.astype(np.int64)
        if int(counts.max(initial=0)) * slots > _MOST_PADS:
            raise _bad(where, "carries more pads than any run leaves open")
        begin = np.cumsum(counts) - counts
        rows = np.zeros((int(counts.max(initial=1)) or 1, slots), np.uint64)
        for depth in range(len(rows)):
            deep = counts > depth
            column = np.zeros(len(counts), np.uint64)
            column[deep] = self.pad_ids[begin[deep] + depth]
            rows[depth] = np.repeat(column, lengths)
        return rows


NOTHING = Carried(np.zeros(0, np.uint32), None, np.zeros(0, np.uint64))


class Block(NamedTuple):
    """A block that was read: its header, the pad ids in it, and its body."""

    cipher: str
    kind: str
    width: int
    key: int
    slots: int
    pad_id: int
    carried: Carried
    body: memoryview


def pack_block(
    cipher: str,
    kind: str,
    key: int,
    pad_id: int,
    count: int,
    width: int,
    body: bytes,
    carried: Carried = NOTHING,
) -> bytes:
    """A block as bytes."""
    if carried is NOTHING:
        return head_of(cipher, kind, key, pad_id, count, width) + body
    flags = runs = 0
    parts = []
    if carried.lengths is None:
        flags |= _PER_COHORT
    else:
        runs = len(carried.lengths)
        parts.append(carried.lengths.tobytes())
    if carried.counts is None:
        flags |= _SINGLE
    else:
        parts.append(carried.counts.tobytes())
    pad_ids = carried.pad_ids
    head = _HEADER.pack(
        _MAGIC, _VERSION, CIPHER_CODES[cipher], KIND_CODES[kind], flags, width, key, count, runs,
        len(pad_ids), pad_id,
    )  # fmt: skip
    return b"".join((head, *parts, pad_ids.tobytes(), body))


def head_of(cipher: str, kind: str, key: int, pad_id: int, count: int, width: int) -> bytes:
    """The header of a block that carries no pad ids but its own."""
    return _HEADER.pack(
        _MAGIC, _VERSION, CIPHER_CODES[cipher], KIND_CODES[kind], _SINGLE, width, key, count, 0, 0,
        pad_id,
    )  # fmt: skip


#: Where slots and pad id stand in a header.
_OWN_FIELDS = np.dtype(
    {"names": ["slots", "pad_id"], "formats": ["<u4", "<u8"], "offsets": [12, 24], "itemsize": HEAD}
)


def heads_of(
    cipher: str, kind: str, key: int, pad_ids: list[int], counts: list[int], width: int
) -> bytes:
    """The headers of many such blocks, one behind the other."""
    heads = bytearray(head_of(cipher, kind, key, 0, 0, width) * len(counts))
    own = np.frombuffer(heads, _OWN_FIELDS)
    own["slots"], own["pad_id"] = counts, pad_ids
    return bytes(heads)


_CIPHERS = {code: name for name, code in CIPHER_CODES.items()}
_KINDS = {code: name for name, code in KIND_CODES.items()}


def check_cipher(name: str) -> None:
    """Refuse a cipher that does not exist."""
    if name not in CIPHER_CODES:
        known = ", ".join(sorted(CIPHER_CODES))
        raise ConfigError(f"unknown cipher '{name}'; choose one of {known}")


def name_cipher(name: str, code: int) -> None:
    """Let headers name a cipher from outside; its code is the same at all parties."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"'{name}' is no name for a cipher; use small letters, digits and _")
    if not _FIRST_FOREIGN <= code < 256:
        raise ConfigError(f"cipher '{name}' has code {code}; give {_FIRST_FOREIGN} to 255")
    if name in CIPHER_CODES or code in _CIPHERS:
        taken = _CIPHERS.get(code, name)
        raise ConfigError(f"there is a cipher '{taken}' already; choose another name and code")
    CIPHER_CODES[name] = code
    _CIPHERS[code] = name
    admit_cipher(name)


def read_block(packed: object, where: Where) -> Block:
    """The inverse of :func:`pack_block`; ``where`` names sender, block and iteration."""
    if type(packed) is not bytes or len(packed) < _HEADER.size:
        raise _bad(where, "is no block, or a truncated one")
    magic, version, cipher, kind, flags, width, key, count, runs, pad_ids, pad_id = (
        _HEADER.unpack_from(packed)
    )
    if magic != _MAGIC or cipher not in _CIPHERS or kind not in _KINDS:
        raise _bad(where, "is no block of Weft")
    if version != _VERSION:
        raise ProtocolError(
            f"{named(where)} has version {version}, not {_VERSION}; update both sides"
        )
    if flags not in (0, _SINGLE, _PER_COHORT | _SINGLE) or (flags & _PER_COHORT and runs):
        raise _bad(where, "has flags that this version does not know")
    at = HEAD
    # Lengths of runs unless per cohort, counts of pads unless one each.
    need = 8 * pad_ids + 4 * runs * ((not flags & _PER_COHORT) + (not flags & _SINGLE))
    if len(packed) < at + need:
        raise _bad(where, "is truncated")
    lengths = counts = None
    if not flags & _PER_COHORT:
        lengths = np.frombuffer(packed, np.uint32, runs, at)
        at += 4 * runs
        expected = runs
        if not flags & _SINGLE:
            counts = np.frombuffer(packed, np.uint32, runs, at)
            at += 4 * runs
            expected = int(counts.sum(dtype=np.int64))
        if pad_ids != expected:
            raise _bad(where, f"has {pad_ids} pad ids for {expected} pads")
    found = np.frombuffer(packed, np.uint64, pad_ids, at)
    return Block(
        _CIPHERS[cipher],
        _KINDS[kind],
        width,
        key,
        count,
        pad_id,
        Carried(lengths, counts, found),
        memoryview(packed)[at + 8 * pad_ids :],
    )


def tag_bytes(cipher: str, slots: int) -> int:
    """Bytes of the tags behind the words of a block."""
    return 0 if cipher == "plain" or cipher in WHOLE_CIPHERS else TAG * slots


class WordBlock(NamedTuple):
    """Pad ids, words (a row per slot) and tags of a block."""

    carried: Carried
    words: NDArray[np.uint64]
    tags: NDArray[np.uint64]


def quick_words(
    packed: object, cipher: str, kind: str, key: int, pad_id: int, count: int, width: int
) -> WordBlock | None:
    """A block that is just what was asked for; None: read it with care."""
    if type(packed) is not bytes or len(packed) < HEAD:
        return None
    head = _HEADER.unpack_from(packed)
    flags, runs, pad_ids = head[4], head[8], head[9]
    expected = (_MAGIC, _VERSION, CIPHER_CODES[cipher], KIND_CODES[kind], flags, width, key, count)
    if head[:8] != expected or head[10] != pad_id or flags not in (_SINGLE, _PER_COHORT | _SINGLE):
        return None
    size = 8 * count * width + tag_bytes(cipher, count)
    at = HEAD + 4 * runs
    if len(packed) != at + 8 * pad_ids + size or (flags & _PER_COHORT and runs):
        return None
    if not runs and not pad_ids:
        return _cut(NOTHING, np.frombuffer(packed, np.uint64, size // 8, HEAD), count, width)
    lengths = None
    if flags == _SINGLE:
        if pad_ids != runs:
            return None
        lengths = np.frombuffer(packed, np.uint32, runs, HEAD)
    words = np.frombuffer(packed, np.uint64, pad_ids + size // 8, at)
    return _cut(Carried(lengths, None, words[:pad_ids]), words[pad_ids:], count, width)


def _cut(carried: Carried, numbers: NDArray[np.uint64], count: int, width: int) -> WordBlock:
    end = count * width
    return WordBlock(carried, numbers[:end].reshape(count, width), numbers[end:])


def word_block(block: Block, where: Where) -> WordBlock:
    """The body of a block as 64-bit words, and the tags behind them."""
    expected = 8 * block.slots * block.width + tag_bytes(block.cipher, block.slots)
    if len(block.body) != expected:
        raise ProtocolError(
            f"{named(where)} has {len(block.body)} bytes for {block.slots} slots of {block.width}"
        )
    numbers = np.frombuffer(block.body, np.uint64)
    return _cut(block.carried, numbers, block.slots, block.width)


def words_of(block: Block, where: Where) -> NDArray[np.uint64]:
    """The words of a block, one row per slot."""
    return word_block(block, where).words


# ── ids of pads ─────────────────────────────────────────────────────────────────────────


MOST_PARTIES = 1 << 20
MOST_ROUNDS = 1 << 32
MOST_EPOCHS = 1 << 11
#: Set in a mark that stands for several pad ids, and in a pad id that is taken off.
SIGN = np.uint64(1 << 63)
#: The bits of a pad id itself.
ID_BITS = np.uint64((1 << 63) - 1)


def pad_id_of(epoch: int, round_: int, party: int) -> int:
    """The pad id of a party's contribution."""
    if not (0 <= epoch < MOST_EPOCHS and 0 < round_ < MOST_ROUNDS and 0 <= party < MOST_PARTIES):
        raise ProtocolError(
            f"epoch {epoch}, request {round_} or party {party} is beyond what a run can count; "
            "start a new run, with new keys"
        )
    return (epoch << 52) | (round_ << 20) | party


def party_of(pad_id: int) -> int:
    """The party of a pad id."""
    return pad_id & (MOST_PARTIES - 1)


class Knots:
    """Marks that stand for several signed pad ids."""

    def __init__(self) -> None:
        self._table: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}

    def mark(self, pad_ids: Iterable[int]) -> int:
        """One mark for a set of signed pad ids: the pad id itself, zero, or a knot."""
        found = tuple(sorted(pad_ids))
        if not found:
            return 0
        if len(found) == 1 and not found[0] & int(SIGN):
            return found[0]
        if found not in self._known:
            self._known[found] = len(self._table)
            self._table.append(found)
        return int(SIGN) | self._known[found]

    def pad_ids(self, mark: int) -> tuple[int, ...]:
        """The signed pad ids of a mark."""
        if not mark & int(SIGN):
            return (mark,) if mark else ()
        return self._table[mark & ~int(SIGN)]

    def rewrite(self, marks: PadIds) -> tuple[PadIds, NDArray[np.uint64] | None]:
        """Marks for a message: knots numbered from zero, and their table (None: no knots)."""
        if not self._table:
            return marks, None
        several = (marks & SIGN) != 0
        if not several.any():
            return marks, None
        names, inverse = np.unique(marks[several], return_inverse=True)
        out = marks.copy()
        out[several] = SIGN | inverse.astype(np.uint64)
        flat: list[int] = []
        for name in names.tolist():
            pad_ids = self.pad_ids(name)
            flat += [len(pad_ids), *pad_ids]
        return out, np.array(flat, np.uint64)

    def carried(
        self, lengths: NDArray[np.uint32] | None, marks: PadIds, sizes: NDArray[np.int64]
    ) -> Carried:
        """Marks of runs (of cohorts with ``sizes`` where ``lengths`` is None), for a block."""
        if not self._table or not ((marks & SIGN) != 0).any():
            return Carried(lengths, None, marks)
        lists = [self.pad_ids(mark) for mark in marks.tolist()]
        return Carried(
            sizes.astype(np.uint32) if lengths is None else lengths,
            np.array([len(pad_ids) for pad_ids in lists], np.uint32),
            np.array([pad_id for pad_ids in lists for pad_id in pad_ids], np.uint64),
        )

    def state(self) -> NDArray[np.uint64]:
        flat = [value for pad_ids in self._table for value in (len(pad_ids), *pad_ids)]
        return np.array(flat, np.uint64)

    def restore(self, state: NDArray[np.uint64]) -> None:
        self._table = read_knots(state)
        self._known = {pad_ids: i for i, pad_ids in enumerate(self._table)}


def read_knots(flat: NDArray[np.uint64]) -> list[tuple[int, ...]]:
    """A table of knots from its flat form."""
    table, at, values = [], 0, flat.tolist()
    while at < len(values):
        count = values[at]
        table.append(tuple(values[at + 1 : at + 1 + count]))
        at += 1 + count
    return table
