"""The coordinator of a fast solver while a party is away: HyFDCA goes on until it is back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from weft.array_types import Flags
from weft.matching.cohorts import Axis
from weft.matching.holding_map import HoldingMap
from weft.protocol import Among, Channel, Nothing, Phase, Replies, Request
from weft.solvers.hyfdca.coordinator import HyfdcaCoordinator, Iteration
from weft.solvers.hyfdca.coordinator_run_state import Run
from weft.solvers.hyfdca.messages import BEGIN, GATHER, NORMS, SPREAD
from weft.solvers.participation import Contributors
from weft.solvers.run_loop import Clock
from weft.solvers.solver_interfaces_and_results import Record, Result
from weft.solvers.subspace.ask_until_answered import FallbackResult, PartyMissing
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.coordinator_round_trips import Exchange
from weft.solvers.subspace.messages import (
    FALLBACK,
    HERE,
    KEEP,
    Dropped,
    FallbackRequest,
    KeepRequest,
)

_SETTING_UP: tuple[Phase[Any, Any], ...] = (NORMS, SPREAD, GATHER, BEGIN)


class FellSilent(Exception):
    """A party did not answer while HyFDCA was set up, which takes all who begin it."""

    def __init__(self, parties: set[str]) -> None:
        super().__init__()
        self.parties = parties


class ReturnWatch(Among):
    """A channel to the parties that are there.

    The question whether the others are back rides with another, and costs no round trip.

    Attributes
    ----------
    back
        Which of those away have answered when asked last.
    """

    def __init__(self, channel: Channel, parties: Sequence[str], away: Collection[str]) -> None:
        super().__init__(channel, parties)
        self.away = frozenset(away)
        self.back: set[str] = set()
        self._due = False

    def ask_again(self) -> None:
        """Look again, with the next question."""
        self._due = True

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        if self._due:
            self._due = False
            probe = Request(HERE, {party: Nothing() for party in sorted(self.away)})
            heard, *replies = super().exchange([probe, *requests])
            self.back = set(heard.answered)
        else:
            replies = super().exchange(requests)
        for request, reply in zip(requests, replies, strict=True):
            if request.phase in _SETTING_UP and reply.missing:
                reply.stop_on_refusal()
                raise FellSilent(set(reply.missing))
        return replies


#: How often a party is asked to keep the model when a run stops.
_ATTEMPTS = 3
#: Seconds between two iterations in which no party answers: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def keep_point(subspace: Subspace, missing: PartyMissing, model: int) -> bool:
    """Let those who are there form the best point; returns whether all of them did."""
    exchange = subspace.exchange
    waiting = _present(exchange, missing)
    for _ in range(_ATTEMPTS):
        round_ = exchange.adder.advance()
        messages = {
            party: KeepRequest(
                round=round_,
                iteration=exchange.iteration,
                point=subspace.point,
                model=model,
                # Some have yet to drop vectors, others have done so.
                fold=None if party in missing.folded else exchange.fold,
            )
            for party in waiting
        }
        replies = exchange.channel.ask(KEEP, messages)
        replies.stop_on_refusal()
        waiting = tuple(replies.missing)
        if not waiting:
            return True
    return False


class FallbackEnded(Exception):
    """HyFDCA went on in the place of the solver, and has come to the end of the run."""


class Fallback:
    """HyFDCA among those who are there, until all are back or the run is over.

    Parameters
    ----------
    unit
        A power of two above every party's part of every ‖x_i‖².
    """

    def __init__(
        self,
        subspace: Subspace,
        unit: float,
        result: Result,
        clock: Clock,
        progress: Callable[[Record], None] | None,
    ) -> None:
        self._subspace, self._unit = subspace, unit
        self._result, self._clock, self._progress = result, clock, progress
        self._times = 0

    def __call__(self, missing: PartyMissing) -> None:
        """Go on from the last mixture of dual vectors; returns when all parties are back."""
        exchange, result = self._subspace.exchange, self._result
        begun = exchange.iteration
        # Models that are finished and certified are worth more than one that cannot be.
        if not result.history or result.stages:
            raise missing
        fallback = self._go_on(missing)
        run = fallback.run
        if not fallback.complete and run.seems_done(result.history[-1]):
            # A certificate is all that is missing.
            fallback.wait(exchange.settings.patience)
        if not fallback.complete:
            result.lam = self._subspace.base_lam
            raise FallbackEnded
        back, solver = ", ".join(run.gone), exchange.settings.solver
        result.gone, result.stopped = (), ""
        result.notes.append(f"iteration {run.iteration}: {back} is back; going on with {solver}")
        exchange.iteration = run.iteration + 1
        exchange.held += run.held
        if not exchange.settings.folds and run.iteration > begun:
            exchange.fallback_result = FallbackResult(self._times, run.v, dict(run.ack))

    def _go_on(self, missing: PartyMissing) -> FallbackRun:
        """HyFDCA to its end; from the beginning, where a party falls silent too early."""
        away, result = set(missing.parties), self._result
        while True:
            fallback = self._begin(missing, away)
            result.gone = fallback.run.gone
            try:
                HyfdcaCoordinator().go_on(
                    fallback.run,
                    self._unit,
                    result,
                    self._clock,
                    self._progress,
                    fallback.recalled,
                )
            except FellSilent as fallen:
                away |= self._still_silent(fallen.parties)
            else:
                return fallback

    def _begin(self, missing: PartyMissing, away: set[str]) -> FallbackRun:
        """Begin with those who are there; ``away`` gets those that fall silent now."""
        exchange = self._subspace.exchange
        while True:
            present = [p for p in exchange.holdings.parties if p not in away]
            missing.parties = tuple(p for p in exchange.holdings.parties if p in away)
            if not Contributors(exchange.holdings).of(present):
                raise missing
            self._times += 1
            fallback = FallbackRun(self._subspace, missing, self._times, self._result.notes)
            # The first of its holders speaks for a cohort: without it, everyone begins anew.
            silent = fallback.begin(present)
            if not silent:
                self._note(f"{missing}; going on with HyFDCA without it, uncertified")
                return fallback
            away |= self._still_silent(silent)

    def _still_silent(self, parties: Collection[str]) -> set[str]:
        """Who of them does not answer for longer than the run may wait."""
        exchange, silent = self._subspace.exchange, set(parties)
        channel, began, pause = exchange.channel, exchange.channel.elapsed, _FIRST_PAUSE
        while True:
            silent -= set(channel.ask(HERE, {p: Nothing() for p in sorted(silent)}).answered)
            if not silent or channel.elapsed - began + pause > exchange.settings.patience:
                for party in sorted(silent):
                    self._note(f"iteration {exchange.iteration}: {party} fell silent too")
                return silent
            channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _note(self, note: str) -> None:
        if note not in self._result.notes:
            self._result.notes.append(note)


class FallbackRun:
    """One run of HyFDCA in the place of a fast solver.

    Attributes
    ----------
    complete
        Whether all parties are back, and stand at the same α.
    """

    def __init__(
        self, subspace: Subspace, missing: PartyMissing, number: int, notes: list[str]
    ) -> None:
        exchange, self._subspace, self._missing = subspace.exchange, subspace, missing
        self._number = number
        holdings, classes = exchange.holdings, exchange.problems.classes
        company = Contributors(holdings).of(_present(exchange, missing))
        settings = msgspec.structs.replace(
            exchange.settings,
            solver="hyfdca",
            lam=subspace.base_lam,
            path=(),
            folds=0,
            local="safe",
            participation={"trace": [company]},
        )
        self._watch = ReturnWatch(exchange.channel, company, missing.parties)
        run = self.run = Run(self._watch, holdings, settings, exchange.adder, classes)
        run.notes = notes
        run.gone = missing.parties
        run.iteration = exchange.iteration
        run.seen = dict.fromkeys(holdings.parties, run.iteration)
        run.best_dual = float(subspace.dual[:classes].sum())
        w = subspace.padded(subspace.mixture) / subspace.lam
        run.norm_estimate = float(subspace.inner(w, w)[:classes].sum())
        self.complete = False
        self._waiting = set(missing.parties)
        # Only holders with the labels know z.
        self._rows = _FirstHolders(holdings, holdings.rows, labelled=True)
        self._columns = _FirstHolders(holdings, holdings.columns, labelled=False)

    def begin(self, parties: Sequence[str]) -> set[str]:
        """Let parties take over α; one holder of every cohort puts in its totals.

        Returns who did not answer.
        """
        run, subspace, exchange = self.run, self._subspace, self._subspace.exchange
        round_ = run.adder.advance()
        rows, columns = self._rows.of(parties), self._columns.of(parties)
        # Whoever returns would be alone in its sums: the others join it, and put nothing in.
        company = [p for p in run.holdings.parties if p in parties or p not in self._waiting]
        asked = run.contributors.joined(list(parties), company)
        nothing = {p: self._nothing(p) for p in asked if p not in rows}
        point = subspace.mixture / subspace.lam
        fold = exchange.fold
        dropped = None if fold is None else Dropped(number=exchange.folds + 1, keep=fold.keep)
        messages = {
            party: FallbackRequest(
                round=round_,
                iteration=run.iteration,
                number=self._number,
                lam=subspace.base_lam,
                weights=subspace.mixture[1:],
                point=point,
                rows=rows[party] if party in rows else nothing[party][0],
                columns=columns[party] if party in columns else nothing[party][1],
                dropped=dropped,
            )
            for party in asked
        }
        run.v.invite(messages)
        run.z.invite(messages)
        replies = run.channel.ask(FALLBACK, messages)
        replies.stop_on_refusal()
        run.v.add(replies.answered, run.iteration)
        run.z.add(replies.answered, run.iteration)
        for party in rows.keys() & replies.answered.keys():
            self._rows.count(party, rows[party])
            self._columns.count(party, columns[party])
        return set(parties).intersection(replies.missing)

    def _nothing(self, party: str) -> tuple[Flags, Flags]:
        """Flags of no row cohort and no column cohort of a party."""
        holdings = self.run.holdings
        k = holdings.index[party]
        rows, columns = holdings.rows.cohorts[k], holdings.columns.cohorts[k]
        return np.zeros(len(rows), bool), np.zeros(len(columns), bool)

    def recalled(self) -> bool:
        """Whether all parties are back; those that were away take α of the others first."""
        run = self.run
        if run.silent_iterations:
            run.channel.pause(min(_FIRST_PAUSE * 2**run.silent_iterations, _LONGEST_PAUSE))
        self._take_in()
        self._watch.ask_again()
        return self.complete

    def wait(self, seconds: float) -> None:
        """Do nothing but look whether all parties are back."""
        channel, began, pause = self._watch, self._watch.elapsed, _FIRST_PAUSE
        channel.ask_again()
        while not self.complete and channel.elapsed - began + pause <= seconds:
            channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            channel.exchange([])
            self._take_in()
            channel.ask_again()

    def _take_in(self) -> None:
        """If all are there, let those that were away take over and catch up."""
        run = self.run
        if self._watch.back.issuperset(self._watch.away):
            if self._waiting:
                self._waiting = self.begin([p for p in run.holdings.parties if p in self._waiting])
            if not self._waiting:
                self.complete = Iteration(run).catch_up()


class _FirstHolders:
    """Who puts in the totals of cohorts along one axis: the first holder that is there.

    Parameters
    ----------
    labelled
        Whether only holders with the labels know the totals.
    """

    def __init__(self, holdings: HoldingMap, axis: Axis, *, labelled: bool) -> None:
        self._index, self._cohorts, self._count = holdings.index, axis.cohorts, len(axis.sizes)
        self._holders = axis.marked if labelled else axis.holders
        #: Cohorts whose totals were put in.
        self._done: set[int] = set()

    def of(self, parties: Sequence[str]) -> dict[str, Flags]:
        """Per party, a flag for each of its cohorts that it is the first to put in."""
        here = {self._index[party] for party in parties}
        first: dict[int, int] = {}
        for cohort in range(self._count):
            able = [holder for holder in self._holders[cohort].tolist() if holder in here]
            if able and cohort not in self._done:
                first[cohort] = able[0]
        flags = {}
        for party in parties:
            number = self._index[party]
            mine = self._cohorts[number].tolist()
            flags[party] = np.array([first.get(cohort) == number for cohort in mine], bool)
        return flags

    def count(self, party: str, flags: Flags) -> None:
        """A party has put in the totals of these of its cohorts."""
        self._done.update(self._cohorts[self._index[party]][flags].tolist())


def _present(exchange: Exchange, missing: PartyMissing) -> tuple[str, ...]:
    return tuple(p for p in exchange.holdings.parties if p not in missing.parties)
