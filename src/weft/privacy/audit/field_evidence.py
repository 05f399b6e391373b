"""Evidence for an audit: what declarations say of a field, what bytes give away by themselves, and
whose slots a message names.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.crypto.ciphers.block_format import DEALT_CIPHERS, Block, words_of
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import SCALAR_BYTES, Field, Fields, Value, flat
from weft.protocol.field_visibility import Meaning
from weft.protocol.phase_with_request_and_reply import phase_named
from weft.protocol.recording_file import Direction


def fields_of(direction: Direction, phase: str) -> dict[str, Meaning]:
    """The fields that a message of a phase may have, beside those that mean the same in all."""
    return {
        name: field.meaning
        for name, field in _declared(direction, phase).items()
        if field.meaning is not None and not field.meaning.common
    }


def field_of(direction: Direction, phase: str, name: str) -> Field | None:
    """A declared field; None: the declarations do not know it."""
    return _declared(direction, phase).get(name)


def meaning_of(direction: Direction, phase: str, name: str) -> Meaning | None:
    """What a field says; None: the declarations do not know it."""
    field = field_of(direction, phase, name)
    return None if field is None else field.meaning


@cache
def _declared(direction: Direction, phase: str) -> dict[str, Field]:
    try:
        found = phase_named(phase)
    except ProtocolError:
        return {}
    return dict(flat(found.request if direction == "down" else found.reply))


#: Numbers in fixed point stay below this, encrypted words hardly ever do: one in 2^13.
_SMALL = np.uint64(1 << 50)
#: So many small words are no accident any more.
_SUSPICIOUS = 4
#: A masked scalar is this small once in 2^55.
_SMALL_SCALAR = 1 << 88
_SCALAR = SCALAR_BYTES
#: Axis of each kind of sum.
_AXIS = {"z": "rows", "alpha": "rows", "delta": "rows", "v": "columns"}


class Words:
    """Counts the words of blocks, and those of them that look like plain numbers."""

    def __init__(self) -> None:
        self._few = self._small = 0

    def readable(self, block: Block, *, total: bool) -> bool:
        """Whether most words of a block, or of many small blocks, look like plain numbers.

        Parameters
        ----------
        block
            Under a cipher that works on words; of others only the header can tell.
        total
            The coordinator's total, which is zero, and may be seen to be, where nobody has
            contributed yet.
        """
        if block.cipher in DEALT_CIPHERS:
            return False
        words = words_of(block, "a block").ravel()
        if total:
            words = words[words != 0]
            if len(words) and not block.carried.pad_ids.any():
                return True
        small = int((words + _SMALL < _SMALL + _SMALL).sum())
        if len(words) >= _SUSPICIOUS:
            return small >= _SUSPICIOUS and 2 * small > len(words)
        self._few += len(words)
        self._small += small
        return self._small >= _SUSPICIOUS and 2 * self._small > self._few


def is_masked(scalars: bytes) -> bool:
    """Whether scalars carry masks: none of them is as small as what masks hide."""
    for at in range(0, len(scalars), _SCALAR):
        value = int.from_bytes(scalars[at : at + _SCALAR], "big")
        if (value + _SMALL_SCALAR) % (1 << (8 * _SCALAR)) < 2 * _SMALL_SCALAR:
            return False
    return True


class Seats:
    """Which slots belong to which party, from the messages that matched them."""

    def __init__(self) -> None:
        self._tokens: dict[str, Fields] = {}
        self._shared: dict[str, dict[str, int]] = {}

    def take_tokens(self, party: str, reply: Fields) -> None:
        """A party announces what it holds."""
        self._tokens[party] = reply

    def take_seat(self, party: str, message: Fields) -> bool:
        """A party is told its slots; whether they stand for its own tokens, one by one."""
        view = {name[5:]: value for name, value in message.items() if name.startswith("view.")}
        counts = {"rows": "n_shared_rows", "columns": "n_shared_columns"}
        self._shared[party] = {axis: _whole(view.get(field)) for axis, field in counts.items()}
        tokens = self._tokens.pop(party, {})
        starts, columns = view.get("cohort_start"), view.get("column_cohort")
        if not isinstance(starts, np.ndarray) or not isinstance(columns, np.ndarray):
            return False
        sizes = np.bincount(columns) if len(columns) else columns
        bias = _whole(view.get("bias_slot"), -1)
        if 0 <= bias < len(columns):
            # Nobody has a token of the constant column.
            sizes[columns[bias]] -= 1
        return _own(tokens, view, "row", np.diff(starts)) and _own(tokens, view, "column", sizes)

    def shared(self, party: str, axis: str) -> int:
        """How many slots of an axis a party shares with others."""
        return self._shared.get(party, {}).get(axis, 0)

    def owns(self, party: str, block: Block, slots: Value | None) -> bool:
        """Whether a block is about slots of the party only."""
        shared = self.shared(party, _AXIS[block.kind])
        if slots is None:
            return block.slots <= shared
        if not isinstance(slots, np.ndarray) or slots.ndim != 1:
            return False
        # A cipher of whole chunks names slots that changed, and sends them with all others.
        if block.cipher not in DEALT_CIPHERS and len(slots) != block.slots:
            return False
        inside = bool(((slots >= 0) & (slots < shared)).all())
        return inside and len(np.unique(slots)) == len(slots)


def _own(tokens: Fields, view: Fields, axis: str, sizes: NDArray[Any]) -> bool:
    """Whether every cohort of a view has as many of the party's own tokens as slots."""
    told = tokens.get(f"{axis}s")
    counts = tokens.get(f"{axis}_counts")
    cohorts = view.get(f"tile_{axis}_cohorts.places")
    lengths = view.get(f"tile_{axis}_cohorts.lengths")
    if not isinstance(told, np.ndarray) or not isinstance(counts, np.ndarray):
        return False
    if not isinstance(cohorts, np.ndarray) or not isinstance(lengths, np.ndarray):
        return False
    if not np.array_equal(lengths, counts) or not len(told) == len(cohorts) == counts.sum():
        return False
    kept = cohorts >= 0
    pairs = np.array(sorted(set(zip(told[kept].tolist(), cohorts[kept].tolist(), strict=True))))
    if not len(pairs):
        return not sizes.any()
    # A token that lies in several tiles is of one cohort.
    if len(np.unique(pairs[:, 0])) < len(pairs) or pairs[:, 1].max() >= len(sizes):
        return False
    return bool((np.bincount(pairs[:, 1].astype(np.int64), minlength=len(sizes)) == sizes).all())


def _whole(value: Value | None, default: int = 0) -> int:
    return int(value) if isinstance(value, int | np.integer) else default
