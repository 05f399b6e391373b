"""What a search has seen, and how the best trials come by their grades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.report.plot_style import BLUE, GREY, INK, ORANGE, new_figure, not_drawn, polish
from weft_evaluation.tuning.convergence_and_cost_metrics import NAMES
from weft_evaluation.tuning.random_search import Trial
from weft_evaluation.tuning.trial_choice import Choice

#: Trials whose grades are taken apart.
_BEST = 6
#: … and rows for them at least.
_FEWEST = 4
_LIGHT = "#D0D0D0"
#: From which ratio on losses need a logarithmic scale.
_WIDE = 30.0
_HEADS = {
    "seconds_near": "seconds\nat 0 s",
    "seconds_far": "seconds\n0.2575 s",
    "seconds_satellite": "seconds\n0.8 s",
    "loss": "loss",
    "score": "",
    "volatility": "vola-\ntility",
    "progress": "iterations\nto 90%",
}


def plot_tuning(choice: Choice, paths: Sequence[Path], title: str, score: str) -> str | None:
    """Draw loss against seconds of all trials, and the grades of the best.

    Parameters
    ----------
    paths
        Files to write, the same picture in several formats.
    score
        What the score is called.

    Returns
    -------
    str or None
        None when the files were written, else a sentence on how to get them.
    """
    figure = new_figure(13, 6)
    if figure is None:
        return not_drawn("tuning")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    _draw_trials(left, choice)
    _draw_grades(right, choice, score)
    name = choice.found.algorithm
    figure.suptitle(f"{name} tuned on {title}", fontsize=12, fontweight="bold")
    # Where everything stands is known when it has been laid out.
    figure.draw_without_rendering()
    _label(left, choice)
    for path in paths:
        figure.savefig(path)
    return None


# ── loss against seconds ──────────────────────────────────────────────────────────────────────


def _draw_trials(axis: Any, choice: Choice) -> None:
    found = choice.found
    kinds: dict[str, list[Trial]] = {}
    for trial in found.trials:
        kinds.setdefault(choice.standing(trial), []).append(trial)
    sound = [t.metrics.loss for t in found.trials if t.metrics is not None]
    if max(sound) > _WIDE * min(sound) > 0:
        axis.set_yscale("log")
    axis.set_xscale("log")
    for scale in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        scale(_plain_number)
    polish(axis)
    axis.margins(x=0.08, y=0.1)
    looks: dict[str, dict[str, Any]] = {
        "idle": {"marker": "o", "facecolor": "white", "edgecolor": GREY, "s": 26, "zorder": 2},
        "dominated": {"marker": "o", "facecolor": _LIGHT, "edgecolor": GREY, "s": 30, "zorder": 2},
        "front": {"marker": "o", "facecolor": BLUE, "edgecolor": "white", "s": 58, "zorder": 4},
        "chosen": {"marker": "o", "facecolor": BLUE, "edgecolor": "white", "s": 58, "zorder": 5},
    }
    share = f"{choice.rules.least_progress:.0%}"
    words = {
        "front": "on the Pareto front",
        "dominated": "another is nowhere worse",
        "idle": f"hardly moved: under {share} of the best's way down",
    }
    for kind, look in looks.items():
        some = kinds.get(kind, [])
        if some:
            label = f"{words[kind]} ({len(some) + (kind == 'front')})" if kind in words else None
            axis.scatter(*_places(some), label=label, linewidth=0.8, **look)
    both = " or refused" if "refused" in kinds else ""
    _cross(axis, choice.failed, f"diverged{both}")
    _ring(axis, choice, alone="front" not in kinds)
    axis.set_xlabel("milliseconds of an iteration: slowest party's computing, without latency")
    axis.set_ylabel(f"loss, mean of the last five; it begins at {found.start:.3g}")
    axis.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncol=2,
        frameon=False,
        fontsize=9,
        handletextpad=0.4,
        columnspacing=1.5,
    )


def _places(trials: Sequence[Trial]) -> tuple[list[float], list[float]]:
    """Milliseconds of an iteration, and losses."""
    known = [(t.metrics.seconds_near, t.metrics.loss) for t in trials if t.metrics is not None]
    return [1e3 * seconds for seconds, _ in known], [loss for _, loss in known]


def _cross(axis: Any, trials: Sequence[Trial], word: str) -> None:
    """Trials without a loss, at the upper margin, where their seconds are.

    Those that ended before any could be measured stand side by side at its right end.
    """
    if not trials:
        return
    low, high = np.log(axis.get_xlim())
    known = [1e3 * trial.seconds for trial in trials if math.isfinite(trial.seconds)]
    places = ((np.log(np.maximum(known, 1e-9)) - low) / (high - low)).clip(0.0, 1.0).tolist()
    unknown = len(trials) - len(known)
    places += (1.0 - min(0.02, 1.0 / unknown) * np.arange(unknown)).tolist() if unknown else []
    axis.plot(
        places,
        [1.0] * len(places),
        "x",
        color=ORANGE,
        transform=axis.transAxes,
        clip_on=False,
        markersize=7,
        markeredgewidth=1.6,
        zorder=6,
        label=f"{word} ({len(trials)})",
    )


def _ring(axis: Any, choice: Choice, *, alone: bool) -> None:
    """A ring around the chosen trial."""
    (seconds,), (loss,) = _places([choice.chosen])
    label = "on the Pareto front (1), chosen" if alone else None
    axis.scatter(
        [seconds],
        [loss],
        s=240,
        facecolor="none",
        edgecolor=ORANGE,
        linewidth=2.4,
        zorder=6,
        label=label,
    )


def _label(axis: Any, choice: Choice) -> None:
    """The options of the chosen trial beside it, on the side that has room."""
    (seconds,), (loss,) = _places([choice.chosen])
    text = f"chosen: trial {choice.chosen.number}\n{options_text(choice.chosen, 'line')}"
    (x, y), across, up = _room(axis, choice, text)
    axis.annotate(
        text,
        xy=(seconds, loss),
        xytext=(x, y),
        textcoords="offset points",
        ha=across,
        multialignment="left",
        va=up,
        fontsize=9,
        color=INK,
        zorder=7,
        bbox={"facecolor": "white", "edgecolor": ORANGE, "boxstyle": "round,pad=0.35"},
        arrowprops={"arrowstyle": "-", "color": ORANGE, "shrinkB": 8},
    )


def _room(axis: Any, choice: Choice, text: str) -> tuple[tuple[float, float], str, str]:
    """Where beside the chosen trial a text hides the fewest trials, and stays inside."""
    lines = text.splitlines()
    # A letter of nine points is about so wide, a line so high, with some air around them.
    size = np.array([5.4 * max(map(len, lines)) + 12, 12.5 * len(lines) + 12])
    points = 72 / axis.figure.dpi
    sound = [trial for trial in choice.found.trials if trial.metrics is not None]
    corners = axis.get_window_extent().get_points() * points
    places = axis.transData.transform(np.column_stack(_places(sound))) * points
    (own,) = axis.transData.transform(np.column_stack(_places([choice.chosen]))) * points
    found: list[tuple[int, int, int, tuple[float, float], str, str]] = []
    for across, way in (("left", 1), ("right", -1), ("center", 0)):
        for up, rise in (("bottom", 1), ("top", -1), ("center", 0)):
            if way == rise == 0:
                continue
            offset = np.array([way * 18.0, rise * 26.0])
            low = own + offset - size * [(1 - way) / 2, (1 - rise) / 2]
            hidden = ((places > low) & (places < low + size)).all(axis=1).sum()
            outside = (low < corners[0]).sum() + (low + size > corners[1]).sum()
            place = (float(offset[0]), float(offset[1]))
            found.append((int(outside), int(hidden), len(found), place, across, up))
    *_, best, across, up = min(found)
    return best, across, up


def options_text(trial: Trial, how: str = "row") -> str:
    """The options that were searched, in a row or a line each."""
    said = [f"{name} = {short(value)}" for name, value in trial.told.items()]
    return ("\n" if how == "line" else ", ").join(said)


def short(value: Any, digits: int = 3) -> str:
    """A value in a few digits."""
    if value is None:
        return "auto"
    if not isinstance(value, float):
        return str(value)
    usual = f"{value:.{digits}g}"
    return usual if 1e-2 <= abs(value) < 1e3 else f"{value:.{digits - 1}e}".replace("e-0", "e-")


def _plain_number(value: float, place: int) -> str:
    """A tick of a logarithmic scale, where there are few enough to read."""
    return f"{value:g}" if value > 0 and f"{value:e}"[0] in "1235" else ""


# ── grades ────────────────────────────────────────────────────────────────────────────────────


def _draw_grades(axis: Any, choice: Choice, score: str) -> None:
    """A table of coefficients, the darker the better, whose mean is the grade."""
    from matplotlib.colors import LinearSegmentedColormap

    graded, best = choice.graded, choice.front[:_BEST]
    coefficients = graded.coefficients[: len(best)]
    rows, columns = coefficients.shape
    worst = choice.rules.distinguishing / (1 + choice.rules.distinguishing)
    shades = LinearSegmentedColormap.from_list("blues", ["#FFFFFF", "#9CC9E3", BLUE])
    axis.imshow(
        coefficients, cmap=shades, vmin=worst - 0.1, vmax=1.0, aspect="auto", interpolation="none"
    )
    for row, column in np.ndindex(rows, columns):
        value = coefficients[row, column]
        dark = (value - worst) / (1 - worst) > 0.7
        colour = "white" if dark else INK
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
    for row, grade in enumerate(graded.grades[:rows]):
        axis.text(
            columns - 0.35,
            row,
            f"{grade:.3f}",
            va="center",
            fontsize=10,
            fontweight="bold",
            color=ORANGE if row == 0 else INK,
        )
    heads = [_HEADS[name] or score for name in NAMES]
    weighty = choice.rules.weights or {}
    heads = [
        f"{h}\n(× {weighty[n]:g})" if n in weighty else h for h, n in zip(heads, NAMES, strict=True)
    ]
    axis.set_xticks(range(columns), heads, fontsize=8.5)
    axis.xaxis.tick_top()
    axis.text(columns - 0.35, -0.62, "grade", fontsize=9, fontweight="bold", color=INK)
    labels = [f"trial {trial.number}\n{options_text(trial, 'line')}" for trial in best]
    axis.set_yticks(range(rows), labels, fontsize=7.5)
    axis.tick_params(length=0)
    axis.set_xticks(np.arange(1, columns) - 0.5, minor=True)
    axis.set_yticks(np.arange(1, rows) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="minor", length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    # A single one must not fill the whole panel.
    axis.set_ylim(max(rows, _FEWEST) - 0.5, -0.5)
    xi = choice.rules.distinguishing
    axis.set_xlabel(
        "how the best come by their grades: coefficients of grey relational analysis,\n"
        f"(Δmin + ξΔmax)/(Δ + ξΔmax) with ξ = {xi:g}; 1 is the best of the front in a metric",
        fontsize=9,
        labelpad=10,
    )
