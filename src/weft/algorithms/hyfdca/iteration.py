"""One outer iteration of HyFDCA, as the coordinator drives it.

Round trips: ``safe`` with labels at all holders takes two (``weights``, ``step``), ``practical``
and ``theory`` three (then ``dual``); one more when parties return after an absence, one more
for the second sample sum of ``theory`` under partial participation. Where no sample is shared
(horizontal data) everything fits in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.hyfdca.run import Run
from weft.channels import Cyclic, Failure, Message, Replies, Request
from weft.channels.message import array
from weft.errors import ProtocolError
from weft.sums.certificate import Certificate
from weft.sums.scalars import add_scalars

#: Iterations in a row in which everyone who was present fell silent, before the run gives up.
MOST_SILENT = 20


class _NobodyLeft(Exception):
    """Everyone who took part in this iteration has fallen silent."""

    def __init__(self, example: tuple[str, Failure]) -> None:
        super().__init__()
        self.example = example


class Iteration:
    """One outer iteration over the parties that take part in it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.present: list[str] = []
        self.loss_estimate: float | None = None
        self.gap_estimate: float | None = None
        self._every = self._measure = self._still = False
        self._want: dict[str, NDArray[np.int32]] = {}
        self._norms: dict[str, Message] = {}

    def take(self, *, still: bool = False) -> None:
        """Go through the phases; with ``still`` only certify where the run stands."""
        run = self.run
        self._still = still
        run.iteration += not still
        turn = run.iteration + still
        self.present = list(run.participation.present(turn))
        due = still or (run.iteration - 1) % run.certify_every == 0
        self._every = due and run.participation.complete and self._all_current(turn)
        self._measure = due and not self._every
        try:
            self._phases(turn, still)
            run.silent_iterations = 0
        except _NobodyLeft as silence:
            run.silent_iterations += 1
            if run.participation.complete or run.silent_iterations > MOST_SILENT:
                party, failure = silence.example
                raise ProtocolError(
                    f"no party answered in iteration {run.iteration} ({party}: {failure.reason}); "
                    "check that the parties are running"
                ) from None
        if still:
            return
        for party in self.present:
            run.seen[party] = run.iteration
        if not run.participation.complete and run.pair is None and due:
            run.freeze()

    def _phases(self, turn: int, still: bool) -> None:
        riders = self._riders()
        if self.run.roster.rows.n_shared == 0:
            self._fused(riders, turn, still)
            return
        self._rejoin(riders, turn)
        self._weights(riders, turn)
        self._step(still)
        if not still and self._needs_dual():
            self._dual()
        if not still and self._needs_second_sum():
            self._weights([], turn + 1)

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _rejoin(self, riders: list[Request], turn: int) -> None:
        """Parties that were away get the α that changed, and refresh their feature sums."""
        run = self.run
        since = {p: run.seen[p] for p in self.present if run.seen[p] < turn - 1}
        changed = run.alpha.changes(since)
        messages: dict[str, Message] = {
            p: {"alpha.slots": slots, "alpha": alpha}
            for p, (slots, alpha) in changed.items()
            if len(slots)
        }
        if messages:
            replies = self._ask("dual", messages, riders)
            run.v.add(replies.answered, run.iteration)
            riders.clear()

    def _weights(self, riders: list[Request], turn: int) -> None:
        """v totals down, partial inner products up."""
        replies = self._ask("weights", self._weight_messages(turn), riders)
        riders.clear()
        self.run.z.add(replies.answered, self.run.iteration)
        self._take_norms(replies.answered)
        for party, reply in replies.answered.items():
            if "want" in reply:
                self._want[party] = array(reply, "want")
            elif "z.slots" in reply:
                self._want[party] = array(reply, "z.slots")
            else:
                self._want.pop(party, None)

    def _take_norms(self, replies: Mapping[str, Message]) -> None:
        """‖w‖² for a certificate, or its changes for an estimate."""
        if self._every:
            self._norms = dict(replies)
        elif any("norm change" in reply for reply in replies.values()):
            self.run.norm_estimate += add_scalars(replies, "norm change", 1)[0]

    def _weight_messages(self, turn: int) -> dict[str, Message]:
        run = self.run
        base: Message = {"iteration": turn, "ahead": run.participation.horizon}
        if self._every:
            base["every"] = True
        if self._measure and turn == run.iteration:
            base["measure"] = True
        blocks = run.v.blocks(self.present)
        return {p: {**base, "v": b} if len(b) else dict(base) for p, b in blocks.items()}

    def _step(self, still: bool) -> None:
        """z totals down to those who compute; changes of α, and with ``safe`` sums, up."""
        run = self.run
        base = self._step_message(still)
        movers = [p for p in self.present if self._computes(p)]
        senders = run.senders.of(movers) if run.settings.local == "safe" else {}
        messages = {}
        for party, z in self._totals(movers).items():
            message = dict(base)
            if len(z):
                message["z"] = z
            if party in senders and not senders[party].all():
                message["send"] = senders[party]
            messages[party] = message
        replies = self._ask("step", messages)
        if not still:
            stand_ins = self._stand_ins(replies, senders) if replies.missing and senders else []
            run.v.add(replies.answered, run.iteration, required=run.settings.local == "safe")
            for answered in (replies.answered, *stand_ins):
                run.alpha.add(answered, run.iteration, required=False)
        self._finish_certificate(replies)
        self._estimate(replies.answered)

    def _fused(self, riders: list[Request], turn: int, still: bool) -> None:
        """No sample is shared: weights and step in one round trip."""
        run = self.run
        base = self._step_message(still)
        base["fuse"] = True
        messages = {p: {**m, **base} for p, m in self._weight_messages(turn).items()}
        replies = self._ask("weights", messages, riders)
        if not still:
            run.v.add(replies.answered, run.iteration)
        self._take_norms(replies.answered)
        self._finish_certificate(replies)
        self._estimate(replies.answered)

    def _step_message(self, still: bool) -> Message:
        run = self.run
        message: Message = {"gamma": run.gamma() if run.iteration else 1.0}
        if run.settings.local == "safe":
            message["omega"] = run.omega
        if still:
            message["still"] = True
        if self._measure and not still:
            message["measure"] = True
        if isinstance(run.participation, Cyclic) and run.roster.vertical:
            # In turns over all rows, the paper averages over the holders that are active.
            message["active"] = sum(self._computes(p) for p in self.present)
        return message

    def _dual(self) -> None:
        """α totals down to the holders that did not move them themselves; feature sums up."""
        run = self.run
        since = dict.fromkeys(self._dual_receivers(), run.iteration - 1)
        messages: dict[str, Message] = {
            p: {"alpha.slots": slots, "alpha": alpha}
            for p, (slots, alpha) in run.alpha.changes(since).items()
        }
        if messages:
            replies = self._ask("dual", messages)
            run.v.add(replies.answered, run.iteration)

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _ask(
        self, phase: str, messages: dict[str, Message], riders: list[Request] | None = None
    ) -> Replies:
        """Ask, with certificate riders in the same envelopes; drop who did not answer."""
        run = self.run
        requests = [*(riders or []), Request(f"hyfdca.{phase}", messages)]
        for request in requests:
            run.acknowledge(request)
        *rider_replies, replies = run.channel.exchange(requests)
        for rider in rider_replies:
            rider.stop_on_refusal()
            # Whoever lost its answer about the frozen pair must not move before giving it.
            run.note_missing(rider.missing)
            self.present = [p for p in self.present if p not in rider.missing]
            if run.pair is not None:
                run.pair.receive(rider.answered)
                if run.pair.certificate is not None:
                    run.accept(run.pair)
        replies.stop_on_refusal()
        if replies.missing:
            run.note_missing(replies.missing)
            self.present = [p for p in self.present if p not in replies.missing]
            # Silent stand-ins are dealt with where they are asked.
            if not self.present and phase != "again":
                raise _NobodyLeft(next(iter(replies.missing.items())))
        if phase != "again":
            for party, reply in replies.answered.items():
                run.take_sequence(party, reply)
        return replies

    def _riders(self) -> list[Request]:
        pair = self.run.pair
        if pair is None:
            return []
        if pair.outrun(self.run.seen):
            self.run.note(f"the pair of iteration {pair.iteration} was given up: a party moved on")
            self.run.pair = None
            return []
        request = pair.request(self.present, self.run.seen)
        return [request] if request.messages else []

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
        return self.run.roster.labels_everywhere or party in self.run.roster.label_parties

    def _needs_dual(self) -> bool:
        return self.run.settings.local != "safe" or not self.run.roster.labels_everywhere

    def _needs_second_sum(self) -> bool:
        return self.run.settings.local == "theory" and not self.run.participation.complete

    def _dual_receivers(self) -> list[str]:
        if self.run.settings.local != "safe":
            return self.present
        return [p for p in self.present if p in self.run.roster.partly_unlabelled]

    def _stand_ins(
        self, replies: Replies, senders: dict[str, NDArray[np.bool_]]
    ) -> list[dict[str, Message]]:
        """The sender of some cohorts fell silent after others had moved: ask another holder.

        A stand-in that is silent too drops out of the iteration: its reply to ``step`` counts
        as never received, so that it takes its step back, and the next holder is asked.
        """
        run, answered = self.run, replies.answered
        given = {p: senders[p] for p in answered}
        rounds: list[dict[str, Message]] = []
        while True:
            now = run.senders.of(list(answered))
            fresh = {p: now[p] & ~given[p] for p in answered}
            messages: dict[str, Message] = {p: {"send": f} for p, f in fresh.items() if f.any()}
            if not messages:
                return rounds
            again = self._ask("again", messages)
            rounds.append(again.answered)
            for party in again.answered:
                given[party] = given[party] | fresh[party]
            for party in again.missing:
                del answered[party]
                run.ack[party] -= 1
                for earlier in rounds:
                    earlier.pop(party, None)

    def _finish_certificate(self, replies: Replies) -> None:
        """Losses are in: with everyone's, the pair before this step is certified."""
        run = self.run
        if not self._every or replies.missing or len(self.present) < len(run.roster.parties):
            return
        norms = add_scalars(self._norms, "norms", run.classes)
        losses = add_scalars(replies.answered, "losses", 2 * run.classes)
        at = run.iteration - 1 if not self._still else run.iteration
        certificate = Certificate.of_sums(at, run.settings.lam, norms, losses)
        run.certify(certificate, frozen=False)

    def _estimate(self, replies: Mapping[str, Message]) -> None:
        """Loss of the drawn samples plus the regulariser as last told: not a certificate."""
        if not self._measure:
            return
        run = self.run
        loss, share = add_scalars(replies, "estimate", 2)
        if share > 0:
            primal = loss / share + 0.5 * run.settings.lam * run.norm_estimate
            self.loss_estimate = primal
            self.gap_estimate = (primal - run.best_dual) / primal if primal > 0 else 0.0
