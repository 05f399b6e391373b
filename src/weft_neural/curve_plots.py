"""Curves over rounds, with their names and last values at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.array_types import Floats
from weft.report.plot_style import polish

#: The line from the end of a curve to a label that had to move.
_LEADER = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1, "shrinkB": 1}
#: Height of a label in parts of the axis.
_LABEL = 0.058


@dataclass(frozen=True, eq=False)
class Curve:
    """Values by rounds; with a spread it has a band."""

    label: str
    colour: str
    rounds: Floats
    values: Floats
    spread: Floats | None = None
    style: str = "solid"
    width: float = 1.8


def draw_curves(axis: Any, curves: Sequence[Curve], *, most: float = np.inf) -> None:
    """Lines and bands; bands end at 0 and at ``most``."""
    polish(axis)
    for curve in curves:
        axis.plot(
            curve.rounds,
            curve.values,
            color=curve.colour,
            linewidth=curve.width,
            linestyle=curve.style,
            marker="o" if len(curve.values) < 3 else None,
            markersize=4,
        )
        if curve.spread is not None:
            low, high = curve.values - curve.spread, curve.values + curve.spread
            axis.fill_between(
                curve.rounds,
                low.clip(0, most),
                high.clip(0, most),
                color=curve.colour,
                alpha=0.13,
                linewidth=0,
            )


def whole_rounds(axis: Any) -> None:
    """Rounds have whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("round")


def per_cent(axis: Any, curves: Sequence[Curve]) -> None:
    """From a round ten below everything to 100 %."""
    from matplotlib.ticker import FuncFormatter

    lowest = min((float(np.nanmin(curve.values)) for curve in curves), default=0.0)
    axis.set_ylim(max(0.0, 10 * np.floor(lowest / 10)), 100)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))


def label_ends(axis: Any, curves: Sequence[Curve], form: str = ".1f") -> None:
    """Names and last values at the ends of the curves, pushed apart where they would meet."""
    low, high = axis.get_ylim()
    ends = [(float(curve.values[-1]) - low) / (high - low) for curve in curves]
    for curve, end, place in zip(curves, ends, apart(ends, _LABEL, most=1.0), strict=True):
        moved = abs(end - place) >= _LABEL / 4
        axis.annotate(
            f"{curve.label}  {curve.values[-1]:{form}}",
            xy=(1.0, end),
            xytext=(1.03, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=curve.colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={**_LEADER, "color": curve.colour} if moved else None,
        )


def apart(places: Sequence[float], least: float, *, most: float) -> list[float]:
    """Places up to ``most``, near to those given, ``least`` apart or more, and in their order.

    Groups that would overlap are spread around their mean, as in isotonic regression.
    """
    order = sorted(range(len(places)), key=lambda at: places[at])
    groups: list[tuple[float, int]] = []
    for rank, at in enumerate(order):
        # Without the room that those before it take, the places need only rise.
        groups.append((places[at] - rank * least, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, n), (b, m) = groups[-2:]
            groups[-2:] = [((n * a + m * b) / (n + m), n + m)]
    level = [mean for mean, count in groups for _ in range(count)]
    found = [0.0] * len(places)
    for rank, at in enumerate(order):
        above = len(places) - 1 - rank
        found[at] = min(level[rank] + rank * least, most - above * least)
    return found
