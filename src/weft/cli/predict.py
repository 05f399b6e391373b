"""``weft predict``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from weft.data.tile import Tile
    from weft.federation.model import Model


def predict(
    model: Annotated[Path, typer.Argument(help="A model.npz that 'weft train' wrote.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Files of new samples.")] = None,
    joint: Annotated[
        Path | None,
        typer.Option(help="A config whose parties each have a file of new samples."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Take the columns there are; others count as their centre."),
    ] = False,
    id: Annotated[str, typer.Option(help="Id column of the files.")] = "id",
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --joint: keys that 'weft keys new' made; by default new ones.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --joint: where parties count sums; by default ledger/ beside the config.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --joint: keep every message here, for 'weft audit'."
        ),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the scores too.")] = False,
    out: Annotated[Path | None, typer.Option(help="CSV file to write instead of stdout.")] = None,
) -> None:
    """Predict for new samples: a CSV with id and prediction.

    A file that has all features needs nothing else; columns are found by name and become features
    as they did in training, and a blank cell counts as it did there. With --partial one party
    predicts from its own columns alone. With --joint the parties of a config add up their parts of
    every sample's score without showing them.
    """
    from weft.config.read_prediction_samples import read_samples
    from weft.errors import ConfigError
    from weft.federation.model import load_model

    trained = load_model(model)
    if (joint is None) == (not files):
        raise ConfigError("name files of new samples, or a config with --joint, but not both")
    if joint is None and not (keys is None and record is None and ledger is None):
        raise ConfigError(
            "--keys, --record and --ledger are for --joint; nothing is sent without it"
        )
    frames = []
    if joint is not None:
        frames.append(_frame(trained, *_joint_scores(trained, joint, keys, record, ledger), scores))
    for path in files or []:
        samples = read_samples(path, trained, id_column=id)
        _say(samples.remarks, path.name)
        tile = samples.tile
        if partial:
            found = trained.partial(tile.features, tile.block) + trained.centre_score
        else:
            found = trained.decision(trained.aligned(tile.features, tile.block, path.name))
        frames.append(_frame(trained, tile.ids, found, scores))
    _write(frames, out)


def _joint_scores(
    model: Model, config: Path, keys: Path | None, record: Path | None, ledger: Path | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids and scores that the parties of a config find together."""
    from weft.config.read_config import read_config
    from weft.config.read_prediction_samples import read_joint_samples
    from weft.federation.joint_prediction import predict_scores
    from weft.protocol.recording import Head
    from weft.report.recording_placement import recorded_to

    plan = read_config(config)
    samples = read_joint_samples(plan, model)
    tiles = {name: tuple(one.tile for one in held) for name, held in samples.items()}
    for name, held in samples.items():
        _say([said for one in held for said in one.remarks], name)
    own = plan.load_keys(tiles, keys)
    cipher = plan.settings.cipher
    with recorded_to(record, Head(plan.name, list(tiles), cipher)) as recorder:
        _remark_on_missing(model, tiles)
        return predict_scores(
            model,
            tiles,
            overlap=plan.data.overlap or "mean",
            cipher=cipher,
            keys=own,
            record=recorder,
            consents=plan.load_consents(tiles),
            matching=plan.terms.matching,
            ledger=plan.ledger(ledger),
        )


def _say(remarks: list[str], where: str) -> None:
    for said in remarks:
        print(f"weft: {where}: {said}", file=sys.stderr)


def _remark_on_missing(model: Model, tiles: Mapping[str, Sequence[Tile]]) -> None:
    """Say which features nobody brought: their centre stands in for them."""
    brought = {name for held in tiles.values() for tile in held for name in tile.features.tolist()}
    missing = [name for name in model.features.tolist() if name not in brought]
    if missing:
        named = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        print(
            f"weft: no party holds {len(missing)} of the model's features ({named}); they count as "
            "their centre",
            file=sys.stderr,
        )


def _frame(
    model: Model, ids: NDArray[Any], scores: NDArray[Any], with_scores: bool
) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame({"id": ids, "prediction": model.outcome(scores)})
    if with_scores and scores.shape[1] == 1:
        frame["score"] = scores[:, 0]
    elif with_scores and model.classes is not None:
        for column, value in enumerate(model.classes.tolist()):
            frame[f"score {value}"] = scores[:, column]
    return frame


def _write(frames: list[pd.DataFrame], out: Path | None) -> None:
    import pandas as pd

    from weft.storage.files import replacing

    everything = pd.concat(frames, ignore_index=True)
    if out is None:
        everything.to_csv(sys.stdout, index=False)
        return
    with replacing(out) as draft:
        everything.to_csv(draft, index=False)
