"""How well the model predicts samples that folds left out: curves, figures, groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.report.metrics_from_score_counts import shown, width_remark
from weft.report.number_format import capital, count
from weft.report.page.html_elements import Html, el, join, section, table
from weft.report.page.read_results_folder import Source

#: Size of a plot in its own units, and the room for words at its left and below.
_SIDE, _LEFT, _BELOW, _ABOVE = 260, 44, 40, 10


def evaluation_section(source: Source) -> Html:
    """Empty where nobody counted scores of samples left out."""
    found = None if source.is_comparison else source.summary.get("evaluation")
    if not found:
        return Html()
    models = [model for model in found["models"] if model["auc"] is not None]
    told = (
        f"{count(found['samples'], 'sample')} were left out; a model trained without it "
        "predicted each. Label holders counted scores in buckets and added the counts "
        "up under masks; nobody saw another's score."
    )
    parts: list[object] = [el("p", told)]
    if len(models) == 1:
        parts += [_plots(models[0], found), _figures(models[0], found)]
        parts += [_confusion(models[0], found), _groups(found)]
    else:
        parts += [_whole(found), _by_class(models), _groups_by_class(found)]
    parts += [el("p", said, cls="note") for said in _notes(found)]
    return section("evaluation", "Prediction", *parts)


def evaluation_facts(found: dict[str, Any]) -> list[tuple[str, object]]:
    """The figures for the head of the page, the baseline beside every accuracy."""
    models = [model for model in found["models"] if model["auc"] is not None]
    facts: list[tuple[str, object]] = []
    if len(models) == 1:
        facts.append(("AUC (95 % interval)", shown(_rounded(models[0]["auc"]))))
    elif models:
        mean = sum(model["auc"]["value"] for model in models) / len(models)
        facts.append(("mean AUC, each class against the rest", f"{mean:.3f}"))
    if found["accuracy"] is not None:
        facts.append(("accuracy (95 % interval)", shown(found["accuracy"], percent=True)))
    if found["majority"] is not None:
        facts.append(("always the most frequent class", f"{found['majority']:.1%}"))
    if found["brier"] is not None:
        facts.append(("Brier score", shown(found["brier"])))
    if len(models) == 1 and models[0]["calibration"]:
        slope = models[0]["calibration"]["slope"]
        if slope is not None:
            facts.append(("calibration slope", shown(_rounded(slope), digits=2)))
    return facts


def _rounded(figure: dict[str, Any]) -> dict[str, Any]:
    """Without what buckets leave open, which the section tells."""
    return {**figure, "exact_to": 0.0}


def _notes(found: dict[str, Any]) -> list[str]:
    notes = [
        "Intervals hold the truth in 95 of 100 such studies: DeLong's for the AUC, Wilson's for "
        "shares, widened by what the width of buckets leaves open, which is said where it shows in "
        "the digits. They do not know that the folds' models have samples in common."
    ]
    missing = found["samples"] - found["in_buckets"]
    if missing > 0:
        notes.append(
            f"{count(missing, 'sample')} are in no bucket, since their label holders have too few "
            "in all or of some group; they count in accuracy, loss and Brier score only."
        )
    if remark := width_remark(found):
        notes.append(capital(remark))
    return notes


# ── pictures ──────────────────────────────────────────────────────────────────────────────────


def _plots(model: dict[str, Any], found: dict[str, Any]) -> Html:
    confusion = model["confusion"]
    rates = [
        1.0 - confusion["specificity"]["value"] if confusion["specificity"] else 0.0,
        confusion["sensitivity"]["value"] if confusion["sensitivity"] else 0.0,
    ]
    roc = _plot(
        "ROC curve",
        "false positive rate",
        "true positive rate",
        [_diagonal(), _line(model["roc"]), _dot(*rates, cls="mark")],
        f"AUC {shown(model['auc'])}. The dot is the threshold.",
    )
    prevalence = model["positive"] / model["samples"]
    level = _line([[0.0, prevalence], [1.0, prevalence]], cls="chance")
    precision = _plot(
        "Precision and recall",
        "recall",
        "precision",
        [level, _line(model["precision_recall"])],
        f"Average precision {shown(model['average_precision'])}; without a model {prevalence:.3f}.",
    )
    plots = [roc, precision]
    if model["calibration"]:
        plots.insert(1, _calibration_plot(model["calibration"]))
    return el("div", *plots, cls="plots")


def _calibration_plot(known: dict[str, Any]) -> Html:
    marks: list[Html] = [_diagonal()]
    marks.append(_line([[p["predicted"], p["observed"]] for p in known["curve"]], cls="thin"))
    for point in known["curve"]:
        x = _x(point["predicted"])
        whisker = {"y1": _y(point["low"]), "y2": _y(point["high"]), "cls": "whisker"}
        marks.append(el("line", x1=x, x2=x, **whisker))
        if point["exact_to"] >= 0.005:
            y = _y(point["observed"])
            ends = (max(0.0, point["predicted"] - point["exact_to"]),
                    min(1.0, point["predicted"] + point["exact_to"]))  # fmt: skip
            marks.append(el("line", x1=_x(ends[0]), x2=_x(ends[1]), y1=y, y2=y, cls="whisker"))
        marks.append(_dot(point["predicted"], point["observed"], size=3 + 5 * point["share"]))
    told = (
        f"Mean predicted {shown(known['predicted'], percent=True)}, observed "
        f"{shown(known['observed'], percent=True)}."
    )
    return _plot("Calibration", "predicted probability", "observed share", marks, told)


def _plot(title: str, across: str, up: str, marks: Sequence[Html], told: str) -> Html:
    """A square from 0 to 1 on either side."""
    ticks: list[Html] = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _x(value), _y(value)
        ticks.append(el("line", x1=x, x2=x, y1=_y(0), y2=_y(1), cls="rule"))
        ticks.append(el("line", x1=_x(0), x2=_x(1), y1=y, y2=y, cls="rule"))
        ticks.append(el("text", f"{value:g}", x=x, y=_y(0) + 15, text_anchor="middle"))
        ticks.append(el("text", f"{value:g}", x=_x(0) - 6, y=float(y) + 4, text_anchor="end"))
    middle = _y(0.5)
    titles = [
        el("text", across, x=_x(0.5), y=_y(0) + 33, text_anchor="middle", cls="axis"),
        el("text", up, x=0, y=0, transform=f"translate(11 {middle}) rotate(-90)",
           text_anchor="middle", cls="axis"),
    ]  # fmt: skip
    width, height = _LEFT + _SIDE + 12, _ABOVE + _SIDE + _BELOW
    picture = el(
        "svg",
        *ticks,
        *titles,
        *marks,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"{title}. {told}",
    )
    caption = el("figcaption", el("strong", f"{title}."), el("span", f" {told}"))
    return el("figure", picture, caption, cls="plot")


def _x(value: float) -> float:
    return round(_LEFT + _SIDE * min(max(value, 0.0), 1.0), 2)


def _y(value: float) -> float:
    return round(_ABOVE + _SIDE * (1.0 - min(max(value, 0.0), 1.0)), 2)


def _line(points: Sequence[Sequence[float]], cls: str = "curve") -> Html:
    path = " ".join(f"{_x(x)},{_y(y)}" for x, y in points)
    return el("polyline", points=path, cls=cls)


def _diagonal() -> Html:
    return _line([[0.0, 0.0], [1.0, 1.0]], cls="chance")


def _dot(x: float, y: float, *, size: float = 4.0, cls: str = "dot") -> Html:
    return el("circle", cx=_x(x), cy=_y(y), r=round(size, 2), cls=cls)


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def _figures(model: dict[str, Any], found: dict[str, Any]) -> Html:
    """Every figure with its interval, what buckets leave open, and what it is held against."""
    lift, calibration = model["lift"], model["calibration"]
    prevalence = model["positive"] / model["samples"]
    rows = [
        _row("AUC", model["auc"], "0.5 by chance"),
        _row("average precision", model["average_precision"], f"{prevalence:.3f} by chance"),
        _row("Kolmogorov–Smirnov", model["ks"], "0 by chance"),
        _row(f"lift, highest {lift['share']:.0%} of scores", lift, "1 by chance", digits=2),
        _row("accuracy", found["accuracy"], _majority(found["majority"]), percent=True),
    ]
    if found["brier"] is not None:
        rows.append(_row("Brier score", found["brier"], _shares(found["brier_of_shares"])))
        rows.append(_row("log-loss", found["loss"], _shares(found["log_loss_of_shares"])))
    else:
        rows.append(_row("mean loss", found["loss"], ""))
    if calibration is not None:
        if calibration["slope"] is not None:
            rows.append(_row("calibration slope", calibration["slope"], "1 is right", digits=2))
        rows.append(_row("calibration intercept", calibration["intercept"], "0 is right", digits=2))
    titles = ["figure", "value", "95 % interval", "exact to", "held against"]
    return table(titles, rows, caption="On samples left out", numbers=(1, 2, 3))


def _row(
    name: str,
    figure: dict[str, Any] | None,
    against: str,
    *,
    percent: bool = False,
    digits: int = 3,
) -> list[object]:
    if figure is None:
        return [name, "–", "–", "–", against]
    times, sign, places = (100.0, " %", 1) if percent else (1.0, "", digits)
    low, high = figure["low"], figure["high"]
    between = "–" if low is None else f"{times * low:.{places}f}–{times * high:.{places}f}"
    open_by = times * figure["exact_to"]
    return [
        name,
        f"{times * figure['value']:.{places}f}{sign}",
        between,
        f"±{open_by:.{places}f}" if open_by >= 0.5 * 10.0**-places else "all digits",
        against,
    ]


def _majority(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}, the most frequent class"


def _shares(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} from the shares of classes alone"


def _confusion(model: dict[str, Any], found: dict[str, Any]) -> Html:
    known = model["confusion"]
    score = known["score"]
    if found["probabilities"] and math.isfinite(score):
        where = f"a probability of {1.0 / (1.0 + math.exp(-score)):.3f}"
    else:
        where = f"a score of {score:.3f}"
    up, down = known["exact_to"]
    rows = [
        [f"is {model['class']}", _cell(known["true_positives"], up),
         _cell(known["false_negatives"], up), shown(known["sensitivity"], percent=True)],
        ["is not", _cell(known["false_positives"], down), _cell(known["true_negatives"], down),
         shown(known["specificity"], percent=True)],
        ["of these right", shown(known["precision"], percent=True),
         shown(known["negative_predictive_value"], percent=True),
         shown(known["accuracy"], percent=True)],
    ]  # fmt: skip
    grid = table(
        ["", f"predicted {model['class']}", "predicted not", "found rightly"],
        rows,
        caption=f"Confusion matrix from {where} on",
        numbers=(1, 2, 3),
    )
    note = f"The most frequent class alone would be right in {known['majority']:.1%}."
    return join([grid, el("p", note, cls="note")])


def _cell(samples: float, open_by: float) -> str:
    return f"{samples:,.0f}" if open_by < 0.5 else f"{samples:,.0f} ± {open_by:,.0f}"


def _groups(found: dict[str, Any]) -> Html:
    if not found["groups"]:
        return Html()
    rows = [
        [
            f"{row['variable']}: {row['group']}",
            f"{row['samples']:,}",
            shown(row["auc"]),
            shown(row["accuracy"], percent=True),
            "–" if row["majority"] is None else f"{row['majority']:.1%}",
            "–" if row["predicted"] is None else f"{row['predicted']['value']:.1%}",
            shown(row["observed"], percent=True),
            shown(row["slope"], digits=2),
        ]
        for row in found["groups"]
    ]
    titles = ["group", "samples", "AUC", "accuracy", "most frequent class", "mean predicted",
              "observed", "calibration slope"]  # fmt: skip
    return table(titles, rows, caption="By group, at the threshold", numbers=range(1, len(titles)))


def _groups_by_class(found: dict[str, Any]) -> Html:
    """Groups of more than two classes."""
    if not found["groups"]:
        return Html()
    rows = [
        [
            f"{row['variable']}: {row['group']}",
            row["class"],
            f"{row['samples']:,}",
            f"{row['positive']:,}",
            shown(row["auc"]),
            shown(row["slope"], digits=2),
        ]
        for row in found["groups"]
    ]
    titles = ["group", "class", "samples", "of the class", "AUC", "calibration slope"]
    caption = "By group, each class against the rest"
    return table(titles, rows, caption=caption, numbers=range(2, len(titles)))


def _whole(found: dict[str, Any]) -> Html:
    rows = [_row("accuracy", found["accuracy"], _majority(found["majority"]), percent=True)]
    if found["brier"] is not None:
        rows.append(_row("Brier score", found["brier"], _shares(found["brier_of_shares"])))
    against = _shares(found["log_loss_of_shares"]) if found["brier"] is not None else ""
    name = "log-loss" if found["brier"] is not None else "mean loss"
    rows.append(_row(name, found["loss"], against))
    titles = ["figure", "value", "95 % interval", "exact to", "held against"]
    return table(titles, rows, caption="On samples left out", numbers=(1, 2, 3))


def _by_class(models: list[dict[str, Any]]) -> Html:
    rows = [
        [
            model["class"],
            f"{model['positive']:,}",
            shown(model["auc"]),
            shown(model["average_precision"]),
            "–" if not model["calibration"] else shown(model["calibration"]["slope"], digits=2),
        ]
        for model in models
    ]
    titles = ["class", "samples", "AUC", "average precision", "calibration slope"]
    return table(titles, rows, caption="Each class against the rest", numbers=range(1, 5))
