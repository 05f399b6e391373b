"""Labels: the number of one contribution, never used twice.

A label says in which epoch of a run, in answer to which request and by which party something
was encrypted: epoch · 2^52 + round · 2^20 + party. Labels of later requests are larger, and so
are those of later parties within a request; a chain of pads can therefore only point backwards.
"""

from __future__ import annotations

import numpy as np

from weft.errors import ProtocolError

MOST_PARTIES = 1 << 20
MOST_ROUNDS = 1 << 32
MOST_EPOCHS = 1 << 11
#: Set in a mark that stands for several labels, and in a label that is taken off.
SIGN = np.uint64(1 << 63)


def label_of(epoch: int, round_: int, party: int) -> int:
    """The label of a party's contribution."""
    if not (0 <= epoch < MOST_EPOCHS and 0 < round_ < MOST_ROUNDS and 0 <= party < MOST_PARTIES):
        raise ProtocolError(
            f"epoch {epoch}, request {round_} or party {party} is beyond what a run can count; "
            "start a new run, with new keys"
        )
    return (epoch << 52) | (round_ << 20) | party


def party_of(label: int) -> int:
    """The party of a label."""
    return label & (MOST_PARTIES - 1)


def round_of(label: int) -> int:
    """Epoch and request of a label, as one number that grows."""
    return (label & ~int(SIGN)) >> 20
