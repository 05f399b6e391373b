"""How a deployed run gets on, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.network.run_progress import Report
from weft.report.page.phase_names import name_of


def wait_text(wait: Mapping[str, Any]) -> str:
    """For whom a run waits, with what, since when and until when, in one line."""
    names, why = ", ".join(wait["parties"]), f" ({wait['why']})" if wait["why"] else ""
    return (
        f"waits for {names}{why}: {name_of(wait['phase']).lower()}, since {wait['seconds']} s, for "
        f"{wait['limit']} s at most"
    )


def report_text(report: Report) -> str:
    """Where a deployed run stands, in one line."""
    from weft.network.installed_job_kinds import JOB_KINDS

    record, parties, away = report.records[-1], report.parties, report.away
    kind = JOB_KINDS.get(report.kind)
    # Others may run what is not installed here; the list of runs must not fail for it.
    told = f"a job of kind '{report.kind}'" if kind is None else kind.progress_text(record)
    size = (record["bytes_down"] + record["bytes_up"]) / 1e6
    there = len(parties) - len(away)
    missing = f", without {', '.join(sorted(away))}" if away else ""
    return f"{told} · {size:.1f} MB · {there} of {len(parties)} parties{missing}"
