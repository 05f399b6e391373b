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
from weft.errors import ProtocolError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN, Terms
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import (
    party_slopes,
    released_model_curvature_shares,
    second_moment_guard,
)

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


class NoHessian(Exception):
    """A party has kept it back."""


def opened(tiles, terms, asked=ASKED):
    """The matrices by name of columns, and the weights."""
    trained = Federation(tiles, Preprocessing(intercept=False), terms=terms).train(asked)
    if trained.second_moments.hessian is None:
        assert trained.model.coef.any()
        assert trained.second_moments.gram is not None
        raise NoHessian(" ".join(trained.result.notes))
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


def of_what_two_readers_lack():
    """By rows that overlap: b and c together have all rows of a's but twelve, one of them large."""
    rng = np.random.default_rng(2)
    block = rng.normal(size=(400, 2))
    block[388:399] /= 1000
    labels = (block[:, 0] + rng.normal(size=400) > 0).astype(int)
    labels[388:] = 1
    held = {"a": (0, 400), "b": (0, 240), "c": (160, 388), "d": (60, 400)}
    tiles = {}
    for name, ends in held.items():
        rows = slice(*ends)
        ids = [f"s{n}" for n in range(*ends)]
        tiles[name] = [
            Tile.make(ids, ["x", "y"], block[rows], labels[rows] if name == "a" else None)
        ]
    asked = msgspec.structs.replace(ASKED, second_moments=("gram",), gap=0.3)
    how = Preprocessing(intercept=False, scaling="none")
    moments = Federation(tiles, how, terms=CAREFUL).train(asked).second_moments
    rest = moments.gram - block[:388].T @ block[:388]
    values, vectors = np.linalg.eigh(rest)
    found = np.sqrt(values[-1]) * vectors[:, -1]
    return np.abs(found * np.sign(found @ block[399]) - block[399]).max()


def test_readers_that_collude_take_off_what_they_hold_and_find_no_row(monkeypatch, record):
    with pytest.raises(WeftError, match="over so few samples"):
        of_what_two_readers_lack()
    record("62", "guarded", "refused, or left out")

    def alone_and_all(sets):
        return [*sets, np.any(sets, axis=0)]

    monkeypatch.setattr(second_moment_guard, "unions", alone_and_all)
    error = of_what_two_readers_lack()
    assert error < 1e-3
    record("62", "unguarded", f"a row that two readers together lack, error {error:.0e}")


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
    """The model would tell it first; else who would be told by it keeps it back, and says so."""
    with pytest.raises(WeftError, match="a sealed model of labels less what its own columns"):
        attack()
    monkeypatch.setattr(party_slopes, "refuse_standing_out", lambda *_, **__: None)
    with pytest.raises(NoHessian, match="few samples that are undecided at this model"):
        attack()
    monkeypatch.setattr(released_model_curvature_shares, "too_decided", lambda *told, **how: False)
    hessian, row = attack()
    first = np.linalg.eigh(hessian)[1][:, -1]
    cosine = abs(first @ row) / np.linalg.norm(row)
    assert cosine > 0.98
    record("62", "unguarded", f"a row of an undecided sample from the Hessian, cosine {cosine:.3f}")


MADE_UP = 4


def test_who_leaves_once_sums_for_guards_are_read_is_in_ledgers(tmp_path, monkeypatch):
    """Else anybody reads how undecided samples are at as many models as it begins, and unseen."""
    block, labels = scene()
    tiles = {
        "a": tile(block, labels, slice(None), slice(0, 3), labelled=False),
        "b": tile(block, labels, slice(None), slice(3, 6)),
    }
    ledger, asked = Ledger(tmp_path), msgspec.structs.replace(ASKED, gap=0.1)

    def leave(self, told):
        raise ProtocolError("b leaves")

    monkeypatch.setattr(released_model_curvature_shares.CurvatureShares, "_too_decided", leave)
    federation = Federation(tiles, Preprocessing(intercept=False), terms=OPEN, ledger=ledger)
    with pytest.raises(ProtocolError, match="leaves"):
        federation.train(msgspec.structs.replace(asked, second_moments=("hessian",)))
    assert ledger.book("a").read().numbers["models"].numbers.min() > 0


