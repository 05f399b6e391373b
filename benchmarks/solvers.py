"""Round trips of the fast solvers to a certified gap, beside HyFDCA's and liblinear's optimum.

Three parts; ``--only`` selects by a part of a row's name (``--only "Covertype 3×3, hinge"``, or
``--only "hinge, blind"``):

``bits``      the same model from ``plain`` and ``pad``
``compute``   an iteration's seconds over those of the two products that it cannot do without
problems      round trips, modelled seconds, and the optimum that a central solver finds

One run to the smallest gap gives the figures of all gaps. Round trips count from the first message,
matching and setting up included. To the smallest gap they include closing, in which the parties
form w and measure it; to a larger one there are two rows, up to the iteration whose gap is that
small, and with the closing of a run that stops there. Modelled seconds include it always.

Modelled seconds add up the slowest party of every phase (computing and encrypting: parties work
side by side), everything else that the process did, which is the coordinator's work, and round
trips × latency. Bytes travel in no time.

Guards are on (the careful terms). What they hold back is printed, and where they keep the gap
above a target, the gap that was reached takes the place of the bar. HyFDCA (``safe``, all samples
in every iteration) trains without guards and with cipher ``plain``, to save time: its round trips
are the same with any cipher, and its modelled seconds lack encryption. It stops at ten times our
round trips or after ``--hyfdca-seconds``, whichever is first, and nothing is extrapolated.

Central optima are kept in WEFT_CACHE (or the folder for temporary files). Needs the data directory:
set WEFT_DATA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import mean, median
from time import process_time
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

from harness import Number, Report
from harness.left_out import without_rare_cells
from harness.marked_runs import Mark, Run, released, train
from harness.optima import optimum, primal, signs, with_constant
from harness.splits import DataSets, synthetic
from weft.data import SPLITS, Split, Table, pool
from weft.solvers.run_settings import Settings

Floats = NDArray[np.float64]
Mode = Literal["weights", "nothing"]

#: What the coordinator sees, as rows name it, and how many of the round trips it may take.
MODES: dict[Mode, tuple[str, float]] = {
    "weights": ("weights", 1.0),
    "nothing": ("blind", 4 / 3),
}
#: Seconds of a round trip.
LATENCIES = (0.0, 0.2575, 0.8)
#: How far HyFDCA may go, in our round trips.
TIMES = 10
#: Share of P* by which a lower bound may lie above it: sums travel in fixed point.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """A problem, how it is cut, and (gap, round trips at most where weights are seen)."""

    data: str
    name: str
    k: int
    q: int
    loss: str
    lam: float
    targets: tuple[tuple[float, float], ...]
    groups: int = 1

    @property
    def problem(self) -> str:
        return f"{self.name} {self.k}×{self.q}, {self.loss}"

    def run(self, mode: Mode) -> str:
        parts = [self.problem, MODES[mode][0]]
        if self.groups > 1:
            parts.insert(1, f"{self.groups} groups")
        return ", ".join(parts)

    @property
    def smallest(self) -> float:
        return min(gap for gap, _ in self.targets)

    @property
    def solver(self) -> str:
        return "cutting-planes" if self.loss == "hinge" else "lbfgs"


CASES = (
    Case("mnist", "MNIST", 4, 5, "hinge", 1e-3, ((1e-2, 90), (1e-3, 130))),
    Case("mnist", "MNIST", 4, 5, "hinge", 1e-3, ((1e-2, 90), (1e-3, 130)), groups=10),
    Case("mnist", "MNIST", 4, 5, "logistic", 1e-3, ((1e-3, 160),)),
    Case("covtype", "Covertype", 3, 3, "hinge", 5e-5, ((1e-2, 110), (1e-3, 150))),
    Case("covtype", "Covertype", 3, 3, "logistic", 5e-5, ((1e-3, 160),)),
    Case("newsgroups", "newsgroups", 3, 3, "hinge", 1e-5, ((1e-1, 100), (1e-2, 260))),
    Case("newsgroups", "newsgroups", 3, 3, "logistic", 1e-5, ((1e-3, 160),)),
)

#: What a smoke run is to reach, in how many round trips, and its groups in the place of ten.
SMOKE_TARGETS, SMOKE_GROUPS = ((0.95, 10), (0.9, 10)), 1


@dataclass(frozen=True)
class Bench:
    """What all parts work with: ``cases`` are the problems, ``timed`` the one of ``compute``."""

    report: Report
    data: DataSets
    cases: tuple[Case, ...]
    timed: Case

    @classmethod
    def of(cls, report: Report) -> Bench:
        cases = CASES
        (timed,) = [c for c in CASES if c.data == "covtype" and c.loss == "hinge"]
        if report.smoke:
            # What runs other code than the cases before it: one table is sparse.
            told = [c for c in CASES if c.data == "mnist" or c.problem == "newsgroups 3×3, hinge"]
            # With one group in the place of ten, two cases are the same.
            cases, timed = tuple(dict.fromkeys(map(_small, told))), _small(timed)
        return cls(report, DataSets(report.smoke), cases, timed)


def _small(case: Case) -> Case:
    targets = SMOKE_TARGETS[-len(case.targets) :]
    return replace(case, targets=targets, groups=min(case.groups, SMOKE_GROUPS))


# ── problems ──────────────────────────────────────────────────────────────────────────────────


def our_settings(case: Case, mode: Mode, cipher: str = "pad") -> Settings:
    return Settings(
        lam=case.lam,
        loss=case.loss,
        solver=case.solver,
        groups=case.groups,
        gap=case.smallest,
        # A guard may keep the gap up: far beyond the bar nothing is to be learnt.
        round_trips=int(2 * max(bar for _, bar in case.targets)),
        cipher=cipher,
        coordinator_sees=mode,
    )


def problems_part(bench: Bench) -> None:
    report = bench.report
    summary = Grid(title="Round trips, and modelled seconds at latencies of 0 / 0.2575 / 0.8 s")
    for heading in ("", "gap", "trips + closing", "bar", "seconds", "HyFDCA", "its seconds"):
        summary.add_column(heading, justify="right" if heading else "left")
    for problem, same in groupby(bench.cases, key=lambda case: case.problem):
        wanted = [
            (case, mode) for case in same for mode in MODES if report.wants(f"{case.run(mode)}: ")
        ]
        if wanted:
            one_problem(bench, problem, wanted, summary)
    if summary.row_count:
        Console(width=140).print(summary)


def one_problem(bench: Bench, problem: str, wanted: list[tuple[Case, Mode]], summary: Grid) -> None:
    report, case = bench.report, wanted[0][0]
    split = bench.data.grid(case.data, case.k, case.q)
    runs: list[tuple[Case, Mode, Run]] = []
    for case, mode in wanted:
        print(f"{case.run(mode)}: training …", flush=True)
        run = train(split, our_settings(case, mode))
        print(f"  {run.result.stopped}, {run.final.round_trips} round trips", flush=True)
        for note in run.result.notes:
            print(f"  {note}", flush=True)
        runs.append((case, mode, run))
    peer, stopped = None, ""
    seconds = report.number("hyfdca-seconds")
    if seconds > 0:
        most = TIMES * max(run.final.round_trips for _, _, run in runs)
        print(f"{problem}, HyFDCA: training for up to {most} round trips …", flush=True)
        how = peer_settings(case, most, seconds)
        peer = train(split, how, guarded=False)
        stopped = peer.result.stopped
        print(f"  stopped: {stopped}", flush=True)
    for case, mode, run in runs:
        trips_rows(report, case, mode, run, peer, summary)
    if peer is not None:
        add_seconds(report, f"{problem}, HyFDCA after {peer.final.round_trips} trips", peer.final)
    optimum_rows(report, runs, pool(without_rare_cells(split)))


def peer_settings(case: Case, round_trips: int, seconds: float) -> Settings:
    return Settings(
        lam=case.lam,
        loss=case.loss,
        solver="hyfdca",
        local="safe",
        gap=case.smallest,
        iterations=None,
        round_trips=round_trips,
        seconds=seconds,
        cipher="plain",
    )


def add_seconds(report: Report, name: str, ours: Mark, theirs: Mark | None = None) -> None:
    for latency in LATENCIES:
        anchor = None if theirs is None else theirs.seconds(latency)
        report.add(f"{name}, at {latency:g} s", ours.seconds(latency), "s", anchor=anchor)


def trips_rows(
    report: Report, case: Case, mode: Mode, run: Run, peer: Run | None, summary: Grid
) -> None:
    """Round trips and seconds to every gap, beside HyFDCA's, or how far that came."""
    name = case.run(mode)
    for gap, most in case.targets:
        bar = int(most * MODES[mode][1])
        theirs = None if peer is None else peer.at(gap)
        anchor = None if theirs is None else theirs.round_trips
        smallest = gap == case.smallest
        found, ours = run.at(gap), run.closed(gap, smallest=smallest)
        if (found is None or ours is None) and any("min_batch" in n for n in run.result.notes):
            label = f"{name}: gap under guards, {gap:g} not reached"
            report.add(label, run.final.gap, "relative gap")
            continue
        if found is None or ours is None:
            # A bar that is not met: the run ended before.
            report.add(f"{name}: trips to {gap:g}", np.inf, "round trips", bar=bar)
            continue
        ends = {"": ours} if smallest else {"": found, " and closing": ours}
        for what, end in ends.items():
            label = f"{name}: trips to {gap:g}{what}"
            report.add(label, end.round_trips, "round trips", anchor=anchor, bar=bar)
        add_seconds(report, f"{name}: {gap:g}", ours, theirs)
        trips = f"{found.round_trips} + {ours.round_trips - found.round_trips}"
        says, spent = "", ""
        if peer is not None:
            last = theirs or peer.within(TIMES * ours.round_trips)
            if theirs is None:
                says = f"gap {last.gap:.3g} after {last.round_trips}"
                label = f"{name}: {gap:g}, HyFDCA's gap after {last.round_trips} trips"
                report.add(label, last.gap, "relative gap", anchor=ours.gap)
            else:
                says = str(theirs.round_trips)
            spent = in_seconds(last)
        summary.add_row(name, f"{gap:g}", trips, f"≤ {bar}", in_seconds(ours), says, spent)


