"""HyFDCA, the coordinator's half: Algorithm 1 of the paper on running totals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Replies
from weft.solvers.base import Record, Result
from weft.solvers.hyfdca.coordinator_state import Run
from weft.solvers.hyfdca.curvature import find_omega, share_norms
from weft.solvers.hyfdca.iteration import Iteration
from weft.solvers.hyfdca.messages import BEGIN, BeginRequest
from weft.solvers.run_loop import IteratedCoordinator, Turn, wait_for_certificate
from weft.solvers.settings import Settings
from weft.solvers.stopping import Clock


class HyfdcaCoordinator(IteratedCoordinator[Run]):
    """Runs HyFDCA; see :class:`weft.solvers.hyfdca.iteration.Iteration` for one iteration."""

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
        if run.gone and not run.reached_gap and seems_done(run, record):
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


def seems_done(run: Run, record: Record) -> bool:
    """Whether the estimated gap is as small as the one asked for.

    Below zero it says nothing: losses that nobody counts are missing from it.
    """
    target, guess = run.settings.gap, record.gap_estimate
    return target is not None and guess is not None and 0 <= guess <= target


def _wait_for_pair(run: Run) -> None:
    """Freeze the last α, and wait until everyone has answered for it."""
    pair = run.freeze()

    def take(replies: Replies[Any]) -> None:
        pair.receive(replies.answered)

    if wait_for_certificate(run, pair, lambda present: pair.request(present, run.seen), take):
        run.accept(pair)
