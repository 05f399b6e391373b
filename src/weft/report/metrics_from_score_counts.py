"""How well a classifier predicts samples that folds left out, from counts of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from weft.array_types import Floats
from weft.report.bucketed_scores import Buckets, Figure, Z
from weft.report.calibration import calibration_of
from weft.report.score_interval import wilson_interval
from weft.solvers.held_out_score_counts import OTHER, HeldOutSums

#: Points of a curve at most.
_POINTS = 120
#: The share of samples with the highest scores that lift is of.
_TOP = 0.1
#: An AUC that buckets leave open by more than this says little.
_WIDE = 0.05


def evaluation_of(
    held_out: HeldOutSums, classes: Sequence[Any], sites: Sequence[str]
) -> dict[str, Any]:
    """All figures as plain values, ready for JSON.

    ``samples`` were left out, ``in_buckets`` of them are in counts of scores. A figure has
    ``value``, ``exact_to`` (by how much the width of buckets leaves it open), and ``low`` and
    ``high``, the ends of a 95 % interval. ``models`` has an entry for the positive class, or for
    each of several classes against the rest, ``groups`` one for every group.
    """
    counts, sums = held_out.everyone
    line = held_out.layout.line
    positive = [str(name) for name in (classes[1:] if len(classes) == 2 else classes)]
    models = [
        {"class": name, **_model(Buckets(line, counts[k], sums[k], (told[0], told[1])), held_out)}
        for k, (name, told) in enumerate(zip(positive, held_out.positive.tolist(), strict=True))
    ]
    if (
        len(models) == 1
        and models[0].get("calibration")
        and models[0]["samples"] == held_out.exact[0]
    ):
        # Of all samples together the mean is told by itself.
        mean = float(held_out.exact[6] / held_out.exact[0])
        models[0]["calibration"]["predicted"] = _figure(Figure(mean))
    found = {
        **_exact(held_out, counts),
        "in_buckets": int(counts[0].sum()),
        "threshold": held_out.threshold,
        "probabilities": held_out.probabilities,
        "leaf": held_out.layout.line.width,
        "models": models,
        "groups": [
            row for k in range(len(models)) for row in _groups(held_out, sites, k, positive)
        ],
    }
    return found


def _figure(figure: Figure) -> dict[str, Any]:
    return asdict(figure)


def _share(hits: float, samples: float, exact_to: float = 0.0) -> dict[str, Any] | None:
    """A share of samples with Wilson's interval, widened by what is left open."""
    if samples <= 0:
        return None
    low, high = wilson_interval(min(1.0, hits / samples), round(samples))
    return _figure(
        Figure(hits / samples, exact_to, max(0.0, low - exact_to), min(1.0, high + exact_to))
    )


def _exact(held_out: HeldOutSums, counts: Floats) -> dict[str, Any]:
    """What is known without buckets, with what naming the most frequent class would reach."""
    samples, right, *sums = held_out.exact.tolist()
    by_class = counts.sum(axis=1)
    shares = by_class[0] / by_class[0].sum() if len(counts) == 1 else by_class[:, 1]
    shares = shares / max(shares.sum(), 1.0 if len(counts) == 1 else 1e-12)
    shares = shares[shares > 0]
    found = {
        "samples": int(samples),
        "accuracy": _share(right, samples),
        "majority": float(shares.max()) if len(shares) else None,
        "loss": _mean(samples, *sums[:2]),
        "brier": None,
        "log_loss_of_shares": None,
        "brier_of_shares": None,
    }
    if held_out.probabilities and len(shares):
        found["brier"] = _mean(samples, *sums[2:4])
        found["log_loss_of_shares"] = float(-(shares * np.log(shares)).sum())
        whole = 1.0 - float((shares**2).sum())
        found["brier_of_shares"] = whole / 2 if len(counts) == 1 else whole
    return found


def _mean(samples: float, total: float, squares: float) -> dict[str, Any] | None:
    """A mean over samples with the interval of the normal distribution."""
    if samples < 1:
        return None
    mean = total / samples
    spread = max(squares / samples - mean**2, 0.0) / max(samples - 1.0, 1.0)
    reach = Z * float(np.sqrt(spread))
    return _figure(Figure(mean, 0.0, max(0.0, mean - reach), mean + reach))


