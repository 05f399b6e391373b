"""Seconds per outer iteration of HyFDCA with all parties in one process.

The paper's seconds (Tables 6 to 8 of its supplement, parallel compute of the slowest client,
without encryption) stand beside ours, which add up all parties, the coordinator and the
certificates. Needs the data directory: set WEFT_DATA.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from harness import Report
from harness.splits import DataSets, synthetic
from weft.data import SPLITS, Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.solvers.settings import Settings

#: What the command line says in the process of the big table.
TRAIN_BIG = "train-big"


def seconds_per_iteration(
    tiles: Mapping[str, Sequence[Tile]], overlap: str, settings: Settings
) -> list[float]:
    """Wall seconds of every iteration but the first, which compiles."""
    federation = Federation(tiles, Preprocessing(overlap=overlap, confirmed=ONE_TABLE))  # type: ignore[arg-type]
    ends: list[float] = []
    federation.train(settings, progress=lambda record: ends.append(record.wall_seconds))
    return np.diff(ends).tolist()


def paper_settings(local: str, lam: float, iic: float, iterations: int) -> Settings:
    return Settings(
        lam=lam,
        local=local,
        iic=iic,
        participation=0.9,
        gap=None,
        iterations=iterations,
        cipher="plain",
    )


def speed_table(report: Report) -> None:
    data = DataSets(report.smoke)
    cases = (
        # name, split, λ, IIC, iterations, the paper's seconds, bar
        ("MNIST, 5,000 parties", lambda: data.mnist(5000), 1e-3, 0.02195, 60, 13.62, 0.6),
        ("MNIST, 500 parties", lambda: data.mnist(500), 1e-3, 0.08337, 60, 1.827, 0.1),
        ("Covertype, 12×12", lambda: data.dealt("covtype"), 5e-5, 0.0007434, 200, None, 0.1),
        ("newsgroups, 12×12", lambda: data.dealt("newsgroups"), 1e-5, 0.07564, 40, 0.4683, 0.25),
    )
    for name, make, lam, iic, iterations, paper, bar in cases:
        if not report.wants(name):
            continue
        split, iterations = make(), 3 if report.smoke else iterations
        for local in ("practical", "safe"):
            times = seconds_per_iteration(
                split.parties, split.overlap, paper_settings(local, lam, iic, iterations)
            )
            label = f"{name}, {local}"
            report.add(label, statistics.fmean(times), "s/iteration", anchor=paper, bar=bar)


def touched_rows(report: Report) -> None:
    """Twice the samples, the same number drawn: the iteration must not notice."""
    name = "twice the samples, same draws"
    if not report.wants(name):
        return
    # Both tables are far larger than the processor's caches, so that a touched row costs the
    # same in each. The quietest tenth of the iterations is compared, since whatever else the
    # machine does only adds, and by more than the difference looked for.
    drawn, size, iterations, repeats = 6000, 1_000_000, 80, 3
    if report.smoke:
        drawn, size, iterations, repeats = 30, 60, 10, 1
    for participation in (1.0, 0.7):
        times: dict[int, list[float]] = {1: [], 2: []}
        tables = {factor: synthetic(size * factor, 30) for factor in times}
        for _ in range(repeats):
            for factor, table in tables.items():
                settings = Settings(
                    lam=1e-3,
                    iic=drawn / (size * factor),
                    gap=None,
                    iterations=iterations,
                    certify_every=1000,
                    cipher="plain",
                    participation="everyone" if participation == 1 else participation,
                )
                split = SPLITS["grid"](table, k=3, q=3)
                run = seconds_per_iteration(split.parties, "mean", settings)
                times[factor].append(statistics.quantiles(run[5:], n=10)[0])
        ratio = min(times[2]) / min(times[1])
        report.add(f"{name}, {participation:g} taking part", ratio, "×", anchor=1.0, bar=1.15)


def big_table(report: Report) -> None:
    """1,000,000 × 100 dense, 3×3 parties, in a process of its own to read its peak memory."""
    name = "1,000,000 × 100, 3×3: peak memory"
    if not report.wants(name):
        return
    if report.smoke:
        peak, seconds = train_big(rows=90, iterations=3)
    else:
        out = subprocess.run(
            [sys.executable, __file__, TRAIN_BIG], check=True, capture_output=True, text=True
        )
        peak, seconds = (float(x) for x in out.stdout.split())
    report.add(name, peak, "GiB", bar=6.0)
    report.add("1,000,000 × 100, 3×3: iic 0.01", seconds, "s/iteration")


def train_big(rows: int = 1_000_000, iterations: int = 30) -> tuple[float, float]:
    """Peak memory of this process, and mean seconds of an iteration."""
    split = SPLITS["grid"](synthetic(rows, 100), k=3, q=3)
    preprocessing = Preprocessing(scaling="standard", intercept=True)
    ends: list[float] = []
    settings = Settings(lam=1e-4, iic=0.01, gap=None, iterations=iterations, cipher="plain")
    Federation(split.parties, preprocessing).train(
        settings, progress=lambda record: ends.append(record.wall_seconds)
    )
    return peak_memory(), (ends[-1] - ends[0]) / (len(ends) - 1)


def peak_memory() -> float:
    """GiB this process has held at most; unlike getrusage, not its parent's before it began."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("HyFDCA in one process", "paper, s", arguments)
    speed_table(report)
    touched_rows(report)
    big_table(report)
    report.close()


if __name__ == "__main__":
    if sys.argv[1:] == [TRAIN_BIG]:
        print(*train_big())
    else:
        main()
