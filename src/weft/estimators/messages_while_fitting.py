"""What an estimator says while it is fitted: lines of certificates, and a warning of gaps."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from weft.solvers.run_settings import Settings

if TYPE_CHECKING:
    from weft.solvers.solver_interfaces_and_results import Record, Result


class CertificateLines:
    """Prints a line for every new certificate."""

    def __init__(self) -> None:
        self._last: int | None = None

    def __call__(self, record: Record) -> None:
        if record.certified_at is not None and record.certified_at != self._last:
            self._last = record.certified_at
            print(
                f"iteration {record.iteration}: loss {record.primal:.6g}, gap {record.gap:.2e} "
                f"certified at iteration {record.certified_at}, {record.round_trips} round trips"
            )


def warn_of_gaps(result: Result, settings: Settings, gap: float) -> None:
    """Warn of every λ that ran out of iterations before its gap was certified."""
    if settings.gap is None or settings.frees_weights:
        # Of weights without a penalty, the last step is proved, or nothing is released.
        return
    gaps: dict[float | None, float] = {s.lam: s.certificate.gap for s in result.stages}
    if result.stage is None:  # HyFDCA's, of which the history tells no λ
        gaps[None] = gap
    ran = Counter(record.lam for record in result.history)
    short = [
        (lam, reached)
        for lam, reached in gaps.items()
        if not reached <= settings.gap and ran[lam] == settings.iterations
    ]
    if not short:
        return
    lam, reached = max(short, key=lambda pair: np.nan_to_num(pair[1], nan=np.inf))
    where = "" if lam is None or len(gaps) < 2 else f" at λ = {lam:g}"
    more = "" if len(short) < 2 else f" ({len(short)} of {len(gaps)} values of λ did)"
    message = (
        f"stopped after {settings.iterations} iterations{where} at a certified gap of "
        f"{reached:.2e}, not at {settings.gap:g}{more}; scale the features, or raise lam, "
        "max_iter or gap"
    )
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(message, ConvergenceWarning, stacklevel=4)
