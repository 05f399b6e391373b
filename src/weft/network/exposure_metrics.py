"""A site's metrics of what it has exposed, by its ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.network.metrics_text import Metric, single
from weft.privacy.ledger.ledger_file import Book
from weft.report.json_safe_and_rounded_values import rounded


class ExposureMetrics:
    """What a party's ledger says is spent; the file is read where it has changed.

    Parameters
    ----------
    folder
        Of ledgers.
    party
        Whose.
    """

    def __init__(self, folder: Path, party: str) -> None:
        self._book = Book(folder, party)
        self._stamp: tuple[int, int] | None = None
        self._metrics: list[Metric] = []

    def metrics(self) -> list[Metric]:
        try:
            found = self._book.path.stat()
        except FileNotFoundError:
            return []
        stamp = found.st_mtime_ns, found.st_size
        if stamp != self._stamp:
            self._metrics, self._stamp = self._read(), stamp
        return self._metrics

    def _read(self) -> list[Metric]:
        pages = self._book.read()
        if pages is None:
            return []
        epsilon, delta = pages.spent()
        lacking = pages.fewest > 0
        share = float(np.max(pages.shown[lacking] / pages.fewest[lacking], initial=0.0))
        return [
            single("weft_exposure_epsilon", "ε of released models with noise.", epsilon),
            single("weft_exposure_delta", "δ of released models with noise.", delta),
            single("weft_exposure_rho", "ρ of feature sums with noise.", pages.rho_spent()),
            single(
                "weft_exposure_sums_share",
                "Sums shown about a sample, per column that another party lacks: the most.",
                rounded(share),
            ),
        ]