def in_seconds(mark: Mark) -> str:
    return " / ".join(f"{mark.seconds(latency):.3g}" for latency in LATENCIES)


def optimum_rows(report: Report, runs: list[tuple[Case, Mode, Run]], table: Table) -> None:
    """P and D beside what a central solver finds on the pooled table, of which the same cells are
    left out."""
    case, _, run = runs[0]
    classes = run.model.classes
    assert classes is not None
    best = optimum(case.data, case.loss, case.lam, table, classes, keep=not report.smoke)
    print(f"  central: {best.how}, {best.seconds:.0f} s", flush=True)
    block, labels = with_constant(table.block), signs(table, classes)
    judged = np.array(best.primal)
    for case, mode, run in runs:
        name, certificate = case.run(mode), run.result.certificate
        assert certificate is not None
        told, dual = np.array(certificate.primal), np.array(certificate.dual)
        w = released(run.model, table)
        own = np.array(primal(block, labels, case.loss, case.lam, w))
        # P ≤ D/(1 − gap) ≤ P*/(1 − gap).
        share = certificate.gap / (1.0 - certificate.gap)
        report.add(
            f"{name}: (P − P*)/P*",
            float(((own - judged) / judged).max()),
            "of P*",
            anchor=certificate.gap,
            bar=share + ROUNDING,
        )
        report.add(f"{name}: (D − P*)/P*", float(((dual - judged) / judged).max()), "of P*",
                   bar=ROUNDING)  # fmt: skip
        off = float((np.abs(own - told) / own).max())
        report.add(f"{name}: the model's P off the certified", off, "of P", bar=1e-6)


