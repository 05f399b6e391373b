"""The problems that one run solves side by side: every class, on all samples and on every fold.

All of them travel in the same messages, as further columns of every vector. A fold leaves its
samples out: P_f(w) = λ/2 ‖w‖² + 1/N_f Σ_{i∉f} l_i, whose minimum is that of
λ_f/2 ‖w‖² + 1/N Σ_{i∉f} l_i with λ_f = λ N_f/N. So the sums need not know about folds.

A loss of all classes at once (softmax) makes one problem of the columns of all classes: they have
one P, one dual vector and the same coefficients, but for their intercepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints


@dataclass(frozen=True)
class Problems:
    """Classes times (all samples, then each fold left out).

    Attributes
    ----------
    joint
        Whether the classes of a fold are one problem.
    """

    classes: int
    folds: int = 0
    joint: bool = False

    @property
    def width(self) -> int:
        """Columns of every vector."""
        return self.classes * (self.folds + 1)

    @property
    def count(self) -> int:
        """Problems: what has a loss, lengths and a bound of its own."""
        return self.folds + 1 if self.joint else self.width

    @property
    def columns(self) -> list[slice]:
        """The columns of every problem."""
        each = self.classes if self.joint else 1
        return [slice(first, first + each) for first in range(0, self.width, each)]

    @property
    def on_all_samples(self) -> slice:
        """One column of every problem that leaves no samples out."""
        return slice(0, 1 if self.joint else self.classes)

    def by_class(self, values: Floats) -> Floats:
        """Columns (last) as problems × classes, where all classes have one loss."""
        if not self.joint:
            return values
        return values.reshape(*values.shape[:-1], self.folds + 1, self.classes)

    def summed(self, values: Floats) -> Floats:
        """Sums over the columns (last) of every problem."""
        return self.by_class(values).sum(axis=-1) if self.joint else values

    def spread(self, values: Floats) -> Floats:
        """Numbers of problems (last) for all of their columns."""
        return np.repeat(values, self.classes, axis=-1) if self.joint else values

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


#: The fold of samples that no fold leaves out, since too few of their class are there.
ALWAYS = -2
#: How many times ``min_batch`` samples of a group a fold leaves out at least. Near the optimum few
#: of them weigh much, and the difference to the vector of all must be worth ``min_batch`` samples.
PARTS = 3


def folds_of(ids: NDArray[np.object_], folds: int, seed: int) -> NDArray[np.int8]:
    """The fold of every sample, from its id: all holders agree without a word.

    The seed is all that this depends on besides, so that a run can be repeated.
    """
    return (_hashed(ids, seed) % np.uint64(folds)).astype(np.int8)


def large_folds_of(
    ids: NDArray[np.object_], group: Ints, least: int, folds: int, seed: int
) -> NDArray[np.int8]:
    """Folds whose parts of every group are of ``PARTS`` · ``least`` samples or more.

    What a fold leaves out is the difference of two sums that others see. So a group, such as a
    class of a cohort, is spread evenly over as many folds as leave so many of it in each; over
    none, where that would be one. All who know the whole group agree without a word.

    Parameters
    ----------
    group
        The group of every sample.
    """
    hashed = _hashed(ids, seed)
    order = np.lexsort((hashed, group))
    _, first, sizes = np.unique(group[order], return_index=True, return_counts=True)
    place = np.arange(len(ids)) - np.repeat(first, sizes)
    most = np.repeat(np.minimum(folds, sizes // (PARTS * least)), sizes)
    # Groups begin with different folds, so that small ones do not all fall into the first.
    begin = (hashed[order][first] % np.uint64(folds)).astype(np.int64)
    turned = (place % np.maximum(most, 1) + np.repeat(begin, sizes)) % folds
    found = np.empty(len(ids), np.int8)
    found[order] = np.where(most > 1, turned, ALWAYS)
    return found


def held_out_share(ids: NDArray[np.object_], share: float, seed: int) -> NDArray[np.int8]:
    """Fold 0 for a share of the samples, from their ids; all others are always trained on."""
    left = _hashed(ids, seed, share) < np.uint64(int(share * 2.0**64))
    return np.where(left, 0, ALWAYS).astype(np.int8)


def large_held_out_share(
    ids: NDArray[np.object_], group: Ints, least: int, share: float, seed: int
) -> NDArray[np.int8]:
    """The same, of every group by itself: as many as make up the share.

    What is left out of a group, and what is not, are ``PARTS`` · ``least`` samples or more: more
    than the share of a small group, since a class that is never left out could not be judged, and
    nothing of a group that is too small for that.
    """
    order = np.lexsort((_hashed(ids, seed, share), group))
    _, first, sizes = np.unique(group[order], return_index=True, return_counts=True)
    left = np.maximum(np.rint(share * sizes).astype(np.int64), PARTS * least)
    enough = sizes - left >= PARTS * least
    place = np.arange(len(ids)) - np.repeat(first, sizes)
    found = np.empty(len(ids), np.int8)
    found[order] = np.where(place < np.repeat(np.where(enough, left, 0), sizes), 0, ALWAYS)
    return found


def _hashed(ids: NDArray[np.object_], seed: int, share: float | None = None) -> NDArray[np.uint64]:
    # Each share has a draw of its own: if a larger one only added samples to a smaller one, two
    # runs whose shares hardly differ would tell of the few samples between them.
    what = f"folds {seed}" if share is None else f"share {share!r} {seed}"
    key = blake2b(what.encode(), digest_size=8).hexdigest()
    return np.asarray(pd.util.hash_array(ids, hash_key=key, categorize=False), np.uint64)
