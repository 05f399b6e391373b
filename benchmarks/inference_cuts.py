"""Standard errors on every cut of five tables, in sums and sealed, beside statsmodels pooled.

Breast cancer's ten means, a credit-like table and Boston's (where `WEFT_DATA` has it), and made-up
Poisson and gamma responses: by rows, by columns, both ways and overlapping, guards on. Of each: how
far coefficients are from those on the pooled table, in standard errors; chances p; standard errors
and widths of intervals, as shares of themselves; and what is proved of coefficients.
What parties refuse is printed in their words, and tried again without guards. statsmodels judges
where it is installed, else iteratively weighted least squares here. The last lines are the table of
docs/inference.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from harness import Report
from weft.data import Table, Tile, load
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.inference.coefficient_summary import Summary
from weft.solvers.run_settings import Settings

# The tables that the test suite makes.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "inference"))
from reference_data import cancer, credit, synthetic, table_of

Floats = NDArray[np.float64]
#: Guards on, with what two parties by rows, and columns of a few values, take.
GUARDED = Terms(allow_second_moments=True, allow_pairs=True, allow_rare_pairs=True)
LOSSES = {"gaussian": "squared", "binomial": "logistic", "poisson": "poisson", "gamma": "gamma"}
#: Rows and columns of each party, as shares of the table, and whether it has labels.
CUTS: dict[str, list[tuple[tuple[float, float], tuple[float, float], bool]]] = {
    "by rows": [((k / 3, (k + 1) / 3), (0, 1), True) for k in range(3)],
    "by columns": [((0, 1), (0, 0.4), True), ((0, 1), (0.4, 0.7), True), ((0, 1), (0.7, 1), False)],
    "both ways": [
        ((0, 0.5), (0, 0.5), True),
        ((0.5, 1), (0, 0.5), True),
        ((0, 0.5), (0.5, 1), False),
        ((0.5, 1), (0.5, 1), False),
    ],
    "overlapping": [
        ((0, 0.7), (0, 0.7), True),
        ((0.3, 1), (0, 0.7), True),
        ((0, 1), (0.3, 1), False),
    ],
    "overlapping in rows": [((k / 4, (k + 1) / 4 + 0.12), (0, 1), True) for k in range(3)]
    + [((0.75, 1), (0, 1), True)],
}
#: In sums, all columns at every party; of the other cuts, one says what all do.
TRIED = {
    "sums": ("by rows", "overlapping in rows", "both ways"),
    "sealed": ("by rows", "by columns", "both ways", "overlapping"),
}
#: For errors only: a cut that is fitted and one that is refused.
SMOKE = {"sums": ("by rows", "both ways"), "sealed": ("by columns",)}


class Judged(NamedTuple):
    """What the pooled table gives, the constant last."""

    coef: Floats
    errors: Floats
    p: Floats
    half: Floats


class Off(NamedTuple):
    """How far a fit is from the judge: coefficients in standard errors, p, the rest relatively."""

    coef: float
    errors: float
    p: float
    interval: float
    proved: float


def tables(report: Report) -> dict[str, tuple[Table, str]]:
    """By name, a table and its family."""
    found = {"credit-like": (credit(), "binomial"), "breast cancer": (cancer(), "binomial")}
    if report.smoke:
        found = {"credit-like": (credit(300), "binomial")}
    else:
        for family in ("poisson", "gamma"):
            made = table_of(*synthetic(family), ["a", "b", "c"], classes=False)
            found[f"{family}, made up"] = (made, family)
        folder = os.environ.get("WEFT_DATA")
        if folder and (Path(folder) / "boston").exists():
            found["Boston"] = (load("boston", Path(folder)), "gaussian")
        else:
            report.lacks("Boston", "the data set")
    return found


def cut(table: Table, how: str) -> dict[str, tuple[Tile, ...]]:
    held, order = {}, np.random.default_rng(0).permutation(len(table.ids))
    block, labels = np.asarray(table.block), np.asarray(table.labels, float)
    for number, (rows, columns, labelled) in enumerate(CUTS[how]):
        own = order[slice(*(round(share * len(order)) for share in rows))]
        some = slice(*(round(share * len(table.features)) for share in columns))
        tile = Tile.make(
            list(table.ids[own]),
            list(table.features[some]),
            block[own, some],
            labels[own] if labelled else None,
        )
        held[f"party{number}"] = (tile,)
    return held


def judge(table: Table, family: str) -> Judged:
    """statsmodels on the pooled table, or iteratively weighted least squares."""
    x = np.column_stack([np.asarray(table.block, float), np.ones(len(table.ids))])
    y = np.asarray(table.labels, float)
    residual = len(y) - x.shape[1]
    try:
        import statsmodels.api as sm
    except ImportError:
        coef, errors = _least_squares(x, y, family)
    else:
        log = sm.families.links.Log()
        kind = {
            "gaussian": sm.families.Gaussian(),
            "binomial": sm.families.Binomial(),
            "poisson": sm.families.Poisson(),
            "gamma": sm.families.Gamma(log),
        }[family]
        fit = sm.GLM(y, x, family=kind).fit(tol=1e-14, maxiter=300)
        coef, errors = fit.params, fit.bse
    spread: Any = stats.t(residual) if family == "gaussian" else stats.norm
    return Judged(coef, errors, 2 * spread.sf(np.abs(coef / errors)), spread.ppf(0.975) * errors)


def _least_squares(x: Floats, y: Floats, family: str) -> tuple[Floats, Floats]:
    size = np.abs(x).max(axis=0)
    u, w = x / size, np.zeros(x.shape[1])
    if family in ("poisson", "gamma"):
        w[-1] = np.log(y.mean())
    for _ in range(40):
        z = u @ w
        mean = {"gaussian": z, "binomial": expit(z)}.get(family, np.exp(np.minimum(z, 700)))
        weight = {
            "gaussian": np.ones_like(z),
            "binomial": mean * (1 - mean),
            "poisson": mean,
            "gamma": np.ones_like(z),
        }[family]
        slope = (y - mean) / mean if family == "gamma" else y - mean
        information = u.T @ (weight[:, None] * u)
        w = w + np.linalg.solve(information, u.T @ slope)
    chi = {"gaussian": (y - mean) ** 2, "gamma": ((y - mean) / mean) ** 2}.get(family)
    phi = 1.0 if chi is None else float(chi.sum()) / (len(y) - x.shape[1])
    return w / size, np.sqrt(phi * np.diag(np.linalg.inv(information))) / size


def fit(
    table: Table, family: str, how: str, mode: str, terms: Terms, *, smoke: bool
) -> Summary | str:
    """The table of coefficients, or in which words there is none."""
    nearly_the_same = len(table.features) >= 10 and family == "binomial"
    ways: dict[str, Any] = {
        "sums": {"solver": "newton-cg", "lam": 0.0, "gap": 1e-6, "iterations": 40},
        "sealed": {
            "mode": "sealed",
            "solver": "auto",
            "lam": 1e-10 if nearly_the_same else 1e-7,
            "gap": 1e-12,
            "iterations": 190 if len(table.features) >= 10 else 40,
        },
    }
    if smoke:
        ways["sums"]["gap"], ways["sealed"]["iterations"] = 1e-2, 5
    how_read = Preprocessing(scaling="standard", intercept=True, confirmed=ONE_TABLE)
    settings = Settings(
        loss=LOSSES[family], penalize_intercept=False, inference="model", **ways[mode]
    )
    try:
        found = Federation(cut(table, how), how_read, terms=terms).train(settings).inference
    except WeftError as error:
        return str(error)
    assert found is not None
    return found.why_not or "" if found.summary is None else found.summary


def compare(summary: Summary, table: Table, known: Judged) -> Off:
    order = [list(table.features).index(name) for name in summary.names[:-1]] + [-1]
    coef, errors, p, half = (part[order] for part in known)
    return Off(
        float((np.abs(summary.coef - coef) / errors).max()),
        float(np.abs(summary.errors / errors - 1).max()),
        float(np.abs(summary.p - p).max()),
        float(np.abs((summary.high - summary.low) / (2 * half) - 1).max()),
        float((summary.distance / summary.errors).max()),
    )


def measure(report: Report, name: str, table: Table, family: str) -> list[str]:
    known, lines = judge(table, family), []
    for mode in ("sums", "sealed"):
        for how in (SMOKE if report.smoke else TRIED)[mode]:
            case = f"{name}, {mode}, {how}"
            if not report.wants(case):
                continue
            for guards, terms in (("on", GUARDED), ("off", OPEN)):
                found = fit(table, family, how, mode, terms, smoke=report.smoke)
                if isinstance(found, str):
                    lines.append(f"| {name} | {mode}, {how} | {guards} | {found} | | | | |")
                    if "mode = 'sealed'" in found or "sealed training" in found:
                        break
                    continue
                off = compare(found, table, known)
                marks = [f"{value:.0e}" for value in off[:4]]
                marks.append(f"{off.proved:.0e}" if np.isfinite(off.proved) else "nothing")
                lines.append(f"| {name} | {mode}, {how} | {guards} | {' | '.join(marks)} |")
                bar = 2e-4 if name == "breast cancer" else 1e-4
                report.add(f"{case}: coefficients off", off.coef, "standard errors", bar=bar)
                report.add(f"{case}: standard errors off", off.errors, "relative", bar=bar)
                break
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Standard errors on every cut", "statsmodels, pooled", arguments)
    lines: list[str] = []
    for name, (table, family) in tables(report).items():
        lines += measure(report, name, table, family)
    report.close()
    print("\n".join(lines))


if __name__ == "__main__":
    main()
