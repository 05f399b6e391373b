"""How far each algorithm is from the optimum, over round trips and over seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.report.plot_style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    SKY,
    new_figure,
    not_drawn,
    polish,
)
from weft.solvers.algorithm_choice import ALGORITHMS

# Okabe and Ito's palette, the yellow darkened for white paper; further lines repeat it, dashed.
_COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, "#E69F00", "#7A6A00", INK)
_STYLES = ("-", (0, (5, 2)), (0, (1, 1.5)))
#: One more than colours, so that no two lines share both.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")
#: Distances below this are drawn at it: judges and fixed point agree no better.
_FLOOR = 1e-8
#: Distances above this are cut off: what is a thousand times off need not stretch the scale.
_CEILING = 1e3


@dataclass(frozen=True)
class Curve:
    """One line: distances to P* at some costs, and the last one; baselines have that alone."""

    name: str
    kind: str
    round_trips: Sequence[int]
    seconds: Sequence[float]
    distances: Sequence[float]
    end: float | None


def plot_comparison(
    curves: Sequence[Curve], path: Path, *, title: str, latency: float
) -> str | None:
    """Draw (P − P*)/P* of all algorithms.

    Parameters
    ----------
    curves
        The nearest to the optimum first.
    latency
        Seconds of a round trip that the seconds are modelled with.

    Returns
    -------
    str or None
        None when the file was written, else a sentence on how to get it.
    """
    figure = new_figure(12, 6)
    if figure is None:
        return not_drawn("comparison")
    runs = [curve for curve in curves if curve.distances]
    left, right = figure.subplots(1, 2, sharey=True)
    low, high = _limits(curves)
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_ylim(low / 1.8, high * 1.8)
    for curve in runs:
        look = _look(curve)
        if curve.kind != "pooled":
            _draw(left, curve.round_trips, curve, look, low)
        _draw(right, curve.seconds, curve, look, low)
    for axis in (left, right):
        _draw_baselines(axis, [c for c in curves if not c.distances], low)
        polish(axis)
        # A little left of zero: what needs no network stands there.
        axis.set_xlim(left=-0.015 * axis.get_xlim()[1])
    left.set_ylabel("relative distance to the optimum, (P − P*) / P*")
    left.set_xlabel("round trips, matching and scaling included")
    right.set_xlabel(f"modelled seconds: slowest party's computing + {latency:g} s a round trip")
    _label(right, runs, low, high)
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path)
    return None


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    known = [d for c in curves for d in (*c.distances, *([] if c.end is None else [c.end]))]
    known = [d for d in known if d > 0 and math.isfinite(d)]
    low = max(min(known, default=1e-3), _FLOOR)
    high = min(max(known, default=1.0), _CEILING)
    return low, max(high, 10 * low)


def _look(curve: Curve) -> dict[str, Any]:
    """Colour, dashes and marker, always the same for a name; what is recommended is thicker."""
    number = list(ALGORITHMS).index(curve.name) if curve.name in ALGORITHMS else 0
    ours = curve.name in ALGORITHMS and ALGORITHMS[curve.name].ours
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _STYLES[number // len(_COLOURS) % len(_STYLES)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linewidth": 2.4 if ours else 1.3,
        "markersize": 5 if ours else 4,
        "markeredgewidth": 0,
        "zorder": 3 if ours else 2,
    }


def _draw(
    axis: Any, places: Sequence[float], curve: Curve, look: dict[str, Any], low: float
) -> None:
    """A line; what is at the optimum, or below the judge, points down from the floor."""
    shown = [max(d, low) if math.isfinite(d) else math.nan for d in curve.distances]
    every = max(1, len(shown) // 12)
    axis.plot(places, shown, markevery=every, **look)
    below = curve.distances[-1] < low
    end = {"color": look["color"], "markersize": 8, "markeredgewidth": 0, "zorder": 4}
    marker = "v" if below else look["marker"]
    axis.plot(places[-1:], shown[-1:], marker=marker, linestyle="none", **end)


def _draw_baselines(axis: Any, baselines: Sequence[Curve], low: float) -> None:
    """Lines across; the name of the lowest stands below it, those of others above."""
    known = [(curve.end, curve) for curve in baselines if curve.end is not None]
    ends = sorted((end, curve.name) for end, curve in known if end >= low)
    for number, (end, name) in enumerate(ends):
        axis.axhline(end, color=GREY, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
        axis.annotate(
            name,
            xy=(0.01, end),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3 if number == 0 and len(ends) > 1 else 3),
            textcoords="offset points",
            va="top" if number == 0 and len(ends) > 1 else "bottom",
            fontsize=8,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )


def _label(axis: Any, runs: Sequence[Curve], low: float, high: float) -> None:
    """A key beside the panel, each name at the height at which its line ends, moved apart."""
    span = math.log(high * 1.8) - math.log(low / 1.8)

    def height_of(curve: Curve) -> float:
        at = min(max(curve.distances[-1], low), high)
        return (math.log(at) - math.log(low / 1.8)) / span

    rising = sorted(runs, key=height_of)
    places = _apart([height_of(curve) for curve in rising])
    for place, curve in zip(places, rising, strict=True):
        look = _look(curve)
        # A short piece of the line itself: colours alone are not enough.
        axis.plot(
            [1.02, 1.05, 1.08],
            [place, place, place],
            transform=axis.transAxes,
            clip_on=False,
            color=look["color"],
            linestyle=look["linestyle"],
            linewidth=look["linewidth"],
            marker=look["marker"],
            markevery=[1],
            markersize=look["markersize"] + 1,
            markeredgewidth=0,
        )
        name = f"{curve.name} (pooled)" if curve.kind == "pooled" else curve.name
        axis.annotate(
            name,
            xy=(1.095, place),
            xycoords="axes fraction",
            va="center",
            fontsize=9,
            fontweight="bold" if look["linewidth"] > 2 else "normal",
            color=INK,
            annotation_clip=False,
        )


def _apart(heights: Sequence[float], least: float = 0.042) -> list[float]:
    """Rising heights between 0 and 1, moved as little as keeps them a line of text apart."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + least) if placed else height)
    over = placed[-1] - 1.0 if placed else 0.0
    if over > 0:
        # Push down from the top.
        top = 1.0
        for place in range(len(placed) - 1, -1, -1):
            placed[place] = min(placed[place], top)
            top = placed[place] - least
    return placed
