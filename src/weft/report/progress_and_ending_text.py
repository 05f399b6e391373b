"""A run in words: where it stands, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.report.metrics_from_score_counts import headline, width_remark
from weft.report.number_format import capital
from weft.report.summary import certificate_sentence, shortfall
from weft.solvers.solver_interfaces_and_results import Record


def progress_text(record: Record) -> str:
    """Where a run stands: what is certified, else what is estimated."""
    if record.certified_at is not None:
        known = (
            f"loss {record.primal:.6g} · gap {record.gap:.2e} certified at iteration "
            f"{record.certified_at}"
        )
    elif record.loss_estimate is not None:
        known = f"loss about {record.loss_estimate:.6g} (estimate)"
    else:
        known = "no certificate yet"
    lam = "" if record.lam is None else f"λ = {record.lam:g} · "
    return f"{lam}iteration {record.iteration} · {known} · {record.round_trips} round trips"


def ending_text(folder: Path, summary: dict[str, Any], remarks: list[str], holds: str) -> list[str]:
    """How a run ended, and what is in its results folder.

    Parameters
    ----------
    holds
        What the folder has, as the beginning of a sentence.
    """
    cost = summary["cost"]
    return [
        f"{summary['name']}: {certificate_sentence(summary)}.",
        f"Exposed: {summary['exposed']}.",
        *([] if summary["evaluation"] is None else [_evaluated(summary["evaluation"])]),
        *([] if summary["choice"] is None else [f"{summary['choice']}; see path.png."]),
        f"{summary['iterations']} iterations, {cost['round_trips']} round trips, "
        f"{cost['bytes_down'] + cost['bytes_up']:,} bytes, {cost['wall_seconds']:.1f} s; "
        f"stopped by: {summary['stopped']}.",
        *(f"- {note}" for note in [shortfall(summary), *summary["notes"], *remarks] if note),
        f"{holds} are in {folder}.",
    ]


def _evaluated(evaluation: dict[str, Any]) -> str:
    remark = width_remark(evaluation)
    return " ".join(capital(said) for said in (headline(evaluation), remark) if said)
