"""Labels from one sealed model, or its gradient, for a reader with all columns: puzzles of sums.

Whoever has all columns and the model knows every score z. At the optimum Σ x(σ(z) − y) = −λN w for
labels y of 0 and 1: for each column a sum over the samples of one class, to as many digits as the
model is near its optimum. A label is one binary digit. Where digits of all columns are more than
there are samples, one set of labels fits, and a reduced basis of a lattice has it.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from scipy.special import expit
from sympy import QQ, ZZ
from sympy.polys.matrices import DomainMatrix

from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import released_model_curvature_shares
from weft.solvers.secret_sharing.label_leak_of_gradient import (
    digits_told,
    label_digits,
    tells_gradient,
    tells_of_few,
)
from weft.solvers.secret_sharing.party_second_moments import SealedMomentsParty
from weft.solvers.secret_sharing.table_positions import Place, WholeTable
from weft.solvers.solver_interfaces_and_results import WITHHELD

LAM = 0.01
#: How far sums may be off: the reader tries some.
GUESSES = (3e-6, 3e-5, 3e-4)
_DELTA = QQ(99, 100)


def trained(rows, columns, terms, level=0.0, few=None, **asked):
    """A reader with all columns, and one who has nothing but the labels.

    ``few``: in how many rows the last column is not zero.
    """
    rng = np.random.default_rng(1)
    block = rng.normal(size=(rows, columns))
    if few is not None:
        block[:, -1] = 0.0
        sides = rng.permutation(np.repeat([-5.0, 5.0], few // 2))
        # As it is shared, so that sums are exact.
        block[:few, -1] = np.rint(sides * rng.uniform(0.85, 1.15, few) * 2**18) / 2**18
    chances = expit(level + 0.15 * block @ rng.normal(size=columns))
    labels = (rng.random(rows) < chances).astype(int)
    ids, names = [f"i{n}" for n in range(rows)], [f"c{j:02d}" for j in range(columns)]
    tiles = {
        "reader": [Tile.make(ids, names, block)],
        "labels": [Tile.make(ids, [], np.zeros((rows, 0)), labels)],
    }
    settings = Settings(lam=LAM, loss="logistic", solver="sealed", gap=1e-6, **asked)
    how = Preprocessing(intercept=False, scaling="none")
    found = Federation(tiles, how, terms=terms).train(settings)
    order = [list(found.model.features).index(name) for name in names]
    return block, labels, found, found.model.coef[0][order]


def guessed(block, sums, off):
    """Labels whose rows add up to these sums, but for so much; None: the lattice shows none."""
    rows, columns = block.shape
    basis = np.zeros((rows + 1, rows + columns + 1), int)
    basis[:rows, :rows] = 2 * np.eye(rows, dtype=int)
    basis[:rows, rows:-1] = np.rint(block / off)
    basis[rows] = [*[-1] * rows, *np.rint(-sums / off).astype(int), 1]
    exact = [[ZZ(int(x)) for x in row] for row in basis]
    for found in DomainMatrix(exact, basis.shape, ZZ).lll(delta=_DELTA).to_list():
        row = np.array([int(x) for x in found])
        if abs(row[-1]) == 1 and (np.abs(row[:rows]) == 1).all():
            return (row[-1] * row[:rows] + 1) // 2
    return None


def right(block, labels, sums):
    """How many labels are right in the best fit of all guesses, judged by sums alone."""
    found = [each for off in GUESSES if (each := guessed(block, sums, off)) is not None]
    if not found:
        return 0
    best = min(found, key=lambda each: float(np.abs(block.T @ each - sums).max()))
    return int((best == labels).sum())


@pytest.mark.release
def test_a_model_of_few_samples_for_each_column_tells_all_labels(record):
    """Admitted: by a fifth as many columns as samples, which guards allow."""
    block, labels, _, weights = trained(30, 6, Terms())
    sums = block.T @ expit(block @ weights) + LAM * len(labels) * weights
    assert right(block, labels, sums) == len(labels)
    record("73", "guarded", f"admitted: {len(labels)} of {len(labels)} labels, by 6 columns")


@pytest.mark.release
def test_a_gradient_would_tell_labels_that_the_model_does_not(monkeypatch, record):
    asked = {"second_moments": ("hessian",)}
    block, labels, found, weights = trained(30, 3, OPEN, **asked)
    assert found.second_moments.hessian is not None
    assert found.second_moments.gradient is None
    scores = block.T @ expit(block @ weights)
    by_model = right(block, labels, scores + LAM * len(labels) * weights)
    assert by_model < len(labels)
    unguarded(monkeypatch)
    *_, found, weights = trained(30, 3, OPEN, **asked)
    order = [list(found.second_moments.names).index(f"c{j:02d}") for j in range(3)]
    gradient = len(labels) * found.second_moments.gradient[0][order]
    assert right(block, labels, block.T @ expit(block @ weights) - gradient) == len(labels)
    record("73", "unguarded", f"gradient of 3 columns: {len(labels)} of {len(labels)} labels")
    record("73", "guarded", "no gradient")


@pytest.mark.parametrize(
    ("rows", "told"), [((480,), True), ((479,), False), ((240, 240), True), ((239, 400), False)]
)
def test_a_gradient_goes_with_many_labels_only_by_table_too(rows, told):
    columns = np.arange(10)
    places = tuple(Place(np.arange(n), columns) for n in rows)
    assert tells_gradient(WholeTable(sum(rows), 10, places), sum(rows), 1) is told
    assert not tells_gradient(WholeTable(sum(rows), 10, places), sum(rows), 3)


def test_large_columns_and_rare_classes_take_more_samples():
    """Noise does not grow with cells, and a label that is nearly always the same says little."""
    columns = np.arange(10)
    table = WholeTable(480, 10, (Place(np.arange(480), columns),))
    assert tells_gradient(table, 480, 1, largest=1.0)
    assert not tells_gradient(table, 480, 1, largest=2.0)
    larger = WholeTable(500, 10, (Place(np.arange(500), columns),))
    assert tells_gradient(larger, 500, 1, largest=2.0)
    for rare, told in ((240, True), (24, False)):
        labels = np.where(np.arange(480) < rare, 1.0, -1.0)[:, None]
        assert (label_digits(labels, 1) >= digits_told(table, 1)) is told
    # log₂ of how many ways there are, to a few digits.
    assert label_digits(labels, 2) == pytest.approx(math.log2(math.comb(480, 24)), rel=0.04)
    assert label_digits(labels[:0], 2) == math.inf
    # Counts and amounts that are nearly all the same have few as well.
    alike = np.where(np.arange(480) < 24, 7.5, 1.0)[:, None]
    assert label_digits(alike, 2) == label_digits(labels, 2)
    assert label_digits(np.arange(480.0)[:, None], 2) == pytest.approx(480 * math.log2(480))


def unguarded(monkeypatch):
    monkeypatch.setattr(released_model_curvature_shares, "tells_gradient", lambda *_, **how: True)
    monkeypatch.setattr(released_model_curvature_shares, "tells_of_few", lambda *_: False)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_column_of_few_samples_would_tell_their_labels(guarded, monkeypatch, record):
    """One that differs in 16 of 320 samples, as `min_batch` allows: a puzzle of these alone."""
    few, terms = 16, Terms(allow_second_moments=True)
    if not guarded:
        unguarded(monkeypatch)
    asked = {"second_moments": ("hessian",), "iterations": 8}
    block, labels, found, weights = trained(320, 2, terms, few=few, **asked)
    assert found.second_moments.hessian is not None
    if guarded:
        assert found.second_moments.gradient is None
        return
    order = [list(found.second_moments.names).index(f"c{j:02d}") for j in range(2)]
    gradient = len(labels) * found.second_moments.gradient[0][order]
    sums = block.T @ expit(block @ weights) - gradient
    assert right(block[:few, 1:], labels[:few], sums[1:]) == few
    record("73", "unguarded", f"gradient of a column of {few} samples: {few} of {few} labels")


@pytest.mark.parametrize(
    ("few", "columns", "digits", "tells"),
    [
        (12, 1, 1.0, True),
        (47, 1, 1.0, True),
        (48, 1, 1.0, False),
        (90, 1, 0.5, True),
        (96, 1, 0.5, False),
        (80, 2, 1.0, True),
        (96, 2, 1.0, False),
    ],
)
def test_columns_must_stand_for_many_labels(few, columns, digits, tells):
    """Of so few rows, whatever values they have there; and not where two values are all."""
    rng = np.random.default_rng(3)
    cells = rng.normal(size=(300, 2 + columns)) / 4
    cells[few:, 2:] = 0.125
    view = SimpleNamespace(cell_holders=None, overlap="mean")
    assert tells_of_few(view, cells, digits) is tells
    if columns == 1:
        # The same where the others are a part of what it is made of; and noise is that of cells
        # of about one, so that larger ones tell more digits.
        cells[:, 2] += 3 * cells[:, 0]
        assert tells_of_few(view, cells, digits) is tells
        assert tells_of_few(view, 1024 * cells, digits)
    cells[:, 2:] = cells[:, 2:] > 0.125
    assert not tells_of_few(view, cells, digits)


def hidden_by_a_flag(rng):
    """A column of many values, and one of two: they differ in 16 rows."""
    flag = np.append(np.zeros(16), rng.integers(0, 2, 304))
    return np.column_stack([flag + np.append(rng.uniform(2, 4, 16), np.zeros(304)), flag])


def small_elsewhere(rng):
    """Two columns over the same 24 rows, which are not quite zero in any other."""
    cells = rng.normal(size=(320, 2)) * 2.0**-12
    cells[:24] = rng.uniform(1, 3, (24, 2))
    return cells


def flags_over_the_same(rng):
    """Eight columns of two values over 20 rows: as many counts as there are halves of them."""
    cells = np.zeros((400, 8))
    cells[:20] = rng.integers(0, 2, (20, 8))
    return cells


def beside_a_code(rng):
    """Cells that matter little beside a code that others share."""
    return np.r_[np.full(12, 9000.0), rng.uniform(1.0, 2.2, 18), np.zeros(570)][:, None] / 64


def of_most_of_its_rows(rng):
    return np.append(rng.uniform(1.0, 3.0, 26), np.zeros(24))[:, None]


def behind_levels(rng):
    """Rows of which each has less than those of many levels have."""
    cells = np.zeros((600, 21))
    cells[np.arange(240), np.repeat(np.arange(20), 12)] = 1.0
    cells[240:262, 20] = rng.uniform(1.0, 3.0, 22)
    return cells


def ages_some_with_months(rng):
    """What others add is a whole number: of 14 rows, 36 to 40 of 40 sets of labels were found."""
    ages = np.round(rng.normal(50.0, 15.0, 600))
    ages[:14] += rng.uniform(0.0, 1.0, 14)
    return (ages[:, None] - ages.mean()) / ages.std()


def codes_of_no_common_step(rng):
    few = rng.uniform(2.0, 4.0, 14)
    return np.r_[few, np.full(150, np.sqrt(2.0)), np.ones(200), np.zeros(236)][:, None]


def codes_of_a_small_common_step(rng):
    few = rng.uniform(2.0, 4.0, 14)
    return np.r_[few, np.full(60, 2.5), np.ones(200), np.zeros(326)][:, None]


def ages_that_were_scaled_and_rounded(rng):
    """As cells travel: multiples of the unit are off by what was rounded."""
    return np.round(ages_some_with_months(rng) * 2.0**18) / 2.0**18


def years_and_quarters(rng):
    """Sixty have quarters: what all these add is a whole number of quarters."""
    ages = np.round(rng.normal(50.0, 15.0, 600))
    ages[8:68] += rng.integers(1, 4, 60) / 4
    ages[:8] += rng.uniform(0.0, 1.0, 8)
    return (ages[:, None] - ages.mean()) / ages.std()


def counts(rng):
    """Few rows have five or more: all are whole numbers, of which a sum tells one."""
    drawn = rng.poisson(1.0, 600)
    return (drawn[:, None] - drawn.mean()) / drawn.std()


def ages_of_half_years(rng):
    """Thirty have half a year more: of these, whether a number is even is told, and no label."""
    ages = np.round(rng.normal(50.0, 15.0, 600))
    ages[:30] += 0.5
    return (ages[:, None] - ages.mean()) / ages.std()


def prices(rng):
    return np.round(rng.lognormal(0.0, 0.5, 600), 2)[:, None]


def levels(rng):
    return np.eye(12)[rng.integers(0, 12, 1500)]


@pytest.mark.parametrize(
    ("columns", "tells"),
    [
        (hidden_by_a_flag, True),
        (small_elsewhere, True),
        (flags_over_the_same, True),
        (beside_a_code, True),
        (of_most_of_its_rows, True),
        (behind_levels, True),
        (ages_some_with_months, True),
        (codes_of_no_common_step, True),
        (codes_of_a_small_common_step, True),
        (ages_that_were_scaled_and_rounded, True),
        (years_and_quarters, True),
        (counts, False),
        (ages_of_half_years, False),
        (prices, False),
        (levels, False),
    ],
)
def test_columns_are_looked_at_together(columns, tells):
    """The first two told all labels of these rows, when columns of two values were left out first
    and only cells that are the same counted as such."""
    rng = np.random.default_rng(3)
    view = SimpleNamespace(cell_holders=None, overlap="mean")
    cells = columns(rng)
    assert tells_of_few(view, cells, 1.0) is tells
    more = np.column_stack([cells, rng.normal(size=(len(cells), 3))])
    assert tells_of_few(view, more, 1.0) is tells
    assert not tells_of_few(view, cells[:0], 1.0)
    assert not tells_of_few(view, cells[:, :0], 1.0)


def kept_back(monkeypatch, **replaced):
    """A run where labels of one class are rare, and what parties sent to readers of it."""
    sent, made = [], SealedMomentsParty.moment_shares

    def sending(self, model):
        found = made(self, model)
        sent.append(found.gradients)
        return found

    monkeypatch.setattr(SealedMomentsParty, "moment_shares", sending)
    for name, other in replaced.items():
        monkeypatch.setattr(released_model_curvature_shares, name, other)
    asked = {"second_moments": ("hessian",), "iterations": 8}
    careful = msgspec.structs.replace(OPEN, min_batch=2)
    _, labels, found, _ = trained(160, 2, careful, level=-3.0, **asked)
    assert 0 < labels.sum() < 16
    assert found.second_moments.hessian is not None
    assert found.second_moments.gradient is None
    return sent


def test_who_has_a_large_column_keeps_a_gradient_from_all(monkeypatch):
    """No share of it goes out: who objects may be a reader, and would have what is missing."""
    large = {
        "label_digits": lambda *_: math.inf,
        "column_size": lambda view, _: 2.0 ** (view.party * 60),
    }
    assert kept_back(monkeypatch, **large) == [(), ()]


def test_that_classes_are_rare_is_told_to_nobody_but_readers(monkeypatch):
    """Who has them answers as others do, and sends as many words, which have nothing of its share.

    Nothing that the coordinator sees depends on it: else a lone label holder would tell the size
    of a class.
    """
    answered, spread = [], SealedMomentsParty._spread_cells

    def answering(self, message):
        reply = spread(self, message)
        answered.append(reply.gradient)
        return reply

    monkeypatch.setattr(SealedMomentsParty, "_spread_cells", answering)
    sent = kept_back(monkeypatch)
    assert answered == [True, True]
    (reader,), (labels,) = sent
    assert (labels.error, labels.bits) == (WITHHELD, reader.bits)
    assert labels.words.shape == reader.words.shape
    # What they add up to is anything up to hundreds; the gradient itself is next to nothing.
    total = (labels.words + reader.words).view(np.int64) * 2.0**-reader.bits
    assert (np.abs(total) > 1.0).any()
