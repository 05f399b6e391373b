"""What a fit with standard errors costs, beside statsmodels on the pooled table in the same run.

Tables are made: 30,000 × 23, and 100,000 × 330, five parties by rows, a binomial family, guards on.
Of each: round trips and bytes from matching to the model, seconds of the processor of fit and
inference, all parties and the coordinator in one process, and how far coefficients (in standard
errors) and standard errors are from those of statsmodels, where it is installed, else from Newton's
method here. `--only` selects by a part of a case's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from harness import Report
from weft.data import SPLITS, Table
from weft.federation.local_federation import Federation, Trained
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards import Terms
from weft.solvers.run_settings import Settings

Floats = NDArray[np.float64]

PARTIES, LAM, GAP, ITERATIONS = 5, 1e-7, 1e-6, 12
#: Rows and columns; SecretFlow publishes 434 to 1,245 s for 800,000 × 3,000.
CASES = {"30,000 × 23": (30_000, 23), "100,000 × 330": (100_000, 330)}
MB = 1e6


class Judged(NamedTuple):
    """Coefficients and standard errors on the pooled table, the constant last, and their time."""

    coef: Floats
    errors: Floats
    seconds: float


def table(rows: int, columns: int) -> Table:
    """Columns of different sizes that go together a little, and an outcome of one in five."""
    rng = np.random.default_rng(rows)
    common = rng.normal(size=(rows, 1))
    block = (rng.normal(size=(rows, columns)) + 0.4 * common) * rng.uniform(0.5, 3.0, columns)
    scores = (block / block.std(axis=0)) @ (rng.normal(size=columns) / np.sqrt(columns)) - 1.5
    labels = (rng.random(rows) < expit(scores)).astype(float)
    names = np.array([f"x{j:03d}" for j in range(columns)], object)
    ids = np.arange(rows).astype(str).astype(object)
    return Table(ids, names, np.ascontiguousarray(block), labels, "classification")


def newton(x: Floats, y: Floats) -> Judged:
    """The same by Newton's method, where statsmodels is not there."""
    began, w = process_time(), np.zeros(x.shape[1])
    for _ in range(12):
        p = expit(x @ w)
        information = x.T @ ((p * (1 - p))[:, None] * x)
        w = w + np.linalg.solve(information, x.T @ (y - p))
    return Judged(w, np.sqrt(np.diag(np.linalg.inv(information))), process_time() - began)


def statsmodels(x: Floats, y: Floats) -> Judged | None:
    """None: it is not installed."""
    try:
        import statsmodels.api as sm
    except ImportError:
        return None
    began = process_time()
    fit = sm.GLM(y, x, family=sm.families.Binomial()).fit(tol=1e-12)
    return Judged(fit.params, fit.bse, process_time() - began)


def train(whole: Table, inference: str) -> tuple[Trained, float]:
    """A guarded run under pads, and the processor's seconds."""
    split = SPLITS["rows"](whole, parties=PARTIES, seed=1)
    federation = Federation(
        split.parties,
        Preprocessing(scaling="standard", intercept=True),
        terms=Terms(allow_second_moments=True),
    )
    settings = Settings(
        loss="logistic",
        lam=LAM,
        gap=GAP,
        iterations=ITERATIONS,
        penalize_intercept=False,
        solver="newton-cg",
        inference=inference,
    )
    began = process_time()
    return federation.train(settings), process_time() - began


def measure(report: Report, name: str, rows: int, columns: int) -> None:
    whole = table(rows, columns)
    trained, seconds = train(whole, "model")
    plain, without = train(whole, "none")
    assert trained.inference is not None
    summary = trained.inference.summary
    assert summary is not None, trained.inference.why_not
    x = np.column_stack([np.asarray(whole.block), np.ones(rows)])
    y = np.asarray(whole.labels, float)
    peer = statsmodels(x, y)
    if peer is None:
        report.lacks(f"{name}: seconds of statsmodels", "statsmodels")
    judge = peer or newton(x, y)
    order = [list(whole.features).index(str(n)) for n in summary.names[:-1]] + [-1]
    trips = (trained.meter.round_trips, plain.meter.round_trips)
    bytes_ = tuple(
        run.meter.read().bytes_down + run.meter.read().bytes_up for run in (trained, plain)
    )
    report.add(f"{name}: round trips", trips[0], "", anchor=trips[1])
    report.add(f"{name}: bytes", bytes_[0] / MB, "MB", anchor=bytes_[1] / MB)
    report.add(f"{name}: fit", without, "s of the processor")
    report.add(
        f"{name}: fit and inference",
        seconds,
        "s of the processor",
        anchor=None if peer is None else peer.seconds,
    )
    off = np.abs(summary.coef - judge.coef[order]) / judge.errors[order]
    report.add(f"{name}: coefficients off", float(off.max()), "standard errors", bar=1e-4)
    errors = np.abs(summary.errors / judge.errors[order] - 1.0)
    report.add(f"{name}: standard errors off", float(errors.max()), "relative", bar=1e-4)
    proved = float((summary.distance / summary.errors).max())
    report.add(f"{name}: proved to be within", proved, "standard errors", bar=1e-3)


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Fit and inference", "statsmodels, or the fit alone", arguments)
    cases = {"tiny": (600, 3)} if report.smoke else CASES
    for name, (rows, columns) in cases.items():
        if report.wants(name):
            measure(report, name, rows, columns)
    report.close()


if __name__ == "__main__":
    main()
