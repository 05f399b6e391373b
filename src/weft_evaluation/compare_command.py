"""``weft compare``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from weft.config.read_config import Config
    from weft.privacy.agreement import Consent
    from weft.solvers.run_settings import Settings
    from weft_evaluation.algorithm_comparison import Arena, Outcome
    from weft_evaluation.choose_compared_algorithms import Entry
    from weft_evaluation.comparison_results import Comparison

#: What limits a comparison where neither the command nor the config says: seconds, for most.
_ROUND_TRIPS = 300
#: Columns of a terminal from which on all latencies get a column of their own.
_MOST_LATENCIES = 3
_NARROWEST = 80
_WIDE = 120


def compare(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,…",
            help="Of 'weft algorithms', and the baselines central and alone; by default, or with "
            "all, everything that fits.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New results folder; by default results/NAME-comparison.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Iterations for each, at most.")] = None,
    round_trips: Annotated[
        int | None,
        typer.Option(
            help=f"Round trips for each, at most; {_ROUND_TRIPS} where nothing else, and not the "
            "config either, limits round trips or seconds.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Modelled seconds for each, at most: computing + round trips."),
    ] = None,
    latency: Annotated[
        float | None, typer.Option(help="Seconds of a round trip; by default US to Singapore.")
    ] = None,
    gap: Annotated[
        float | None, typer.Option(help="Certified gap at which a run stops; 0: no such stop.")
    ] = None,
    lam: Annotated[
        float | None, typer.Option("--lambda", help="Another λ than the config's.")
    ] = None,
    cipher: Annotated[
        str | None, typer.Option(help="Another cipher than the config's; plain is fastest.")
    ] = None,
    test_share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Hold out this share of the samples and score on them."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keys, where a roster lists them; as for weft train."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME.OPTION=VALUE", help="Tell one algorithm something; repeatable."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Train with several algorithms and hold each against the pooled optimum.

    For tables in one hand: a comparison simulates the federation and pools its tables to judge,
    so it must not be used on tables of others. It writes into no party's ledger. Guards and
    ciphers are those of the config, so that the cost is that of a real run.

    Every algorithm gets the same tables, seed and limits; the config's limits hold where the
    command gives none. Without --algorithms all run that fit the cut of the tables, the loss and
    who takes part, and it is said which do not. One that wants the whole table gets it pooled.
    What one algorithm alone is told stands in [compare.NAME] of the config, or in --set; the
    config's [solver.options] are for the solver that it names.

    The table has, for each: the loss P of its model on the pooled table, how far that is above the
    optimum that liblinear, scipy or scikit-learn finds there (central), the gap that the run itself
    has certified, accuracy or R², and what it cost. alone is what parties reach with their own rows
    and columns. The folder gets comparison.csv, histories.csv, comparison.png, summary.json and
    report.html, in which curves can be switched on and off and drawn against any cost.
    """
    from weft.config.compare_overrides import read_assignments
    from weft.config.read_config import read_config
    from weft.protocol.metering import LATENCIES
    from weft.storage.atomic_folder import building, refuse_existing
    from weft_evaluation.choose_compared_algorithms import named
    from weft_evaluation.comparison_results import write_comparison

    plan = read_config(config)
    folder = out or Path("results") / f"{plan.folder_name}-comparison"
    refuse_existing(folder)
    names = named(algorithms)
    assigned = read_assignments(set_ or [])
    _check_assigned(assigned, names)
    limits = {"iterations": iterations, "round_trips": round_trips, "seconds": seconds}
    trip = LATENCIES[1] if latency is None else latency
    settings = _settings(plan.settings, limits, trip, gap, lam, cipher)
    comparison = _compare(
        plan,
        settings,
        names,
        _merged(plan.compare, assigned),
        latency=trip,
        test_share=test_share,
        keys=keys,
        other_cipher=cipher is not None,
        quiet=quiet or json,
        command=context.obj or "",
    )
    _insist_on_a_run(comparison)
    with building(folder) as draft:
        remarks = write_comparison(draft, comparison, config=config)
    if not quiet or json:
        _tell(folder, comparison, remarks, json)


def _check_assigned(assigned: Mapping[str, Any], names: list[str] | None) -> None:
    """Refuse to be told something of an algorithm that does not run."""
    from weft.errors import ConfigError

    idle = sorted(set(assigned) - set(assigned if names is None else names))
    if idle:
        raise ConfigError(
            f"--set speaks of '{idle[0]}', which this comparison does not run; add it to "
            "--algorithms, or leave it out"
        )


