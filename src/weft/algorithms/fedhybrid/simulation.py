"""FedHybrid in one place and without messages: for tuning steps, experiments and theory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.fedhybrid.local import LocalFunction
from weft.algorithms.fedhybrid.steps import Auto, Pair, Rule, Safeguard, Theory
from weft.algorithms.fedhybrid.updates import State, gradient_update, newton_update, stand

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moment:
    """The state after an iteration: the server's x₀, all parties' states, the mean residual.

    The residual is that of the state before, as each party knew it when x₀ arrived; of an
    absent party it is the last one known.
    """

    x0: Floats
    states: tuple[State, ...]
    residual: Floats


class Simulation:
    """All parties' functions, and which of them take Newton-type updates."""

    def __init__(self, functions: Sequence[LocalFunction], newton: Sequence[bool]) -> None:
        self.functions, self.newton = list(functions), list(newton)

    def auto(self) -> Auto:
        """The rule that needs no tuning."""
        bounds = [function.curvature for function in self.functions]
        lower = float(np.mean([bound.lower for bound in bounds]))
        upper = float(np.mean([bound.upper for bound in bounds]))
        return Auto.of(lower, upper, all(self.newton))

    def theory(self, mu: float | None = None) -> Theory:
        """The proven rule."""
        return Theory.of([function.curvature for function in self.functions], self.newton, mu)

    def objective(self, x: Floats) -> float:
        """(1/n) Σ_i f_i(x), over all classes."""
        return float(np.mean([function.value(x).sum() for function in self.functions]))

    def run(
        self, rule: Rule, present: Iterator[NDArray[np.bool_]] | None = None
    ) -> Iterator[Moment]:
        """Iterate for as long as somebody asks, from zero.

        Parameters
        ----------
        rule
            Steps; those of `Auto` are halved when the safeguard says so.
        present
            For each iteration who takes part; None: everybody.
        """
        states = [State.start(function.shape) for function in self.functions]
        # Infinite until a party has been heard, lest a small sum of a few be taken for that of all.
        residuals = np.full((len(states), self.functions[0].shape[1]), np.inf)
        safeguard = Safeguard()
        x0: Floats = np.mean([state.share(rule.mu) for state in states], axis=0)
        everybody = np.ones(len(states), bool)
        while True:
            for i in np.flatnonzero(everybody if present is None else next(present)):
                pair = rule.own(self.functions[i].curvature, self.newton[i])
                states[i], residuals[i] = self._update(int(i), states[i], x0, rule.mu, pair)
            x0 = np.mean([state.share(rule.mu) for state in states], axis=0)
            mean = residuals.mean(axis=0)
            yield Moment(x0, tuple(states), mean)
            if isinstance(rule, Auto) and safeguard.too_long(float(mean.sum())):
                rule = rule.halved()

    def _update(
        self, i: int, state: State, x0: Floats, mu: float, pair: Pair
    ) -> tuple[State, Floats]:
        function = self.functions[i]
        here = stand(function, state, x0, mu)
        update = newton_update if self.newton[i] else gradient_update
        return update(function, state, here, x0, mu, pair), here.residual


def draws(parties: int, share: float, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Who takes part: everyone on its own with probability ``share``."""
    rng = np.random.default_rng(seed)
    while True:
        yield rng.random(parties) < share
