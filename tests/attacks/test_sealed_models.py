"""Single samples from models of sealed runs, and from the totals that their coordinator reads.

Nobody opens a sum of a sealed run, but a model is one: whoever reads it takes off what it knows.
Each attack succeeds where nothing is guarded, and finds nothing on the strictest terms.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy.special import expit

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN, Terms
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import coordinator as sealed

ROWS, COLUMNS, ONE = 150, 6, 17
SEALED = Settings(lam=10.0, loss="logistic", solver="sealed", gap=1e-6)
ALL = slice(None)


def table(seed=0):
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(ROWS, COLUMNS))
    return block, (block[:, 0] + rng.normal(size=ROWS) > 0).astype(int)


def tile(block, labels, rows, columns=ALL, labelled=True):
    rows, columns = np.arange(ROWS)[rows], np.arange(COLUMNS)[columns]
    part = block[np.ix_(rows, columns)]
    names = [f"c{column}" for column in columns]
    return [Tile.make([f"i{n}" for n in rows], names, part, labels[rows] if labelled else None)]


def train(tiles, terms, settings=SEALED, *, intercept=False, ledger=None):
    how = Preprocessing(intercept=intercept, scaling="none")
    return Federation(tiles, how, terms=terms, ledger=ledger).train(settings)


def weights(trained):
    model = trained.model
    return model.coef[:, np.argsort(model.features.astype(str))]


def by_rows(block, labels):
    half = ROWS // 2
    parts = {"a": slice(0, half), "b": slice(half, None)}
    return {name: tile(block, labels, rows) for name, rows in parts.items()}


def by_columns(block, labels, kept=ALL):
    return {
        "a": tile(block, labels, ALL, slice(0, 4), labelled=False),
        "b": tile(block, labels, kept, slice(4, None)),
    }


def likeness(found, row):
    """One where a row was found, and nothing where what was found is next to nothing.

    A correlation would be one of rounding with six cells, now and then a high one.
    """
    return 1.0 - np.linalg.norm(found - row) / np.linalg.norm(row)


def row_of_a_rare_class(terms):
    """b takes its own samples' part off the weights: a's samples of class 2 are left, one."""
    block, labels = table()
    labels[ONE] = 2
    w, mine = weights(train(by_rows(block, labels), terms)), slice(ROWS // 2, None)
    samples = ROWS if terms.min_batch == 1 else ROWS - 1
    slopes = expit(block[mine] @ w.T) - (labels[mine, None] == np.arange(3))
    others = -SEALED.lam * samples * w - slopes.T @ block[mine]
    # Slopes of two classes add up to nothing for samples of one of them, at weights near zero.
    return likeness(others[0] + others[1], block[ONE])


def row_of_a_rare_column(terms):
    """A weight that one sample alone moves tells b that sample's slope, and so its label."""
    block, labels = table()
    block[:, 1], block[ONE, 1] = 0.0, 1.0
    (w,) = weights(train(by_columns(block, labels), terms))
    return w[1] * SEALED.lam * ROWS * 2 * (2 * labels[ONE] - 1)


def group_of_one(terms):
    """One sample that b alone has: what a does not know of the sum is its row."""
    block, labels = table()
    rows = np.arange(ROWS)
    tiles = {"a": tile(block, labels, rows != ONE), "b": tile(block, labels, rows >= ONE)}
    (w,) = weights(train(tiles, terms))
    known, samples = rows != ONE, ROWS if terms.min_batch == 1 else ROWS - 1
    slopes = expit(block[known] @ w) - labels[known]
    rest = -SEALED.lam * samples * w - slopes @ block[known]
    return max(likeness(sign * rest, block[ONE]) for sign in (2.0, -2.0))


@pytest.mark.parametrize("attack", [row_of_a_rare_class, row_of_a_rare_column, group_of_one])
def test_readers_of_a_model_take_off_what_they_know_and_find_nobody(attack, record):
    found = attack(OPEN)
    assert found > 0.9
    record("63", "unguarded", f"{attack.__name__.replace('_', ' ')}: {found:.4f} right")
    assert attack(Terms()) < 0.8
    record("63", "guarded", "left out")


@pytest.mark.parametrize("careful", [False, True])
def test_two_models_of_which_one_lacks_a_sample_are_not_both_made(careful, tmp_path, record):
    """b withdraws a sample: the difference of two models is a's row of it."""
    block, labels = table()
    ledger = Ledger(tmp_path)
    terms = Terms(allow_small_changes=not careful)

    def model(kept):
        done = train(by_columns(block, labels, kept), terms, ledger=ledger)
        return weights(done)[0, :4] * done.holdings.n_samples

    whole, but_one = model(ALL), np.arange(ROWS) != ONE
    if careful:
        with pytest.raises(WeftError, match="so few of its samples changed"):
            model(but_one)
        record("64", "guarded", "refused by ledgers")
        return
    row = 2 * SEALED.lam * (whole - model(but_one)) * (2 * labels[ONE] - 1)
    right = np.corrcoef(row, block[ONE, :4])[0, 1]
    assert right > 0.99
    record("64", "unguarded", f"a row, {right:.4f} right")


@pytest.mark.parametrize("few", [1, 14])
def test_losses_by_class_and_fold_do_not_tell_single_samples(few, monkeypatch, record):
    """The largest loss of a class with one sample is that of the fold that has it."""
    block, labels = table()
    labels[:few] = 2
    told, scores = [], sealed._Run._held_scores

    def spy(self):
        found = [held.loss() for held in self._held]
        told.append(np.reshape(found, (-1, 3))[1:, 2] * ROWS)
        return scores(self)

    monkeypatch.setattr(sealed._Run, "_held_scores", spy)
    asked = msgspec.structs.replace(SEALED, folds=3, lam=1e-2, gap=1e-3)
    if few == 1:
        train(by_columns(block, labels), OPEN, asked, intercept=True)
        ordered = np.sort(told[-1])
        assert ordered[-1] - ordered[-2] > 1.5 > ordered[-2] - ordered[0]
        record("65", "unguarded", "the fold of a sample, and nearly its loss")
        # The class is left out, and no fold stands out.
        train(by_columns(block, labels), Terms(), asked, intercept=True)
        assert told[-1].max() - told[-1].min() < 1.5
        return
    with pytest.raises(WeftError, match="samples of a class at once"):
        train(by_columns(block, labels), Terms(), asked)
    assert not told
    record("65", "guarded", "refused before anything is dealt, or left out")