def _insist_on_a_run(comparison: Comparison) -> None:
    """Refuse a comparison in which every algorithm failed."""
    from weft.errors import ConfigError

    ran = [outcome for outcome in comparison.outcomes if outcome.kind != "baseline"]
    if ran and all(outcome.failure for outcome in ran):
        raise ConfigError(f"{ran[0].name} failed: {ran[0].failure}")


def _settings(
    settings: Settings,
    limits: Mapping[str, float | None],
    latency: float,
    gap: float | None,
    lam: float | None,
    cipher: str | None,
) -> Settings:
    """The config's settings for one λ, with what the command says instead."""
    import msgspec

    from weft.crypto.ciphers.block_format import check_cipher
    from weft.errors import ConfigError
    from weft.solvers.held_out_evaluation_settings import EvaluationSettings

    changes: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if not changes and settings.round_trips is None and settings.seconds is None:
        changes["round_trips"] = _ROUND_TRIPS
    if gap is not None:
        changes["gap"] = gap or None
    if cipher is not None:
        check_cipher(cipher)
        changes["cipher"] = cipher
    if lam is not None:
        changes |= {"lam": lam, "path": ()}
    elif len(settings.lambdas) > 1:
        raise ConfigError(
            f"a comparison has one lambda, but the config lists {len(settings.lambdas)}; choose "
            "one with --lambda"
        )
    # Judged on its own test samples, all parties' together.
    alone = {"folds": 0, "evaluation": EvaluationSettings(), "latency": latency}
    return msgspec.structs.replace(settings, **{**changes, **alone})


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What algorithms are told by the config, and then by the command."""
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}


def _compare(
    plan: Config,
    settings: Settings,
    names: list[str] | None,
    told: dict[str, dict[str, Any]],
    *,
    latency: float,
    test_share: float | None,
    keys: Path | None,
    other_cipher: bool,
    quiet: bool,
    command: str,
) -> Comparison:
    from weft_evaluation.algorithm_comparison import Arena
    from weft_evaluation.choose_compared_algorithms import ALONE, entries_of
    from weft_evaluation.comparison_results import Comparison

    problem = plan.problem()
    consents = plan.load_consents(problem.tiles)
    if other_cipher:
        consents = _with_cipher(consents, settings.cipher)
    arena = Arena(
        problem.tiles,
        problem.preprocessing,
        settings,
        consents=consents,
        keys=plan.load_keys(problem.tiles, keys),
        test_share=test_share,
    )
    entries = entries_of(names, settings, told, arena.holdings)
    left_out = {}
    if names is None:
        left_out = {entry.name: entry.refusal for entry in entries if entry.settings is None}
        entries = [entry for entry in entries if entry.settings is not None]
    _insist(entries, left_out, baselines_only=names is not None and not entries)
    outcomes = [arena.central(), *_run_all(arena, entries, quiet=quiet)]
    if names is None or ALONE in names:
        outcomes += arena.alone()
    return Comparison.of(
        arena,
        outcomes,
        name=plan.name,
        settings=settings,
        left_out=left_out,
        latency=latency,
        command=command,
    )


def _run_all(arena: Arena, entries: list[Entry], *, quiet: bool) -> list[Outcome]:
    from weft.cli.terminal_output import ProgressLine

    found = []
    for number, entry in enumerate(entries, 1):
        title = f"{entry.name} ({number} of {len(entries)}) · "
        with ProgressLine(quiet=quiet, title=title) as line:
            found.append(arena.run(entry, line))
    return found


def _insist(entries: list[Entry], left_out: Mapping[str, str], *, baselines_only: bool) -> None:
    """Something must be able to run."""
    from weft.errors import ConfigError

    if any(entry.settings is not None for entry in entries) or baselines_only:
        return
    reasons = [*left_out.values(), *(entry.refusal for entry in entries)]
    raise ConfigError(f"no algorithm fits these tables and settings; the first one: {reasons[0]}")


def _with_cipher(consents: Mapping[str, Consent], cipher: str) -> dict[str, Consent]:
    """The same terms, but for the cipher: a simulation may hide nothing."""
    import msgspec

    from weft.privacy.agreement import Consent

    return {
        name: Consent(name, msgspec.structs.replace(consent.terms, ciphers=(cipher,)))
        for name, consent in consents.items()
    }


# ── telling ───────────────────────────────────────────────────────────────────────────────────


def _tell(folder: Path, comparison: Comparison, remarks: list[str], json: bool) -> None:
    from rich.console import Console

    from weft.cli.terminal_output import say, say_json
    from weft.privacy.ledger.expected_exposure_text import item

    if json:
        say_json({"folder": str(folder), **comparison.to_dict()})
        return
    settings = comparison.settings
    tested = f", {comparison.test_samples} held out" if comparison.test_samples else ""
    say(
        f"{comparison.title}{tested}, cipher {settings.cipher}",
        f"P* = {comparison.optimum:.6g} ({comparison.judged_by}); limits: {_limits(settings)}",
    )
    console = Console(markup=False, highlight=False)
    # In a narrower window lines wrap, rather than lose digits.
    console.width = max(console.width, _NARROWEST)
    console.print(_grid(comparison, wide=console.width >= _WIDE))
    lines = [] if comparison.noise is None else [comparison.noise]
    lines += [f"{o.name} failed: {o.failure}" for o in comparison.outcomes if o.failure]
    lines += [f"{name} left out: {_why(name, why)}" for name, why in comparison.left_out.items()]
    say(*(line for words in [*lines, *remarks] for line in item(words)))
    say(f"Table, histories, plot, summary and report.html are in {folder}.")


def _why(name: str, sentence: str) -> str:
    """The reason of a refusal, without its advice to use something else."""
    return sentence.removeprefix(f"solver '{name}' ").partition(";")[0]


def _limits(settings: Settings) -> str:
    """What ends a run, in words."""
    said = [
        f"{value:g} {what}"
        for value, what in (
            (settings.iterations, "iterations"),
            (settings.round_trips, "round trips"),
            (settings.seconds, f"modelled seconds at {settings.latency:g} s a round trip"),
        )
        if value is not None
    ]
    return ", ".join([*said, *([] if settings.gap is None else [f"a gap of {settings.gap:g}"])])


def _grid(comparison: Comparison, *, wide: bool) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = comparison.rows()
    regression = comparison.settings.make_loss().task == "regression"
    scores: tuple[str, ...] = ("accuracy",)
    if regression:
        scores = ("r2", "rmse") if wide else ("r2",)
    latencies = comparison.latencies
    if not wide and len(latencies) > _MOST_LATENCIES:
        # The one that was asked for, in the place of the middle one.
        latencies = tuple(sorted({latencies[0], comparison.latency, latencies[-1]}))
    grid = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption="above P*: (P − P*)/P* by the judge; gap: what the run itself has proved;\n"
        f"seconds: computing + {'/'.join(f'{l:g}' for l in latencies)} s a round trip",
        caption_justify="left",
    )
    # Names are short, but for those of parties.
    longest = max(len(row["algorithm"]) for row in rows)
    grid.add_column("algorithm", overflow="fold", min_width=min(longest, 16))
    words = {"r2": "R²", "rmse": "RMSE", "accuracy": "accuracy" if wide else "acc."}
    titles = ["P", "above P*", "gap", *(words[s] for s in scores)]
    if wide:
        titles += ["iter.", "trips", "MB", *(f"s at {l:g}" for l in latencies)]
    else:
        titles += ["trips", "MB", "seconds"]
    for title in titles:
        grid.add_column(title, justify="right", overflow="fold", min_width=len(title))
    for row in rows:
        grid.add_row(*_cells(row, scores, [f"{l:g}" for l in latencies], wide=wide))
    return grid


def _cells(
    row: dict[str, Any], scores: tuple[str, ...], latencies: list[str], *, wide: bool
) -> list[str]:
    from weft.report.number_format import algorithm_name, power

    name, ran = algorithm_name(row), bool(row["iterations"])
    if row["failure"] and not ran:
        return [name, "failed"]
    shown = row["test"] or row["train"]
    alike = "≈ " if row["within_noise"] else ""
    cells = [
        name,
        "failed" if row["loss"] is None else f"{row['loss']:.5g}",
        power(row["distance"]),
        power(row["gap"]),
        *("–" if s not in shown else alike + _score(s, shown[s]) for s in scores),
        *([f"{row['iterations']:,}" if ran else "–"] if wide else []),
        f"{row['round_trips']:,}" if row["round_trips"] else "–",
        f"{row['bytes'] / 1e6:.3g}" if row["bytes"] else "–",
    ]
    found = [row["modelled_seconds"][l] for l in latencies]
    if wide:
        return [*cells, *(_seconds(value) for value in found)]
    return [*cells, "/".join(dict.fromkeys(_seconds(value) for value in found))]


def _seconds(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _score(kind: str, value: float) -> str:
    return f"{value:.1%}" if kind == "accuracy" else f"{value:.4g}"
