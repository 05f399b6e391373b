"""Joint predictions under several models: each is an equation about the others' cells.

The party that asks knows the weights. Its own part taken off, a score is a known mixture of the
columns that it lacks; under as many models as it lacks columns these are its to solve for. Ledgers
count scores with the sums of training, sample by sample, and stop before.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.local_joint_prediction import predict_scores
from weft.guards.privacy_terms import OPEN
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

ROWS, ASKER = 60, "north"
COLUMNS = {"north": ["a"], "lab": ["b", "c", "d", "e", "f"], "registry": ["g", "h", "i", "j", "k"]}
FOREIGN = sum(len(names) for name, names in COLUMNS.items() if name != ASKER)
#: What the registry lacks; whoever reads scores, a party stops before the least that another lacks.
LEAST = 1 + len(COLUMNS["lab"])
CAREFUL = msgspec.structs.replace(OPEN, allow_exposure=False, min_batch=2)
rng = np.random.default_rng(6)
CELLS = {name: rng.normal(size=(ROWS, len(names))) for name, names in COLUMNS.items()}
SICK = rng.random(ROWS) < 0.5


def tiles(labelled):
    ids = [f"s{row:02}" for row in range(ROWS)]
    return {
        name: (Tile.make(ids, names, CELLS[name], SICK if labelled and name == ASKER else None),)
        for name, names in COLUMNS.items()
    }


def train(seed=0, terms=OPEN, ledger=None):
    """A model; with other seeds, of other labels, so that its weights are others."""
    held = tiles(labelled=True)
    flipped = SICK ^ (np.random.default_rng(seed).random(ROWS) < (0.3 if seed else 0.0))
    own = held[ASKER][0]
    held[ASKER] = (Tile.make(own.ids, own.features, own.block, flipped),)
    settings = Settings(lam=0.3, loss="logistic", solver="lbfgs", gap=0.3, iterations=2)
    how = Preprocessing(intercept=True)
    return Federation(held, how, terms=terms, ledger=ledger).train(settings).model


def ask(model, terms, ledger):
    """What the asker reads, less its own part."""
    consents = {name: Consent(name, terms) for name in COLUMNS}
    _, scores = predict_scores(
        model, tiles(labelled=False), ledger=ledger, consents=consents, asker=ASKER
    )
    names = [str(name) for name in model.features]
    own = CELLS[ASKER] @ model.coef[0, [names.index(name) for name in COLUMNS[ASKER]]]
    rest = [names.index(n) for name, held in COLUMNS.items() if name != ASKER for n in held]
    return scores[:, 0] - model.centre_score[0] - own, model.coef[0, rest]


@pytest.fixture(scope="module")
def models():
    return [train(seed) for seed in range(FOREIGN)]


def test_as_many_models_as_foreign_columns_tell_all_cells_and_ledgers_stop_before(
    record, models, tmp_path
):
    told = [ask(model, OPEN, None) for model in models]
    scores, weights = (np.array(part) for part in zip(*told, strict=True))
    cells = np.linalg.solve(weights, scores).T
    truth = np.hstack([CELLS["lab"], CELLS["registry"]])
    error = np.abs(cells - truth).max()
    assert error < 1e-3
    record("75", "unguarded", f"{truth.size} of {truth.size} cells, error {error:.0e}")
    ledger = Ledger(tmp_path / "careful")
    for model in models[: LEAST - 1]:
        ask(model, CAREFUL, ledger)
    with pytest.raises(WeftError, match=r"refuses to show more sums.*allow_exposure"):
        ask(models[-1], CAREFUL, ledger)
    record("75", "guarded", f"refused, score {LEAST} of a sample with {FOREIGN} foreign cells")


def test_sums_of_training_and_scores_of_predictions_are_counted_together(models, tmp_path):
    ledger = Ledger(tmp_path)
    train(terms=CAREFUL, ledger=ledger)
    shown = int(ledger.book("lab").read().shown.max())
    assert 0 < shown < LEAST - 1
    for model in models[: LEAST - 1 - shown]:
        ask(model, CAREFUL, ledger)
    with pytest.raises(WeftError, match="refuses to show more sums"):
        ask(models[-1], CAREFUL, ledger)
