"""The FedHybrid paper's figures: methods against each other, and more and more Newton parties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.experiments.fedhybrid_study import Outcome
from weft.report.drawing import BLUE, GREY, INK, ORANGE, new_figure, not_drawn, polish

#: Distances below this are not drawn.
_FLOOR = 1e-8
#: Nor are those above it: steps that are long at first need not stretch the scale.
_CEILING = 1e4
#: The figures end here, however long the slowest runs take.
_MOST_ITERATIONS = 200


def plot_methods(outcomes: Sequence[Outcome], path: Path, *, title: str) -> str | None:
    """Like Figures 1 and 3: FedAvg, DiSCO, FedH-N and some FedH-K.

    Returns
    -------
    str or None
        None when the file was written, else a sentence on how to get it.
    """
    ladder = _ladder(outcomes)
    chosen = {ladder[len(ladder) // 3].label, ladder[2 * len(ladder) // 3].label, ladder[-1].label}
    drawn = [o for o in outcomes if o.label in {"FedAvg", "DiSCO", *chosen}]
    middle = iter(_shades(len(chosen)))
    looks: list[dict[str, Any]] = []
    for outcome in drawn:
        if outcome.label == "FedAvg":
            looks.append({"color": INK, "linestyle": (0, (4, 2)), "linewidth": 1.6})
        elif outcome.label == "DiSCO":
            looks.append({"color": ORANGE, "linewidth": 1.6, "drawstyle": "steps-post"})
        elif outcome is ladder[-1]:
            looks.append({"color": BLUE, "linewidth": 2.6})
        else:
            looks.append({"color": next(middle), "linewidth": 1.6})
    return _plot(drawn, looks, path, title)


def plot_ladder(outcomes: Sequence[Outcome], path: Path, *, title: str) -> str | None:
    """Like Figures 2 and 4: FedHybrid alone, with more and more Newton-type parties."""
    drawn = _ladder(outcomes)
    looks = [{"color": shade, "linewidth": 1.8} for shade in _shades(len(drawn))]
    return _plot(drawn, looks, path, title)


def _ladder(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return sorted((o for o in outcomes if o.newton is not None), key=lambda o: o.newton or 0)


def _shades(count: int) -> list[str]:
    """From pale to dark; matplotlib's map, without its palest end."""
    try:
        from matplotlib import colormaps
        from matplotlib.colors import to_hex
    except ImportError:
        return [GREY] * count
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.85, 0.1, count))]


def _plot(
    outcomes: Sequence[Outcome], looks: Sequence[dict[str, Any]], path: Path, title: str
) -> str | None:
    figure = new_figure(7.5, 5)
    if figure is None:
        return not_drawn("FedHybrid")
    axis = figure.subplots()
    longest = max(len(outcome.trial.distances) for outcome in outcomes)
    last = min(longest, _MOST_ITERATIONS)
    for outcome, look in zip(outcomes, looks, strict=True):
        shown = np.clip(outcome.trial.distances[: last + 1], _FLOOR, None)
        axis.plot(np.arange(len(shown)), shown, label=outcome.label, **look)
        if shown[-1] <= _FLOOR:
            end = {"color": look["color"], "marker": "v", "markeredgewidth": 0, "markersize": 7}
            axis.plot([len(shown) - 1], [_FLOOR], clip_on=False, zorder=4, **end)
    known = np.concatenate([outcome.trial.distances[: last + 1] for outcome in outcomes])
    top = float(known[np.isfinite(known)].max())
    axis.set_yscale("log")
    axis.set_ylim(_FLOOR, min(2 * top, _CEILING))
    axis.set_xlim(0, last)
    axis.set_xlabel("iteration (one round trip each)")
    axis.set_ylabel("relative distance to the optimum, (P − P*) / P*")
    polish(axis)
    axis.legend(frameon=False, fontsize=9, loc="upper right")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path)
    return None