# ── compute ───────────────────────────────────────────────────────────────────────────────────


def product_seconds(split: Split) -> list[float]:
    """X·w and Xᵀ·a over all tiles, one after the other, several times: of the processor."""
    random = np.random.default_rng(0)
    work = [
        (tile.block, random.standard_normal(tile.m), random.standard_normal(tile.n))
        for _, tile in split.tiles()
    ]
    found = []
    for _ in range(10):
        began = process_time()
        for block, w, a in work:
            block @ w
            block.T @ a
        found.append(process_time() - began)
    return found[1:]


def compute_part(bench: Bench) -> None:
    """Covertype, all parties and the coordinator in one thread.

    Seconds of the processor, which whatever else the machine does adds least to.
    """
    report, case = bench.report, bench.timed
    names = {c: f"compute, {case.problem}, {c}: iteration" for c in ("plain", "pad")}
    wanted = [cipher for cipher, name in names.items() if report.wants(name)]
    if not wanted:
        return
    split = bench.data.grid(case.data, case.k, case.q)
    for cipher in wanted:
        print(f"compute, {cipher}: training …", flush=True)
        before = product_seconds(split)
        run = train(split, our_settings(case, "nothing", cipher))
        two = median(before + product_seconds(split))
        took = [later - earlier for earlier, later in pairwise(run.ends)]
        report.add(names[cipher], median(took), "s", anchor=two)
        report.add(f"{names[cipher]} over two products", median(took) / two, "×", bar=5.0)
        # Early iterations make vectors of two kinds, each of which takes two products.
        report.add(f"{names[cipher]}, mean, over two products", mean(took) / two, "×")


