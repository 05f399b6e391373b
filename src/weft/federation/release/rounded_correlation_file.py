"""Correlations of all columns, from the Gram matrix that a reader of a sealed model opened."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.array_types import Floats
from weft.federation.release.reader_join_second_moments import SecondMoments
from weft.federation.training_data import INTERCEPT
from weft.storage.atomic_files import replacing

#: Digits that are told.
_DIGITS = 3


@dataclass(frozen=True, eq=False)
class CorrelationTable:
    """Correlations to three digits; zero where a column is constant.

    Attributes
    ----------
    names
        Columns, whoever holds them.
    matrix
        (columns × columns).
    """

    names: list[str]
    matrix: Floats

    @classmethod
    def of(cls, moments: SecondMoments) -> CorrelationTable | None:
        """Of all columns but the constant one, which means are taken from; None: there is no Gram
        matrix with it."""
        gram = moments.gram
        if gram is None or moments.names[-1] != INTERCEPT:
            return None
        last = len(moments.names) - 1
        mean = gram[:last, last] / gram[last, last]
        spread = gram[:last, :last] - np.outer(mean, mean) * gram[last, last]
        size = np.sqrt(np.maximum(np.diag(spread), 0.0))
        error = 0.0 if moments.gram_error is None else float(np.max(moments.gram_error))
        varies = size**2 > 10.0 * error
        scale = np.where(varies, 1.0 / np.where(varies, size, 1.0), 0.0)
        matrix = np.clip(spread * np.outer(scale, scale), -1.0, 1.0)
        return cls([str(name) for name in moments.names[:last]], np.round(matrix, _DIGITS))

    def save(self, path: str | Path) -> None:
        """Write them as CSV, whole or not at all, for its owner's eyes."""
        text = io.StringIO()
        rows = csv.writer(text)
        rows.writerow(["column", *self.names])
        for name, values in zip(self.names, self.matrix.tolist(), strict=True):
            rows.writerow([name, *values])
        with replacing(Path(path)) as draft:
            draft.touch(mode=0o600)
            draft.write_text(text.getvalue(), encoding="utf-8")
