"""Sealed training in the catalogue, with what it needs and guarantees."""

from __future__ import annotations

from math import prod

from weft.errors import ConfigError
from weft.guards.privacy_terms import Terms
from weft.matching.holding_map import HoldingMap
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.label_telling_model_guard import told_by_model
from weft.solvers.secret_sharing.point_and_vector_limit import MOST_LAMBDAS
from weft.solvers.secret_sharing.supported_losses import LOSSES
from weft.solvers.secret_sharing.table_positions import MOST_CELLS, shapes_of, whole_table
from weft.solvers.solver_interfaces_and_results import Coordinator, PartyHalf
from weft.solvers.sum_count_forecast import QUASI_NEWTON, Forecast, power_of_gap

#: Round trips of an iteration, of which there are about as many as quasi-Newton takes on sums.
_TRIPS = 5


def why_not_sealed(settings: Settings) -> str:
    """Why these settings cannot be trained sealed, in words; empty: they can."""
    if settings.loss not in LOSSES:
        if settings.loss == "tweedie":
            return (
                "slopes of a Tweedie model are two powers of e^z, of which responses multiply one "
                "and zeros have none, use family 'gamma' for amounts above zero"
            )
        return f"it has logistic, squared, Poisson and gamma loss, not '{settings.loss}'"
    if settings.inference in ("robust", "clustered"):
        return (
            "robust standard errors take a matrix of squared slopes beside the Hessian, and two "
            "matrices of the same samples can differ in the row of one, set inference = true"
        )
    if settings.cipher == "plain":
        return "cipher 'plain' hides nothing, use 'pad'"
    if settings.coordinator_sees != "nothing":
        return "it shows the coordinator no weights"
    if settings.noise is not None or settings.sum_noise is not None:
        return "it adds no noise to models or sums"
    if len(settings.lambdas) > MOST_LAMBDAS:
        return f"a run has at most {MOST_LAMBDAS} values of λ, list fewer"
    if settings.weigh != "samples":
        return "parties do not weigh the same in it"
    if settings.scoring in ("accuracy", "auc") or settings.evaluation != EvaluationSettings():
        return "nobody knows scores of samples left out, only their mean loss, use scoring = 'loss'"
    return ""


def why_not_these_tables(holdings: HoldingMap, targets: int, terms: Terms) -> str:
    """Why tables of these shapes cannot be trained sealed; empty: they can.

    Parameters
    ----------
    targets
        Classes or responses side by side.
    """
    cells, parties = 0, range(len(holdings.parties))
    for party in parties:
        axes = holdings.rows, holdings.columns
        cells += prod(int(axis.sizes[axis.cohorts[party]].sum()) for axis in axes)
    if cells > MOST_CELLS:
        return f"the tables have {cells:.1e} cells, where sealed training holds {MOST_CELLS:.0e}"
    if terms.allow_exposure or len(parties) == 1:
        return ""
    table = whole_table(shapes_of(holdings))
    for party in parties:
        labelled = holdings.parties[party] in holdings.label_parties
        told = told_by_model(table, party, targets, labelled=labelled)
        if told.too_many() is not None:
            return (
                f"{holdings.parties[party]} would refuse a sealed model with so many columns of "
                "others for so few of the samples that they are about"
            )
    return ""


def _check(settings: Settings) -> None:
    reason = why_not_sealed(settings)
    if reason:
        raise ConfigError(f"sealed training does not do this: {reason}, or train with mode 'sums'")


def _forecast(settings: Settings, classes: int, mean_square: float) -> Forecast:
    """No party opens a sum over a sample."""
    return Forecast(0, 0, 0, 0)


def _round_trips(settings: Settings, mean_square: float) -> float:
    return _TRIPS * power_of_gap(settings, mean_square, QUASI_NEWTON)


def _coordinator() -> Coordinator:
    # Here and below: every run has this entry, and few load what trains on shares.
    from weft.solvers.secret_sharing.coordinator import SealedCoordinator

    return SealedCoordinator()


def _party(context: PartyContext, settings: Settings) -> PartyHalf:
    from weft.solvers.secret_sharing.party_pearson_dispersion import PearsonParty

    return PearsonParty(context, settings)


SEALED = Algorithm(
    "sealed",
    _coordinator,
    _party,
    about="quasi-Newton on shares: nobody sees a score, a slope, a gradient or a weight",
    reads=("patience",),
    losses="smooth",
    any_curvature=True,
    free_intercept=True,
    weighs_samples=True,
    offsets=True,
    everyone=True,
    waits=True,
    paths=True,
    folds=True,
    shares=True,
    infers=True,
    saves=False,
    sample_sums=0,
    guarantee="the optimum, certified",
    trips="5, and 3 for every point that is tried again; 6 and 4 with weights",
    reference="fixed-operand products as in SecureML; sine series as Boura et al. 2018; ours",
    coordinator_sees=(
        "ciphertexts; noisy losses and inner products of gradients, means of slopes where the "
        "intercept is free; bounds of norms"
    ),
    parties_see="uniform words; the model, where they get it",
    check=_check,
    forecast=_forecast,
    round_trips=_round_trips,
)