def _model(buckets: Buckets, held_out: HeldOutSums) -> dict[str, Any]:
    """Everything about the scores of one class against the rest."""
    negative, positive = buckets.classes
    found: dict[str, Any] = {
        "samples": int(negative + positive),
        "positive": int(positive),
        "auc": None,
    }
    if not buckets.usable:
        return found
    found |= {
        "auc": _figure(buckets.auc),
        "average_precision": _figure(buckets.average_precision()),
        "ks": _figure(buckets.kolmogorov_smirnov()),
        "lift": _lift(buckets),
        "confusion": _confusion(buckets, held_out.threshold),
        "roc": _roc_points(buckets),
        "precision_recall": _precision_points(buckets),
        "calibration": asdict(calibration_of(buckets)) if held_out.probabilities else None,
    }
    return found


def _roc_points(buckets: Buckets) -> list[list[float]]:
    """False and true positive rates from the highest threshold down, both from 0 to 1."""
    rates = np.unique(np.round(buckets.roc[::-1], 12), axis=0)
    points: list[list[float]] = _thinned(rates).tolist()
    return points


def _precision_points(buckets: Buckets) -> list[list[float]]:
    """Recall and precision at every threshold at which anybody is found."""
    found = buckets.roc[::-1] * np.array(buckets.classes)
    some = found.sum(axis=1) > 0
    precision = found[some, 1] / found[some].sum(axis=1)
    points = np.stack([found[some, 1] / buckets.classes[1], precision], axis=1)
    _, first = np.unique(np.round(points, 12), axis=0, return_index=True)
    found_points: list[list[float]] = _thinned(points[np.sort(first)]).tolist()
    return found_points


def _thinned(points: Floats) -> Floats:
    if len(points) <= _POINTS:
        return points
    kept: Floats = points[np.linspace(0, len(points) - 1, _POINTS).astype(int)]
    return kept


def _lift(buckets: Buckets) -> dict[str, Any]:
    """How many times as frequent positives are among the samples with the highest scores."""
    classes = np.array(buckets.classes)
    shares = (buckets.roc * classes).sum(axis=1) / buckets.samples
    # An edge near that share, but not where buckets leave open who is above it.
    open_at = ((buckets.rates[1] - buckets.rates[0]) * classes).sum(axis=1) / buckets.samples
    at = int(np.argmin(np.abs(shares - _TOP) + open_at + (shares <= 0)))
    surely, at_most = (rates[at] * classes for rates in buckets.rates)
    least = surely[1] / max(surely[1] + at_most[0], 1.0)
    most = at_most[1] / max(at_most[1] + surely[0], 1.0)
    middle, exact_to = (least + most) / 2, (most - least) / 2
    prevalence = buckets.classes[1] / buckets.samples
    low, high = wilson_interval(min(1.0, middle), max(1, round(shares[at] * buckets.samples)))
    scaled = [max(0.0, low - exact_to), min(1.0, high + exact_to)]
    lift = Figure(middle / prevalence, exact_to / prevalence, *(x / prevalence for x in scaled))
    return {"share": float(shares[at]), **_figure(lift)}


def _confusion(buckets: Buckets, threshold: float) -> dict[str, Any]:
    """Counts at the edge of a leaf that is nearest to the threshold, and shares of them."""
    line = buckets.line
    at = line.nearest_edge(threshold)
    surely, at_most = buckets.rates
    classes = np.array(buckets.classes)
    (fp, tp), off = buckets.roc[at] * classes, (at_most[at] - surely[at]) * classes / 2
    (fn, tn), samples = (classes[1] - tp, classes[0] - fp), buckets.samples
    negative, positive = classes
    flagged, passed = tp + fp, fn + tn
    return {
        "score": float(line.edge(at)),
        "true_positives": float(tp),
        "false_positives": float(fp),
        "false_negatives": float(fn),
        "true_negatives": float(tn),
        "exact_to": [float(off[1]), float(off[0])],
        "sensitivity": _share(tp, positive, off[1] / positive),
        "specificity": _share(tn, negative, off[0] / negative),
        "precision": _share(tp, flagged, float(off.sum() / max(flagged, 1.0))),
        "negative_predictive_value": _share(tn, passed, float(off.sum() / max(passed, 1.0))),
        "accuracy": _share(tp + tn, samples, float(off.sum() / samples)),
        "majority": float(max(negative, positive) / samples),
    }


