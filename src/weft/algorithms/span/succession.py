"""HyFDCA in the place of a fast solver at a party, when another party is gone.

All sums must go on as if the one that is gone still stood where it was. Its part of every total is
what the total was less what the others put in: whoever speaks for a cohort adds that to its own
part, once and for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.algorithms.ground import Ground
from weft.algorithms.hyfdca.party import HyfdcaParty
from weft.algorithms.settings import Settings
from weft.channels import Message
from weft.channels.message import array
from weft.errors import ProtocolError

Floats = NDArray[np.float64]


class Successor:
    """HyFDCA's half, and the totals as they were when everyone was there."""

    def __init__(self, ground: Ground, settings: Settings, lam: float) -> None:
        self._seat = ground.seat
        self._lam = lam
        alone = msgspec.structs.replace(
            settings, solver="hyfdca", lam=lam, path=(), folds=0, groups=1, local="safe"
        )
        self.half = HyfdcaParty(replace(ground, start=None), alone)
        self._w = self.half.w
        self._z = self.half.alpha

    def phases(self) -> dict[str, Callable[[Message], Message]]:
        return {**self.half.phases(), "span.rest": self._rest}

    def begin(self, alpha: Floats, w: Floats, z: Floats, message: Message) -> Message:
        """Stand at α, w(α) and its z, of the problems on all samples; tell this party's parts."""
        classes = self.half.alpha.shape[1]
        self._w, self._z = w[:, :classes], z[:, :classes]
        self.half.take_over(alpha[:, :classes], self._w)
        return self.half.sums(message)

    def _rest(self, message: Message) -> Message:
        """What is missing in the others' sums, where this party speaks for a cohort."""
        seat, half = self._seat, self.half
        width = half.alpha.shape[1]
        columns = np.zeros((seat.n_shared_columns, width))
        if seat.n_shared_columns:
            known = self._lam * self._w[: seat.n_shared_columns]
            found = half.v_sum.open(message.get("v"), width)
            mine = self._flags(message, "columns", seat.column_cohort[: seat.n_shared_columns])
            columns[mine] = (known - found)[mine] * seat.n_samples
        rows = np.zeros((seat.n_shared_rows, width))
        if "rows" in message:
            mine = self._flags(message, "rows", seat.row_cohort[: seat.n_shared_rows])
            slots = np.flatnonzero(mine).astype(np.int32)
            if len(slots):
                found = half.z_sum.open(message.get("z"), width, slots)
                rows[slots] = self._z[slots] - found
        half.fill_in(rows, columns)
        return half.sums(message)

    def _flags(self, message: Message, field: str, cohort: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Per slot, whether this party speaks for its cohort."""
        flags = array(message, field)
        if flags.dtype != bool or flags.ndim != 1 or len(flags) <= int(cohort.max(initial=-1)):
            raise ProtocolError(f"a message is malformed: '{field}' has no flag per cohort")
        chosen: NDArray[np.bool_] = flags[cohort]
        return chosen
