"""``weft neural predict``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.data.tile import Tile
    from weft_neural.gather_tiles_into_blocks import Gathered
    from weft_neural.settings import Block
    from weft_neural.trained_model import NeuralModel


def predict(
    model: Annotated[Path, typer.Argument(help="A model that 'weft neural run' wrote.")],
    files: Annotated[list[Path], typer.Argument(help="Files of new samples.")],
    id: Annotated[str, typer.Option(help="Id column of the files.")] = "id",
    blocks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Use these blocks only; by default all in the files."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write instead of stdout.")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write the probability of every class too.")
    ] = False,
) -> None:
    """Predict for new samples: a CSV with id and prediction.

    The model is the server's (model.npz), a party's own (parties/NAME/own.npz), or its copy of the
    server's (parties/NAME/received.npz). Columns are found as in training; several files are joined
    by id.

    Where the files lack some of the model's blocks, the part of the model for those that they have
    is used, and said so on stderr: that is how a party that took no part in training uses the
    server's model.
    """
    from weft.storage.atomic_files import replacing
    from weft_neural.gather_tiles_into_blocks import gathered
    from weft_neural.torch_requirement import require_torch
    from weft_neural.trained_model import NeuralModel

    require_torch()
    trained = NeuralModel.load(model)
    wanted = _wanted(trained, blocks)
    tiles = [_read(path, wanted, id) for path in files]
    found = gathered(tiles, wanted, _named(files))
    _insist_on_whole(found, files)
    used = _restricted(trained, list(found.blocks), named=blocks is not None)
    table = _table(used, found, probabilities)
    if out is None:
        sys.stdout.write(table)
        return
    with replacing(out) as draft:
        draft.write_text(table, encoding="utf-8")


def _wanted(model: NeuralModel, blocks: str | None) -> Mapping[str, Block]:
    if blocks is None:
        return model.blocks
    return model.restricted([name.strip() for name in blocks.split(",") if name.strip()]).blocks


def _read(path: Path, blocks: Mapping[str, Block], id_column: str) -> Tile:
    """The columns of a file that belong to some block; all others are not looked at."""
    from weft.data.read_tables import table_columns
    from weft.data.read_tiles import read_tile
    from weft.errors import DataError
    from weft_neural.gather_tiles_into_blocks import matching_columns

    features, held = None, table_columns(path)
    if held is not None:
        known = set(held) - {id_column}
        features = [c for name, b in blocks.items() for c in matching_columns(known, name, b)]
        if not features:
            raise DataError(
                f"{path.name}: none of its columns belongs to the blocks {', '.join(blocks)}; "
                "check the column names"
            )
    return read_tile(path, id_column=id_column, features=features)


def _named(files: Sequence[Path]) -> str:
    return files[0].name if len(files) == 1 else f"all of {', '.join(p.name for p in files)}"


def _insist_on_whole(found: Gathered, files: Sequence[Path]) -> None:
    from weft.errors import DataError

    if not found.whole.all():
        lacking = found.ids[~found.whole]
        raise DataError(
            f"sample {lacking[0]!r} and {len(lacking) - 1} more lack some of the blocks "
            f"{', '.join(found.blocks)} that {_named(files)} have; predict for them by themselves, "
            "or name fewer blocks with --blocks"
        )


def _restricted(model: NeuralModel, blocks: list[str], *, named: bool) -> NeuralModel:
    """The part of the model for the blocks that there are."""
    if len(blocks) == len(model.blocks):
        return model
    if not named:
        missing = [name for name in model.blocks if name not in blocks]
        print(
            f"weft: the files have no columns of {', '.join(missing)}; using the part of the model "
            f"for {', '.join(blocks)}",
            file=sys.stderr,
        )
    return model.restricted(blocks)


def _table(model: NeuralModel, found: Gathered, with_probabilities: bool) -> str:
    import pandas as pd

    chances = model.probabilities(found.blocks)
    frame = pd.DataFrame({"id": found.ids, "prediction": model.classes[chances.argmax(axis=1)]})
    if with_probabilities:
        for column, value in enumerate(model.classes.tolist()):
            frame[f"probability {value}"] = chances[:, column]
    return frame.to_csv(index=False)
