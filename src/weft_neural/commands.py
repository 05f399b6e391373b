"""``weft neural``: networks for blocks of features, trained by HyFEM."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft_neural.predict_command import predict

if TYPE_CHECKING:
    from rich.table import Table

    from weft_neural.baseline_runs import Rivals
    from weft_neural.command_output import RoundLine
    from weft_neural.config import NeuralConfig, NeuralProblem
    from weft_neural.local_federation import NeuralTrained

neural = typer.Typer(
    no_args_is_help=True,
    help="""Networks for data that is cut both ways, trained by HyFEM.

    A *block* is a group of features that belong together: a scan, a blood count, a part of an
    image. Each party has some blocks of some samples. Every block gets an *extractor*, a network
    that turns it into a vector; a classifier reads the vectors of all blocks. Parties train
    networks for the blocks that they have; the coordinator averages extractors and matches the
    neurons of classifiers, so that in the end there is one network for all blocks, and a part of
    it for every choice of them.

    The coordinator sees every party's weights, which can tell much about its samples: a config
    must say coordinator_sees = "weights", and parties must agree (docs/threat-model.md).

    Start with: weft neural demo. Needs PyTorch: pip install 'weft\\[neural]'.
    """,
)


class DeviceName(StrEnum):
    """Where networks are computed."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


Device = Annotated[DeviceName, typer.Option(help="Where to compute; auto: CUDA if there is some.")]


@neural.command(epilog="Example: weft neural run clinics.toml --out results/clinics --baselines")
def run(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    out: Annotated[
        Path | None, typer.Option(help="New results folder; by default results/NAME.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where a scene's original files are; by default where WEFT_DATA says."),
    ] = None,
    device: Device = DeviceName.auto,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keys that 'weft keys new' made; by default new ones for this run alone.",
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option("--baselines", help="Also train centrally, alone and by FedProx, to compare."),
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Keep every message too, for 'weft audit'.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Train the networks that a config describes, all parties in this process.

    The config is as for weft train, with a section [neural] in the place of [model] and [solver]:
    blocks by the columns of parties' files, their extractors, rounds, steps, rates, matching. Or it
    names a scene, published data that is cut and dealt here (weft neural scenes). docs/neural.md
    has examples.

    Writes the server's model, every party's own and the copy that it received, the history (CSV and
    Parquet), a plot of accuracies and losses (PNG and SVG), a summary and a copy of the config. The
    folder appears when everything is in it.

    Parties measure on samples that they keep for that (test_share); a scene brings test samples,
    on which the server's model is measured too.

    With --baselines the same local steps are also taken by every party alone, by FedProx on the
    blocks that all parties have, and, for a scene, on all data in one place.
    """
    from weft.protocol.recording_file import Head
    from weft.report.recording_placement import place, recording
    from weft.storage.atomic_folder import building, refuse_existing
    from weft_neural.command_output import RoundLine, tell_neural
    from weft_neural.config import read_neural_config
    from weft_neural.results_folder import write_neural_results
    from weft_neural.torch_requirement import require_torch

    plan = read_neural_config(config)
    folder = out or Path("results") / plan.folder_name
    refuse_existing(folder)
    require_torch()
    problem = plan.problem(data_dir)
    if baselines:
        _check_measured(problem)
    settings = problem.settings
    head = Head(plan.name, list(problem.sources), settings.cipher, settings.coordinator_sees)
    with (
        recording(folder, head, wanted=record) as recorder,
        RoundLine(quiet=quiet or json) as line,
    ):
        trained = _train(plan, problem, keys, device.value, recorder, line)
        rivals = _rivals(problem, trained, device.value, line) if baselines else None
        with building(folder) as draft:
            summary, remarks = write_neural_results(
                draft, trained, name=plan.name, rivals=rivals, config=config
            )
            if recorder is not None:
                place(recorder, draft)
    if recorder is not None:
        remarks.append(f"every message is kept too: weft audit {folder}")
    if not quiet or json:
        tell_neural(folder, summary, remarks, json=json)


def _train(
    plan: NeuralConfig,
    problem: NeuralProblem,
    keys: Path | None,
    device: Any,
    recorder: Any,
    line: RoundLine,
) -> NeuralTrained:
    from weft_neural.local_federation import NeuralFederation
    from weft_neural.server_model_accuracy import ServerJudge

    scene = problem.scene
    federation = NeuralFederation(
        problem.sources,
        device=device,
        record=recorder or False,
        keys=plan.load_keys(problem.sources, keys),
        consents=plan.load_consents(problem.sources),
    )
    return federation.train(
        problem.settings,
        classes=problem.classes,
        progress=line.follow(plan.name, problem.settings.rounds),
        judge=None if scene is None else ServerJudge(*scene.tested(), device=device),
    )


def _check_measured(problem: NeuralProblem) -> None:
    from weft.errors import ConfigError

    if problem.scene is None and not problem.settings.test_share:
        raise ConfigError(
            "--baselines compares accuracies, but no party keeps samples for measuring; set "
            "test_share = 0.2 in [neural]"
        )


def _rivals(problem: NeuralProblem, trained: NeuralTrained, device: Any, line: RoundLine) -> Rivals:
    from weft_neural.baseline_runs import train_rivals

    return train_rivals(
        problem.sources,
        problem.settings,
        classes=trained.model.classes.tolist(),
        holders=trained.holders,
        scene=problem.scene,
        device=device,
        follow=lambda title: line.follow(title, problem.settings.rounds),
    )


neural.command(
    epilog="Example: weft neural predict results/clinics/model.npz new.csv --id patient"
)(predict)


@neural.command(epilog="Example: weft neural extractors")
def extractors() -> None:
    """List the extractors: what a block may be read by, with its options and their defaults."""
    import msgspec

    from weft_neural.extractors import EXTRACTORS

    grid = _grid("extractor", "what it is", "options, with defaults")
    for name, entry in EXTRACTORS.items():
        told = [f"{f.name} = {_toml(f.default)}" for f in msgspec.structs.fields(entry.options)]
        grid.add_row(name, entry.about, ", ".join(told) or "–")
    _show(
        grid,
        "In a config: extractor and options under [neural.blocks.NAME]. Without one, images of "
        "shape [channels, height, width] get cnn, all else mlp.",
    )


@neural.command(epilog="Example: weft neural scenes")
def scenes() -> None:
    """List the scenes: published data, cut into blocks and dealt to parties, to try things out."""
    from weft_neural.named_scenes import SCENES

    grid = _grid("scene", "what it is, and its files in the data directory")
    taken = [set(entry.options) for entry in SCENES.values()]
    common = set.intersection(*taken) if taken else set()
    for name, entry in SCENES.items():
        more = [option for option in entry.options if option not in common]
        told = [entry.about, entry.needs, *([f"also takes {', '.join(more)}"] if more else [])]
        grid.add_row(name, "\n".join(told), end_section=True)
    _show(
        grid,
        f'In a config: scene = "NAME" under [data]; {", ".join(sorted(common))} and what else a '
        "scene takes under [data.options]. The data directory is data_dir there, --data-dir, or "
        "what the environment variable WEFT_DATA says.",
        *SCENES.problems,
    )


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _grid(*titles: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, title in enumerate(titles):
        grid.add_column(title, no_wrap=place == 0, overflow="fold")
    return grid


def _show(grid: Table, *lines: str) -> None:
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    console.print(grid)
    for line in lines:
        console.print(line)
