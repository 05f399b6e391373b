"""What all plots share: paper, palette and a plain look."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

# Okabe and Ito's palette, which stays distinct for colour-blind readers.
BLUE, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#A8A8A8", "#333333"
GREEN, SKY, PINK = "#009E73", "#56B4E9", "#CC79A7"
#: Of small print.
FAINT = "#6B6B6B"


def new_figure(width: float, height: float) -> Any | None:
    """An empty figure that needs no display; None where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def not_drawn(what: str) -> str:
    """A sentence on how to get a plot that could not be drawn."""
    return f"no {what} plot: matplotlib is not installed; pip install 'weft[report]'"


def draw_gaps(
    axis: Any,
    places: Any,
    gaps: pd.Series[float],
    floor: float,
    style: dict[str, Any],
) -> None:
    """Gaps as dots; those below the floor, such as a problem solved exactly, point down from it."""
    known = gaps.where(gaps.notna() & np.isfinite(gaps))
    low = known < floor
    axis.plot(places, known.clip(lower=floor), markevery=(~low).tolist(), **style)
    axis.plot(
        places[low],
        [floor] * int(low.sum()),
        "v",
        color=style["color"],
        markersize=style["markersize"] + 2,
        markeredgewidth=0,
    )


def gap_floor(gaps: Iterable[float], target: float | None) -> float:
    """The smallest gap that a plot tells from smaller ones: they must not stretch its scale."""
    known = [gap for gap in gaps if gap > 0 and math.isfinite(gap)]
    if target is None:
        return min(known, default=1e-3)
    return min(target, max(min(known, default=target), target / 30))


def target_line(axis: Any, target: float) -> None:
    """The gap that was asked for."""
    axis.axhline(target, color=ORANGE, linewidth=1.2, linestyle=(0, (4, 3)))
    axis.annotate(
        f"asked for: {target:g}",
        xy=(0.01, target),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=ORANGE,
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
    )


def polish(axis: Any) -> None:
    axis.grid(color="#E5E5E5", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.margins(x=0.02)
