"""A model card: what a model is, how good, from which data, and who saw what, as plain values.

A card goes with the model, to whoever gets it: so it says less than the summary of a run. Sizes of
single parties and of groups of samples, what was left out as too few, and the command with its
folders are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.federation.model import Model
from weft.solvers.algorithm_choice import ALGORITHMS

#: Of this form; a reader of cards can tell by it what to expect.
FORMAT = "weft model card 1"


def summary_beside(model: Path) -> dict[str, Any] | None:
    """The summary of the run that wrote a model file; None: there is none beside it."""
    path = model.with_name("summary.json")
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no summary of a run ({error}); remove it, or mend it") from None
    return found


def model_card(model: Model, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """The card; without a summary it says nothing of the data, the terms and who saw what.

    ``summary`` is as a submitter may read it.
    """
    card: dict[str, Any] = {"card": FORMAT, "model": _model(model), "certificate": _proof(model)}
    if summary is None:
        judged = model.info.get("evaluation")
        return card if judged is None else {**card, "evaluation": {"evaluation": judged}}
    named = {name: summary.get(name) for name in ("name", "stopped", "weft")}
    return {
        **card,
        "run": {**named, "settings": summary.get("settings"), "versions": summary.get("versions")},
        "data": _data(summary),
        "evaluation": {
            name: summary[name]
            for name in ("accuracy", "evaluation", "choice", "majority")
            if summary.get(name) is not None
        },
        "privacy": _privacy(summary),
        "notes": summary.get("notes"),
    }


def _model(model: Model) -> dict[str, Any]:
    classes = None if model.classes is None else model.classes.tolist()
    return {
        "kind": "regression" if classes is None else "classification",
        "loss": model.loss,
        "loss_parameters": dict(model.loss_parameters),
        "lambda": model.lam,
        "classes": classes,
        "threshold": model.info.get("threshold"),
        "blank_cells_count_as": model.missing,
        "intercept": model.intercept.tolist(),
        "coefficients": {
            name: column.tolist() for name, column in zip(model.features, model.coef.T, strict=True)
        },
        "columns": json.loads(model.transformation) if model.transformation else None,
        "fingerprint": model.fingerprint.hex(),
    }


def _proof(model: Model) -> dict[str, Any] | None:
    if not model.certificate:
        return None
    return {
        **model.certificate,
        "meaning": "the loss of this model on all data is at most gap times itself above the least "
        "that any model has, central training included",
    }


def _data(summary: Mapping[str, Any]) -> dict[str, Any]:
    federation = summary.get("federation") or {}
    told = ("kind", "parties", "samples", "features", "overlap")
    return {**{name: federation.get(name) for name in told}, "classes": summary.get("classes")}


def _privacy(summary: Mapping[str, Any]) -> dict[str, Any]:
    settings = summary.get("settings") or {}
    solver = ALGORITHMS.get(str(summary.get("solver")))
    return {
        "terms": summary.get("terms"),
        "cipher": settings.get("cipher"),
        "coordinator_saw": None if solver is None else solver.coordinator_sees,
        "parties_saw": None if solver is None else solver.parties_see,
        "exposure": summary.get("exposed"),
        "exposure_reached": summary.get("exposure_reached"),
        "readers": (summary.get("federation") or {}).get("recipients"),
    }
