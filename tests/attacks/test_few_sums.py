"""Fewer sums than foreign columns: better guesses at these columns, as the forecast says.

Breast cancer, two vertical parties with 15 columns each, L-BFGS: too few sums to recover a row. A
party that knows some of the rows from elsewhere predicts the other's columns from its own, and
again from its own and the sums: what that cuts of the residual variance is what the sums told.
"""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
from scene import PAIRS, Diary, by_columns, look_ahead, run, table_of, tile_of

from weft.errors import WeftError
from weft.guards import OPEN
from weft.privacy.ledger.expected_exposure import share_explained, sums_too_many
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

HOW = Settings(lam=0.01, solver="lbfgs", loss="logistic", gap=1e-3)
FOREIGN = 15


def sums(party, phase, message, opened):
    found = [values for kind, _, values in opened if kind == "z"]
    return {"z": np.hstack(found)} if found else {}


def residuals(features, columns, known, rest):
    """Per foreign column, the variance that a linear guess from some known rows leaves."""
    scaled = np.column_stack([features / np.abs(features).max(axis=0), np.ones(len(features))])
    gram = scaled[known].T @ scaled[known] + 1e-6 * np.eye(scaled.shape[1])
    guess = scaled[rest] @ np.linalg.solve(gram, scaled[known].T @ columns[known])
    return ((columns[rest] - guess) ** 2).sum(axis=0)


def cut_by_sums(table, mine, theirs):
    """How much the sums that p1 saw cut the residual variance of p2's columns, and their number."""
    tiles = {"p1": (tile_of(table, columns=mine),), "p2": (tile_of(table, columns=theirs),)}
    diary = Diary(sums)
    found = run(tiles, HOW, PAIRS, diaries={"p1": diary})
    z, block = np.hstack(diary.all("z")), table.block[found.rows_of("p1", table)]
    order = np.random.default_rng(0).permutation(len(block))
    cuts = []
    for known in (60, 150):
        split = order[:known], order[known:]
        alone = residuals(block[:, mine], block[:, theirs], *split)
        with_sums = residuals(np.column_stack([block[:, mine], z]), block[:, theirs], *split)
        cuts.append(float(np.median(1 - with_sums / alone)))
    return cuts, z.shape[1], tiles


@pytest.mark.parametrize("seed", [None, 3], ids=["in order", "mixed"])
def test_few_sums_tell_no_more_than_the_forecast_says(record, seed):
    table = table_of("breast_cancer")
    columns = np.arange(30) if seed is None else np.random.default_rng(seed).permutation(30)
    mine, theirs = np.sort(columns[:FOREIGN]), np.sort(columns[FOREIGN:])
    cuts, seen, tiles = cut_by_sums(table, mine, theirs)
    assert seen < FOREIGN
    # They do show something.
    assert max(cuts) > 0.3
    ahead, words = look_ahead(tiles, HOW, PAIRS)
    exposure = next(e for e in ahead.exposures if e.view.receiver == "p1")
    assert exposure.view.columns == FOREIGN
    assert exposure.spent + exposure.likely < FOREIGN
    assert f"up to {exposure.explained[1]:.0%} of columns" in words
    assert max(cuts) <= share_explained(seen, FOREIGN)[1] <= exposure.explained[1]
    told = ", ".join(f"{cut:.0%}" for cut in cuts)
    record("21", "unguarded", f"{seen} sums, 15 columns: residual variance cut by {told}")
    least, most = exposure.explained
    record("21", "guarded", f"announced: {least:.0%} to {most:.0%} after {exposure.likely} sums")


def test_the_share_grows_with_every_sum_up_to_all():
    shares = [share_explained(count, 7) for count in range(9)]
    assert shares[0] == (0.0, 0.0)
    assert shares[7] == shares[8] == pytest.approx((1.0, 1.0))
    assert all(low <= high for low, high in shares)
    assert shares == sorted(shares)


def test_a_site_can_bound_the_share(tmp_path):
    table = table_of("breast_cancer", 200)
    tiles = by_columns(table, 2)
    refusal = pytest.raises(WeftError, match="than most_explained")
    for most, refused in ((0.9, nullcontext()), (0.5, refusal)):
        terms = msgspec.structs.replace(OPEN, most_explained=most)
        with refused:
            run(tiles, HOW, terms, ledger=Ledger(tmp_path / str(most)))


def test_the_bound_is_the_first_sum_too_many():
    columns = np.array([0, 1, 15, 15])
    assert sums_too_many(columns, 1.0).tolist() == [0, 1, 15, 15]
    bound = sums_too_many(columns, 0.5)
    assert bound.tolist() == [0, 1, 3, 3]
    assert share_explained(2, 15)[1] <= 0.5 < share_explained(3, 15)[1]
