"""Two runs of the same parties: an attacker looks at both, and so must the guards.

Digits as they are, five horizontal parties, careful terms. Between two runs p2 has got one sample
more. Every solver begins at w = 0, where α is the same for every sample of a class: the difference
of the first sums of both runs is the new sample. Careful parties know the first run from their
ledgers, and refuse the second.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scene import Diary, by_rows, run, table_of
from solving import best_errors, rows_of_counts

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Preprocessing
from weft.guards import OPEN, Terms
from weft.privacy.ledger.ledger_file import read_books
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

CONSTANT = Preprocessing(intercept=True)
PIXEL = 16


@pytest.fixture(scope="module")
def table():
    return table_of("digits", 400, scaled=False)


def vectors(party, phase, message, opened):
    """The others' part of every new vector."""
    if phase != "subspace.spread":
        return {}
    (total,) = (values for kind, _, values in opened if kind == "v")
    half = party._half
    return {"rest": total * party.view.n_samples - half.samples.partial}


def sums_of(tiles, table, terms, solver, loss, lam=20.0, ledger=None, iterations=12):
    """What p1 sees in a run: a vector per row, columns as in the table, the constant last."""
    diary = Diary(vectors)
    how = Settings(
        lam=lam, solver=solver, loss=loss, gap=1e-3, iterations=iterations, norms="cohort"
    )
    found = run(tiles, how, terms, preprocessing=CONSTANT, diaries={"p1": diary}, ledger=ledger)
    columns = found.columns_of("p1", table)
    order = np.argsort(np.where(columns < 0, table.m, columns))
    return np.hstack(diary.all("rest")).T[:, order]


def rows_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rows in which a sum of one run and a sum of the other differ."""
    changes = (one[:, None] - other[None]).reshape(-1, one.shape[1])
    return rows_of_counts(changes, one.shape[1] - 1, PIXEL)


def one_by_one(table) -> tuple[dict[str, tuple[Tile, ...]], dict[str, tuple[Tile, ...]]]:
    """The parties before and after p2 has got a sample more, its first."""
    tiles = by_rows(table, 5)
    (whole,) = tiles["p2"]
    before = Tile.make(whole.ids[1:], whole.features, whole.block[1:], whole.labels[1:])
    return {**tiles, "p2": (before,)}, tiles


def new_row(table, sums: Callable[[dict[str, tuple[Tile, ...]]], np.ndarray]) -> tuple[int, float]:
    """How many rows p1 reads off two runs, and how far the nearest is from the new one."""
    before, after = one_by_one(table)
    rows = rows_between(sums(before), sums(after))
    return len(rows), float(best_errors(rows, after["p2"][0].block[:1])[0])


SOLVERS = [("cutting-planes", "hinge"), ("lbfgs", "logistic")]


@pytest.mark.parametrize(("solver", "loss"), SOLVERS)
def test_one_new_sample_shows_between_two_runs(table, record, solver, loss):
    readings, off = new_row(table, lambda tiles: sums_of(tiles, table, OPEN, solver, loss))
    assert off < 1e-6
    record("16", "unguarded", f"{solver}: the row, error {off:.0e}, {readings} reading(s)")


@pytest.mark.parametrize(
    ("solver", "loss"), [SOLVERS[0], pytest.param(*SOLVERS[1], marks=pytest.mark.release)]
)
def test_one_new_sample_does_not_show_under_guards(table, record, solver, loss, tmp_path):
    """p2 refuses before anything of the second run is sent; without ledgers the row would show.

    What ledgers refuse does not depend on the solver: ``privacy/test_small_changes.py``.
    """
    ledger = Ledger(tmp_path / "ledger")
    before, after = one_by_one(table)
    sums_of(before, table, Terms(), solver, loss, ledger=ledger)
    diary = Diary(lambda party, phase, message, opened: {"opened": opened})
    how = Settings(lam=20.0, solver=solver, loss=loss, gap=1e-3, iterations=60)
    with pytest.raises(WeftError, match=r"party p2 refuses to train, .* \(1 came since its run"):
        run(after, how, Terms(), preprocessing=CONSTANT, diaries={"p1": diary}, ledger=ledger)
    assert diary.moments
    assert not any(diary.all("opened"))
    assert [len(pages.runs) for pages in read_books(ledger.folder).values()] == [1] * 5
    readings, off = new_row(table, lambda tiles: sums_of(tiles, table, Terms(), solver, loss))
    assert readings == 1
    told = f"{solver}: the second run is refused; without ledgers the row, error {off:.0e}"
    record("16", "guarded", told)


@pytest.mark.release
def test_two_runs_on_the_same_samples_show_no_row_under_guards(table, record):
    """No guard sees to this: the dual vectors of two runs happen to lie far enough apart.

    What guards do see to is above, and in ``privacy/test_small_changes.py``, with every change.
    """
    tiles = by_rows(table, 5)
    one, other = (
        sums_of(tiles, table, Terms(), "cutting-planes", "hinge", lam=lam, iterations=60)
        for lam in (20.0, 21.0)
    )
    rows = rows_between(one, other)
    truth = np.vstack([tiles[f"p{k}"][0].block for k in range(2, 6)])
    assert (best_errors(rows, truth) > 1e-3).all()
    record("16", "guarded", f"the same samples, another λ: 0 of {len(truth)} rows")
