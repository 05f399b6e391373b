"""The FedHybrid paper's comparison: FedAvg, DiSCO and FedH-K, each with steps searched alike.

Every run is a federated one. FedAvg takes full gradients, and is gradient descent then. An
iteration of DiSCO in Weft is one exchange, a gradient, a preconditioner or a product of the
Hessian, so that iterations of all methods cost one round trip each; its Newton steps, fewer by far,
are counted as updates of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from weft.solvers.fedhybrid.local_function import Weighting
from weft_papers.fedhybrid.option_by_option_search import tune
from weft_papers.fedhybrid.runs_tracked_to_optimum import Progress, TrackedRun, Workbench
from weft_papers.fedhybrid.setups import Setup

#: Distances (P − P*)/P* that the table counts iterations to.
COARSE, FINE = 1e-4, 1e-6
#: Where a final run stops: a little below, for the figures.
_STOP = 1e-8
_MU_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0)
_DUAL = (0.5, 1.0, 2.0, 4.0)
_PRIMAL = (0.5, 1.0, 1.25)
#: Of FedAvg, in units of one over the largest curvature that P can have.
_RATES = (0.5, 1.0, 1.5, 1.75, 1.9, 1.95, 3.0, 5.0, 8.0)
_DISCO_MU = (None, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_DISCO_FORCING = (0.05, 0.3, 0.01)


@dataclass(frozen=True)
class Effort:
    """How long runs of a search and the final ones are, in iterations, and how often to search."""

    tuning: int = 150
    final: int = 1000
    passes: int = 2


@dataclass(frozen=True)
class Outcome:
    """A method on a set-up, with the best steps found.

    Attributes
    ----------
    label
        As the paper writes it: FedAvg, DiSCO, FedH-4.
    newton
        How many parties are Newton-type; None for other methods.
    """

    setup: str
    seed: int
    label: str
    newton: int | None
    run: TrackedRun


#: From a method's name to what follows its runs.
Reporter = Callable[[str], Progress | None]


class Study:
    """All methods on one set-up.

    Parameters
    ----------
    seed
        Of the choice of Newton-type parties; that of the data is the set-up's.

    Attributes
    ----------
    reporter
        Is told each method's name, and gives what follows its runs.
    """

    def __init__(
        self,
        setup: Setup,
        weigh: Weighting,
        *,
        seed: int = 0,
        effort: Effort | None = None,
    ) -> None:
        self.setup, self.seed = setup, seed
        self.workbench = Workbench(setup.split, setup.loss, setup.lam, weigh)
        self._effort = effort or Effort()
        self.reporter: Reporter = lambda label: None
        # The best factors on μ, a and b of the number of Newton-type parties before.
        self._last = (1.0, 1.0, 1.0)

    def outcomes(self) -> Iterator[Outcome]:
        """Baselines first, then FedHybrid with more and more Newton-type parties."""
        yield self._outcome("FedAvg", None, self._fedavg)
        for precondition in ("first", "diagonal", "none"):
            label = "DiSCO" if precondition == "first" else f"DiSCO {precondition}"
            yield self._outcome(label, None, partial(self._disco, precondition))
        for k in self.setup.ladder:
            label = fedh(k, len(self.setup.parties))
            yield self._outcome(label, k, partial(self._fedhybrid, k))

    def _outcome(
        self, label: str, newton: int | None, search: Callable[[Progress | None], TrackedRun]
    ) -> Outcome:
        progress = self.reporter(label)
        found = search(progress)
        final = self.workbench.run(
            found.solver, found.options, self._effort.final, near=_STOP, progress=progress
        )
        return Outcome(self.setup.name, self.seed, label, newton, final)

    def _tune(
        self,
        solver: str,
        starts: Sequence[Mapping[str, Any]],
        grid: Mapping[str, Sequence[Any]],
        progress: Progress | None,
    ) -> TrackedRun:
        return tune(
            self.workbench,
            solver,
            starts,
            grid,
            iterations=self._effort.tuning,
            near=FINE,
            passes=self._effort.passes,
            progress=progress,
        )

    def _fedavg(self, progress: Progress | None) -> TrackedRun:
        problem = self.workbench.problem
        gram = (problem.x.T * problem.p) @ problem.x
        bend = problem.loss.smoothness * float(np.linalg.eigvalsh(gram)[-1]) + problem.lam
        # The mean over parties must weigh their gradients as the objective does.
        average = "equal" if self.workbench.weigh == "parties" else "samples"
        rates = [factor / bend for factor in _RATES]
        start = {"gradient": "full", "average": average, "a": rates[0]}
        return self._tune("fedavg", [start], {"a": rates}, progress)

    def _disco(self, precondition: str, progress: Progress | None) -> TrackedRun:
        grid: dict[str, Sequence[Any]] = {"forcing": _DISCO_FORCING}
        if precondition == "first":
            grid = {"mu": _DISCO_MU, **grid}
        start = {"precondition": precondition, "mu": None, "forcing": 0.05}
        return self._tune("disco", [start], grid, progress)

    def _fedhybrid(self, k: int, progress: Progress | None) -> TrackedRun:
        fixed = {"newton": self.setup.newton(k, self.seed)}
        # One iteration tells which μ is found without a search.
        mu = self.workbench.run("fedhybrid", fixed, 1).mu
        grid: dict[str, Sequence[Any]] = {"mu": [f * mu for f in _MU_FACTORS], "dual": _DUAL}
        if k < len(self.setup.parties):
            grid["primal"] = _PRIMAL
        starts = [
            {**fixed, "mu": factor * mu, "primal": primal, "dual": dual}
            for factor, primal, dual in ((1.0, 1.0, 1.0), self._last)
        ]
        best = self._tune("fedhybrid", starts, grid, progress)
        self._last = (best.options["mu"] / mu, best.options["primal"], best.options["dual"])
        return best


def fedh(k: int, parties: int) -> str:
    """The paper's name of FedHybrid with k Newton-type parties."""
    return {0: "FedH-G", parties: "FedH-N"}.get(k, f"FedH-{k}")
