"""The plot of a path: how well each λ predicts samples left out, its certificate and its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from weft.data.tile import Task
from weft.report.lambda_path import (
    GAINS,
    Measure,
    chosen_row,
    fold_columns,
    has_scores,
    score_measure,
)
from weft.report.plot_style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    draw_gaps,
    gap_floor,
    new_figure,
    not_drawn,
    polish,
    target_line,
)
from weft.solvers.solver_settings import Scoring


def plot_path(
    frame: pd.DataFrame,
    path: Path,
    *,
    title: str,
    task: Task,
    scoring: Scoring | None = None,
    target: float | None = None,
) -> str | None:
    """Draw scores against λ with their spread over the folds; below, gaps and round trips.

    Parameters
    ----------
    frame
        A path, as `path_frame` gives it.
    path
        The PNG file to write.
    title
        Headline of the figure.
    task, scoring
        What a score means.
    target
        The certified gap that was asked for, drawn as a line.

    Returns
    -------
    str or None
        None when the file was written, else a sentence on how to get it.
    """
    figure = new_figure(8, 7)
    if figure is None:
        return not_drawn("path")
    frame = frame.sort_values("lambda")
    lambdas = frame["lambda"].to_numpy()
    top, middle, bottom = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [3.2, 1, 1]}
    )
    measure: Measure | None = None
    if has_scores(frame):
        measure = score_measure(
            frame["mean_score"], regression=task == "regression", scoring=scoring
        )
        _draw_scores(top, frame, measure)
    else:
        _draw_losses(top, frame)
    _draw_gaps(middle, frame, target)
    _draw_round_trips(bottom, frame)
    for axis in (top, middle, bottom):
        polish(axis)
    chosen = chosen_row(frame)
    if chosen is not None:
        _mark(top, frame, chosen, measure)
        for axis in (top, middle) if len(frame) > 1 else ():
            axis.axvline(chosen["lambda"], color=ORANGE, linewidth=1.2, alpha=0.45, zorder=1)
    bottom.grid(visible=False, axis="x")
    bottom.set_xscale("log")
    bottom.set_xlim(lambdas[0] / _margin(lambdas), lambdas[-1] * _margin(lambdas))
    bottom.set_xlabel("regulariser λ   (to the right: simpler models)")
    figure.align_ylabels([top, middle, bottom])
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path)
    return None


def _margin(lambdas: Any) -> float:
    """Room to the left and right of a log axis, as a factor."""
    return float(max((lambdas[-1] / lambdas[0]) ** 0.06, 1.6))


def _draw_scores(axis: Any, frame: pd.DataFrame, measure: Measure) -> None:
    error = measure not in GAINS
    sign = -1.0 if error else 1.0
    lambdas, mean = frame["lambda"], sign * frame["mean_score"]
    spread = frame["std_score"] if fold_columns(frame) else 0.0 * mean
    if fold_columns(frame):
        _draw_folds(axis, frame, sign)
    axis.plot(lambdas, mean, "o-", color=BLUE, linewidth=2, markersize=6, label="mean")
    axis.set_ylabel(f"{measure}, left out")
    if error:
        if mean.max() > 20 * mean.min() > 0:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=max(0.0, axis.get_ylim()[0]))
    elif measure == "accuracy":
        axis.yaxis.set_major_formatter("{x:.0%}" if _wide(mean, spread) else "{x:.1%}")
    axis.legend(frameon=False, fontsize=9)


def _draw_folds(axis: Any, frame: pd.DataFrame, sign: float) -> None:
    lambdas, folds = frame["lambda"], fold_columns(frame)
    mean, spread = sign * frame["mean_score"], frame["std_score"]
    axis.fill_between(
        lambdas,
        mean - spread,
        mean + spread,
        color=BLUE,
        alpha=0.14,
        linewidth=0,
        label=f"± one standard deviation over {len(folds)} folds",
    )
    for fold in folds:
        label = "each fold" if fold == folds[0] else None
        axis.plot(lambdas, sign * frame[fold], color=GREY, linewidth=0.8, label=label)
        axis.plot(lambdas, sign * frame[fold], ".", color=GREY, markersize=4)
    if len(frame) == 1:  # a band of no width
        axis.errorbar(lambdas, mean, spread, color=BLUE, linewidth=5, alpha=0.3)


def _wide(mean: Any, spread: Any) -> bool:
    """Whether whole percents tell the ticks of an axis apart."""
    return float((mean + spread).max() - (mean - spread).min()) > 0.05


def _mark(axis: Any, frame: pd.DataFrame, chosen: Any, measure: Measure | None) -> None:
    """A ring around the released model, and its λ above the axis, clear of every curve."""
    height, text = chosen["loss"], f"released: λ = {chosen['lambda']:g}"
    if measure is not None and not np.isnan(chosen["mean_score"]):
        told = {"mean squared error": "error", "mean loss": "loss", "AUC": "AUC"}.get(measure, "")
        height = chosen["mean_score"] if measure in GAINS else -chosen["mean_score"]
        told = f"{told} {height:.4g}" if told else f"{height:.1%}"
        text = f"{'chosen: ' if len(frame) > 1 else ''}λ = {chosen['lambda']:g}, {told}"
    ring = {"markerfacecolor": "none", "markeredgecolor": ORANGE, "markeredgewidth": 2}
    axis.plot(chosen["lambda"], height, "o", markersize=13, zorder=5, **ring)
    lambdas = frame["lambda"].to_numpy()
    side = "center"
    if len(lambdas) > 1:
        side = {lambdas[0]: "left", lambdas[-1]: "right"}.get(chosen["lambda"], "center")
    axis.annotate(
        text,
        xy=(chosen["lambda"], 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 5),
        textcoords="offset points",
        ha=side,
        color=ORANGE,
        fontsize=10.5,
        fontweight="bold",
    )


def _draw_losses(axis: Any, frame: pd.DataFrame) -> None:
    axis.plot(frame["lambda"], frame["loss"], "o-", color=BLUE, linewidth=2, markersize=6)
    axis.set_ylabel("certified loss P(w)")


def _draw_gaps(axis: Any, frame: pd.DataFrame, target: float | None) -> None:
    axis.set_yscale("log")
    gaps = frame["gap"].astype(float)
    floor = gap_floor(gaps, target)
    look = {"color": BLUE, "marker": "o", "linewidth": 0, "markersize": 6, "markeredgewidth": 0}
    draw_gaps(axis, frame["lambda"], gaps, floor, look)
    if target is not None:
        target_line(axis, target)
    highest = max([*gaps[np.isfinite(gaps)], target or 0.0])
    axis.yaxis.set_minor_formatter("")
    axis.set_ylim(floor / 3, highest * 8)
    axis.set_ylabel("certified gap")


def _draw_round_trips(axis: Any, frame: pd.DataFrame) -> None:
    lambdas, trips = frame["lambda"].to_numpy(), frame["round_trips"].to_numpy()
    near = np.diff(np.log(lambdas)).min() if len(lambdas) > 1 else 0.6
    half = np.exp(0.18 * near)
    axis.bar(
        lambdas / half,
        trips,
        width=lambdas * (half - 1 / half),
        align="edge",
        color=[ORANGE if chosen else BLUE for chosen in frame["chosen"]],
        alpha=0.8,
    )
    for lam, count in zip(lambdas, trips, strict=True):
        axis.annotate(
            f"{count}",
            (lam, count),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=INK,
        )
    axis.set_ylim(0, trips.max() * 1.35)
    axis.set_ylabel("round trips")
    axis.set_title(
        f"{trips.sum()} in all, with those for matching and scaling at the largest λ",
        loc="right",
        fontsize=8.5,
        color=INK,
    )
