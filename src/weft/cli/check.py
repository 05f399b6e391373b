"""``weft check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.algorithms.settings import Settings
    from weft.report.holdings import Holdings

_MOST_COHORTS = 6
_MOST_PARTIES = 40


def check(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Say who holds what, before anybody trains.

    Reads the parties' files, matches samples and features, and shows the cohorts: groups of
    samples that the same parties hold. It also says which samples are left out, which cells are
    held twice or by nobody, which solver will run, and stops at the first thing that would make
    training impossible.
    """
    from weft.cli.console import say, say_json
    from weft.config.reading import read_config
    from weft.config.solvers import settled
    from weft.federation import Federation
    from weft.report.holdings import describe_holdings

    plan = read_config(config)
    problem = plan.problem()
    own = plan.load_keys(problem.tiles)
    consents = plan.load_consents(problem.tiles)
    federation = Federation(problem.tiles, problem.preparation, keys=own, consents=consents)
    settings, reason = settled(problem.settings, saves=plan.checkpoint_every is not None)
    _, roster, _, classes = federation.assemble(settings)
    federation.agree(settings)
    holdings = describe_holdings(roster, problem.tiles, classes)
    if json:
        say_json({"name": plan.name, "solver": settings.solver, **holdings.to_dict()})
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
    remarks = [*holdings.remarks(), reason or f"solver: {settings.solver}", *_plan(settings)]
    say("", *(f"- {remark}" for remark in remarks), f"Ready: weft train {config}")


def _plan(settings: Settings) -> list[str]:
    """What will be trained besides one model, if anything."""
    lambdas = ", ".join(f"{lam:g}" for lam in settings.lambdas)
    if not settings.folds:
        return []
    if len(settings.lambdas) == 1:
        return [f"{settings.folds} folds will tell how well λ = {lambdas} predicts"]
    return [f"λ will be chosen of {lambdas} by {settings.folds} folds, in one run"]


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
