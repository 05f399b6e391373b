"""Single rows from second moments that readers of a sealed model get, once with open terms.

A reader that is a party takes off what it holds itself. What is left is about others' rows: a few
of them tell themselves, and so do the few in which a column of its own is not zero. Where it shares
few rows with another party and has as many columns of them, products are equations for all cells.
What no column or pair tells, a combination of columns may. And a Hessian is about the few samples
that a model is undecided about.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from scipy.special import expit

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN
from weft.solvers.sealed import party_second_moments, second_moment_guard
from weft.solvers.settings import Settings

ROWS, COLUMNS = 160, 6
ASKED = Settings(lam=0.1, loss="logistic", solver="sealed", second_moments=("hessian", "gram"))
#: Careful in what matrices tell; all else is open.
CAREFUL = msgspec.structs.replace(OPEN, min_batch=10)


def scene(change=lambda block: None):
    rng = np.random.default_rng(7)
    block = rng.normal(size=(ROWS, COLUMNS))
    change(block)
    return block, (block @ rng.normal(size=COLUMNS) > 0).astype(int)


def tile(block, labels, rows, columns, labelled=True):
    ids = [f"s{n}" for n in range(ROWS)]
    names = [f"c{n}" for n in range(COLUMNS)]
    part = block[rows, columns]
    return [Tile.make(ids[rows], names[columns], part, labels[rows] if labelled else None)]


def opened(tiles, terms, asked=ASKED):
    """The matrices by name of columns, and the weights."""
    trained = Federation(tiles, Preprocessing(intercept=False), terms=terms).train(asked)
    moments, order = trained.second_moments, np.argsort(trained.second_moments.names.astype(str))
    hessian = moments.hessian[0] * moments.samples
    return moments.gram[np.ix_(order, order)], hessian[np.ix_(order, order)], trained.model


def rare(block):
    block[1:, 5] = 0.0
    block[0, 5] = 1.0


def of_a_rare_column(terms):
    """b has a column in which one row differs: its products are a's cells of that row."""
    block, labels = scene(rare)
    tiles = {
        "a": tile(block, labels, slice(None), slice(0, 3)),
        "b": tile(block, labels, slice(None), slice(3, 6), labelled=False),
    }
    gram, hessian, model = opened(tiles, terms)
    weights = model.coef[0][np.argsort(model.features.astype(str))]
    slope = expit(block[0] @ weights)
    score = abs(hessian[5, 5] / (slope * (1 - slope)) - 1)
    return f"3 of 3 cells and the size of the score of a row (error {score:.0e})", np.abs(
        gram[5, :3] - block[0, :3]
    ).max()


def of_a_row_that_one_has(terms):
    """Two hospitals by rows, of which a has one row: what b lacks of the matrix is that row."""
    block, labels = scene()
    tiles = {
        "a": tile(block, labels, slice(0, 1), slice(None)),
        "b": tile(block, labels, slice(1, None), slice(None)),
    }
    gram, *_ = opened(tiles, terms)
    rest = gram - block[1:].T @ block[1:]
    values, vectors = np.linalg.eigh(rest)
    row = np.sqrt(values[-1]) * vectors[:, -1]
    return "a whole row, up to its sign", np.abs(row * np.sign(row @ block[0]) - block[0]).max()


def of_few_rows_in_common(terms):
    """a and b share two rows, of which b has three columns: equations for a's cells there."""
    block, labels = scene()
    tiles = {
        "a": tile(block, labels, slice(0, 82), slice(0, 3)),
        "b": tile(block, labels, slice(80, None), slice(3, 6)),
    }
    gram, *_ = opened(tiles, terms)
    cells = np.linalg.lstsq(block[80:82, 3:].T, gram[3:, :3], rcond=None)[0]
    return "all 6 cells of two rows in common", np.abs(cells - block[80:82, :3]).max()


