"""``weft tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from weft.config.read_config import Config
    from weft.solvers.run_settings import Settings
    from weft.solvers.solver_interfaces_and_results import Record
    from weft_evaluation.algorithm_comparison import Arena
    from weft_evaluation.tuning.convergence_and_cost_metrics import Metrics
    from weft_evaluation.tuning.random_search import Found, Limits, Search, Trial
    from weft_evaluation.tuning.trial_choice import Choice
    from weft_evaluation.tuning.tuning_results import Tuning

_SECONDS = 60.0
_ITERATIONS = 100
_HOLDOUT = 0.2
#: Trials of a front that the terminal shows.
_MOST_ROWS = 12
_NARROWEST = 80
_WIDE = 100


def tune(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of 'weft algorithms'; repeatable. By default the config's, or hyfdca.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds for each algorithm, after which no trial begins any more; "
            f"{_SECONDS:g} where --trials is not given either.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each algorithm, at most.")] = None,
    iterations: Annotated[int, typer.Option(help="Iterations of every trial.")] = _ITERATIONS,
    bound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION=LOW:HIGH",
            help="Search an option between these values, such as a=1e-5:25 or fedavg.a=1e-5:25; "
            "repeatable. The same value twice fixes it.",
        ),
    ] = None,
    distinguishing: Annotated[
        float, typer.Option(metavar="ξ", help="Of grey relational analysis; 0.5 in Deng's text.")
    ] = 1.0,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=NUMBER", help="Weight of a metric in grades, else 1; repeatable."
        ),
    ] = None,
    least_progress: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Leave out trials that lower the loss by less than this share of what the best "
            "one does; 0, as in the paper, keeps those that hardly move.",
        ),
    ] = 0.5,
    holdout: Annotated[
        float, typer.Option(metavar="SHARE", help="Samples held out, for validation.")
    ] = _HOLDOUT,
    every: Annotated[
        int | None,
        typer.Option(
            help="Evaluate the model every so many iterations; by default as often as takes half "
            "of the time at most.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws; the runs have the config's.")] = 0,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keys, where a roster lists them; as for weft train."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New results folder; by default results/NAME-tuning.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Find good options of an algorithm by a random search, as the HyFDCA paper does.

    For tables in one hand: like weft compare, tuning simulates the federation and pools its tables
    to judge. It writes into no ledger.

    Every trial is a run of --iterations under options drawn log-uniformly within bounds; the first
    one has the config's own. Only numbers are drawn, choices stay as the config has them. The same
    --seed draws the same sequence. Trials run one after the other in this process, since their
    seconds are measured: leave the machine alone meanwhile.

    Seven metrics judge a trial: mean seconds of an iteration at 0, 0.2575 and 0.8 s a round trip,
    the mean of the last five losses, the best accuracy (or R²) on samples held out, the volatility
    of the loss, and the iterations to 90% of the way down. Trials that diverge are left out. On the
    Pareto front of the others, grey relational analysis chooses: the trial with the highest mean of
    (Δmin + ξΔmax)/(Δ + ξΔmax) over the metrics, where Δ is the distance to the best of the front,
    from 0 to 1. Its accuracy is optimistic then, since it was chosen by it: judge on new samples.

    The folder gets trials.csv, front.csv, summary.json, tuning.png and .svg, and tuned.toml: the
    config with what was chosen, for weft train. With several algorithms each has a plot and a
    config of its own.
    """
    from weft.config.read_config import read_config
    from weft.storage.atomic_folder import building, refuse_existing
    from weft_evaluation.tuning.random_search import Limits
    from weft_evaluation.tuning.trial_choice import Rules, read_weights
    from weft_evaluation.tuning.tuning_results import write_tuning

    plan = read_config(config)
    folder = out or Path("results") / f"{plan.folder_name}-tuning"
    refuse_existing(folder)
    names = _names(algorithm, plan.settings)
    rules = Rules(distinguishing, read_weights(weight or []), least_progress)
    limits = Limits(trials, _SECONDS if seconds is None and trials is None else seconds)
    arena = _arena(plan, holdout, keys)
    searches = _searches(arena, plan, names, bound or [], iterations, every)
    tuning = _tune(plan, arena, searches, limits, rules, seed, quiet=quiet or json)
    with building(folder) as draft:
        configs, remarks = write_tuning(draft, tuning, config=config, folder=folder)
    if not quiet or json:
        _tell(folder, tuning, configs, remarks, json)


