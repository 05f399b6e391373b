"""A comparison on paper: rows of a table, histories, and a summary."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from weft import __version__
from weft.protocol.metering import LATENCIES
from weft.report.comparison_plot import Curve, plot_comparison
from weft.report.history_table import certificates, history_frame
from weft.report.holdings_counts import kind_of
from weft.report.json_safe_and_rounded_values import json_text
from weft.report.page import add_page
from weft.report.sizes_and_holders_of_groups import cohorts_of
from weft.report.summary import versions
from weft.solvers.run_settings import Settings
from weft_evaluation.algorithm_comparison import Arena, Outcome
from weft_evaluation.chance_differences import alike_to_best, noise_sentence
from weft_evaluation.choose_compared_algorithms import CENTRAL


@dataclass(frozen=True)
class Comparison:
    """All that a comparison found.

    Attributes
    ----------
    optimum, judged_by, above
        P of the judge's weights, its solver, and by which share they may be above P* (None: it
        does not say). A judge that did not converge gives way to an algorithm that came further.
    lower_bound
        The largest dual value that a run has certified: P* is not below it.
    left_out
        Algorithms that do not fit, and why.
    latency
        Seconds of a round trip in budgets and plots.
    kind, party_names, cohorts, terms
        How the table is cut, who holds which part of it, and on which terms the parties ran.
    alone
        Scores of each party that tried alone.
    majority
        Accuracy of naming the most frequent class every time; None: a regression.
    alike, noise
        Of every model but the best whether its predictions are within noise of the best's, and a
        sentence about them; None: there is one model at most.
    command
        With which the comparison was started.
    """

    name: str
    settings: Settings
    samples: int
    test_samples: int
    features: int
    parties: int
    optimum: float
    judged_by: str
    above: float | None
    lower_bound: float | None
    outcomes: list[Outcome]
    left_out: dict[str, str]
    latency: float
    kind: str
    party_names: list[str]
    cohorts: dict[str, Any]
    terms: dict[str, Any]
    alone: dict[str, dict[str, float]]
    majority: float | None
    alike: dict[str, bool]
    noise: str | None
    command: str = ""

    @classmethod
    def of(
        cls,
        arena: Arena,
        outcomes: Sequence[Outcome],
        *,
        name: str,
        settings: Settings,
        left_out: Mapping[str, str],
        latency: float,
        command: str = "",
    ) -> Comparison:
        """Outcomes in order: the nearest to the optimum first, those without a model last."""
        optimum, judged_by = arena.optimum.primal, arena.optimum.how
        good = [(o.primal, o.name) for o in outcomes if o.primal is not None]
        if not arena.optimum.converged and min(good)[0] < optimum:
            # A judge that has not come to an end is no judge where others have come further.
            optimum, best = min(good)
            judged_by = f"{best}, below {judged_by}"
        best_name, alike = alike_to_best(outcomes)
        where = (
            f"{arena.train.n:,} samples trained on"
            if arena.test is None
            else f"{arena.test.n:,} samples held out"
        )
        duals = [r.dual for o in outcomes for r in o.history if r.dual is not None]
        return cls(
            name=name,
            settings=settings,
            samples=arena.train.n,
            test_samples=0 if arena.test is None else arena.test.n,
            features=len(arena.train.features),
            parties=len(arena.holdings.parties),
            optimum=optimum,
            judged_by=judged_by,
            above=arena.optimum.above,
            lower_bound=max(filter(math.isfinite, duals), default=None),
            outcomes=sorted(outcomes, key=lambda o: math.inf if o.primal is None else o.primal),
            left_out=dict(left_out),
            latency=latency,
            kind=kind_of(arena.holdings),
            party_names=list(arena.holdings.parties),
            cohorts=cohorts_of(arena.holdings),
            terms=msgspec.to_builtins(arena.holdings.terms),
            alone=dict(arena.alone_scores),
            majority=arena.majority(),
            alike=alike,
            noise=noise_sentence(best_name, alike, where),
            command=command,
        )

    def distance(self, primal: float | None) -> float | None:
        """(P − P*)/P*."""
        return None if primal is None else (primal - self.optimum) / self.optimum

    @property
    def title(self) -> str:
        """The problem in a line."""
        return (
            f"{self.name}: {self.settings.loss}, λ = {self.settings.lam:g}, {self.parties} "
            f"part{'ies' if self.parties > 1 else 'y'}, {self.samples} samples × {self.features} "
            "features"
        )

    @property
    def latencies(self) -> tuple[float, ...]:
        return tuple(sorted({*LATENCIES, self.latency}))

    def rows(self) -> list[dict[str, Any]]:
        """One for every outcome, as plain values."""
        return [self._row(outcome) for outcome in self.outcomes]

    def _row(self, outcome: Outcome) -> dict[str, Any]:
        seconds = {f"{l:g}": outcome.modelled_seconds(l) for l in self.latencies}
        settings = outcome.settings
        return {
            "algorithm": outcome.name,
            "kind": outcome.kind,
            "loss": outcome.primal,
            "distance": self.distance(outcome.primal),
            "gap": outcome.gap,
            "train": outcome.train,
            "test": outcome.test or None,
            # Of the best; None: it is the best itself, or there is no model.
            "within_noise": self.alike.get(outcome.name),
            "iterations": outcome.iterations,
            "round_trips": outcome.round_trips,
            "bytes": outcome.bytes,
            "compute_seconds": outcome.compute_seconds,
            "modelled_seconds": seconds,
            "stopped": outcome.stopped,
            "failure": outcome.failure or None,
            "notes": outcome.notes,
            "options": {} if settings is None else settings.options,
            "phases": outcome.phases,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything but the histories, ready for JSON."""
        shown = [f.name for f in fields(self) if f.name not in ("outcomes", "alike")]
        plain = {name: getattr(self, name) for name in shown}
        plain["settings"] = msgspec.to_builtins(self.settings)
        return {**plain, "results": self.rows(), "weft": __version__, "versions": versions()}

    def histories(self) -> pd.DataFrame:
        """All iterations of all runs, with modelled seconds and the distance of certificates."""
        frames = []
        for outcome in self.outcomes:
            if outcome.history:
                frame = history_frame(outcome.history)
                frame.insert(0, "algorithm", outcome.name)
                frame["distance"] = (frame["primal"] - self.optimum) / self.optimum
                frame["modelled_seconds"] = _modelled(frame, outcome, self.latency)
                frames.append(frame)
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def curves(self) -> list[Curve]:
        """What can be drawn: distances of certified points, and of the model at the end."""
        return [self._curve(o) for o in self.outcomes if o.history or o.kind == "baseline"]

    def _curve(self, outcome: Outcome) -> Curve:
        end = self.distance(outcome.primal)
        if not outcome.history:
            return Curve(outcome.name, outcome.kind, [], [], [], end)
        frame = history_frame(outcome.history)
        known = certificates(frame)
        # A point stands where its certificate came in: before, nobody knew how good it was.
        trips = [0 if outcome.kind == "pooled" else int(t) for t in known["round_trips"]]
        seconds = [
            c + self.latency * t for c, t in zip(known["compute_seconds"], trips, strict=True)
        ]
        distances = [(p - self.optimum) / self.optimum for p in known["primal"]]
        if end is not None:
            trips.append(outcome.round_trips)
            seconds.append(outcome.modelled_seconds(self.latency))
            distances.append(end)
        return Curve(outcome.name, outcome.kind, trips, seconds, distances, end)


