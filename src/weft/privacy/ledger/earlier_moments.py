"""How much second moments have told of a party's samples in earlier runs, by its own ledger.

An entry of a Gram matrix is an equation about a column, whose factors a reader knows that brought
the other column. One run opens few of them; runs with other columns, or other λ, add up. So every
party counts, sample by sample, how many numbers about each of its columns went out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import ConfigError
from weft.privacy.ledger.earlier_samples import Hashes
from weft.solvers.sealed.second_moment_guard import ROWS_PER_COLUMN


@dataclass
class MomentMemory:
    """Numbers that were opened about each column.

    Attributes
    ----------
    sample
        Keyed hashes, ascending.
    numbers
        Per sample, over all runs that it was in.
    """

    sample: Hashes
    numbers: Ints

    @classmethod
    def new(cls) -> MomentMemory:
        """No run yet."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> MomentMemory | None:
        """The inverse of :meth:`to_arrays`; None: that is no memory."""
        sample, numbers = arrays.get("moments.sample"), arrays.get("moments.numbers")
        if sample is None and numbers is None:
            # Files from before moments were counted.
            return cls.new()
        if sample is None or numbers is None:
            return None
        whole = (
            sample.dtype == np.uint64
            and sample.ndim == 1
            and bool((sample[1:] > sample[:-1]).all())
            and numbers.dtype == np.int64
            and numbers.shape == sample.shape
            and bool((numbers >= 0).all())
        )
        return cls(sample, numbers) if whole else None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {"moments.sample": self.sample, "moments.numbers": self.numbers}

    def add(self, samples: Hashes, numbers: int) -> None:
        """Take down that so many more go out over these samples."""
        everybody = np.union1d(self.sample, samples)
        counts = np.zeros(len(everybody), np.int64)
        counts[np.searchsorted(everybody, self.sample)] = self.numbers
        counts[np.searchsorted(everybody, samples)] += numbers
        self.sample, self.numbers = everybody, counts

    def most(self, samples: Hashes) -> int:
        """The most that went out over one of these samples."""
        return int(self.numbers[np.isin(self.sample, samples)].max(initial=0))


def refuse_further_moments(party: str, samples: int, before: int, more: int) -> None:
    """Refuse to tell more numbers about a column than a share of its samples, over all runs."""
    most = samples // ROWS_PER_COLUMN
    if before + more <= most:
        return
    who = f"party {party} refuses further second moments over these samples"
    remedy = "bring more samples, leave second_moments out, or agree on allow_exposure = true"
    raise ConfigError(
        f"{who}: by its ledger, earlier runs opened {before} numbers about each of its columns, "
        f"and with {more} more it would be over {most}, a fifth of the samples; {remedy}",
        told=f"{who}, of which earlier runs opened too many; {remedy}",
    )