# ── bits ──────────────────────────────────────────────────────────────────────────────────────


def bits_part(bench: Bench) -> None:
    """Whether encryption changes any bit; this also compiles what the other parts time."""
    report = bench.report
    # Ten groups of every class hold min_batch samples at least: guards are on.
    rows, groups, most = (120, SMOKE_GROUPS, 10) if report.smoke else (4500, 10, None)
    split = SPLITS["grid"](synthetic(rows, 30, classes=3), k=3, q=3)
    kinds: dict[str, dict[str, Any]] = {
        "cutting planes": {"solver": "cutting-planes"},
        "cutting planes, 10 groups": {"solver": "cutting-planes", "groups": groups},
        "L-BFGS": {"solver": "lbfgs", "loss": "logistic"},
        "HyFDCA": {"solver": "hyfdca", "iterations": 50},
    }
    if report.smoke:
        del kinds["cutting planes, 10 groups"]
    for kind, options in kinds.items():
        plain, padded = (
            train(split, Settings(lam=1e-3, cipher=cipher, round_trips=most, **options)).model
            for cipher in ("plain", "pad")
        )
        same = all(
            getattr(plain, part).tobytes() == getattr(padded, part).tobytes()
            for part in ("coef", "intercept")
        )
        name = f"bits, 4500×30, 3×3, {kind}: plain and pad alike"
        if report.wants(name):
            report.add(name, float(same), "1: yes", bar=1, better="higher")
        assert same, f"{name}: encryption changed the model"


PARTS: tuple[Callable[[Bench], None], ...] = (bits_part, compute_part, problems_part)


def main(arguments: Sequence[str] | None = None) -> None:
    seconds = "seconds after which HyFDCA stops; 0 leaves it out"
    report = Report(
        "The solvers for full participation",
        "held against",
        arguments,
        {"hyfdca-seconds": Number(240, 0.05, seconds)},
    )
    bench = Bench.of(report)
    for part in PARTS:
        part(bench)
    report.close()


if __name__ == "__main__":
    main()
