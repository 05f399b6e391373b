"""HyFDCA, the coordinator's half: Algorithm 1 of the paper on running totals."""

from __future__ import annotations

from collections.abc import Callable

from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.base import Checkpointing, Coordinator, Record, Result
from weft.solvers.checkpoints import load_checkpoint, save_checkpoint
from weft.solvers.guard_stall import GuardStall
from weft.solvers.hyfdca.curvature import find_omega, share_norms
from weft.solvers.hyfdca.iteration import Iteration
from weft.solvers.hyfdca.messages import BEGIN, BeginRequest
from weft.solvers.hyfdca.run_state import Run
from weft.solvers.run_state import MOST_SILENT
from weft.solvers.settings import Settings
from weft.solvers.stopping import Clock, why_stop
from weft.sums.certificate import FrozenPair

#: Certificates without better bounds, while something is held back, after which a run stops.
MOST_IDLE = 100
#: Rounds without training in which the last certificate waits for parties to come by.
CLOSING_ROUNDS = 10_000


class HyfdcaCoordinator(Coordinator):
    """Runs HyFDCA; see :class:`weft.solvers.hyfdca.iteration.Iteration` for one iteration."""

    def run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        *,
        unit: float,
        label: float,
        classes: int,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        warm: bool = False,
    ) -> Result:
        run = Run(channel, holdings, settings, adder, classes)
        result = Result(notes=run.notes)
        if checkpointing is not None and checkpointing.resume:
            spent = load_checkpoint(run, result, checkpointing.folder)
            clock = Clock(channel, result, spent)
            result.stopped = _why_stop(run, result.history[-1])
        else:
            clock = Clock(channel, result)
            _set_up(run, unit)
        self._iterate(run, result, clock, progress, checkpointing)
        return result

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
        _set_up(run, unit)
        result.stopped = ""
        self._iterate(run, result, clock, progress, None, recalled)

    def _iterate(
        self,
        run: Run,
        result: Result,
        clock: Clock,
        progress: Callable[[Record], None] | None,
        checkpointing: Checkpointing | None,
        recalled: Callable[[], bool] = lambda: False,
    ) -> None:
        floor, held, certified = (
            GuardStall(run.holdings.terms.min_batch, MOST_IDLE),
            0,
            run.certificate,
        )
        while not result.stopped:
            iteration = Iteration(run)
            iteration.take()
            record = clock.record(
                run.iteration,
                len(iteration.present),
                run.certificate,
                loss_estimate=iteration.loss_estimate,
                gap_estimate=iteration.gap_estimate,
            )
            result.history.append(record)
            if progress is not None:
                progress(record)
            if recalled():
                return
            result.stopped = _why_stop(run, record)
            if run.certificate is not None and run.certificate is not certified:
                why = floor.watch(run.iteration, run.held - held, run.certificate.gap)
                result.stopped = result.stopped or why
                certified, held = run.certificate, run.held
            if checkpointing is not None and run.iteration % checkpointing.every == 0:
                save_checkpoint(run, result, checkpointing.folder, clock.spent())
        if not run.gone:
            _close(run, result)
        last = result.history[-1]
        # Closing may have brought a certificate, and has cost something.
        result.history[-1] = clock.record(
            run.iteration,
            last.present,
            run.certificate,
            loss_estimate=last.loss_estimate,
            gap_estimate=last.gap_estimate,
        )
        if note := floor.note(None if result.certificate is None else result.certificate.gap):
            run.note(note)
        result.weights = None if run.weights is None else run.weights.values


def _set_up(run: Run, unit: float) -> None:
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


def seems_done(run: Run, record: Record) -> bool:
    """Whether the estimated gap is as small as the one asked for.

    Below zero it says nothing: losses that nobody counts are missing from it.
    """
    target, guess = run.settings.gap, record.gap_estimate
    return target is not None and guess is not None and 0 <= guess <= target


def _why_stop(run: Run, record: Record) -> str:
    if run.reached_gap and run.certificate is not None:
        return f"certified gap {run.certificate.gap:.2e} ≤ {run.settings.gap:g}"
    if run.gone and seems_done(run, record):
        away = ", ".join(run.gone)
        return (
            f"estimated gap {record.gap_estimate:.2e} ≤ {run.settings.gap:g}; no certificate "
            f"without {away}"
        )
    return why_stop(run.settings, run.iteration, record)


def _close(run: Run, result: Result) -> None:
    """End on a certified pair: the one that stopped the run, or a last one, waited for."""
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
            f"the model released is that of iteration {certificate.iteration}, the last for which "
            "every party answered"
        )
    result.certificate = certificate
    if run.certified_frozen:
        result.model_iteration = certificate.iteration


def _wait_for_pair(run: Run) -> None:
    """Freeze the last α and go on asking whoever is present, without training."""
    pair = run.freeze()
    silent = 0
    for extra in range(1, CLOSING_ROUNDS + 1):
        present = run.participation.present(run.iteration + extra)
        request = pair.request(present, run.seen)
        if request.messages:
            run.acknowledge(request)
            replies = run.channel.ask(request.phase, request.messages)
            replies.stop_on_refusal()
            run.note_missing(replies.missing)
            pair.receive(replies.answered)
            silent = 0 if replies.answered else silent + 1
        if pair.certificate is not None:
            run.accept(pair)
            return
        if silent > MOST_SILENT:
            break
    run.note(f"no certificate for the last iterate: {_names(pair)} did not answer")


def _names(pair: FrozenPair) -> str:
    names = sorted(pair.waiting)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
