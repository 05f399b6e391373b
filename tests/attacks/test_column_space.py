"""What a party makes of the sample sums that it must have: z minus its own part is X_other · w.

Two vertical parties, breast cancer. After as many sums as the other has columns, those are known
up to an invertible map, and exactly with as many known rows; with its own α, the party finds all
inner products of the other's rows without any. No guard can prevent this where z is needed: sums
are few with L-BFGS, every party's ledger counts them, and the forecast says so before a run.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import PAIRS, Diary, by_columns, look_ahead, run, table_of
from solving import RECOVERED, errors, from_known_rows, gram_from_products, recovered, share_of

from weft.solvers.run_settings import Settings

#: Rows that the attacker knows from elsewhere.
KNOWN = np.arange(18)
FOREIGN = 15
LAM = 1e-3


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer")


def of_hyfdca(party, phase, message, opened):
    """z of all samples but for one's own part, and the α that it belongs to."""
    if phase == "hyfdca.weights":
        return {"alpha": party._half.alpha[:, 0]}
    if phase != "hyfdca.step":
        return {}
    half = party._half
    return {"z": opened[0][2] - half.table.products(None, half.w)}


def of_subspace(party, phase, message, opened):
    """The same of every vector of the fast solvers, and its dual vector."""
    half = party._half
    if phase == "subspace.spread":
        return {"alpha": half.samples.duals}
    z = [values for kind, _, values in opened if kind == "z"]
    if phase not in ("subspace.search", "subspace.gather") or not z:
        return {}
    return {"z": z[0] - half.features.products}


def sums_seen(table, solver, terms=PAIRS, **changes):
    """What p1 sees of p2 in a run: (rows × sums), α likewise, and p2's cells."""
    diary = Diary(of_hyfdca if solver == "hyfdca" else of_subspace)
    base = {"lam": LAM, "gap": 1e-3, "norms": "cohort", "solver": solver}
    found = run(by_columns(table, 2), Settings(**{**base, **changes}), terms, diaries={"p1": diary})
    rows = found.rows_of("p1", table)
    truth = table.block[rows][:, found.columns_of("p2", table)]
    alphas = [a if a.ndim == 2 else a[:, None] for a in diary.all("alpha")]
    count = len(diary.all("z"))
    z, alpha = np.hstack(diary.all("z")), np.hstack(alphas[:count])
    said = np.abs(z).max(axis=0) > 0
    return z[:, said], alpha[:, said], truth


def sums_needed(z, truth):
    """After how many sums every row that was not known is found, and to which error."""
    for count in range(1, z.shape[1] + 1):
        found = from_known_rows(z[:, :count], KNOWN, truth[KNOWN])
        rest = errors(found, truth)[len(KNOWN) :]
        if (rest <= RECOVERED).all():
            return count, rest.max()
    raise AssertionError(f"not within {z.shape[1]} sums: {np.median(rest):.1g}")


@pytest.mark.parametrize(
    ("solver", "changes"),
    [("hyfdca", {"gap": None, "iterations": 25}), ("cutting-planes", {})],
    ids=["hyfdca", "cutting-planes"],
)
def test_as_many_sums_as_foreign_columns_give_all_rows(table, record, solver, changes):
    z, _, truth = sums_seen(table, solver, **changes)
    count, worst = sums_needed(z, truth)
    unknown = len(truth) - len(KNOWN)
    assert unknown == 551
    assert FOREIGN <= count <= FOREIGN + 5
    # Two sums fewer than the columns do not do.
    few = from_known_rows(z[:, : FOREIGN - 2], KNOWN, truth[KNOWN])
    assert recovered(few[len(KNOWN) :], truth[len(KNOWN) :]) == 0
    record("4", "unguarded", f"{solver}: {unknown} rows after {count} sums, error ≤ {worst:.0e}")


@pytest.mark.parametrize(
    ("solver", "changes"),
    [("hyfdca", {"gap": None, "iterations": 25}), ("cutting-planes", {})],
    ids=["hyfdca", "cutting-planes"],
)
def test_it_is_announced_before_the_run(table, record, solver, changes):
    base = {"lam": LAM, "gap": 1e-3, "norms": "cohort", "solver": solver}
    found, words = look_ahead(by_columns(table, 2), Settings(**{**base, **changes}), PAIRS)
    for exposure in found.exposures:
        assert exposure.reached
        assert exposure.view.columns == FOREIGN
    assert {exposure.view.receiver for exposure in found.exposures} == {"p1", "p2"}
    assert f"exactly with {FOREIGN} of the samples known from elsewhere" in words
    standing = found.exposures[0].standing
    record("4", "guarded", f"{solver}: announced ({standing}, {found.exposures[0].likely} sums)")


def test_the_few_sums_of_lbfgs_do_not_give_a_single_row(table, record):
    z, _, truth = sums_seen(table, "lbfgs", loss="logistic")
    count = z.shape[1]
    assert count < FOREIGN // 2
    found = from_known_rows(z, KNOWN, truth[KNOWN])
    rest = errors(found, truth)[len(KNOWN) :]
    assert (rest > 0.1).all()
    record("4", "guarded", f"lbfgs: 0 rows after {count} sums, median error {np.median(rest):.2f}")


# ── inner products, from α and z ──────────────────────────────────────────────────────────────


def test_alpha_and_z_give_all_inner_products_of_the_others_rows(table, record):
    """Not a single row has to be known for this."""
    z, alpha, truth = sums_seen(table, "cutting-planes")
    gram = gram_from_products(alpha, z * len(truth), FOREIGN)
    off = share_of(gram, truth @ truth.T)
    assert off < 1e-6
    record(
        "5",
        "unguarded",
        f"party: all {len(truth)} × {len(truth)} after {z.shape[1]} sums, error {off:.0e}",
    )


def test_the_few_sums_of_lbfgs_give_a_part_of_the_inner_products(table, record):
    """The largest directions of the other's columns show; what is finer does not."""
    z, alpha, truth = sums_seen(table, "lbfgs", loss="logistic")
    gram = gram_from_products(alpha, z * len(truth), FOREIGN)
    off = share_of(gram, truth @ truth.T)
    assert off > 0.1
    record("5", "guarded", f"party, lbfgs: error {off:.2f} after {z.shape[1]} sums")
