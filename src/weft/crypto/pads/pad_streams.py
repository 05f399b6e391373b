"""Pads: 64-bit words that only the holders of a cohort can compute.

F(S_c; label, kind, word) = AES_K(x ⊕ S_c) ⊕ S_c, where x names label, kind and word, K is the
run's key and S_c the cohort's (whitening as in DESX and XTS). Whoever lacks K, the coordinator,
faces AES-256; a party that has K but does not hold the cohort faces the Even–Mansour cipher,
whose 128-bit key S_c takes 2^128 / (blocks seen) work to find.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.crypto.ciphers.block_format import Carried, Labels, Where, named
from weft.crypto.ciphers.chunks import MODULUS
from weft.crypto.pads.pad_ids import SIGN
from weft.crypto.pads.pad_kernels import add_pads, hide_words, multipliers, show_words, sum_residues
from weft.crypto.primitives.aes import expand_key
from weft.crypto.secrets import Secret
from weft.errors import ProtocolError

Words = NDArray[np.uint64]
Slots = NDArray[np.int32]
Floats = NDArray[np.float64]
Number = TypeVar("Number", np.uint32, np.uint64)

_NO_SLOTS = np.zeros(0, np.int32)
_NO_LABELS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.uint32)


class Streams:
    """The pads of one party along one axis.

    Parameters
    ----------
    key
        The run's key, 32 bytes.
    seeds
        16 bytes per shared cohort.
    start
        First local slot of each shared cohort, and where the last one ends.
    """

    def __init__(self, key: Secret, seeds: NDArray[np.uint8], start: NDArray[np.int64]) -> None:
        self._keys = expand_key(key.reveal())
        self.start = start
        self.cohorts = len(start) - 1
        sizes = np.diff(start)
        self.cohort_of = np.repeat(np.arange(self.cohorts, dtype=np.int32), sizes)
        # One table for the compiled loops: seed, factor, its inverse, first slot.
        self._book = np.zeros((self.cohorts, 5), np.uint64)
        self._book[:, :2] = np.ascontiguousarray(seeds).view(np.uint64).reshape(-1, 2)
        self._book[:, 4] = start[:-1]
        multipliers(self._book, self._keys)

    def __repr__(self) -> str:
        return f"Streams({self.cohorts} cohorts)"

    def __reduce__(self) -> Any:
        raise TypeError("pads are not to be pickled: they hold keys")

    def hide(
        self,
        kind: int,
        slots: Slots | None,
        values: NDArray[np.int64],
        label: int,
        minus: Labels = _NO_LABELS,
        tails: Labels = _NO_LABELS,
    ) -> tuple[Words, int]:
        """Values times the cohort's factor, plus the pad of ``label``, less the one before it.

        ``minus`` has a label per cohort, or none for nothing to take off; where it is zero, this
        party leads and takes off what ``tails`` says for the slot. Returns also whether a mark
        stands for several labels (1), which are then left on, or is not older than ``label`` (2).
        """
        out = np.empty(values.shape, np.uint64)
        status = hide_words(
            out,
            values,
            _NO_SLOTS if slots is None else slots,
            self.cohort_of,
            self._book,
            self._keys,
            kind,
            label,
            minus,
            tails,
        )
        return out, status

    def add(
        self, words: Words, kind: int, position: int, slot: int, labels: tuple[int, ...]
    ) -> None:
        """Add the pads of signed labels to the words at one position."""
        signed = np.array(labels, np.uint64)
        add_pads(words, position, slot, self.cohort_of, self._book, self._keys, kind, signed)

    def show(
        self,
        kind: int,
        slots: Slots | None,
        words: Words,
        carried: Carried,
        since: int,
        unit: float,
        where: Where,
    ) -> Floats:
        """The inverse of :meth:`hide` for totals, times ``unit``; each slot is checked."""
        out = np.empty(words.shape, np.float64)
        lengths, counts, labels = carried
        if lengths is None and len(labels) != self.cohorts:
            raise ProtocolError(f"{named(where)} names the pads of other cohorts than it covers")
        status = show_words(
            out,
            _read_only(words),
            _NO_SLOTS if slots is None else slots,
            self.cohort_of,
            self._book,
            self._keys,
            kind,
            _read_only(_NO_COUNTS if lengths is None else lengths),
            _read_only(_NO_COUNTS if counts is None else counts),
            _read_only(labels),
            lengths is None,
            since,
            unit,
        )
        if status:
            _explain(status, len(words), named(where))
        return out

    def residues(self, kind: int, width: int, labels: Labels) -> Words:
        """Sums of pads modulo :data:`weft.crypto.ciphers.chunks.MODULUS`, at all slots.

        ``labels`` has a row per pad. A block of 128 bits gives one pad, so that reducing it
        leaves no bias to speak of.
        """
        out = np.zeros((labels.shape[1], width), np.uint64)
        rows = np.ascontiguousarray(labels)
        sum_residues(out, rows, self.cohort_of, self._book, self._keys, kind, MODULUS)
        return out


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    """A view that cannot be written to: loops are compiled once for these, once for others."""
    view = array.view()
    view.flags.writeable = False
    return view


def _explain(status: int, slots: int, where: str) -> None:
    if status == -1:
        raise ProtocolError(f"{where} names the pads of another number of slots than {slots}")
    if status == -2:
        raise ProtocolError(
            f"{where} is older than this party's own contribution: it was sent before, or leaves "
            "something out"
        )
    raise ProtocolError(
        f"{where} fails its check at the {status}. of {slots} slots: values were changed, left "
        "out or added twice on their way; the run stops"
    )


def signed_off(label: int) -> int:
    """A label that is to be taken off instead of put on, and the reverse."""
    return label ^ int(SIGN)
