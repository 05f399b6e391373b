"""What training on a large dense table costs, over scikit-learn's lbfgs on the pooled one.

A table of 50 columns is dealt to 3×3 parties, who train a logistic model to a certified gap of
1e-2 in one process, with encryption and the careful terms. Beside it, in the same run,
scikit-learn's lbfgs takes the pooled table. Every case runs in a process of its own, so that its
peak of memory is its own; all seconds are of the processor. The parties' tables are made in place:
memory counts from before the first of them, so that they are in it once at least.

The largest table is also kept in single precision by its parties; its memory, too, is over the
table of all digits.

The models are compared by their objective on the pooled table, which scikit-learn's process
computes of both: ours may lie above the optimum by its certificate, and no further.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from harness import Number, Report
from harness.processor_clock import ProcessorClock
from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.protocol import Channel
from weft.solvers.run_settings import Settings

Floats = NDArray[np.float64]

COLUMNS, GRID = 50, 3
LAM, GAP, SMOKE_GAP = 1e-4, 1e-2, 0.5
#: Columns are correlated, as those of real tables are: factors that they share, and noise beside.
FACTORS, NOISE = 5, 0.5
#: Times scikit-learn's seconds, and times the table, that training may take; and how much more than
#: three times as much three times the rows may take.
MOST_SECONDS, MOST_MEMORY, MOST_GROWTH = 6.0, 2.5, 1.15
#: Rows of the first table of a process, which loads and compiles what large tables take.
WARM = 9_000
#: Phases that take less than this share of the whole are added up.
SMALL = 0.02
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A table by its size; all of it follows from that."""

    rows: int
    columns: int
    #: Whether parties keep their cells in single precision.
    single: bool = False

    @property
    def bytes(self) -> int:
        return self.rows * self.columns * 8

    def parts(self, count: int) -> list[slice]:
        edges = np.linspace(0, count, GRID + 1).astype(int).tolist()
        return [slice(a, b) for a, b in pairwise(edges)]

    @property
    def weights(self) -> Floats:
        drawn: Floats = np.random.default_rng(1).standard_normal(self.columns)
        return drawn

    def block(self, rows: slice, columns: slice) -> Floats:
        """The cells of one party: a few factors that all columns of a row share, and noise."""
        count, width = rows.stop - rows.start, columns.stop - columns.start
        loadings = np.random.default_rng(4).standard_normal((FACTORS, self.columns))
        factors = np.random.default_rng([5, rows.start]).standard_normal((count, FACTORS))
        block: Floats = np.random.default_rng([2, rows.start, columns.start]).standard_normal(
            (count, width)
        )
        block *= NOISE
        block += factors @ loadings[:, columns] / np.sqrt(FACTORS)
        return block

    def labels(self, scores: Floats, rows: slice) -> NDArray[np.int64]:
        noise = np.random.default_rng([3, rows.start]).logistic(size=len(scores))
        return (3 * scores / np.sqrt(self.columns) + noise > 0).astype(np.int64)


@dataclass
class Figures:
    """What one case took: seconds, bytes, and the weights that it found."""

    seconds: float
    memory: float
    weights: Floats
    phases: dict[str, float]
    round_trips: int = 0
    gap: float = 0.0


@dataclass
class Peer:
    """scikit-learn's, and the objectives of both."""

    seconds: float
    memory: float
    objective: float
    ours: float