def _modelled(frame: pd.DataFrame, outcome: Outcome, latency: float) -> pd.Series[float]:
    trips = 0.0 if outcome.kind == "pooled" else frame["round_trips"].astype(float)
    modelled: pd.Series[float] = frame["compute_seconds"] + latency * trips
    return modelled


def write_comparison(
    folder: Path, comparison: Comparison, *, config: Path | None = None
) -> list[str]:
    """Write table, histories, plot, summary and report into a folder that exists.

    Returns
    -------
    list of str
        Sentences about what could not be written.
    """
    table_frame(comparison).to_csv(folder / "comparison.csv", index=False)
    comparison.histories().to_csv(folder / "histories.csv", index=False)
    remark = plot_comparison(
        [curve for curve in comparison.curves() if curve.name != CENTRAL],
        folder / "comparison.png",
        title=comparison.title,
        latency=comparison.latency,
    )
    (folder / "summary.json").write_text(json_text(comparison.to_dict()), encoding="utf-8")
    if config is not None:
        shutil.copyfile(config, folder / "config.toml")
    return [told for told in (remark, add_page(folder)) if told]


def table_frame(comparison: Comparison) -> pd.DataFrame:
    """The rows with one column for every number."""
    flat = []
    for row in comparison.rows():
        scores = {f"train_{key}": value for key, value in row.pop("train").items()}
        scores |= {f"test_{key}": value for key, value in (row.pop("test") or {}).items()}
        seconds = row.pop("modelled_seconds")
        del row["notes"], row["options"], row["phases"]
        flat.append(row | scores | {f"seconds_at_{l}": value for l, value in seconds.items()})
    return pd.DataFrame(flat)
