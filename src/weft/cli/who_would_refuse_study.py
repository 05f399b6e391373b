"""Who would refuse a study, for ``weft check``: by terms, and by ledgers of earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.array_types import Ints
    from weft.config.read_config import Problem
    from weft.crypto.keys import PartyKeys
    from weft.federation.local_federation import Federation
    from weft.federation.party import Party
    from weft.guards.min_batch_across_runs import Change
    from weft.matching.holding_map import HoldingMap
    from weft.privacy.agreement import Consent
    from weft.privacy.ledger.earlier_sealed_models_and_moments import NumberKind
    from weft.privacy.ledger.expected_exposure import Outlook
    from weft.privacy.ledger.run_booking import Ledger
    from weft.solvers.run_settings import Settings
    from weft.solvers.secret_sharing.coalition_knowledge import Told


def sums_before(problem: Problem, federation: Federation, ledger: Ledger) -> dict[str, Ints] | None:
    """What each party has received in earlier runs, per shared cohort; None: no ledger is there."""
    from weft.privacy.ledger.sum_booking import spent_before

    found = {}
    for name, party in federation.parties.items():
        pages = ledger.book(name).read()
        if pages is not None:
            ids = [tile.ids for tile in problem.tiles[name]]
            found[name] = spent_before(pages, party.view, ids)[0]
    return found or None


def refusals_of(
    problem: Problem,
    federation: Federation,
    keys: Mapping[str, PartyKeys],
    consents: Mapping[str, Consent],
    settings: Settings,
    look: Outlook,
    changes: Mapping[str, Callable[[int], Change | None]],
) -> list[tuple[str, str]]:
    """The first objection of each party."""
    from weft.errors import ConfigError
    from weft.solvers.algorithm_choice import algorithm_of

    found, how = [], problem.preprocessing
    sealed = algorithm_of(settings.solver).shares and not how.unit_rows
    for name, consent in consents.items():
        party_view, tiles = federation.parties[name].view, problem.tiles[name]
        labels = any(tile.labelled.any() for tile in tiles)
        try:
            consent.check_own(keys[name].identity.public, sum(t.n for t in tiles), labels=labels)
            consent.check_matching(problem.preprocessing.matching)
            consent.check_seat(party_view, sealed=sealed)
            if sealed and how.scaling != "none" and party_view.shares_columns:
                consent.check_scaling(party_view)
            if name in changes:
                consent.check_change(changes[name])
            consent.check(settings, party_view)
        except ConfigError as error:
            found.append((name, str(error)))
        # What may be reached is not refused yet: the run stops before the sum that is too many.
        known = [e for e in look.exposures if e.likely_reached and name in e.view.about]
        if known and not consent.terms.allow_exposure:
            receiver = known[0].view.receiver
            objection = (
                f"party {name} refuses to show {receiver} as many sums as {receiver} lacks columns "
                "and so could work out; choose a way with fewer sums, or agree on allow_exposure = "
                "true if that is meant"
            )
            found.append((name, objection))
    return found


def refused_moments(
    federation: Federation,
    consents: Mapping[str, Consent],
    settings: Settings,
    roster: HoldingMap,
    problems: int,
    ledger: Ledger,
) -> list[tuple[str, str]]:
    """Whose columns are too sparse for second moments, or too many, with those of earlier runs."""
    from weft.errors import ConfigError
    from weft.solvers.secret_sharing.second_moment_guard import (
        check_moments,
        matrices_of,
        told_by_moments,
    )
    from weft.solvers.secret_sharing.table_positions import shapes_of, whole_table

    found, table = [], whole_table(shapes_of(roster))
    matrices = matrices_of(settings, problems)
    weighs = "hessian" in settings.second_moments and settings.loss != "squared"
    for name, party in federation.parties.items():
        own = consents[name].own_terms
        try:
            check_moments(
                party.view,
                table,
                party.data.table.dense(),
                matrices=matrices,
                hessian=weighs,
                least=own.min_batch,
                rare_pairs=own.allow_rare_pairs,
                several=consents[name].terms.allow_exposure,
                site=consents[name].terms.allow_site_statistics,
            )
        except ConfigError as error:
            found.append((name, f"party {name} {error}"))
            continue
        told = told_by_moments(table, party.view.party, matrices)
        found += _refused_numbers(party, consents[name], ledger, "moments", told, hessian=weighs)
    return found


def refused_statistics(
    federation: Federation,
    consents: Mapping[str, Consent],
    settings: Settings,
    ledger: Ledger,
) -> list[tuple[str, str]]:
    """Whose rows sums for standard errors would tell, alone or with those of earlier runs."""
    from weft.errors import ConfigError
    from weft.federation.release.standard_errors_party import StatisticsGuard

    found: list[tuple[str, str]] = []
    for name, party in federation.parties.items():
        consent = consents[name]
        numbers: list[Told] = []
        least = consent.least_told(party.view)
        guard = StatisticsGuard(least, consent.terms.allow_site_statistics, numbers.append)
        try:
            party.training.checked_statistics(settings, guard)
        except ConfigError as error:
            said = str(error)
            found.append((name, f"party {name} {said}" if said.startswith("refuses") else said))
            continue
        for told in numbers:
            weighs = settings.loss != "squared"
            found += _refused_numbers(party, consent, ledger, "moments", told, hessian=weighs)
    return found


def refused_models(
    federation: Federation,
    consents: Mapping[str, Consent],
    roster: HoldingMap,
    problems: int,
    ledger: Ledger,
) -> list[tuple[str, str]]:
    """Whose cells a model with so many columns would tell, alone or with those of earlier runs."""
    from weft.errors import ConfigError
    from weft.solvers.secret_sharing.label_telling_model_guard import refuse_wide, told_by_model
    from weft.solvers.secret_sharing.table_positions import shapes_of, whole_table

    found, table = [], whole_table(shapes_of(roster))
    for name, party in federation.parties.items():
        view, consent = party.view, consents[name]
        if consent.terms.allow_exposure or consent.alone(view.n_parties):
            continue
        labelled = bool(view.labelled.any())
        told = told_by_model(table, view.party, problems, labelled=labelled)
        try:
            refuse_wide(told)
        except ConfigError as error:
            found.append((name, f"party {name} {error}"))
            continue
        found += _refused_numbers(party, consent, ledger, "models", told)
    return found


def _refused_numbers(
    party: Party,
    consent: Consent,
    ledger: Ledger,
    kind: NumberKind,
    told: Told,
    *,
    hessian: bool = False,
) -> list[tuple[str, str]]:
    """Whether its ledger objects to so many numbers, after those of earlier runs."""
    from weft.errors import ConfigError
    from weft.privacy.ledger.earlier_sealed_models_and_moments import (
        refuse_further_numbers,
        refuse_second_weighting,
    )

    pages = ledger.book(party.name).read()
    who = party.ledger.attendance(party.view, everyone=True)
    if pages is None or who is None or consent.terms.allow_exposure:
        return []
    try:
        before = pages.numbers_told(kind, who, len(told.by_row))
        if kind == "moments":
            weighed = pages.numbers_told("hessians", who, len(told.by_row))
            refuse_second_weighting(party.name, before, weighed, hessian=hessian)
        refuse_further_numbers(party.name, kind, told, before)
    except ConfigError as error:
        return [(party.name, str(error))]
    return []


def changes_of(
    federation: Federation, ledger: Ledger, settings: Settings
) -> dict[str, Callable[[int], Change | None]]:
    """Party to what its ledger says of a run over these samples after the earlier ones."""
    from functools import partial

    from weft.federation.party_training_start_and_release import tells_of_all

    found: dict[str, Callable[[int], Change | None]] = {}
    for name, party in federation.parties.items():
        pages = ledger.book(name).read()
        if pages is not None:
            everyone = tells_of_all(settings, party.view)
            who = party.ledger.attendance(party.view, everyone=everyone)
            if who is not None:
                found[name] = partial(pages.change, who)
    return found
