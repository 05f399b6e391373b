"""Scaling of vectors by what the training part shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


def standardised(train: NDArray[np.float64], test: NDArray[np.float64]) -> tuple[Vectors, Vectors]:
    """Both parts shifted and scaled per column to mean 0 and variance 1 of the training part.

    Rows of NaN, which stand for samples without this block, count for nothing and become zeros;
    constant columns become zeros too.
    """
    known = train[~np.isnan(train).any(axis=1)]
    mean, spread = known.mean(axis=0), known.std(axis=0)
    # A constant column has a spread of rounding errors.
    varies = spread > 1e-12 * np.maximum(np.abs(mean), 1)
    factor = np.divide(1, spread, out=np.zeros_like(spread), where=varies)

    def scale(values: NDArray[np.float64]) -> Vectors:
        scaled: Vectors = np.nan_to_num((values - mean) * factor, nan=0.0).astype(np.float32)
        return scaled

    return scale(train), scale(test)