@pytest.mark.parametrize("attack", [of_a_rare_column, of_a_row_that_one_has, of_few_rows_in_common])
def test_single_rows_are_read_from_moments_unless_parties_refuse(attack, record):
    """Or leave out, as from every model: columns that few samples have, and small groups."""
    found, error = attack(OPEN)
    assert error < 1e-3
    record("62", "unguarded", f"{found}, error {error:.0e}")
    error = np.inf
    with suppress(WeftError):
        _, error = attack(CAREFUL)
    assert error > 0.1
    record("62", "guarded", "refused, or left out")


def levels(block):
    """Four levels, of which the last has no column, and one sample; and a constant column."""
    block[:, 2:5] = np.arange(ROWS)[:, None] % 3 == np.arange(3)
    block[7, 2:5] = 0.0
    block[:, 5] = 1.0


def of_a_level_without_a_column():
    """Two hospitals by rows: the constant less all levels is one in the only row of the last."""
    block, labels = scene(levels)
    tiles = {
        "a": tile(block, labels, slice(0, 80), slice(None)),
        "b": tile(block, labels, slice(80, None), slice(None)),
    }
    gram, *_ = opened(tiles, CAREFUL)
    rest = gram - block[80:].T @ block[80:]
    return np.abs(rest @ [0.0, 0.0, -1.0, -1.0, -1.0, 1.0] - block[7]).max()


def test_a_combination_of_columns_tells_no_single_row(monkeypatch, record):
    with pytest.raises(WeftError, match="a combination of which stands for fewer samples"):
        of_a_level_without_a_column()
    monkeypatch.setattr(second_moment_guard, "stands_for_few", lambda cells, least: False)
    error = of_a_level_without_a_column()
    assert error < 1e-3
    record("62", "unguarded", f"the row of a level without a column, error {error:.0e}")


UNDECIDED = 11


def decided(rows):
    """A column that tells the labels of these rows, but for one; others hardly depend on it."""

    def change(block):
        sides = np.where(block[:, 3] > 0, 10.0, -10.0)
        block[rows, 3] = sides[rows]
        block[UNDECIDED, 3] = 0.0

    return change


def few_of_all():
    """By columns: b has the column that decides, and the Hessian of a's columns is one row's."""
    block, _ = scene(decided(slice(None)))
    labels = (block[:, 3] > 0).astype(int)
    tiles = {
        "a": tile(block, labels, slice(None), slice(0, 3), labelled=False),
        "b": tile(block, labels, slice(None), slice(3, 6)),
    }
    asked = msgspec.structs.replace(ASKED, lam=1e-3, gap=1e-2)
    _, hessian, _ = opened(tiles, CAREFUL, asked)
    return hessian[:3, :3], block[UNDECIDED, :3]


def few_of_one_party():
    """By rows: many of b's samples are undecided, and one of a's; b takes its own part off."""
    block, _ = scene(decided(slice(0, 80)))
    block[80:, 3] /= 4
    labels = (block[:, 3] > 0).astype(int)
    labels[80::2] = 1 - labels[80::2]
    tiles = {
        "a": tile(block, labels, slice(0, 80), slice(None)),
        "b": tile(block, labels, slice(80, None), slice(None)),
    }
    asked = msgspec.structs.replace(ASKED, lam=1e-3, gap=1e-2)
    _, hessian, model = opened(tiles, CAREFUL, asked)
    own = block[80:]
    slopes = expit(own @ model.coef[0][np.argsort(model.features.astype(str))])
    rest = hessian - own.T @ ((slopes * (1 - slopes))[:, None] * own)
    return rest[:3, :3], block[UNDECIDED, :3]


@pytest.mark.parametrize("attack", [few_of_all, few_of_one_party])
def test_the_hessian_tells_no_undecided_sample(attack, monkeypatch, record):
    with pytest.raises(WeftError, match="few samples that are undecided there; take a larger lam"):
        attack()
    monkeypatch.setattr(party_second_moments, "refuse_decided", lambda *told: None)
    hessian, row = attack()
    first = np.linalg.eigh(hessian)[1][:, -1]
    cosine = abs(first @ row) / np.linalg.norm(row)
    assert cosine > 0.98
    record("62", "unguarded", f"a row of an undecided sample from the Hessian, cosine {cosine:.3f}")
