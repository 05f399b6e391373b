"""``python -m weft_papers.fedhybrid.run_by_paper_rules``: the comparison by the paper's own rules.

Constant steps of the paper's grid, the best by what is left after 100 iterations; beside them
FedHybrid with Weft's own steps, which nobody searches for; and steps with gradients and Hessians of
a part of the rows. Every finished run is a line of a file: what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from weft.array_types import Floats
from weft.errors import DataError
from weft.solvers.fedhybrid.local_function import Weighting
from weft_papers.fedhybrid.constant_step_grid import Followed, Grid
from weft_papers.fedhybrid.methods_comparison import fedh
from weft_papers.fedhybrid.paper_search import (
    PENALTIES,
    Chosen,
    best_fedavg,
    best_fedhybrid,
    both,
    candidates,
    gradient_starts,
    newton_starts,
)
from weft_papers.fedhybrid.runs_tracked_to_optimum import Workbench
from weft_papers.fedhybrid.setups import SETUPS, Setup, fedhybrid_setup

ITERATIONS = 100
#: Shares of its rows that a party draws for a step, beside all of them.
SHARES = (0.5, 0.1)
#: Of the iterations, every so manieth is kept.
_KEPT = 2

Line = dict[str, Any]
#: What a run is known by.
KEY = ("setup", "weigh", "seed", "series", "method", "share")


def read_runs(path: Path) -> list[Line]:
    """All runs in a file; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text]


@dataclass
class Case:
    """One set-up, weighting and seed, and the runs that are there."""

    setup: Setup
    weigh: Weighting
    seed: int
    there: dict[tuple[Any, ...], Line]

    def __post_init__(self) -> None:
        self._bench = Workbench(self.setup.split, self.setup.loss, self.setup.lam, self.weigh)

    def lines(self) -> Iterator[Line]:
        """Runs that were not there, one after the other."""
        yield from self._fedavg()
        yield from self._disco()
        found: dict[int, Chosen] = {}
        ladder = self.setup.ladder
        for k in (ladder[0], ladder[-1], *ladder[1:-1]):
            yield from self._fedhybrid(k, found)
        for k in ladder:
            yield from self._own(k)
        if self.weigh == "parties":
            for k in (ladder[0], ladder[-1]):
                yield from self._stochastic(k, found[k])

    def _fedavg(self) -> Iterator[Line]:
        if self._has("paper", "FedAvg"):
            return
        grid = Grid(self._bench)
        rate = best_fedavg(grid, ITERATIONS)
        run = grid.fedavg(np.array([rate]), ITERATIONS, losses=True)
        yield self._line("paper", "FedAvg", {"a": rate}, _curves(run))

    def _disco(self) -> Iterator[Line]:
        """Its iterations are exchanges, as in `weft_papers.fedhybrid.methods_comparison`."""
        if self._has("paper", "DiSCO"):
            return
        runs = {
            mu: self._bench.run("disco", {"precondition": "first", "mu": mu}, ITERATIONS)
            for mu in PENALTIES[::2]
        }
        mu = min(runs, key=lambda mu: float(runs[mu].errors[-1]))
        curves = runs[mu].errors, runs[mu].losses
        yield self._line("paper", "DiSCO", {"mu": mu}, curves)

    def _fedhybrid(self, k: int, found: dict[int, Chosen]) -> Iterator[Line]:
        label = fedh(k, len(self.setup.parties))
        before = self._has("paper", label)
        if before:
            found[k] = before["options"]
            return
        grid, newton = Grid(self._bench), self.setup.newton(k, self.seed)
        starts = gradient_starts() if k == 0 else newton_starts()
        if len(found) > 1:
            first, last, *others = found
            # With what both ends of the ladder found there is less to look for.
            starts = starts if grid.quadratic else []
            starts += [*both(found[first], found[last]), *(found[other] for other in others)]
        found[k] = best_fedhybrid(grid, newton, ITERATIONS, starts)
        run = grid.fedhybrid(newton, candidates([found[k]]), ITERATIONS, losses=True)
        yield self._line("paper", label, found[k], _curves(run))

    def _own(self, k: int) -> Iterator[Line]:
        label = fedh(k, len(self.setup.parties))
        if self._has("own", label):
            return
        newton = self.setup.newton(k, self.seed)
        run = self._bench.run("fedhybrid", {"newton": newton}, ITERATIONS)
        yield self._line("own", label, {}, (run.errors, run.losses))

    def _stochastic(self, k: int, steps: Chosen) -> Iterator[Line]:
        """The steps found for whole gradients, and a tenth of them."""
        label = fedh(k, len(self.setup.parties))
        newton = self.setup.newton(k, self.seed)
        for share in SHARES:
            for series, factor in (("stochastic", 1.0), ("stochastic, a tenth", 0.1)):
                if self._has(series, label, share):
                    continue
                taken = {n: v if n == "mu" else factor * v for n, v in steps.items()}
                grid = Grid(self._bench, share=share, seed=self.seed)
                run = grid.fedhybrid(newton, candidates([taken]), ITERATIONS, losses=True)
                yield self._line(series, label, taken, _curves(run), share)

    def _has(self, series: str, method: str, share: float = 1.0) -> Line | None:
        return self.there.get((self.setup.name, self.weigh, self.seed, series, method, share))

    def _line(
        self,
        series: str,
        method: str,
        options: Mapping[str, float],
        curves: tuple[Floats, Floats],
        share: float = 1.0,
    ) -> Line:
        errors, losses = ([_short(v) for v in curve[::_KEPT]] for curve in curves)
        key = self.setup.name, self.weigh, self.seed, series, method, share
        best = self._bench.optimum
        return {
            **dict(zip(KEY, key, strict=True)),
            "parties": len(self.setup.parties),
            "optimum": _short(best.primal),
            "options": dict(options),
            "errors": errors,
            "losses": losses,
        }


def _curves(run: Followed) -> tuple[Floats, Floats]:
    assert run.losses is not None
    return run.errors[:, 0], run.losses


def _short(value: float) -> float | None:
    """Five digits; None where a run diverged."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


def cases(
    names: Sequence[str], seeds: int, data_dir: str | None, runs: Sequence[Line]
) -> Iterator[Case]:
    there = {tuple(run[name] for name in KEY): run for run in runs}
    for seed in range(seeds):
        for name in names:
            made = fedhybrid_setup(name, seed, data_dir)
            for weigh in get_args(Weighting):
                yield Case(made, weigh, seed, there)


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m weft_papers.fedhybrid.run_by_paper_rules", description=__doc__
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs.jsonl"), help="file of finished runs")
    add("--setup", nargs="+", choices=list(SETUPS), default=list(SETUPS))
    add("--seeds", type=int, default=3)
    add("--data-dir", help="folder with the original files; default: WEFT_DATA")
    told = parser.parse_args(arguments)
    try:
        for case in cases(told.setup, told.seeds, told.data_dir, read_runs(told.out)):
            for line in case.lines():
                with told.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(*(line[name] for name in KEY), line["errors"][-1], flush=True)
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
