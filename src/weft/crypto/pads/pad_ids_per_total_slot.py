"""What a party knows of the pads under single slots of a running total."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots
from weft.crypto.ciphers.block_format import SIGN
from weft.crypto.pads.pad_ids_in_totals import learn_marks
from weft.protocol.shared_fields import PadIds


@dataclass
class Tails:
    """What a party knows of the pads under a running total, per local slot.

    Attributes
    ----------
    own
        The least pad id of the request in which this party contributed last; zero: of none.
    """

    marks: PadIds
    own: PadIds
    knots: list[tuple[int, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, slots: int) -> Tails:
        return cls(np.zeros(slots, np.uint64), np.zeros(slots, np.uint64))

    def learn(
        self,
        slots: Slots,
        lengths: NDArray[np.uint32],
        marks: PadIds,
        knots: list[tuple[int, ...]],
    ) -> bool:
        """Take over runs of marks that changed; false where they do not fit the slots.

        A single slot stands for as many in a row as there are marks.
        """
        if knots:
            several = (marks & SIGN) != 0
            marks = np.where(several, marks + np.uint64(len(self.knots)), marks)
            self.knots += knots
        return bool(learn_marks(self.marks, slots, lengths, marks))
