"""Results of the FedHybrid comparison: a table, all runs, and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from weft import __version__
from weft.report.json_safe_and_rounded_values import json_text
from weft_papers.fedhybrid.figures import draw_figures
from weft_papers.fedhybrid.methods_comparison import COARSE, FINE, Outcome


@dataclass(frozen=True)
class Row:
    """A method on a set-up: medians over seeds, None where most runs did not come there.

    Attributes
    ----------
    updates_fine
        Changes of the model until the finer distance: DiSCO's Newton steps.
    options
        Of the first seed.
    """

    setup: str
    method: str
    newton: int | None
    iterations_coarse: int | None
    iterations_fine: int | None
    round_trips_coarse: int | None
    round_trips_fine: int | None
    updates_fine: int | None
    distance_at_end: float
    options: dict[str, Any]


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """One row for each method and set-up, in the order in which they ran."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.setup, outcome.label), []).append(outcome)
    return [_row(setup, label, group) for (setup, label), group in groups.items()]


def _row(setup: str, label: str, group: Sequence[Outcome]) -> Row:
    runs = [outcome.run for outcome in group]
    coarse, fine = ([run.reached(d) for run in runs] for d in (COARSE, FINE))
    return Row(
        setup,
        label,
        group[0].newton,
        _median(coarse),
        _median(fine),
        _median([_at(t.round_trips, i) for t, i in zip(runs, coarse, strict=True)]),
        _median([_at(t.round_trips, i) for t, i in zip(runs, fine, strict=True)]),
        _median([_at(t.updates, i) for t, i in zip(runs, fine, strict=True)]),
        sorted(run.end for run in runs)[len(runs) // 2],
        runs[0].options,
    )


def _at(values: Any, iteration: int | None) -> int | None:
    return None if iteration is None else int(values[iteration])


def _median(values: Sequence[int | None]) -> int | None:
    """The middle one, or the upper of two."""
    ranked = sorted(math.inf if value is None else value for value in values)
    middle = ranked[len(ranked) // 2]
    return None if math.isinf(middle) else int(middle)


def write_study(
    folder: Path,
    outcomes: Sequence[Outcome],
    *,
    weigh: str,
    optima: Mapping[str, Mapping[str, Any]],
    not_run: Mapping[str, str],
    command: str,
) -> list[str]:
    """Page, table, curves, summary and figures, into a folder that exists.

    Parameters
    ----------
    optima
        By set-up: P* of the first seed's data, and who found it.
    not_run
        Set-ups that were left out, and why.
    command
        What was typed to get it.

    Returns
    -------
    list of str
        Sentences about what could not be written.
    """
    rows = [asdict(row) for row in rows_of(outcomes)]
    frame = pd.DataFrame(rows).assign(options=[json.dumps(row["options"]) for row in rows])
    frame.to_csv(folder / "table.csv", index=False)
    pd.concat([_curve(outcome) for outcome in outcomes]).to_csv(
        folder / "curves.csv", index=False, float_format="%.6g"
    )
    summary = {
        "weft": __version__,
        "paper": "Niu and Wei 2021, FedHybrid",
        "weigh": weigh,
        "seeds": len({outcome.seed for outcome in outcomes}),
        "distances": {"coarse": COARSE, "fine": FINE},
        "optima": {name: dict(found) for name, found in optima.items()},
        "rows": rows,
        "not_run": dict(not_run),
    }
    (folder / "summary.json").write_text(json_text(summary), encoding="utf-8")
    first = min(outcome.seed for outcome in outcomes)
    remarks = draw_figures([outcome for outcome in outcomes if outcome.seed == first], folder)
    page = _page(rows_of(outcomes), command, weigh, not_run)
    drawn = sorted(path.name for path in folder.glob("figure-*.png"))
    page += "".join(f"![{name.removesuffix('.png')}]({name})\n\n" for name in drawn)
    (folder / "README.md").write_text(page.rstrip() + "\n", encoding="utf-8")
    return remarks


def _curve(outcome: Outcome) -> pd.DataFrame:
    run = outcome.run
    return pd.DataFrame(
        {
            "setup": outcome.setup,
            "seed": outcome.seed,
            "method": outcome.label,
            "iteration": range(len(run.distances)),
            "round_trips": run.round_trips,
            "updates": run.updates,
            "distance": run.distances,
        }
    )


def _page(rows: Sequence[Row], command: str, weigh: str, not_run: Mapping[str, str]) -> str:
    """Table and figures, to read."""
    lines = [
        "# FedHybrid's experiments, run anew",
        "",
        "Niu and Wei, *FedHybrid: A Hybrid Primal-Dual Algorithm Framework for Federated "
        "Optimization* (2021), section 5 and C. Written by",
        "",
        f"```\n{command}\n```",
        "",
        f"Weft {__version__}. Every method has the best steps of a search; {weigh} weigh the same. "
        f"Iterations to a relative distance (P − P*)/P* of {COARSE:g} / {FINE:g}, and the distance "
        "at the end. docs/fedhybrid.md says how the figures were got, and where the paper's claims "
        "hold.",
        "",
    ]
    setups = list(dict.fromkeys(row.setup for row in rows))
    cells = {(row.setup, row.method): row for row in rows}
    lines.append("| method | " + " | ".join(name.replace("_", " ") for name in setups) + " |")
    lines.append("|---|" + "---|" * len(setups))
    for method in sorted(dict.fromkeys(row.method for row in rows), key=_rank):
        told = [_cell(cells.get((setup, method))) for setup in setups]
        lines.append(f"| {method} | " + " | ".join(told) + " |")
    lines += ["", *(f"Not run: {name}: {reason}" for name, reason in not_run.items()), ""]
    return "\n".join(lines)


def _rank(method: str) -> float:
    """Baselines first, then FedHybrid by its Newton-type parties."""
    if not method.startswith("FedH-"):
        return -1.0
    count = method.removeprefix("FedH-")
    return {"G": 0.0, "N": math.inf}.get(count) or float(count if count.isdigit() else 0)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    counts = (row.iterations_coarse, row.iterations_fine)
    told = " / ".join("–" if count is None else str(count) for count in counts)
    return f"{told} ({row.distance_at_end:.0e})"
