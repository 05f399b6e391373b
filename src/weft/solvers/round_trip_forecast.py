"""How many round trips a run is likely to take, with everyone there and under its participation.

With everyone there a solver takes some round trips for every sum, and all runs take some to match,
to scale, to certify and to release. Solvers that wait ask a question until the last party has come
by: every round trip of theirs takes as many turns as it takes to meet all parties. What training
takes was fitted to runs on breast cancer without guards, as the sums were: there it is right to
within a factor of three, and runs that guards hold back take several times as many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.participation import participation_of
from weft.solvers.run_settings import Settings

#: Round trips before training and after it. They do not wait: parties must be there for them.
BEFORE_AND_AFTER = 20
#: Where samples have holders without their label, these get slopes in a round trip of its own.
_SLOPES_TOO = 1.5


@dataclass(frozen=True)
class TripForecast:
    """Round trips of a run.

    Attributes
    ----------
    likely
        Under the run's participation.
    everyone
        If everyone were always there.
    turns
        Turns until all parties have come by, on average.
    """

    likely: int
    everyone: int
    turns: float

    def sentence(self) -> str:
        """For a list of remarks."""
        said = f"about {_rounded(self.likely):,} round trips"
        if self.turns > 1.0:
            said += (
                f", since all parties have come by after {self.turns:.1f} turns on average (about "
                f"{_rounded(self.everyone):,} if all were always there)"
            )
        return f"{said}; several times as many if guards hold the run back"


def forecast_trips(
    settings: Settings, parties: Sequence[str], mean_square: float, *, labelled: bool = True
) -> TripForecast | None:
    """What a run with these settings, whose solver is chosen, takes; None: nobody measured it.

    Parameters
    ----------
    mean_square
        1/N Σ ‖x_i‖² of the scaled table.
    labelled
        Whether every holder of a sample has its label.
    """
    algorithm = algorithm_of(settings.solver)
    if algorithm.round_trips is None:
        return None
    rule = participation_of(settings.participation, parties, settings.seed)
    turns = rule.turns_to_meet(len(parties))
    training = algorithm.round_trips(settings, mean_square)
    if not labelled and not algorithm.shares:
        training *= _SLOPES_TOO
    return TripForecast(
        _limited(training * turns, settings), _limited(training, settings), round(turns, 2)
    )


def _limited(training: float, settings: Settings) -> int:
    trips = BEFORE_AND_AFTER + math.ceil(training)
    return trips if settings.round_trips is None else min(trips, settings.round_trips)


def _rounded(trips: int) -> int:
    """To two digits: more would look like knowledge."""
    return int(float(f"{trips:.2g}"))
