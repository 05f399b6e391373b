"""Ciphers that put padded words into ciphertexts of a homomorphic scheme.

All parties share the scheme's key, and the coordinator has none. The pads underneath bind every
word to its cohort and request: a block that goes astray is noise to a party that does not hold
its cohorts, and what was left out or sent again does not pass the check.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import shake_256
from typing import Any, TypeVar

import numba
import numpy as np
from msgspec.structs import replace

from weft.array_types import Flags, Floats, Ints
from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.ciphers.bfv_by_seal import BfvSecret
from weft.crypto.ciphers.block_format import KIND_CODES, SIGN, WordBlock, tag_bytes
from weft.crypto.ciphers.chunk_layout import CHECKS, MODULUS, VALUES, chunks_of
from weft.crypto.ciphers.cipher_arguments_and_results import (
    Incoming,
    Integers,
    Outgoing,
    check_older,
    linked,
)
from weft.crypto.ciphers.paillier_scheme import PaillierSecret
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.ciphers.seal_context_and_file_layouts import SLOTS
from weft.crypto.pads.cohort_mask_neighbours import MaskRing
from weft.crypto.pads.pad_kernels import newest_per_slot
from weft.crypto.pads.pad_streams import Streams, Words, failed_check
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError
from weft.numba_options import OUTER
from weft.protocol.shared_fields import PadIds, PadLinks

T = TypeVar("T")
#: Totals are below 2^48, but for rounding (weft/crypto/fixed_point.py).
_LARGEST = (1 << 48) + (1 << 17)


class PaillierCipher(Pad):
    """``paillier``: every padded word in a Paillier ciphertext of its own."""

    name = "paillier"

    def __init__(self) -> None:
        super().__init__()
        self._key: PaillierSecret | None = None

    def take_key(self, key: PaillierSecret) -> None:
        self._key = key

    def _close(self, words: Words) -> bytes:
        return _known(self._key).seal(words.ravel())

    def _words(self, total: Incoming) -> WordBlock:
        block, count, width = self._read(total), total.n_slots, total.width
        end = len(block.body) - tag_bytes(self.name, count)
        try:
            words = _known(self._key).open(bytes(block.body[: max(end, 0)]), count * width)
        except ProtocolError as error:
            raise ProtocolError(f"{self.where(total.kind)} cannot be opened: {error}") from None
        tags = np.frombuffer(block.body[end:], np.uint64)
        return WordBlock(block.carried, words.reshape(count, width), tags)


class _Chunking:
    """How this party's values of one axis and width lie in chunks, and the keys of their checks.

    Parameters
    ----------
    places
        Number of each of this party's shared slots among all shared slots of the axis.
    """

    def __init__(self, places: Ints, width: int, secret: Secret, axis: str) -> None:
        self.chunks = chunks_of(places, width)
        number = (places[:, None] * width + np.arange(width)).ravel()
        self.row = np.searchsorted(self.chunks, number // VALUES)
        self.column = number % VALUES
        name = f"{axis} {width}"
        start = CHECKS * np.arange(len(self.chunks) + 1)
        seeds = [
            shake_256(secret.derive("weft check", f"{name} {c}".encode()).reveal()).digest(16)
            for c in self.chunks.tolist()
        ]
        bytes_ = np.frombuffer(b"".join(seeds), np.uint8).reshape(-1, 16)
        key = secret.derive("weft check pads", name.encode())
        self.streams = Streams(key, bytes_, start)
        keys = shake_256(secret.derive("weft check keys", name.encode()).reveal())
        drawn = np.frombuffer(keys.digest(2 * CHECKS * VALUES), np.uint16)
        #: 12 bits each, so that a product with a word fits 62.
        self.keys = (drawn & 0xFFF).reshape(CHECKS, VALUES).astype(np.uint64)


class BfvCipher(Cipher):
    """``bfv``: padded words modulo a prime, 4,096 of them a ciphertext, and six check words.

    A contribution covers all chunks in which the party has slots. The check words are keyed sums
    of the words of a chunk, under a chain of pads of their own: a chunk of totals that somebody
    changed, sent again or left a contribution out of fails with all but 2^-72 probability.
    """

    name = "bfv"

    def __init__(self) -> None:
        super().__init__()
        self._key: BfvSecret | None = None
        self._secret: Secret | None = None
        self._streams: dict[str, Streams] = {}
        self._places: dict[str, Ints] = {}
        self._known: dict[tuple[str, int], _Chunking] = {}

    def take_key(self, key: BfvSecret) -> None:
        self._key = key

    def take_streams(self, rows: Streams, columns: Streams) -> None:
        """The pads of this party's row and column cohorts."""
        self._streams = {"rows": rows, "columns": columns}

    def take_places(self, secret: Secret, rows: Ints, columns: Ints) -> None:
        """Numbers of this party's shared slots, and the secret behind the checks."""
        self._secret = secret
        self._places = {"rows": rows, "columns": columns}

    def _chunking(self, kind: str, width: int) -> _Chunking:
        axis = "columns" if kind == "v" else "rows"
        if (axis, width) not in self._known:
            places = self._places[axis]
            self._known[axis, width] = _Chunking(places, width, _known(self._secret), axis)
        return self._known[axis, width]

    def _axis(self, kind: str) -> Streams:
        return self._streams["columns" if kind == "v" else "rows"]

    # ── sending ───────────────────────────────────────────────────────────────────────────

    def _contribute(self, sent: Outgoing) -> bytes:
        return self._seal(sent, None, masked=True)

    def _propose(self, sent: Outgoing) -> bytes:
        return self._seal(sent, None)

    def _post(self, sent: Outgoing, old: Callable[[], Integers], cohorts: Flags | None) -> bytes:
        count = self._axis(sent.kind).cohorts
        chosen = np.ones(count, bool) if cohorts is None else cohorts
        if len(chosen) < count:
            raise ProtocolError("a request does not say for which cohorts to post dual variables")
        return self._seal(replace(sent, values=sent.values - old()), chosen[:count])

    def _seal(self, sent: Outgoing, speaks: Flags | None, *, masked: bool = False) -> bytes:
        """All shared slots, zero where nothing is named; pads in the cohorts spoken for."""
        kind, slots, values, pads = sent.kind, sent.slots, sent.values, sent.pads
        streams = self._axis(kind)
        whole = values
        if slots is not None:
            whole = np.zeros((len(streams.cohort_of), values.shape[1]), np.int64)
            whole[slots] = values
        width = whole.shape[1]
        off, chunking = pads or PadLinks(), self._chunking(kind, width)
        chain = off.chain
        rings: tuple[MaskRing, ...] = ()
        check_rings: tuple[MaskRing, ...] = ()
        if masked:
            checked = len(chunking.chunks), chunking.streams.encrypt
            joined = self._join(sent, streams.cohorts, streams.encrypt, checked)
            chain, (rings, check_rings) = joined.minus, joined.rings
        pad_ids = self._linked(chain, off.chain_sets, kind, streams.cohorts, self._base)
        if speaks is not None:
            pad_ids[:, ~speaks] = 0
        words = streams.residues(KIND_CODES[kind], width, pad_ids[:, streams.cohort_of])
        words = (words + (whole % MODULUS).astype(np.uint64)) % np.uint64(MODULUS)
        for ring in rings:
            masks = streams.mask_residues(KIND_CODES[kind], width, ring)
            words = (words + masks) % np.uint64(MODULUS)
        chunks = np.zeros((len(chunking.chunks), SLOTS), np.uint64)
        chunks[chunking.row, chunking.column] = words.ravel()
        links = self._linked(off.checks, off.checks_sets, kind, len(chunking.chunks))
        hidden = self._check_pads(chunking, kind, links)
        for ring in check_rings:
            masks = chunking.streams.mask_residues(KIND_CODES[kind], 1, ring)
            hidden = (hidden + masks.reshape(-1, CHECKS)) % np.uint64(MODULUS)
        checks = (_tags(chunks, chunking.keys, MODULUS) + hidden) % np.uint64(MODULUS)
        return self._pack(kind, whole.shape, checks.tobytes() + _known(self._key).seal(chunks))

    def _linked(
        self, off: PadIds | None, sets: PadIds | None, kind: str, units: int, since: int = 0
    ) -> PadIds:
        """Rows of pad ids for links of a chain: the new pad on, what was there off.

        Ids not below ``since`` are those of others in the same request.
        """
        minus = linked(off, kind, units)
        knots = self.knots(sets, kind)
        others = (minus & SIGN == 0) & (minus >= np.uint64(since)) & (minus != self.pad_id)
        check_older(np.where(others & bool(since), np.uint64(0), minus), knots, self.pad_id, kind)
        rows = [np.full(units, self.pad_id, np.uint64), np.where(minus == 0, minus, minus | SIGN)]
        tied = (minus & SIGN) != 0
        rows[1][tied] = 0
        for position in np.flatnonzero(tied).tolist():
            for depth, part in enumerate(knots[int(minus[position]) & ~int(SIGN)], 2):
                if depth == len(rows):
                    rows.append(np.zeros(units, np.uint64))
                rows[depth][position] = np.uint64(part) ^ SIGN
        return np.stack(rows)

    def _check_pads(self, chunking: _Chunking, kind: str, pad_ids: PadIds) -> Words:
        every = np.repeat(pad_ids, CHECKS, axis=1)
        return chunking.streams.residues(KIND_CODES[kind], 1, every).reshape(-1, CHECKS)

    # ── receiving ─────────────────────────────────────────────────────────────────────────

    def _reveal(self, total: Incoming) -> Floats:
        kind, slots, width = total.kind, total.slots, total.width
        since, until, unit, last = total.since, total.until, total.unit, total.newest
        streams = self._axis(kind)
        block = self._read(replace(total, n_slots=len(streams.cohort_of)))
        where = self.where(kind)
        chunking = self._chunking(kind, width)
        links, checks, body = _read_prefix(block.body, len(chunking.chunks), where)
        try:
            chunks = _known(self._key).open(body, len(chunking.chunks))
        except ProtocolError as error:
            raise ProtocolError(f"{where} cannot be opened: {error}") from None
        pads = self._check_pads(chunking, kind, links)
        expected = (_tags(chunks, chunking.keys, MODULUS) + pads) % np.uint64(MODULUS)
        if (expected != checks).any():
            raise failed_check(where)
        pad_ids = block.carried.per_slot(len(streams.cohort_of), streams.cohort_of, where)
        # Chunks come whole; what is not asked for may be older, or was never told.
        chosen = slice(None) if slots is None else slots
        newest = newest_per_slot(np.ascontiguousarray(pad_ids), True)[chosen]
        old = last is not None and bool((newest < last[chosen]).any())
        new = bool((newest >= np.uint64(until)).any())
        if old or new or int(newest.min(initial=since)) < since:
            raise ProtocolError(
                f"{where} is older than this party's own contribution: it was sent before, or "
                "leaves something out"
            )
        if last is not None:
            last[chosen] = newest
        pads = streams.residues(KIND_CODES[kind], width, pad_ids)
        words = chunks[chunking.row, chunking.column].reshape(-1, width)
        rest = ((words + np.uint64(MODULUS) - pads) % np.uint64(MODULUS)).astype(np.int64)
        values = np.where(rest > MODULUS // 2, rest - MODULUS, rest)
        # Pads that were taken off by other pad ids than they were put on leave noise.
        if (np.abs(values) > _LARGEST).any():
            raise failed_check(where)
        opened: Floats = np.multiply(values[chosen], unit, dtype=np.float64)
        return opened


def _read_prefix(body: memoryview, chunks: int, where: str) -> tuple[PadIds, Words, bytes]:
    """Pad ids under the check words, a row a pad; the check words; the ciphertexts."""
    if len(body) < 4 * chunks:
        raise ProtocolError(f"{where} is truncated")
    counts = np.frombuffer(body, np.uint32, chunks).astype(np.int64)
    total = int(counts.sum())
    end = 4 * chunks + struct.calcsize("<Q") * total
    behind = end + 8 * CHECKS * chunks
    if len(body) < behind:
        raise ProtocolError(f"{where} is truncated")
    flat = np.frombuffer(body, np.uint64, total, 4 * chunks)
    rows = np.zeros((max(1, int(counts.max(initial=0))), chunks), np.uint64)
    begin = np.cumsum(counts) - counts
    for depth in range(len(rows)):
        deep = counts > depth
        rows[depth, deep] = flat[begin[deep] + depth]
    checks = np.frombuffer(bytes(body[end:behind]), np.uint64).reshape(chunks, CHECKS)
    return rows, checks, bytes(body[behind:])


def _known(key: T | None) -> T:
    if key is None:
        raise ProtocolError("a block came before the keys")
    return key


@numba.njit(**OUTER)
def _tags(chunks: Any, keys: Any, modulus: int) -> Any:
    """Keyed sums of the words of every chunk."""
    out = np.zeros((chunks.shape[0], keys.shape[0]), np.uint64)
    prime = np.uint64(modulus)
    for c in range(chunks.shape[0]):
        for k in range(keys.shape[0]):
            total = np.uint64(0)
            for i in range(keys.shape[1]):
                total = (total + chunks[c, i] * keys[k, i]) % prime
            out[c, k] = total
    return out
