"""By which rules a party's columns became numbers in earlier runs, as its own ledger remembers it.

Whoever submits a study chooses the ends of bins, what is clipped and which levels count. Two runs
whose ends have one sample between them differ by its row, and a refusal that came only where there
is one would tell that too. So a column that was trained on by one rule is not trained on by another
over the same samples, whatever its cells are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.privacy.ledger.earlier_samples import Hashes

_PARTS = ("cell", "rule", "ruled", "plain")


@dataclass
class RuleMemory:
    """Rules of columns that were trained on.

    Attributes
    ----------
    cell
        Keyed hashes of samples and columns with a rule, ascending.
    rule
        Per cell, a keyed hash of that rule.
    ruled, plain
        Keyed hashes of columns that were trained on by a rule, and as they are, ascending.
    """

    cell: Hashes
    rule: Hashes
    ruled: Hashes
    plain: Hashes

    @classmethod
    def new(cls) -> RuleMemory:
        """No run yet."""
        return cls(*(np.zeros(0, np.uint64) for _ in _PARTS))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> RuleMemory | None:
        """The inverse of :meth:`to_arrays`; None: that is no memory."""
        found = [arrays.get(f"rules.{part}") for part in _PARTS]
        if all(part is None for part in found):
            # Files from before rules were remembered.
            return cls.new()
        cell, rule, ruled, plain = found
        if cell is None or rule is None or ruled is None or plain is None:
            return None
        whole = (
            all(part.dtype == np.uint64 and part.ndim == 1 for part in (cell, rule, ruled, plain))
            and cell.shape == rule.shape
            and all(bool((part[1:] > part[:-1]).all()) for part in (cell, ruled, plain))
        )
        return cls(cell, rule, ruled, plain) if whole else None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {f"rules.{part}": getattr(self, part) for part in _PARTS}

    def differs(self, samples: Hashes, column: int, rule: int | None, *, known: bool) -> bool:
        """Whether a column of these samples had another rule; None: it has none now.

        ``known`` says whether some of these samples took part in an earlier run.
        """
        if rule is not None and known and _listed(self.plain, column):
            return True
        if not _listed(self.ruled, column):
            return False
        _, place, _ = np.intersect1d(self.cell, samples ^ np.uint64(column), return_indices=True)
        return bool(len(place)) if rule is None else bool((self.rule[place] != rule).any())

    def add(self, samples: Hashes, column: int, rule: int) -> None:
        """Take down the rule of a column of these samples."""
        cells = samples ^ np.uint64(column)
        everybody = np.union1d(self.cell, cells)
        rules = np.zeros(len(everybody), np.uint64)
        rules[np.searchsorted(everybody, self.cell)] = self.rule
        rules[np.searchsorted(everybody, cells)] = rule
        self.cell, self.rule = everybody, rules
        self.ruled = np.union1d(self.ruled, np.array([column], np.uint64))

    def add_plain(self, columns: Hashes) -> None:
        """Take down columns that are trained on as they are."""
        self.plain = np.union1d(self.plain, columns)


def _listed(columns: Hashes, column: int) -> bool:
    place = int(np.searchsorted(columns, np.uint64(column)))
    return place < len(columns) and int(columns[place]) == column
