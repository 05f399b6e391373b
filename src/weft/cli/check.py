"""``weft check``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.array_types import Ints
    from weft.config.read_config import Problem
    from weft.crypto.keys import PartyKeys
    from weft.federation.local_federation import Federation
    from weft.federation.party import Party
    from weft.guards import Terms
    from weft.guards.min_batch_across_runs import Change
    from weft.matching.holding_map import HoldingMap
    from weft.privacy.agreement import Consent
    from weft.privacy.ledger.earlier_numbers import NumberKind
    from weft.privacy.ledger.expected_exposure import Outlook
    from weft.privacy.ledger.run_booking import Ledger
    from weft.report.holdings_counts import Holdings
    from weft.solvers.sealed.reader_groups import Told
    from weft.solvers.settings import Settings

_MOST_COHORTS = 6
_MOST_PARTIES = 40


def check(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where parties count sums; by default ledger/ beside the config."
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(metavar="KIT", help="Ask the sites that joined, with a submitter's kit."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="With --network: go on with one that was interrupted."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Say who holds what and who could work out what, before anybody trains.

    Reads the parties' files, and lists all that is wrong with them at once, with the lines of the
    config that mend it. Then it matches samples and features, and shows the cohorts: groups of
    samples that the same parties hold. It also says which samples are left out, which cells are
    held twice or by nobody, and which solver will run.

    Then it looks ahead: what each party, and the coordinator, could work out about whom from the
    sums of this run and of all runs before it, as the parties' ledgers have them; what other
    settings would show; and what the parties refuse, which ends in exit code 2. Nothing is
    written.

    With --network the parties are sites that joined, and the config is one for weft submit. Sites
    whose files cannot be used say so before anything is matched. What they tell are counts, of
    groups of min_batch samples at least, and names of columns; sites take part if their roster and
    policy have "check" among kinds.
    """
    if network is not None:
        from weft.cli.network_check import check_over_network
        from weft.errors import ConfigError

        if ledger is not None:
            raise ConfigError("--ledger is for one process; over a network sites keep their own")
        check_over_network(config, network, resume, json=json)
        return
    from weft.cli.console import say, say_json
    from weft.cli.data_problems import refuse_files
    from weft.config.read_config import read_config
    from weft.crypto.keys import ephemeral_keys
    from weft.data.file_findings import FoundProblems
    from weft.federation.local_federation import Federation
    from weft.privacy.ledger.expected_exposure import outlook
    from weft.privacy.ledger.exposure_text import item, paragraphs
    from weft.report.holdings_counts import describe_holdings
    from weft.solvers.algorithm_choice import (
        algorithm_of,
        check_cut,
        check_inference,
        in_sums,
        settled,
    )

    plan = read_config(config)
    try:
        problem = plan.problem()
    except FoundProblems as problems:
        refuse_files(problems, config.name, json=json)
    consents = plan.load_consents(problem.tiles)
    settings, reason = settled(problem.settings, saves=plan.checkpoint_every is not None)
    own = plan.load_keys(problem.tiles) or ephemeral_keys(tuple(problem.tiles))
    terms = reduce(type(plan.terms).stricter, (consent.terms for consent in consents.values()))
    # What would be refused is told below, all of it at once.
    federation = Federation(
        problem.tiles, problem.preprocessing, keys=own, terms=_without_refusals(terms)
    )
    _, roster, _, classes = federation.assemble(settings)
    other = in_sums(settings, roster, classes, terms)
    if other is not None:
        settings, reason = other
    check_cut(settings, roster)
    sites = problem.preprocessing.reference_site is not None
    width = 1 if classes is None or len(classes) == 2 else len(classes)
    check_inference(settings, roster, width, sites=sites)
    tiles = {name: party.tiles for name, party in federation.parties.items()}
    holdings = describe_holdings(roster, tiles, classes)
    squares = sum(float(party.data.table.squares.sum()) for party in federation.parties.values())
    shares = algorithm_of(settings.solver).shares
    changes = _changes(federation, plan.ledger(ledger), settings)
    small = {name: change_of(terms.min_batch) for name, change_of in changes.items()}
    look = outlook(
        roster,
        settings,
        terms,
        classes=width,
        mean_square=squares / roster.n_samples,
        unit_rows=problem.preprocessing.unit_rows,
        spent=_spent(problem, federation, plan.ledger(ledger)),
        changes={name: change for name, change in small.items() if change is not None},
    )
    refusals = _refusals(problem, federation, own, consents, settings, look, changes)
    books = plan.ledger(ledger)
    if shares:
        refusals += _refused_models(federation, consents, roster, look.released, books)
    if settings.inference != "none" and not shares:
        refusals += _refused_statistics(federation, consents, settings, books)
    if settings.second_moments:
        refusals += _refused_moments(federation, consents, settings, roster, look.released, books)
    if json:
        told = {"name": plan.name, "solver": settings.solver, **holdings.to_dict()}
        said = [{"party": party, "sentence": sentence} for party, sentence in refusals]
        told["notes"] = [note.to_dict() for note in problem.notes]
        say_json({**told, "outlook": look.to_dict(), "refusals": said})
        _stop_if_refused(refusals)
        return
    labels = "a response"
    if holdings.classes is not None:
        labels = f"{len(holdings.classes)} classes"
    say(
        f"{plan.name}: {holdings.kind}, {len(holdings.parties)} parties, "
        f"{holdings.samples} samples × {holdings.features} features, {labels}",
        "",
    )
    _show(holdings)
    notes = [note.sentence() for note in problem.notes]
    columns = [
        f"{name}: {said}" for name, party in federation.parties.items() for said in party.remarks
    ]
    remarks = [
        *notes,
        *columns,
        *holdings.remarks(),
        reason or f"solver: {settings.solver}",
        *([] if look.trips is None else [look.trips.sentence()]),
        *_plan(settings),
    ]
    if settings.sum_noise is not None:
        remarks.append(_price_of_noise(settings, look.ways[0].likely, roster))
    lines = [line for remark in remarks for line in item(remark)]
    say("", *lines, *paragraphs(look, refusals), "")
    _stop_if_refused(refusals)
    say(f"Ready: weft train {config}")


