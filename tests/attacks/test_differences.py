"""Feature sums of two moments: where few α changed in between, the difference is close to rows.

Digits as they are, counts from 0 to 16, and a constant column: an attacker scales a difference by
the constant and sees whether all is whole. HyFDCA, horizontal parties. Unguarded is the papers'
protocol, or Weft with open terms; guarded is Weft with ``min_batch``, which counts samples whose α
really changed.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import PAIRS, Diary, Run, by_rows, run, table_of
from solving import (
    SAFE,
    best_angles,
    best_errors,
    differences,
    rows_of_counts,
    scaled_by,
)

from covering import before_release
from weft.errors import WeftError
from weft.federation.local_federation import Preprocessing
from weft.guards import OPEN, Terms
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import party_draw

CONSTANT = Preprocessing(intercept=True)
PIXEL = 16


def cells_of(found: Run, party: str, table) -> np.ndarray:
    """A party's rows in the order of the feature sums that ``party`` sees, without the constant."""
    columns = found.columns_of(party, table)
    return table.block[found.rows_of(party, table)][:, columns[columns >= 0]]


def others(found: Run, attacker: str, table) -> np.ndarray:
    """For the judge: all rows of the other parties."""
    names = [name for name in found.federation.parties if name != attacker]
    return np.vstack([cells_of(found, name, table) for name in names])


def feature_sums(party, phase, message, opened):
    """HyFDCA: the totals that a party opens, and its own part of them then."""
    if phase not in ("hyfdca.weights", "hyfdca.fused"):
        return {}
    (total,) = (values for kind, _, values in opened if kind == "v")
    half = party._half
    return {
        "total": total[:, 0] * half.view.n_samples,
        "own after": half.v[:, 0],
        "constant": half.view.bias_slot,
    }


def foreign_sums(diary: Diary) -> np.ndarray:
    """What others put into the feature sums, per iteration."""
    totals, own = np.stack(diary.all("total")), np.stack(diary.all("own after"))
    # Weights and step are one phase: the total is that of before the step.
    before = np.vstack([np.zeros_like(own[:1]), own[:-1]])
    return totals - before


# ── H = 1 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def digits():
    return table_of("digits", 120, scaled=False)


def one_a_time(table, terms=OPEN, **changes):
    """Two horizontal parties of which each draws one sample an iteration."""
    diary = Diary(feature_sums)
    base = {"lam": 10.0, "iic": 2 / table.n, "gap": None, "iterations": 300, "norms": "cohort"}
    how = Settings(**{**base, "certify_every": 1000, **changes})
    tiles = by_rows(table, 2)
    found = run(tiles, how, terms, preprocessing=CONSTANT, diaries={"p1": diary}, record=True)
    return found, diary


def told_by(found: Run, party: str) -> tuple[np.ndarray, int]:
    """The coordinator: words of a party's feature sums, as if nothing hid them."""
    post = found.post
    told = [post.words(r["v"], "v")[:, 0] for _, r in post.replies(party, "v", "hyfdca.fused")]
    return np.stack(told), found.party(party).view.bias_slot


def test_one_sample_at_a_time_is_a_row_to_a_coordinator_of_the_papers(digits, record):
    found, _ = one_a_time(digits, local="practical", cipher="plain", coordinator_sees="papers")
    told, constant = told_by(found, "p2")
    truth = cells_of(found, "p2", digits)
    rows = rows_of_counts(told, constant, PIXEL)
    off = best_errors(rows, truth)
    drawn = {int(r) for t in range(1, 301) for r in party_draw(0, t, 1, len(truth), 1)}
    exposed = int((off < 1e-6).sum())
    # All that were drawn and moved at all; and every reading is a true row.
    assert exposed > 0.8 * len(drawn)
    assert (best_errors(truth, rows) < 1e-6).all()
    record("3", "unguarded", f"coordinator: {exposed} of {len(truth)} rows after 300 iterations")


def test_one_sample_at_a_time_is_a_row_to_the_other_party(digits, record):
    found, diary = one_a_time(digits, cipher="plain")
    constant = diary.all("constant")[0]
    truth = others(found, "p1", digits)
    rows = rows_of_counts(np.diff(foreign_sums(diary), axis=0), constant, PIXEL)
    exposed = int((best_errors(rows, truth) < 1e-6).sum())
    assert exposed > 0.8 * len(truth)
    record("3", "unguarded", f"party: {exposed} of {len(truth)}")


def test_one_sample_at_a_time_is_never_shown_under_guards(digits, record):
    found, diary = one_a_time(digits, PAIRS, iterations=150)
    truth = others(found, "p1", digits)
    constant = diary.all("constant")[0]
    sums = foreign_sums(diary)
    assert len(np.unique(sums, axis=0)) > 10, "nothing was trained"
    changes = differences(sums, reach=10)
    assert len(rows_of_counts(changes, constant, PIXEL)) == 0
    angles = best_angles(np.delete(changes, constant, axis=1), truth)
    assert angles.min() > SAFE
    told, slot = told_by(found, "p2")
    noise = best_errors(scaled_by(told, slot, 1.0)[:, np.arange(told.shape[1]) != slot], truth)
    assert noise.min() > SAFE
    record("3", "guarded", f"0 of {len(truth)} rows, nearest direction off by {angles.min():.2f}")


def test_parties_that_guard_themselves_refuse_the_protocol_of_the_papers(digits):
    with pytest.raises(WeftError, match="papers"):
        one_a_time(digits, PAIRS, local="practical", coordinator_sees="papers")