def _names(given: Sequence[str] | None, settings: Settings) -> list[str]:
    """Algorithms to tune, each once."""
    from weft.solvers.algorithm_choice import algorithm_of, for_any_parties
    from weft.solvers.run_settings import AUTO

    if not given:
        return [for_any_parties().name if settings.solver == AUTO else settings.solver]
    return [algorithm_of(name).name for name in dict.fromkeys(given)]


def _arena(plan: Config, holdout: float, keys: Path | None) -> Arena:
    import msgspec

    from weft.errors import ConfigError
    from weft.solvers.held_out_evaluation_settings import EvaluationSettings
    from weft_evaluation.algorithm_comparison import Arena

    settings = plan.settings
    if len(settings.lambdas) > 1:
        raise ConfigError(
            f"tuning has one lambda, but the config lists {len(settings.lambdas)}; keep one of them"
        )
    if not 0 < holdout < 1:
        raise ConfigError(f"--holdout is {holdout:g}; give a share above 0 and below 1")
    problem = plan.problem()
    return Arena(
        problem.tiles,
        problem.preprocessing,
        msgspec.structs.replace(settings, folds=0, evaluation=EvaluationSettings()),
        consents=plan.load_consents(problem.tiles),
        keys=plan.load_keys(problem.tiles, keys),
        test_share=holdout,
    )


def _searches(
    arena: Arena,
    plan: Config,
    names: Sequence[str],
    bounds: Sequence[str],
    iterations: int,
    every: int | None,
) -> list[Search]:
    """One for each algorithm; all that can be refused is refused before the first trial."""
    import msgspec

    from weft.solvers.algorithm_choice import settled
    from weft.solvers.held_out_evaluation_settings import EvaluationSettings
    from weft_evaluation.choose_compared_algorithms import settings_for
    from weft_evaluation.tuning.loss_along_run import Eye
    from weft_evaluation.tuning.random_search import Search
    from weft_evaluation.tuning.search_space import read_bounds, space_of

    given = read_bounds(bounds, names)
    eye, found = Eye(arena), []
    common = msgspec.structs.replace(plan.settings, folds=0, evaluation=EvaluationSettings())
    for name in names:
        # What [solver] says of its own algorithm is what would be trained.
        told: Mapping[str, Any] = {} if common.solver == name else plan.compare.get(name, {})
        settings, _ = settled(settings_for(name, common, told))
        parties = len(arena.holdings.parties)
        space = space_of(settings, given[name], samples=arena.train.n, parties=parties)
        found.append(Search(eye, settings, space, iterations=iterations, every=every))
    return found


def _tune(
    plan: Config,
    arena: Arena,
    searches: Sequence[Search],
    limits: Limits,
    rules: Any,
    seed: int,
    *,
    quiet: bool,
) -> Tuning:
    from weft_evaluation.tuning.trial_choice import choose
    from weft_evaluation.tuning.tuning_results import Tuning

    choices = [choose(_search(s, limits, seed, quiet=quiet), rules) for s in searches]
    regression = plan.settings.make_loss().task == "regression"
    return Tuning(
        name=plan.name,
        settings=plan.settings,
        samples=arena.train.n,
        held_out=0 if arena.test is None else arena.test.n,
        features=len(arena.train.features),
        parties=len(arena.holdings.parties),
        score="R²" if regression else "accuracy",
        seed=seed,
        choices=choices,
    )


def _search(search: Search, limits: Limits, seed: int, *, quiet: bool) -> Found:
    from weft.cli.terminal_output import StatusLine

    most = "" if limits.trials is None else f" of {limits.trials}"
    with StatusLine(f"{search.name} · setting up …", quiet=quiet) as line:

        def tell(number: int, left: float | None, record: Record) -> None:
            time = "" if left is None else f" · {max(left, 0.0):.0f} s left"
            line.show(
                lambda: f"{search.name} · trial {number}{most}{time} · iteration {record.iteration}"
            )

        return search.run(limits, seed, tell)


# ── telling ───────────────────────────────────────────────────────────────────────────────────


