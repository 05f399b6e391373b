"""A party that holds a sample and a feature, but not the cell where they meet.

Parties may hold several tiles. Here p1 has the white fields of a checkerboard (breast cancer) and
four others the black ones, three holders to every sample and every feature, so that no guard on
the number of contributors speaks. p1 gets z and α of every sample and w of every feature: what
attacks 1 and 2 take from a coordinator, Weft's own sums give to p1. With known w, sample sums are
equations for foreign cells in which nothing else is unknown; with known α, feature sums are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scene import Diary, look_ahead, run, table_of, tile_of
from solving import errors, recovered, solved

from weft.errors import WeftError
from weft.guards import Terms
from weft.solvers.run_settings import Settings

#: Careful terms but for the one that speaks of this: three contributors, ten samples, no pairs.
CROSSED = Terms(allow_crossed_cells=True)
#: The same where a run goes on for as long as it needs: guards of samples would stop it early.
LONG = Terms(allow_crossed_cells=True, min_batch=1)
ROWS, COLUMNS = 284, 28
#: Of HyFDCA, of which as many are needed as there are foreign samples in a column.
SUMS = 250


@pytest.fixture(scope="module")
def table():
    whole = table_of("breast_cancer", ROWS)
    return replace(
        whole,
        features=whole.features[:COLUMNS],
        block=np.ascontiguousarray(whole.block[:, :COLUMNS]),
    )


def checkerboard(table):
    """p1: upper left and lower right; the other two fields in quarters."""
    r, c = (np.array_split(np.arange(size), 4) for size in (table.n, COLUMNS))
    up, down = np.concatenate(r[:2]), np.concatenate(r[2:])
    left, right = np.concatenate(c[:2]), np.concatenate(c[2:])
    tiles = {"p1": (tile_of(table, up, left), tile_of(table, down, right))}
    for k, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        tiles[f"p{k + 2}"] = (
            tile_of(table, r[i], c[2 + j]),
            tile_of(table, r[2 + i], c[j]),
        )
    return tiles


class Cells:
    """p1's equations for foreign cells, and the judge's knowledge of them."""

    def __init__(self, found, table) -> None:
        self.rows = found.rows_of("p1", table)
        columns = found.columns_of("p1", table)
        upper, lefter = self.rows < ROWS // 2, columns < COLUMNS // 2
        #: Per (local row, local column) of p1, whether the cell is somebody else's.
        self.foreign = upper[:, None] != lefter[None, :]
        self.truth = table.block[self.rows][:, columns]

    def judged(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Foreign parts of rows as found and as they are."""
        width = self.foreign[0].sum()
        return (cells[self.foreign].reshape(-1, width), self.truth[self.foreign].reshape(-1, width))


def of_hyfdca(party, phase, message, opened):
    half = party._half
    if phase == "hyfdca.weights":
        (v,) = (values for kind, _, values in opened if kind == "v")
        return {"v": v[:, 0] * half.view.n_samples - half.v[:, 0], "alpha": half.alpha[:, 0]}
    if phase != "hyfdca.step":
        return {}
    _, slots, z = next(block for block in opened if block[0] == "z")
    slots = np.arange(half.view.n_rows, dtype=np.int32) if slots is None else slots
    return {"slots": slots, "z": z[:, 0] - half.table.products(slots, half.w)[:, 0], "w": half.w}


def of_subspace(party, phase, message, opened):
    half = party._half
    z = [values for kind, _, values in opened if kind == "z"]
    if phase not in ("subspace.search", "subspace.gather") or not z:
        return {}
    slots = np.arange(len(half.features.products), dtype=np.int32)
    rest, vectors = z[0] - half.features.products, half.features.fresh
    return {"slots": slots, "z": rest, "w": np.hstack(vectors)}


def cells_from_products(diary: Diary, cells: Cells) -> np.ndarray:
    """Foreign cells of every row, from z and w."""
    weights = [[] for _ in cells.rows]
    products = [[] for _ in cells.rows]
    for moment in diary.moments:
        if "z" not in moment.seen:
            continue
        w, z = moment.seen["w"], moment.seen["z"].reshape(len(moment.seen["slots"]), -1)
        for place, row in enumerate(moment.seen["slots"].tolist()):
            weights[row].append(w[cells.foreign[row]].T)
            products[row].append(z[place])
    found = np.zeros(cells.truth.shape)
    for row, foreign in enumerate(cells.foreign):
        found[row, foreign] = solved(np.vstack(weights[row]), np.concatenate(products[row]))
    return found


