"""Intercepts of sites: a model with one tells how many samples of that site have the outcome.

At the optimum the mean prediction over the samples of a site is its share of outcomes. So a reader
of the model counts them, without knowing a cell: as a description by site would tell it, which
takes `allow_site_statistics`. So do intercepts of sites.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy.special import expit

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards.privacy_terms import Terms
from weft.solvers.run_settings import Settings

ROWS = 60
SICK = {"north": 30, "south": 13, "west": 41}
AGREED = Terms(allow_site_statistics=True)
SETTINGS = Settings(
    lam=1e-4, loss="logistic", solver="newton-cg", gap=1e-6, iterations=20, penalize_intercept=False
)


def trained(terms):
    rng = np.random.default_rng(4)
    tiles = {}
    for place, (name, sick) in enumerate(SICK.items()):
        outcome = np.array(["sick"] * sick + ["well"] * (ROWS - sick))
        cells = rng.normal(size=(ROWS, 2)) + 0.2 * (outcome == "sick")[:, None]
        ids = [f"s{ROWS * place + row:03}" for row in range(ROWS)]
        tiles[name] = (Tile.make(ids, ["a", "b"], cells, outcome),)
    how = Preprocessing(intercept=True, scaling="standard", reference_site="north")
    return Federation(tiles, how, terms=terms).train(SETTINGS).model


def test_a_model_with_intercepts_of_sites_tells_their_outcomes(record):
    """With leave to do so. The reader takes a sample at the means of all, which it knows."""
    model = trained(AGREED)
    names = [str(name) for name in model.features]
    assert model.classes.tolist() == ["sick", "well"]
    found = {}
    for site in ("south", "west"):
        own = model.coef[0, names.index(f"site {site}")]
        found[site] = ROWS * (1 - expit(model.centre_score[0] + own))
    off = max(abs(found[site] - SICK[site]) for site in found)
    assert off < 2
    record("74", "unguarded", f"outcomes of two sites, {off:.1f} of {ROWS} samples off")


@pytest.mark.parametrize("change", [{}, {"min_batch": 2}])
def test_without_leave_a_site_refuses(record, change):
    terms = msgspec.structs.replace(AGREED, allow_site_statistics=False, **change)
    words = r"refuses an intercept of its own site.*allow_site_statistics = true"
    with pytest.raises(WeftError, match=words):
        trained(terms)
    record("74", "guarded", "refused")
