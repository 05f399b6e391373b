"""Tables and figures of runs.jsonl, which ``weft reproduce all --from-archive`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from weft.errors import DataError
from weft.report.plot_style import BLUE, FAINT, GREEN, INK, ORANGE, new_figure, not_drawn
from weft.storage.atomic_files import replacing
from weft_neural.curve_plots import Curve, draw_curves, label_ends, per_cent, whole_rounds
from weft_papers.hyfem.batched_networks.runs_as_json_lines import Line, best_rate, final, read_lines

#: The pull of classifiers where a table does not vary it.
_MU2 = 0.1
_TITLES = {
    "cifar10": "CIFAR-10, 9 parties with 6 to 8 of 12 blocks (Figures 4(c) and 5(c))",
    "c1-cifar10": "CIFAR-10, 6 parties with two quadrants in common (Figures 9(b) and 10(b))",
}
#: What a method's name is followed by.
_NORMS = {"batch": "", "group": ", groups"}
_STUDY = "python -m weft_papers.hyfem.batched_networks.tuned_runs_over_seeds"
#: Methods and whose model is measured, with the names that tables give them.
_MODELS = (
    ("hyfem", "server", "HyFEM, server"),
    ("central", "own", "central training"),
    ("fedprox", "server", "FedProx on common blocks, server and all parties"),
    ("hyfem", "received", "HyFEM, parties: the copy that they receive"),
    ("hyfem", "own", "HyFEM, parties: after their own steps"),
    ("fedprox", "own", "FedProx, parties: after their own steps"),
    ("fedper", "received", "FedPer, parties: common extractors, classifiers of their own"),
    ("fedper", "own", "FedPer, parties: after their own steps"),
    ("alone", "own", "parties alone"),
)
_COMMANDS = (
    "cifar10 --data-dir DATA --seeds 3 --kinds central alone fedper --out runs.jsonl",
    "cifar10 --data-dir DATA --seeds 3 --kinds hyfem --mu2 0.3 0.5 1 3 --out runs.jsonl",
    "cifar10 --data-dir DATA --seeds 3 --norm group --kinds hyfem --out runs.jsonl",
    "c1-cifar10 --data-dir DATA --seeds 3 --out runs.jsonl",
    "c1-cifar10 --data-dir DATA --seeds 3 --norm group --kinds hyfem --out runs.jsonl",
)


def write_report(folder: Path) -> list[str]:
    """README.md and a figure of each experiment; returns sentences on what was not drawn."""
    lines = read_lines(folder / "runs.jsonl")
    if not lines:
        raise DataError(f"{folder} has no runs.jsonl with finished runs; run the study first")
    with replacing(folder / "README.md") as draft:
        draft.write_text(page(lines), encoding="utf-8")
    remarks = set()
    for name in _present(lines):
        remarks.add(_draw(lines, name, folder / f"{name}.png"))
    return sorted(remark for remark in remarks if remark)


def page(lines: Sequence[Line]) -> str:
    """All tables."""
    device, versions = lines[0]["device"], lines[0]["versions"]
    parts = [
        "# HyFEM for networks: tuned runs over seeds",
        "Made by `weft reproduce all --from-archive` from "
        "`runs.jsonl`, a run a line, with accuracies and test losses of every measured round. What "
        "it shows: [../../hyfem.md](../../hyfem.md).",
        "```\n" + "\n".join(f"{_STUDY} {command}" for command in _COMMANDS) + "\n```",
        f"{device}, PyTorch {versions['torch']}, bfloat16 with float32 weights. Seeds 0, 1, 2 of "
        "first weights and minibatches. Rates are chosen by the last accuracy of seed 0 on the "
        "test samples: down and up from 0.05 until one is worse.",
    ]
    for name in _present(lines):
        some = [line for line in lines if line["experiment"] == name]
        parts += [
            f"## {_TITLES.get(name, name)}",
            f"T = {some[0]['rounds']}, Q = {some[0]['steps']}, batch {some[0]['batch']}, "
            f"μ1 = {some[0]['mu1']:g}, μ2 = {_MU2:g}. Mean ± standard deviation over seeds; for "
            "parties the mean over parties first, and in brackets their spread.",
            f"![accuracy by round]({name}.png)",
            *_tables(_normalised(some, "batch")),
        ]
        grouped = _normalised(some, "group")
        if grouped:
            parts += ["### With group normalisation", *_tables(grouped)]
    parts += ["## Seconds a round", _times(lines)]
    return "\n\n".join(parts) + "\n"


def _tables(lines: Sequence[Line]) -> list[str]:
    """Of runs that normalise alike."""
    pulls = _pulls(lines)
    return [
        _results(lines),
        "Rates with seed 0, last accuracy in per cent:",
        _tuning(lines),
        *(
            ["HyFEM by the pull of classifiers, mean ± deviation over seeds:", pulls]
            if pulls
            else []
        ),
    ]


def _normalised(lines: Sequence[Line], norm: str) -> list[Line]:
    return [line for line in lines if line["norm"] == norm]


def _present(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(sorted((line["experiment"] for line in lines), reverse=True)))


def _tuned(lines: Sequence[Line], kind: str) -> list[Line]:
    """All seeds of a method with its best rate."""
    if not lines:
        return []
    rate = best_rate(lines, lines[0]["experiment"], kind, lines[0]["norm"], {})
    return sorted(
        (x for x in lines if (x["kind"], x["rate"], x["mu2"]) == (kind, rate, _MU2)),
        key=lambda line: int(line["seed"]),
    )


def _results(lines: Sequence[Line]) -> str:
    rows = ["| | accuracy, last round | test loss | rate | seeds |", "|---|---|---|---|---|"]
    for kind, who, title in _MODELS:
        runs = _tuned(lines, kind)
        if not runs:
            continue
        last = [run["history"][-1][who] for run in runs]
        accuracies = [100 * found["accuracy"] for found in last]
        spread = 100 * fmean(found["spread"] for found in last)
        several = f" ({spread:.1f})" if spread else ""
        losses = [found["loss"] for found in last]
        rows.append(
            f"| {title} | {_with_spread(accuracies)}{several} | {fmean(losses):.2f} | "
            f"{runs[0]['rate']:g} | {len(runs)} |"
        )
    return "\n".join(rows)


def _with_spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{fmean(values):.1f} ± {pstdev(values):.1f}"


def _tuning(lines: Sequence[Line]) -> str:
    firsts = [line for line in lines if line["seed"] == 0 and line["mu2"] == _MU2]
    rates = sorted({line["rate"] for line in firsts})
    rows = [
        "| | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---" * (1 + len(rates)) + "|",
    ]
    for kind, who, title in _MODELS:
        found = {x["rate"]: final(x, who) for x in firsts if x["kind"] == kind}
        if found:
            cells = [_cell(found.get(rate)) for rate in rates]
            rows.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _pulls(lines: Sequence[Line]) -> str | None:
    tuned = _tuned(lines, "hyfem")
    if not tuned:
        return None
    rate = tuned[0]["rate"]
    same = [line for line in lines if (line["kind"], line["rate"]) == ("hyfem", rate)]
    pulls = sorted({line["mu2"] for line in same})
    if len(pulls) < 2:
        return None
    rows = ["| μ2 | server | received | own | seeds |", "|---|---|---|---|---|"]
    for pull in pulls:
        runs = [line["history"][-1] for line in same if line["mu2"] == pull]
        cells = [
            _with_spread([100 * run[who]["accuracy"] for run in runs])
            for who in ("server", "received", "own")
        ]
        rows.append(f"| {pull:g} | " + " | ".join(cells) + f" | {len(runs)} |")
    return "\n".join(rows)


def _times(lines: Sequence[Line]) -> str:
    """Of one run of each method: the first round, which compiles, left out."""
    rows = [
        "| | steps | averaging | matching | together | TFLOP/s in steps | with measuring |",
        "|---|---|---|---|---|---|---|",
    ]
    told: set[tuple[str, str, str]] = set()
    for line in lines:
        name = line["experiment"], line["kind"], line["norm"]
        if name in told:
            continue
        told.add(name)
        parts = line["seconds_a_round"]
        speed = line["operations"] / parts["steps"] / 1e12
        whole = line["seconds"] / line["rounds_run"]
        cells = [f"{parts[part]:.3f}" for part in ("steps", "server", "matching")]
        rows.append(
            f"| {line['experiment']}, {line['kind']}{_NORMS[line['norm']]} | {' | '.join(cells)} | "
            f"{sum(parts.values()):.3f} | {speed:.0f} | {whole:.2f} |"
        )
    return "\n".join(rows)


def _draw(lines: Sequence[Line], name: str, path: Path) -> str | None:
    """The server's side and the parties' side: means over seeds."""
    figure = new_figure(11.5, 4.8)
    if figure is None:
        return not_drawn("HyFEM")
    some = _normalised([line for line in lines if line["experiment"] == name], "batch")
    central = _curve(some, "central", "own", "central", INK, style="dashed")
    alone = _curve(some, "alone", "own", "alone", ORANGE)
    per = _curve(some, "fedper", "received", "FedPer", "#8A6FB0")
    prox = _curve(some, "fedprox", "server", "FedProx", GREEN)
    server = [_curve(some, "hyfem", "server", "HyFEM", BLUE, width=2.4), central, prox, alone]
    parties = [
        _curve(some, "hyfem", "received", "HyFEM, received", BLUE, width=2.4),
        _curve(some, "hyfem", "own", "HyFEM, own", "#7FB8DA"),
        _curve(some, "fedprox", "own", "FedProx, own", "#7FC4A4"),
        *(central, prox, per, alone),
    ]
    titles = ("Server: all blocks of the test samples", "Parties: mean over parties")
    sides = figure.subplots(1, 2, sharey=True, sharex=True)
    drawn = [[curve for curve in side if curve is not None] for side in (server, parties)]
    for axis, curves, title in zip(sides, drawn, titles, strict=True):
        draw_curves(axis, curves, most=100)
        axis.set_title(title, loc="left", fontsize=10.5, color=INK)
        whole_rounds(axis)
    sides[0].set_ylabel("test accuracy")
    per_cent(sides[0], [*drawn[0], *drawn[1]])
    for axis, curves in zip(sides, drawn, strict=True):
        label_ends(axis, curves)
    figure.suptitle(
        _TITLES.get(name, name), x=0.012, ha="left", fontsize=12.5, fontweight="bold", color=INK
    )
    caption = "Tuned rates; mean over seeds, bands ± one standard deviation over seeds"
    figure.supxlabel(caption, x=0.012, ha="left", fontsize=8.5, color=FAINT)
    figure.savefig(path)
    return None


def _curve(
    lines: Sequence[Line],
    kind: str,
    who: str,
    label: str,
    colour: str,
    *,
    style: str = "solid",
    width: float = 1.8,
) -> Curve | None:
    runs = _tuned(lines, kind)
    if not runs:
        return None
    measured: list[list[Mapping[str, Any]]] = [
        [row for row in run["history"] if row[who] is not None] for run in runs
    ]
    rounds = np.array([row["round"] for row in measured[0]], float)
    values = 100 * np.array([[row[who]["accuracy"] for row in rows] for rows in measured])
    spread = values.std(axis=0) if len(runs) > 1 else None
    return Curve(label, colour, rounds, values.mean(axis=0), spread, style, width)
