"""Figures 4, 5, 9, 10, 13 and 14 of the 2024 text: accuracy of the server and of the parties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.array_types import Floats
from weft.report.plot_style import BLUE, FAINT, GREEN, INK, ORANGE, new_figure, not_drawn
from weft_neural.curve_plots import (
    Curve,
    draw_curves,
    label_ends,
    per_cent,
    whole_rounds,
)
from weft_papers.hyfem.run_experiments import Found
from weft_papers.hyfem.run_result_file import RunFile

#: Of several runs of HyFEM, from weak to strong.
_BLUES = ("#7FB8DA", "#2F8FC4", "#004F7F")


def plot_experiment(found: Found, *paths: Path) -> str | None:
    """The server's side and the parties' side, next to each other.

    Returns
    -------
    str or None
        None when the files were written, else a sentence on how to get it.
    """
    figure = new_figure(11.5, 4.8)
    if figure is None:
        return not_drawn("HyFEM")
    sides = figure.subplots(1, 2, sharey=True, sharex=True)
    for axis, curves, title in zip(
        sides,
        (server_curves(found), party_curves(found)),
        ("Server: all blocks of the test samples", "Parties: mean over parties ± their spread"),
        strict=True,
    ):
        draw_curves(axis, curves, most=100)
        axis.set_title(title, loc="left", fontsize=10.5, color=INK)
        whole_rounds(axis)
    sides[0].set_ylabel("test accuracy")
    per_cent(sides[0], [*server_curves(found), *party_curves(found)])
    for axis, curves in zip(sides, (server_curves(found), party_curves(found)), strict=True):
        label_ends(axis, curves)
    trial = "" if found.trial is None else f" ({found.trial})"
    title = f"{found.setup.experiment.title}{trial}"
    figure.suptitle(title, x=0.012, ha="left", fontsize=12.5, fontweight="bold", color=INK)
    figure.supxlabel(_caption(found), x=0.012, ha="left", fontsize=8.5, color=FAINT)
    for path in paths:
        figure.savefig(path)
    return None


def _caption(found: Found) -> str:
    """The experiment's source, and notes on the labels."""
    told = [f"Experiment: {found.setup.experiment.text}"]
    if found.of("fedprox"):
        told.append("FedProx: on the blocks that all parties have")
    if len(found.of("hyfem")) == 1:
        told.append("as received: the server's model cut to a party's blocks")
    return "   ·   ".join(told)


def server_curves(found: Found) -> list[Curve]:
    """As in Figure 4, and FedProx as in Figure 9."""
    curves = [
        _curve(run, label, colour, "server_accuracy", width=2.4)
        for run, label, colour in _variants(found)
    ]
    curves += [_curve(run, "central", INK, style="dashed") for run in found.of("central")]
    curves += [_curve(run, "FedProx", GREEN, "server_accuracy") for run in found.of("fedprox")]
    return _known([*curves, *_alone(found, band=False)])


def party_curves(found: Found) -> list[Curve]:
    """As in Figure 5, and FedProx as in Figure 10."""
    curves = [
        _curve(run, label, colour, spread="local_spread", width=2.4)
        for run, label, colour in _variants(found)
    ]
    curves += [_curve(run, "central", INK, style="dashed") for run in found.of("central")]
    curves += [_curve(run, "FedProx", GREEN, spread="local_spread") for run in found.of("fedprox")]
    curves += _alone(found, band=True)
    if len(found.of("hyfem")) == 1:
        # What parties get from the server knows all classes; local steps forget some again.
        received = _curve(
            found.of("hyfem")[0], "HyFEM, as received", _BLUES[0], "received_accuracy"
        )
        curves.append(received)
    return _known(curves)


def _variants(found: Found) -> list[tuple[RunFile, str, str]]:
    runs = found.of("hyfem")
    shades = (BLUE,) if len(runs) == 1 else _BLUES
    return [(run, run.plan.label, shades[at % len(shades)]) for at, run in enumerate(runs)]


def _alone(found: Found, *, band: bool) -> list[Curve]:
    """Mean over the parties that trained alone."""
    runs = found.of("alone")
    if not runs:
        return []
    curves = [_curve(run, "alone", ORANGE) for run in runs]
    length = min(len(curve.values) for curve in curves)
    values = np.array([curve.values[:length] for curve in curves])
    parties = len(runs[0].parties)
    label = "alone" if len(runs) == parties else f"alone, {len(runs)} of {parties}"
    spread = values.std(axis=0) if band else None
    return [Curve(label, ORANGE, curves[0].rounds[:length], values.mean(axis=0), spread)]


def _curve(
    run: RunFile,
    label: str,
    colour: str,
    field: str = "local_accuracy",
    *,
    spread: str | None = None,
    style: str = "solid",
    width: float = 1.8,
) -> Curve:
    rows = [row for row in run.history if row[field] is not None]

    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], np.float64)

    band = None if spread is None else 100 * column(spread)
    return Curve(label, colour, column("turn"), 100 * column(field), band, style, width)


def _known(curves: Sequence[Curve]) -> list[Curve]:
    return [curve for curve in curves if len(curve.values)]
