"""Round trips to a certified gap where parties come and go, beside HyFDCA at the same number.

``span-newton`` trains each problem with everyone, and with 0.9, 0.5 and 0.1 of the parties in a
round trip (rounded down, one at least), under the careful terms and with a blind coordinator. Where
parties count fewer samples, cutting planes stand in for it. A question waits until all
whom it concerns have come by, and every turn counts as a round trip, whoever comes. Round trips
count from the first message, matching, setting up and closing included; the first two are done
with everyone.

HyFDCA (``safe`` and ``practical``) trains under the same participation, without guards and with
cipher ``plain``, to save time, until it has taken as many round trips, or for ``--hyfdca-seconds``.
Its gap is that of its newest certificate; where it has none, its estimate, which proves nothing, is
named as one.

``--only`` selects by a part of a row's name (``--only "Covertype 3×3, hinge, 0.1"``). Needs the
data directory: set WEFT_DATA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from harness import Number, Report
from harness.left_out import without_rare_cells
from harness.marked_runs import Run, train
from harness.optima import optimum
from harness.splits import DataSets
from weft.data import Split, pool
from weft.solvers.run_settings import Settings

#: Parts of the parties that are there, as rows name them.
EVERYONE = "everyone"
FRACTIONS = (0.9, 0.5, 0.1)
#: A run ends at so many times its bar, certified or not.
BEYOND = 2
#: HyFDCA's local methods that are held against ours.
PEERS = ("safe", "practical")
#: Share of P* by which a lower bound may lie above it: sums travel in fixed point.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """A problem, how it is cut, and the most round trips with everyone and with each fraction."""

    data: str
    name: str
    k: int
    q: int
    loss: str
    lam: float
    gap: float
    bars: tuple[int, int, int, int]

    @property
    def problem(self) -> str:
        return f"{self.name} {self.k}×{self.q}, {self.loss}"

    def row(self, there: str | float) -> str:
        share = there if isinstance(there, str) else f"{there:g}"
        return f"{self.problem}, {share}: trips to {self.gap:g}"

    @property
    def rules(self) -> tuple[tuple[str | float, int], ...]:
        return tuple(zip((EVERYONE, *FRACTIONS), self.bars, strict=True))


CASES = (
    Case("covtype", "Covertype", 3, 3, "logistic", 5e-5, 1e-3, (96, 170, 330, 1200)),
    Case("covtype", "Covertype", 3, 3, "hinge", 5e-5, 1e-3, (96, 200, 400, 1500)),
    Case("newsgroups", "newsgroups", 3, 3, "logistic", 1e-5, 1e-3, (96, 170, 330, 1200)),
    Case("newsgroups", "newsgroups", 3, 3, "hinge", 1e-5, 1e-2, (66, 140, 280, 1000)),
    Case("mnist", "MNIST", 4, 5, "logistic", 1e-3, 1e-3, (96, 170, 330, 1200)),
    Case("mnist", "MNIST", 4, 5, "hinge", 1e-3, 1e-3, (96, 200, 400, 2000)),
)
#: What a smoke run is to reach, in how many round trips, and the parts of the parties in it, for
#: either kind of loss.
SMOKE_GAP, SMOKE_BAR = 0.9, 4
SMOKE_RULES: dict[str, str | float] = {"logistic": EVERYONE, "hinge": 0.5}


def ours(case: Case, there: str | float, bar: int) -> Settings:
    return Settings(
        lam=case.lam,
        loss=case.loss,
        solver="span-newton",
        gap=case.gap,
        round_trips=BEYOND * bar,
        participation=there,
    )


def theirs(case: Case, there: str | float, local: str, trips: int, seconds: float) -> Settings:
    return Settings(
        lam=case.lam,
        loss=case.loss,
        solver="hyfdca",
        local=local,
        gap=case.gap,
        iterations=None,
        round_trips=trips,
        seconds=seconds,
        cipher="plain",
        participation=there,
    )


def one_rule(
    report: Report, case: Case, split: Split, there: str | float, bar: int, summary: Grid
) -> Run:
    name = case.row(there)
    print(f"{name} …", flush=True)
    run = train(split, ours(case, there, bar))
    trips, gap = run.final.round_trips, run.final.gap
    print(f"  {run.result.stopped}, {trips} round trips", flush=True)
    report.add(name, trips if gap <= case.gap or report.smoke else np.inf, "round trips", bar=bar)
    told = [f"{gap:.2g} after {trips}"]
    seconds = report.number("hyfdca-seconds")
    for local in PEERS if seconds > 0 else ():
        peer = train(split, theirs(case, there, local, trips, seconds), guarded=False)
        last = peer.result.history[-1]
        known = last.gap if last.gap is not None else last.gap_estimate
        kind = "gap" if last.gap is not None else "estimated gap"
        label = f"{name}, HyFDCA {local}: {kind} after {last.round_trips}"
        if known is not None or not report.smoke:
            report.add(label, np.inf if known is None else known, "relative gap", anchor=gap)
        told.append(f"{'–' if known is None else f'{known:.2g}'} after {last.round_trips}")
    summary.add_row(name, f"≤ {bar}", *told)
    return run


def certified_rows(report: Report, case: Case, split: Split, runs: list[tuple[str, Run]]) -> None:
    """The last certificate beside what a central solver finds on the pooled table."""
    table = pool(without_rare_cells(split))
    classes = runs[0][1].model.classes
    assert classes is not None
    best = optimum(case.data, case.loss, case.lam, table, classes, keep=not report.smoke)
    for name, run in runs:
        certificate = run.result.certificate
        assert certificate is not None
        over = (np.array(certificate.dual) - best.primal) / np.array(best.primal)
        report.add(f"{name}, (D − P*)/P*", float(over.max()), "of P*", bar=ROUNDING)


def main(arguments: Sequence[str] | None = None) -> None:
    seconds = "seconds after which HyFDCA stops; 0 leaves it out"
    report = Report(
        "Round trips where parties come and go",
        "held against",
        arguments,
        {"hyfdca-seconds": Number(60, 0.05, seconds)},
    )
    data = DataSets(report.smoke)
    cases = CASES
    if report.smoke:
        # One of either kind of loss.
        cases = tuple(
            replace(case, gap=SMOKE_GAP, bars=(SMOKE_BAR,) * len(case.bars)) for case in CASES[:2]
        )
    summary = Grid(title="Round trips to a certified gap, and HyFDCA's gap at as many")
    for heading in ("", "bar", "ours", *(f"HyFDCA {local}" for local in PEERS)):
        summary.add_column(heading, justify="right" if heading else "left")
    for case in cases:
        wanted = [
            (there, bar)
            for there, bar in case.rules
            if report.wants(case.row(there))
            and (not report.smoke or there == SMOKE_RULES[case.loss])
        ]
        if not wanted:
            continue
        split = data.grid(case.data, case.k, case.q)
        runs = [
            (case.row(there), one_rule(report, case, split, there, bar, summary))
            for there, bar in wanted
        ]
        certified_rows(report, case, split, runs)
    if summary.row_count:
        Console(width=140).print(summary)
    report.close()


if __name__ == "__main__":
    main()
