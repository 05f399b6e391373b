"""When parties in one process train without messages between them, and what does so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.errors import ConfigError
from weft.federation.party import Party
from weft.guards import Terms
from weft.protocol.channel import MoverOf
from weft.solvers.algorithm_choice import resolve
from weft.solvers.hyfdca.iterations_without_messages import IterationsWithoutMessages
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.run_settings import Settings

#: Said of a run whose costs are not all counted.
NOTE = (
    "iterations without certificates were made without messages, to the same bits: bytes, seconds "
    "of parties and sums over samples are counted of the others alone"
)


def check_settings(settings: Settings, terms: Iterable[Terms], *, seen: bool) -> None:
    """Refuse runs that need their messages.

    Parameters
    ----------
    terms
        Of the parties.
    seen
        Whether somebody keeps, counts or times messages.
    """
    chosen, _ = resolve(settings, saves=False, warm=False)
    why = ""
    if chosen.solver != "hyfdca":
        why = f"takes solver = 'hyfdca', and this run has '{chosen.solver}'"
    elif settings.local == "theory":
        why = "takes local = 'practical' or 'safe'; 'theory' sums products twice"
    elif settings.cipher != "plain":
        why = f"has nothing to encrypt; set cipher = 'plain' in the place of '{settings.cipher}'"
    elif settings.coordinator_sees != "nothing":
        why = "shows the coordinator nothing; leave coordinator_sees out"
    elif settings.latency is not None:
        why = "has no messages whose seconds could be modelled; leave latency out"
    elif seen:
        why = (
            "leaves nothing to record, to time, to count in a ledger or to go on from; train with "
            "messages"
        )
    elif any(own.min_batch > 1 or own.min_contributors > 1 for own in terms):
        why = "holds nothing back; set min_batch = 1 and min_contributors = 1 in the terms"
    if why:
        raise ConfigError(f"training without messages {why}")


def mover_of(parties: Mapping[str, Party]) -> MoverOf:
    """What goes through iterations on these parties, once a run has begun."""

    if not parties:
        raise ConfigError("training without messages takes all parties in this process")

    def make(run: Any) -> IterationsWithoutMessages:
        halves: list[HyfdcaParty] = []
        for name in run.holdings.parties:
            half = parties[name].training.half
            if not isinstance(half, HyfdcaParty) or half.is_guarded:
                raise ConfigError(
                    f"party {name} holds changes of few samples back, which takes messages; train "
                    "with them, or under min_batch = 1"
                )
            halves.append(half)
        if not run.holdings.labels_everywhere or run.holdings.terms.min_contributors > 1:
            raise ConfigError(
                "training without messages takes labels at all holders of a sample and terms "
                "without min_contributors; train with messages"
            )
        run.note(NOTE)
        return IterationsWithoutMessages(run, halves)

    return make
