"""What the coordinator sees of w under ``coordinator_sees = "weights"``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, ProtocolError
from weft.matching.holding_map import HoldingMap

#: With fewer holders, a total minus one's own part would be another party's.
LEAST_HOLDERS = 3


class VisibleWeights:
    """The weights as the named holders of the features told them."""

    def __init__(self, holdings: HoldingMap, classes: int) -> None:
        columns = holdings.columns
        few = int(columns.sizes[columns.holders.lengths < LEAST_HOLDERS].sum())
        if few:
            raise ConfigError(
                f"coordinator_sees = 'weights' needs {LEAST_HOLDERS} holders of every feature, but "
                "some have fewer; use 'nothing'"
            )
        self.values: NDArray[np.float64] = np.zeros((columns.n_slots, classes))
        self._slots = {}
        for number, party in enumerate(holdings.parties):
            cohorts = columns.cohorts[number]
            owned = np.repeat(holdings.owner[cohorts] == number, columns.sizes[cohorts])
            self._slots[party] = columns.party_slots(number)[owned]

    def take(self, told_by: Mapping[str, NDArray[np.float64] | None]) -> None:
        """Weights from the parties that are present."""
        for party, told in told_by.items():
            slots = self._slots[party]
            if told is None or told.shape != (len(slots), self.values.shape[1]):
                found = "no weights" if told is None else f"weights of shape {told.shape}"
                raise ProtocolError(f"party {party} told {found}")
            self.values[slots] = told
