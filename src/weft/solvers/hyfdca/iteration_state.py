"""What an iteration of HyFDCA knows: who is there, what was asked for, and the sums it adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.protocol import Failure, Message, Phase, Replies, Request
from weft.protocol.parts import AcknowledgedRequest
from weft.solvers.hyfdca.messages import (
    AGAIN,
    FusedReply,
    StepReply,
    WeightsReply,
)
from weft.solvers.hyfdca.run_state import Run
from weft.solvers.messages import SequencedReply
from weft.solvers.run_loop import ask_with_riders
from weft.sums.certificate import Certificate
from weft.sums.posted_totals import Proposals
from weft.sums.scalar_sums import add_scalars

Flags = NDArray[np.bool_]
Riders = list[Request[Any, Any]]
Q = TypeVar("Q", bound=AcknowledgedRequest)
S = TypeVar("S", bound=SequencedReply)
A = TypeVar("A", bound=Message)


class NobodyLeft(Exception):
    """Everyone who took part in this iteration has fallen silent."""

    def __init__(self, example: tuple[str, Failure]) -> None:
        super().__init__()
        self.example = example


class IterationState:
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
        replies = ask_with_riders(self.run, phase, messages, riders or [], self._take_rider)
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
        return self.run.holdings.labels_everywhere or party in self.run.holdings.label_parties

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
