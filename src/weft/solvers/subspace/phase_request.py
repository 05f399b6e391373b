"""What the round trips of the fast solvers are about: what a phase brings, and who is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.protocol import Failure, Message
from weft.sums.posted_totals import PostedTotals
from weft.sums.running_totals import RunningTotals

Floats = NDArray[np.float64]


class PartyMissing(Exception):
    """Somebody did not answer for longer than the run may wait."""

    def __init__(
        self, missing: Mapping[str, Failure], waited: float, phase: str, folded: frozenset[str]
    ) -> None:
        failure = next(iter(missing.values()))
        self.parties = tuple(missing)
        #: The phase that was not completed, and who has dropped vectors in it.
        self.phase, self.folded = phase, folded
        who = ", ".join(self.parties)
        super().__init__(f"{who} did not answer for {waited:.0f} s ({failure.reason})")


@dataclass(frozen=True)
class Mixture:
    """Weights of dual vectors whose mixture is α, and q of a step of coordinate ascent from it."""

    weights: Floats
    curvature: Floats


@dataclass(frozen=True)
class Heir:
    """α that HyFDCA has reached while a party was away: a dual vector like any other.

    Attributes
    ----------
    number
        Which of the run's hand-overs it came from.
    v
        The totals of its feature sums.
    ack
        Which of its replies the coordinator got last, per party.
    """

    number: int
    v: RunningTotals
    ack: Mapping[str, int]

    def name(self, messages: Mapping[str, Message]) -> None:
        """Say in messages which α is meant."""
        for party, message in messages.items():
            message.update({"inherit": self.number, "ack": self.ack[party]})


@dataclass
class Wanted:
    """What a phase shall bring: an encrypted sum, masked scalars by field and number.

    ``since`` is the iteration in which the phase began, which may end in a later one.
    """

    scalars: dict[str, int]
    total: RunningTotals | None = None
    board: PostedTotals | None = None
    senders: Mapping[str, NDArray[np.bool_]] | None = None
    since: int = 0
