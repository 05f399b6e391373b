"""Results of HyFEM's experiments: a table, curves, figures and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pandas as pd

from weft import __version__
from weft.report.json_safe_and_rounded_values import json_text
from weft.storage.atomic_files import replacing
from weft_papers.hyfem.figures import plot_experiment
from weft_papers.hyfem.run_experiments import Found
from weft_papers.hyfem.run_result_file import RunFile, versions


@dataclass(frozen=True)
class Row:
    """A run of HyFEM beside what it is compared with; accuracies of the last round measured.

    Attributes
    ----------
    server, local, received
        Of the server's model on all blocks; of parties' networks after their last steps; of the
        copies that they began these steps with. A spread is a standard deviation over parties.
    alone
        Parties that each trained by themselves.
    fedprox_server, fedprox_local
        FedProx on the blocks that all have.
    seconds_per_round, matching_share
        Of HyFEM: local steps, averaging and matching, and the part of it that matching took.
    """

    experiment: str
    text: str
    run: str
    rounds: int
    rounds_of_text: int
    server: float | None
    local: float | None
    local_spread: float | None
    received: float | None
    central: float | None
    alone: float | None
    alone_spread: float | None
    alone_parties: int
    fedprox_server: float | None
    fedprox_local: float | None
    fedprox_spread: float | None
    seconds_per_round: float
    matching_share: float
    device: str


def rows_of(found: Found) -> list[Row]:
    """One row for each finished run of HyFEM."""
    central = next((run.last["local_accuracy"] for run in found.of("central")), None)
    alone = [run.last["local_accuracy"] for run in found.of("alone")]
    prox: dict[str, Any] = next((run.last for run in found.of("fedprox")), {})
    return [
        Row(
            experiment=found.setup.name,
            text=found.setup.experiment.text,
            run=run.plan.label,
            rounds=run.rounds,
            rounds_of_text=run.rounds_of_text,
            server=run.last["server_accuracy"],
            local=run.last["local_accuracy"],
            local_spread=run.last["local_spread"],
            received=run.last["received_accuracy"],
            central=central,
            alone=fmean(alone) if alone else None,
            alone_spread=pstdev(alone) if alone else None,
            alone_parties=len(alone),
            fedprox_server=prox.get("server_accuracy"),
            fedprox_local=prox.get("local_accuracy"),
            fedprox_spread=prox.get("local_spread"),
            seconds_per_round=_seconds(run) / run.rounds,
            matching_share=_seconds(run, "matching") / max(_seconds(run), 1e-12),
            device=run.device,
        )
        for run in found.of("hyfem")
    ]


def _seconds(run: RunFile, *parts: str) -> float:
    names = parts or ("training", "averaging", "matching")
    return float(sum(row[f"{name}_seconds"] for row in run.history for name in names))


def write_report(out: Path, found: Sequence[Found], not_run: Mapping[str, str]) -> list[str]:
    """Table, curves, figures and summary, beside the runs in the output folder.

    Returns
    -------
    list of str
        Sentences about what could not be written.
    """
    rows = [row for one in found for row in rows_of(one)]
    _write_csv(out / "table.csv", pd.DataFrame([asdict(row) for row in rows]))
    remarks = set()
    for one in found:
        folder = out / one.setup.name
        _write_csv(folder / "curves.csv", pd.concat(_curve(run) for run in one.runs.values()))
        remarks.add(plot_experiment(one, folder / "accuracy.png", folder / "accuracy.svg"))
    summary = {
        "weft": __version__,
        "texts": "Zhang, Yin, Chen and Hong: HyFEM (2024), and its first version (2020)",
        "versions": versions(),
        "experiments": {one.setup.name: _told(one) for one in found},
        "not_run": dict(not_run),
    }
    with replacing(out / "summary.json") as draft:
        draft.write_text(json_text(summary), encoding="utf-8")
    return sorted(remark for remark in remarks if remark)


def _told(found: Found) -> dict[str, Any]:
    """An experiment in the summary."""
    return {
        "title": found.setup.experiment.title,
        "text": found.setup.experiment.text,
        "trial": found.trial,
        "lacking": found.lacking,
        "scene": found.setup.scene,
        "options": found.setup.options,
        "rows": [asdict(row) for row in rows_of(found)],
        "runs": {
            name: {
                "neural": run.plan.neural,
                "seed": run.plan.neural.get("seed", 0),
                "rounds": run.rounds,
                "seconds": round(run.seconds, 1),
                "device": run.device,
                "versions": run.versions,
                "notes": run.notes,
            }
            for name, run in found.runs.items()
        },
    }


def _curve(run: RunFile) -> pd.DataFrame:
    frame = pd.DataFrame(run.history)
    frame.insert(0, "run", run.plan.run)
    frame["rows"] = [" ".join(str(count) for count in rows) for rows in frame["rows"]]
    return frame


def _write_csv(path: Path, frame: pd.DataFrame) -> None:
    with replacing(path) as draft:
        frame.to_csv(draft, index=False, float_format="%.6g")
