"""A run's results folder, which is there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd

from weft.algorithms.settings import Settings
from weft.errors import ConfigError
from weft.federation import Trained
from weft.model import Model
from weft.report.history import history_frame, write_history
from weft.report.path import edge_remark, has_path, path_frame
from weft.report.path_plot import plot_path
from weft.report.plots import plot_convergence
from weft.report.summary import summarise, to_markdown
from weft.storage import StorageError


def refuse_existing(folder: Path) -> None:
    """Stop before any work when the folder holds something, or cannot be a folder."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise ConfigError(
            f"the output folder {folder} exists and is not empty; name another one with --out, or "
            "delete it first"
        )


@contextmanager
def building(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """A draft folder beside ``folder`` that takes its place when the block ends without error.

    Parameters
    ----------
    folder
        Where the result shall be; parents are made as needed.
    replace
        Take the place of a folder that is there already.
    """
    if not replace:
        refuse_existing(folder)
    draft = folder.with_name(f".{folder.name}.{uuid4().hex}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        yield draft
        _move(draft, folder)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror or error}); check the folder's "
            "permissions and free space"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, folder: Path) -> None:
    if not folder.exists():
        os.replace(draft, folder)
        return
    # A folder cannot replace a full one in one step: the old one steps aside first.
    old = folder.with_name(f".{folder.name}.{uuid4().hex}.old")
    os.replace(folder, old)
    os.replace(draft, folder)
    shutil.rmtree(old)


def write_results(
    folder: Path, trained: Trained, settings: Settings, *, name: str, config: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Write model, history, plot and summary of a run into a folder that exists.

    A run over several λ or folds also gets a table of them, ``path.csv``, and its plot.

    Returns
    -------
    summary, remarks
        The summary as plain values, and sentences about what could not be written, or
        should be tried.
    """
    result = trained.result
    path = path_frame(result, settings.make_loss().task) if has_path(result) else None
    summary = summarise(trained, settings, name)
    history = history_frame(result.history)
    return summary, write_files(folder, trained.model, history, path, summary, settings, config)


def write_files(
    folder: Path,
    model: Model | None,
    history: pd.DataFrame,
    path: pd.DataFrame | None,
    summary: dict[str, Any],
    settings: Settings,
    config: Path | None = None,
) -> list[str]:
    """The same from what is known of a run elsewhere; None: whoever writes it gets no model."""
    title = summary["name"]
    if model is not None:
        model.save(folder / "model.npz")
    write_history(history, folder)
    remarks = [
        plot_convergence(history, folder / "convergence.png", title=title, target=settings.gap)
    ]
    if path is not None:
        task = settings.make_loss().task
        path.to_csv(folder / "path.csv", index=False)
        remarks.append(
            plot_path(path, folder / "path.png", title=title, task=task, target=settings.gap)
        )
        remarks.append(edge_remark(path))
    (folder / "summary.json").write_text(
        json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / "summary.md").write_text(to_markdown(summary), encoding="utf-8")
    if config is not None:
        shutil.copyfile(config, folder / "config.toml")
    return [remark for remark in remarks if remark]
