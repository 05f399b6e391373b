"""``weft ledger``: how many sums about its samples each party got and showed, over all runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weft.privacy.ledger.ledger_contents import LedgerContents, Run
    from weft.privacy.ledger.ledger_file import Group

#: Runs that are listed, the last ones.
_MOST_RUNS = 20
#: δ for which the ε of feature sums with noise is told.
_DELTA = 1e-6


def ledger(
    folder: Annotated[
        Path, typer.Argument(help="The folder 'ledger' beside a config, or another one.")
    ],
    party: Annotated[str | None, typer.Option(help="Only this party's ledger.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Say how many sums about its samples each party got and showed, over all runs.

    A sum minus its own part tells a party one mixture of the columns that it lacks. Who has got as
    many sums about a sample as it lacks columns knows these columns but for the mixing. Every run
    and every joint prediction adds to the count; samples are known again by keyed hashes of their
    ids, so that other groups of them still add up. A run that did not end stands there with what it
    had booked ahead, which is more than it showed.

    Also said is how many samples stood in feature sums that others saw, or in second moments that
    went out with a model, and which moments did. The last sets of them are
    remembered, so that a party can refuse a run that differs by a few samples from an earlier one.
    """
    from weft.cli.terminal_output import say, say_json
    from weft.errors import ConfigError
    from weft.privacy.ledger.ledger_file import read_books

    if not folder.is_dir():
        raise ConfigError(
            f"there is no ledger folder {folder}; 'weft train' keeps one beside the config"
        )
    books = read_books(folder)
    if party is not None and party not in books:
        known = f"; there are {', '.join(books)}" if books else ""
        raise ConfigError(f"{folder} holds no ledger of a party '{party}'{known}")
    chosen = books if party is None else {party: books[party]}
    if not chosen:
        raise ConfigError(f"{folder} holds no ledger; 'weft train' keeps one beside the config")
    if json:
        say_json({name: _plain(pages) for name, pages in chosen.items()})
        return
    for name, pages in chosen.items():
        runs = len(pages.runs)
        samples = len(set(pages.sample.tolist()) | set(pages.attended.sample.tolist()))
        say(f"{name}: {samples} samples, {runs} run{'' if runs == 1 else 's'}")
        _show_runs(pages.runs)
        _show_groups(pages)


def _plain(pages: LedgerContents) -> dict[str, Any]:
    import msgspec

    from weft.privacy.ledger.ledger_file import groups_of

    return {
        "samples": len(pages.sample),
        "remembered": [{"began": began, "samples": n} for began, n in pages.attended.sizes],
        "runs": [
            {**msgspec.to_builtins(run), "received": run.received, "shown": run.shown}
            for run in pages.runs
        ],
        "spent": dict(zip(("epsilon", "delta"), pages.spent(), strict=True)),
        "groups": [group.to_dict() for group in groups_of(pages, fine=True)],
    }


def _show_runs(runs: list[Run]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for title in ("began (UTC)", "federation", "what", "samples", "got", "showed"):
        right = title in ("samples", "got", "showed")
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "federation")
    if len(runs) > _MOST_RUNS:
        table.add_row(f"… {len(runs) - _MOST_RUNS} before")
    for run in runs[-_MOST_RUNS:]:
        kind = run.solver or run.kind
        if run.weights:
            kind += f", {run.weights} numbers in its model"
        if run.moments:
            kind += f", {' and '.join(run.moments)} opened, {run.numbers} numbers a column"
        if run.told:
            kind += f", {' and '.join(run.told)} of {run.told_samples} samples told"
        table.add_row(
            run.began[:16].replace("T", " "),
            run.federation,
            kind if run.ended is not None else f"{kind} (not ended)",
            str(max(sum(cohort.samples for cohort in run.cohorts), run.exposed)),
            str(run.received),
            str(run.shown),
        )
    Console(markup=False).print(table)


def _show_groups(pages: LedgerContents) -> None:
    from weft.cli.terminal_output import say
    from weft.guards.sum_noise_size import epsilon_of
    from weft.privacy.ledger.expected_exposure_text import item
    from weft.privacy.ledger.ledger_file import groups_of
    from weft.privacy.ledger.sentence_parts import span

    for group in groups_of(pages):
        say(*item(_sentence(group)))
    sizes = [samples for _, samples in pages.attended.sizes]
    if sizes:
        sets = "1 set" if len(sizes) == 1 else f"the last {len(sizes)} different sets"
        said = f"{span(sizes)} samples in feature sums that others see; {sets} remembered"
        say(*item(said))
    epsilon, delta = pages.spent()
    if epsilon:
        say(*item(f"released models with noise: ε = {epsilon:g} and δ = {delta:g} in all"))
    asked = pages.questions()
    if asked:
        readers = ", ".join(dict.fromkeys(one.asker or "every holder" for one in asked))
        said = (
            f"joint predictions showed {sum(one.scores for one in asked)} scores of "
            f"{sum(one.samples for one in asked)} samples, those asked again counted again, to "
            f"{readers}"
        )
        say(*item(said))
    rho = pages.rho_spent()
    if rho:
        told = epsilon_of(rho, _DELTA)
        said = f"feature sums with noise: ρ = {rho:g} in all, so ε = {told:.3g} for δ = {_DELTA:g}"
        say(*item(said))
    say("")


def _sentence(group: Group) -> str:
    from weft.privacy.ledger.sentence_parts import span

    told = f"{group.samples} samples: got {span(group.received)} sums"
    if group.foreign[1]:
        told += f", lacks {span(group.foreign)} columns" + " (REACHED)" * group.known
    told += f"; showed {span(group.shown)} sums"
    if group.fewest[1]:
        told += f", another holder lacks {span(group.fewest)} columns" + " (REACHED)" * group.told
    return told
