"""What the coordinator of a fast solver does when a party stays away, and when it is back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.protocol import Among, Channel, Message, Replies, Request
from weft.solvers.base import Record, Result
from weft.solvers.contributors import Contributors
from weft.solvers.hyfdca.coordinator import HyfdcaCoordinator, seems_done
from weft.solvers.hyfdca.iteration import Iteration
from weft.solvers.hyfdca.run_state import Run
from weft.solvers.stopping import Clock
from weft.solvers.subspace.coefficients import Subspace
from weft.solvers.subspace.phase_request import Heir, PartyMissing
from weft.solvers.subspace.round_trips import Exchange

Flags = NDArray[np.bool_]

#: How often a party is asked to keep the model when a run stops.
_ATTEMPTS = 3
_SETTING_UP = ("hyfdca.norms", "hyfdca.spread", "hyfdca.gather", "hyfdca.begin")
#: Seconds between two iterations in which nobody answers: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def keep_point(span: Subspace, missing: PartyMissing, model: int) -> bool:
    """Let those who are there form the best point; returns whether all of them did."""
    exchange = span.exchange
    waiting = _present(exchange, missing)
    for _ in range(_ATTEMPTS):
        messages = _messages(exchange, missing, waiting)
        for message in messages.values():
            message.update({"point": span.point, "model": model})
        replies = exchange.channel.ask("span.keep", messages)
        replies.stop_on_refusal()
        waiting = tuple(replies.missing)
        if not waiting:
            return True
    return False


class _FellSilent(Exception):
    """Somebody did not answer while HyFDCA was set up, which takes all who begin it."""

    def __init__(self, parties: set[str]) -> None:
        super().__init__()
        self.parties = parties


class Relieved(Exception):
    """HyFDCA went on in the place of the solver, and has come to the end of the run."""


class Relief:
    """HyFDCA among those who are there, until all are back or the run is over.

    Parameters
    ----------
    unit
        A power of two above every party's part of every ‖x_i‖².
    """

    def __init__(
        self,
        span: Subspace,
        unit: float,
        result: Result,
        clock: Clock,
        progress: Callable[[Record], None] | None,
    ) -> None:
        self._span, self._unit = span, unit
        self._result, self._clock, self._progress = result, clock, progress
        self._times = 0

    def __call__(self, missing: PartyMissing) -> None:
        """Go on from the last mixture of dual vectors; returns when everybody is back."""
        exchange, result, begun = self._span.exchange, self._result, self._span.exchange.iteration
        # Models that are finished and certified are worth more than one that cannot be.
        if not result.history or result.stages:
            raise missing
        stand_in = self._go_on(missing)
        run = stand_in.run
        if not stand_in.complete and seems_done(run, result.history[-1]):
            # A certificate is all that is missing.
            stand_in.wait(exchange.settings.patience)
        if not stand_in.complete:
            result.lam = self._span.base_lam
            raise Relieved
        back, solver = ", ".join(run.gone), exchange.settings.solver
        result.gone, result.stopped = (), ""
        result.notes.append(f"iteration {run.iteration}: {back} is back; going on with {solver}")
        exchange.iteration = run.iteration + 1
        exchange.held += run.held
        if not exchange.settings.folds and run.iteration > begun:
            exchange.heir = Heir(self._times, run.v, dict(run.ack))

    def _go_on(self, missing: PartyMissing) -> StandIn:
        """HyFDCA to its end; from the beginning, where somebody falls silent too early."""
        away, result = set(missing.parties), self._result
        while True:
            stand_in = self._begin(missing, away)
            result.gone = stand_in.run.gone
            try:
                HyfdcaCoordinator().go_on(
                    stand_in.run,
                    self._unit,
                    result,
                    self._clock,
                    self._progress,
                    stand_in.recalled,
                )
            except _FellSilent as fallen:
                away |= self._still_silent(fallen.parties)
            else:
                return stand_in

    def _begin(self, missing: PartyMissing, away: set[str]) -> StandIn:
        """Hand over to those who are there; ``away`` gets whoever falls silent now."""
        exchange = self._span.exchange
        while True:
            present = [p for p in exchange.holdings.parties if p not in away]
            missing.parties = tuple(p for p in exchange.holdings.parties if p in away)
            if not Contributors(exchange.holdings).of(present):
                raise missing
            self._times += 1
            stand_in = StandIn(self._span, missing, self._times, self._result.notes)
            # The first of its holders speaks for a cohort: without it, everybody begins anew.
            silent = stand_in.hand(present)
            if not silent:
                self._note(f"{missing}; going on with HyFDCA without it, uncertified")
                return stand_in
            away |= self._still_silent(silent)

    def _still_silent(self, parties: Collection[str]) -> set[str]:
        """Who of them does not answer for longer than the run may wait."""
        exchange, silent = self._span.exchange, set(parties)
        channel, began, pause = exchange.channel, exchange.channel.elapsed, _FIRST_PAUSE
        while True:
            silent -= set(channel.ask("span.here", {p: {} for p in sorted(silent)}).answered)
            if not silent or channel.elapsed - began + pause > exchange.settings.patience:
                for party in sorted(silent):
                    self._note(f"iteration {exchange.iteration}: {party} fell silent too")
                return silent
            channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _note(self, note: str) -> None:
        if note not in self._result.notes:
            self._result.notes.append(note)


class StandIn:
    """One run of HyFDCA in the place of a fast solver.

    Attributes
    ----------
    complete
        Whether everybody is back, and stands at the same α.
    """

    def __init__(
        self, span: Subspace, missing: PartyMissing, number: int, notes: list[str]
    ) -> None:
        exchange, self._span, self._missing = span.exchange, span, missing
        self._number = number
        holdings, classes = exchange.holdings, exchange.problems.classes
        company = Contributors(holdings).of(_present(exchange, missing))
        settings = msgspec.structs.replace(
            exchange.settings,
            solver="hyfdca",
            lam=span.base_lam,
            path=(),
            folds=0,
            local="safe",
            participation={"trace": [company]},
        )
        self._watch = Watch(exchange.channel, company, missing.parties)
        run = self.run = Run(self._watch, holdings, settings, exchange.adder, classes)
        run.notes = notes
        run.gone = missing.parties
        run.iteration = exchange.iteration
        run.seen = dict.fromkeys(holdings.parties, run.iteration)
        run.best_dual = float(span.dual[:classes].sum())
        w = span.padded(span.mixture) / span.lam
        run.norm_estimate = float(span.inner(w, w)[:classes].sum())
        self.complete = False
        self._waiting = set(missing.parties)
        self._axes = {"rows": holdings.rows, "columns": holdings.columns}
        #: Cohorts whose totals somebody has put in.
        self._spoken: dict[str, set[int]] = {field: set() for field in self._axes}

    def hand(self, parties: Sequence[str]) -> set[str]:
        """Let parties take over α; one holder of every cohort puts in its totals.

        Returns who did not answer.
        """
        run, span, exchange = self.run, self._span, self._span.exchange
        messages: dict[str, Message] = run.adder.open(parties)
        speak = {field: self._speakers(field, parties) for field in self._spoken}
        for party, message in messages.items():
            message.update({"iteration": run.iteration, "number": self._number})
            message.update({"lam": span.base_lam, "weights": span.mixture[1:]})
            message["point"] = span.mixture / span.lam
            for field, flags in speak.items():
                message[field] = flags[party]
            if exchange.fold is not None:
                message["keep"] = exchange.fold[1]
                message["serial"] = exchange.folds_at(party, self._missing.phase)
        run.v.invite(messages)
        run.z.invite(messages)
        replies = run.channel.ask("span.hand", messages)
        replies.stop_on_refusal()
        run.v.add(replies.answered, run.iteration)
        run.z.add(replies.answered, run.iteration)
        for field, flags in speak.items():
            for party in replies.answered:
                mine = self._axes[field].cohorts[run.holdings.index[party]]
                self._spoken[field].update(mine[flags[party]].tolist())
        return set(replies.missing)

    def _speakers(self, field: str, parties: Sequence[str]) -> dict[str, Flags]:
        """Per party, which of its cohorts it speaks for: nobody does yet, and it is the first."""
        holdings, axis, spoken = self.run.holdings, self._axes[field], self._spoken[field]
        # Only holders with the labels know z.
        holders = axis.marked if field == "rows" else axis.holders
        here = {holdings.index[party] for party in parties}
        first: dict[int, int] = {}
        for cohort in range(len(axis.sizes)):
            able = [holder for holder in holders[cohort].tolist() if holder in here]
            if able and cohort not in spoken:
                first[cohort] = able[0]
        flags = {}
        for party in parties:
            number = holdings.index[party]
            mine = axis.cohorts[number].tolist()
            flags[party] = np.array([first.get(cohort) == number for cohort in mine], bool)
        return flags

    def recalled(self) -> bool:
        """Whether everybody is back; who was away takes α of the others first."""
        run = self.run
        if run.silent_iterations:
            run.channel.pause(min(_FIRST_PAUSE * 2**run.silent_iterations, _LONGEST_PAUSE))
        self._take_in()
        self._watch.ask_again()
        return self.complete

    def wait(self, seconds: float) -> None:
        """Do nothing but look whether everybody is back."""
        channel, began, pause = self._watch, self._watch.elapsed, _FIRST_PAUSE
        channel.ask_again()
        while not self.complete and channel.elapsed - began + pause <= seconds:
            channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            channel.exchange([])
            self._take_in()
            channel.ask_again()

    def _take_in(self) -> None:
        """If all are there, let those who were away take over and catch up."""
        run = self.run
        if self._watch.back.issuperset(self._watch.away):
            if self._waiting:
                self._waiting = self.hand([p for p in run.holdings.parties if p in self._waiting])
            if not self._waiting:
                self.complete = Iteration(run).catch_up()


class Watch(Among):
    """A channel to those who are there; on the way it looks whether the others are back.

    The question rides with another, and costs no round trip.
    """

    def __init__(self, channel: Channel, parties: Sequence[str], away: Collection[str]) -> None:
        super().__init__(channel, parties)
        self.away = frozenset(away)
        #: Who of them has answered when asked last.
        self.back: set[str] = set()
        self._due = False

    def ask_again(self) -> None:
        """Look again, with the next question."""
        self._due = True

    def exchange(self, requests: Sequence[Request]) -> list[Replies]:
        if self._due:
            self._due = False
            probe = Request("span.here", {party: {} for party in sorted(self.away)})
            heard, *replies = super().exchange([probe, *requests])
            self.back = set(heard.answered)
        else:
            replies = super().exchange(requests)
        for request, reply in zip(requests, replies, strict=True):
            if request.phase in _SETTING_UP and reply.missing:
                reply.stop_on_refusal()
                raise _FellSilent(set(reply.missing))
        return replies


def _present(exchange: Exchange, missing: PartyMissing) -> tuple[str, ...]:
    return tuple(p for p in exchange.holdings.parties if p not in missing.parties)


def _messages(
    exchange: Exchange, missing: PartyMissing, present: Sequence[str]
) -> dict[str, Message]:
    """A request to those who are there; some have yet to drop vectors, others have done so."""
    messages: dict[str, Message] = exchange.adder.open(present)
    for party, message in messages.items():
        message["iteration"] = exchange.iteration
        if exchange.fold is not None and party not in missing.folded:
            message["fold"], message["keep"] = exchange.fold
    return messages
