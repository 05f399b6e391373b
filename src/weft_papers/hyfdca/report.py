"""Results of ``weft reproduce hyfdca`` besides its runs: page, tables and figures."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from weft import __version__
from weft.report.json_values import json_text
from weft.storage.atomic_files import replacing
from weft_papers.hyfdca.analysis import MODES, SERIES, Findings, count
from weft_papers.hyfdca.cases import TITLES
from weft_papers.hyfdca.figures import draw_all
from weft_papers.hyfdca.paper import WINS
from weft_papers.hyfdca.results_page import to_markdown


def write_report(folder: Path, findings: Findings, *, command: str) -> list[str]:
    """Write page, comparisons, curves, summary and figures; returns what could not be."""
    note = findings.plan.note
    versions = ", ".join(sorted(findings.versions())) or __version__
    about = [
        f"with seed {findings.plan.seed}; runs of Weft {versions} under Python "
        f"{platform.python_version()} and numpy {np.__version__}.",
        "",
    ]
    remarks = draw_all(findings, folder)
    texts = {
        "comparisons.csv": comparisons_frame(findings).to_csv(index=False),
        "curves.csv": curves_frame(findings).to_csv(index=False, float_format="%.6g"),
        "summary.json": json_text(_summary(findings, command), indent=1),
        "README.md": to_markdown(findings, command=command, about=about, note=note),
    }
    for name, content in texts.items():
        with replacing(folder / name) as draft:
            draft.write_text(content, encoding="utf-8")
    return remarks


def comparisons_frame(findings: Findings) -> pd.DataFrame:
    """All comparisons of all our methods."""
    return pd.DataFrame(
        {
            "method": TITLES[method],
            "data": comparison.case.paper.title,
            "setting": comparison.case.setting.label,
            "against": TITLES[comparison.against],
            "equal": comparison.mode,
            "in": comparison.measure,
            "ours": comparison.ours,
            "theirs": comparison.theirs,
            "ahead": comparison.ahead,
            "run": findings.stand_in(comparison.case).key,
        }
        for method in SERIES
        for comparison in findings.comparisons(method)
    )


def curves_frame(findings: Findings) -> pd.DataFrame:
    """All curves, smoothed as the figures show them."""
    frames = []
    for case in findings.plan.cases():
        for mode in MODES:
            line = findings.line(case, mode)
            if line is None or (mode != "iterations" and not findings.plan.compared(case)):
                continue
            frames.append(
                pd.DataFrame(
                    {
                        "run": case.key,
                        "equal": mode,
                        "iteration": line.iterations.astype(int),
                        "seconds": line.seconds,
                        "relative_loss": line.relative_loss,
                        "accuracy": line.accuracy,
                    }
                )
            )
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _summary(findings: Findings, command: str) -> dict[str, Any]:
    plan = findings.plan
    wins = {}
    for method in SERIES:
        found = list(findings.comparisons(method))
        wins[method] = {mode: count(found, mode) for mode in MODES}
    return {
        "weft": __version__,
        "paper": "Overman, Blum and Klabjan 2022, HyFDCA",
        "command": command,
        "shares": {data: shares._asdict() for data, shares in plan.shares.items()},
        "seed": plan.seed,
        "ahead": wins,
        "ahead_in_the_paper": {"iterations": WINS[0], "paper": WINS[1]},
        "central": {data: findings.central(data) for data in plan.data},
        "costs": {
            case.key: msgspec.to_builtins(costs)
            for case in plan.cases()
            if (costs := findings.costs(case))
        },
    }
