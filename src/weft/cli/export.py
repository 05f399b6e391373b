"""``weft export``: a model for other programs, or as a card for people who decide about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.federation.model import Model


def export(
    model: Annotated[Path, typer.Argument(help="A model.npz that 'weft train' wrote.")],
    files: Annotated[
        list[Path], typer.Argument(help="Files to write; their endings say what: .onnx, .json.")
    ],
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Write a model for other programs, or as a card for people who decide about it.

    FILE.onnx computes scores, predictions and probabilities in any program that runs ONNX, from a
    table of features in the order that its metadata names; blank cells count as in training. It
    takes pip install 'weft[onnx]'.

    FILE.json is a model card: weights, loss, certificate and, from the summary.json beside the
    model, data, settings, terms, what was measured on samples left out, and who saw what.
    """
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError
    from weft.federation.model import load_model

    makers = {".onnx": _onnx, ".json": _card}
    for path in files:
        if path.suffix not in makers:
            raise ConfigError(
                f"{path} has no ending that weft export knows; name a file that ends in "
                f"{' or '.join(makers)}"
            )
        if not path.parent.is_dir():
            raise ConfigError(f"there is no folder {path.parent} for {path.name}; make it first")
    trained = load_model(model)
    for path in files:
        makers[path.suffix](trained, model, path)
        if not quiet:
            say(f"wrote {path}")


def _onnx(trained: Model, model: Path, path: Path) -> None:
    from weft.federation.onnx_graph import write_onnx

    write_onnx(trained, path)


def _card(trained: Model, model: Path, path: Path) -> None:
    from weft.network.submitter_visible_figures import LINEAR, told_of
    from weft.report.json_safe_and_rounded_values import json_text
    from weft.report.model_card import model_card, summary_beside
    from weft.storage.atomic_files import replacing

    summary = summary_beside(model)
    card = json_text(model_card(trained, None if summary is None else told_of(summary, LINEAR)))
    with replacing(path) as new:
        new.write_text(card, encoding="utf-8")
