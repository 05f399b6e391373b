"""Page and figures of runs.jsonl, which ``weft reproduce all --from-archive`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from weft.array_types import Floats
from weft.errors import DataError
from weft.report.plot_style import BLUE, FAINT, INK, ORANGE, new_figure, not_drawn, polish
from weft.storage.atomic_files import replacing
from weft_papers.fedhybrid.run_by_paper_rules import SHARES, Line, read_runs

_RULES = "python -m weft_papers.fedhybrid.run_by_paper_rules --out runs.jsonl"
_COMMAND = f"""{_RULES} --seeds 3 --setup synthetic_squares boston
{_RULES} --seeds 2 --setup synthetic_logistic
{_RULES} --seeds 1 --setup mushroom"""
_TITLES = {
    "synthetic_squares": "(1) least squares, synthetic",
    "boston": "(2) least squares, Boston",
    "synthetic_logistic": "(3) logistic, synthetic",
    "mushroom": "(4) logistic, mushroom",
}
#: Of the paper's figures: set-ups, and whether baselines are in it.
_FIGURES = {
    1: (("boston", "mushroom"), True),
    2: (("boston", "synthetic_logistic"), False),
    3: (("synthetic_squares", "synthetic_logistic"), True),
    4: (("synthetic_squares", "mushroom"), False),
}
_WEIGHED = {"parties": "parties weigh the same, as in the paper", "samples": "samples do"}


def write_report(folder: Path) -> list[str]:
    """README.md and the paper's four figures; returns sentences on what was not drawn."""
    runs = read_runs(folder / "runs.jsonl")
    if not runs:
        raise DataError(f"{folder} has no runs.jsonl with finished runs: {_RULES}")
    with replacing(folder / "README.md") as draft:
        draft.write_text(page(runs), encoding="utf-8")
    remarks = {
        _draw(runs, number, folder / f"figure-{number}.png")
        for number in _FIGURES
        if _present(runs, number)
    }
    return sorted(remark for remark in remarks if remark)


def page(runs: Sequence[Line]) -> str:
    """Tables, verdicts and figures."""
    parts = [
        "# FedHybrid's experiments by the paper's rules",
        "Made by `weft reproduce all --from-archive` from "
        "`runs.jsonl`, a run a line, every second iteration of 100. Searched by the iterations "
        "to a distance instead: [searched.md](searched.md). What both show: "
        "[../../fedhybrid.md](../../fedhybrid.md).",
        f"```\n{_COMMAND}\n```",
        f"{_seeds(runs)} Seeds are of data, sizes and of which parties are Newton-type. "
        "*Paper's grid*: μ in [1e-4, 10] and constant steps a, b in [1e-4, 1] (1, 3, 10, …; "
        "where Hessians change, 1, 10, …), one pair for gradient-type and one for Newton-type "
        "parties, option after option, until none is better, at most thrice (logistic: once), all "
        "of the grid where no party is Newton-type; FedAvg has all rates up to 1; DiSCO "
        "μ in [1e-4, 10]. Best is what is nearest to x* after 100 iterations. *Own steps*: "
        "`steps = auto`, nothing searched. Told is ‖x₀ − x*‖/‖x*‖ after 100 iterations: the "
        "median over seeds, and in brackets the least and the most.",
    ]
    for weigh in ("parties", "samples"):
        some = [run for run in runs if run["weigh"] == weigh]
        parts += [f"## {weigh.capitalize()} weigh the same", _table(some)]
    parts += ["## What the figures claim", _verdicts(runs)]
    parts += [
        f"![figure {number}](figure-{number}.png)" for number in _FIGURES if _present(runs, number)
    ]
    parts += ["## Gradients and Hessians of a part of the rows", _stochastic(runs)]
    return "\n\n".join(parts) + "\n"


def _present(runs: Sequence[Line], number: int) -> list[str]:
    """A figure's set-ups that were run, parties weighing the same."""
    found = {run["setup"] for run in runs if run["weigh"] == "parties"}
    return [name for name in _FIGURES[number][0] if name in found]


def _seeds(runs: Sequence[Line]) -> str:
    told = []
    for name, title in _TITLES.items():
        found = sorted({run["seed"] for run in runs if run["setup"] == name})
        if found:
            told.append(f"{title[:3]} {', '.join(map(str, found))}")
    return f"Seeds by set-up: {'; '.join(told)}."


