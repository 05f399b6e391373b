"""A party's half of a running sum: increments, and what was sent before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.crypto.cipher import Cipher, Payload
from weft.crypto.fixed_point import FixedPoint, encode_block_increment, encode_increment

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]
Integers = NDArray[np.int64]

#: Binary digits behind the point, per kind of sum. With λ ≥ 1e-6 an error of half a unit of
#: v/N moves a weight by less than 5e-7, below every certified gap in use; |z| may reach 6e7
#: and |v/N| and |α| 4e6, divided by the number of contributors.
FRACTION_BITS = {"z": 36, "v": 40, "alpha": 40}


class Wire:
    """Values of one kind as they travel: fixed point, then the cipher.

    Parameters
    ----------
    unit
        Factor applied before encoding: feature sums travel as v/N, so that their range does
        not grow with the number of samples.
    """

    def __init__(self, kind: str, contributors: int, cipher: Cipher, unit: float = 1.0) -> None:
        self.kind = kind
        self._format = FixedPoint(FRACTION_BITS[kind], contributors, _WHAT[kind])
        self._unit = unit
        self._scale = self._format.scale * unit
        self._limit = self._format.limit
        self._cipher = cipher

    def send(self, values: Floats, slots: Slots | None = None) -> Payload:
        """Encrypt the values themselves."""
        return self._cipher.encrypt(self.kind, slots, self._format.encode(values * self._unit))

    def check(self, values: Floats) -> None:
        """Refuse values whose running total could leave the range."""
        self._format.encode(values * self._unit)

    def open(self, payload: Payload, slots: Slots | None = None) -> Floats:
        """Decrypt totals (in units of ``unit``)."""
        return self._format.decode(self._cipher.decrypt(self.kind, slots, payload))

    def on_grid(self, values: Floats) -> Floats:
        """Values rounded to what can travel, so that all holders agree on them."""
        scaled: Floats = values * self._scale
        return np.rint(scaled, scaled) / self._scale


class Contribution(Wire):
    """What one party puts into the shared slots of one running sum.

    Only differences travel: new − what was sent last. The coordinator's total then always
    holds everyone's last contribution, also of those who are absent.
    """

    def __init__(
        self,
        kind: str,
        slots: int,
        width: int,
        contributors: int,
        cipher: Cipher,
        unit: float = 1.0,
    ) -> None:
        super().__init__(kind, contributors, cipher, unit)
        self.sent: Integers = np.zeros((slots, width), np.int64)
        self._last: tuple[Slots | None, Integers] | None = None

    def increment(self, values: Floats, slots: Slots | None = None) -> Payload:
        """Encrypt the change of ``values`` at ``slots`` (of all shared slots when None)."""
        if slots is None:
            out = np.empty(self.sent.shape, np.int64)
            fits = encode_block_increment(values, self._scale, self._limit, self.sent, out)
        else:
            out = np.empty((len(slots), self.sent.shape[1]), np.int64)
            fits = encode_increment(values, slots, self._scale, self._limit, self.sent, out)
        if not fits:
            self._format.refuse()
        self._last = (slots, out)
        return self._cipher.encrypt(self.kind, slots, out)

    def accept(self) -> None:
        """The coordinator has everything that was sent."""
        self._last = None

    def undo(self) -> None:
        """Take back the last increment: the coordinator never got it."""
        if self._last is not None:
            slots, out = self._last
            if slots is None:
                self.sent -= out
            else:
                self.sent[slots] -= out
            self._last = None


_WHAT = {
    "z": "inner products",
    "v": "feature sums",
    "alpha": "dual variables",
}
