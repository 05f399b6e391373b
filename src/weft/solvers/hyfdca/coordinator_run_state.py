"""What the coordinator of a HyFDCA run keeps, between iterations and within one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags
from weft.crypto import Adder
from weft.errors import ProtocolError
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Failure, Message, Phase, Replies, Request
from weft.protocol.shared_fields import AcknowledgedRequest
from weft.solvers.coordinator_attendance_and_certificate import RunState
from weft.solvers.coordinator_visible_weights import VisibleWeights
from weft.solvers.hyfdca.messages import (
    AGAIN,
    AgainReply,
    AgainRequest,
    DualReply,
    FusedReply,
    StepReply,
    WeightsReply,
)
from weft.solvers.participation import CohortSpeakers, Cyclic
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants, SequencedReply
from weft.solvers.solver_interfaces_and_results import Record
from weft.storage.atomic_files import part_of
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.gap_certificate import Certificate, FrozenPair
from weft.sums.latest_slot_values_and_proposals import LatestValues, Proposals
from weft.sums.scalar_sums import add_scalars
from weft.sums.shared_slots_by_party import Layout

Riders = list[Request[Any, Any]]
Q = TypeVar("Q", bound=AcknowledgedRequest)
S = TypeVar("S", bound=SequencedReply)
A = TypeVar("A", bound=Message)


class Run(RunState):
    """What the coordinator keeps between iterations."""

    def __init__(
        self, channel: Channel, holdings: HoldingMap, settings: Settings, adder: Adder, classes: int
    ) -> None:
        super().__init__(channel, holdings, settings, adder)
        self.classes = classes
        self.row_layout = Layout(holdings.rows, holdings.parties)
        self.column_layout = Layout(holdings.columns, holdings.parties)
        self.z = IncrementTotals("z", self.row_layout, classes, self.adder, windows=True)
        self.alpha = LatestValues("alpha", self.row_layout, classes, self.adder)
        clear = settings.coordinator_sees == "papers"
        self.v = IncrementTotals("v", self.column_layout, classes, self.adder, clear=clear)
        self.weights = (
            VisibleWeights(holdings, classes) if settings.coordinator_sees == "weights" else None
        )
        #: Parties that will not come back in this run: there can be no certificate then.
        self.gone: tuple[str, ...] = ()
        self.omega = 0.0
        #: Iteration up to which each party's α is current.
        self.seen = dict.fromkeys(holdings.parties, 0)
        self.certified_frozen = False
        self.best_dual = 0.0
        self.pair: FrozenPair | None = None
        self.norm_estimate = 0.0
        #: Parties whose last change of ‖w‖² was counted.
        self.norm_counted: set[str] = set()
        self.speakers = CohortSpeakers(holdings, labelled=settings.local == "safe")
        make = channel.mover_of
        #: Goes through iterations of parties in this process; None: all go by messages.
        self.mover: Any = None if make is None else make(self)

    @property
    def certify_every(self) -> int:
        """As set, or once per pass over the data."""
        return self.settings.certify_every or max(1, min(100, math.ceil(1 / self.settings.iic)))

    @property
    def everyone_current(self) -> bool:
        """Whether every party takes part always and none has fallen behind."""
        return self.participation.complete and all(
            seen == self.iteration for seen in self.seen.values()
        )

    def seems_done(self, record: Record) -> bool:
        """Whether the estimated gap is as small as the one asked for.

        Below zero it says nothing: losses that nobody counts are missing from it.
        """
        target, guess = self.settings.gap, record.gap_estimate
        return target is not None and guess is not None and 0 <= guess <= target

    def gamma(self) -> float:
        gamma = self.settings.gamma
        if gamma == "auto":
            # Theorem 4.11 asks for 1/t where parties with all rows take turns.
            theorem = isinstance(self.participation, Cyclic) and self.holdings.vertical
            gamma = "1/t" if theorem and self.settings.local == "theory" else 1.0
        return 1.0 / self.iteration if isinstance(gamma, str) else gamma

    def constants(self, party: str) -> Constants:
        """What setting up found out, for one party's local method."""
        if self.settings.local == "safe":
            return Constants(omega=self.omega)
        if self.settings.local == "practical":
            return Constants()
        rows = self.holdings.rows
        held = int(rows.sizes[rows.cohorts[self.holdings.index[party]]].sum())
        special = self.holdings.horizontal or self.holdings.vertical
        return Constants(share=1.0 if special else held / self.holdings.n_samples)

    def freeze(self) -> FrozenPair:
        """A new pair: α as it stands now."""
        self.pair = FrozenPair(
            self.iteration,
            self.holdings.counted_rows,
            self.alpha,
            self.column_layout,
            self.adder,
            self.settings,
            self.contributors.joined,
            self.certificate.iteration if self.certificate and self.certified_frozen else None,
        )
        return self.pair

    def accept(self, pair: FrozenPair) -> None:
        """A frozen pair is complete."""
        if pair.certificate is not None:
            self.certify(pair.certificate, frozen=True)
        self.pair = None

    def certify(self, certificate: Certificate, *, frozen: bool) -> None:
        """Keep a certificate; ``safe`` doubles ω if D fell since the last one.

        Steps that are far too long may also swing between bad points without falling further:
        D that stays where it is, below the best one seen, doubles ω too.
        """
        before = self.certificate
        self.certificate, self.certified_frozen = certificate, frozen
        if self.settings.local == "safe" and before is not None:
            old, new, best = sum(before.dual), sum(certificate.dual), self.best_dual
            slack = 1e-9 * max(1.0, abs(old))
            stuck = new < best - slack and new <= old + slack
            # ω = N bounds the curvature of any table, so that more would only slow the run.
            if (new < old - slack or stuck) and self.omega < self.holdings.n_samples:
                self.omega = min(2.0 * self.omega, float(self.holdings.n_samples))
                self.note(
                    f"D did not rise between iterations {before.iteration} and "
                    f"{certificate.iteration}: ω doubled to {self.omega:.4g}"
                )
        self.best_dual = max(self.best_dual, sum(certificate.dual))

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def head(self) -> dict[str, Any]:
        return {
            "omega": self.omega,
            "seen": self.seen,
            "certified_frozen": self.certified_frozen,
            "best_dual": self.best_dual,
            "norm_estimate": self.norm_estimate,
            "norm_counted": sorted(self.norm_counted),
        }

    def take_head(self, head: Mapping[str, Any]) -> None:
        self.omega, self.seen = head["omega"], head["seen"]
        self.certified_frozen = head["certified_frozen"]
        self.best_dual, self.norm_estimate = head["best_dual"], head["norm_estimate"]
        self.norm_counted = set(head["norm_counted"])

    def totals(self) -> dict[str, NDArray[Any]]:
        return {
            f"{totals.kind}.{name}": array
            for totals in (self.z, self.alpha, self.v)
            for name, array in totals.state().items()
        }

    def take_totals(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for totals in (self.z, self.v):
            totals.restore(part_of(arrays, totals.kind))
        self.alpha.restore(part_of(arrays, "alpha"), self.iteration)


@dataclass
class Measured:
    """What parties tell for an estimate of the gap in an iteration without messages.

    Attributes
    ----------
    counted
        Of each party that is there, whether its last change of ‖w‖² was counted.
    norm_changes, estimates
        What it tells, as scalars.
    """

    counted: Mapping[int, bool]
    norm_changes: dict[int, bytes] = field(default_factory=dict)
    estimates: dict[int, bytes] = field(default_factory=dict)


# ── within an iteration ─────────────────────────────────────────────────────────────────


class NobodyLeft(Exception):
    """Everyone who took part in this iteration has fallen silent."""

    def __init__(self, example: tuple[str, Failure]) -> None:
        super().__init__()
        self.example = example


class IterationBase:
    """Who takes part in an iteration, and what it has added up so far."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.present: list[str] = []
        self.loss_estimate: float | None = None
        self.gap_estimate: float | None = None
        self._every = self._measure = self._still = False
        self._want: dict[str, NDArray[np.int32]] = {}
        self._norms: dict[str, WeightsReply | FusedReply] = {}
        self._proposals = Proposals("delta", run.row_layout, 0, run.adder)

    def _ask_moving(
        self, phase: Phase[Q, S], messages: dict[str, Q], riders: Riders | None = None
    ) -> Replies[S]:
        """Ask for a reply that changes what both sides must agree on."""
        run = self.run
        replies = self._ask(phase, messages, riders)
        for party, reply in replies.answered.items():
            run.take_sequence(party, reply.sequence)
            run.held += getattr(reply, "held", 0)
        return replies

    def _ask(
        self, phase: Phase[Q, A], messages: dict[str, Q], riders: Riders | None = None
    ) -> Replies[A]:
        """Ask, with certificate riders in the same envelopes; drop who did not answer."""
        replies = self.run.ask(phase, messages, riders or [], self._take_rider)
        if replies.missing:
            self.present = self.run.part_with(replies, self.present)
            # Silent stand-ins are dealt with where they are asked.
            if not self.present and phase is not AGAIN:
                raise NobodyLeft(next(iter(replies.missing.items())))
        return replies

    def _take_rider(self, replies: Replies[Any]) -> None:
        """Answers about the frozen pair; whoever lost its own must not move before giving it."""
        run = self.run
        self.present = [p for p in self.present if p not in replies.missing]
        if run.pair is not None:
            run.pair.receive(replies.answered)
            if run.pair.certificate is not None:
                run.accept(run.pair)

    def _riders(self) -> Riders:
        pair = self.run.pair
        if pair is None:
            return []
        if pair.outrun(self.run.seen):
            self.run.note(f"the pair of iteration {pair.iteration} was given up: a party moved on")
            self.run.pair = None
            return []
        request = pair.request(self.present, self.run.seen)
        return [request] if request.messages else []

    def _numbers(self) -> dict[str, Any]:
        """Numbers of a request in this iteration; `_ask` fills in the acknowledgement."""
        run = self.run
        return {"round": run.adder.round, "iteration": run.iteration, "ack": 0}

    def _all_current(self, turn: int) -> bool:
        return all(seen == turn - 1 for seen in self.run.seen.values())

    def _totals(self, parties: list[str]) -> dict[str, Any]:
        """z totals that each party asked for; whole blocks are gathered once."""
        z = self.run.z
        whole = [p for p in parties if p not in self._want]
        out: dict[str, Any] = z.blocks(whole)
        some = {p: self._want[p] for p in parties if p in self._want}
        out.update(z.pieces(some))
        return out

    def _computes(self, party: str) -> bool:
        return party in self.run.holdings.label_parties

    def _needs_dual(self) -> bool:
        return self.run.settings.local != "safe" or not self.run.holdings.labels_everywhere

    def _needs_second_sum(self) -> bool:
        return self.run.settings.local == "theory" and not self.run.participation.complete

    def _dual_receivers(self) -> list[str]:
        if self.run.settings.local != "safe":
            return self.present
        return [p for p in self.present if p in self.run.holdings.partly_unlabelled]

    def _measures(self, asked: list[str]) -> bool:
        """Whether to estimate the loss; a sum over a single one of the parties would be its own.

        Not where the parties want several in every sum: the sets change, and the difference of
        two sums is close to the loss of whoever came or went.
        """
        if self.run.holdings.terms.min_contributors > 1:
            return False
        return self._measure and (len(asked) > 1 or len(self.run.holdings.parties) == 1)

    def _take_norms(
        self, replies: Mapping[str, WeightsReply | FusedReply], asked: list[str], measure: bool
    ) -> None:
        """‖w‖² for a certificate, or its changes for an estimate; w, where it may be seen."""
        run = self.run
        if run.weights is not None:
            run.weights.take({party: reply.w for party, reply in replies.items()})
        if self._every:
            self._norms = dict(replies)
        elif measure and asked:
            change = add_scalars(replies, "norm_change", 1, asked)
            if change is not None:
                run.norm_estimate += change[0]
                run.norm_counted.update(asked)
            else:
                run.norm_counted.difference_update(asked)

    def _finish_certificate(
        self, replies: Replies[StepReply] | Replies[FusedReply], asked: list[str]
    ) -> None:
        """Losses are in: with everyone's, the pair before this step is certified."""
        run = self.run
        if not self._every or replies.missing or len(self.present) < len(run.holdings.parties):
            return
        norms = add_scalars(self._norms, "norms", run.classes, run.holdings.parties)
        losses = add_scalars(replies.answered, "losses", 2 * run.classes, asked)
        if norms is None or losses is None:
            return
        at = run.iteration - 1 if not self._still else run.iteration
        certificate = Certificate.of_sums(at, run.settings.lam, norms, losses)
        run.certify(certificate, frozen=False)

    def _estimate(self, replies: Mapping[str, StepReply], asked: list[str], measured: bool) -> None:
        """Loss of the drawn samples plus the regulariser as last told: not a certificate."""
        if not measured or not asked:
            return
        run = self.run
        sums = add_scalars(replies, "estimate", 2, asked)
        if sums is None:
            return
        loss, share = sums
        if share > 0:
            primal = loss / share + 0.5 * run.settings.lam * run.norm_estimate
            self.loss_estimate = primal
            self.gap_estimate = (primal - run.best_dual) / primal if primal > 0 else 0.0

    def _stand_ins(
        self, replies: Replies[StepReply] | Replies[DualReply], speakers: dict[str, Flags]
    ) -> list[tuple[int, dict[str, AgainReply]]]:
        """The one who posts α of some cohorts fell silent after others had moved: ask another.

        A stand-in that is silent too drops out of the iteration: its last reply counts as never
        received, so that it takes its step back, and the next holder is asked. Returns the
        number of each request, and the replies.
        """
        run, answered = self.run, replies.answered
        given = {p: speakers[p] for p in answered}
        rounds: list[tuple[int, dict[str, AgainReply]]] = []
        while True:
            now = run.speakers.of(list(answered))
            fresh = {p: now[p] & ~given[p] for p in answered}
            run.adder.advance()
            numbers = self._numbers()
            messages = {
                p: AgainRequest(**numbers, send=flags) for p, flags in fresh.items() if flags.any()
            }
            if not messages:
                return rounds
            run.alpha.invite(messages, fresh)
            again = self._ask(AGAIN, messages)
            if run.adder.whole:
                run.alpha.post(again.answered, run.iteration, run.adder.round)
                if again.missing:
                    raise ProtocolError(
                        f"party {min(again.missing)} fell silent while it stood in for another "
                        f"in iteration {run.iteration}; resume from the last checkpoint"
                    )
            rounds.append((run.adder.round, again.answered))
            for party in again.answered:
                given[party] = given[party] | fresh[party]
            for party in again.missing:
                del answered[party]
                run.ack[party] -= 1
                for _, earlier in rounds:
                    earlier.pop(party, None)