def memory(name: str) -> float:
    """Bytes of this process, now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return float(line.split()[1]) * 1024


def party_tiles(case: Case) -> dict[str, list[Tile]]:
    tiles = {}
    for i, rows in enumerate(case.parts(case.rows)):
        held, scores = [], np.zeros(rows.stop - rows.start)
        for columns in case.parts(case.columns):
            block = case.block(rows, columns)
            scores += block @ case.weights[columns]
            held.append((columns, block))
        ids = np.array([f"p{n}" for n in range(rows.start, rows.stop)], dtype=object)
        labels = case.labels(scores, rows)
        for j, (columns, block) in enumerate(held):
            names = np.array([f"x{n}" for n in range(columns.start, columns.stop)], dtype=object)
            tile = Tile(ids, names, block, labels)
            kept = tile.in_single_precision() if case.single else tile
            tiles[f"p{GRID * i + j + 1}"] = [kept]
    return tiles


def train(case: Case, gap: float = GAP) -> Figures:
    """From tiles in memory to the model, in this process."""
    before = memory("VmRSS")
    tiles = party_tiles(case)
    settings = Settings(lam=LAM, loss="logistic", solver="auto", gap=gap)
    clocks: list[ProcessorClock] = []

    def timed(channel: Channel) -> Channel:
        clocks.append(ProcessorClock(channel))
        return clocks[0]

    federation = Federation(
        tiles,
        Preprocessing(confirmed=ONE_TABLE),
        terms=Terms(coordinator_sees=settings.coordinator_sees, ciphers=(settings.cipher,)),
    )
    began = process_time()
    trained = federation.train(settings, through=timed)
    seconds = process_time() - began
    (clock,) = clocks
    spent = clock.spent
    names = dict.fromkeys(phase for held in spent.parties.values() for phase in held)
    phases = {
        name: sum(sum(held.get(name, ())) for held in spent.parties.values()) for name in names
    }
    phases["coordinator"] = sum(map(sum, spent.coordinator.values()))
    order = np.argsort([int(name[1:]) for name in trained.model.features.tolist()])
    gap = trained.result.history[-1].gap
    return Figures(
        seconds,
        memory("VmHWM") - before,
        trained.model.coef[0][order],
        phases,
        clock.meter.round_trips,
        np.inf if gap is None else gap,
    )


def warm_train(case: Case) -> Figures:
    """The same in a process that has compiled."""
    train(Case(WARM, COLUMNS, case.single))
    return train(case)


def fit_pooled(case: Case, ours: Floats) -> Peer:
    """scikit-learn on the pooled table, and the objective of both models on it."""
    from sklearn.linear_model import LogisticRegression

    before = memory("VmRSS")
    table = np.empty((case.rows, case.columns))
    labels = np.empty(case.rows, np.int64)
    for rows in case.parts(case.rows):
        for columns in case.parts(case.columns):
            table[rows, columns] = case.block(rows, columns)
        labels[rows] = case.labels(table[rows] @ case.weights, rows)
    model = LogisticRegression(
        C=1 / (LAM * case.rows), fit_intercept=False, tol=1e-4, max_iter=1000
    )
    began = process_time()
    model.fit(table, labels)
    seconds = process_time() - began
    peak = memory("VmHWM") - before
    signs = np.where(labels > 0, -1.0, 1.0)

    def objective(w: Floats) -> float:
        losses = np.logaddexp(0.0, signs * (table @ w))
        return float(losses.mean() + LAM / 2 * (w @ w))

    return Peer(seconds, peak, objective(model.coef_[0]), objective(ours))


def alone(run: Callable[..., object], *arguments: object) -> object:
    """Run a case in a fresh process; a smoke run has no need of one."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, arguments)


def one_size(report: Report, case: Case, *, judged: bool) -> Figures:
    """One table; the bars are for the largest."""
    name = f"{case.rows:,} × {COLUMNS}{' in single precision' * case.single}"
    found = train(case, SMOKE_GAP) if report.smoke else alone(warm_train, case)
    assert isinstance(found, Figures)
    judge = (case, found.weights)
    peer = fit_pooled(*judge) if report.smoke else alone(fit_pooled, *judge)
    assert isinstance(peer, Peer)
    small = 0.0
    for phase, seconds in sorted(found.phases.items(), key=lambda item: -item[1]):
        if seconds < SMALL * found.seconds:
            small += seconds
        else:
            report.add(f"{name}: {phase}", seconds, "s, all parties")
    report.add(f"{name}: all other phases", small, "s, all parties")
    report.add(f"{name}: round trips", found.round_trips, "")
    report.add(f"{name}: certified gap", found.gap, "of P", bar=GAP)
    above = (found_objective := peer.ours) / peer.objective - 1
    report.add(
        f"{name}: above scikit-learn's objective", above, f"of {found_objective:.4g}", bar=GAP
    )
    report.add(f"{name}: processor", found.seconds, "s", anchor=peer.seconds)
    report.add(
        f"{name}: over scikit-learn",
        found.seconds / max(peer.seconds, 1e-9),
        "×",
        bar=MOST_SECONDS if judged else None,
    )
    report.add(f"{name}: memory", found.memory / MIB, "MiB", anchor=peer.memory / MIB)
    report.add(
        f"{name}: memory over the table",
        found.memory / case.bytes,
        "×",
        anchor=peer.memory / case.bytes,
        bar=MOST_MEMORY if judged else None,
    )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report(
        f"Large tables, {GRID}×{GRID} parties, logistic, certified {GAP:g}",
        "scikit-learn",
        arguments,
        {"rows": Number(1_000_000, 90, "rows of the largest table")},
    )
    most = int(report.number("rows"))
    sizes = (most,) if report.smoke else (most // 10, most * 3 // 10, most)
    found = {
        rows: one_size(report, Case(rows, COLUMNS), judged=rows == most)
        for rows in sizes
        if report.wants(f"{rows:,} × {COLUMNS}")
    }
    if report.wants("in single precision"):
        one_size(report, Case(most, COLUMNS, single=True), judged=False)
    if len(found) == 3:
        _, less, more = found.values()
        growth = more.seconds / less.seconds * less.round_trips / more.round_trips * 3 / 10
        report.add(
            "seconds of a round trip per row, from 3/10 to all", growth, "×", bar=MOST_GROWTH
        )
    report.close()


if __name__ == "__main__":
    main()