def guessed(ledger, runs, seed=3, alone=0):
    """b brings other random columns in every run: each is an equation about a's column.

    a has more samples, which b does not have.
    """
    rng = np.random.default_rng(seed)
    rows = 10 * (MADE_UP + 1)
    secret, names = rng.normal(size=rows), [f"r{n}" for n in range(MADE_UP)]
    labels, ids = (secret + rng.normal(size=rows) > 0).astype(int), [f"s{n}" for n in range(rows)]
    others = rng.normal(size=alone)
    cells, targets = np.append(secret, others), np.append(labels, others > 0).astype(float)
    known, told = [], []
    asked = Settings(
        lam=1.0, loss="squared", solver="sealed", gap=0.9, second_moments=("gram",), iterations=1
    )
    for _ in range(runs):
        made_up = rng.normal(size=(rows, MADE_UP))
        tiles = {
            "a": [
                Tile.make([*ids, *(f"t{n}" for n in range(alone))], ["x"], cells[:, None], targets)
            ],
            "b": [Tile.make(ids, names, made_up, None)],
        }
        how = Preprocessing(intercept=False, scaling="none")
        terms = Terms(allow_second_moments=True)
        moments = Federation(tiles, how, terms=terms, ledger=ledger).train(asked).second_moments
        places = [list(moments.names).index(name) for name in ["x", *names]]
        known.append(made_up.T)
        told.append(moments.gram[places[0], places[1:]])
    found = np.linalg.lstsq(np.vstack(known), np.concatenate(told), rcond=None)[0]
    return np.corrcoef(found, secret)[0, 1], np.abs(found - secret).max()


def test_made_up_columns_of_many_runs_do_not_add_up(tmp_path, record):
    right, error = guessed(None, 16)
    assert error < 1e-2
    record("68", "unguarded", f"50 of 50 cells after 16 runs, error {error:.0e}")
    ledger = Ledger(tmp_path)
    right, _ = guessed(ledger, 1)
    assert right < 0.6
    record("68", "guarded", f"refused after one run by ledgers, guesses {right:.2f} right")
    with pytest.raises(WeftError, match="opened 10 numbers about each of its columns, and with 10"):
        guessed(ledger, 1)
    assert ledger.book("a").read().runs[0].numbers == 10


def test_samples_that_no_reader_has_hide_nothing_of_those_that_it_has(tmp_path, record):
    """A fifth of all samples would be 130 numbers, but b has columns of 50 samples."""
    ledger = Ledger(tmp_path)
    guessed(ledger, 1, alone=600)
    with pytest.raises(WeftError, match="it would be over 10, a fifth of those that other parties"):
        guessed(ledger, 1, alone=600)
    record("68", "guarded", "with 600 samples more that the reader lacks, as well")


def test_columns_of_two_parties_that_differ_in_one_sample_tell_its_row(record):
    """Nobody can see this beforehand: each party's own columns are dense. It is said, not met."""

    def nearly_alike(block):
        block[:, 1] = block[:, 0]
        block[UNDECIDED, 1] += 3.0

    block, labels = scene(nearly_alike)
    tiles = {
        "a": tile(block, labels, slice(None), slice(0, 1), labelled=False),
        "b": tile(block, labels, slice(None), slice(1, 2), labelled=False),
        "c": tile(block, labels, slice(None), slice(2, 6)),
    }
    gram, *_ = opened(tiles, CAREFUL, msgspec.structs.replace(ASKED, gap=0.3))
    error = np.abs((gram[1, 2:] - gram[0, 2:]) / 3.0 - block[UNDECIDED, 2:]).max()
    assert error < 1e-3
    record("69", "guarded", f"admitted: 4 of 4 cells of a row, error {error:.0e}")