def _tell(
    folder: Path, tuning: Tuning, configs: Sequence[str], remarks: Sequence[str], json: bool
) -> None:
    from rich.console import Console

    from weft.cli.terminal_output import say, say_json
    from weft.privacy.ledger.expected_exposure_text import item
    from weft_evaluation.tuning.grey_relational import FORMULA

    if json:
        say_json({"folder": str(folder), "configs": list(configs), **tuning.to_dict()})
        return
    say(tuning.title)
    console = Console(markup=False, highlight=False)
    # In a narrower window lines wrap, rather than lose digits.
    console.width = max(console.width, _NARROWEST)
    for choice in tuning.choices:
        say("", *_search_words(choice), "")
        console.print(_grid(choice, tuning.score, wide=console.width >= _WIDE))
        hidden = len(choice.front) - _MOST_ROWS
        if hidden > 0:
            say(f"… and {hidden} more of the front in front.csv")
    rules = tuning.choices[0].rules
    say(
        "",
        "#: trial, * chosen; ms: mean of an iteration at 0/0.2575/0.8 s a round trip; loss: mean",
        "of the last five; vol.: volatility of the loss; it90: iterations to 90% of the way down;",
        f"{FORMULA}; ξ = {rules.distinguishing:g}",
        f"The {tuning.score} of * is optimistic: the samples held out chose it; judge on others.",
    )
    say(*(line for remark in remarks for line in item(remark)))
    say(f"Tables, plot and summary are in {folder}; train with what was chosen:")
    say(*(f"  weft train {folder / name}" for name in configs))


def _search_words(choice: Choice) -> list[str]:
    """What was searched, and what became of it."""
    found = choice.found
    searched = ", ".join(f"{b.name} {b.low:.3g}–{b.high:.3g}" for b in found.space)
    refused = any(choice.standing(trial) == "refused" for trial in choice.failed)
    fates = [f"{len(choice.failed)} diverged{' or were refused' if refused else ''}"]
    if choice.rules.least_progress > 0:
        fates.append(
            f"{len(choice.idle)} made less than {choice.rules.least_progress:.0%} of the best's "
            "progress"
        )
    return [
        f"{found.algorithm}: {searched}",
        f"{len(found.trials)} trials of {found.iterations} iterations in {found.seconds:.0f} s; "
        f"{', '.join(fates)}, {len(choice.front)} on the front",
        f"loss and score evaluated every {_count(found.every, 'iteration')}, which took "
        f"{found.looking:.0%} of the time",
    ]


def _count(number: int, what: str) -> str:
    return what if number == 1 else f"{number} {what}s"


def _grid(choice: Choice, score: str, *, wide: bool) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    names = [bound.name for bound in choice.found.space]
    titles = ("#", *names, "ms", "loss", "acc." if score == "accuracy" else score)
    for title in (*titles, "vol.", "it90", "grade"):
        grid.add_column(title, justify="right", overflow="fold")
    pairs = list(zip(choice.front, choice.graded.grades.tolist(), strict=True))[:_MOST_ROWS]
    for rank, (trial, grade) in enumerate(pairs):
        cells = _cells(trial, names, score, digits=3 if wide else 2)
        mark, style = ("*", "bold") if rank == 0 else ("", None)
        grid.add_row(f"{mark}{trial.number}", *cells, f"{grade:.3f}", style=style)
    return grid


def _cells(trial: Trial, names: Sequence[str], score: str, *, digits: int) -> list[str]:
    """Options and metrics of a trial that did not diverge."""
    from weft_evaluation.tuning.tuning_plot import short

    metrics = cast("Metrics", trial.metrics)
    near, far, satellite = (
        1e3 * seconds
        for seconds in (metrics.seconds_near, metrics.seconds_far, metrics.seconds_satellite)
    )
    return [
        *(short(trial.told[name], digits) for name in names),
        f"{near:.{digits}g}/{far:.0f}/{satellite:.0f}",
        f"{metrics.loss:.{digits + 1}g}",
        f"{metrics.score:.1%}" if score == "accuracy" else f"{metrics.score:.3f}",
        f"{metrics.volatility:.{digits - 2}e}".replace("e-0", "e-"),
        f"{metrics.progress:.0f}",
    ]
