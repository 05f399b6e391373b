"""Curves of loss, gap and distance, thinned so that a long run still makes a small file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.protocol.metering import LATENCIES
from weft.report.history_table import certificates
from weft.report.number_format import algorithm_name, digits
from weft.report.page.html_elements import Html, el, section
from weft.report.page.read_results_folder import Source
from weft.report.plot_style import gap_floor
from weft.solvers.algorithm_choice import ALGORITHMS

#: Points of a curve, at most.
MOST = 1500
#: Distances to the optimum outside of these are drawn at the edge.
_FLOOR, _CEILING = 1e-8, 1e3
_COLOURS = 8
#: Costs that a page draws against: iterations, round trips, bytes, seconds of computing.
_AXES = (
    ("t", "round trips"),
    ("i", "iterations"),
    ("b", "bytes"),
    ("s", "modelled seconds"),
)


def curves_of(source: Source) -> dict[str, Any]:
    """Everything that is drawn, as plain values.

    ``grids`` hold places on the axes: iterations ``i``, round trips ``t``, bytes ``b`` and seconds
    of the slowest parties' computing ``c``; every series of a chart has values ``y`` over one grid.
    """
    drawn = _comparison(source) if source.is_comparison else _run(source)
    return {**drawn, "latency": source.latency}


# ── one run ───────────────────────────────────────────────────────────────────────────────────


def _run(source: Source) -> dict[str, Any]:
    frame, target = source.history, source.summary["settings"]["gap"]
    known = certificates(frame)
    lambdas = sorted(known["lam"].dropna().unique(), reverse=True)
    grids: list[dict[str, Any]] = []
    loss: list[dict[str, Any]] = []
    gap: list[dict[str, Any]] = []
    guessed = frame[frame["loss_estimate"].notna()]
    if len(guessed):
        add_series(grids, guessed, [
            (loss, "loss_estimate", {"name": "estimate", "look": "grey", "line": True}),
            (gap, "gap_estimate", {"name": "estimate", "look": "grey", "line": True}),
        ])  # fmt: skip
    several = len(lambdas) > 1
    for number, lam in enumerate(lambdas if several else [None]):
        part = known[known["lam"] == lam] if several else known
        look = {"look": number % _COLOURS, "dash": number // _COLOURS, "mark": True, "line": True}
        name = f"λ = {lam:g}" if several else ""
        add_series(grids, part, [
            (loss, "primal", look | {"name": name or "certified loss P(w)"}),
            (loss, "dual", look | ({"name": name, "faint": True} if several else
                                   {"name": "lower bound D(α)", "look": 1})),
            (gap, "gap", look | {"name": name or "certified gap"}),
        ])  # fmt: skip
    floor = gap_floor(known["gap"].astype(float), target)
    charts = [
        {
            "id": "loss",
            "title": "Loss",
            "unit": "P(w), and D(α), which no model can be below",
            "log": False,
            "series": loss,
        },
        {
            "id": "gap",
            "title": "Relative gap",
            "unit": "(P − D) / P",
            "log": True,
            "floor": floor,
            "series": gap,
            "target": target,
        },
    ]
    return {"grids": grids, "charts": charts}


# ── a comparison ──────────────────────────────────────────────────────────────────────────────


def _comparison(source: Source) -> dict[str, Any]:
    summary, grids = source.summary, list[dict[str, Any]]()
    distance: list[dict[str, Any]] = []
    gap: list[dict[str, Any]] = []
    lines = []
    for row in summary["results"]:
        if row["kind"] == "baseline":
            if row["distance"] is not None and row["distance"] > 0:
                lines.append({"name": row["algorithm"], "y": digits(row["distance"])})
        elif row["iterations"]:
            _algorithm(source, row, grids, distance, gap)
    optimum = f"{summary['optimum']:.6g}"
    charts: list[dict[str, Any]] = [
        {
            "id": "distance",
            "title": "Distance to the optimum of the pooled table",
            "unit": f"(P − P*) / P*, P* = {optimum} by {summary['judged_by']}",
            "log": True,
            "floor": _FLOOR,
            "ceiling": _CEILING,
            "series": distance,
            "lines": lines,
        },
        {
            "id": "gap",
            "title": "Gap that each run has certified itself",
            "unit": "(P − D) / P",
            "log": True,
            "floor": _FLOOR,
            "ceiling": 1.5,
            "series": gap,
            "target": summary["settings"]["gap"],
        },
    ]
    return {"grids": grids, "charts": charts}


def _algorithm(
    source: Source,
    row: dict[str, Any],
    grids: list[dict[str, Any]],
    distance: list[dict[str, Any]],
    gap: list[dict[str, Any]],
) -> None:
    """One algorithm's certified points, and the model at the end as the judge sees it."""
    frame = source.history[source.history["algorithm"] == row["algorithm"]]
    known = certificates(frame)
    places = known
    if row["distance"] is not None:
        end = frame.iloc[-1].copy()
        end["distance"], end["gap"] = row["distance"], row["gap"]
        places = pd.concat([places, end.to_frame().T], ignore_index=True)
    if row["kind"] == "pooled":
        places[["round_trips", "bytes_down", "bytes_up"]] = 0
    catalogued = row["algorithm"] in ALGORITHMS
    number = list(ALGORITHMS).index(row["algorithm"]) if catalogued else 0
    look = {
        "name": algorithm_name(row),
        "look": number % _COLOURS,
        "dash": number // _COLOURS,
        "mark": True,
        "line": True,
        "bold": catalogued and ALGORITHMS[row["algorithm"]].ours,
    }
    add_series(grids, places, [(distance, "distance", look), (gap, "gap", look)])


