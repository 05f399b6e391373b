"""Results of ``weft reproduce hyfdca`` besides its runs: page, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from weft import __version__
from weft.report.json_safe_and_rounded_values import json_text
from weft.storage.atomic_files import replacing
from weft_papers.hyfdca.analysis import MODES, SERIES, Findings, count
from weft_papers.hyfdca.cases import TITLES, Plan
from weft_papers.hyfdca.figures import draw_all
from weft_papers.hyfdca.paper import WINS
from weft_papers.hyfdca.results_folder import ResultsFolder
from weft_papers.hyfdca.results_page import to_markdown

#: What the runs of the kept archive come from, over several sittings.
_FULL = "weft reproduce hyfdca --scale full --out docs/results/hyfdca"


def write_report(folder: Path, findings: Findings, *, command: str) -> list[str]:
    """Write page, comparisons, curves, summary and figures; returns what could not be."""
    remarks = write_page(folder, findings, command=command)
    texts = {
        "curves.csv": curves_frame(findings).to_csv(index=False, float_format="%.6g"),
        "summary.json": json_text(_summary(findings, command), indent=1),
    }
    _write(folder, texts)
    return remarks


def write_page(folder: Path, findings: Findings, *, command: str) -> list[str]:
    """Write page, comparisons and figures, all from finished runs and the same on any machine."""
    versions = ", ".join(sorted(findings.versions())) or __version__
    about = [f"with seed {findings.plan.seed}; runs of Weft {versions}.", ""]
    texts = {
        "comparisons.csv": comparisons_frame(findings).to_csv(index=False, float_format="%.6g"),
        "README.md": to_markdown(findings, command=command, about=about, note=findings.note),
    }
    _write(folder, texts)
    return draw_all(findings, folder)


def redraw(folder: Path) -> list[str]:
    """Page, comparisons and figures from the runs that a folder keeps, whatever their length.

    The page is that of the whole paper: what was not run, or not as far, has a dash.
    """
    findings = Findings(Plan.named("full"), ResultsFolder(folder))
    return write_page(folder, findings, command=_FULL)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, content in texts.items():
        with replacing(folder / name) as draft:
            draft.write_text(content, encoding="utf-8")


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
