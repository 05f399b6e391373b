"""Seconds per iteration of the field's methods with all parties in one process.

The paper's seconds (Table 6 of the supplement of Overman, Blum and Klabjan 2022) are those of its
slowest client, as if all worked in parallel; ours add up all parties and the coordinator, one after
the other. Hyper-parameters are those of its Table 2. Needs the data directory: set WEFT_DATA.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from harness import Report
from harness.splits import DataSets
from weft.data import Split
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.solvers.run_settings import Settings

#: Participation: (IIC, a, b), and the paper's seconds.
FEDAVG = {
    0.1: ((0.01718, 0.02867, 0.0004823), 0.1027),
    0.5: ((0.06561, 0.04185, 0.00004166), 0.1922),
    0.9: ((0.04872, 0.05857, 0.1124), 0.2064),
}
#: Participation: (IIC, a, b), μ, and the paper's seconds.
HYFEM = {
    0.1: ((0.05594, 0.0004672, 0.05344), 2.797, 3.140),
    0.5: ((0.00568, 0.00006007, 1.015), 6.296, 11.82),
    0.9: ((0.00568, 0.00006007, 1.015), 6.296, 20.44),
}


def seconds(
    split: Split, iterations: int, solver: str, participation: float, iic: float, **options: float
) -> float:
    """Mean seconds of an iteration, certificates aside, but for the first, which compiles."""
    settings = Settings(
        lam=1e-3,
        solver=solver,
        options=options,
        iic=iic,
        participation=participation,
        gap=None,
        iterations=iterations,
        certify_every=10 * iterations,
        cipher="plain",
    )
    ends: list[float] = []
    federation = Federation(
        split.parties, Preprocessing(overlap=split.overlap, confirmed=ONE_TABLE)
    )
    federation.train(settings, progress=lambda record: ends.append(record.wall_seconds))
    return statistics.fmean(np.diff(ends).tolist())


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("The field's methods in one process", "paper, s", arguments)
    split = DataSets(report.smoke).mnist(500)
    iterations = 3 if report.smoke else 200
    for participation, ((iic, a, b), paper) in FEDAVG.items():
        name = f"fedavg, MNIST, 500 parties, {participation:g} taking part"
        if report.wants(name):
            value = seconds(split, iterations, "fedavg", participation, iic, a=a, b=b)
            report.add(name, value, "s/iteration", anchor=paper, bar=paper / 10)
    for participation, ((iic, a, b), mu, paper) in HYFEM.items():
        name = f"hyfem, MNIST, 500 parties, {participation:g} taking part"
        if report.wants(name):
            value = seconds(split, iterations, "hyfem", participation, iic, a=a, b=b, mu=mu)
            report.add(name, value, "s/iteration", anchor=paper, bar=paper / 10)
    report.close()


if __name__ == "__main__":
    main()
