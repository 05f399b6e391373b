"""The convergence plot: what is certified as markers, what is estimated as a thin line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from weft.report.history import certificates

# Okabe and Ito's palette, which stays distinct for colour-blind readers.
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#A8A8A8"


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
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "no convergence plot: matplotlib is not installed; pip install 'weft[report]'"
    figure = Figure(figsize=(10, 6.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    certified = certificates(frame)
    for column, x in enumerate(("iteration", "round_trips")):
        _draw_loss(axes[0][column], frame, certified, x)
        _draw_gap(axes[1][column], frame, certified, x, target)
    axes[0][0].set_ylabel("loss, and its lower bound")
    axes[1][0].set_ylabel("relative gap (P − D) / P")
    axes[1][0].set_xlabel("iteration")
    axes[1][1].set_xlabel("round trips")
    for axis in (axes[0][0], axes[1][0]):
        axis.legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path)
    return None


def _places(certified: pd.DataFrame, x: str) -> Any:
    """A certificate stands at the iteration it is of, and at the round trips it was known."""
    return certified["certified_at" if x == "iteration" else x].astype(float)


def _draw_loss(axis: Any, frame: pd.DataFrame, certified: pd.DataFrame, x: str) -> None:
    _draw_estimate(axis, frame, x, "loss_estimate")
    places = _places(certified, x)
    style = _marker_style(len(certified))
    axis.plot(places, certified["primal"], "o", color=_BLUE, label="certified loss P(w)", **style)
    axis.plot(places, certified["dual"], "v", color=_ORANGE, label="certified dual D(α)", **style)
    # The first iterations may be far off; the plot is about where the run ends up.
    if len(certified) > 4:
        known = certified.iloc[len(certified) // 20 :]
        low, high = known["dual"].min(), known["primal"].max()
        axis.set_ylim(low - 0.08 * (high - low), high + 0.15 * (high - low))
    _polish(axis)


def _draw_gap(
    axis: Any, frame: pd.DataFrame, certified: pd.DataFrame, x: str, target: float | None
) -> None:
    _draw_estimate(axis, frame[frame["gap_estimate"] > 0], x, "gap_estimate")
    gap = certified["gap"].where(certified["gap"] > 0)
    style = _marker_style(len(certified))
    axis.plot(_places(certified, x), gap, "o", color=_BLUE, label="certified gap", **style)
    if target is not None:
        axis.axhline(target, color=_ORANGE, linewidth=1.2, linestyle=(0, (4, 3)))
        axis.annotate(
            f"asked for: {target:g}",
            xy=(0.01, target),
            xycoords=("axes fraction", "data"),
            xytext=(0, 4),
            textcoords="offset points",
            color=_ORANGE,
            fontsize=9,
        )
    axis.set_yscale("log")
    if gap.notna().any():
        # Estimates swing around zero; they must not stretch the scale of what is certified.
        lowest = min(gap.min(), target or gap.min())
        axis.set_ylim(lowest / 2, 1.5 * max(gap.max(), lowest * 10))
    _polish(axis)


def _draw_estimate(axis: Any, frame: pd.DataFrame, x: str, name: str) -> None:
    known = frame[frame[name].notna()]
    if len(known):
        axis.plot(known[x].astype(float), known[name], color=_GREY, linewidth=0.7, label="estimate")


def _marker_style(count: int) -> dict[str, Any]:
    """Markers that shrink as there are more of them."""
    return {"markersize": 5 if count <= 60 else 3, "markeredgewidth": 0}


def _polish(axis: Any) -> None:
    axis.grid(color="#E5E5E5", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.margins(x=0.02)
