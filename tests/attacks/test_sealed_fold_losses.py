"""Losses of single samples from those of what folds leave out, over many sealed runs.

A party knows which of its samples are in which fold. One that submits runs, too, reads how well
they predict: told fold by fold, of other folds in every run, that is a linear system.
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import coordinator as sealed

ROWS, COLUMNS, FOLDS, RUNS = 60, 3, 10, 10
KEYS = ephemeral_keys(("a", "b"))


def table():
    rng = np.random.default_rng(12)
    block = rng.normal(size=(ROWS, COLUMNS))
    return block, (block @ [1.0, -1.0, 0.5] + rng.normal(size=ROWS) > 0).astype(int)


def run(seed):
    """Folds of b's samples, and what the submitter and the coordinator read of them."""
    block, labels = table()
    ids, names = [f"i{n}" for n in range(ROWS)], [f"c{n}" for n in range(COLUMNS)]
    tiles = {
        "a": [Tile.make(ids, names[:2], block[:, :2], labels)],
        "b": [Tile.make(ids, names[2:], block[:, 2:], None)],
    }
    how = Preprocessing(intercept=False, scaling="none")
    federation = Federation(tiles, how, terms=Terms(min_batch=1), keys=KEYS)
    asked = Settings(lam=1.0, loss="logistic", solver="sealed", gap=0.03, seed=seed, folds=FOLDS)
    trained = federation.train(asked)
    party = federation.parties["b"]
    names = [int(name[1:]) for name in party._matching.ids[0]]
    fold = np.empty(ROWS, int)
    fold[names] = party._half._fold_rows.fold[party._half._place.rows[party.view.tile_rows[0]]]
    return fold, trained


def single_losses(trained):
    block, labels = table()
    w = trained.model.coef[0][np.argsort(trained.model.features.astype(str))]
    return np.logaddexp(0, -(2 * labels - 1) * (block @ w))


def by_pairs(folds, totals):
    """Who raises the total of those who are left out together: the best that totals allow."""
    first, second = np.triu_indices(ROWS, 1)
    together = np.array([fold[first] == fold[second] for fold in folds], float)
    together -= together.mean(axis=0)
    found = np.linalg.lstsq(together, totals - totals.mean(), rcond=None)[0]
    return np.bincount(first, found, ROWS) + np.bincount(second, found, ROWS)


@pytest.mark.parametrize("anew", [True, False])
def test_folds_of_many_runs_tell_no_single_loss(anew, monkeypatch, record):
    told, scores = [], sealed._Run._held_scores

    def spy(self):
        told.append(ROWS * np.array([held.loss() for held in self._held[1:]]))
        return scores(self)

    monkeypatch.setattr(sealed._Run, "_held_scores", spy)
    if anew:
        monkeypatch.setattr(OpeningPads, "lasting_words", OpeningPads.common_words)
    runs = [run(seed) for seed in range(RUNS if anew else 2)]
    folds, true = [fold for fold, _ in runs], single_losses(runs[-1][1])
    totals = np.array([trained.result.stage.scores[0][1] for _, trained in runs])
    assert totals == pytest.approx([losses.sum() for losses in told])
    if not anew:
        assert (folds[0] == folds[1]).all()
        assert totals[0] == pytest.approx(totals[1], rel=1e-3)
        record("66", "guarded", "the same folds in all runs, and one total")
        return
    system = np.vstack([fold == number for fold in folds for number in range(FOLDS)])
    found = np.linalg.lstsq(system.astype(float), np.concatenate(told), rcond=None)[0]
    right = np.corrcoef(found, true)[0, 1]
    assert right > 0.9
    record("66", "unguarded", f"losses of {ROWS} samples after {RUNS} runs, {right:.2f} right")
    right = abs(np.corrcoef(by_pairs(folds, totals), true)[0, 1])
    assert right < 0.5
    record("66", "guarded", f"totals of other folds in every run: {right:.2f} right")
