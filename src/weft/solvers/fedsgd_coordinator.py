"""Vertical FedSGD and FedBCD, the coordinator's half: who needs z, and who needs slopes."""

from __future__ import annotations

from weft.protocol import Request
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.run_state import Phase, RoundsState

#: Where everyone has all labels, z of a batch comes with the question for that of the next.
_AT_ONCE = Phase("local", gets=("z",), gives=("z",))


class FedsgdCoordinator(RoundCoordinator):
    """z of a batch down to label holders, their slopes to the others, z of the next batch up.

    Slopes are a sum by sample to which one label holder of each sample adds something. Weights
    never travel: every feature has one holder.
    """

    phases = (
        Phase("merge", gets=("z",), gives=("delta",)),
        Phase("local", gets=("delta",), gives=("z",)),
    )
    windows = ("z", "delta")
    model_of = ()
    sizes = 2

    def find(self, run: RoundsState, largest: list[float]) -> dict[str, float]:
        """Powers of two above the curvature of any party's part of a sample, and of the mean."""
        return {"sample curvature": largest[0], "party curvature": largest[1]}

    def readers(self, run: RoundsState, kind: str, present: list[str]) -> list[str]:
        """z is for those who have labels of some sample."""
        if kind != "z":
            return present
        return [party for party in present if party in run.holdings.label_parties]

    def _ask(
        self, run: RoundsState, phase: Phase, present: list[str], riders: list[Request]
    ) -> list[str]:
        if run.holdings.labels_everywhere:
            if phase is not self.phases[0]:
                return present
            phase = _AT_ONCE
        return super()._ask(run, phase, present, riders)
