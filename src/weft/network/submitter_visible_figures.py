"""What a submitter gets of a summary: every figure that leaves the coordinator is listed here.

A list has the shape of the summary. What it does not name, at whatever depth, becomes None: a
figure that is added to a summary stays with the coordinator until somebody lists it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.report.json_safe_and_rounded_values import rounded
from weft.solvers.held_out_evaluation_settings import MOST_FOLDS

if TYPE_CHECKING:
    import pandas as pd

#: Exact counts are sums of sizes of parties' tables, in runs that match samples.
_BYTES = ("bytes_down", "bytes_up")


@dataclass(frozen=True)
class Each:
    """The same for all parts of a list, or of a dict whose keys are names, not figures."""

    told: Any


def exact(value: Any) -> Any:
    """A single value, or a list of such; what has named parts must be listed part by part."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    return None if isinstance(value, dict) else value


def rough(value: Any) -> Any:
    """A size or a time with two digits: exact ones would tell how large tables and groups are."""
    return None if value is None or isinstance(value, dict | list) else rounded(value)


def own(value: Any) -> Any:
    """What the submitter itself, or the parties' terms, said: as it is."""
    return value


def told_of(value: Any, told: Any) -> Any:
    """What may be told of a value, by its list."""
    if isinstance(told, Each):
        if isinstance(value, list):
            return [told_of(item, told.told) for item in value]
        if isinstance(value, dict):
            return {key: told_of(item, told.told) for key, item in value.items()}
        return None
    if isinstance(told, Mapping):
        if not isinstance(value, dict):
            return None
        return {
            key: told_of(item, told[key]) if key in told else None for key, item in value.items()
        }
    return told(value)


_COST = {
    "round_trips": exact,
    **dict.fromkeys((*_BYTES, "compute_seconds", "wall_seconds"), rough),
}
#: Columns of a table of λ.
PATH = (
    *("lambda", "mean_score", "std_score", "mean_loss", "loss", "gap", "iterations"),
    *("round_trips", "chosen", *(f"fold_{fold}" for fold in range(1, MOST_FOLDS + 1))),
)
_PROOF = dict.fromkeys(
    ("iteration", "loss", "dual", "gap", "loss_by_class", "dual_by_class"), exact
)

#: Columns of a history.
HISTORY = (
    *("iteration", "present", "round_trips", *_BYTES, "compute_seconds", "wall_seconds"),
    *("primal", "dual", "gap", "certified_at", "loss_estimate", "gap_estimate", "lam"),
)

_FIGURE = dict.fromkeys(("value", "exact_to", "low", "high"), exact)
_CONFUSION = {
    **dict.fromkeys(("score", "majority"), exact),
    **dict.fromkeys(
        ("true_positives", "false_positives", "false_negatives", "true_negatives"), rough
    ),
    "exact_to": Each(rough),
    **dict.fromkeys(
        ("sensitivity", "specificity", "precision", "negative_predictive_value", "accuracy"),
        _FIGURE,
    ),
}
_CURVE = dict.fromkeys(("predicted", "exact_to", "observed", "low", "high", "share"), exact)
_CALIBRATION = {
    "curve": Each(_CURVE),
    **dict.fromkeys(("predicted", "observed", "intercept", "slope"), _FIGURE),
}
#: Shares and their intervals; how many samples there are, with two digits.
_EVALUATION = {
    **dict.fromkeys(("samples", "in_buckets"), rough),
    **dict.fromkeys(("accuracy", "loss", "brier"), _FIGURE),
    **dict.fromkeys(("majority", "log_loss_of_shares", "brier_of_shares"), exact),
    **dict.fromkeys(("threshold", "probabilities", "leaf"), exact),
    "models": Each(
        {
            "class": exact,
            **dict.fromkeys(("samples", "positive"), rough),
            **dict.fromkeys(("auc", "average_precision", "ks"), _FIGURE),
            "lift": {"share": exact, **_FIGURE},
            "confusion": _CONFUSION,
            **dict.fromkeys(("roc", "precision_recall"), exact),
            "calibration": _CALIBRATION,
        }
    ),
    "groups": Each(
        {
            **dict.fromkeys(("variable", "group", "class", "majority"), exact),
            **dict.fromkeys(("samples", "positive"), rough),
            **dict.fromkeys(("auc", "accuracy", "predicted", "observed", "slope"), _FIGURE),
        }
    ),
}

#: Of a linear run. How many values the coordinator added follows from sizes of groups, so that of
#: encryption only seconds are told.
LINEAR: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("name", "stopped", "solver", "lambda", "choice", "iterations"),
            *("exposed", "exposure_reached", "exposed_parties"),
        ),
        exact,
    ),
    "path": Each(dict.fromkeys(PATH, exact)),
    "evaluation": _EVALUATION,
    "certificate": _PROOF,
    "estimate": _PROOF,
    "cost": _COST,
    "phases": Each({"calls": exact, **dict.fromkeys((*_BYTES, "slowest", "total"), rough)}),
    "encryption": {"coordinator": {"seconds": rough}},
    "federation": {
        **dict.fromkeys(("kind", "parties", "features", "overlap", "recipients"), exact),
        # A submitter's own min_batch decides which groups of samples they count.
        **dict.fromkeys(("samples", "left_out"), rough),
    },
    "settings": own,
    "terms": own,
    **dict.fromkeys(("classes", "gone", "notes", "remarks", "command", "weft"), exact),
    "versions": Each(exact),
}


def listed(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A table without columns that are not listed."""
    return table[[name for name in table.columns if name in columns]]


def is_rough(name: str, *, exact_bytes: bool = False) -> bool:
    """Whether a figure of an iteration is told with two digits, by its name."""
    return name.endswith("seconds") or (name in _BYTES and not exact_bytes)


def roughened(history: pd.DataFrame, *, exact_bytes: bool = False) -> pd.DataFrame:
    """A history with two digits of what would tell sizes of tables."""
    for name in history.columns:
        if is_rough(name, exact_bytes=exact_bytes):
            history[name] = history[name].map(rounded)
    return history
