"""What the round trips of the fast solvers are about: what a phase brings, and who is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.protocol import Failure, Phase
from weft.solvers.subspace.messages import FallbackAlpha
from weft.sums.posted_totals import PostedTotals
from weft.sums.running_totals import RunningTotals

Flags = NDArray[np.bool_]


class PartyMissing(Exception):
    """A party did not answer for longer than the run may wait.

    Attributes
    ----------
    phase
        The phase that was not completed.
    folded
        Parties that have dropped vectors in it.
    """

    def __init__(
        self,
        missing: Mapping[str, Failure],
        waited: float,
        phase: Phase[Any, Any],
        folded: frozenset[str],
    ) -> None:
        failure = next(iter(missing.values()))
        self.parties = tuple(missing)
        self.phase, self.folded = phase, folded
        who = ", ".join(self.parties)
        super().__init__(f"{who} did not answer for {waited:.0f} s ({failure.reason})")


@dataclass(frozen=True)
class FallbackResult:
    """α that HyFDCA has reached while a party was away: a dual vector like any other.

    Attributes
    ----------
    number
        Which of the run's fallbacks it came from.
    v
        The totals of its feature sums.
    ack
        Which of its replies the coordinator got last, per party.
    """

    number: int
    v: RunningTotals
    ack: Mapping[str, int]

    def named(self, party: str) -> FallbackAlpha:
        """It, as a message to a party names it."""
        return FallbackAlpha(number=self.number, ack=self.ack[party])


@dataclass
class PhaseSums:
    """The encrypted sums that a phase brings.

    Attributes
    ----------
    total
        A sum over the parties asked.
    posted
        Dual vectors for holders without labels.
    speakers
        Per party, for which of its cohorts it posts them.
    since
        The iteration in which the phase began, which may end in a later one.
    """

    total: RunningTotals | None = None
    posted: PostedTotals | None = None
    speakers: Mapping[str, Flags] = field(default_factory=dict)
    since: int = 0
