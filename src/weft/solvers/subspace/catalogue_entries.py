"""The solvers for full participation in the catalogue, with what they need and guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from weft.errors import ConfigError
from weft.guards.privacy_terms import Terms
from weft.matching.party_view import PartyView
from weft.solvers.algorithm_entry import Algorithm, bounds
from weft.solvers.hyfdca.catalogue_entries import HYFDCA, norms_beyond_terms, settle_norms
from weft.solvers.hyfdca.sum_count_forecast import iterating, set_up
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.coordinator_of_lambda_path import (
    CuttingPlanesCoordinator,
    LbfgsCoordinator,
    NewtonCgCoordinator,
    SpanNewtonCoordinator,
)
from weft.solvers.subspace.cutting_planes_solver import EAGER
from weft.solvers.subspace.loss_points_and_directions_limit import may_ascend
from weft.solvers.subspace.newton_cg_solver import MOST_PRODUCTS
from weft.solvers.subspace.party import SubspaceParty
from weft.solvers.subspace.settings import SPAN_NEWTON
from weft.solvers.sum_count_forecast import (
    QUASI_NEWTON,
    Forecast,
    capped,
    most_iterations,
    power_of_gap,
)


@dataclass(frozen=True)
class SubspaceForecast:
    """Sums over a sample that one solver takes.

    What is likely was fitted to runs on breast cancer without guards: the number of sums is close
    to a power of q = mean ‖x‖²/λ, the curvature that the data has over the curvature that λ adds,
    and a power of the digits of the gap. On breast cancer and digits it came within a factor of
    three. Guards make runs longer: five parties with overlapping rows and columns took 229 sums
    where 109 were forecast.

    Attributes
    ----------
    most
        Sums of an iteration at most: new vectors, a point measured afresh, a model that is closed.
    usual
        Sums of an iteration, where nothing but their number ends the run.
    fitted
        a, b and c of a·(1 + q)^b·digits^c sums, with digits = log10(1/gap).
    trips
        Round trips for a sum.
    with_kinks
        That of losses with kinks, where it is another one.
    with_planes
        That of smooth losses of which cutting planes may be made.
    """

    most: int
    usual: float
    fitted: tuple[float, float, float]
    trips: float
    with_kinks: SubspaceForecast | None = None
    with_planes: SubspaceForecast | None = None

    def round_trips(self, settings: Settings, mean_square: float) -> float:
        """Round trips of training: all problems are trained in the same ones."""
        ahead = self._for_loss(settings)
        return ahead.trips * ahead._likely(settings, mean_square)

    def __call__(self, settings: Settings, classes: int, mean_square: float) -> Forecast:
        ahead, width = self._for_loss(settings), classes * (settings.folds + 1)
        iterations = most_iterations(settings)
        most = None
        if iterations is not None:
            # One more for a run that starts from a model, whose z is measured first.
            most = (ahead.most * iterations * len(settings.lambdas) + 1) * width
        likely = ahead._likely(settings, mean_square) * width
        others_most = 0
        if settings.hands_over:
            # HyFDCA may go on where this solver stops, and sets up like any run of its own.
            _, others_most = set_up(msgspec.structs.replace(settings, local="safe"))
            _, left = iterating(settings, classes, mean_square)
            most = None if most is None or left is None else most + left + others_most
        return Forecast(capped(likely, most), most, 0, others_most)

    def _for_loss(self, settings: Settings) -> SubspaceForecast:
        if not settings.make_loss().smooth:
            return self.with_kinks or self
        return (may_ascend(settings) and self.with_planes) or self

    def _likely(self, settings: Settings, mean_square: float) -> int:
        """Sums for each problem."""
        iterations = most_iterations(settings)
        if settings.gap is None and iterations is not None:
            return math.ceil(self.usual * iterations * len(settings.lambdas)) + 1
        return math.ceil(power_of_gap(settings, mean_square, self.fitted))


def _forecasts(
    most: int,
    usual: float,
    fitted: tuple[float, float, float],
    trips: float,
    with_kinks: SubspaceForecast | None = None,
    with_planes: SubspaceForecast | None = None,
) -> dict[str, Any]:
    """Sums and round trips, which go together."""
    ahead = SubspaceForecast(most, usual, fitted, trips, with_kinks, with_planes)
    return {"forecast": ahead, "round_trips": ahead.round_trips}


def _stand_in(settings: Settings) -> str | None:
    return HYFDCA.name if settings.hands_over else None


def _beyond_terms(settings: Settings, terms: Terms, view: PartyView) -> str:
    few = settings.groups * terms.min_batch
    if settings.groups > 1 and (view.exposed & (view.sizes < few)).any():
        return (
            f"groups = {settings.groups}, which cuts some of its samples into parts of fewer than "
            f"min_batch = {terms.min_batch}; use fewer groups"
        )
    if not settings.hands_over:
        return ""
    # Standing in, HyFDCA is always safe; its norms could still be those of single samples.
    safe = msgspec.structs.replace(settings, local="safe", gamma="auto")
    return norms_beyond_terms(safe, terms, view)


def _check_rounded(settings: Settings) -> None:
    """Refuse a free intercept where the loss has a kink, as cutting planes do."""
    if not settings.penalize_intercept and not settings.make_loss().smooth:
        raise ConfigError(
            f"solver '{settings.solver}' penalises the intercept of loss '{settings.loss}', which "
            "has a kink; set penalize_intercept = true, or use a smooth loss"
        )


_subspace = partial(
    Algorithm,
    party=SubspaceParty,
    everyone=True,
    waits=True,
    spans=True,
    saves=False,
    ours=True,
    guarantee="the optimum, certified",
    coordinator_sees=(
        "ciphertexts; totals of losses and norms; inner products of combined dual vectors"
    ),
    parties_see="z and dual vectors of their samples, w of their features",
    settle=settle_norms,
    beyond_terms=_beyond_terms,
    stand_in=_stand_in,
)

SUBSPACE = (
    _subspace(
        "cutting-planes",
        CuttingPlanesCoordinator,
        about="certified in about a hundred round trips; losses with kinks, everyone takes part",
        reads=("groups", "patience", "when_missing"),
        losses="kinks",
        trips="2; 3 with groups or holders without labels",
        reference="Franc and Sonnenburg 2009 (OCAS); Teo et al. 2010 (BMRM); on sums, ours",
        **_forecasts(most=2 + 1, usual=1.7, fitted=(1.7, 0.32, 0.6), trips=2 / 1.7),
        tuned=bounds(groups=(1.0, 100.0)),
    ),
    _subspace(
        "lbfgs",
        LbfgsCoordinator,
        about="quasi-Newton in two round trips an iteration; smooth losses, everyone takes part",
        reads=("patience", "when_missing"),
        losses="smooth",
        weighs_samples=True,
        any_curvature=True,
        joint_losses=True,
        free_intercept=True,
        infers=True,
        trips="2; 3 with holders without labels",
        reference="Liu and Nocedal 1989; on sums, with dual bounds, ours",
        **_forecasts(most=1 + 1 + 1, usual=1.0, fitted=QUASI_NEWTON, trips=2.0),
    ),
    _subspace(
        "newton-cg",
        NewtonCgCoordinator,
        about="Newton's method in a trust region; smooth losses, everyone takes part",
        reads=("patience", "when_missing"),
        losses="smooth",
        weighs_samples=True,
        any_curvature=True,
        joint_losses=True,
        free_intercept=True,
        infers=True,
        trips="2 a Hessian product and 2 a step",
        reference="Lin, Weng and Keerthi 2008; on sums, ours",
        **_forecasts(
            most=1 + MOST_PRODUCTS + 1 + 1, usual=12.0, fitted=(23.0, 0.12, 0.12), trips=2.0
        ),
    ),
    _subspace(
        SPAN_NEWTON,
        SpanNewtonCoordinator,
        about="Newton's method in the span of all vectors, where parties come and go",
        reads=("patience", "when_missing"),
        losses="rounded",
        check=_check_rounded,
        weighs_samples=True,
        any_curvature=True,
        free_intercept=True,
        coordinator_sees=(
            "ciphertexts; totals of losses, norms and second moments of products; inner products "
            "of combined dual vectors"
        ),
        parties_see=(
            "z and dual vectors of their samples, w of their features; where cutting planes stand "
            "in, inner products of combined dual vectors"
        ),
        trips="2; 3 with holders without labels",
        reference="ours",
        **_forecasts(
            most=3 + 1 + 1,
            usual=3.0,
            # Three vectors an iteration, in fewer of them: 1.8 to 3.5 times the sums of L-BFGS.
            fitted=(2.4 * QUASI_NEWTON[0], *QUASI_NEWTON[1:]),
            trips=2 / 3,
            # Also where second moments are told of enough vectors, so that there are fewer.
            with_planes=SubspaceForecast(
                most=EAGER.count + 2 + 1,
                usual=EAGER.count + 2.0,
                fitted=(14.0, 0.18, 0.58),
                trips=2 / 8,
            ),
            with_kinks=SubspaceForecast(
                most=EAGER.count + 2 + 1,
                usual=EAGER.count + 2.0,
                fitted=(5.0, 0.32, 0.6),
                trips=2 / 8,
            ),
        ),
    ),
)
