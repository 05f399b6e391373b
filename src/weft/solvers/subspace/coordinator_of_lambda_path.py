"""The fast solvers, the coordinator's half: one λ after the other, each until it is certified."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from weft.array_types import Floats
from weft.crypto import Adder
from weft.errors import PartyAway, ProtocolError
from weft.guards.sum_noise_size import longest_noise
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.run_loop import Clock, GuardStall, ends_whole_run, why_stop
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import (
    Checkpointing,
    Coordinator,
    Record,
    Result,
    Stage,
)
from weft.solvers.subspace.ask_until_answered import PartyMissing
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace, gaps_of
from weft.solvers.subspace.coordinator_hyfdca_while_one_is_away import (
    Fallback,
    FallbackEnded,
    keep_point,
)
from weft.solvers.subspace.coordinator_round_trips import Exchange
from weft.solvers.subspace.cutting_planes_solver import (
    EAGER,
    ONE_CUT,
    CuttingPlanes,
    Places,
)
from weft.solvers.subspace.lbfgs_solver import Lbfgs
from weft.solvers.subspace.loss_points_and_directions_limit import (
    LEAST_DIRECTIONS,
    MOST_DIRECTIONS,
    may_ascend,
)
from weft.solvers.subspace.newton_cg_solver import NewtonCg
from weft.solvers.subspace.span_newton_solver import SpanNewton
from weft.sums.gap_certificate import Certificate
from weft.sums.largest_possible_sums import Bounds


class Solver(Protocol):
    """What makes one iteration, turns to another λ, and takes over what HyFDCA has reached."""

    def step(self) -> None: ...

    def turn(self) -> None: ...

    def inherit(self) -> None: ...


#: Vectors for a column, from which on their span has most of a table's directions.
_SHARE_OF_COLUMNS = 0.5
#: Vectors of a smooth loss, of fewer of which guards leave moments only where some party counts so
#: few samples that they stop cutting planes too.
_FEWEST_OF_PLANES = 7
#: Makes a solver of what is known when a run begins.
Start = Callable[[Subspace], Solver]


class SubspaceCoordinator(Coordinator):
    """Runs a solver over a list of λ, each started from the last, and closes every model."""

    @abstractmethod
    def choose(self, exchange: Exchange) -> Start:
        """What iterates; whether parties keep dual vectors for it, ``exchange`` knows then."""

    def run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        *,
        unit: float,
        label: float,
        offset: float = 0.0,
        weight: float = 1.0,
        classes: int,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        warm: bool = False,
    ) -> Result:
        bounds = Bounds.of(
            settings.make_loss(),
            settings.smallest_lam,
            holdings.row_holders,
            unit,
            label,
            free_intercept=settings.frees_intercept(holdings.bias_slot >= 0),
            offset=offset,
            weight=weight,
        )
        problems = Problems(classes, settings.folds, settings.make_loss().joint)
        exchange = Exchange(channel, holdings, settings, adder, problems, bounds)
        # What is named of samples has a bound above zero, whatever it is.
        exchange.alike = offset == 0.0 and settings.class_weight is None
        exchange.noise = _longest_noise(holdings, settings, unit)
        if settings.sum_noise is not None:
            exchange.notes.append(
                f"feature sums have noise, {settings.sum_noise.multiplier:g} times what one sample "
                "can move them; the certificate allows for it, and holds but for a chance of 1e-9"
            )
        result = Result(notes=exchange.notes)
        floor = GuardStall(holdings.terms.min_batch)
        clock = Clock(channel, result)
        subspace: Subspace | None = None
        path: _Path | None = None
        try:
            start = self.choose(exchange)
            subspace = Subspace(exchange, settings.lambdas[0], warm=warm)
            solver = start(subspace)
            if settings.hands_over:
                exchange.fallback = Fallback(subspace, unit, result, clock, progress)
            path = _Path(_Model(subspace, solver, result, clock, floor, progress))
            while path.number < len(settings.lambdas):
                path.model.begin(path.number, settings.lambdas[path.number])
                # Where the run is resumed, it ends with a later λ.
                over = path.model.train(path)
                if exchange.seen is not None:
                    path.seen[path.number] = exchange.seen.values.copy()
                path.number += 1
                left = settings.lambdas[path.number :]
                if over and left:
                    exchange.notes.append(
                        f"{result.stopped}: λ = {', '.join(f'{x:g}' for x in left)} not trained"
                    )
                    break
        except FallbackEnded:
            return result
        except PartyMissing as missing:
            if subspace is None or path is None or not result.history:
                raise PartyAway(f"{missing}; bring it back and start again") from None
            result.gone = missing.parties
            _stop_here(subspace, missing, settings.lambdas[path.number], result, clock)
        chosen = chosen_stage(result.stages, settings)
        result.certificate, result.model_iteration = chosen.certificate, chosen.number
        if held := floor.note(chosen.certificate.gap):
            result.notes.append(held)
        result.weights = path.seen.get(chosen.number)
        if settings.evaluates and chosen.scores and not result.gone:
            _evaluate(exchange, chosen.number, result)
        return result


def _longest_noise(holdings: HoldingMap, settings: Settings, unit: float) -> float:
    """How long the noise in a vector may be; zero: there is none.

    The constant column is in ``unit``, as all parts of rows were before they were shortened.
    """
    noise, holders = settings.sum_noise, holdings.row_holders
    if noise is None:
        return 0.0
    sigma = noise.sigma(
        lipschitz=settings.make_loss().lipschitz,
        rows=math.sqrt(holders * (noise.row_norm**2 + unit)),
        samples=holdings.n_samples,
    )
    # Twice, for what parties add for rounding.
    return longest_noise(2.0 * sigma, holdings.n_features, holdings.column_holders)


def _evaluate(exchange: Exchange, model: int, result: Result) -> None:
    """Have the scores of the samples that folds left out counted, of the model to release."""
    try:
        result.held_out = exchange.evaluate(model)
    except PartyMissing as missing:
        result.gone = missing.parties
        result.notes.append(f"{missing}; the model is not judged on samples left out")


def _stop_here(
    subspace: Subspace, missing: PartyMissing, lam: float, result: Result, clock: Clock
) -> None:
    """End with the best point so far: its P and D are known, if not measured afresh."""
    number = len(result.stages)
    result.stopped = str(missing)
    kept = keep_point(subspace, missing, number)
    if not kept and not result.stages:
        raise ProtocolError(f"{missing}, and others fell silent too; start again")
    result.notes.append(f"{missing}; the run stopped with the certificate reached so far")
    if not kept:
        return
    certified = subspace.exchange.problems.on_all_samples
    certificate = Certificate(
        subspace.exchange.iteration,
        tuple(subspace.primal[certified].tolist()),
        tuple(subspace.dual[certified].tolist()),
    )
    result.stages.append(Stage(number, lam, certificate, clock.round_trips))


@dataclass
class _Path:
    """Where a run stands on its way over all λ.

    Attributes
    ----------
    number
        Of the λ that is being trained.
    seen
        w of every finished model, where the coordinator may see it.
    """

    model: _Model
    number: int = 0
    seen: dict[int, Floats] = field(default_factory=dict)


class _Model:
    """One λ: iterations until the gap is small enough, then a measurement of the model itself."""

    def __init__(
        self,
        subspace: Subspace,
        solver: Solver,
        result: Result,
        clock: Clock,
        floor: GuardStall,
        progress: Callable[[Record], None] | None,
    ) -> None:
        self._subspace, self._solver = subspace, solver
        self._result, self._clock, self._progress = result, clock, progress
        self._floor = floor
        self._number, self._lam, self._begun, self._promise = 0, 0.0, 0, math.inf

    def begin(self, number: int, lam: float) -> None:
        """Turn to a λ."""
        self._subspace.turn_to(lam)
        self._solver.turn()
        self._number, self._lam = number, lam
        self._floor.renew()
        self._begun = self._subspace.exchange.iteration
        # Measured afresh, a model may prove less than rounding on the way promised. Then it is
        # not measured again before the promise is better.
        target = self._subspace.exchange.settings.gap
        self._promise = math.inf if target is None else target

    def train(self, path: _Path) -> bool:
        """Iterate and close; returns whether a limit of the whole run is reached.

        All that the run goes on from is reached from ``path``.
        """
        exchange = self._subspace.exchange
        target = exchange.settings.gap
        while True:
            exchange.channel.at_rest(path, self._result.history, Record, self._progress)
            why, over = self._iterate()
            gap = float(self._subspace.gaps.max())
            reached = target is not None and gap <= min(target, self._promise)
            if not (reached or why):
                continue
            certificate, gaps, scores = self._close()
            if target is not None and float(gaps.max()) <= target:
                why = f"certified gap {certificate.gap:.2e} ≤ {target:g}"
            if why:
                break
            self._promise = 0.8 * gap
        self._result.stopped = why
        self._result.stages.append(
            Stage(self._number, self._lam, certificate, self._clock.round_trips, scores)
        )
        return over

    def _iterate(self) -> tuple[str, bool]:
        """One iteration; returns why to stop, if there is a reason besides the gap, and whether
        that is a limit of the whole run, not of one λ."""
        exchange = self._subspace.exchange
        if exchange.fallback_result is not None:
            self._solver.inherit()
        exchange.iteration += 1
        before = exchange.held
        self._solver.step()
        record = self._record()
        # Iterations of HyFDCA count too, where a party was away.
        settings, done = exchange.settings, exchange.iteration - self._begun
        why = why_stop(settings, done, record)
        over = ends_whole_run(settings, done, why)
        gap = float(self._subspace.gaps.max())
        floor = self._floor.watch(exchange.iteration, exchange.held - before, gap)
        return why or floor, over

    def _record(self) -> Record:
        subspace = self._subspace
        certificate = self._certificate(subspace.primal, subspace.dual)
        record = self._clock.record(
            subspace.exchange.iteration,
            len(subspace.exchange.holdings.parties),
            certificate,
            lam=self._lam,
        )
        self._result.history.append(record)
        if self._progress is not None:
            self._progress(record)
        return record

    def _certificate(self, primal: Floats, dual: Floats) -> Certificate:
        """P and D of the problems on all samples."""
        certified = self._subspace.exchange.problems.on_all_samples
        return Certificate(
            self._subspace.exchange.iteration,
            tuple(primal[certified].tolist()),
            tuple(dual[certified].tolist()),
        )

    def _close(self) -> tuple[Certificate, Floats, list[list[float]] | None]:
        """Let the parties form w and w(α) themselves, and measure: what is certified is theirs."""
        subspace, exchange = self._subspace, self._subspace.exchange
        mixture = subspace.padded(subspace.mixture)
        norms, bound = exchange.model(subspace.point, mixture, self._number)
        losses, scores = exchange.close()
        primal = 0.5 * subspace.lam * norms + losses
        half = 0.5 * bound + subspace.beyond(bound, mixture)
        dual = (mixture * subspace.offsets).sum(axis=0) - half / subspace.lam
        if subspace.free:
            dual -= subspace.range.price(subspace.intercept_of(mixture))
        subspace.dual = np.minimum(subspace.dual, dual)
        certificate = self._certificate(primal, dual)
        last = self._result.history[-1]
        self._result.history[-1] = self._clock.record(
            last.iteration, last.present, certificate, lam=self._lam
        )
        return certificate, gaps_of(primal, dual), None if scores is None else scores.tolist()


def chosen_stage(stages: Sequence[Stage], settings: Settings) -> Stage:
    """The model to release: with folds, that of the best λ; else the one asked for.

    The best λ predicts most samples rightly that were left out (has the least squared error, in a
    regression), or is best by ``scoring``; of equals, the largest. A run that was cut short has
    its last.
    """
    scored = [stage for stage in stages if stage.scores]
    if scored:
        task = settings.make_loss().task
        return max(scored, key=lambda stage: stage.quality(task, settings.scoring))
    asked = [stage for stage in stages if stage.lam == settings.lam]
    return asked[0] if asked else stages[-1]


class CuttingPlanesCoordinator(SubspaceCoordinator):
    def choose(self, exchange: Exchange) -> Start:
        return _planes(exchange, ONE_CUT)


class LbfgsCoordinator(SubspaceCoordinator):
    def choose(self, exchange: Exchange) -> Start:
        return Lbfgs


class NewtonCgCoordinator(SubspaceCoordinator):
    def choose(self, exchange: Exchange) -> Start:
        return NewtonCg


class SpanNewtonCoordinator(SubspaceCoordinator):
    def choose(self, exchange: Exchange) -> Start:
        planes = may_ascend(exchange.settings) and exchange.alike
        if exchange.settings.make_loss().smooth:
            planes = planes and exchange.most_directions >= _FEWEST_OF_PLANES
        why = _why_no_moments(
            exchange, _fewest_directions(exchange) if planes else LEAST_DIRECTIONS
        )
        if not why:
            return SpanNewton
        instead = "cutting planes" if planes else "L-BFGS"
        exchange.notes.append(f"{why}: directions come from {instead} instead")
        return _planes(exchange, EAGER) if planes else Lbfgs


def _fewest_directions(exchange: Exchange) -> int:
    """Vectors below which cutting planes do better than second moments of so many.

    Of a smooth loss, Newton's method in their span stalls where a table has many more columns.
    """
    if not exchange.settings.make_loss().smooth:
        return LEAST_DIRECTIONS
    most = math.ceil(exchange.holdings.n_features * _SHARE_OF_COLUMNS)
    return min(MOST_DIRECTIONS, max(LEAST_DIRECTIONS, most))


def _planes(exchange: Exchange, places: Places) -> Start:
    exchange.keeps = True
    return partial(CuttingPlanes, places=places)


def _why_no_moments(exchange: Exchange, least: int) -> str:
    """Why no second moments are asked for in this run, of ``least`` vectors; empty: they are."""
    settings = exchange.settings
    if not settings.make_loss().spreads:
        return (
            f"the curvature of loss '{settings.loss}' may be that of a few samples, so that no "
            "second moments are told"
        )
    if settings.sum_noise is not None:
        return "second moments have no noise, so that none are told beside [sum_noise]"
    if settings.class_weight is not None or exchange.bounds.weight != 1.0:
        # Moments are told without weights, for one of them could be most of all.
        return "second moments are of samples that weigh the same, and these do not"
    if exchange.most_directions < least:
        return (
            "some party counts too few samples to tell second moments of "
            f"{least} vectors under min_batch"
        )
    return ""
