"""How well the model predicts, held against all that is known beside it."""

from __future__ import annotations

import math
from typing import Any

from weft.losses import get_loss
from weft.report.number_format import capital
from weft.report.page.html_elements import Html, bar, el, section, table
from weft.report.page.results_data import Source
from weft.report.summary import path_measure

_MOST_ALONE = 30
_CAPTIONS = {
    "accuracy": "Share of samples predicted rightly",
    "R²": "Share of the variance explained",
    "mean squared error": "Mean squared error: less is better",
    "mean loss": "Mean loss: less is better",
}
#: Looks of bars: federated, central, alone.
_OURS, _CENTRAL, _ALONE = "f0", "f2", "grey"


def accuracy_section(source: Source) -> Html:
    """Federated, central and alone where a judge had the pooled table, else what folds told."""
    summary = source.summary
    if source.is_comparison:
        return _section(*_compared(summary))
    if summary.get("accuracy"):
        return _section(*_judged(summary["accuracy"]))
    path = summary.get("path")
    if path and "mean_score" in path[0]:
        return _section(*_folds(summary))
    told = (
        "Not known here: nobody has the pooled table, and no samples were left out. Set folds = 5 "
        "under [solver] to have the parties score samples left out, in the same run; weft compare, "
        "for tables in one hand, holds the model against central training and each party alone."
    )
    return section("accuracy", "Accuracy", el("p", told))


def _section(told: str, rows: list[tuple[str, float | None, str]], measure: str) -> Html:
    if not rows:
        return section("accuracy", "Accuracy", el("p", told))
    percent = measure == "accuracy"
    known = [value for _, value, _ in rows if value is not None]
    most = 1.0 if percent else max([*known, 0.0]) or 1.0
    lines = [
        [
            name,
            bar((value or 0.0) / most, look),
            "–" if value is None else f"{value:.1%}" if percent else f"{value:.4g}",
        ]
        for name, value, look in rows
    ]
    titles = ["who", "", measure]
    grid = table(titles, lines, caption=_CAPTIONS[measure], numbers=(2,), cls="bars")
    return section("accuracy", "Accuracy", el("p", told), grid)


def _judged(known: dict[str, Any]) -> tuple[str, list[tuple[str, float | None, str]], str]:
    rows: list[tuple[str, float | None, str]] = [
        ("federated", known["federated"], _OURS),
        ("central, on the pooled table", known["central"], _CENTRAL),
        *_alone(known["alone"]),
    ]
    return capital(f"on {known['where']}"), rows, "accuracy"


def _alone(scores: dict[str, float | None]) -> list[tuple[str, float | None, str]]:
    """The best parties first, last those whose score there is not."""
    ranked = sorted(scores.items(), key=lambda pair: math.inf if pair[1] is None else -pair[1])
    return [(f"{name}, alone", value, _ALONE) for name, value in ranked[:_MOST_ALONE]]


def _compared(
    summary: dict[str, Any],
) -> tuple[str, list[tuple[str, float | None, str]], str]:
    settings = summary["settings"]
    regression = get_loss(settings["loss"], **settings["loss_parameters"]).task == "regression"
    key, measure = ("r2", "R²") if regression else ("accuracy", "accuracy")
    tested = summary["test_samples"]
    rows: list[tuple[str, float | None, str]] = []
    for row in summary["results"]:
        scores = row["test"] or row["train"] or {}
        if row["kind"] == "baseline" and row["algorithm"] != "central":
            if not summary.get("alone"):
                rows.append((row["algorithm"], scores.get(key), _ALONE))
            continue
        central = row["algorithm"] == "central"
        name = "central, on the pooled table" if central else row["algorithm"]
        if row["kind"] == "pooled":
            name += " (pooled)"
        rows.append((name, scores.get(key), _CENTRAL if central else _OURS))
    alone = {name: scores[key] for name, scores in (summary.get("alone") or {}).items()}
    where = f"{tested:,} samples held out" if tested else "the samples that were trained on"
    return f"On {where}.", [*rows, *_alone(alone)], measure


def _folds(
    summary: dict[str, Any],
) -> tuple[str, list[tuple[str, float | None, str]], str]:
    """Scores of the folds, by λ."""
    measure = path_measure(summary)
    rows: list[tuple[str, float | None, str]] = []
    for row in summary["path"]:
        score = row["mean_score"]
        if score is not None and measure != "accuracy":
            score = -score
        mark = ", released" if row["chosen"] else ""
        rows.append((f"λ = {row['lambda']:g}{mark}", score, _OURS if row["chosen"] else _ALONE))
    told = (
        f"{capital(summary['choice'])} Folds of the samples were left out in turn, inside the "
        "protocol. What central training would reach is not known here, since nobody has the "
        "pooled table; the certificate bounds how far its loss could be below."
    )
    return told, rows, measure
