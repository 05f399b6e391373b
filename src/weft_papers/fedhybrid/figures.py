"""The FedHybrid paper's figures: methods against each other, and more and more Newton parties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.report.plot_style import BLUE, GREY, INK, ORANGE, new_figure, not_drawn, polish
from weft_papers.fedhybrid.methods_comparison import Outcome

#: Distances below this are not drawn.
_FLOOR = 1e-8
#: Nor are those above it: steps that are long at first need not stretch the scale.
_CEILING = 1e4
#: The figures end here, however long the slowest runs take.
_MOST_ITERATIONS = 200


def draw_figures(outcomes: Sequence[Outcome], folder: Path) -> list[str]:
    """Figures 1 to 4, as far as their set-ups were run; of any other, as Figures 1 and 2.

    Returns
    -------
    list of str
        Sentences about what could not be drawn.
    """
    run = dict.fromkeys(outcome.setup for outcome in outcomes)
    strange = tuple(setup for setup in run if setup not in _PANELS)
    remarks = set()
    for number, (draw, setups) in _FIGURES.items():
        shown = [setup for setup in setups if setup in run] or list(strange if number < 3 else ())
        if not shown:
            continue
        figure = new_figure(5.6 * len(shown) + 1.2, 4.8)
        if figure is None:
            remarks.add(not_drawn("FedHybrid"))
            continue
        for axis, setup in zip(
            figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
        ):
            draw(axis, [outcome for outcome in outcomes if outcome.setup == setup])
            axis.set_title(_PANELS.get(setup, setup), fontsize=11)
        figure.suptitle(f"Figure {number}: {_TITLES[number % 2]}", fontsize=13, fontweight="bold")
        figure.savefig(folder / f"figure-{number}.png", dpi=80)
    return sorted(remarks)


def _draw_methods(axis: Any, outcomes: Sequence[Outcome]) -> None:
    """FedAvg, DiSCO, FedH-N and some FedH-K."""
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
    _draw(axis, drawn, looks)


def _draw_ladder(axis: Any, outcomes: Sequence[Outcome]) -> None:
    """FedHybrid alone, with more and more Newton-type parties."""
    drawn = _ladder(outcomes)
    looks = [{"color": shade, "linewidth": 1.8} for shade in _shades(len(drawn))]
    _draw(axis, drawn, looks)


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


def _draw(axis: Any, outcomes: Sequence[Outcome], looks: Sequence[dict[str, Any]]) -> None:
    longest = max(len(outcome.run.distances) for outcome in outcomes)
    last = min(longest, _MOST_ITERATIONS)
    for outcome, look in zip(outcomes, looks, strict=True):
        shown = np.clip(outcome.run.distances[: last + 1], _FLOOR, None)
        axis.plot(np.arange(len(shown)), shown, label=outcome.label, **look)
        if shown[-1] <= _FLOOR:
            end = {"color": look["color"], "marker": "v", "markeredgewidth": 0, "markersize": 7}
            axis.plot([len(shown) - 1], [_FLOOR], clip_on=False, zorder=4, **end)
    known = np.concatenate([outcome.run.distances[: last + 1] for outcome in outcomes])
    top = float(known[np.isfinite(known)].max())
    axis.set_yscale("log")
    axis.set_ylim(_FLOOR, min(2 * top, _CEILING))
    axis.set_xlim(0, last)
    axis.set_xlabel("iteration (one round trip each)")
    axis.set_ylabel("(P − P*) / P*")
    polish(axis)
    axis.legend(frameon=False, fontsize=9, loc="upper right")


#: What the paper's figures show, of which set-ups.
_FIGURES: dict[int, tuple[Callable[[Any, Sequence[Outcome]], None], tuple[str, ...]]] = {
    1: (_draw_methods, ("boston", "mushroom")),
    2: (_draw_ladder, ("boston", "synthetic_logistic")),
    3: (_draw_methods, ("synthetic_squares", "synthetic_logistic")),
    4: (_draw_ladder, ("synthetic_squares", "mushroom")),
}
_TITLES = ("FedHybrid by the number of Newton-type parties", "FedAvg, DiSCO and FedHybrid")
#: The paper's set-ups, by their numbers.
_PANELS = {
    "synthetic_squares": "(1) least squares, synthetic",
    "boston": "(2) least squares, Boston",
    "synthetic_logistic": "(3) logistic, synthetic",
    "mushroom": "(4) logistic, mushroom",
}
