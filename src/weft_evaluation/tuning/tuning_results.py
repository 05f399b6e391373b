"""A tuning as tables, plots, a summary and a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from weft import __version__
from weft.config.read_config import read_config
from weft.protocol.metering import LATENCIES
from weft.report.json_safe_and_rounded_values import json_text
from weft.solvers.run_settings import Settings
from weft_evaluation.tuning.convergence_and_cost_metrics import NAMES
from weft_evaluation.tuning.grey_relational import FORMULA
from weft_evaluation.tuning.random_search import Trial
from weft_evaluation.tuning.trial_choice import Choice
from weft_evaluation.tuning.tuned_config import told_of, tuned_config
from weft_evaluation.tuning.tuning_plot import plot_tuning


@dataclass(frozen=True)
class Tuning:
    """How the trials of one or more algorithms compare.

    Attributes
    ----------
    choices
        One for each algorithm, in the order in which they were named.
    score
        What ``score`` is: accuracy or R².
    """

    name: str
    settings: Settings
    samples: int
    held_out: int
    features: int
    parties: int
    score: str
    seed: int
    choices: Sequence[Choice]

    @property
    def title(self) -> str:
        """The problem in a line."""
        return (
            f"{self.name}: {self.settings.loss}, λ = {self.settings.lam:g}, {self.parties} "
            f"part{'ies' if self.parties > 1 else 'y'}, {self.samples} samples × {self.features} "
            f"features, {self.held_out} held out"
        )

    def trials(self) -> pd.DataFrame:
        """All trials of all algorithms."""
        rows = [
            {
                "algorithm": choice.found.algorithm,
                **_plain(trial),
                "standing": choice.standing(trial),
                "why": trial.failure or None,
            }
            for choice in self.choices
            for trial in choice.found.trials
        ]
        return pd.DataFrame(rows)

    def front(self) -> pd.DataFrame:
        """All fronts, the best grade of each algorithm first, with the coefficients of grades."""
        return pd.DataFrame([row for choice in self.choices for row in front_rows(choice)])

    def to_dict(self) -> dict[str, Any]:
        """What was chosen and how, ready for JSON."""
        rules = self.choices[0].rules
        return {
            "name": self.name,
            "settings": msgspec.to_builtins(self.settings),
            "samples": self.samples,
            "held_out": self.held_out,
            "features": self.features,
            "parties": self.parties,
            "seed": self.seed,
            "score": self.score,
            "latencies": LATENCIES,
            "formula": FORMULA,
            "distinguishing": rules.distinguishing,
            "weights": dict(zip(NAMES, rules.shares, strict=True)),
            "least_progress": rules.least_progress,
            "results": [_result(choice) for choice in self.choices],
            "weft": __version__,
        }


def front_rows(choice: Choice) -> list[dict[str, Any]]:
    """The front of one algorithm as plain values, the best grade first."""
    graded = choice.graded
    pairs = zip(choice.front, graded.grades, graded.coefficients, strict=True)
    return [
        {
            "algorithm": choice.found.algorithm,
            "rank": rank,
            "grade": float(grade),
            **_plain(trial),
            **{f"coefficient_{n}": float(c) for n, c in zip(NAMES, coefficients, strict=True)},
        }
        for rank, (trial, grade, coefficients) in enumerate(pairs, 1)
    ]


def _plain(trial: Trial) -> dict[str, Any]:
    values = [None] * len(NAMES) if trial.metrics is None else trial.metrics.values
    return {"trial": trial.number, **trial.told, **dict(zip(NAMES, values, strict=True))}


def _result(choice: Choice) -> dict[str, Any]:
    found, best = choice.found, choice.front[0]
    return {
        "algorithm": found.algorithm,
        "bounds": {b.name: [b.low, b.high] for b in found.space},
        "trials": len(found.trials),
        "diverged": sum(not trial.refused for trial in choice.failed),
        "refused": sum(trial.refused for trial in choice.failed),
        "idle": len(choice.idle),
        "front": len(choice.front),
        "iterations": found.iterations,
        "evaluated_every": found.every,
        "evaluation_share": found.looking,
        "seconds": found.seconds,
        "start_loss": found.start,
        "chosen": {
            "trial": best.number,
            "options": best.told,
            "grade": float(choice.graded.grades[0]),
            "metrics": dict(zip(NAMES, best.metrics.values, strict=True)) if best.metrics else None,
        },
    }


def write_tuning(
    draft: Path, tuning: Tuning, *, config: Path, folder: Path
) -> tuple[list[str], list[str]]:
    """Write tables, plots, summary and configs into a folder that exists.

    Parameters
    ----------
    draft
        Where to write now.
    folder
        Where the files will be in the end.

    Returns
    -------
    configs, remarks
        Names of the tuned configs, and sentences about what could not be written.
    """
    tuning.trials().to_csv(draft / "trials.csv", index=False)
    tuning.front().to_csv(draft / "front.csv", index=False)
    (draft / "summary.json").write_text(json_text(tuning.to_dict()), encoding="utf-8")
    several = len(tuning.choices) > 1
    told = {c.found.algorithm: told_of(c.chosen.settings) for c in tuning.choices}
    compared = read_config(config).compare
    # What a comparison is told must not speak against what was found.
    told = {name: options for name, options in told.items() if options or name in compared}
    configs, remarks = [], []
    for choice in tuning.choices:
        name = choice.found.algorithm
        stem = f"tuning-{name}" if several else "tuning"
        remark = plot_tuning(
            choice,
            [draft / f"{stem}.{kind}" for kind in ("png", "svg")],
            tuning.title,
            tuning.score,
        )
        remarks += [remark] if remark and remark not in remarks else []
        configs.append(f"tuned-{name}.toml" if several else "tuned.toml")
        text = tuned_config(
            config,
            choice.chosen.settings,
            {n: options for n, options in told.items() if several or n in compared},
            folder,
            f"{config.name}, with {name} as tuned in {len(choice.found.trials)} trials.",
        )
        (draft / configs[-1]).write_text(text, encoding="utf-8")
    return configs, remarks
