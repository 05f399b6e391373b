"""The row of a rare class in one plain run, guards on: nobody has to leave the protocol.

Every solver begins at w = 0, where all samples of a class weigh the same. Two classes: p1 knows the
others' sum of the standardised columns, which is minus its own. Ten classes: their sums give it. So
p1 has the others' sum over every class; where one sample of them has that class, it is the row.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import Diary, Run, run, table_of, tile_of
from solving import SAFE

import weft.federation.leave_out_rare_classes_and_columns as rare
from weft.federation.local_federation import Preprocessing
from weft.guards import Terms
from weft.solvers.run_settings import Settings

STANDARD = Preprocessing(scaling="standard", unit_rows=True, intercept=True)


def vectors(party, phase, message, opened):
    """The others' part of every vector, and p1's own table."""
    if phase != "subspace.spread":
        return {}
    (total,) = (values for kind, _, values in opened if kind == "v")
    table = party.data.table.products(None, np.eye(party.view.n_columns))
    return {"rest": total * party.view.n_samples - party._half.samples.partial, "own": table}


def with_one_of(table, rare, small):
    """Three parties by rows; of the ``small`` rows of p2 and of p3, one has the rare class."""
    order = np.random.default_rng(0).permutation(table.n)
    few, many = order[table.labels[order] == rare], order[table.labels[order] != rare]
    parts = {
        "p2": np.r_[few[:1], many[: small - 1]],
        "p3": many[small - 1 : 2 * small - 1],
        "p1": np.r_[many[2 * small - 1 :], few[1:]],
    }
    tiles = {name: (tile_of(table, np.sort(parts[name])),) for name in ("p1", "p2", "p3")}
    return tiles, parts["p2"][0]


def without_fix(monkeypatch) -> None:
    """Let every class take part, however rare."""
    monkeypatch.setattr(
        rare, "in_rare_class", lambda group, target, least: np.zeros(len(group), bool)
    )


def raw_row(found: Run, sums: np.ndarray, table) -> np.ndarray:
    """A row of p1's scaled columns in the units of the table."""
    columns, units = found.columns_of("p1", table), found.party("p1").data.units
    row, place = np.zeros(table.m), {name: k for k, name in enumerate(table.features.tolist())}
    row[columns[columns >= 0]] = sums[columns >= 0]
    where = [place[name] for name in units.features.tolist()]
    row[where] = row[where] / units.factor + units.shift
    return row


def rare_of_two(solver: str, loss: str) -> tuple[float, float, Run]:
    """How many samples of the rare class p1 counts, and how far its row is off."""
    table = table_of("breast_cancer", scaled=False)
    tiles, truth = with_one_of(table, 0, 100)
    diary = Diary(vectors)
    how = Settings(lam=0.01, solver=solver, loss=loss, gap=1e-2, iterations=30)
    found = run(tiles, how, Terms(), preprocessing=STANDARD, diaries={"p1": diary})
    first = diary.moments[0].seen
    own, constant = first["own"], found.party("p1").view.bias_slot
    unit = own[own[:, constant] > 0, constant][0]
    diff = first["rest"][:, 0] / {"logistic": 0.5, "hinge": 1.0}[loss]
    every = -own.sum(axis=0)
    every[constant] = (found.trained.holdings.n_samples - len(own)) * unit
    rare = (every - diff) / 2
    cells = table.block[truth]
    off = np.abs(raw_row(found, rare, table) - cells).max() / np.abs(cells).max()
    return float(rare[constant] / unit), float(off), found


@pytest.mark.parametrize(("solver", "loss"), [("lbfgs", "logistic"), ("cutting-planes", "hinge")])
def test_the_only_row_of_a_class_shows_in_the_first_vector(monkeypatch, record, solver, loss):
    with monkeypatch.context() as patch:
        without_fix(patch)
        count, off, _ = rare_of_two(solver, loss)
    assert count == pytest.approx(1.0, abs=1e-6)
    assert off < 1e-6
    record("18", "unguarded", f"{solver}: 30 raw cells, error {off:.0e}")
    count, off, found = rare_of_two(solver, loss)
    assert count == pytest.approx(0.0, abs=1e-6), "the class is not left out"
    assert off > SAFE
    assert found.trained.holdings.rare == 1
    assert any(
        "are left out unsaid, if there are any" in note for note in found.trained.result.notes
    )
    record("18", "guarded", f"{solver}: left out; error {off:.1f}")


def lone_digit(digit: int) -> tuple[float, Run]:
    """How far the only ``digit`` of the others is off, from the first vectors of ten classes."""
    table = table_of("digits", scaled=False, classes=10)
    tiles, truth = with_one_of(table, digit, 200)
    diary = Diary(vectors)
    how = Settings(lam=20.0, solver="lbfgs", loss="logistic", gap=1e-1, iterations=3)
    found = run(tiles, how, Terms(), diaries={"p1": diary})
    rest, columns = diary.moments[0].seen["rest"][:, :10], found.columns_of("p1", table)
    got = rest[:, digit] - rest.sum(axis=1) / 8
    cells = table.block[truth][columns]
    # Rare pixels are no part of the sums; the judge leaves them out.
    seen = np.abs(rest).max(axis=1) > 1e-9
    return float(np.abs(got - cells)[seen].max()), found


def test_the_only_row_of_one_of_ten_classes_shows(monkeypatch, record):
    with monkeypatch.context() as patch:
        without_fix(patch)
        off, _ = lone_digit(7)
    assert off < 1e-6
    record("18", "unguarded", f"ten classes: pixels of the only 7, error {off:.0e}")
    off, found = lone_digit(7)
    assert off > 1.0
    assert found.trained.holdings.rare == 1
    record("18", "guarded", f"ten classes: left out; pixels off by {off:.0f} of 16")
