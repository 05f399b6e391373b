"""What a party counts of each of its samples, since others hold some of them too.

Of a cell that several parties hold the first counts, or each a part; so do sums, descriptions and
standard errors. Where another party holds a sample in one run and not in the next, this party's
part of the total differs by that sample, and whoever has the two totals, and knows what the other
party put in, has its row. So a ledger looks at such samples as at those that come or go.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from weft.matching.party_view import PartyView

Hashes = NDArray[np.uint64]


def roles_of(view: PartyView) -> Hashes:
    """Per cohort of a view, a hash of what this party counts of its samples.

    It follows from how many hold a cell or a label, and how many of them come before this party.
    Neither names nor numbers of parties are in it, nor which columns a study has: these change for
    all samples at once, behind which a few would hide.
    """
    alone = [_hash([(0, 1)], (0, int(labelled))) for labelled in view.labelled.tolist()]
    found = np.array(alone, np.uint64)
    sheets = view.row_sheets
    cells, cohort = sheets.cells > 0, sheets.cohort
    mine = np.isin(sheets.numbers, view.column_number)
    for place in range(len(sheets.lengths)):
        here = cohort == place
        before = here & (sheets.holders < view.party)
        pairs = zip(
            cells[before][:, mine].sum(axis=0).tolist(),
            cells[here][:, mine].sum(axis=0).tolist(),
            strict=True,
        )
        labels = 0, 0
        if view.labelled[place]:
            labels = int(sheets.labelled[before].sum()), int(sheets.labelled[here].sum())
        found[place] = _hash([pair for pair in pairs if pair[1]], labels)
    return found


def _hash(cells: list[tuple[int, int]], labels: tuple[int, int]) -> int:
    told = repr((sorted(set(cells)), labels)).encode()
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "little")