def _groups(
    held_out: HeldOutSums, sites: Sequence[str], model: int, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """The same by group, without curves, of one class against the rest.

    Of several classes nothing is said at the threshold, by which none of them is predicted.
    """
    found = []
    for variable, level, counts, sums in held_out.groups():
        if not counts.sum():
            continue
        buckets = Buckets(held_out.layout.line, counts[model], sums[model])
        row = _model(buckets, held_out)
        confusion = row.get("confusion") if len(classes) == 1 else None
        calibration = row.get("calibration")
        site = variable == "site" and (variable, level) not in _named(held_out)
        found.append(
            {
                "variable": variable,
                "group": sites[int(level)] if site else level,
                "class": classes[model],
                "samples": row["samples"],
                "positive": row["positive"],
                "auc": row["auc"],
                "accuracy": None if confusion is None else confusion["accuracy"],
                "majority": None if confusion is None else confusion["majority"],
                "predicted": None if calibration is None else calibration["predicted"],
                "observed": None if calibration is None else calibration["observed"],
                "slope": None if calibration is None else calibration["slope"],
            }
        )
    return found


def _named(held_out: HeldOutSums) -> set[tuple[str, str]]:
    """Groups by columns, of which one may be called like that of the sites."""
    return {
        (name, level)
        for name, levels in held_out.layout.variables
        if levels[-1] == OTHER
        for level in levels
    }


def width_remark(evaluation: dict[str, Any]) -> str | None:
    """A sentence where buckets are so wide that an AUC says little, else None."""
    wide = [one for one in evaluation["models"] if one["auc"] and one["auc"]["exact_to"] > _WIDE]
    if not wide:
        return None
    return (
        "buckets of scores are wide, since label holders have few samples, or their ledgers keep "
        "counts apart from those of a run with nearly the same model: judge one model, in one run"
    )


def headline(evaluation: dict[str, Any]) -> str:
    """The figures that matter most, in one sentence."""
    models = [one for one in evaluation["models"] if one["auc"] is not None]
    parts = []
    if len(models) == 1:
        parts.append(f"AUC {shown(models[0]['auc'])}")
    elif models:
        mean = sum(one["auc"]["value"] for one in models) / len(models)
        parts.append(f"AUC {mean:.3f}, the mean over classes against the rest")
    if evaluation["accuracy"] is not None:
        baseline = evaluation["majority"]
        beside = "" if baseline is None else f"; the most frequent class alone: {baseline:.1%}"
        parts.append(f"accuracy {shown(evaluation['accuracy'], percent=True)}{beside}")
    if evaluation["brier"] is not None:
        parts.append(f"Brier {shown(evaluation['brier'])}, log-loss {shown(evaluation['loss'])}")
    if len(models) == 1 and models[0]["calibration"] and models[0]["calibration"]["slope"]:
        parts.append(f"calibration slope {shown(models[0]['calibration']['slope'], digits=2)}")
    return f"on samples left out: {'; '.join(parts)}"


def shown(figure: dict[str, Any] | None, *, percent: bool = False, digits: int = 3) -> str:
    """A figure with its interval, and what buckets leave open where that shows in its digits."""
    if figure is None:
        return "–"
    times, sign = (100.0, " %") if percent else (1.0, "")
    places = 1 if percent else digits
    text = f"{times * figure['value']:.{places}f}{sign}"
    if figure["low"] is not None:
        text += f" ({times * figure['low']:.{places}f}–{times * figure['high']:.{places}f})"
    if times * figure["exact_to"] >= 0.5 * 10.0**-places:
        text += f", exact to ±{times * figure['exact_to']:.{places}f}"
    return text
