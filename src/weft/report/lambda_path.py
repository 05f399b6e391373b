"""A path of λ as a table: losses, scores by fold, and which λ was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from weft.solvers.solver_interfaces_and_results import Result, Stage
from weft.solvers.solver_settings import Scoring

if TYPE_CHECKING:
    # A coordinator reports too, and loads no tile.
    from weft.data.tile import Task


#: What a score of folds is; all but the first two are told as minus what they are.
Measure = Literal["accuracy", "AUC", "mean squared error", "mean loss"]
#: Those of which more is better.
GAINS: tuple[Measure, ...] = ("accuracy", "AUC")


def has_path(result: Result) -> bool:
    """Whether a run has more to tell of its models than one certificate."""
    return len(result.stages) > 1 or any(stage.scores is not None for stage in result.stages)


def path_frame(result: Result, task: Task, scoring: Scoring | None = None) -> pd.DataFrame:
    """One row per λ, in the order in which they were trained, the largest first.

    ``lambda``; with folds ``mean_score``, ``std_score``, ``fold_1``, … and ``mean_loss`` of the
    samples left out; ``loss`` and ``gap`` of the certificate; ``iterations`` and ``round_trips``
    spent on this λ (the first also has those of matching and scaling); ``chosen``: whether this
    model was released. A score is an accuracy, or minus a mean squared error, or what ``scoring``
    says (an AUC is over pairs of samples of one label holder and fold), so that more is
    better, as everywhere in scikit-learn. Of a sealed run, in which nobody knows what is predicted
    rightly, it is minus a mean loss, of all folds together: it has neither ``std_score`` nor
    ``fold_1``, … A λ at which a party stayed away has no score.
    """
    stages = result.stages
    columns: dict[str, Any] = {"lambda": [stage.lam for stage in stages]}
    if any(stage.scores is not None for stage in stages):
        columns |= _scores(stages, task, scoring)
    ends = [0, *(stage.round_trips for stage in stages)]
    lambdas = [record.lam for record in result.history]
    columns |= {
        "loss": [sum(stage.certificate.primal) for stage in stages],
        "gap": [stage.certificate.gap for stage in stages],
        "iterations": [lambdas.count(stage.lam) for stage in stages],
        "round_trips": [end - begin for begin, end in pairwise(ends)],
        "chosen": [stage is result.stage for stage in stages],
    }
    return pd.DataFrame(columns)


def _scores(stages: Sequence[Stage], task: Task, scoring: Scoring | None) -> dict[str, Any]:
    folds = max(len(stage.fold_scores) for stage in stages)
    none = [np.nan] * folds
    found = [stage.qualities(task, scoring) or none for stage in stages]
    scores = pd.DataFrame(found, dtype=float)
    losses = pd.DataFrame([stage.fold_losses or none for stage in stages], dtype=float)
    by_fold: dict[str, Any] = {}
    # One score is of all folds, or of a share that was held out.
    if folds > 1:
        by_fold = {"std_score": scores.std(axis=1, ddof=0)}
        by_fold |= {f"fold_{fold + 1}": scores[fold] for fold in range(folds)}
    # Means of what there is: of few samples none may fall into a fold, which then has no score.
    return {"mean_score": scores.mean(axis=1), **by_fold, "mean_loss": losses.mean(axis=1)}


def has_scores(frame: pd.DataFrame) -> bool:
    """Whether folds were left out."""
    return "mean_score" in frame


def score_measure(
    mean_scores: Iterable[float | None], *, regression: bool, scoring: Scoring | None = None
) -> Measure:
    """What scores are: an accuracy is never below zero, and minus a loss always is."""
    if scoring in ("auc", "loss"):
        return "AUC" if scoring == "auc" else "mean loss"
    if regression:
        return "mean squared error"
    lost = any(score is not None and score < 0 for score in mean_scores)
    return "mean loss" if lost else "accuracy"


def fold_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that hold one fold's scores each; empty where nobody was told these."""
    return [str(name) for name in frame.columns if str(name).startswith("fold_")]


def chosen_row(frame: pd.DataFrame) -> Any | None:
    """The row of the model that is released; None: a party stayed away, and none of them is."""
    chosen = frame[frame["chosen"]]
    return None if chosen.empty else chosen.iloc[0]


def choice_sentence(frame: pd.DataFrame, task: Task, scoring: Scoring | None = None) -> str:
    """Which λ was released, of how many, and what speaks for it."""
    row = chosen_row(frame)
    if row is None:
        return "none of the models that were finished is released, but the one under way"
    of = f" of {len(frame)}" if len(frame) > 1 else ""
    if not has_scores(frame) or np.isnan(row["mean_score"]):
        return f"λ = {row['lambda']:g}{of} is released"
    measure = score_measure(frame["mean_score"], regression=task == "regression", scoring=scoring)
    spread = f" ± {row['std_score']:.2g}" if "std_score" in frame else ""
    if measure == "AUC":
        score = f"AUC {row['mean_score']:.3f}{spread}"
    elif measure == "accuracy":
        spread = f" ± {row['std_score']:.1%}" if spread else ""
        score = f"accuracy {row['mean_score']:.1%}{spread}"
    else:
        score = f"{measure} {-row['mean_score']:.4g}{spread}"
    verb = " was chosen:" if of else ":"
    folds = len(fold_columns(frame))
    over = f", over {folds} folds" if folds else ""
    return f"λ = {row['lambda']:g}{of}{verb} {score} on samples left out{over}"


def edge_remark(frame: pd.DataFrame) -> str | None:
    """A sentence when folds chose the first or the last λ of several, else None."""
    row = chosen_row(frame)
    if row is None or not has_scores(frame) or len(frame) < 2:
        return None
    chosen = row["lambda"]
    for end, further in ((frame["lambda"].max(), "larger"), (frame["lambda"].min(), "smaller")):
        if chosen == end:
            return f"no {further} λ than {chosen:g} was tried; one may predict better yet"
    return None
