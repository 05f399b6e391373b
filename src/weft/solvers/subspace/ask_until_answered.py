"""Asking until everyone has answered: the fast solvers need every party in every phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from weft.array_types import Flags
from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Failure, Phase
from weft.protocol.phase_with_request_and_reply import R
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.messages import (
    POINT,
    SPREAD,
    FallbackAlpha,
    Fold,
    OrderedRequest,
)
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.latest_slot_values_and_proposals import LatestValues


class PartyMissing(Exception):
    """A party did not answer for longer than the run may wait.

    Attributes
    ----------
    folded
        Parties that have dropped vectors in the phase that was not completed.
    """

    def __init__(
        self, missing: Mapping[str, Failure], waited: float, folded: frozenset[str]
    ) -> None:
        failure = next(iter(missing.values()))
        self.parties = tuple(missing)
        self.folded = folded
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
    v: IncrementTotals
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

    total: IncrementTotals | None = None
    posted: LatestValues | None = None
    speakers: Mapping[str, Flags] = field(default_factory=dict)
    since: int = 0

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.total is not None or self.posted is not None


Ordered = TypeVar("Ordered", bound=OrderedRequest)
#: Makes the messages of a request to some parties from its number.
Build = Callable[[Sequence[str], int], dict[str, Ordered]]

#: Seconds between two questions to a party that does not answer: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
#: Phases that go to everyone, before which vectors can be dropped.
_FOLDING: tuple[Phase[Any, Any], ...] = (SPREAD, POINT)


class RepeatedAsking:
    """Puts one phase after the other to parties, each until all of them have answered.

    Attributes
    ----------
    fold, folds
        Vectors that are dropped when everyone is asked next, and how often that was done.
    fallback
        Goes on while a party is away, and returns when all are back; None: the run stops then.
    """

    def __init__(
        self, channel: Channel, holdings: HoldingMap, settings: Settings, adder: Adder
    ) -> None:
        self.channel, self.holdings, self.settings, self.adder = channel, holdings, settings, adder
        self.iteration = 0
        self.fold: Fold | None = None
        self.folds = 0
        self.notes: list[str] = []
        self.fallback: Callable[[PartyMissing], None] | None = None
        #: How many phases each party has been asked; holders without labels miss some.
        self._serial = dict.fromkeys(holdings.parties, 0)

    def _ask_all(
        self,
        phase: Phase[Ordered, R],
        asked: Sequence[str],
        build: Build[Ordered],
        sums: PhaseSums,
    ) -> dict[str, R]:
        for party in asked:
            self._serial[party] += 1
        answers: dict[str, R] = {}
        heard: set[str] = set()
        began, pause = self.channel.elapsed, _FIRST_PAUSE
        while True:
            # A sum is of one request: whoever did not answer is not asked for its part alone.
            waiting = [p for p in asked if p not in answers or sums.any]
            missing = self._ask_once(phase, build(waiting, self.adder.advance()), sums, answers)
            if not missing:
                break
            heard.update(answers)
            waited = self.channel.elapsed - began
            if waited + pause > self.settings.patience:
                folded = frozenset(heard if phase in _FOLDING else ())
                self._fall_back(PartyMissing(missing, waited, folded))
                began, pause = self.channel.elapsed, _FIRST_PAUSE
                continue
            self._note_missing(missing)
            self.channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if phase in _FOLDING and self.fold is not None:
            self.fold = None
            self.folds += 1
        return answers

    def _ask_once(
        self,
        phase: Phase[Ordered, R],
        messages: dict[str, Ordered],
        sums: PhaseSums,
        answers: dict[str, R],
    ) -> Mapping[str, Failure]:
        """Ask, and take what comes; returns who did not answer, and why."""
        round_ = self.adder.round
        if sums.total is not None:
            sums.total.invite(messages)
        if sums.posted is not None:
            sums.posted.invite(messages, {party: sums.speakers[party] for party in messages})
        replies = self.channel.ask(phase, messages)
        replies.stop_on_refusal()
        answers.update(replies.answered)
        if replies.missing:
            return replies.missing
        if sums.total is not None:
            sums.total.add(replies.answered, self.iteration)
        if sums.posted is not None:
            sums.posted.post(replies.answered, sums.since + 1, round_)
        return replies.missing

    def _fall_back(self, missing: PartyMissing) -> None:
        """Fall back until all parties return; then the phase is asked again."""
        if self.fallback is None:
            raise missing
        self.fallback(missing)

    def _note_missing(self, missing: Mapping[str, Failure]) -> None:
        for party, failure in missing.items():
            note = f"iteration {self.iteration}: waiting for {party} ({failure.reason})"
            if note not in self.notes:
                self.notes.append(note)