def cells_from_duals(diary: Diary, cells: Cells) -> np.ndarray:
    """Foreign cells of every column, from v and α."""
    sums, alphas = np.stack(diary.all("v")), np.stack(diary.all("alpha"))
    found = np.zeros(cells.truth.shape)
    for column, foreign in enumerate(cells.foreign.T):
        found[foreign, column] = solved(alphas[:, foreign], sums[:, column])
    return found


def sums_needed(diary: Diary, cells: Cells) -> tuple[int, float]:
    """After how many sample sums all foreign cells are known, and to which error."""
    moments = [moment for moment in diary.moments if "z" in moment.seen]
    for count in range(1, len(moments) + 1):
        some = Diary(diary.note, moments[:count])
        guessed, truth = cells.judged(cells_from_products(some, cells))
        if recovered(guessed, truth) == len(truth):
            sums = sum(moment.seen["z"].size // len(cells.rows) for moment in some.moments)
            return sums, errors(guessed, truth).max()
    raise AssertionError("the cells are not known at the end of the run")


def test_known_weights_turn_sample_sums_into_cells(table, record):
    """Where it is allowed; the ledger counts the sums against the foreign columns."""
    diary = Diary(of_subspace)
    how = Settings(lam=1e-3, solver="cutting-planes", gap=1e-3, norms="cohort")
    found = run(checkerboard(table), how, LONG, diaries={"p1": diary})
    party_view = found.party("p1").view
    assert set(party_view.sharers.tolist()) == set(party_view.column_sharers.tolist()) == {3}
    cells = Cells(found, table)
    count, worst = sums_needed(diary, cells)
    assert COLUMNS // 2 <= count <= 2 * COLUMNS
    # What weft check sets against each other is what the attack needs: announced it is.
    ahead, _ = look_ahead(checkerboard(table), how, LONG)
    mine = [exposure for exposure in ahead.exposures if exposure.view.receiver == "p1"]
    assert {exposure.view.columns for exposure in mine} == {COLUMNS // 2}
    assert all(exposure.reached for exposure in mine)
    record(
        "2b",
        "unguarded",
        f"foreign cells of all {ROWS} rows after {count} sums, no row known before, error ≤ "
        f"{worst:.0e}",
    )


def test_the_few_sums_of_lbfgs_do_not_give_the_cells(table, record):
    diary = Diary(of_subspace)
    how = Settings(lam=1e-3, loss="logistic", solver="lbfgs", gap=1e-3, norms="cohort")
    found = run(checkerboard(table), how, CROSSED, diaries={"p1": diary})
    cells = Cells(found, table)
    guessed, truth = cells.judged(cells_from_products(diary, cells))
    off = errors(guessed, truth)
    assert recovered(guessed, truth, 1e-2) == 0
    sums = sum(moment.seen["w"].shape[1] for moment in diary.moments)
    record("2b", "unguarded", f"lbfgs, {sums} sums: 0 rows, median error {np.median(off):.2f}")


@pytest.mark.release
def test_known_duals_turn_feature_sums_into_cells(table, record):
    """As many feature sums as there are foreign samples: HyFDCA makes that many."""
    diary = Diary(of_hyfdca)
    how = Settings(
        lam=1e-3, loss="squared", iic=0.5, gap=None, iterations=SUMS, certify_every=1000,
        norms="cohort",
    )  # fmt: skip
    found = run(checkerboard(table), how, CROSSED, diaries={"p1": diary})
    cells = Cells(found, table)
    guessed, truth = cells.judged(cells_from_duals(diary, cells))
    off = errors(guessed, truth)
    assert (off < 0.05).mean() > 0.95
    record(
        "1b",
        "unguarded",
        f"foreign cells of {int((off < 0.05).sum())} of {ROWS} rows after {SUMS} sums "
        f"(as many as foreign samples are enough), median error {np.median(off):.0e}",
    )


@pytest.mark.parametrize(("number", "solver"), [("1b", "hyfdca"), ("2b", "cutting-planes")])
def test_parties_refuse_to_be_crossed_under_careful_terms(table, record, number, solver):
    diary = Diary(of_subspace)
    how = Settings(lam=1e-3, solver=solver, gap=1e-3, norms="cohort")
    with pytest.raises(WeftError, match="p1 refuses sums over 284 samples of which some party has"):
        run(checkerboard(table), how, Terms(), diaries={"p1": diary})
    assert not diary.moments
    record(number, "guarded", "refused before any sum")
