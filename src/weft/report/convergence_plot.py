"""The convergence plot: what is certified as markers, what is estimated as a thin line.

A run over several λ begins anew with each of them: every λ gets a colour of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from weft.report.history_table import certificates
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


@dataclass(frozen=True)
class _Curve:
    """The certificates of one λ and how they look; ``lam`` is None where a run has one λ only."""

    certified: pd.DataFrame
    lam: float | None
    primal: str
    dual: str

    def places(self, x: str) -> Any:
        """A certificate stands where it came in: the plot says what was proved when."""
        return self.certified[x].astype(float)

    @property
    def style(self) -> dict[str, Any]:
        """Markers that shrink as there are more of them; those of a path are joined."""
        size = 5 if len(self.certified) <= 60 else 3
        return {
            "markersize": size,
            "markeredgewidth": 0,
            "linewidth": 0 if self.lam is None else 1,
        }


def plot_convergence(
    frame: pd.DataFrame, path: Path, *, title: str, target: float | None = None
) -> str | None:
    """Draw loss and gap against iterations and against round trips.

    Parameters
    ----------
    frame
        A history, as `history_frame` gives it.
    path
        The PNG file to write.
    title
        Headline of the figure.
    target
        The certified gap that was asked for, drawn as a line.

    Returns
    -------
    str or None
        None when the file was written, else a sentence on how to get it.
    """
    figure = new_figure(10, 6.2)
    if figure is None:
        return not_drawn("convergence")
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    curves = _curves(certificates(frame))
    for column, x in enumerate(("iteration", "round_trips")):
        _draw_loss(axes[0][column], frame, curves, x)
        _draw_gap(axes[1][column], frame, curves, x, target)
    axes[0][0].set_ylabel("loss, and its lower bound")
    axes[1][0].set_ylabel("relative gap (P − D) / P")
    axes[1][0].set_xlabel("iteration")
    axes[1][1].set_xlabel("round trips")
    axes[0][0].legend(frameon=False, fontsize=9)
    axes[1][0].legend(frameon=False, fontsize=9, ncols=1 + (len(curves) > 4))
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path)
    return None


def _curves(certified: pd.DataFrame) -> list[_Curve]:
    """The certificates of a run, those of each λ for themselves, the largest first."""
    lambdas = sorted(certified["lam"].dropna().unique(), reverse=True)
    if len(lambdas) < 2:
        return [_Curve(certified, None, BLUE, ORANGE)]
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    # Without the palest end of the map, which is hard to see on white.
    colours = [to_hex(c) for c in colormaps["viridis"](np.linspace(0.85, 0.0, len(lambdas)))]
    return [
        _Curve(certified[certified["lam"] == lam], float(lam), colour, colour)
        for lam, colour in zip(lambdas, colours, strict=True)
    ]


def _draw_loss(axis: Any, frame: pd.DataFrame, curves: list[_Curve], x: str) -> None:
    _draw_estimate(axis, frame, x, "loss_estimate")
    for curve in curves:
        places, style = curve.places(x), curve.style
        faint = {} if curve.lam is None else {"alpha": 0.5}
        axis.plot(places, curve.certified["primal"], "o-", color=curve.primal, **style)
        axis.plot(places, curve.certified["dual"], "v-", color=curve.dual, **style | faint)
    one = len(curves) == 1
    axis.plot([], [], "o", color=BLUE if one else INK, label="certified loss P(w)")
    axis.plot([], [], "v", color=ORANGE if one else INK, label="certified dual D(α)")
    _limit_losses(axis, curves)
    polish(axis)


def _limit_losses(axis: Any, curves: list[_Curve]) -> None:
    """The first iterations may be far off; the plot is about where a run ends up."""
    part = 20 if len(curves) == 1 else 3
    ends = [c.certified.iloc[len(c.certified) // part :] for c in curves if len(c.certified)]
    if sum(len(curve.certified) for curve in curves) > 4:
        duals = np.concatenate([end["dual"].to_numpy(float) for end in ends])
        primals = np.concatenate([end["primal"].to_numpy(float) for end in ends])
        low, high = duals[np.isfinite(duals)].min(initial=np.inf), primals.max()
        if np.isfinite(low) and low < high:
            axis.set_ylim(low - 0.08 * (high - low), high + 0.15 * (high - low))


def _draw_gap(
    axis: Any, frame: pd.DataFrame, curves: list[_Curve], x: str, target: float | None
) -> None:
    _draw_estimate(axis, frame[frame["gap_estimate"] > 0], x, "gap_estimate")
    gaps = pd.concat([curve.certified["gap"].astype(float) for curve in curves])
    floor = gap_floor(gaps, target)
    for curve in curves:
        label = "certified gap" if curve.lam is None else f"λ = {curve.lam:g}"
        look = {"color": curve.primal, "marker": "o", "label": label, **curve.style}
        draw_gaps(axis, curve.places(x), curve.certified["gap"].astype(float), floor, look)
    if target is not None:
        target_line(axis, target)
    axis.set_yscale("log")
    known = gaps[np.isfinite(gaps)]
    if len(known):
        # Estimates swing around zero; they must not stretch the scale of what is certified.
        axis.set_ylim(floor / 2, 1.5 * max(known.max(), floor * 10))
    polish(axis)


def _draw_estimate(axis: Any, frame: pd.DataFrame, x: str, name: str) -> None:
    known = frame[frame[name].notna()]
    if len(known):
        axis.plot(known[x].astype(float), known[name], color=GREY, linewidth=0.7, label="estimate")
