"""The problems that one run solves side by side: every class, on all samples and on every fold.

All of them travel in the same messages, as further columns of every vector. A fold leaves its
samples out: P_f(w) = λ/2 ‖w‖² + 1/N_f Σ_{i∉f} l_i, whose minimum is that of
λ_f/2 ‖w‖² + 1/N Σ_{i∉f} l_i with λ_f = λ N_f/N. So the sums need not know about folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Flags, Ints


@dataclass(frozen=True)
class Problems:
    """Classes times (all samples, then each fold left out)."""

    classes: int
    folds: int = 0

    @property
    def width(self) -> int:
        return self.classes * (self.folds + 1)

    @property
    def class_of(self) -> Ints:
        return np.tile(np.arange(self.classes), self.folds + 1)

    @property
    def fold_of(self) -> Ints:
        """The fold that a problem leaves out; −1: none."""
        return np.repeat(np.arange(-1, self.folds), self.classes)

    def training(self, fold: NDArray[np.int8]) -> Flags | None:
        """Per row and problem, whether the row is trained on; None: all are, always."""
        if not self.folds:
            return None
        used: Flags = fold[:, None] != self.fold_of[None, :]
        return used


def folds_of(ids: NDArray[np.object_], folds: int, seed: int) -> NDArray[np.int8]:
    """The fold of every sample, from its id: all holders agree without a word.

    The seed is all that this depends on besides, so that a run can be repeated.
    """
    key = blake2b(f"folds {seed}".encode(), digest_size=8).hexdigest()
    hashed = pd.util.hash_array(ids, hash_key=key, categorize=False)
    return (np.asarray(hashed, np.uint64) % np.uint64(folds)).astype(np.int8)
