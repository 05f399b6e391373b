"""Several runs side by side: what each exposed, proved, predicted and cost, and what differed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weft import __version__
from weft.errors import ConfigError
from weft.report.number_format import count, seconds, size
from weft.report.page.html_elements import Html, el, items, section, table
from weft.report.page.html_file import PAGE, document
from weft.report.page.overview import is_exposed
from weft.report.page.read_results_folder import read_summary
from weft.report.score_interval import could_be_equal, with_interval
from weft.report.summary import path_measure, percent
from weft.storage.atomic_files import replacing

#: Name of the file beside the results folders.
RUNS_PAGE = "runs.html"


@dataclass(frozen=True)
class _Run:
    """One results folder, with the summary in it."""

    folder: Path
    summary: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def exposed(self) -> bool | None:
        """Whether it reached exposure, by itself or with earlier runs; None: it does not say."""
        return is_exposed(self.summary)

    @property
    def accuracy(self) -> tuple[float, int] | None:
        """Of samples held out, and how many they were; None: nobody knows, or a regression."""
        judged = self.summary.get("accuracy")
        if judged and judged.get("samples"):
            return judged["federated"], judged["samples"]
        path = self.summary["path"]
        if not path or "mean_score" not in path[0] or path_measure(self.summary) != "accuracy":
            return None
        scores = [row.get("mean_score") for row in path if row["chosen"]]
        known = [score for score in scores if score is not None]
        return (known[0], self.summary["federation"]["samples"]) if known else None

    @property
    def asked(self) -> dict[str, Any]:
        """What may differ between runs: settings, and what was trained on."""
        federation = self.summary["federation"]
        return {
            "parties": ", ".join(federation["parties"]),
            "samples": federation["samples"],
            "features": federation["features"],
            **self.summary["settings"],
        }


def write_runs_page(folder: Path, path: Path) -> list[str]:
    """Write the page of all runs in a folder; sentences about what is in it and not shown."""
    runs, left = _runs_in(folder)
    if not runs:
        raise ConfigError(
            f"{folder} holds no results folder of weft train or submit; name the folder in which "
            "they lie, such as results"
        )
    with replacing(path) as draft:
        draft.write_text(runs_page(folder.resolve().name, runs, path.parent), encoding="utf-8")
    return left


def _runs_in(folder: Path) -> tuple[list[_Run], list[str]]:
    runs, left = list[_Run](), list[str]()
    for place in sorted(p.parent for p in folder.glob("*/summary.json")):
        try:
            summary = read_summary(place)
        except ConfigError as error:
            left.append(str(error).partition(";")[0])
            continue
        if "results" in summary:
            left.append(f"{place} is a comparison, which has a page of its own")
        else:
            runs.append(_Run(place, summary))
    return runs, left


def runs_page(title: str, runs: Sequence[_Run], beside: Path) -> str:
    """The HTML of a page that lies in the folder ``beside``."""
    known = [run.accuracy for run in runs if run.accuracy is not None]
    best = max(known, default=None)
    rows = [_row(run, best, beside) for run in runs]
    titles = [
        *("run", "exposure", "certified gap", "accuracy (95 % interval)", "solver", "loss", "λ"),
        *("samples × features", "round trips", "bytes", "wall clock"),
    ]
    exposed = [run.name for run in runs if run.exposed]
    head = el(
        "header",
        el("p", "Weft · runs side by side", cls="kind"),
        el("h1", title),
        _exposure(exposed, runs),
        el("p", _noise(runs, best), cls="lead") if len(known) > 1 else "",
    )
    told = [f"{run.name}: {run.summary['exposed']}." for run in runs if run.name in exposed]
    main = el(
        "main",
        head,
        section(
            "runs",
            f"{count(len(runs), 'run')}",
            table(titles, rows, caption="All runs, by folder", numbers=range(6, len(titles))),
            items(told),
        ),
        section("differences", "What was asked differently", _differences(runs)),
    )
    return document(title, main, version=__version__)


def _exposure(exposed: Sequence[str], runs: Sequence[_Run]) -> Html:
    if not exposed:
        counted = all(run.exposed is False for run in runs)
        words = "No run reached exposure." if counted else "Some runs do not say what they exposed."
        return el("p", words, cls="exposure safe" if counted else "exposure")
    return el(
        "p",
        el("strong", f"{len(exposed)} of {count(len(runs), 'run')} exposed something:"),
        " ",
        ", ".join(exposed),
        cls="exposure reached",
    )


def _row(run: _Run, best: tuple[float, int] | None, beside: Path) -> list[object]:
    summary, cost = run.summary, run.summary["cost"]
    page = run.folder / PAGE
    name: object = run.name
    if page.exists() and run.folder.resolve().is_relative_to(beside.resolve()):
        where = page.resolve().relative_to(beside.resolve()).as_posix()
        name = el("a", run.name, href=quote(where))
    reached = run.exposed
    exposure = {True: "reached", False: "not reached", None: "unknown"}[reached]
    proof, federation = summary["certificate"], summary["federation"]
    proved = proof is not None and proof["gap"] is not None and proof["gap"] < 1
    return [
        name,
        el("span", exposure, cls="mark reached" if reached else "mark"),
        percent(proof["gap"]) if proved else "none",
        _accuracy(run.accuracy, best),
        summary["solver"],
        summary["settings"]["loss"],
        f"{summary['lambda']:g}",
        f"{federation['samples']:,} × {federation['features']:,}",
        f"{cost['round_trips']:,}",
        size(cost["bytes_down"] + cost["bytes_up"]),
        seconds(cost["wall_seconds"]),
    ]


def _accuracy(mine: tuple[float, int] | None, best: tuple[float, int] | None) -> str:
    if mine is None or best is None:
        return "–"
    alike = "≈ " if mine != best and could_be_equal(mine, best) else ""
    return alike + with_interval(*mine)


def _noise(runs: Sequence[_Run], best: tuple[float, int] | None) -> str:
    """Whether the best run is better than others, or only luckier."""
    scored = [(run.name, run.accuracy) for run in runs if run.accuracy is not None]
    first = next(name for name, found in scored if found == best)
    alike = [
        name for name, found in scored if name != first and best and could_be_equal(found, best)
    ]
    if not alike:
        return f"{first} predicts best, beyond noise."
    return (
        f"{first} predicts best, but within noise of {', '.join(alike)}: on so few samples their "
        "accuracies, marked ≈, could be equal."
    )


def _differences(runs: Sequence[_Run]) -> Html:
    """Settings that are not the same in all runs."""
    asked = [run.asked for run in runs]
    keys = dict.fromkeys(key for one in asked for key in one)
    rows = []
    for key in keys:
        values = [json.dumps(one.get(key), ensure_ascii=False) for one in asked]
        if len(set(values)) > 1:
            rows.append([el("code", key), *values])
    if not rows:
        return el("p", "Nothing: all were asked for the same.")
    titles = ["setting", *(run.name for run in runs)]
    return table(titles, rows, caption="Settings that differ between runs")
