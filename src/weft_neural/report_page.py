"""The report of a neural run: one HTML file that needs nothing else, as that of a linear one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from weft.report.number_format import capital, count, seconds, size
from weft.report.page.accuracy import ALONE, CENTRAL, OURS, Score, Scores, scores_section
from weft.report.page.gap_and_loss_curves import add_series, curves_section
from weft.report.page.html_elements import Html, el, facts, items, section, table
from weft.report.page.html_file import PAGE, document
from weft.report.page.overview import exposure_box
from weft.report.page.read_results_folder import Source
from weft.storage.atomic_files import replacing

_LATENCY = 0.2575
_CURVES = (
    ("server_accuracy", "the server's network"),
    ("received_accuracy", "cut to each party's blocks, mean"),
    ("local_accuracy", "parties' own, mean"),
)


def add_neural_page(folder: Path, summary: dict[str, Any], history: pd.DataFrame) -> str | None:
    """Write the report into a results folder; a sentence where that fails, else None."""
    try:
        with replacing(folder / PAGE) as draft:
            draft.write_text(neural_page(summary, history), encoding="utf-8")
    except Exception as error:
        # Whatever is wrong with its page must not cost a run its model.
        return f"no {PAGE}: it could not be written ({type(error).__name__}: {error})"
    return None


def neural_page(summary: dict[str, Any], history: pd.DataFrame) -> str:
    """The HTML of a page; it holds no weight of any network."""
    source = Source(summary, _as_costs(history), None, None, None, _LATENCY)
    curves = _curves(source.history)
    parts = {
        "accuracy": scores_section(_scores(summary)),
        "convergence": curves_section(source, curves, "Dots are measured after each round."),
        "blocks": _blocks(summary),
        "costs": _costs(summary["cost"]),
        "rerun": _settings(summary),
    }
    titles = {
        "accuracy": "Accuracy",
        "convergence": "Convergence",
        "blocks": "Who holds what",
        "costs": "Costs",
        "rerun": "Settings",
    }
    links = [el("a", title, href=f"#{key}") for key, title in titles.items()]
    main = el(
        "main",
        _head(summary),
        el("nav", *links, id="contents", aria_label="Contents"),
        *parts.values(),
        el("a", "Contents", href="#contents", cls="up"),
    )
    data = {"tiles": None, "curves": curves, "weights": None}
    return document(summary["name"], main, version=summary["weft"], data=data)


def _head(summary: dict[str, Any]) -> Html:
    model, cost = summary["model"], summary["cost"]
    server = summary["accuracy"]["server"]
    lead = f"{summary['method']}, {count(summary['rounds'], 'round')}"
    if server is not None:
        lead = f"The server's network predicts {server:.1%} rightly, by {lead}"
    shown: list[tuple[str, object]] = [
        ("parties", f"{len(summary['federation']):,}"),
        ("classes", f"{len(model['classes']):,}"),
        ("weights", f"{model['weights']:,}"),
        ("round trips", f"{cost['round_trips']:,}"),
        ("travelled", size(cost["bytes_down"] + cost["bytes_up"])),
    ]
    # Weights of networks are seen by agreement, in every such run: that is what amber is for.
    told = {"exposed": summary["exposed"], "exposure_reached": True}
    return el(
        "header",
        el("p", "Weft · report of a neural run", cls="kind"),
        el("h1", summary["name"]),
        exposure_box(told),
        el("p", capital(lead), cls="lead"),
        facts(shown),
        items(capital(note) for note in summary["notes"]),
    )


def _scores(summary: dict[str, Any]) -> Scores:
    found, compared = summary["accuracy"], summary["compared"] or {}
    prox = compared.get("fedprox") or {}
    rows = [
        Score("HyFEM, the server's network", found["server"], OURS),
        # Means over several networks have no such interval.
        Score("HyFEM, cut to each party's blocks, mean", found["received"], OURS, estimate=False),
        Score("HyFEM, parties' own, mean", found["own"], OURS, estimate=False),
        Score("central, all samples in one hand", compared.get("central"), CENTRAL),
        Score("FedProx on the common blocks", prox.get("server"), ALONE),
        Score("parties alone, mean", compared.get("alone"), ALONE, estimate=False),
    ]
    rows = [row for row in rows if row.value is not None]
    tested = summary.get("tested") or {}
    told = "On samples that nobody trained on."
    if not rows:
        told = "Not known: nobody kept samples for measuring; set test_share in [neural]."
    return Scores(told, rows, samples=tested.get("samples"), majority=tested.get("majority"))


def _as_costs(history: pd.DataFrame) -> pd.DataFrame:
    """A history with the columns that curves are drawn against."""
    spent = history["training_seconds"] + history["averaging_seconds"] + history["matching_seconds"]
    return history.assign(iteration=history["turn"], compute_seconds=spent.cumsum())


def _curves(history: pd.DataFrame) -> dict[str, Any]:
    grids: list[dict[str, Any]] = []
    accuracy: list[dict[str, Any]] = []
    loss: list[dict[str, Any]] = []
    look = {"dash": 0, "mark": True, "line": True}
    wanted = [
        (accuracy, column, look | {"name": name, "look": number})
        for number, (column, name) in enumerate(_CURVES)
        if history[column].notna().any()
    ]
    add_series(grids, history, [*wanted, (loss, "loss", look | {"name": "training", "look": 4})])
    charts = [
        {"id": "accuracy", "title": "Accuracy", "unit": "share of samples", "log": False,
         "series": accuracy},
        {"id": "loss", "title": "Loss", "unit": "mean of the parties' steps", "log": False,
         "series": loss},
    ]  # fmt: skip
    drawn = [chart for chart in charts if chart["series"]]
    return {"grids": grids, "charts": drawn, "latency": _LATENCY}


def _blocks(summary: dict[str, Any]) -> Html:
    rows = [
        [party, ", ".join(held["blocks"]), f"{held['weight']:.1%}"]
        for party, held in summary["federation"].items()
    ]
    grid = table(["party", "blocks", "weight"], rows, caption="Blocks of every party", numbers=(2,))
    return section("blocks", "Who holds what", grid)


def _costs(cost: dict[str, Any]) -> Html:
    names = {"training": "local steps", "averaging": "averaging", "matching": "matching neurons"}
    rows = [[name, seconds(cost[f"{key}_seconds"])] for key, name in names.items()]
    told = (
        f"{count(cost['round_trips'], 'round trip')}, {size(cost['bytes_down'])} to the parties "
        f"and {size(cost['bytes_up'])} from them."
    )
    grid = table(["activity", "time"], rows, caption="What the rounds cost", numbers=(1,))
    return section("costs", "Costs", el("p", told), grid)


def _settings(summary: dict[str, Any]) -> Html:
    rows = [
        [el("code", name), json.dumps(value, ensure_ascii=False)]
        for name, value in summary["settings"].items()
    ]
    grid = table(["setting", "value"], rows, caption="All settings")
    return section("rerun", "Settings", facts(summary["versions"].items()), grid)
