"""Whether a cipher from outside hides anything, before any party sends a word under it.

What is tried here finds a cipher that does nothing, or always the same. That one hides well is
nothing that a probe can show: it stays its author's word.
"""

from __future__ import annotations

import numpy as np

from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.ciphers.block_format import (
    Block,
    Carried,
    pack_block,
    pad_id_of,
    read_block,
    words_of,
)
from weft.crypto.ciphers.cipher_arguments_and_results import Incoming, Integers, Outgoing
from weft.crypto.coordinator_adder import Adder, Part
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, ProtocolError
from weft.protocol.shared_fields import PadIds, PadLinks, SumRequest

#: First slots of two cohorts, and where the second one ends.
_START = np.array([0, 40, 64])
_COHORTS, _WIDTH = len(_START) - 1, 2
_SHAPE = (int(_START[-1]), _WIDTH)
#: The same every time, so that a cipher is refused everywhere or nowhere.
_KEYS = [Secret(bytes(range(first, first + 32))) for first in (1, 101)]
_SEEDS = [
    np.arange(first, first + 16 * _COHORTS, dtype=np.uint8).reshape(_COHORTS, 16)
    for first in (3, 60, 120, 180)
]
#: Of fair coins, one count in 10^15 is so many deviations off.
_DEVIATIONS = 8.0
_WHERE = "its block"


def check_hiding(kind: type[Pad]) -> None:
    """Refuse a cipher that sends values as they are, uses pads again, or does not open its own."""
    try:
        _check_pads(kind)
        _check_opening(kind)
    except ProtocolError as error:
        raise ConfigError(f"cipher '{kind.name}' does not work: {error}") from None


def _check_pads(kind: type[Pad]) -> None:
    """Zeros show the pads themselves: no word may come again, and no bit be known."""
    zeros = np.zeros(_SHAPE, np.int64)
    pads = words_of(_sent(_member(kind), zeros), _WHERE)
    if not pads.any():
        raise _refused(kind, "hides nothing: zeros travel as zeros")
    if len(np.unique(pads)) < pads.size:
        raise _refused(kind, "uses a pad twice in one block")
    others = {
        "in another request": _sent(_member(kind), zeros, round_=2),
        "for another party": _sent(_member(kind, party=1), zeros),
        "when a run is resumed": _sent(_member(kind, epoch=1), zeros),
        "in a run with another key": _sent(_member(kind, key=1), zeros),
        "for cohorts with other seeds": _sent(_member(kind, seeds=2), zeros),
        "for another sum over samples": _sent(_member(kind), zeros, "delta"),
        "for sums over features": _sent(_member(kind), zeros, "v"),
    }
    every = [pads]
    for where, block in others.items():
        every.append(words_of(block, _WHERE))
        if np.isin(every[-1], pads).any():
            raise _refused(kind, f"uses the same pads {where}")
    together = np.concatenate(every).ravel()
    ones = (together[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).sum(axis=0)
    away = np.abs(ones - together.size / 2)
    if (away > _DEVIATIONS * np.sqrt(together.size) / 2).any():
        bit = int(away.argmax())
        raise _refused(kind, f"does not hide bit {bit}, which is nearly the same in all words")


def _check_opening(kind: type[Pad]) -> None:
    """The total of two parties, chained as in a run, is the sum of what they have."""
    first, second = _member(kind), _member(kind, party=1)
    rng = np.random.default_rng(0)
    mine, yours = (rng.integers(-(1 << 40), 1 << 40, _SHAPE) for _ in range(2))
    store, slots = Adder(first.name).store(*_SHAPE), np.arange(_SHAPE[0])
    for sent in (_sent(first, mine), _sent(second, yours, before=first.newest)):
        store.add([Part(memoryview(bytes(sent.body)), slots, "of a trial")])
    (body,) = store.take(slots, [len(slots)])
    carried = Carried(None, None, _per_cohort(second.newest))
    total = pack_block(first.name, "z", 0, pad_id_of(0, 2, 0), *_SHAPE, body, carried)
    for cipher in (first, second):
        cipher.begin(SumRequest(round=2))
        # What does not come out rightly does not have the tags of the sum.
        cipher.reveal(Incoming("z", None, *_SHAPE, total, since=cipher.newest))


def _member(
    kind: type[Pad], *, party: int = 0, epoch: int = 0, key: int = 0, seeds: int = 0
) -> Pad:
    """A party's half. It goes by the name of Weft's own, as headers do not know it yet."""
    cipher: Pad = type(kind.__name__, (kind,), {"name": Pad.name})()
    cipher.party, cipher.party_name, cipher.epoch = party, "of a trial", epoch
    rows, columns = (kind.streams(_KEYS[key], _SEEDS[seeds + axis], _START) for axis in (0, 1))
    cipher.take_streams(rows, columns)
    return cipher


def _sent(
    cipher: Pad, values: Integers, kind: str = "z", *, round_: int = 1, before: int = 0
) -> Block:
    """How values travel, with the pad of ``before`` taken off."""
    cipher.begin(SumRequest(round=round_))
    pads = PadLinks(chain=_per_cohort(before))
    return read_block(cipher.contribute(Outgoing(kind, None, values, pads)), _WHERE)


def _per_cohort(pad_id: int) -> PadIds:
    return np.full(_COHORTS, pad_id, np.uint64)


def _refused(kind: type[Pad], what: str) -> ConfigError:
    return ConfigError(f"cipher '{kind.name}' {what}; correct its streams")
