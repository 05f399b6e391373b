"""A neural run's results folder: models, history, plot and summary."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

from weft import __version__
from weft.report.history_table import write_history
from weft.report.json_safe_and_rounded_values import finite, json_text
from weft_neural.accuracy_plot import plot_accuracy
from weft_neural.history import NeuralOutcome, Round
from weft_neural.trained_model import NeuralModel

if TYPE_CHECKING:
    from weft_neural.baseline_runs import Rivals
    from weft_neural.local_federation import NeuralTrained

_COLUMNS = [field.name for field in fields(Round)]
_WHOLE = ("turn", "present", "round_trips", "bytes_down", "bytes_up")


def write_neural_results(
    folder: Path,
    trained: NeuralTrained,
    *,
    name: str,
    rivals: Rivals | None = None,
    tested: dict[str, Any] | None = None,
    config: Path | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Write all of a run in one process into a folder that exists.

    Parameters
    ----------
    tested
        How many samples accuracies are of (``samples``), and what naming the most frequent class
        every time would reach on them (``majority``); None: every party has its own.

    Returns
    -------
    summary, remarks
        The summary as plain values, and sentences about what could not be written.
    """
    summary = summarise_neural(trained, name, rivals) | {"tested": tested}
    told = None if rivals is None else rivals_frame(rivals)
    remarks = write_neural_files(
        folder, trained.model, round_frame(trained.history), summary, rivals=told, config=config
    )
    for file, models in (("own.npz", trained.own), ("received.npz", trained.received)):
        for party, model in models.items():
            place = folder / "parties" / party
            place.mkdir(parents=True, exist_ok=True)
            model.save(place / file)
    return summary, remarks


def write_neural_files(
    folder: Path,
    model: NeuralModel | None,
    history: pd.DataFrame,
    summary: dict[str, Any],
    *,
    rivals: pd.DataFrame | None = None,
    config: Path | None = None,
) -> list[str]:
    """The same from what is known of a run elsewhere; None: whoever writes it gets no model."""
    if model is not None:
        model.save(folder / "model.npz")
    write_history(history, folder)
    if rivals is not None:
        rivals.to_csv(folder / "rivals.csv", index=False)
    remark = plot_accuracy(history, rivals, folder / "accuracy.png", title=summary["name"])
    (folder / "summary.json").write_text(json_text(summary), encoding="utf-8")
    if config is not None:
        shutil.copyfile(config, folder / "config.toml")
    # Pages know audits, and audits keys: a coordinator that only keeps results loads neither.
    from weft_neural.report_page import add_neural_page

    page = add_neural_page(folder, finite(summary), history)
    return [told for told in (remark, page) if told]


# ── tables ────────────────────────────────────────────────────────────────────────────────


def round_frame(history: Sequence[Round]) -> pd.DataFrame:
    """One row per round, one column per field of `Round`; what was not measured is missing."""
    columns = {name: [getattr(found, name) for found in history] for name in _COLUMNS}
    columns["rows"] = [" ".join(map(str, found.rows)) for found in history]
    frame = pd.DataFrame(columns, columns=_COLUMNS)
    kinds = {name: "int64" if name in _WHOLE else "float64" for name in _COLUMNS if name != "rows"}
    return frame.astype(kinds)


def rivals_frame(rivals: Rivals) -> pd.DataFrame:
    """One row per curve and round: mean accuracy, its spread over parties, mean loss."""
    rows = list(_rival_rows(rivals))
    return pd.DataFrame(rows, columns=["curve", "turn", "accuracy", "spread", "loss"])


def _rival_rows(rivals: Rivals) -> Iterator[tuple[Any, ...]]:
    if rivals.central is not None:
        for found in rivals.central.history:
            yield "central", found.turn, found.local_accuracy, None, found.loss
    for rounds in zip(*(run.history for run in rivals.alone.values()), strict=True):
        known = [found.local_accuracy for found in rounds if found.local_accuracy is not None]
        losses = [found.loss for found in rounds if found.loss is not None]
        yield (
            "alone",
            rounds[0].turn,
            fmean(known) if known else None,
            pstdev(known) if known else None,
            fmean(losses) if losses else None,
        )
    if rivals.fedprox is not None:
        for found in rivals.fedprox.history:
            yield "FedProx server", found.turn, found.server_accuracy, None, found.loss
            yield "FedProx own", found.turn, found.local_accuracy, found.local_spread, found.loss


# ── summary ───────────────────────────────────────────────────────────────────────────────


def summarise_neural(
    outcome: NeuralOutcome, name: str, rivals: Rivals | None = None
) -> dict[str, Any]:
    """A run as plain values, ready for JSON; what was not measured is None."""
    last, model = outcome.last, outcome.model
    return {
        "name": name,
        "method": f"hyfem {outcome.settings.method}",
        "rounds": len(outcome.history),
        "loss": last.loss,
        "exposed": (
            "the coordinator saw the weights of every party's own network in "
            f"{len(outcome.history)} rounds"
        ),
        "accuracy": _accuracy(outcome),
        "compared": None if rivals is None else _compared(rivals),
        "model": {
            "classes": model.classes.tolist(),
            "hidden": list(model.hidden),
            "weights": _weights(model),
            "blocks": {
                block: {
                    "extractor": told.extractor,
                    "shape": list(told.shape or ()),
                    "features": model.features[block],
                }
                for block, told in model.blocks.items()
            },
        },
        "federation": {
            party: {"blocks": list(blocks), "weight": outcome.weights[party]}
            for party, blocks in outcome.holders.items()
        },
        "cost": {
            "round_trips": last.round_trips,
            "bytes_down": last.bytes_down,
            "bytes_up": last.bytes_up,
            **{
                part: sum(getattr(found, part) for found in outcome.history)
                for part in ("training_seconds", "averaging_seconds", "matching_seconds")
            },
        },
        "settings": msgspec.to_builtins(outcome.settings),
        "notes": [*outcome.notes, *([] if rivals is None else rivals.notes)],
        "versions": versions(),
        "weft": __version__,
    }


def _accuracy(outcome: NeuralOutcome) -> dict[str, float | None]:
    last = outcome.last
    return {
        "server": last.server_accuracy,
        "own": last.local_accuracy,
        "own_spread": last.local_spread,
        "received": last.received_accuracy,
        "received_spread": last.received_spread,
    }


def _compared(rivals: Rivals) -> dict[str, Any]:
    alone = {party: run.last.local_accuracy for party, run in rivals.alone.items()}
    known = [accuracy for accuracy in alone.values() if accuracy is not None]
    return {
        "central": None if rivals.central is None else rivals.central.last.local_accuracy,
        "alone": fmean(known) if known else None,
        "alone_spread": pstdev(known) if known else None,
        "alone_by_party": alone,
        "fedprox": None if rivals.fedprox is None else _accuracy(rivals.fedprox),
        "common_blocks": list(rivals.common),
    }


def _weights(model: NeuralModel) -> int:
    extractors = sum(len(v) - model.statistics[name] for name, v in model.extractors.items())
    return int(extractors + sum(layer.size for layer in model.classifier))


def versions() -> dict[str, str]:
    """What the last digits of a run depend on."""
    found = {"python": platform.python_version()}
    for package in ("numpy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
