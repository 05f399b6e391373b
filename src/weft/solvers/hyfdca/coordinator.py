"""HyFDCA, the coordinator's half: Algorithm 1 of the paper on running totals.

Round trips of an iteration: ``safe`` with labels at all holders takes two (``weights``, ``step``),
``practical`` and ``theory`` three (then ``dual``); one more when parties return after an absence,
one more for the second sample sum of ``theory`` under partial participation. Where no sample is
shared (horizontal data) everything fits in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from weft.array_types import Flags
from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Replies
from weft.solvers.hyfdca.coordinator_run_state import (
    IterationBase,
    Measured,
    NobodyLeft,
    Riders,
    Run,
)
from weft.solvers.hyfdca.data_norms import find_omega, share_norms
from weft.solvers.hyfdca.messages import (
    BEGIN,
    DUAL,
    FUSED,
    STEP,
    WEIGHTS,
    BeginRequest,
    DualReply,
    DualRequest,
    FusedReply,
    FusedRequest,
    StepReply,
    StepRequest,
    WeightsRequest,
)
from weft.solvers.participation import Cyclic
from weft.solvers.run_loop import Clock, IteratedCoordinator, Turn, wait_for_certificate
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record, Result
from weft.sums.latest_slot_values_and_proposals import Proposals


class HyfdcaCoordinator(IteratedCoordinator[Run]):
    """Runs HyFDCA, iteration by iteration."""

    most_idle = 100

    def new_run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        classes: int,
    ) -> Run:
        return Run(channel, holdings, settings, adder, classes)

    def set_up(self, run: Run, unit: float) -> None:
        """Norms, ω and shares: what the local method must know before the first step."""
        settings, channel, adder = run.settings, run.channel, run.adder
        if settings.local == "practical":
            return
        norms = share_norms(channel, unit, run.row_layout, adder)
        if settings.local == "safe":
            samples = run.holdings.n_samples
            run.omega = find_omega(channel, norms, run.column_layout, adder, samples, run.note)
        round_ = adder.advance()
        messages = {
            party: BeginRequest(round=round_, constants=run.constants(party))
            for party in channel.parties
        }
        if settings.local == "theory":
            for party, block in norms.blocks(channel.parties).items():
                messages[party].z = block
        channel.ask(BEGIN, messages).insist("setting up")

    def go_on(
        self,
        run: Run,
        unit: float,
        result: Result,
        clock: Clock,
        progress: Callable[[Record], None] | None = None,
        recalled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Go on where another solver stopped: totals and parties stand at its α.

        ``recalled`` says after every iteration whether that solver can go on; then this one ends
        where it is, and no reason to stop is given.
        """
        self.set_up(run, unit)
        result.stopped = ""
        self.train(run, result, clock, progress, None, recalled)

    def iterate(self, run: Run) -> Turn:
        iteration = Iteration(run)
        iteration.take()
        return Turn(len(iteration.present), iteration.loss_estimate, iteration.gap_estimate)

    def why_stop(self, run: Run, record: Record) -> str:
        if run.gone and not run.reached_gap and run.seems_done(record):
            away = ", ".join(run.gone)
            return (
                f"estimated gap {record.gap_estimate:.2e} ≤ {run.settings.gap:g}; no certificate "
                f"without {away}"
            )
        return super().why_stop(run, record)

    def close(self, run: Run, result: Result) -> None:
        """End on a certified pair: the one that stopped the run, or a last one, waited for."""
        if run.gone:
            return
        if not run.reached_gap:
            if run.everyone_current:
                Iteration(run).take(still=True)
            if run.certificate is None or run.certificate.iteration < run.iteration:
                _wait_for_pair(run)
        certificate = run.certificate
        if certificate is None:
            return
        behind = certificate.iteration < run.iteration and not run.reached_gap
        if behind and not run.certified_frozen:
            # The pair of that certificate was the iterate of its time, which nobody kept.
            run.note(
                f"the model released is not certified: the last certificate is that of iteration "
                f"{certificate.iteration}"
            )
            return
        if behind:
            run.note(
                f"the model released is that of iteration {certificate.iteration}, the last for "
                "which every party answered"
            )
        result.certificate = certificate
        if run.certified_frozen:
            result.model_iteration = certificate.iteration


def _wait_for_pair(run: Run) -> None:
    """Freeze the last α, and wait until everyone has answered for it."""
    pair = run.freeze()

    def take(replies: Replies[Any]) -> None:
        pair.receive(replies.answered)

    if wait_for_certificate(run, pair, lambda present: pair.request(present, run.seen), take):
        run.accept(pair)


# ── one iteration ─────────────────────────────────────────────────────────────────────────


