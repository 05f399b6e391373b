"""The loss of a sealed run is a number about all samples, which who brings a column can steer."""

from __future__ import annotations

import numpy as np
import pytest

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

N, TARGETS = 60, 3
SETTINGS = Settings(lam=0.02, loss="logistic", solver="sealed", gap=1e-2)


@pytest.mark.release
def test_a_party_that_submits_runs_learns_labels_from_losses(tmp_path, record):
    """It has neither labels nor the model: its column is about 1, but ±4 at one sample.

    Said, not met: what is refused is a column of which one sample has four fifths."""
    random = np.random.default_rng(9)
    cells = random.normal(size=(N, 3))
    labels = (cells[:, 0] + random.normal(size=N) + 0.8 > 0).astype(int)
    ids = [f"s{number:03d}" for number in range(N)]
    ledger, about = Ledger(tmp_path), random.normal(size=N)

    def loss(target, value):
        made_up = 1.0 + 0.3 * about
        made_up[target] = value
        ledger.book("b").path.unlink(missing_ok=True)
        tiles = {
            "a": [Tile.make(ids, ["a0", "a1", "a2"], cells, labels)],
            "b": [Tile.make(ids, ["m"], made_up[:, None], None)],
        }
        how = Preprocessing(intercept=False, scaling="none")
        trained = Federation(tiles, how, terms=Terms(), ledger=ledger).train(SETTINGS)
        return sum(trained.result.stage.certificate.primal)

    found = [int(loss(target, 4.0) < loss(target, -4.0)) for target in range(TARGETS)]
    assert found == labels[:TARGETS].tolist()
    # Each run tells a number about the samples that both hold: a's own ledger ends it.
    for _ in range(N // 5 - 2 * TARGETS):
        loss(0, 4.0)
    with pytest.raises(WeftError, match="a fifth"):
        loss(0, 4.0)
    record("72", "guarded", f"admitted: {TARGETS} of {TARGETS} labels in {2 * TARGETS} runs")