# ── one that really changed, among many that were drawn ───────────────────────────────────────


@pytest.fixture(scope="module")
def more_digits():
    return table_of("digits", 300, scaled=False)


def thirty_two(table, terms=OPEN, norms="sample", iterations=3000):
    """Two parties of 150 samples, of which 32 are drawn an iteration."""
    diary, truth = Diary(feature_sums), Diary(own_alpha)
    how = Settings(
        lam=10.0, iic=32 / 150, gap=None, iterations=iterations, certify_every=100, norms=norms
    )
    found = run(
        by_rows(table, 2), how, terms, preprocessing=CONSTANT, diaries={"p1": diary, "p2": truth}
    )
    moved = (np.diff(np.stack(truth.all("alpha")), axis=0) != 0).sum(axis=1)
    return found, diary, moved


def own_alpha(party, phase, message, opened):
    return {"alpha": party._half.alpha[:, 0]} if phase in ("hyfdca.weights", "hyfdca.fused") else {}


@pytest.mark.release
def test_a_guard_that_counts_drawn_samples_would_let_single_rows_through(more_digits, record):
    """Open terms: 32 samples are drawn in every iteration, so such a guard would never speak."""
    found, diary, moved = thirty_two(more_digits)
    assert (moved[:50] > 20).all()
    assert np.median(moved[-300:]) <= 6
    alone = int((moved == 1).sum())
    assert alone > 10
    truth = others(found, "p1", more_digits)
    changes = np.diff(foreign_sums(diary), axis=0)
    rows = rows_of_counts(changes, diary.all("constant")[0], PIXEL)
    exposed = int((best_errors(rows, truth) < 1e-6).sum())
    assert exposed >= 10
    record(
        "6",
        "unguarded",
        f"drawn 32, changed in the end {np.median(moved[-300:]):.0f}; one alone in {alone} of "
        f"{len(moved)} iterations: {exposed} rows",
    )


@pytest.mark.parametrize("iterations", [600, *before_release(3000)])
def test_a_guard_that_counts_changed_samples_does_not(more_digits, record, iterations):
    """The property holds in every iteration; the long run goes as far as the attack above."""
    terms = Terms(min_batch=32, allow_pairs=True)
    found, diary, moved = thirty_two(more_digits, terms, "cohort", iterations)
    assert not ((moved > 0) & (moved < 32)).any()
    assert (moved > 0).sum() > iterations / 30, "nothing was trained"
    truth = others(found, "p1", more_digits)
    constant = diary.all("constant")[0]
    changes = differences(foreign_sums(diary)[::3], reach=10)
    assert len(rows_of_counts(changes, constant, PIXEL)) == 0
    angles = best_angles(np.delete(changes, constant, axis=1), truth)
    assert angles.min() > SAFE
    record("6", "guarded", f"0 rows, nearest direction off by {angles.min():.2f}")


# ── differences of differences ────────────────────────────────────────────────────────────────


def smooth_run(table, terms, iic):
    """All α move a little in every iteration, at a speed that hardly changes."""
    diary = Diary(feature_sums)
    how = Settings(lam=10.0, iic=iic, gap=None, iterations=400, certify_every=100, norms="cohort")
    found = run(by_rows(table, 2), how, terms, preprocessing=CONSTANT, diaries={"p1": diary})
    return others(found, "p1", table), foreign_sums(diary), diary.all("constant")[0]


def rows_of_kinks(sums: np.ndarray, constant: int) -> np.ndarray:
    """What moves evenly cancels in higher differences; what stops at 0 or 1 stands out."""
    found = []
    for order in (3, 4, 5):
        changes = np.diff(sums, order, axis=0)
        found.append(np.rint(rows_of_counts(changes, constant, PIXEL, slack=0.2)))
    return np.unique(np.vstack(found), axis=0)


def test_third_differences_show_rows_that_reach_a_kink(more_digits, record):
    truth, sums, constant = smooth_run(more_digits, OPEN, 1.0)
    rows = rows_of_kinks(sums, constant)
    exposed = int((best_errors(rows, truth) == 0).sum())
    assert exposed >= 5
    assert exposed >= 0.8 * len(rows), "the attacker knows when it has found a row"
    record("3b", "unguarded", f"{exposed} of {len(truth)} rows exactly, {len(rows)} readings")


@pytest.mark.parametrize(
    ("rows", "iic"),
    [
        (300, 1.0),
        (120, 0.1),
        pytest.param(300, 0.1, marks=pytest.mark.release),
    ],
)
def test_third_differences_show_nothing_under_guards(record, rows, iic):
    table = table_of("digits", rows, scaled=False)
    truth, sums, constant = smooth_run(table, PAIRS, iic)
    found = rows_of_kinks(sums, constant)
    exposed = int((best_errors(found, truth) == 0).sum())
    shown = "NOT PREVENTED: " if exposed else ""
    record("3b", "guarded", f"iic {iic:g}: {shown}{exposed} of {len(truth)} rows")
    assert exposed == 0


def test_third_differences_show_nothing_where_a_part_is_drawn(record):
    """Why guards draw 70 % at most: that alone closes it."""
    truth, sums, constant = smooth_run(table_of("digits", 120, scaled=False), OPEN, 0.7)
    assert len(rows_of_kinks(sums, constant)) == 0
    record("3b", "unguarded", f"iic 0.7: 0 of {len(truth)} rows")
