"""FedAvg and its kin, the coordinator's half: who shares a mean with whom."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.protocol import Message
from weft.solvers.fedavg_options import AveragingOptions, HyfemOptions, ProxOptions
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.run_state import Phase, RoundsState

Ints = NDArray[np.int64]


class FedavgCoordinator(RoundCoordinator):
    """w₀ down, each party's share of the change up: w₀ + Σ_k s_k (w_k − w₀) = Σ_k s_k w_k.

    The shares of those who take part and hold a feature add up to one. Changes go onto a running
    total, so that w₀ of a feature stays where it is while none of its holders takes part. Whoever
    falls silent in an iteration counts as one who stayed at w₀.
    """

    phases = (Phase("local", gets=("v",), gives=("v",)),)
    everyone = False
    sizes = 2
    options: ClassVar[type[AveragingOptions]] = AveragingOptions

    def find(self, run: RoundsState, largest: list[float]) -> dict[str, float]:
        """Powers of two above the curvature of any sample's loss, and of any party's mean loss."""
        return {"sample curvature": largest[0], "party curvature": largest[1]}

    def tell(self, run: RoundsState, phase: Phase, present: list[str]) -> dict[str, Message]:
        """How much all who take part weigh, for each of a party's shared cohorts of features."""
        holdings, layout = run.holdings, run.column_layout
        default = "equal" if run.settings.weigh == "parties" else "samples"
        equal = (run.settings.read_options(self.options).average or default) == "equal"
        weights = np.ones(len(holdings.parties), np.int64) if equal else _samples(run)
        total = np.zeros(len(holdings.columns.sizes), np.int64)
        in_group = np.zeros(len(layout.cohorts), np.int64)
        for party in present:
            in_group[layout.group[party]] += weights[holdings.index[party]]
        for cohorts, weight in zip(layout.cohorts, in_group.tolist(), strict=True):
            total[cohorts] += weight
        # Parties with the same features get the same sums.
        sums = [total[cohorts] for cohorts in layout.cohorts]
        mine = weights.tolist()
        return {
            party: {"weight": mine[holdings.index[party]], "weights": sums[layout.group[party]]}
            for party in present
        }


def _samples(run: RoundsState) -> Ints:
    """Per party, how many samples it has."""
    rows, parties = run.holdings.rows, range(len(run.holdings.parties))
    return np.array([rows.sizes[rows.cohorts[k]].sum() for k in parties], np.int64)


class FedproxCoordinator(FedavgCoordinator):
    options = ProxOptions


class HyfemCoordinator(FedavgCoordinator):
    options = HyfemOptions
