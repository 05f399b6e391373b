"""The report's pictures for papers, as SVG and PNG."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.report.comparison_plot import Curve, plot_comparison
from weft.report.convergence_plot import plot_convergence
from weft.report.number_format import names
from weft.report.page.gap_and_loss_curves import curves_of
from weft.report.page.holdings_section import MOST_NAMED, feature_groups, party_of_tile, tiles_of
from weft.report.page.largest_model_weights import class_names, is_scaled, largest
from weft.report.page.phase_names import name_of
from weft.report.page.read_results_folder import Source, read_folder
from weft.report.plot_style import BLUE, GREY, INK, new_figure, not_drawn, polish
from weft.report.sizes_and_holders_of_groups import read_numbers
from weft.storage.atomic_files import replacing

#: Okabe and Ito's palette, the yellow darkened for white paper, as the page has it.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A7A00", "#4D4D4D")
_TINTS = (0.9, 0.5, 0.25)
#: Parties upon whose colour words are white.
_DEEP = (0, 1, 2, 6, 7)
_SUFFIXES = ("svg", "png")
_WEIGHTS = "coefficients"
#: Weights of a class in a figure, and classes that it has panels for.
_MOST_WEIGHTS, _MOST_PANELS = 20, 6
#: Sets of holders that a key explains.
_MOST_SETS = 8

Drawing = Callable[[Path], str | None]


def write_figures(
    folder: Path, into: Path, *, latency: float | None = None
) -> tuple[list[Path], list[str]]:
    """Draw what a results folder holds.

    Returns
    -------
    written, remarks
        The files, and sentences about what could not be drawn.
    """
    source = read_folder(folder, latency)
    into.mkdir(parents=True, exist_ok=True)
    written, remarks = [], []
    for name, draw in _drawings(source).items():
        for suffix in _SUFFIXES:
            path = into / f"{name}.{suffix}"
            with replacing(path) as draft:
                # The suffix decides on the format.
                part = draft.with_suffix(f".{suffix}")
                if name == _WEIGHTS:
                    # As the model file itself, whose weights it tells.
                    part.touch(mode=0o600)
                remark = draw(part)
                if remark is not None:
                    remarks.append(remark)
                    break
                part.replace(draft)
            written.append(path)
    return written, remarks


def _drawings(source: Source) -> dict[str, Drawing]:
    """What can be drawn of a folder."""
    found: dict[str, Drawing] = {}
    summary = source.summary
    if source.is_comparison:
        found["convergence"] = lambda path: _draw_comparison(source, path)
    else:
        target = summary["settings"]["gap"]
        found["convergence"] = lambda path: plot_convergence(
            source.history, path, title=summary["name"], target=target
        )
        if summary.get("phases"):
            found["costs"] = lambda path: _draw_costs(summary, path)
        if source.model is not None:
            found[_WEIGHTS] = lambda path: _draw_weights(source, path)
    if tiles_of(source) is not None:
        found["tiles"] = lambda path: _draw_tiles(source, path)
    return found


def _draw_comparison(source: Source, path: Path) -> str | None:
    drawn = curves_of(source)
    chart = drawn["charts"][0]
    kinds = {row["algorithm"]: row["kind"] for row in source.summary["results"]}
    curves = []
    for series in chart["series"]:
        grid, name = drawn["grids"][series["grid"]], series["name"].removesuffix(" (pooled)")
        seconds = [c + source.latency * t for c, t in zip(grid["c"], grid["t"], strict=True)]
        distances = [math.nan if d is None else d for d in series["y"]]
        curves.append(Curve(name, kinds[name], grid["t"], seconds, distances, distances[-1]))
    curves += [Curve(line["name"], "baseline", [], [], [], line["y"]) for line in chart["lines"]]
    return plot_comparison(curves, path, title=source.summary["name"], latency=source.latency)


def _draw_costs(summary: dict[str, Any], path: Path) -> str | None:
    phases = summary["phases"]
    figure = new_figure(9, 1.4 + 0.24 * len(phases))
    if figure is None:
        return not_drawn("cost")
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(phases))[::-1]
    down = np.array([cost["bytes_down"] for cost in phases.values()]) / 1e6
    up = np.array([cost["bytes_up"] for cost in phases.values()]) / 1e6
    left.barh(places, down, color=_PALETTE[0], label="to the parties")
    left.barh(places, up, left=down, color=_PALETTE[4], label="from them")
    left.set_yticks(places, [name_of(phase) for phase in phases], fontsize=8)
    left.set_xlabel("MB")
    left.legend(frameon=False, fontsize=9)
    right.barh(places, [cost["slowest"] for cost in phases.values()], color=INK)
    right.set_xlabel("seconds of the slowest party")
    for axis in (left, right):
        polish(axis)
    figure.suptitle(summary["name"], fontsize=13, fontweight="bold")
    figure.savefig(path)
    return None


def _draw_tiles(source: Source, path: Path) -> str | None:
    drawn = tiles_of(source)
    figure = new_figure(8, 5)
    if figure is None or drawn is None:
        return not_drawn("tile")
    from matplotlib.patches import Rectangle

    axis = figure.subplots()
    cohorts = source.summary["cohorts"]
    rows, columns = drawn["rows"], drawn["columns"]
    tops = np.concatenate([[0], np.cumsum([row["size"] for row in rows])])
    lefts = np.concatenate([[0], np.cumsum([column["size"] for column in columns])])
    across = [set(read_numbers(column["tiles"])) for column in columns]
    for r, row in enumerate(rows):
        mine = set(read_numbers(row["tiles"]))
        for c, theirs in enumerate(across):
            parties = sorted({party_of_tile(cohorts, tile) for tile in mine & theirs})
            corner, size = (lefts[c], tops[r]), (columns[c]["size"], row["size"])
            look = _look(parties, many=len(source.parties) > MOST_NAMED)
            axis.add_patch(Rectangle(corner, *size, linewidth=0.3, **look))
            if len(parties) == 1 and len(rows) * len(columns) <= 60:
                middle = (lefts[c] + size[0] / 2, tops[r] + size[1] / 2)
                axis.annotate(
                    source.parties[parties[0]],
                    middle,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if parties[0] in _DEEP else INK,
                )
    axis.set_xlim(0, lefts[-1])
    axis.set_ylim(tops[-1], 0)
    axis.set_xlabel(f"features{_left(drawn['moreColumns'])}")
    axis.set_ylabel(f"samples{_left(drawn['moreRows'])}")
    axis.set_title(source.summary["name"], fontweight="bold")
    figure.savefig(path)
    return None


def _left(more: dict[str, int] | None) -> str:
    return f" (and {more['size']:,} in {more['groups']:,} smaller groups)" if more else ""


def _look(parties: list[int], *, many: bool) -> dict[str, Any]:
    """Colour of a cell, hatched where several hold it; of many parties, how many do."""
    if not parties:
        return {"facecolor": "#E8E8E4", "edgecolor": "white"}
    if many:
        shade = (0.45, 0.75, 1.0)[min(len(parties), 3) - 1]
        return {"facecolor": BLUE, "alpha": shade, "edgecolor": "white"}
    first = parties[0]
    colour = {"facecolor": _PALETTE[first % 8], "alpha": _TINTS[first // 8 % 3]}
    if len(parties) == 1:
        return {**colour, "edgecolor": "white"}
    return {**colour, "edgecolor": _PALETTE[parties[1] % 8], "hatch": "///"}


def _draw_weights(source: Source, path: Path) -> str | None:
    model = source.model
    panels = 0 if model is None else min(len(model.coef), _MOST_PANELS)
    shown = 0 if model is None else min(len(model.features), _MOST_WEIGHTS)
    figure = new_figure(4.2 * min(panels, 3), (0.8 + 0.2 * shown) * math.ceil(panels / 3))
    if figure is None or model is None:
        return not_drawn("coefficient")
    weights = model.coef / model.scaling[1] if is_scaled(model) else model.coef
    groups = feature_groups(source)
    axes = np.atleast_1d(figure.subplots(math.ceil(panels / 3), min(panels, 3))).ravel()
    for axis, row, title in zip(axes, weights, class_names(model), strict=False):
        first = largest(row, shown)
        looks = [_weight_colour(groups, int(feature)) for feature in first]
        places = np.arange(len(first))[::-1]
        axis.barh(places, row[first], color=looks)
        axis.set_yticks(places, [str(model.features[f])[:24] for f in first], fontsize=7)
        axis.axvline(0, color=GREY, linewidth=0.8)
        axis.set_title(title, fontsize=9)
        polish(axis)
    for axis in axes[panels:]:
        axis.set_visible(False)
    unit = "weights in scaled units" if is_scaled(model) else "weights"
    some = f", {panels} of {len(model.coef)} classes" if panels < len(model.coef) else ""
    title = f"{source.summary['name']}: {unit}{some}"
    figure.suptitle(title, fontsize=12, fontweight="bold")
    if groups is not None and 1 < len(groups[0]) <= _MOST_SETS:
        _explain(figure, source, groups)
    figure.savefig(path)
    return None


def _explain(figure: Any, source: Source, groups: tuple[list[str], list[int]]) -> None:
    """Which colour is whose."""
    from matplotlib.patches import Patch

    sets, place = groups
    handles = []
    for number, spelled in enumerate(sets):
        named = names([source.parties[party] for party in read_numbers(spelled)], 3)
        handles.append(Patch(color=_weight_colour(groups, place.index(number)), label=named))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def _weight_colour(groups: tuple[list[str], list[int]] | None, feature: int) -> str:
    """That of the only holder, of a set of holders, or of nobody in particular."""
    if groups is None or len(groups[0]) == 1:
        return BLUE
    sets, place = groups
    held = read_numbers(sets[place[feature]])
    return _PALETTE[(held[0] if len(held) == 1 else place[feature]) % 8]
