"""``weft algorithms``: what each algorithm needs, guarantees and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from weft.solvers.algorithm_entry import Algorithm

#: Columns of a terminal from which on references fit into the table.
_WIDE = 110


def algorithms(
    name: Annotated[
        str | None, typer.Argument(help="Show everything about this one.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as in docs/algorithms.md.")
    ] = False,
) -> None:
    """List the algorithms: what they need, what they guarantee, what they cost.

    The first ones are those that Weft recommends, and that name = "auto" chooses from; the others
    are there to be compared with. With a name: its options with their defaults, what the
    coordinator and the parties get to see, and the lines of a config that choose it.
    """
    from rich.console import Console

    from weft.cli.terminal_output import say_json
    from weft.report.algorithm_reference import describe, markdown_table
    from weft.solvers.algorithm_choice import ALGORITHMS, algorithm_of

    chosen = None if name is None else algorithm_of(name)
    if json:
        found = [describe(a) for a in ALGORITHMS.values()] if chosen is None else describe(chosen)
        say_json({"algorithms": found} if isinstance(found, list) else found)
    elif chosen is not None:
        _show_one(Console(markup=False, highlight=False), chosen)
    elif markdown:
        print(markdown_table(), end="")
    else:
        _show_all(Console(markup=False, highlight=False), list(ALGORITHMS.values()))


def _show_all(console: Console, known: list[Algorithm]) -> None:
    from weft.report.algorithm_reference import needs

    wide = console.width >= _WIDE
    titles = ("table", "parties", "losses", "guarantees", "round trips")
    grid = _grid("algorithm", *titles, *(("from",) if wide else ()))
    for ours, heading in ((True, "recommended"), (False, "for comparison")):
        group = [algorithm for algorithm in known if algorithm.ours == ours]
        if not group:
            continue
        grid.add_row(heading, style="bold")
        for algorithm in group:
            cells = [algorithm.guarantee, algorithm.trips]
            cells += [algorithm.reference] if wide else []
            grid.add_row(algorithm.name, *needs(algorithm), *cells)
        grid.add_section()
    console.print(grid)
    if not wide:
        sources = _grid("", "from")
        for algorithm in known:
            sources.add_row(algorithm.name, algorithm.reference)
        console.print(sources)
    console.print(
        "table: how it may be cut (any: rows and columns in any overlap; rows: every party has all "
        "features and samples of its own; columns: all samples and features of its own; whole: all "
        "at one party). parties: whether all must take part in every iteration, or any may. "
        "losses: with kinks (hinge) or smooth (logistic, squared). round trips: of an iteration."
    )
    console.print("Everything about one: weft algorithms NAME")


def _show_one(console: Console, algorithm: Algorithm) -> None:
    from rich.padding import Padding

    from weft.report.algorithm_reference import CUTS, LOSSES, example, options_of
    from weft.solvers.run_settings import Settings

    console.print(f"{algorithm.name}: {algorithm.about}", style="bold")
    facts = _grid("", "", header=False)
    everyone = "everyone in every iteration" if algorithm.everyone else "any subset of the parties"
    others = [
        ("several λ and folds in one run", algorithm.spans),
        ("checkpoints", algorithm.saves),
        ('weigh = "parties"', algorithm.weighs),
    ]
    able = [what for what, can in others if can]
    for title, words in (
        ("table", CUTS[algorithm.cut]),
        ("takes part", everyone),
        ("losses", LOSSES[algorithm.losses]),
        ("can also", ", ".join(able) or "–"),
        ("guarantees", algorithm.guarantee),
        ("round trips", f"{algorithm.trips} (of an iteration)"),
        ("coordinator sees", algorithm.coordinator_sees),
        ("parties see", algorithm.parties_see),
        ("from", algorithm.reference),
    ):
        facts.add_row(title, words)
    console.print(facts)
    told = options_of(algorithm.options)
    _show_options(console, "Options, in [solver.options]", told)
    _show_options(
        console, "What it reads of [solver], besides limits", options_of(Settings, algorithm.reads)
    )
    if not told:
        console.print("It has no options of its own.")
    console.print("\nIn a config, with the defaults:", style="bold")
    console.print(Padding(example(algorithm), (1, 2)), soft_wrap=False)


def _show_options(console: Console, title: str, options: list[Any]) -> None:
    if not options:
        return
    console.print(f"\n{title}", style="bold")
    grid = _grid("", "default", "what it may be and means")
    for option in options:
        words = f"{option.kind}: {option.about}" if option.about else option.kind
        grid.add_row(option.name, option.default or "–", words)
    console.print(grid)


def _grid(*titles: str, header: bool = True) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    box = SIMPLE_HEAD if header else None
    grid = Table(box=box, show_header=header, padding=(0, 1, 0, 0), pad_edge=False)
    for place, title in enumerate(titles):
        # What is short stays whole: the long texts share the rest of the line.
        short = place == 0 or title in ("table", "parties", "losses", "default")
        grid.add_column(
            title, no_wrap=short, overflow="fold", max_width=18 if title == "round trips" else None
        )
    return grid
