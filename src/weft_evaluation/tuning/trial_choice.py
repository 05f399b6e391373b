"""Which trial is best: the one on the Pareto front with the highest grey relational grade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from weft.errors import ConfigError
from weft_evaluation.tuning.convergence_and_cost_metrics import LARGER_IS_BETTER, NAMES
from weft_evaluation.tuning.grey_relational import (
    DISTINGUISHING,
    Grades,
    grey_relational_analysis,
    pareto_front,
)
from weft_evaluation.tuning.random_search import Found, Trial

#: Of the way down that the best trial makes, how much a trial must make to be considered.
LEAST_PROGRESS = 0.5


@dataclass(frozen=True)
class Rules:
    """How trials are compared.

    Attributes
    ----------
    weights
        Of metrics, in grades; those not named weigh 1, and with 0 one does not count for the front
        either.
    least_progress
        Trials that lower the loss by less than this share of what the best one does are left out:
        a run that hardly moves is fast and steady, which would earn it a good grade. 0: none is,
        nor where no trial lowers the loss at all.
    """

    distinguishing: float = DISTINGUISHING
    weights: Mapping[str, float] | None = None
    least_progress: float = LEAST_PROGRESS

    def __post_init__(self) -> None:
        if not 0 < self.distinguishing <= 1:
            raise ConfigError(
                f"--distinguishing is {self.distinguishing:g}; give a number above 0 and at most 1"
            )
        if not 0 <= self.least_progress <= 1:
            raise ConfigError(
                f"--least-progress is {self.least_progress:g}; give a share from 0 to 1"
            )

    @property
    def shares(self) -> list[float]:
        """Weights of all metrics."""
        return [(self.weights or {}).get(name, 1.0) for name in NAMES]


@dataclass(frozen=True)
class Choice:
    """How the trials of one algorithm compare.

    Attributes
    ----------
    front
        The Pareto front of all trials considered, the best grade first.
    graded
        Grey relational analysis of the front, in that order.
    idle
        Numbers of trials that hardly moved.
    """

    found: Found
    rules: Rules
    front: list[Trial]
    graded: Grades
    idle: frozenset[int]

    @property
    def chosen(self) -> Trial:
        return self.front[0]

    @property
    def failed(self) -> list[Trial]:
        """Those that diverged or were refused."""
        return [trial for trial in self.found.trials if trial.failure]

    def standing(self, trial: Trial) -> str:
        """What became of a trial, in a word."""
        if trial.number == self.chosen.number:
            return "chosen"
        if trial.failure:
            return "refused" if trial.refused else "diverged"
        if trial.number in self.idle:
            return "idle"
        return "front" if trial in self.front else "dominated"


def choose(found: Found, rules: Rules) -> Choice:
    """Compare trials.

    Raises
    ------
    ConfigError
        When every trial diverged.
    """
    sound = [trial for trial in found.trials if trial.metrics is not None]
    if not sound:
        spelt = ", ".join(f"{bound.name}={bound.low:g}:{bound.high:g}" for bound in found.space)
        raise ConfigError(
            f"all {len(found.trials)} trials of '{found.algorithm}' diverged; search elsewhere "
            f"than {spelt} with --bound, or longer with --seconds"
        )
    table = np.array([trial.metrics.values for trial in sound if trial.metrics is not None])
    way = found.start - table[:, NAMES.index("loss")]
    moved = np.ones(len(way), bool)
    # Where even the best ends above its start, on average, no share of its way means anything.
    if rules.least_progress > 0 and way.max() > 0:
        moved = way >= rules.least_progress * way.max()
    idle = frozenset(t.number for t, fine in zip(sound, moved, strict=True) if not fine)
    table, sound = table[moved], [trial for trial in sound if trial.number not in idle]
    # What weighs nothing must not bring anybody onto the front either.
    counts = np.flatnonzero(rules.shares)
    better = np.array(LARGER_IS_BETTER)[counts].tolist()
    front = np.flatnonzero(pareto_front(table[:, counts], better))
    graded = grey_relational_analysis(
        table[front],
        LARGER_IS_BETTER,
        weights=rules.shares,
        distinguishing=rules.distinguishing,
    )
    order = graded.order
    graded = Grades(graded.normalised[order], graded.coefficients[order], graded.grades[order])
    return Choice(found, rules, [sound[front[place]] for place in order], graded, idle)


def read_weights(pairs: Iterable[str]) -> dict[str, float]:
    """What ``--weight loss=3`` says."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in NAMES:
            close = get_close_matches(name, NAMES, 1)
            hint = f" (the closest is '{close[0]}')" if close else ""
            raise ConfigError(
                f"--weight {pair}: there is no metric '{name}'{hint}; there is {', '.join(NAMES)}"
            )
        try:
            found[name] = float(value)
        except ValueError:
            raise ConfigError(f"--weight {pair} is not of the form METRIC=NUMBER") from None
        if not 0 <= found[name] < float("inf"):
            raise ConfigError(f"--weight {pair}: give a number of at least 0")
    if len(found) == len(NAMES) and not any(found.values()):
        raise ConfigError("--weight: not all metrics can weigh nothing; give one a weight above 0")
    return found