class Iteration(IterationBase):
    """One outer iteration over the parties that take part in it."""

    def take(self, *, still: bool = False) -> None:
        """Go through the phases; with ``still`` only certify where the run stands."""
        run = self.run
        self._still = still
        run.iteration += not still
        turn = run.iteration + still
        self.present = run.admitted(turn)
        due = still or (run.iteration - 1) % run.certify_every == 0
        self._every = due and run.participation.complete and self._all_current(turn)
        self._measure = due and not self._every
        try:
            if self.present:
                self._phases(turn, still)
                run.silent_iterations = 0
        except NobodyLeft as silence:
            run.count_silence(*silence.example)
        if still:
            return
        for party in self.present:
            run.seen[party] = run.iteration
        if not run.participation.complete and run.pair is None and due and not run.gone:
            run.freeze()

    def catch_up(self) -> bool:
        """Give α as it stands to all who were away; returns whether everybody has it."""
        run = self.run
        self.present = list(run.holdings.parties)
        try:
            if run.holdings.rows.n_shared:
                self._rejoin([], run.iteration + 1)
        except NobodyLeft:
            return False
        for party in self.present:
            run.seen[party] = run.iteration
        return len(self.present) == len(run.holdings.parties)

    def _phases(self, turn: int, still: bool) -> None:
        riders = self._riders()
        if self.run.mover is not None and not (still or self._every):
            self._move(riders, turn)
            return
        if self.run.holdings.rows.n_shared == 0:
            self._fused(riders, turn, still)
            return
        self._rejoin(riders, turn)
        self._weights(riders, turn)
        self._step(still)
        if not still and self._needs_dual():
            self._dual()
        if not still and self._needs_second_sum():
            self._weights([], turn + 1)

    def _move(self, riders: Riders, turn: int) -> None:
        """All phases at once, without messages but for those about a frozen pair.

        Round trips are counted as with messages, in whose envelopes the others ride.
        """
        run, meter = self.run, self.run.channel.meter
        trips = meter.round_trips
        for request in riders:
            run.acknowledge(request)
            replies = run.channel.ask(request.phase, request.messages)
            replies.stop_on_refusal()
            run.note_missing(replies.missing)
            self._take_rider(replies)
            if not self.present:
                raise NobodyLeft(next(iter(replies.missing.items())))
        constants = self._step_constants(False, self.present)
        del constants["still"]
        there = [run.holdings.index[party] for party in self.present]
        measured = None
        if constants.pop("measure"):
            counted = [party in run.norm_counted for party in self.present]
            measured = Measured(dict(zip(there, counted, strict=True)))
        trips += run.mover.iterate(turn, there, measured=measured, **constants)
        meter.round_trips = trips
        run.away.difference_update(self.present)
        if measured is not None:
            packs = zip(self.present, there, strict=True)
            told = {
                party: FusedReply(
                    norm_change=measured.norm_changes[k], estimate=measured.estimates[k]
                )
                for party, k in packs
            }
            self._take_norms(told, self.present, True)
            self._estimate(told, self.present, True)

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _rejoin(self, riders: Riders, turn: int) -> None:
        """Parties that were away get the α that changed, and refresh their feature sums."""
        run = self.run
        since = {p: run.seen[p] for p in self.present if run.seen[p] < turn - 1}
        run.adder.advance()
        changed = run.alpha.changes(since)
        if not changed:
            return
        numbers = self._numbers()
        asked = run.contributors.joined(list(changed), self.present)
        messages = {party: DualRequest(**numbers) for party in asked}
        for party, (slots, alpha) in changed.items():
            messages[party].alpha_slots, messages[party].alpha = slots, alpha
        run.v.invite(messages)
        replies = self._ask_moving(DUAL, messages, riders)
        run.v.add(replies.answered, run.iteration)
        riders.clear()

    def _weights(self, riders: Riders, turn: int) -> None:
        """v totals down, partial inner products up."""
        run, every, measure = self.run, self._every, self._measures_norms(turn)
        round_, ahead = run.adder.advance(), run.participation.horizon
        messages = {
            party: WeightsRequest(
                round=round_,
                iteration=turn,
                ack=0,
                ahead=ahead,
                every=every,
                measure=measure,
                counted=measure and party in run.norm_counted,
            )
            for party in self.present
        }
        self._bring_weights(messages, measure)
        self.run.z.invite(messages)
        replies = self._ask_moving(WEIGHTS, messages, riders)
        riders.clear()
        self.run.z.add(replies.answered, self.run.iteration)
        self._take_norms(replies.answered, list(messages), measure)
        wanted = {
            party: reply.z_slots if reply.want is None else reply.want
            for party, reply in replies.answered.items()
        }
        for party in wanted:
            self._want.pop(party, None)
        some = {party: slots for party, slots in wanted.items() if slots is not None}
        self._want.update(self.run.z.checked_slots(some, turn))

    def _measures_norms(self, turn: int) -> bool:
        return turn == self.run.iteration and self._measures(self.present)

    def _bring_weights(
        self, messages: Mapping[str, WeightsRequest | FusedRequest], measure: bool
    ) -> None:
        """v totals for all who are present, and over whom their scalars are summed."""
        run = self.run
        if measure:
            run.adder.attend(messages)
        for party, block in run.v.blocks(self.present).items():
            messages[party].v = block

    def _step(self, still: bool) -> None:
        """z totals down to those who compute; new α and, with ``safe``, sums up."""
        run = self.run
        movers = [p for p in self.present if self._computes(p)]
        round_ = run.adder.advance()
        base = StepRequest(**self._numbers(), **self._step_constants(still, movers))
        speakers = run.speakers.of(movers) if run.settings.local == "safe" else {}
        messages = {party: replace(base) for party in movers}
        for party, message in messages.items():
            if party in speakers and np.count_nonzero(speakers[party]) < len(speakers[party]):
                message.send = speakers[party]
        if base.measure:
            run.adder.attend(messages)
        for party, block in self._totals(movers).items():
            messages[party].z = block
        if not still:
            self._invite_steps(messages, speakers)
        replies = self._ask_moving(STEP, messages)
        if not still:
            self._take_steps(replies, speakers, round_)
        self._finish_certificate(replies, list(messages))
        self._estimate(replies.answered, list(messages), base.measure)

    def _invite_steps(self, messages: dict[str, StepRequest], speakers: dict[str, Flags]) -> None:
        run = self.run
        if run.settings.local == "safe":
            run.v.invite(messages)
            run.alpha.invite(messages, speakers)
        else:
            self._proposals = Proposals("delta", run.row_layout, run.classes, run.adder)
            self._proposals.invite(messages)

    def _take_steps(
        self, replies: Replies[StepReply], speakers: dict[str, Flags], round_: int
    ) -> None:
        run = self.run
        if run.settings.local == "safe":
            self._post(replies, speakers, round_)
            run.v.add(replies.answered, run.iteration)
        else:
            self._proposals.add(replies.answered, run.iteration, round_)

    def _post(
        self,
        replies: Replies[StepReply] | Replies[DualReply],
        speakers: dict[str, Flags],
        round_: int,
    ) -> None:
        """Post α; where the one who should have was silent, others stand in."""
        run = self.run
        if run.adder.whole:
            # Increments are added as they come; what was posted stays valid in any case.
            run.alpha.post(replies.answered, run.iteration, round_)
        stand_ins = self._stand_ins(replies, speakers) if replies.missing else []
        if not run.adder.whole:
            run.alpha.post(replies.answered, run.iteration, round_)
            for when, answered in stand_ins:
                run.alpha.post(answered, run.iteration, when)

    def _fused(self, riders: Riders, turn: int, still: bool) -> None:
        """No sample is shared: weights and step in one round trip."""
        run, measure = self.run, self._measures_norms(turn)
        run.adder.advance()
        constants = self._step_constants(still, self.present)
        numbers = {**self._numbers(), "iteration": turn, "ahead": run.participation.horizon}
        estimates = constants.pop("measure")
        base = FusedRequest(**numbers, **constants, measure=measure or estimates, every=self._every)
        messages = {party: replace(base) for party in self.present}
        for party in run.norm_counted.intersection(messages) if measure else ():
            messages[party].counted = True
        self._bring_weights(messages, base.measure)
        if not still:
            run.v.invite(messages)
        replies = self._ask_moving(FUSED, messages, riders)
        if not still:
            run.v.add(replies.answered, run.iteration)
        self._take_norms(replies.answered, list(messages), base.measure)
        self._finish_certificate(replies, list(messages))
        self._estimate(replies.answered, list(messages), base.measure)

    def _step_constants(self, still: bool, asked: list[str]) -> dict[str, Any]:
        """What all who step are told alike."""
        run = self.run
        # In turns over all rows, the paper averages over the holders that are active.
        turns = isinstance(run.participation, Cyclic) and run.holdings.vertical
        return {
            "gamma": run.gamma() if run.iteration else 1.0,
            "omega": run.omega if run.settings.local == "safe" else None,
            "still": still,
            "measure": self._measures(asked) and not still,
            "active": float(sum(map(self._computes, self.present))) if turns else None,
        }

    def _dual(self) -> None:
        """New α, or the sum of what was proposed, down to the holders; feature sums up."""
        run = self.run
        safe = run.settings.local == "safe"
        round_ = run.adder.advance()
        asked = self._dual_receivers()
        if safe:
            found = run.alpha.changes(dict.fromkeys(asked, run.iteration - 1))
            asked = list(found)
        else:
            # Whoever moved private rows has feature sums to tell, even if nobody proposed a thing.
            found = self._proposals.proposed(asked)
        if not asked:
            return
        speakers = {} if safe else run.speakers.of(asked)
        numbers = self._numbers()
        messages = {party: DualRequest(**numbers) for party in asked}
        for party, message in messages.items():
            if party in found and safe:
                message.alpha_slots, message.alpha = found[party]
            elif party in found:
                message.delta_slots, message.delta = found[party]
            if party in speakers and np.count_nonzero(speakers[party]) < len(speakers[party]):
                message.send = speakers[party]
        run.v.invite(messages)
        if not safe:
            run.alpha.invite(messages, speakers)
        replies = self._ask_moving(DUAL, messages)
        if not safe:
            self._post(replies, speakers, round_)
        run.v.add(replies.answered, run.iteration)
