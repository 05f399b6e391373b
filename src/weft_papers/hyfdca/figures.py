"""The paper's Figures 3 to 8, from our runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, TypeGuard

import numpy as np

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
from weft_papers.hyfdca.analysis import (
    MEASURES,
    MODES,
    Findings,
    Line,
    Measure,
    Mode,
    relative_iterations,
    relative_times,
)
from weft_papers.hyfdca.cases import TITLES, Method
from weft_papers.hyfdca.equal_time_rules import RULES
from weft_papers.hyfdca.paper import LATENCY, data_sets

#: The paper's three methods have full lines.
_LOOKS: dict[Method, dict[str, Any]] = {
    "hyfdca": {"color": BLUE, "linewidth": 1.8, "zorder": 3},
    "unit": {"color": SKY, "linewidth": 1.4, "linestyle": (0, (5, 2)), "zorder": 3},
    "safe": {"color": GREEN, "linewidth": 1.8, "linestyle": (0, (5, 2)), "zorder": 4},
    "auto": {"color": INK, "linewidth": 1.4, "linestyle": (0, (1, 1)), "zorder": 5},
    "fedavg": {"color": ORANGE, "linewidth": 1.8, "zorder": 2},
    "hyfem": {"color": PINK, "linewidth": 1.8, "zorder": 2},
}
#: Fractions that take part.
_SHADES = {0.1: SKY, 0.5: BLUE, 0.9: INK}
_PARTS = {"computing": BLUE, "encryption": ORANGE, "coordinator": GREEN, "latency": GREY}
_NAMES: dict[Measure, str] = {
    "loss": "relative loss P_R",
    "accuracy": "validation accuracy",
}
#: Of the figures that compare.
_NUMBERS: dict[Mode, str] = {
    "iterations": "3",
    "paper": "5",
    "computing": "5-our-computing",
    "time": "5-our-rule",
}
#: Relative losses below this are drawn at it: P* itself is not known better.
_FLOOR = 1e-4


def draw_all(findings: Findings, folder: Path) -> list[str]:
    """All figures that there are runs for, as PNG; each says how far its runs go.

    Returns
    -------
    list of str
        Sentences about what could not be drawn.
    """
    remarks: list[str | None] = []
    for mode in MODES:
        for name, measure in comparison_figures(findings, mode):
            remarks.append(plot_comparison(findings, mode, measure, folder / f"{name}.png"))
    remarks.append(plot_costs(findings, folder / "figure-4.png"))
    for number, data in zip((6, 7, 8), ("mnist", "newsgroups", "covtype"), strict=True):
        if data in findings.plan.data:
            remarks.append(plot_effects(findings, data, folder / f"figure-{number}.png"))
    return sorted({remark for remark in remarks if remark})


def comparison_figures(findings: Findings, mode: Mode) -> list[tuple[str, Measure]]:
    """Figures 3 and 5, by name, as far as there is anything to draw."""
    cases = [case for case in findings.plan.cases() if findings.plan.compared(case)]
    if not any(_to_the_end(findings.line(case, mode), mode) for case in cases):
        return []
    return [(f"figure-{_NUMBERS[mode]}-{measure}", measure) for measure in MEASURES]


def _to_the_end(line: Line | None, mode: Mode) -> TypeGuard[Line]:
    """Whether a run can be drawn: of equal time (14) speaks of whole times only."""
    if line is None or mode == "iterations":
        return line is not None
    return line.end is not None or bool(line.diverged)


def plot_comparison(findings: Findings, mode: Mode, measure: Measure, path: Path) -> str | None:
    """Figures 3 and 5: all methods, a row for each data set and a column for each setting."""
    data = findings.plan.data
    figure = new_figure(11.5, 2.9 * len(data) + 1.1)
    if figure is None:
        return not_drawn("comparison")
    axes = figure.subplots(len(data), 3, squeeze=False, sharex=True)
    for row, name in zip(axes, data, strict=True):
        paper = data_sets()[name]
        for axis, setting in zip(row, paper.compared, strict=True):
            number = paper.settings.index(setting)
            cases = [findings.case(name, number, method) for method in TITLES]
            lines = [findings.line(case, mode) for case in cases]
            found = [line for line in lines if _to_the_end(line, mode)]
            _draw_lines(axis, found, _places(findings, found, mode), measure)
            axis.set_title(f"{paper.title}: {setting.label}", fontsize=10)
        row[0].set_ylabel(_NAMES[measure])
    counted = mode == "iterations"
    under = "share of the iterations, t_R (15)" if counted else "share of the time, T_R (14)"
    for axis in axes[-1]:
        axis.set_xlabel(under)
    _legend(figure, axes)
    equal, kind = "equal iterations", findings.plan.length("iterations")
    if mode != "iterations":
        equal = f"equal time by {RULES[mode]}"
        kind = findings.plan.length("seconds")
    number = 3 if counted else 5
    _finish(figure, path, f"Figure {number}: {_NAMES[measure]}, {equal}", f"length: {kind}")
    return None


def _places(findings: Findings, lines: Sequence[Line], mode: Mode) -> list[Any]:
    """Where the points of lines stand."""
    if mode != "iterations":
        return list(relative_times(lines))
    target = findings.plan.target
    return [
        relative_iterations(line.iterations, target(line.case).iterations, line.window)
        for line in lines
    ]


def _draw_lines(axis: Any, lines: Sequence[Line], places: Sequence[Any], measure: Measure) -> None:
    for line, x in zip(lines, places, strict=True):
        look = _LOOKS[line.case.method]
        values = line.relative_loss if measure == "loss" else line.accuracy
        if measure == "loss":
            values = np.maximum(values, _FLOOR)
        known = np.isfinite(values)
        x, values = np.asarray(x)[known], values[known]
        axis.plot(x, values, label=TITLES[line.case.method], **look)
        if line.case.method == "auto" and len(x):
            axis.plot(x[-1:], values[-1:], "o", color=look["color"], markersize=4, zorder=6)
        if line.diverged and len(x):
            mark = {"marker": "x", "color": look["color"], "markersize": 9, "markeredgewidth": 2}
            axis.plot(x[-1:], values[-1:], clip_on=False, zorder=7, **mark)
    if measure == "loss":
        axis.set_yscale("log")
    polish(axis)


def plot_costs(findings: Findings, path: Path) -> str | None:
    """Figure 4: what an iteration of the three methods is made of."""
    data = findings.plan.data
    figure = new_figure(11.5, 2.9 * len(data) + 1.1)
    if figure is None:
        return not_drawn("costs")
    axes = figure.subplots(len(data), 3, squeeze=False)
    methods: tuple[Method, ...] = ("hyfdca", "safe", "fedavg", "hyfem")
    for row, name in zip(axes, data, strict=True):
        paper = data_sets()[name]
        for axis, setting in zip(row, paper.compared, strict=True):
            number = paper.settings.index(setting)
            _draw_bars(axis, [findings.case(name, number, method) for method in methods], findings)
            axis.set_title(f"{paper.title}: {setting.label}", fontsize=10)
        row[0].set_ylabel("seconds an iteration")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    title = f"Figure 4: what an iteration takes, at {LATENCY:g} s a round trip"
    _finish(figure, path, title, f"means over runs of {findings.plan.length('iterations')}")
    return None


def _draw_bars(axis: Any, cases: Sequence[Any], findings: Findings) -> None:
    known = [(case, costs) for case in cases if (costs := findings.costs(case))]
    names = [TITLES[case.method].replace("HyFDCA safe", "HyFDCA\nsafe") for case, _ in known]
    below = np.zeros(len(known))
    for part, colour in _PARTS.items():
        values = {
            "computing": [costs.compute for _, costs in known],
            "encryption": [costs.encryption for _, costs in known],
            "coordinator": [costs.coordinator for _, costs in known],
            "latency": [LATENCY * costs.round_trips for _, costs in known],
        }[part]
        axis.bar(names, values, bottom=below, color=colour, label=part, width=0.65)
        below = below + np.array(values)
    polish(axis)
    axis.tick_params(axis="x", labelsize=8)


def plot_effects(findings: Findings, data: str, path: Path) -> str | None:
    """Figures 6 to 8: HyFDCA by the number of parties and the fraction that takes part."""
    figure = new_figure(11.5, 6.6)
    if figure is None:
        return not_drawn("effects")
    paper = data_sets()[data]
    axes = figure.subplots(2, 3, squeeze=False, sharex=True)
    cases = [findings.case(data, number, "hyfdca") for number in range(len(paper.settings))]
    longest = max(findings.plan.target(case).iterations for case in cases)
    for column, first in enumerate((0, 3, 6)):
        settings = paper.settings[first : first + 3]
        for number, setting in enumerate(settings, start=first):
            line = findings.line(cases[number], "iterations")
            # The folder may hold longer or shorter runs of an earlier command.
            if line is None or cases[number] not in findings.plan.cases():
                continue
            # Settings that are not compared may have shorter runs, which end before the others.
            x = relative_iterations(line.iterations, longest, line.window)
            look = {"color": _SHADES[setting.fraction], "label": f"{setting.fraction:g}"}
            axes[0][column].plot(x, np.maximum(line.relative_loss, _FLOOR), **look)
            axes[1][column].plot(x, line.accuracy, **look)
        axes[0][column].set_yscale("log")
        axes[0][column].set_title(settings[0].label.split(",")[0], fontsize=10)
        axes[1][column].set_xlabel("share of the iterations, t_R (15)")
        for axis in (axes[0][column], axes[1][column]):
            polish(axis)
    axes[0][0].set_ylabel(_NAMES["loss"])
    axes[1][0].set_ylabel(_NAMES["accuracy"])
    if axes[0][0].lines:
        axes[0][0].legend(title="taking part", frameon=False, fontsize=9)
    number = {"mnist": 6, "newsgroups": 7, "covtype": 8}[data]
    shares = findings.plan.shares[data]
    note = f"length: {shares.iterations:.3g} of the paper's iterations"
    if shares.effects != shares.iterations:
        others = f"{shares.effects:.3g} in the others" if shares.effects else "others not run"
        note = f"{note} in the settings of Figure 3, {others}"
    _finish(figure, path, f"Figure {number}: HyFDCA on {paper.title}", note)
    return None


def _legend(figure: Any, axes: Any) -> None:
    """One for all panels, of every method that is in any of them."""
    shown: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    ordered = [title for title in TITLES.values() if title in shown]
    figure.legend(
        [shown[title] for title in ordered],
        ordered,
        loc="outside lower center",
        ncols=len(ordered),
        frameon=False,
    )


def _finish(figure: Any, path: Path, title: str, note: str) -> None:
    # Every figure says how far its runs go, wherever it is shown.
    lines = [title, *wrap(note, 150)]
    figure.suptitle("\n".join(lines), fontsize=11)
    figure.savefig(path, dpi=80)