def _table(runs: Sequence[Line]) -> str:
    setups = [name for name in _TITLES if any(run["setup"] == name for run in runs)]
    rows = [
        "| | " + " | ".join(_TITLES[name] for name in setups) + " |",
        "|---" * (1 + len(setups)) + "|",
    ]
    for series, title in (("paper", ""), ("own", ", own steps")):
        for method in _methods(runs, series):
            cells = [_cell(_ends(runs, name, series, method)) for name in setups]
            rows.append(f"| {method}{title} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _methods(runs: Sequence[Line], series: str) -> list[str]:
    """Baselines first, then FedHybrid by its Newton-type parties."""
    found = {run["method"] for run in runs if run["series"] == series}
    return sorted(found, key=_rank)


def _rank(method: str) -> float:
    last = method.removeprefix("FedH-")
    ranks = {"FedAvg": -3.0, "DiSCO": -2.0, "G": -1.0, "N": np.inf}
    return ranks[last] if last in ranks else float(last)


def _ends(runs: Sequence[Line], setup: str, series: str, method: str) -> list[float]:
    """Of every seed."""
    return [
        np.inf if run["errors"][-1] is None else float(run["errors"][-1])
        for run in runs
        if (run["setup"], run["series"], run["method"]) == (setup, series, method)
    ]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{median(values):.1e} ({min(values):.0e} – {max(values):.0e})"


def _verdicts(runs: Sequence[Line]) -> str:
    """Every claim, counted over set-ups and seeds."""
    rows = [
        "| claim | set-ups | parties weigh the same: paper's grid | own steps | samples weigh the "
        "same: paper's grid | own steps | by the paper's rules |",
        "|---|---|---|---|---|---|---|",
    ]
    for title, setups, better, worse in _claims():
        cells: list[str] = []
        for weigh in ("parties", "samples"):
            for series in ("paper", "own"):
                some = [run for run in runs if run["weigh"] == weigh]
                cells.append(_counted(some, setups, series, better, worse))
        told = ", ".join(_TITLES[name][:3] for name in setups)
        rows.append(f"| {title} | {told} | " + " | ".join(cells) + f" | {_verdict(cells[0])} |")
    return "\n".join(rows)


def _verdict(counted: str) -> str:
    held, total = map(int, counted.split(" of "))
    return "agrees" if held == total else "partly" if held else "does not agree"


def _claims() -> list[tuple[str, tuple[str, ...], str, str]]:
    """Figure, set-ups, and who is said to be nearer than whom; ladder: each than the one before."""
    one, three = _FIGURES[1][0], _FIGURES[3][0]
    two, four = _FIGURES[2][0], _FIGURES[4][0]
    return [
        ("Figure 1: FedH-N is ahead of FedAvg", one, "N", "FedAvg"),
        ("Figure 1: so is FedH-K, 0 < K < n", one, "some", "FedAvg"),
        ("Figure 1: FedH-N is as near as DiSCO, or nearer", one, "N", "DiSCO"),
        ("Figure 2: each step of the ladder is ahead of the one before", two, "ladder", ""),
        ("Figure 3: FedH-N is ahead of FedAvg", three, "N", "FedAvg"),
        ("Figure 3: so is FedH-K, 0 < K < n", three, "some", "FedAvg"),
        ("Figure 3: FedH-N is as near as DiSCO, or nearer", three, "N", "DiSCO"),
        ("Figure 4: each step of the ladder is ahead of the one before", four, "ladder", ""),
    ]


def _counted(
    runs: Sequence[Line], setups: Sequence[str], series: str, better: str, worse: str
) -> str:
    held = total = 0
    for name in setups:
        for seed in sorted({run["seed"] for run in runs if run["setup"] == name}):
            some = [run for run in runs if (run["setup"], run["seed"]) == (name, seed)]
            pairs = _pairs(some, series, better, worse)
            held += sum(near <= far for near, far in pairs)
            total += len(pairs)
    return f"{held} of {total}"


def _pairs(runs: Sequence[Line], series: str, better: str, worse: str) -> list[tuple[float, float]]:
    own = {method: _end(runs, series, method) for method in _methods(runs, series)}
    ladder = [method for method in own if method.startswith("FedH-")]
    if better == "ladder":
        return [(own[b], own[a]) for a, b in pairwise(ladder)]
    against = _end(runs, "paper", worse)
    chosen = ["FedH-N"] if better == "N" else ladder[1:-1]
    return [(own[method], against) for method in chosen]


def _end(runs: Sequence[Line], series: str, method: str) -> float:
    (value,) = (
        run["errors"][-1] for run in runs if (run["series"], run["method"]) == (series, method)
    )
    return np.inf if value is None else float(value)


def _stochastic(runs: Sequence[Line]) -> str:
    """What is left after 100 iterations, by the share of rows that a party draws."""
    setups = [name for name in _TITLES if any(run["setup"] == name for run in runs)]
    parts = [
        "The paper's future work, tried: in every iteration a party draws some of its rows for its "
        "gradient and Hessian. Steps are those found for all rows, or a tenth of them; parties "
        "weigh the same.",
        "",
        "| rows, steps | " + " | ".join(_TITLES[name] for name in setups) + " |",
        "|---" * (1 + len(setups)) + "|",
    ]
    some = [run for run in runs if run["weigh"] == "parties"]
    for method in ("FedH-G", "FedH-N"):
        rows = [("all", "paper", 1.0)]
        for share in SHARES:
            rows += [(f"{share:.0%}", "stochastic", share)]
            rows += [(f"{share:.0%}, a tenth of the steps", "stochastic, a tenth", share)]
        for title, series, share in rows:
            these = [run for run in some if run["share"] == share]
            cells = [_cell(_ends(these, name, series, method)) for name in setups]
            parts.append(f"| {method}, {title} | " + " | ".join(cells) + " |")
    return "\n".join(parts)


def _draw(runs: Sequence[Line], number: int, path: Path) -> str | None:
    """Both axes of the paper for both set-ups, parties weighing the same."""
    setups, baselines = _present(runs, number), _FIGURES[number][1]
    figure = new_figure(5.2 * len(setups), 6.6)
    if figure is None:
        return not_drawn("FedHybrid")
    axes = figure.subplots(2, len(setups), squeeze=False)
    for column, setup in enumerate(setups):
        some = [r for r in runs if (r["setup"], r["weigh"]) == (setup, "parties")]
        for row, what in enumerate(("errors", "losses")):
            _panel(axes[row][column], some, what, baselines)
        axes[0][column].set_title(_TITLES[setup], fontsize=10.5, loc="left", color=INK)
        axes[1][column].set_xlabel("iteration")
    axes[0][0].set_ylabel("‖x₀ − x*‖ / ‖x*‖")
    axes[1][0].set_ylabel("log f(x₀)")
    axes[0][-1].legend(frameon=False, fontsize=7.5)
    caption = (
        "Solid: the paper's grid, means and ranges over seeds. Dotted: own steps, nothing searched"
    )
    figure.supxlabel(caption, x=0.012, ha="left", fontsize=8.5, color=FAINT)
    figure.savefig(path, dpi=60)
    return None


def _panel(axis: Any, runs: Sequence[Line], what: str, baselines: bool) -> None:
    ladder = [m for m in _methods(runs, "paper") if m.startswith("FedH-")]
    shown = ladder
    if baselines:
        shown = ["FedAvg", "DiSCO", ladder[len(ladder) // 3], ladder[2 * len(ladder) // 3]]
        shown = [*dict.fromkeys([*shown, ladder[-1]])]
    shades = _shades(len(shown))
    for method, shade in zip(shown, shades, strict=True):
        colour = {"FedAvg": INK, "DiSCO": ORANGE, "FedH-N": BLUE}.get(method, shade)
        curves = _curves(runs, "paper", method, what)
        at = 2 * np.arange(curves.shape[1])
        axis.plot(at, curves.mean(axis=0), color=colour, linewidth=1.6, label=method)
        axis.fill_between(at, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.12)
        if method.startswith("FedH-"):
            own = _curves(runs, "own", method, what)
            at = 2 * np.arange(own.shape[1])
            axis.plot(at, own.mean(axis=0), color=colour, linewidth=1.1, linestyle="dotted")
    first = _curves(runs, "paper", "FedAvg", what)[:, 0]
    low = min(float(_curves(runs, "paper", m, what).min()) for m in shown)
    high = float(first.max())
    margin = 0.08 * (high - low)
    axis.set_ylim(low - margin, high + margin)
    polish(axis)


def _curves(runs: Sequence[Line], series: str, method: str, what: str) -> Floats:
    """(seeds, iterations); losses as the paper has them, the log of the sum over parties."""
    found = [run for run in runs if (run["series"], run["method"]) == (series, method)]
    values = np.array([[np.nan if v is None else v for v in run[what]] for run in found])
    if what == "losses":
        values = np.log(np.array([[run["parties"]] for run in found]) * values)
    return np.asarray(values, np.float64)


def _shades(count: int) -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.9, 0.15, count))]
