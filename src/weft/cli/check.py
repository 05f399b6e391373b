"""``weft check``: who holds what and could work out what, before anybody trains."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.who_would_refuse_study import (
    changes_of,
    refusals_of,
    refused_models,
    refused_moments,
    refused_statistics,
    sums_before,
)

if TYPE_CHECKING:
    from weft.guards import Terms
    from weft.matching.holding_map import HoldingMap
    from weft.report.holdings_counts import Holdings
    from weft.solvers.run_settings import Settings

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
        from weft.cli.check_over_network import check_over_network
        from weft.errors import ConfigError

        if ledger is not None:
            raise ConfigError("--ledger is for one process; over a network sites keep their own")
        check_over_network(config, network, resume, json=json)
        return
    from weft.cli.data_problems import refuse_files
    from weft.cli.terminal_output import say, say_json
    from weft.config.read_config import read_config
    from weft.crypto.keys import ephemeral_keys
    from weft.data.findings_with_config_fixes import FoundProblems
    from weft.federation.local_federation import Federation
    from weft.federation.solver_by_holdings import settle_by_holdings
    from weft.guards.intersect_allow_lists import in_all_lists
    from weft.privacy.ledger.expected_exposure import outlook
    from weft.privacy.ledger.expected_exposure_text import item, paragraphs
    from weft.report.holdings_counts import describe_holdings
    from weft.solvers.algorithm_choice import (
        algorithm_of,
        check_cut,
        check_inference,
        settled,
    )

    plan = read_config(config)
    try:
        problem = plan.problem()
    except FoundProblems as problems:
        refuse_files(problems, config.name, json=json)
    consents = plan.load_consents(problem.tiles)
    saves = plan.checkpoint_every is not None
    chosen = settled(problem.settings, saves=saves)
    own = plan.load_keys(problem.tiles) or ephemeral_keys(tuple(problem.tiles))
    terms = reduce(type(plan.terms).stricter, (consent.terms for consent in consents.values()))
    # What would be refused is told below, all of it at once.
    federation = Federation(
        problem.tiles, problem.preprocessing, keys=own, terms=_without_refusals(terms)
    )
    _, roster, _, classes = federation.assemble(chosen[0])
    settings, reason = settle_by_holdings(
        problem.settings,
        chosen,
        roster,
        classes,
        terms,
        problem.preprocessing,
        solvers=in_all_lists(consent.solvers for consent in consents.values()),
        saves=saves,
    )
    check_cut(settings, roster)
    sites = problem.preprocessing.reference_site is not None
    width = 1 if classes is None or len(classes) == 2 else len(classes)
    check_inference(settings, roster, width, sites=sites)
    tiles = {name: party.tiles for name, party in federation.parties.items()}
    holdings = describe_holdings(roster, tiles, classes)
    squares = sum(float(party.data.table.squares.sum()) for party in federation.parties.values())
    shares = algorithm_of(settings.solver).shares
    changes = changes_of(federation, plan.ledger(ledger), settings)
    small = {name: change_of(terms.min_batch) for name, change_of in changes.items()}
    look = outlook(
        roster,
        settings,
        terms,
        classes=width,
        mean_square=squares / roster.n_samples,
        unit_rows=problem.preprocessing.unit_rows,
        spent=sums_before(problem, federation, plan.ledger(ledger)),
        changes={name: change for name, change in small.items() if change is not None},
    )
    refusals = refusals_of(problem, federation, own, consents, settings, look, changes)
    books = plan.ledger(ledger)
    if shares:
        refusals += refused_models(federation, consents, roster, look.released, books)
    if settings.inference != "none" and not shares:
        refusals += refused_statistics(federation, consents, settings, books)
    if settings.second_moments:
        refusals += refused_moments(federation, consents, settings, roster, look.released, books)
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

    from weft.guards.model_noise_size import row_bound
    from weft.guards.sum_noise_size import epsilon_of
    from weft.sums.largest_possible_sums import Bounds

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