# ── points ────────────────────────────────────────────────────────────────────────────────────


def add_series(
    grids: list[dict[str, Any]],
    frame: pd.DataFrame,
    wanted: Sequence[tuple[list[dict[str, Any]], str, dict[str, Any]]],
) -> None:
    """A grid for some rows of a history, and a series over it for each of some columns.

    A certified point stands where its certificate came in: a curve says what was proved when.
    """
    columns = [_floats(frame[column]) for _, column, _ in wanted]
    kept = thinned(columns, MOST)
    travelled = frame["bytes_down"].astype(float) + frame["bytes_up"].astype(float)
    grids.append(
        {
            "i": _whole(frame["iteration"], kept),
            "t": _whole(frame["round_trips"], kept),
            "b": _whole(travelled, kept),
            "c": _plain(_floats(frame["compute_seconds"])[kept]),
        }
    )
    for (series, _, look), values in zip(wanted, columns, strict=True):
        series.append({**look, "grid": len(grids) - 1, "y": _plain(values[kept])})


def thinned(columns: Sequence[NDArray[np.float64]], most: int) -> NDArray[np.int64]:
    """Positions to keep, ``most`` at most: the ends, and the extremes of every stretch."""
    length = len(columns[0])
    if length <= most:
        return np.arange(length)
    stretches = max(1, (most - 2) // (2 * len(columns)))
    edges = np.linspace(0, length, stretches + 1).astype(int)
    kept = {0, length - 1}
    for begin, end in pairwise(edges.tolist()):
        for column in columns:
            known = np.flatnonzero(np.isfinite(column[begin:end])) + begin
            if len(known):
                kept |= {known[column[known].argmin()], known[column[known].argmax()]}
    return np.array(sorted(kept), np.int64)


def _floats(series: pd.Series[Any]) -> NDArray[np.float64]:
    return np.asarray(series.astype(float), np.float64)


def _whole(series: pd.Series[Any], kept: NDArray[np.int64]) -> list[int]:
    return [int(value) for value in series.to_numpy()[kept]]


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    return [digits(v) if math.isfinite(v) else None for v in values.tolist()]


# ── the section ───────────────────────────────────────────────────────────────────────────────


#: How to read the curves of a run or a comparison.
_DOTS = (
    "Dots are certified points: upper bounds that the run itself has proved. Each stands where "
    "its certificate came in, which may be iterations after the model that it is of: curves "
    "say what was proved when."
)
_WALKING = (
    "Point at one, or reach a chart with the tab key and walk with the arrows. Modelled seconds "
    "are the slowest parties' computing plus the seconds of a round trip for each of them."
)


def curves_section(source: Source, charts: dict[str, Any], told: str = _DOTS) -> Html:
    """Buttons for the axis, the latency, a place for each chart, and how to read them."""
    axes = [
        el("button", title, type="button", data_axis=key, aria_pressed=str(key == "t").lower())
        for key, title in _AXES
    ]
    presets = [
        el("button", f"{seconds:g} s", type="button", data_latency=f"{seconds:g}")
        for seconds in LATENCIES
    ]
    controls = el(
        "div",
        el("div", *axes, cls="choice", role="group", aria_label="Draw against"),
        el(
            "div",
            el("label", "A round trip takes", for_="latency"),
            el("input", id="latency", type="number", min="0", max="60", step="any",
               value=f"{source.latency:g}"),
            el("span", "s"),
            el("input", id="latency-slider", type="range", min="0", max="2", step="0.01",
               value=f"{min(source.latency, 2):g}", aria_label="Seconds of a round trip"),
            el("span", *presets, cls="choice", role="group", aria_label="Usual round trips"),
            cls="latency",
        ),
        el(
            "div",
            el("label", el("input", type="checkbox", id="log-x"), " logarithmic costs"),
            el("label", el("input", type="checkbox", id="log-y"), " logarithmic loss")
            if not source.is_comparison
            else "",
            cls="checks",
        ),
        cls="controls",
    )  # fmt: skip
    legend = el("div", id="legend", cls="legend", role="group", aria_label="Curves to show")
    figures = [
        el(
            "figure",
            el("figcaption", el("strong", chart["title"]), " ", el("span", chart["unit"])),
            el("div", id=f"chart-{chart['id']}", cls="chart"),
        )
        for chart in charts["charts"]
    ]
    return section(
        "convergence",
        "Convergence",
        controls,
        legend,
        *figures,
        el("p", f"{told} {_WALKING}", cls="note"),
    )
