"""The model's weights, the largest of each class, with the parties that hold their features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.federation.model import Model
from weft.report.number_format import count, digits
from weft.report.page.holdings_section import feature_groups
from weft.report.page.html_elements import Html, el, section
from weft.report.page.read_results_folder import Source

#: Weights that a page holds, at most, and of one class.
_MOST, _MOST_OF_CLASS, _FEWEST_OF_CLASS = 4000, 400, 25


def weights_of(source: Source) -> dict[str, Any] | None:
    """What the bars need, as plain values; None: there is no model in the folder.

    ``rows`` has a list for every class: number of the feature, weight in the units of training,
    and weight in original units, the largest of the former first.
    """
    model = source.model
    if model is None:
        return None
    scaled = model.coef / model.scaling[1]
    width = min(_MOST_OF_CLASS, max(_FEWEST_OF_CLASS, _MOST // len(scaled)))
    numbers: dict[int, int] = {}
    rows = []
    for trained, plain in zip(scaled, model.coef, strict=True):
        rows.append(
            [
                [numbers.setdefault(f, len(numbers)), digits(trained[f]), digits(plain[f])]
                for f in largest(trained, width).tolist()
            ]
        )
    groups = feature_groups(source)
    return {
        "classes": class_names(model),
        "names": [str(model.features[feature]) for feature in numbers],
        "total": len(model.features),
        "rows": rows,
        "scaled": is_scaled(model),
        "groups": None if groups is None else groups[0],
        "group": None if groups is None else [groups[1][feature] for feature in numbers],
        "parties": source.parties,
    }


def largest(weights: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Places of the weights that are furthest from zero, those first."""
    sizes = np.abs(weights)
    kept = np.arange(len(sizes))
    if len(sizes) > most:
        # Sorting millions to show a few would take seconds.
        kept = np.sort(np.argpartition(-sizes, most)[:most])
    ranked: NDArray[np.int64] = kept[np.argsort(-sizes[kept], kind="stable")]
    return ranked


def class_names(model: Model) -> list[str]:
    """One for every row of weights."""
    if model.classes is None:
        return ["response"]
    if len(model.classes) == 2:
        return [f"{model.classes[1]} against {model.classes[0]}"]
    # Of a softmax the weights of all classes add up to zero.
    others = "the mean of all" if model.loss == "softmax" else "the rest"
    return [f"{value} against {others}" for value in model.classes.tolist()]


def is_scaled(model: Model) -> bool:
    """Whether features were scaled each for itself; one factor for all rows changes no order."""
    factor = model.scaling[1]
    return bool(len(factor)) and not np.allclose(factor, factor[0], rtol=1e-9, atol=0.0)


def weights_section(source: Source, data: dict[str, Any] | None) -> Html:
    """The controls, and a place for the bars."""
    if data is None or source.is_comparison:
        told = (
            "A comparison keeps no model; weft train gives one."
            if source.is_comparison
            else "The model is not in this folder: it is sealed to those who get it."
        )
        return section("weights", "Weights", el("p", told))
    options = [el("option", name, value=str(at)) for at, name in enumerate(data["classes"])]
    units = [
        el("button", title, type="button", data_unit=key, aria_pressed=str(key == "1").lower())
        for key, title in (("1", "scaled units"), ("2", "original units"))
    ]
    controls = el(
        "div",
        el("label", "Find a feature or a party", for_="find-feature"),
        el("input", id="find-feature", type="search", autocomplete="off", spellcheck="false"),
        el("label", "Class", for_="class") if len(options) > 1 else "",
        el("select", *options, id="class", hidden=len(options) < 2),
        el("span", *units, cls="choice", role="group", aria_label="Units of weights")
        if data["scaled"]
        else "",
        cls="controls",
    )
    held = max(map(len, data["rows"]))
    some = "" if held >= data["total"] else f", the {held:,} largest of each class"
    told = f"{count(data['total'], 'feature')}{some}. " + (
        "In scaled units weights can be compared with each other: features were scaled each for "
        "itself before training."
        if data["scaled"]
        else "Features were not scaled each for itself: weights are per unit of the table."
    )
    return section(
        "weights",
        "Weights",
        el("p", told),
        controls,
        el("div", id="weights-bars", cls="weights"),
        el("p", id="weights-told", cls="note", role="status", aria_live="polite"),
        el("button", "Show more", type="button", id="weights-more", cls="plain", hidden=True),
    )
