"""What the FedHybrid comparison leaves behind: a table, all runs, and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from weft import __version__
from weft.experiments.fedhybrid_figures import plot_ladder, plot_methods
from weft.experiments.fedhybrid_study import COARSE, FINE, Outcome
from weft.report.plain import finite


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
    trials = [outcome.trial for outcome in group]
    coarse, fine = ([trial.reached(d) for trial in trials] for d in (COARSE, FINE))
    return Row(
        setup,
        label,
        group[0].newton,
        _median(coarse),
        _median(fine),
        _median([_at(t.round_trips, i) for t, i in zip(trials, coarse, strict=True)]),
        _median([_at(t.round_trips, i) for t, i in zip(trials, fine, strict=True)]),
        _median([_at(t.updates, i) for t, i in zip(trials, fine, strict=True)]),
        sorted(trial.end for trial in trials)[len(trials) // 2],
        trials[0].options,
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
) -> list[str]:
    """Table, runs, curves, summary and figures, into a folder that exists.

    Parameters
    ----------
    optima
        By set-up: P* of the first seed's data, and who found it.
    not_run
        Set-ups that were left out, and why.

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
    text = json.dumps(finite(summary), ensure_ascii=False, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    return _figures(folder, outcomes)


def _curve(outcome: Outcome) -> pd.DataFrame:
    trial = outcome.trial
    return pd.DataFrame(
        {
            "setup": outcome.setup,
            "seed": outcome.seed,
            "method": outcome.label,
            "iteration": range(len(trial.distances)),
            "round_trips": trial.round_trips,
            "updates": trial.updates,
            "distance": trial.distances,
        }
    )


def _figures(folder: Path, outcomes: Sequence[Outcome]) -> list[str]:
    """Two for each set-up, of the first seed."""
    first = min(outcome.seed for outcome in outcomes)
    remarks = set()
    for setup in dict.fromkeys(outcome.setup for outcome in outcomes):
        drawn = [o for o in outcomes if o.setup == setup and o.seed == first]
        name = setup.replace("_", " ")
        title = f"{name}: FedAvg, DiSCO and FedHybrid"
        remarks.add(plot_methods(drawn, folder / f"{setup}-methods.png", title=title))
        title = f"{name}: FedHybrid by the number of Newton-type parties"
        remarks.add(plot_ladder(drawn, folder / f"{setup}-newton.png", title=title))
    return sorted(remark for remark in remarks if remark)
