"""Sizes of classes, where one party alone has labels: nothing hides them in totals.

Its coordinator reads how many samples are left out, by min_batch, and how many every fold has.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.sealed_run_terms import SealedSeat
from weft.guards import Terms
from weft.solvers.sealed import fold_rows
from weft.solvers.settings import Settings

GROUP, SIZES = 80, (12, 14, 17)
ROWS = GROUP * len(SIZES)
SEALED = Settings(lam=1.0, loss="logistic", solver="sealed", gap=0.5)


def train(min_batch, settings=SEALED):
    """a has all labels; each of three others has two columns of a third of the samples."""
    rng = np.random.default_rng(8)
    block = rng.normal(size=(ROWS, 4))
    labels = (np.arange(ROWS) % 2).astype(int)
    for group, size in enumerate(SIZES):
        labels[group * GROUP : group * GROUP + size] = 2
    ids = np.array([f"i{n}" for n in range(ROWS)])
    tiles = {"a": [Tile.make(ids, ["x", "y"], block[:, :2], labels)]}
    for group, name in enumerate("bcd"):
        rows = slice(group * GROUP, (group + 1) * GROUP)
        tiles[name] = [Tile.make(ids[rows], ["u", "v"], block[rows, 2:], None)]
    how = Preprocessing(intercept=False, scaling="none")
    trained = Federation(tiles, how, terms=Terms(min_batch=min_batch)).train(settings)
    return trained, block, labels


def test_what_is_left_out_tells_no_sizes_of_a_lone_label_holders_classes(monkeypatch, record):
    """And the model is that of the others, with all samples in N."""
    least = (12, 13, 15)
    assert [train(each)[0].holdings.rare for each in least] == [0, 0, 0]
    record("67", "guarded", "no count")
    trained, block, labels = train(18, msgspec.structs.replace(SEALED, gap=1e-6))
    assert "left out unsaid" in " ".join(trained.result.notes)
    model = trained.model
    weights = model.coef[:, [list(model.features).index(name) for name in ("x", "y", "u", "v")]]
    kept = labels < 2
    ones = np.where(labels[kept, None] == np.arange(3), 1.0, -1.0)
    slopes = -ones / (1 + np.exp(ones * (block[kept] @ weights.T)))
    np.testing.assert_allclose(slopes.T @ block[kept] / ROWS, -weights, atol=2e-3)
    monkeypatch.setattr(SealedSeat, "tells_counts", lambda self, view: True)
    found = [train(each)[0].holdings.rare for each in least]
    assert found == [0, 12, 26]
    record("67", "unguarded", f"sizes {np.diff(found).tolist()} of the classes of two groups")


@pytest.mark.parametrize("few", [False, True])
def test_folds_tell_no_sizes_either(few, monkeypatch):
    """A lone label holder judges its classes by itself, by its own terms."""
    told, of = [], fold_rows.FoldSizes.of.__func__

    def spy(cls, problems, rows, totals, least, *, squared):
        told.append(list(totals))
        return of(cls, problems, rows, totals, least, squared=squared)

    monkeypatch.setattr(fold_rows.FoldSizes, "of", classmethod(spy))
    asked = msgspec.structs.replace(SEALED, folds=6 if few else 2)
    if few:
        with pytest.raises(WeftError, match="samples of a class at once"):
            train(10, asked)
        assert not told
        return
    for least in (10, 18):
        train(least, asked)
        # As many as there are rows, and as many of each class as are enough.
        assert told.pop() == [ROWS / 2] * 2 + [float(least)] * 6
    monkeypatch.setattr(SealedSeat, "tells_counts", lambda self, view: True)
    train(18, asked)
    assert sum(told.pop()[:2]) == ROWS - sum(SIZES)
