"""What the coordinator keeps between iterations: who is there, what arrived, what is certified."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray

from weft.crypto import Adder
from weft.errors import ConfigError, PartyAway, ProtocolError
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Failure, Phase, Replies, Request
from weft.protocol.phase_with_request_and_reply import R
from weft.protocol.shared_fields import AcknowledgedRequest
from weft.solvers.coordinator_visible_weights import VisibleWeights
from weft.solvers.participation import Contributors, participation_of
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.sums.gap_certificate import Certificate

#: Iterations in a row in which nobody could take part, before a run gives up.
MOST_SILENT = 20

A = TypeVar("A", bound=AcknowledgedRequest)


class RunState(ABC):
    """What the coordinator of such a run keeps between iterations, whatever the algorithm.

    Attributes
    ----------
    ack
        Sequence number of the last reply received from each party.
    away
        Parties that gave no answer when last asked.
    held
        Changes of groups of samples that a guard has held back.
    """

    def __init__(
        self, channel: Channel, holdings: HoldingMap, settings: Settings, adder: Adder
    ) -> None:
        self.channel = channel
        self.holdings = holdings
        self.settings = settings
        self.adder = adder
        self.participation = participation_of(
            settings.participation, holdings.parties, settings.seed
        )
        self.contributors = Contributors(holdings)
        self.iteration = 0
        self.ack = dict.fromkeys(holdings.parties, 0)
        self.away: set[str] = set()
        self.held = 0
        self.certificate: Certificate | None = None
        #: w, where the coordinator may see it.
        self.weights: VisibleWeights | None = None
        self.silent_iterations = 0
        self.notes: list[str] = []
        self._noted: set[str] = set()

    @property
    def reached_gap(self) -> bool:
        """Whether the newest certificate meets the target."""
        target = self.settings.gap
        return (
            target is not None and self.certificate is not None and self.certificate.gap <= target
        )

    def admitted(self, turn: int) -> list[str]:
        """Who takes part: of those present, whoever shares its cohorts with enough others."""
        there = self.participation.present(turn)
        admitted = self.contributors.of(there)
        if len(admitted) < len(there):
            self.note(
                f"iteration {turn}: {len(there) - len(admitted)} of {len(there)} parties wait, "
                "because too few holders of a group of samples or features are there"
            )
        if not admitted:
            self.silent_iterations += 1
            if self.silent_iterations > MOST_SILENT:
                raise ConfigError(
                    f"for {MOST_SILENT} iterations no group of parties was large enough for "
                    f"min_contributors = {self.holdings.terms.min_contributors}; let more take "
                    "part, or agree on allow_pairs = true"
                )
        return admitted

    def part_with(self, replies: Replies[Any], present: list[str]) -> list[str]:
        """Who goes on after some did not answer, which is noted.

        Where too few are left to share a sum, what they answered counts as never received.
        """
        self.note_missing(replies.missing)
        there = [party for party in present if party not in replies.missing]
        left = self.contributors.of(there)
        for party in set(there).difference(left):
            replies.answered.pop(party, None)
        if len(left) < len(there):
            self.note(
                f"iteration {self.iteration}: too few holders of a group of samples or features "
                "were left, who wait"
            )
        return left

    def count_silence(self, party: str, failure: Failure) -> None:
        """Nobody answered in this iteration; give up when that goes on."""
        self.silent_iterations += 1
        if self.participation.complete or self.silent_iterations > MOST_SILENT:
            raise PartyAway(
                f"no party answered in iteration {self.iteration} ({party}: {failure.reason}); "
                "check that the parties are running"
            )

    def ask(
        self,
        phase: Phase[A, R],
        messages: Mapping[str, A],
        riders: Sequence[Request[Any, Any]],
        take_rider: Callable[[Replies[Any]], None],
        insist: Callable[[Replies[R]], None] = lambda replies: None,
    ) -> Replies[R]:
        """Ask a phase, with questions about a frozen model in the same envelopes.

        Who needs all answers says so in ``insist``, before anything else is asked: only an exchange
        that nothing followed is asked again when the run goes on.
        """
        requests: list[Request[Any, Any]] = [*riders, Request(phase, messages)]
        for request in requests:
            self.acknowledge(request)
        *answers, replies = self.channel.exchange(requests)
        for answer in (*answers, replies):
            answer.stop_on_refusal()
        insist(replies)
        for answer in answers:
            self.note_missing(answer.missing)
            take_rider(answer)
        return replies

    def acknowledge(self, request: Request[Any, Any]) -> None:
        """Tell each party which of its replies arrived last, so that it can take back others."""
        messages: Mapping[str, AcknowledgedRequest] = request.messages
        for party, message in messages.items():
            message.ack = self.ack[party]

    def take_sequence(self, party: str, sequence: int) -> None:
        """Remember which reply of a party arrived last."""
        if sequence != self.ack[party] + 1:
            raise ProtocolError(
                f"party {party}: its reply in iteration {self.iteration} has sequence number "
                f"{sequence}, expected {self.ack[party] + 1}; the run stops"
            )
        self.ack[party] = sequence
        self.away.discard(party)

    def note(self, text: str) -> None:
        """Log something once."""
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)

    def note_missing(self, missing: Mapping[str, Failure]) -> None:
        """Log who fell silent, once until it speaks again."""
        for party, failure in missing.items():
            if party not in self.away:
                self.note(f"iteration {self.iteration}: {party} {failure.kind} ({failure.reason})")
            self.away.add(party)

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    @abstractmethod
    def constants(self, party: str) -> Constants:
        """What setting up found out, for one party."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """What a checkpoint keeps besides totals, as plain values."""

    @abstractmethod
    def take_head(self, head: Mapping[str, Any]) -> None:
        """The inverse of :meth:`head`."""

    @abstractmethod
    def totals(self) -> dict[str, NDArray[Any]]:
        """The totals of all sums, for a checkpoint."""

    @abstractmethod
    def take_totals(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of :meth:`totals`."""
