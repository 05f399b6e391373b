"""The plot of a neural run: accuracies of server and parties, and the training loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from weft.report.plot_style import BLUE, FAINT, GREEN, INK, ORANGE, SKY, new_figure, not_drawn
from weft_neural.curve_plots import Curve, draw_curves, label_ends, per_cent, whole_rounds

# Darker than the palette's pink, since it draws thin lines.
_PURPLE = "#A05A8C"
_CAPTION = (
    "own: networks right after local steps, mean over parties ± their spread   ·   received: the "
    "server's model cut to a party's blocks"
)


def plot_accuracy(
    history: pd.DataFrame, rivals: pd.DataFrame | None, path: Path, *, title: str
) -> str | None:
    """Draw accuracies and losses against rounds, as PNG and SVG.

    Parameters
    ----------
    history
        As `weft_neural.results_folder.round_frame` gives it.
    rivals
        Curves of what the run is compared with, as
        `weft_neural.results_folder.rivals_frame` gives them.
    path
        The PNG file to write; the SVG file lies beside it.

    Returns
    -------
    str or None
        None when the files were written, else a sentence on how to get them.
    """
    figure = new_figure(11.5, 4.8)
    if figure is None:
        return not_drawn("accuracy")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    curves = accuracy_curves(history, rivals)
    draw_curves(left, curves, most=100)
    per_cent(left, curves)
    label_ends(left, curves)
    left.set_title("Accuracy on test samples", loc="left", fontsize=10.5, color=INK)
    if not curves:
        left.text(0.5, 0.5, "nobody has samples to measure with:\nset test_share", ha="center",
                  va="center", transform=left.transAxes, color=FAINT)  # fmt: skip
    losses = loss_curves(history, rivals)
    draw_curves(right, losses)
    right.set_ylim(bottom=0)
    label_ends(right, losses, ".2g")
    right.set_title("Training loss of local steps", loc="left", fontsize=10.5, color=INK)
    for axis in (left, right):
        whole_rounds(axis)
    figure.suptitle(title, x=0.012, ha="left", fontsize=12.5, fontweight="bold", color=INK)
    figure.supxlabel(_CAPTION, x=0.012, ha="left", fontsize=8.5, color=FAINT)
    figure.savefig(path)
    figure.savefig(path.with_suffix(".svg"))
    return None


def accuracy_curves(history: pd.DataFrame, rivals: pd.DataFrame | None) -> list[Curve]:
    """Server, received and own; then the rivals. What nobody measured is left out."""
    whose = "" if rivals is None else "HyFEM "
    curves = [
        _curve(history, f"{whose}server", BLUE, "server_accuracy", width=2.6),
        _curve(history, f"{whose}received", SKY, "received_accuracy"),
        _curve(history, f"{whose}own", ORANGE, "local_accuracy", spread="local_spread"),
    ]
    if rivals is not None:
        look = {
            "central": (INK, "dashed", False),
            "FedProx server": (GREEN, "dashed", False),
            "FedProx own": (GREEN, "dotted", False),
            "alone": (_PURPLE, "dashed", True),
        }
        for name, (colour, style, band) in look.items():
            told = rivals[rivals["curve"] == name]
            spread = "spread" if band else None
            curves.append(_curve(told, name, colour, "accuracy", spread=spread, style=style))
    return [curve for curve in curves if len(curve.values)]


def loss_curves(history: pd.DataFrame, rivals: pd.DataFrame | None) -> list[Curve]:
    """Of the run, and of its rivals."""
    curves = [_curve(history, "HyFEM", BLUE, "loss", width=2.6, scale=1)]
    if rivals is not None:
        for name, label, colour in (
            ("central", "central", INK),
            ("FedProx own", "FedProx", GREEN),
            ("alone", "alone", _PURPLE),
        ):
            told = rivals[rivals["curve"] == name]
            curves.append(_curve(told, label, colour, "loss", style="dashed", scale=1))
    return [curve for curve in curves if len(curve.values)]


def _curve(
    frame: pd.DataFrame,
    label: str,
    colour: str,
    column: str,
    *,
    spread: str | None = None,
    style: str = "solid",
    width: float = 1.8,
    scale: float = 100,
) -> Curve:
    known = frame[frame[column].notna()]
    wanted: Sequence[str] = ["turn", column, *([spread] if spread else [])]
    found: Any = known[wanted].to_numpy(np.float64)
    band = scale * found[:, 2] if spread else None
    return Curve(label, colour, found[:, 0], scale * found[:, 1], band, style, width)
