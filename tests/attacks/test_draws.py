"""Draws that the coordinator knows, H = 2: two samples of a party move in an iteration.

Breast cancer, three horizontal parties of 57 rows, squared loss. Unguarded is the papers' mode:
every party's X_kᵀα_k in the clear, draws from the public seed. Then a change is a·x_i + b·x_j with
known i and j, and x_i is what all planes of i have in common.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from scene import Run, by_rows, run, table_of
from solving import SAFE, best_errors, common_lines, errors, scaled_by

from covering import before_release
from weft.errors import WeftError
from weft.federation.local_federation import Preprocessing
from weft.guards import OPEN, Terms
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import party_draw

ROWS, PARTIES = 57, 3
ITERATIONS = 1800


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", ROWS * PARTIES)


def two_a_time(table, terms=OPEN, **changes):
    base = {
        "lam": 1e-4, "loss": "squared", "local": "practical", "iic": 2 / ROWS, "gap": None,
        "iterations": ITERATIONS, "certify_every": ITERATIONS, "norms": "cohort",
    }  # fmt: skip
    how = Settings(**{**base, **changes})
    constant = Preprocessing(intercept=True, intercept_scaling=0.1)
    return run(by_rows(table, PARTIES), how, terms, preprocessing=constant, record=True)


def rows_of_pairs(changes: list[np.ndarray], iterations: list[int], floor: float, constant: int):
    """Rows of p1 from how its feature sums changed, by the draws of the public seed."""
    planes = defaultdict(list)
    for iteration, change in zip(iterations, changes, strict=True):
        first, second = sorted(party_draw(0, iteration, 0, ROWS, 2).tolist())
        if np.linalg.norm(change) > floor:
            planes[first, second].append(change)
    return scaled_by(common_lines(planes, ROWS), constant, 0.1)


def told(found: Run):
    """The coordinator: changes of p1's feature sums as its messages have them, and when."""
    post = found.post
    pairs = list(post.replies("p1", "v", "hyfdca.weights", "hyfdca.fused"))
    changes = [post.words(reply["v"], "v")[:, 0] for _, reply in pairs]
    return changes, [message["iteration"] for message, _ in pairs], 1e4 * post.units("v")


def weights_seen(found: Run):
    """The coordinator under "weights": changes of w, scaled to those of feature sums."""
    post, order = found.post, {}
    weights = defaultdict(dict)
    for entry in post.entries:
        if entry.phase in ("hyfdca.weights", "hyfdca.fused") and "w" in entry.reply:
            weights[entry.message["iteration"]][entry.party] = entry.reply["w"][:, 0]
            order[entry.party] = None
    sums = [np.concatenate([at[p] for p in order]) for _, at in sorted(weights.items())]
    scale = found.settings.lam * found.trained.holdings.n_samples
    changes = np.diff(np.stack(sums) * scale, axis=0)
    return list(changes), sorted(weights)[:-1], 1e4 * post.units("v")


def judged(found: Run, table, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p1's rows as found, without the constant, and as they are."""
    columns = found.columns_of("p1", table)
    truth = table.block[found.rows_of("p1", table)][:, columns[columns >= 0]]
    return rows[:, columns >= 0], truth


@pytest.mark.release
def test_two_known_samples_at_a_time_give_every_row_to_a_coordinator(table, record):
    found = two_a_time(table, cipher="plain", coordinator_sees="papers")
    constant = found.party("p1").view.bias_slot
    rows, truth = judged(found, table, rows_of_pairs(*told(found), constant))
    off = errors(rows, truth)
    good = int((off < 1e-3).sum())
    assert good == ROWS
    record("8", "unguarded", f"{good} of {ROWS} rows, error ≤ {off.max():.0e}")


def test_parties_refuse_the_mode_unless_they_are_simulated_and_open(table, record):
    with pytest.raises(WeftError, match="papers"):
        two_a_time(table, Terms(), coordinator_sees="papers")


@pytest.mark.parametrize("sees", ["weights", *before_release("nothing")])
def test_a_coordinator_of_weft_gets_no_row_from_known_draws(table, record, sees):
    """One that sees nothing gets noise with every change too, in ``test_pairs.py``."""
    terms = Terms(coordinator_sees="weights")
    # "practical" draws two, which min_batch holds back for good; "safe" draws more.
    found = two_a_time(table, terms, coordinator_sees=sees, iterations=400, local="safe")
    assert found.trained.result.certificate.gap < 0.9, "nothing was trained"
    constant = found.party("p1").view.bias_slot
    seen = told(found) if sees == "nothing" else weights_seen(found)
    rows, truth = judged(found, table, rows_of_pairs(*seen, constant))
    best = best_errors(rows[np.isfinite(rows).all(axis=1)], truth)
    assert best.min() > SAFE
    record("8", "guarded", f'sees "{sees}": 0 of {ROWS} rows, best error {best.min():.2g}')
