"""``weft train``: train the model of a config, all parties in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weft.config.read_config import Problem
    from weft.data.tile import Tile
    from weft.federation.local_federation import Federation

#: Cells of all parties together from which on threads save more than they cost.
_MANY_CELLS = 1 << 22


def train(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    out: Annotated[
        Path | None, typer.Option(help="New results folder; by default results/NAME.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keys that 'weft keys new' made; by default new ones for this run alone.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where parties count sums; by default ledger/ beside the config."
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep every message too, for 'weft audit'.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of an interrupted run.")
    ] = False,
    inference: Annotated[
        bool, typer.Option("--inference", help="Standard errors, tests and intervals too.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Play parties on a Ray cluster: 'local' starts one here, 'auto' finds one.",
        ),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(min=1, help="With --ray: processes for all parties; by default one a core."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Parties that compute at once; by default one a core if tables are large."
        ),
    ] = None,
    without_messages: Annotated[
        bool,
        typer.Option(
            "--without-messages",
            help="HyFDCA with many small parties in about half of the time: no costs, no ledger.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Train the model that a config describes, all parties in this process.

    Stops at the certified gap that the config asks for and writes the model, the history (CSV and
    Parquet), a summary, a copy of the config and report.html, which shows how loss and gap fell,
    who holds what and all the rest in a browser, without any network; weft report --figures draws
    it for papers. The folder appears when everything is in it.

    The solver is chosen by the loss and by who takes part, unless name in the config's [solver]
    section says otherwise; weft check tells which it will be. To have lambda chosen too, list
    values, such as lambda = [1e-1, 1e-2, 1e-3] in [model], and set folds = 5 in [solver]: all are
    trained in one run, each from the last, the one that predicts samples left out best is
    released, and path.csv and path.png compare them.

    With checkpoint_every in [solver], for which auto takes hyfdca, an interrupted run can go on
    with --resume and ends with the same bits.

    With --inference (or inference = true, "robust" or "clustered" in [model]) whoever gets the
    model can tell standard errors, p-values and confidence intervals: coefficients.csv,
    coefficients.tex and a forest plot in the report. Terms must have allow_second_moments = true.

    The parties use the keys of --keys, or of the config's [keys] section; else keys are drawn for
    this run and forgotten with it.

    Every party counts in its ledger how many sums about its samples it got and showed, over all
    runs; weft check forecasts them, and weft ledger shows the past.

    Large tables are computed on all cores, a party to a thread, to the same bits: --threads.

    With --ray the parties are played in several processes, on all machines of a Ray cluster, to the
    same bits; it takes the extra weft[ray], keys of this run alone and no checkpoints.

    With --without-messages parties go through HyFDCA's iterations without asking each other, but
    for certificates, to the same bits: for research with many small parties and data that is
    nobody's secret. It takes solver hyfdca, cipher = "plain" and terms that hold nothing back; no
    costs of messages are counted, and no ledger is kept.

    With --record (or record = true in [solver]) the folder also holds every message as it crossed,
    for its owner's eyes only; weft audit shows what each side could read of them.
    """
    from operator import attrgetter

    from weft.cli.terminal_output import ProgressLine, say, say_json
    from weft.config.read_config import read_config
    from weft.privacy.ledger.expected_exposure_text import exposure_remarks
    from weft.protocol.recording_file import Head
    from weft.report.majority_class import labels_by_id, majority_share
    from weft.report.progress_and_ending_text import ending_text
    from weft.report.recording_placement import place, recording
    from weft.report.results_folder import write_results
    from weft.report.sizes_and_holders_of_groups import feature_sets
    from weft.solvers.solver_interfaces_and_results import Checkpointing
    from weft.storage.atomic_folder import building

    plan = read_config(config)
    folder = out or Path("results") / plan.folder_name
    store = folder.with_name(f"{folder.name}.checkpoints")
    if not resume:
        _refuse_leftovers(folder, store)
    problem = _inferring(plan.problem()) if inference else plan.problem()
    own = plan.load_keys(problem.tiles, keys)
    saving = None
    if resume or plan.checkpoint_every is not None:
        saving = Checkpointing(store, plan.checkpoint_every or 100, resume)
    if ray is not None:
        _refuse_with_ray(
            keys=own is not None, checkpoints=saving is not None, threads=threads is not None
        )
    if without_messages:
        _refuse_without_messages(ray=ray is not None, ledger=ledger is not None)
    settings = problem.settings
    book = plan.ledger(ledger)
    head = Head(plan.name, list(problem.tiles), settings.cipher, settings.coordinator_sees)
    with (
        _checkpoints(store, new=saving is not None and not resume),
        recording(
            folder,
            head,
            wanted=record or plan.record,
            store=None if saving is None else store,
            resume=resume,
        ) as recorder,
        _federation(
            ray,
            actors,
            problem.tiles,
            problem.preprocessing,
            store=store,
            keys=own,
            record=recorder or False,
            consents=plan.load_consents(problem.tiles),
            ledger=None if without_messages else book,
            readings=plan.readings(),
            threads=threads or _threads_for(problem.tiles, ray),
        ) as federation,
    ):
        with ProgressLine(quiet=quiet or json) as line:
            trained = federation.train(
                settings,
                progress=line,
                checkpointing=saving,
                follow=line.tell,
                without_messages=without_messages,
            )
        tiles = federation.look(attrgetter("tiles"))
        lies = book.folder.resolve()
        known = exposure_remarks(book, list(problem.tiles))
        with building(folder, replace=resume) as draft:
            if recorder is not None:
                # Before the report, which looks into it.
                place(recorder, draft)
            summary, remarks = write_results(
                draft,
                trained,
                settings,
                name=plan.name,
                config=config,
                majority=majority_share(federation.look(labels_by_id).values()),
                feature_sets=feature_sets(tiles, trained.holdings.parties, trained.model),
                # The report may be handed on: where the ledger lies is nobody's business.
                remarks=[
                    said.replace(f"weft ledger {book.folder}", f"weft ledger {lies.name}")
                    for said in known
                ],
                command=context.obj or "",
            )
    if saving is not None:
        shutil.rmtree(store, ignore_errors=True)
    remarks += known
    if recorder is not None:
        remarks.append(f"every message is kept too: weft audit {folder}")
    if json:
        say_json({"folder": str(folder), **summary})
    elif not quiet:
        holds = "Model, history, summary and report.html"
        say(*ending_text(folder, summary, remarks, holds))


