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
from weft.federation.terms_enforced_by_phase import InsistedTerms
from weft.guards import Terms
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import fold_rows

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
    monkeypatch.setattr(InsistedTerms, "tells_counts", lambda self, view: True)
    found = [train(each)[0].holdings.rare for each in least]
    assert found == [0, 12, 26]
    record("67", "unguarded", f"sizes {np.diff(found).tolist()} of the classes of two groups")


@pytest.mark.parametrize("few", [False, True])
def test_folds_tell_no_sizes_either(few, monkeypatch):
    """A lone label holder judges its classes by itself, by its own terms."""
    told, of = [], fold_rows.FoldSizes.of.__func__

    def spy(cls, problems, rows, totals, *others):
        told.append(list(totals))
        return of(cls, problems, rows, totals, *others)

    monkeypatch.setattr(fold_rows.FoldSizes, "of", classmethod(spy))
    asked = msgspec.structs.replace(SEALED, folds=6 if few else 2)
    if few:
        with pytest.raises(WeftError, match="refuses these folds, being the only one with labels"):
            train(10, asked)
        assert not told
        return
    for least in (10, 18):
        train(least, asked)
        # As many as there are rows, and as many of each class as are enough.
        assert told.pop() == [ROWS / 2] * 2 + [float(least)] * 6
    monkeypatch.setattr(InsistedTerms, "tells_counts", lambda self, view: True)
    train(18, asked)
    assert sum(told.pop()[:2]) == ROWS - sum(SIZES)


def answer(least, folds, ledger=None, rare=23):
    """What a, alone with labels, says to b, whose own terms say so: empty, if it takes part."""
    rows = 420
    rng = np.random.default_rng(4)
    block, ids = rng.normal(size=(rows, 4)), [f"i{n}" for n in range(rows)]
    labels = np.arange(rows) % 2
    labels[:rare] = 2
    tiles = {
        "a": [Tile.make(ids, ["x", "y"], block[:, :2], labels)],
        "b": [Tile.make(ids, ["u", "v"], block[:, 2:], None)],
    }
    consents = {"a": Consent("a", Terms()), "b": Consent("b", Terms(min_batch=least))}
    how = Preprocessing(intercept=False, scaling="none")
    asked = msgspec.structs.replace(SEALED, folds=folds)
    try:
        Federation(tiles, how, consents=consents, ledger=ledger).train(asked)
    except WeftError as error:
        return str(error)
    return ""


def test_a_party_that_varies_min_batch_bisects_no_size_of_a_class(monkeypatch, record):
    """Three folds are refused while a class of 23 is there, and are not once it is left out."""
    said = {answer(least, 3).replace(f"= {least}:", "= n:") for least in (20, 22, 24, 40)}
    assert len(said) == 1
    assert said.pop().startswith("party a refuses min_batch = n: it alone has labels")
    record("67", "guarded", "refused alike")
    monkeypatch.setattr(InsistedTerms, "_insist_on_own_min_batch", lambda self, view: None)
    low, high = 10, 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if answer(middle, 3) else (low, middle)
    assert low == 23
    record("67", "unguarded", f"a class of {low}, by folds that are refused or not")


def test_one_number_of_folds_is_judged_and_none_after_a_refusal(tmp_path):
    """By its ledger: several would be bounds for sizes of classes."""
    one, other = Ledger(tmp_path / "one"), Ledger(tmp_path / "other")
    assert not answer(10, 2, one, rare=60)
    assert not answer(10, 2, one, rare=60)
    said = answer(10, 3, one, rare=60)
    assert said.startswith("party a: refuses these folds, being the only one with labels")
    # Two would do; but three were refused, in the same words, by the size of a class.
    assert answer(10, 3, other) == said
    assert answer(10, 2, other) == said
    assert not answer(10, 0, other)
