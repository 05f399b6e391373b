"""What a party keeps in memory for every sample, besides its table."""

import gc
from types import FunctionType, ModuleType

import numpy as np
from sklearn.linear_model import LogisticRegression

from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.solvers.run_settings import Settings
from weft.solvers.subspace import rounding_allowed_by_gap

ROWS, COLUMNS, GRID = 900, 9, 3
SETTINGS = Settings(lam=1e-4, loss="logistic", solver="lbfgs", gap=1e-3)
#: Words of eight bytes for every sample: the label in two forms, z of anchor, point, target and
#: finished model, the last dual variable, α, and little more than two for places and flags.
WORDS = 10.5


def tiles():
    draws = np.random.default_rng(0)
    cells = draws.standard_normal((ROWS, COLUMNS))
    labels = (cells.sum(axis=1) + draws.logistic(size=ROWS) > 0).astype(np.int64)
    ids = np.array([f"s{n}" for n in range(ROWS)], dtype=object)
    names = np.array([f"x{n}" for n in range(COLUMNS)], dtype=object)
    rows, columns = np.split(np.arange(ROWS), GRID), np.split(np.arange(COLUMNS), GRID)
    return {
        f"p{i}{j}": [Tile(ids[r], names[c], np.ascontiguousarray(cells[np.ix_(r, c)]), labels[r])]
        for i, r in enumerate(rows)
        for j, c in enumerate(columns)
    }


def arrays_of(root):
    """Arrays that are reached from an object, those that own their memory."""
    seen, todo, found = set(), [root], []
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type | ModuleType):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            if one.base is None:
                found.append(one)
            else:
                todo.append(one.base)
        elif isinstance(one, FunctionType):
            todo.append(one.__closure__)
        else:
            todo += gc.get_referents(one)
    return found


def words_of(given, settings):
    """What a party keeps of a sample after a run, which comes first.

    Then bytes of a direction and of a vector that its guard has seen, and words of all else.
    """
    federation = Federation(given, Preprocessing(confirmed=ONE_TABLE), terms=Terms())
    trained = federation.train(settings)
    party = federation.parties["p00"]
    rows = party.view.n_rows
    held = [array for array in arrays_of(party) if array.size >= rows]
    block = given["p00"][0].block
    cells = sum(array.nbytes for array in held if array.shape == block.shape)
    names = sum(array.nbytes for array in held if array.dtype == object)
    vectors, kept = party._half.rows.vectors, party._half.samples.guard.batches._kept
    assert len(kept) <= 1.1 * len(vectors) + 3
    directions = sum(vector.nbytes for vector in vectors._held[1:])
    others = sum(array.nbytes for array in held) - cells - names - directions - kept.nbytes
    bytes_of = directions / rows / (len(vectors) - 1), kept.nbytes / rows / len(kept)
    assert len(vectors) > 5
    return trained, bytes_of, others / rows / 8


def test_a_party_keeps_two_vectors_for_a_direction_and_few_others():
    """Z of a direction in double precision, and for the guard half of that."""
    _, bytes_of, others = words_of(tiles(), SETTINGS)
    assert bytes_of == (8, 4)
    assert others <= WORDS


def test_of_many_samples_directions_are_kept_in_half_the_digits(monkeypatch):
    """What is proved holds all the same: the model is measured afresh."""
    monkeypatch.setattr(rounding_allowed_by_gap, "MANY_SAMPLES", ROWS)
    given = tiles()
    trained, bytes_of, others = words_of(given, SETTINGS)
    assert bytes_of == (4, 2)
    assert others <= WORDS
    gap = trained.result.history[-1].gap
    assert gap <= SETTINGS.gap
    cells = np.block([[given[f"p{i}{j}"][0].block for j in range(GRID)] for i in range(GRID)])
    labels = np.concatenate([given[f"p{i}0"][0].labels for i in range(GRID)])
    best = LogisticRegression(
        C=1 / (SETTINGS.lam * ROWS), fit_intercept=False, tol=1e-10, max_iter=1000
    ).fit(cells, labels)
    order = np.argsort(trained.model.features.tolist())
    ours = objective(cells, labels, trained.model.coef[0][order])
    optimum = objective(cells, labels, best.coef_[0])
    assert optimum <= ours <= optimum + gap * ours


def objective(cells, labels, w):
    losses = np.logaddexp(0.0, np.where(labels > 0, -1.0, 1.0) * (cells @ w))
    return losses.mean() + SETTINGS.lam / 2 * (w @ w)


def test_finer_gaps_and_fewer_samples_keep_all_digits():
    many, few = (
        rounding_allowed_by_gap.MANY_SAMPLES,
        rounding_allowed_by_gap.MANY_SAMPLES - 1,
    )
    fine = Settings(lam=1e-4, loss="logistic", solver="lbfgs", gap=1e-6)
    assert rounding_allowed_by_gap.in_few_digits(many, SETTINGS)
    assert not rounding_allowed_by_gap.in_few_digits(few, SETTINGS)
    assert not rounding_allowed_by_gap.in_few_digits(many, fine)
