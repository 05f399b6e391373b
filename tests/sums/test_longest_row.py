"""The longest row is that of all parties together, however little of it each of them holds."""

from __future__ import annotations

import numpy as np
import pytest

from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.run_settings import Settings


@pytest.mark.parametrize("cipher", ["plain", "pad"])
def test_rows_of_many_parties_are_scaled_by_the_longest_as_a_whole(cipher):
    """Nine parties have a column each: a row is up to nine times as long as what anyone has."""
    block = np.random.default_rng(0).uniform(1.0, 1.2, size=(12, 9))
    ids, labels = [f"patient-{row}" for row in range(12)], [0, 1] * 6
    tiles = {
        f"p{at}": (Tile.make(ids, [f"column-{at}"], block[:, [at]], labels),) for at in range(9)
    }
    federation = Federation(tiles, Preprocessing(unit_rows=True))
    federation.train(Settings(lam=0.1, gap=None, iterations=1, cipher=cipher))
    longest = np.linalg.norm(block, axis=1).max()
    for party in federation.parties.values():
        assert party.data._scaler.row_factor * longest == pytest.approx(1.0, rel=1e-8)
        assert party.data._scaler.row_factor * longest <= 1.0
