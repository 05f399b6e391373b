"""What a party keeps in memory for every sample, besides its table."""

import gc
from types import FunctionType, ModuleType

import numpy as np

from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.solvers.settings import Settings

ROWS, COLUMNS, GRID = 900, 9, 3
#: Words of eight bytes for every sample: the label in three forms, z of point, target and finished
#: model, products, α, the last dual variable and the one before, and five for places and flags.
WORDS = 15


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


def test_a_party_keeps_two_vectors_for_a_direction_and_few_others():
    given = tiles()
    federation = Federation(given, Preprocessing(confirmed=ONE_TABLE), terms=Terms())
    federation.train(Settings(lam=1e-4, loss="logistic", solver="lbfgs", gap=1e-3))
    party = federation.parties["p00"]
    rows = party.view.n_rows
    held = [array for array in arrays_of(party) if array.size >= rows]
    block = given["p00"][0].block
    cells = sum(array.nbytes for array in held if array.shape == block.shape)
    names = sum(array.nbytes for array in held if array.dtype == object)
    half = party._half
    vectors = len(half.rows.vectors)
    # Z of a direction in double precision, and for the guard half of that with room for more.
    directions = vectors * 8 + len(half.samples.guard.batches._kept) * 4
    assert vectors > 5
    assert len(half.samples.guard.batches._kept) <= 1.3 * vectors + 3
    others = sum(array.nbytes for array in held) - cells - names - directions * rows
    assert others / rows / 8 <= WORDS
