"""Differences of cuts: two dual vectors that differ in one sample give its row away.

Digits as they are, all ten classes, five horizontal parties, cutting planes. A party with the same
columns sees rows; the blind coordinator sees inner products of cuts, and so norms of rows.
Unguarded is Weft with open terms.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import Diary, Run, by_rows, run, table_of
from solving import SAFE, best_angles, best_errors, differences, rows_of_counts, rows_of_four

from weft.algorithms.settings import Settings
from weft.algorithms.span import span as span_module
from weft.federation import Preparation
from weft.guards import OPEN, Terms

CONSTANT = Preparation(intercept=True)
PIXEL = 16


def cells_of(found: Run, party: str, table) -> np.ndarray:
    """A party's rows in the order of the feature sums that ``party`` sees, without the constant."""
    columns = found.columns_of(party, table)
    return table.block[found.rows_of(party, table)][:, columns[columns >= 0]]


def others(found: Run, attacker: str, table) -> np.ndarray:
    """For the judge: all rows of the other parties."""
    names = [name for name in found.federation.parties if name != attacker]
    return np.vstack([cells_of(found, name, table) for name in names])


#: One against the rest, for each of the ten digits.
CLASSES = 10


@pytest.fixture(scope="module")
def ten_digits():
    return table_of("digits", 600, scaled=False, classes=CLASSES)


def cuts(party, phase, message, opened):
    """The totals of new cuts, less one's own part: (columns × cuts × classes)."""
    if phase != "span.spread":
        return {}
    (total,) = (values for kind, _, values in opened if kind == "v")
    half = party._half
    rest = total * half.ground.seat.n_samples - half._partial
    return {
        "rest": rest.reshape(len(rest), -1, CLASSES),
        "constant": half.ground.seat.bias_slot,
    }


def cut(table, terms=OPEN):
    """Five horizontal parties, cutting planes, to a gap of 1e-5; the coordinator keeps its Gram
    matrices."""
    diary, kept = Diary(cuts), []
    absorb = span_module.Span.absorb

    def remember(span):
        new = absorb(span)
        kept.append((span.gram.copy(), span.offsets.copy()))
        return new

    how = Settings(lam=20.0, solver="cutting-planes", gap=1e-5, iterations=80, norms="cohort")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_module.Span, "absorb", remember)
        found = run(by_rows(table, 5), how, terms, preparation=CONSTANT, diaries={"p1": diary})
    seen = np.concatenate(diary.all("rest"), axis=1)
    # The vector of nothing is known to everybody.
    seen = np.concatenate([np.zeros_like(seen[:, :1]), seen], axis=1)
    return found, seen, diary.all("constant")[0], kept


def rows_in_cuts(seen: np.ndarray, constant: int, *, four: bool) -> np.ndarray:
    """Rows that differences of two cuts of a class show, or of four."""
    found = []
    for c in range(CLASSES):
        sums = np.unique(np.round(seen[:, :, c].T, 6), axis=0)
        found.append(rows_of_counts(differences(sums), constant, PIXEL))
        if four:
            found.append(rows_of_four(sums, constant, PIXEL))
    return np.vstack(found)


def norms_in_grams(kept, samples: int) -> list[float]:
    """‖x_i‖² where two cuts seem to differ in one sample: their offsets do, by one, and their
    distance is that of no other pair of the class but its multiples."""
    found = []
    for gram, offsets in kept:
        for c in range(CLASSES):
            inner, o = gram[1:, 1:, c], offsets[1:, c] * samples
            lengths = np.diag(inner)
            apart = (lengths[:, None] + lengths[None, :] - 2 * inner) * samples**2
            one = np.abs(np.abs(o[:, None] - o[None, :]) - 1.0) < 1e-6
            whole = np.abs(apart - np.rint(apart)) < 1e-3
            found += np.rint(apart[one & whole & (apart > 0.5)]).tolist()
    return found


@pytest.fixture(scope="module")
def open_cuts(ten_digits):
    return cut(ten_digits)


@pytest.fixture(scope="module")
def guarded_cuts(ten_digits):
    return cut(ten_digits, Terms(min_batch=10))


def test_two_cuts_that_differ_in_one_sample_show_it(open_cuts, ten_digits, record):
    found, seen, constant, _ = open_cuts
    assert found.trained.result.certificate.gap <= 1e-5
    truth = others(found, "p1", ten_digits)
    rows = rows_in_cuts(seen, constant, four=False)
    exposed = int((best_errors(rows, truth) < 1e-6).sum())
    assert exposed >= 20
    record("7", "unguarded", f"{exposed} of {len(truth)} rows at a gap of 1e-5")


def test_no_two_cuts_differ_in_one_sample_under_guards(guarded_cuts, ten_digits, record):
    found, seen, constant, _ = guarded_cuts
    truth = others(found, "p1", ten_digits)
    rows = rows_in_cuts(seen, constant, four=True)
    assert (best_errors(rows, truth) > SAFE).all()
    features = np.arange(len(seen)) != constant
    changes = [differences(seen[features, :, c].T) for c in range(CLASSES)]
    nearest = min(best_angles(some, truth).min() for some in changes)
    assert nearest > SAFE
    gap = found.trained.result.certificate.gap
    record(
        "7",
        "guarded",
        f"0 rows, also from four cuts; nearest direction off by {nearest:.2f} (gap {gap:.0e})",
    )