def _stop_if_refused(refusals: list[tuple[str, str]]) -> None:
    from weft.errors import ConfigError

    if refusals:
        raise ConfigError(f"this run would be refused: {refusals[0][1]}")


def _without_refusals(terms: Terms) -> Terms:
    """Terms that leave out the same samples, but refuse nothing."""
    import msgspec

    from weft.guards import OPEN

    return msgspec.structs.replace(
        OPEN,
        min_batch=terms.min_batch,
        allow_sample_norms=terms.allow_sample_norms,
    )


def _spent(problem: Problem, federation: Federation, ledger: Ledger) -> dict[str, Ints] | None:
    """What each party has received in earlier runs, per shared cohort; None: no ledger is there."""
    from weft.privacy.ledger.sum_booking import spent_before

    found = {}
    for name, party in federation.parties.items():
        pages = ledger.book(name).read()
        if pages is not None:
            ids = [tile.ids for tile in problem.tiles[name]]
            found[name] = spent_before(pages, party.view, ids)[0]
    return found or None


def _refusals(
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


def _refused_moments(
    federation: Federation,
    consents: Mapping[str, Consent],
    settings: Settings,
    roster: HoldingMap,
    problems: int,
    ledger: Ledger,
) -> list[tuple[str, str]]:
    """Whose columns are too sparse for second moments, or too many, with those of earlier runs."""
    from weft.errors import ConfigError
    from weft.solvers.sealed.second_moment_guard import (
        check_moments,
        matrices_of,
        told_by_moments,
    )
    from weft.solvers.sealed.table_positions import shapes_of, whole_table

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


def _refused_statistics(
    federation: Federation,
    consents: Mapping[str, Consent],
    settings: Settings,
    ledger: Ledger,
) -> list[tuple[str, str]]:
    """Whose rows sums for standard errors would tell, alone or with those of earlier runs."""
    from weft.errors import ConfigError
    from weft.federation.release.statistics_party import StatisticsGuard

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


def _refused_models(
    federation: Federation,
    consents: Mapping[str, Consent],
    roster: HoldingMap,
    problems: int,
    ledger: Ledger,
) -> list[tuple[str, str]]:
    """Whose cells a model with so many columns would tell, alone or with those of earlier runs."""
    from weft.errors import ConfigError
    from weft.solvers.sealed.model_guard import refuse_wide, told_by_model
    from weft.solvers.sealed.table_positions import shapes_of, whole_table

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
    from weft.privacy.ledger.earlier_numbers import (
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


def _changes(
    federation: Federation, ledger: Ledger, settings: Settings
) -> dict[str, Callable[[int], Change | None]]:
    """Party to what its ledger says of a run over these samples after the earlier ones."""
    from functools import partial

    from weft.federation.party_training import tells_of_all

    found: dict[str, Callable[[int], Change | None]] = {}
    for name, party in federation.parties.items():
        pages = ledger.book(name).read()
        if pages is not None:
            everyone = tells_of_all(settings, party.view)
            who = party.ledger.attendance(party.view, everyone=everyone)
            if who is not None:
                found[name] = partial(pages.change, who)
    return found


def _plan(settings: Settings) -> list[str]:
    """What will be trained besides one model, if anything."""
    lambdas = ", ".join(f"{lam:g}" for lam in settings.lambdas)
    if not settings.folds:
        return []
    share = settings.evaluation.held_out
    what = f"{settings.folds} folds" if share is None else f"{share:.0%} of the samples, held out"
    if len(settings.lambdas) == 1:
        return [f"how well λ = {lambdas} predicts will be told by {what}"]
    return [f"λ will be chosen of {lambdas} by {what}, in one run"]


def _price_of_noise(settings: Settings, sums: int, roster: HoldingMap) -> str:
    """What noise in feature sums tells of a sample, and what it does to weights."""
    from math import sqrt

    from weft.guards.model_noise import row_bound
    from weft.guards.sum_noise import epsilon_of
    from weft.sums.fixed_point_bounds import Bounds

    noise, loss = settings.sum_noise, settings.make_loss()
    assert noise is not None
    rows = row_bound(noise.row_norm, roster.row_holders, None)
    sigma = noise.sigma(lipschitz=loss.lipschitz, rows=rows, samples=roster.n_samples)
    length = sigma * sqrt(roster.n_features) / settings.lam
    longest = Bounds.of(loss, settings.lam, 1, 1.0, 1.0).longest
    rho = sums * noise.rho
    return (
        f"noise in feature sums: ρ = {noise.rho:.3g} for each; about {sums} of them come to "
        f"ρ = {rho:.3g}, so ε = {epsilon_of(rho, noise.delta):.3g} for δ = {noise.delta:g}. As "
        f"weights, the noise of one sum is about {length:.2g} long; no model is longer than "
        f"{longest:.2g}"
    )


def _show(holdings: Holdings) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    grid = Table(
        box=SIMPLE_HEAD,
        caption="● marks the groups of samples, headed by their sizes, that a party holds",
    )
    grid.add_column("party", no_wrap=True)
    for title in ("samples", "features", "labels"):
        grid.add_column(title, justify="right", no_wrap=True)
    largest = sorted(range(len(holdings.cohorts)), key=lambda c: -holdings.cohorts[c])
    shown, hidden = largest[:_MOST_COHORTS], set(largest[_MOST_COHORTS:])
    for cohort in shown:
        grid.add_column(str(holdings.cohorts[cohort]), justify="center", no_wrap=True)
    if hidden:
        grid.add_column(f"… and {len(hidden)} more", justify="center", min_width=6)
    for party in holdings.parties[:_MOST_PARTIES]:
        marks = ["●" if cohort in party.cohorts else "" for cohort in shown]
        cells = [party.name, str(party.samples), str(party.features), str(party.labelled), *marks]
        if hidden:
            cells.append(str(len(hidden & set(party.cohorts)) or ""))
        grid.add_row(*cells)
    if len(holdings.parties) > _MOST_PARTIES:
        grid.add_row(f"… and {len(holdings.parties) - _MOST_PARTIES} more")
    Console(markup=False).print(grid)