@contextmanager
def _federation(
    ray: str | None, actors: int | None, *parts: Any, **options: Any
) -> Iterator[Federation]:
    """The parties in this process, or in actors of a Ray cluster."""
    from weft.federation.local_federation import Federation

    if ray is None:
        yield Federation(*parts, **options)
        return
    from weft.cluster.hosted_federation import HostedFederation
    from weft.cluster.ray_hosts import RayHosts

    start, count = partial(RayHosts, address=ray), actors or os.cpu_count() or 1
    with HostedFederation(*parts, start_hosts=start, count=count, **options) as federation:
        yield federation


def _threads_for(tiles: Mapping[str, Sequence[Tile]], ray: str | None) -> int:
    """One a core where parties compute longer than threads wait for each other."""
    cells = sum(
        tile.block.shape[0] * tile.block.shape[1] for held in tiles.values() for tile in held
    )
    return 1 if ray is not None or cells < _MANY_CELLS else len(os.sched_getaffinity(0))


def _refuse_without_messages(*, ray: bool, ledger: bool) -> None:
    """Stop before any work where messages would be needed."""
    from weft.errors import ConfigError

    if ray:
        raise ConfigError("actors are asked by messages; leave --ray or --without-messages out")
    if ledger:
        raise ConfigError(
            "sums are not counted without messages; leave --ledger or --without-messages out"
        )


def _refuse_with_ray(*, keys: bool, checkpoints: bool, threads: bool) -> None:
    """Stop before any work where actors lack what is asked for."""
    from weft.errors import ConfigError

    if threads:
        raise ConfigError("an actor is one thread; give --actors in the place of --threads")
    if keys:
        raise ConfigError(
            "keys do not leave the process that reads them; leave --keys and [keys] out with --ray"
        )
    if checkpoints:
        raise ConfigError(
            "parties in actors keep no checkpoints; leave --resume and checkpoint_every out with "
            "--ray"
        )


def _inferring(problem: Problem) -> Problem:
    """The same problem with standard errors asked for, as the config says or by the model."""
    from dataclasses import replace

    import msgspec

    from weft.solvers.algorithm_choice import settled

    if problem.settings.inference != "none":
        return problem
    asked = msgspec.structs.replace(problem.settings, inference="model")
    settled(asked)
    return replace(problem, settings=asked)


def _refuse_leftovers(folder: Path, store: Path) -> None:
    """Stop before any work when the run would overwrite something."""
    from weft.errors import ConfigError
    from weft.storage.atomic_folder import refuse_existing

    refuse_existing(folder)
    if store.exists():
        raise ConfigError(
            f"{store} holds the checkpoint of an interrupted run; go on with --resume, or "
            "delete that folder"
        )


@contextmanager
def _checkpoints(store: Path, *, new: bool) -> Iterator[None]:
    """A folder for checkpoints; where a run fails without any, it goes again."""
    from weft.storage.atomic_files import StorageError

    if new:
        try:
            # Owner-only: checkpoints hold dual variables, which tell labels.
            store.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise StorageError(
                f"{store}: the folder for checkpoints cannot be made ({error.strerror or error}); "
                "check the permissions and free space there"
            ) from None
    try:
        yield
    except BaseException:
        if store.is_dir() and not any(store.iterdir()):
            store.rmdir()
        raise
