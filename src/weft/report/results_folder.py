"""A run's results folder, which is there whole or not at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from weft.federation.local_federation import Trained
from weft.federation.model import Model
from weft.report.fold_scores_by_lambda_plot import plot_path
from weft.report.history_table import history_frame, write_history
from weft.report.json_safe_and_rounded_values import finite, json_text
from weft.report.lambda_path import edge_remark, has_path, path_frame
from weft.report.page import add_page
from weft.report.summary import summarise, to_markdown
from weft.solvers.run_settings import Settings

if TYPE_CHECKING:
    from weft.federation.release.reader_standard_errors import Inference


def write_results(
    folder: Path,
    trained: Trained,
    settings: Settings,
    *,
    name: str,
    config: Path | None = None,
    **more: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Write model, history, summary and report of a run into a folder that exists.

    A run over several λ or folds also gets a table of them, ``path.csv``, and its plot; one with
    inference a coefficient table, ``coefficients.csv`` and ``coefficients.tex``.

    Parameters
    ----------
    more
        What else `summarise` shall know.

    Returns
    -------
    summary, remarks
        The summary as plain values, and sentences about what could not be written, or
        should be tried.
    """
    result = trained.result
    path = None
    if has_path(result):
        path = path_frame(result, settings.make_loss().task, settings.scoring)
    summary = summarise(trained, settings, name, encryption=trained.encryption, **more)
    history = history_frame(result.history)
    remarks = write_files(
        folder,
        trained.model,
        history,
        path,
        summary,
        settings,
        config,
        inference=trained.inference,
    )
    return summary, remarks


def write_files(
    folder: Path,
    model: Model | None,
    history: pd.DataFrame,
    path: pd.DataFrame | None,
    summary: dict[str, Any],
    settings: Settings,
    config: Path | None = None,
    *,
    inference: Inference | None = None,
) -> list[str]:
    """The same from what is known of a run elsewhere; None: whoever writes it gets no model.

    ``inference`` has its standard errors, which the summary then tells too.
    """
    title = summary["name"]
    if model is not None:
        judged = summary.get("evaluation")
        if judged is not None:
            model = replace(model, info={**model.info, "evaluation": _figures(judged)})
        model.save(folder / "model.npz")
    summary["inference"] = _inference(folder, inference)
    write_history(history, folder)
    # The report draws how loss and gap fell; the same as pictures costs more than a small run.
    remarks: list[str | None] = []
    if path is not None:
        task = settings.make_loss().task
        path.to_csv(folder / "path.csv", index=False)
        remarks.append(
            plot_path(
                path,
                folder / "path.png",
                title=title,
                task=task,
                scoring=settings.scoring,
                target=settings.gap,
            )
        )
        remarks.append(edge_remark(path))
    (folder / "summary.json").write_text(json_text(summary), encoding="utf-8")
    (folder / "summary.md").write_text(to_markdown(summary), encoding="utf-8")
    if config is not None:
        shutil.copyfile(config, folder / "config.toml")
    remarks.append(add_page(folder))
    if inference is not None:
        remarks.append(inference.why_not)
    return [remark for remark in remarks if remark]


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    """What whoever has a model file alone shall know of how well it predicts.

    Figures of all samples together: no counts, no curve, and nothing of groups and sites.
    """

    def told(part: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in part.items() if isinstance(one, dict) and "value" in one}

    models = [{"class": part["class"], **told(part)} for part in found["models"]]
    return {**told(found), "models": models}


def _inference(folder: Path, found: Inference | None) -> dict[str, Any] | None:
    """Write the coefficient table; what the summary tells of it."""
    if found is None:
        return None
    if found.summary is None:
        return {"why_not": found.why_not}
    found.summary.save(folder / "coefficients.csv")
    found.summary.save(folder / "coefficients.tex")
    told: dict[str, Any] = finite(found.summary.to_dict())
    return told
