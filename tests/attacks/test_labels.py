"""Labels are known to every holder of a sample, through α: reported, not prevented.

Breast cancer, two vertical parties of which only the first has labels. The second computes nothing,
but must follow α to keep its feature sums: sign(α_i) = y_i for hinge wherever α_i is not zero, for
logistic always.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scene import Diary, by_columns, look_ahead, run, table_of

from weft.data import Tile
from weft.guards import Terms
from weft.solvers.run_settings import Settings

#: What sites must agree to before the labels of one of them are used at all.
AGREED = Terms(allow_pairs=True, allow_lone_labels=True)


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", 300)


def labels_at_first(table):
    tiles = by_columns(table, 2)
    (other,) = tiles["p2"]
    return {**tiles, "p2": (Tile.make(other.ids, other.features, other.block),)}


def largest_alpha(party, phase, message, opened):
    """α of HyFDCA as it stands; of the fast solvers, every dual vector that comes."""
    half = party._half
    if phase == "hyfdca.dual":
        return {"alpha": half.alpha[:, 0]}
    if phase == "subspace.follow":
        return {"alpha": half.samples.duals.sum(axis=1)}
    return {}


@pytest.mark.parametrize(
    ("solver", "loss"), [("hyfdca", "hinge"), ("lbfgs", "logistic"), ("cutting-planes", "hinge")]
)
def test_signs_of_alpha_are_labels(table, record, solver, loss):
    diary = Diary(largest_alpha)
    how = Settings(lam=1e-2, solver=solver, loss=loss, gap=1e-2, norms="cohort")
    found = run(labels_at_first(table), how, AGREED, diaries={"p2": diary})
    alpha = np.stack(diary.all("alpha"))
    seen = np.sign(alpha.sum(axis=0))
    truth = 2 * table.labels[found.rows_of("p2", table)] - 1
    right, wrong = int((seen == truth).sum()), int((seen == -truth).sum())
    assert wrong == 0
    assert right > 0.9 * len(truth)
    record("15", "unguarded", f"{solver}, {loss}: {right} of {len(truth)} labels, 0 wrong")


def test_it_is_announced_before_the_run(table, record):
    how = Settings(lam=1e-2, solver="lbfgs", loss="logistic", gap=1e-2)
    found, words = look_ahead(labels_at_first(table), how, AGREED)
    assert found.learners == {"p2": table.n}
    assert f"p2 learns those of {table.n} samples without having them" in words
    text = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text(encoding="utf-8")
    assert "Labels are known to every" in " ".join(text.split())
    record("15", "guarded", "announced: p2 learns all labels; the threat model opens with it")
