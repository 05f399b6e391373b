"""What one run has exposed of a party's samples, by its own count."""

from __future__ import annotations

from dataclasses import dataclass

from weft.matching.party_view import PartyView
from weft.sums.count_sums_shown_to_party import SumCounter


@dataclass(frozen=True)
class RunExposure:
    """What others got to see of a party's shared samples.

    Attributes
    ----------
    counted
        Whether sums were counted: those in the clear are not, unless there is a ledger.
    shared, known
        Samples that other parties hold too; those of which another got as many sums as it lacks
        columns.
    sums
        The most sums that others got about one of them.
    """

    counted: bool
    shared: int
    known: int
    sums: int

    @property
    def reached(self) -> bool | None:
        """Whether another party can work out columns but for the mixing; None: not counted."""
        return self.known > 0 if self.counted else None

    @property
    def line(self) -> str:
        """For the log of the party's owner: it has counts, which are for nobody else."""
        if not self.shared:
            return "no sum about its samples, which it shares with nobody"
        if not self.counted:
            return f"sums about its {self.shared} shared samples in the clear, not counted"
        told = f"up to {self.sums} sums about its {self.shared} shared samples"
        if not self.known:
            return f"{told}, of none as many as another party lacks columns"
        return (
            f"{told}, of {self.known} as many as another party lacks columns: it can work these "
            "columns out but for the mixing"
        )


def exposure_of(view: PartyView, counter: SumCounter) -> RunExposure:
    """What a run has come to, by a party's own count."""
    shared = view.n_shared_rows
    if len(counter.read) != shared:
        return RunExposure(False, shared, 0, 0)
    fewest = view.fewest_foreign[view.row_cohort[:shared]]
    known = (fewest > 0) & (counter.shown >= fewest)
    return RunExposure(True, shared, int(known.sum()), int(counter.shown.max(initial=0)))
