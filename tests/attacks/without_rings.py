"""Take masks between neighbours out, or what they depend on; not a test itself."""

from __future__ import annotations

import numpy as np

from weft.crypto.ciphers.block_format import ID_BITS
from weft.crypto.ciphers.contribution_masks import ContributionMasks
from weft.crypto.pads.cohort_mask_neighbours import MaskRing

#: No pad id is newer.
NEWEST = int(ID_BITS)


def without_masks(monkeypatch) -> None:
    """Nobody shares masks with anybody."""
    ring = ContributionMasks.ring

    def none(self, *question):
        found = ring(self, *question)
        return MaskRing(found.context, found.seeds, np.zeros_like(found.signs))

    monkeypatch.setattr(ContributionMasks, "ring", none)


def whatever_was_asked(monkeypatch) -> None:
    """Masks depend on the request alone."""
    monkeypatch.setattr(
        MaskRing,
        "bound",
        lambda ring, context, mark, encrypt: MaskRing(context, ring.seeds, ring.signs),
    )
