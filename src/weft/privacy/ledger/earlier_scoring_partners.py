"""In whose company each sample was scored by earlier joint predictions, by a party's own ledger.

A score is the sum of the parts of all who hold a sample. Two scores of it with other holders differ
by the parts of single parties, and of a party with one column by its cells. So a sample that was
scored once is scored with the same parties ever after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.matching.party_view import PartyView
from weft.privacy.ledger.earlier_samples import Hashes, read_per_sample


@dataclass
class CompanyMemory:
    """With whom samples were scored last.

    Attributes
    ----------
    sample
        Keyed hashes, ascending.
    company
        Per sample, a keyed hash of its company.
    """

    sample: Hashes
    company: Hashes

    @classmethod
    def new(cls) -> CompanyMemory:
        """No prediction yet."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.uint64))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> CompanyMemory | None:
        """The inverse of :meth:`to_arrays`; None: that is no memory."""
        found = read_per_sample(arrays, "companies.sample", "companies.company", np.uint64)
        return None if found is None else cls(*found)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {"companies.sample": self.sample, "companies.company": self.company}

    def differing(self, samples: Hashes, company: Hashes) -> int:
        """How many of these samples were scored in another company."""
        _, before, now = np.intersect1d(self.sample, samples, return_indices=True)
        return int((self.company[before] != company[now]).sum())

    def add(self, samples: Hashes, company: Hashes) -> None:
        """Take down with whom these samples are scored now."""
        everybody = np.union1d(self.sample, samples)
        found = np.zeros(len(everybody), np.uint64)
        found[np.searchsorted(everybody, self.sample)] = self.company
        found[np.searchsorted(everybody, samples)] = company
        self.sample, self.company = everybody, found


def companies_of(view: PartyView, parties: tuple[str, ...]) -> list[bytes]:
    """Per cohort of a view: all parties of a prediction, and who of them holds its samples.

    The order of parties is in it where several hold the same cells, since what counts for such a
    cell may depend on it.
    """
    sheets, several = view.row_sheets, view.cell_holders
    found = []
    for cohort in range(len(view.sizes)):
        shared = several is not None and bool((several[cohort] > 1).any())
        holders = [parties[n] for n in sheets.holders[sheets.cohort == cohort].tolist()]
        named = parties if shared else sorted(parties)
        told = (*named, "", *sorted(set(holders)), "", str(shared))
        found.append("\0".join(told).encode())
    return found
