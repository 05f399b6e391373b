"""What an iteration costs with all parties in one process, over a bare loop in the same run.

The bare loop (`harness/bare_loop.py`) has as many party objects, messages and numpy products, and
nothing else; both are timed in processor time. HyFDCA is timed with messages, and without them
between the parties (``Federation.train(..., without_messages=True)``, the same bits), for which the
bar is: certificates are part of both. FedAvg has messages. For the record: seconds of an iteration
beside the paper's (Tables 6 to 8 of its supplement, parallel compute of the slowest client, without
encryption), where ours add up all parties, the coordinator and the certificates. Needs the data
directory: set WEFT_DATA.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from harness import Report
from harness.bare_loop import bare_seconds
from harness.splits import DataSets, synthetic
from weft.data import SPLITS, Split, Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.solvers.run_settings import Settings

#: Times the bare loop that an iteration may cost, HyFDCA's without messages.
MOST = 1.8
#: What the command line says in the process of the big table.
TRAIN_BIG = "train-big"


def processor_seconds(
    tiles: Mapping[str, Sequence[Tile]],
    overlap: str,
    settings: Settings,
    *,
    without_messages: bool = False,
) -> tuple[float, float]:
    """Processor seconds and round trips of an iteration, the first aside, which compiles."""
    # Parties and what they know refer to each other: a hundred thousand from the run before would
    # take as much memory once more.
    gc.collect()
    federation = Federation(tiles, Preprocessing(overlap=overlap, confirmed=ONE_TABLE))  # type: ignore[arg-type]
    ends: list[tuple[float, int]] = []
    federation.train(
        settings,
        progress=lambda record: ends.append((time.process_time(), record.round_trips)),
        without_messages=without_messages,
    )
    (begun, before), (ended, after) = ends[0], ends[-1]
    return (ended - begun) / (len(ends) - 1), (after - before) / (len(ends) - 1)


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
        # name, split, λ, IIC, iterations, the paper's seconds
        ("MNIST, 5,000 parties", lambda: data.mnist(5000), 1e-3, 0.02195, 20, 13.62),
        ("MNIST, 500 parties", lambda: data.mnist(500), 1e-3, 0.08337, 60, 1.827),
        ("Covertype, 12×12", lambda: data.dealt("covtype"), 5e-5, 0.0007434, 200, None),
        ("newsgroups, 12×12", lambda: data.dealt("newsgroups"), 1e-5, 0.07564, 40, 0.4683),
        ("100,000 parties × 10 rows", lambda: many_parties(report.smoke), 1e-3, 0.1, 6, None),
    )
    if report.smoke:
        # With as few parties, the first two are the same.
        cases = cases[1:]
    for name, make, lam, iic, iterations, paper in cases:
        if not report.wants(name):
            continue
        split, iterations = make(), 3 if report.smoke else iterations
        for local in ("practical", "safe"):
            settings = paper_settings(local, lam, iic, iterations)
            seconds, trips = processor_seconds(split.parties, split.overlap, settings)
            bare = bare_seconds(
                split.parties, fraction=0.9, drawn=iic, round_trips=trips, iterations=iterations
            )
            label = f"{name}, {local}"
            report.add(label, seconds, "s/iteration", anchor=paper)
            report.add(f"{label}, over a bare loop", seconds / bare, "×")
            quiet, _ = processor_seconds(
                split.parties, split.overlap, settings, without_messages=True
            )
            report.add(f"{label}, without messages", quiet, "s/iteration", anchor=paper)
            report.add(f"{label}, without messages over a bare loop", quiet / bare, "×", bar=MOST)


def fedavg(report: Report) -> None:
    """FedAvg with 500 parties, one round trip an iteration."""
    name = "MNIST, 500 parties, FedAvg"
    if not report.wants(name):
        return
    split = DataSets(report.smoke).mnist(500)
    settings = Settings(
        lam=1e-3,
        solver="fedavg",
        iic=0.08337,
        participation=0.9,
        gap=None,
        iterations=3 if report.smoke else 60,
        cipher="plain",
    )
    seconds, trips = processor_seconds(split.parties, split.overlap, settings)
    bare = bare_seconds(
        split.parties,
        fraction=0.9,
        drawn=0.08337,
        round_trips=trips,
        iterations=settings.iterations or 1,
    )
    report.add(name, seconds, "s/iteration")
    report.add(f"{name}, over a bare loop", seconds / bare, "×", bar=MOST)


def many_parties(smoke: bool) -> Split:
    """As many parties as one process can be asked to play, each with a handful of rows."""
    parties = 15 if smoke else 100_000
    return SPLITS["rows"](synthetic(10 * parties, 10), parties=parties)


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
    fedavg(report)
    touched_rows(report)
    big_table(report)
    report.close()


if __name__ == "__main__":
    if sys.argv[1:] == [TRAIN_BIG]:
        print(*train_big())
    else:
        main()
