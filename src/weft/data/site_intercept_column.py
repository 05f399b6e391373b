"""A column of ones for the samples of a site, whose coefficient is the site's own intercept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.data.tile import Tile
from weft.errors import DataError


def site_feature(party: str) -> str:
    """What the column of a party is called in models."""
    return f"site {party}"


def site_tile(tiles: Sequence[Tile], party: str, reference: str) -> Tile | None:
    """A tile with one column, over the samples that a party has labels of.

    None at the reference, whose intercept is that of the model, and where there are no labels. It
    is a tile of its own, since a party may hold other samples too: those are of another site.

    Raises
    ------
    DataError
        The reference has no labels, or a file has such a column already.
    """
    labelled = [tile.ids[tile.labelled] for tile in tiles]
    ids = np.unique(np.concatenate(labelled).astype(str)).astype(object)
    if party == reference:
        if not len(ids):
            raise DataError(
                f"party {party} is the reference_site, but has no labels, so that no sample is of "
                "this site; name a party with labels",
                told="the reference_site has no labels; name a party with labels",
            )
        return None
    if not len(ids):
        return None
    name = site_feature(party)
    for tile in tiles:
        if name in tile.features.tolist():
            raise DataError(
                f"party {party}, {tile.source or 'its tile'} has a column '{name}', which is what "
                "the intercept of its site is called; rename it, or leave reference_site out",
                told="a party has a column that is called as the intercept of its site is",
            )
    return Tile(
        ids=ids,
        features=np.array([name], dtype=object),
        block=np.ones((len(ids), 1)),
        source=f"the intercept of site {party}",
    )
