"""A multinomial model over a federation of real processes is scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from weft.data import Tile
from weft.federation.model import load_model
from weft_examples.local_federation_processes import FederationProcesses

PARTIES = ("north", "south", "west")
LAM, COLUMNS = 0.02, 5
CONFIG = """name = "classes"
[data]
scaling = "standard"
[model]
family = "multinomial"
lambda = {lam}
[solver]
name = "lbfgs"
gap = 1e-8
[network]
timeout = 60.0
{parties}
"""


@pytest.mark.release
def test_probabilities_of_three_classes_are_those_of_scikit_learn(tmp_path):
    """Without processes: every death in every phase in ``test_deaths_in_every_phase.py``, and the
    same fit in ``tests/estimators/test_multinomial.py``."""
    whole = load_wine()
    order = np.random.default_rng(0).permutation(len(whole.target))
    x = np.ascontiguousarray(whole.data[order][:, :COLUMNS])
    y = np.array(["barolo", "grignolino", "barbera"], object)[whole.target[order]]
    ids, names = [f"s{n}" for n in range(len(y))], [f"c{n}" for n in range(COLUMNS)]
    parts = np.array_split(np.arange(len(y)), len(PARTIES))
    tiles = {
        party: [Tile.make([ids[row] for row in rows], names, x[rows], y[rows])]
        for party, rows in zip(PARTIES, parts, strict=True)
    }
    told = "\n".join(f'[[party]]\nname = "{party}"' for party in PARTIES)
    config = tmp_path / "classes.toml"
    config.write_text(CONFIG.format(lam=LAM, parties=told))
    with FederationProcesses(tmp_path / "scene", tiles) as scene:
        scene.start_all(seconds=240.0)
        scene.submit(config, tmp_path / "results")
        assert scene.wait("submit", 300) == 0, scene.log("submit")
    assert not list(scene.processes())
    model = load_model(tmp_path / "results" / "model.npz")
    scaled = StandardScaler().fit_transform(x)
    central = LogisticRegression(C=1 / (LAM * len(y)), tol=1e-10, max_iter=9999).fit(scaled, y)
    place = [names.index(name) for name in model.features.tolist()]
    found = model.predict_proba(x[:, place])
    assert model.classes.tolist() == central.classes_.tolist()
    np.testing.assert_allclose(found, central.predict_proba(scaled), atol=2e-5)
