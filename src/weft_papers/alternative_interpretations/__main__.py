"""What other readings of the papers' texts cost, as tables.

``python -m weft_papers.alternative_interpretations`` prints them.

With ``hyfdca``, ``fedhybrid`` or ``hyfem`` only that paper's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from time import process_time

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVC

from weft.array_types import Floats
from weft_papers.alternative_interpretations.fedhybrid_rate import rates
from weft_papers.alternative_interpretations.hyfdca_by_hand import Reading, Table, Trace, run

_LAM, _DRAWN, _SEEDS = 1e-2, 10, 2
_ITERATIONS = 600


def hyfdca() -> list[str]:
    """Breast cancer, standardised, 3 × 3 parties, hinge loss."""
    data = load_breast_cancer()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    table = Table(x / np.linalg.norm(x, axis=1).max(), np.where(data.target > 0, 1.0, -1.0), (3, 3))
    best = least_primal(table)
    five, three = Reading(), Reading(subgradient=-1)
    shown = {
        "Algorithm 5 as Weft reads it": five,
        "K̄ as printed": replace(five, refreshed="printed"),
        "closed form with 1 − xᵀw": replace(five, margin="printed"),
        "inner products of drawn samples, five iterations ahead": replace(five, window=5),
        "inner products of drawn samples only": replace(five, window=0),
        "feature sums by changes": replace(five, resum=False),
        "Algorithm 3, u = −l'": three,
        "Algorithm 3, u = l' as printed": replace(three, subgradient=1),
    }
    lines = [
        "| HyFDCA | relative loss, all there | half there | a tenth there | refreshes | inner "
        "products sent | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for title, reading in shown.items():
        began = process_time()
        cells = []
        for participation in (1.0, 0.5, 0.1):
            traces = [_trace(table, reading, participation, seed) for seed in range(_SEEDS)]
            losses = [table.primal(trace.w, _LAM) / best - 1 for trace in traces]
            cells.append(f"{fmean(losses):.2g}")
            if participation == 0.5:
                refreshes = fmean(trace.refreshes for trace in traces) / _ITERATIONS
                sent = fmean(trace.sent for trace in traces) / _ITERATIONS
        seconds = process_time() - began
        cells += [f"{refreshes:.2f}", f"{sent:.0f}", f"{seconds:.1f}"]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def _trace(table: Table, reading: Reading, participation: float, seed: int) -> Trace:
    return run(
        table,
        _LAM,
        reading,
        iterations=_ITERATIONS,
        participation=participation,
        drawn=_DRAWN,
        seed=seed,
    )


def least_primal(table: Table) -> float:
    """P*, by liblinear."""
    judge = LinearSVC(
        C=1 / (_LAM * len(table.y)),
        loss="hinge",
        fit_intercept=False,
        tol=1e-8,
        max_iter=1_000_000,
    )
    w: Floats = judge.fit(table.x, table.y).coef_[0]
    return table.primal(w, _LAM)


def fedhybrid() -> list[str]:
    """Theorem 4.1's rate on parties alike, by the spread of their curvature."""
    lines = [
        "| FedHybrid, μ = 1 | printed, m + μ | proven, ℓ + μ | one iteration |",
        "|---|---|---|---|",
    ]
    for m, upper in ((0.5, 1.0), (0.1, 10.0), (0.01, 100.0)):
        found = rates(m, upper, 1.0)
        told = (found.printed, found.proven, found.happened)
        lines.append(f"| m = {m:g}, ℓ = {upper:g} | " + " | ".join(f"{v:.2g}" for v in told) + " |")
    return lines


def hyfem() -> list[str]:
    """Multiple Features, 6 parties, 8 rounds."""
    from weft_neural.local_federation import NeuralFederation
    from weft_neural.server_model_accuracy import ServerJudge
    from weft_papers.hyfem.setups import setup

    shown: dict[str, dict[str, object]] = {
        "as Weft reads it: the exact rise, penalty auto, μ1 = 0.1": {},
        "μ1 = 1, as the 2020 text": {"mu1": 1.0},
        "cost squared": {"matching": {"cost": "squared"}},
        "first classifiers of their own": {"start": "own"},
        "the same, cost squared": {"start": "own", "matching": {"cost": "squared"}},
        "the same, cost pfnm": {"start": "own", "matching": {"cost": "pfnm"}},
        "the same, a new row costs next to nothing": {
            "start": "own",
            "matching": {"penalty": 1e-6},
        },
    }
    lines = [
        "| HyFEM | server | parties, received | own | rows of the server |",
        "|---|---|---|---|---|",
    ]
    for title, changes in shown.items():
        chosen = setup("mfeat", changes={"rounds": 8, "evaluate_every": 8, **changes})
        scene = chosen.load(None)
        plan = next(chosen.plans(scene.parties, scene.common_blocks(), ["hyfem"]))
        judge = ServerJudge(*scene.tested(None), device="cpu")
        trained = NeuralFederation(scene.sources(), device="cpu").train(
            plan.settings(tuple(scene.blocks)), classes=range(len(scene.class_names)), judge=judge
        )
        last = trained.history[-1]
        told = (last.server_accuracy, last.received_accuracy, last.local_accuracy)
        cells = ["–" if value is None else f"{100 * value:.1f}" for value in told]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {last.rows[0]} |")
    return lines


_PAPERS: dict[str, Callable[[], list[str]]] = {
    "hyfdca": hyfdca,
    "fedhybrid": fedhybrid,
    "hyfem": hyfem,
}


def main(names: Sequence[str]) -> int:
    """Print the tables of some papers; returns the exit code."""
    unknown = [name for name in names if name not in _PAPERS]
    if unknown:
        print(f"there is no paper '{unknown[0]}'; choose {', '.join(_PAPERS)}", file=sys.stderr)
        return 2
    for name in names or _PAPERS:
        print(*_PAPERS[name](), "", sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
