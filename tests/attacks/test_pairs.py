"""Pairs of vectors that the coordinator must not have both of: (w, α), (w, z) and (α, z).

w = Xᵀα/(λN) and z = Xw are linear in X: whoever sees both sides often enough solves for X, or for
XXᵀ. Unguarded is the papers' protocol with the cipher ``plain``; the same code then reads the words
that a coordinator of Weft gets.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import Post, Run, by_both, by_columns, run, table_of
from solving import SAFE, errors, gram_from_products, recovered, share_of, solved

from weft.guards import Terms
from weft.solvers.run_settings import Settings

ROWS = 80
LAM = 1e-3


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", ROWS)


def settings(**changes):
    base = {"lam": LAM, "loss": "squared", "iic": 0.25, "gap": None, "certify_every": 10_000}
    return Settings(**{**base, "iterations": 130, **changes})


@pytest.fixture(scope="module")
def papers(table):
    """Unguarded: the papers' protocol, and nothing encrypted at all."""
    how = settings(cipher="plain", coordinator_sees="papers")
    return run(by_both(table, 2, 2), how, record=True)


@pytest.fixture(scope="module")
def guarded(table):
    """Weft: four parties in two rows and two columns, who know that sums are of two."""
    terms = Terms(min_batch=10, allow_pairs=True)
    return run(by_both(table, 2, 2), settings(norms="cohort"), terms, record=True)


def truth_of(run_: Run, party: str, table) -> np.ndarray:
    return table.block[run_.rows_of(party, table)][:, run_.columns_of(party, table)]


# ── (w, α) ────────────────────────────────────────────────────────────────────────────────────


def rows_from_duals(post: Post, party: str, rows: int) -> np.ndarray:
    """A party tells how its α and its feature sums changed: Δv = X_kᵀ Δα, again and again."""
    alpha, changes, sums = np.zeros(rows), [], []
    for _, reply in post.replies(party, "alpha", "hyfdca.step"):
        new = alpha.copy()
        new[reply["alpha_slots"]] = post.words(reply["alpha"], "alpha")[:, 0]
        changes.append(new - alpha)
        sums.append(post.words(reply["v"], "v")[:, 0])
        alpha = new
    return solved(np.array(changes), np.array(sums))


def test_a_coordinator_that_sees_w_and_alpha_solves_for_the_rows(papers, table, record):
    truth = truth_of(papers, "r1c1", table)
    found = rows_from_duals(papers.post, "r1c1", len(truth))
    assert recovered(found, truth) == len(truth) == 40
    worst = errors(found, truth).max()
    record("1", "unguarded", f"{len(truth)} of {len(truth)} rows, error ≤ {worst:.0e}")


def test_a_coordinator_of_weft_gets_noise_for_w_and_alpha(guarded, table, record):
    truth = truth_of(guarded, "r1c1", table)
    found = rows_from_duals(guarded.post, "r1c1", len(truth))
    best = errors(found, truth).min()
    assert recovered(found, truth, SAFE) == 0
    record("1", "guarded", f"0 of {len(truth)} rows, best error {best:.2g}")


# ── (w, z) ────────────────────────────────────────────────────────────────────────────────────


def rows_from_products(post: Post, party: str, column: tuple[str, ...], shape) -> np.ndarray:
    """The total w of a column of parties, and what one of them makes of it: z_i = x_iᵀw."""
    rows, width = shape
    v, z = np.zeros(width), np.zeros(rows)
    weights: list[list[np.ndarray]] = [[] for _ in range(rows)]
    products: list[list[float]] = [[] for _ in range(rows)]
    for entry in post.entries:
        if entry.phase == "hyfdca.step" and entry.party in column and "v" in entry.reply:
            v = v + post.words(entry.reply["v"], "v")[:, 0]
        if entry.phase == "hyfdca.weights" and entry.party == party:
            slots = entry.reply.get("z_slots", np.arange(rows))
            z[slots] += post.words(entry.reply["z"], "z")[:, 0]
            for slot in slots.tolist():
                weights[slot].append(v / (LAM * ROWS))
                products[slot].append(z[slot])
    pairs = zip(weights, products, strict=True)
    return np.array([solved(np.array(w), np.array(p)) for w, p in pairs])


def test_a_coordinator_that_sees_w_and_z_solves_for_the_rows(papers, table, record):
    truth = truth_of(papers, "r1c1", table)
    found = rows_from_products(papers.post, "r1c1", ("r1c1", "r2c1"), truth.shape)
    assert recovered(found, truth, 1e-3) == len(truth)
    worst = errors(found, truth).max()
    record("2", "unguarded", f"{len(truth)} of {len(truth)} rows, error ≤ {worst:.0e}")


def test_a_coordinator_of_weft_gets_noise_for_w_and_z(guarded, table, record):
    truth = truth_of(guarded, "r1c1", table)
    found = rows_from_products(guarded.post, "r1c1", ("r1c1", "r2c1"), truth.shape)
    best = errors(found, truth).min()
    assert recovered(found, truth, SAFE) == 0
    record("2", "guarded", f"0 of {len(truth)} rows, best error {best:.2g}")


# ── (α, z) ────────────────────────────────────────────────────────────────────────────────────


def vertical(table, terms=None, **changes):
    how = settings(loss="hinge", iic=1.0, iterations=40, **changes)
    return run(by_columns(table, 2), how, *([] if terms is None else [terms]), record=True)


def gram_of_the_other(post: Post, rows: int, rank: int) -> np.ndarray:
    """α as p1 posts it, and p2's part of z = XXᵀα/(λN)."""
    alpha, z, pairs = np.zeros(rows), np.zeros(rows), []
    for entry in post.entries:
        if entry.phase == "hyfdca.weights" and entry.party == "p2":
            z = z + post.words(entry.reply["z"], "z")[:, 0]
            pairs.append((alpha, z))
        if entry.phase == "hyfdca.step" and "alpha" in entry.reply:
            alpha = alpha.copy()
            alpha[entry.reply["alpha_slots"]] = post.words(entry.reply["alpha"], "alpha")[:, 0]
    alphas, products = (np.stack(some, axis=1) for some in zip(*pairs, strict=True))
    return gram_from_products(alphas, products * LAM * rows, rank)


def test_a_coordinator_that_sees_alpha_and_z_finds_all_inner_products(table, record):
    found = vertical(table, cipher="plain", coordinator_sees="papers")
    truth = truth_of(found, "p2", table)
    gram = gram_of_the_other(found.post, ROWS, truth.shape[1])
    off = share_of(gram, truth @ truth.T)
    assert off < 1e-5
    record("5", "unguarded", f"coordinator: all {ROWS} × {ROWS} inner products, error {off:.0e}")


def test_a_coordinator_of_weft_gets_noise_for_alpha_and_z(table, record):
    found = vertical(table, Terms(allow_pairs=True), norms="cohort")
    truth = truth_of(found, "p2", table)
    gram = gram_of_the_other(found.post, ROWS, truth.shape[1])
    off = share_of(gram, truth @ truth.T)
    assert off > 1.0
    record("5", "guarded", f"coordinator: error {off:.2g}")
