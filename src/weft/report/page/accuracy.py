"""How well the model predicts, held against all that is known beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from weft.losses import get_loss
from weft.report.lambda_path import GAINS
from weft.report.number_format import capital
from weft.report.page.html_elements import Html, el, join, section, table
from weft.report.page.read_results_folder import Source
from weft.report.score_interval import wilson_interval, with_interval
from weft.report.summary import path_measure

_MOST_ALONE = 30
_CAPTIONS = {
    "accuracy": "Share of samples predicted rightly",
    "AUC": "Share of pairs of samples in the right order, each of one label holder and fold",
    "R²": "Share of the variance explained: 0 is what the mean alone explains",
    "mean squared error": "Mean squared error: less is better",
    "mean loss": "Mean loss: less is better",
}
#: Looks of bars: federated, central, alone.
OURS, CENTRAL, ALONE = "f0", "f2", "grey"
_MAJORITY = "always the most frequent class"


@dataclass(frozen=True)
class Score:
    """A bar: whose score it is, the score (None: there is none), and a remark beside it.

    ``estimate`` says whether it is one model's on samples that stand for others, with an interval.
    """

    who: str
    value: float | None
    look: str
    remark: str = ""
    estimate: bool = True


@dataclass(frozen=True)
class Scores:
    """All that the section shows.

    Attributes
    ----------
    samples
        On how many the accuracies were found; None: unknown, or they are no accuracies.
    majority
        Accuracy of naming the most frequent class every time; None: unknown.
    """

    told: str
    rows: list[Score]
    measure: str = "accuracy"
    samples: int | None = None
    majority: float | None = None
    notes: list[str] = field(default_factory=list)


def accuracy_section(source: Source) -> Html:
    """Federated, central and alone where a judge had the pooled table, else what folds told."""
    summary = source.summary
    if source.is_comparison:
        return scores_section(_compared(summary))
    if summary.get("accuracy"):
        return scores_section(_judged(summary["accuracy"]))
    path = summary.get("path")
    if path and "mean_score" in path[0]:
        return scores_section(_folds(source))
    told = (
        "Not known here: nobody has the pooled table, and no samples were left out. Set folds = 5 "
        "under [solver] to have the parties score samples left out, in the same run; weft compare, "
        "for tables in one hand, holds the model against central training and each party alone."
    )
    return section("accuracy", "Accuracy", el("p", told))


def scores_section(scores: Scores) -> Html:
    if not scores.rows:
        return section("accuracy", "Accuracy", el("p", scores.told))
    share = scores.measure == "accuracy"
    known = [row.value for row in scores.rows if row.value is not None]
    most = 1.0 if scores.measure in GAINS else max([*known, 0.0]) or 1.0
    rows = list(scores.rows)
    if scores.majority is not None:
        # A fact about the samples, not an estimate from them.
        rows.append(Score(_MAJORITY, scores.majority, "base", estimate=False))
    lines = [
        [
            join([row.who, " ", el("small", row.remark), _bar(row, scores, most)]),
            _figure(row, scores),
        ]
        for row in rows
    ]
    title = "accuracy (95 % interval)" if share and scores.samples else scores.measure
    grid = table(["who", title], lines, caption=_CAPTIONS[scores.measure], numbers=(1,), cls="bars")
    notes = [*scores.notes, *_how_to_read(scores)]
    return section(
        "accuracy", "Accuracy", el("p", scores.told), grid, *(el("p", n, cls="note") for n in notes)
    )


def _figure(row: Score, scores: Scores) -> str:
    if row.value is None:
        return "–"
    if scores.measure != "accuracy":
        return f"{row.value:.4g}"
    return with_interval(row.value, scores.samples if row.estimate else None)


def _bar(row: Score, scores: Scores, most: float) -> Html:
    """A bar with its interval, and a dashed line where the most frequent class would end."""

    def place(value: float) -> str:
        return f"{100 * min(max(value / most, 0.0), 1.0):.2f}%"

    parts = [el("rect", width=place(row.value or 0.0), height="100%", cls=f"{row.look} tall")]
    if scores.majority is not None:
        x = place(scores.majority)
        parts.append(el("line", x1=x, x2=x, y1="0", y2="100%", cls="majority"))
    if row.value is not None and scores.samples and row.estimate:
        low, high = map(place, wilson_interval(row.value, scores.samples))
        parts.append(el("line", x1=low, x2=high, y1="50%", y2="50%", cls="whisker"))
        parts += [el("line", x1=x, x2=x, y1="25%", y2="75%", cls="whisker") for x in (low, high)]
    return el("svg", *parts, cls="bar", aria_hidden="true")


def _how_to_read(scores: Scores) -> list[str]:
    if scores.measure != "accuracy" or not scores.samples:
        return []
    dashed = " The dashed line is the most frequent class." if scores.majority is not None else ""
    return [
        f"Intervals are Wilson's, for {scores.samples:,} samples: on other samples of the same "
        f"kind an accuracy could be anywhere in it.{dashed}"
    ]


def _judged(known: dict[str, Any]) -> Scores:
    rows = [
        Score("federated", known["federated"], OURS),
        Score("central, on the pooled table", known["central"], CENTRAL),
        *_alone(known["alone"]),
    ]
    # Folders of earlier versions know neither of how many samples nor of the majority.
    return Scores(
        capital(f"on {known['where']}"),
        rows,
        samples=known.get("samples"),
        majority=known.get("majority"),
    )


def _alone(scores: dict[str, float | None]) -> list[Score]:
    """The best parties first, last those whose score there is not."""
    ranked = sorted(scores.items(), key=lambda pair: math.inf if pair[1] is None else -pair[1])
    return [Score(f"{name}, alone", value, ALONE) for name, value in ranked[:_MOST_ALONE]]


def _compared(summary: dict[str, Any]) -> Scores:
    settings = summary["settings"]
    regression = get_loss(settings["loss"], **settings["loss_parameters"]).task == "regression"
    key, measure = ("r2", "R²") if regression else ("accuracy", "accuracy")
    tested = summary["test_samples"]
    rows: list[Score] = []
    for row in summary["results"]:
        scores = row["test"] or row["train"] or {}
        if row["kind"] == "baseline" and row["algorithm"] != "central":
            if not summary.get("alone"):
                rows.append(Score(row["algorithm"], scores.get(key), ALONE))
            continue
        central = row["algorithm"] == "central"
        name = "central, on the pooled table" if central else row["algorithm"]
        if row["kind"] == "pooled":
            name += " (pooled)"
        remark = "≈ best" if row.get("within_noise") else ""
        rows.append(Score(name, scores.get(key), CENTRAL if central else OURS, remark))
    alone = {name: scores[key] for name, scores in (summary.get("alone") or {}).items()}
    where = f"{tested:,} samples held out" if tested else "the samples that were trained on"
    return Scores(
        f"On {where}.",
        [*rows, *_alone(alone)],
        measure,
        samples=None if regression else tested or summary["samples"],
        majority=summary.get("majority"),
    )


def _folds(source: Source) -> Scores:
    """Scores of the folds, by λ."""
    summary = source.summary
    measure = path_measure(summary)
    rows = []
    for row in summary["path"]:
        score = row["mean_score"]
        if score is not None and measure not in GAINS:
            score = -score
        mark = ", released" if row["chosen"] else ""
        look = OURS if row["chosen"] else ALONE
        rows.append(Score(f"λ = {row['lambda']:g}{mark}", score, look))
    told = (
        f"{capital(summary['choice'])} Folds of the samples were left out in turn, inside the "
        "protocol. What central training would reach is not known here, since nobody has the "
        "pooled table; the certificate bounds how far its loss could be below."
    )
    majority = summary.get("majority")
    unknown = (
        "How frequent the classes are only the parties know, so that nothing is said here of what "
        "naming the most frequent one every time would reach: ask them before you call an accuracy "
        "good."
    )
    return Scores(
        told,
        rows,
        measure,
        samples=summary["federation"]["samples"] if measure == "accuracy" else None,
        majority=majority if measure == "accuracy" else None,
        notes=[unknown] if measure == "accuracy" and majority is None else [],
    )
