"""Attacks of honest parties on the records of a sealed run: nothing is in them to attack.

Every attack runs on three records of the same table. In those of a run in sums it succeeds. In
those of a sealed run it fails for every party, for all parties but one together, and for the
dealer. And it succeeds again for the dealer together with a party, whom the model keeps apart: so
the records hold what is attacked, and masks and pads alone keep it.

Three parties: ``all`` holds every column of the first half of the samples, ``some`` and ``rest``
share the columns of the second half; ``rest`` has no labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scene import Diary, Run, run
from sealed_views import Records
from solving import errors, from_known_rows
from test_column_space import of_subspace
from test_labels import largest_alpha
from test_rare_classes import vectors, without_fix

from weft.data import Table, Tile
from weft.federation.local_federation import Preprocessing
from weft.guards import OPEN
from weft.solvers.run_settings import Settings

ROWS, HALF, COLUMNS, OWN = 120, 60, 5, 2
#: Rows that the attacker knows from elsewhere.
KNOWN = np.arange(24)
#: The only sample of the second half in which the last column is not zero.
LONE = 90


@dataclass
class Attacked:
    """A table, and what its parties saw of a run in sums and of a sealed one."""

    table: Table
    sums: Run
    diaries: dict[str, Diary]
    sealed: Run
    records: Records

    def place(self, name):
        """Where the rows and columns of a party lie in what is opened in a sealed run."""
        return self.records.halves[name]._place

    def view(self, seen, name):
        """The part of a sealed run's records that is about a party's samples and features."""
        place = self.place(name)
        return {
            "z": seen["scores"][place.rows],
            "alpha": seen["slopes"][place.rows],
            # Slopes are −α.
            "v": -seen["vector"][place.columns],
        }


def cut(table):
    def part(rows, columns, labelled=True):
        labels = table.labels[rows] if labelled else None
        block = np.ascontiguousarray(table.block[rows, columns])
        return (Tile.make(table.ids[rows], table.features[columns], block, labels),)

    first, second = slice(0, HALF), slice(HALF, None)
    return {
        "all": part(first, slice(None)),
        "some": part(second, slice(0, OWN)),
        "rest": part(second, slice(OWN, None), labelled=False),
    }


def attacked(table, scaling):
    how = Preprocessing(intercept=False, scaling=scaling, confirm_separate_ids=True)
    notes = {"all": vectors, "some": total_scores, "rest": largest_alpha}
    diaries = {name: Diary(note) for name, note in notes.items()}
    base = {"lam": 1e-3, "loss": "logistic"}
    told = Settings(**base, solver="lbfgs", gap=1e-9)
    sums = run(cut(table), told, OPEN, preprocessing=how, diaries=diaries)
    records = Records()
    with records.watching():
        told = Settings(**base, solver="sealed", gap=1e-3)
        sealed = run(cut(table), told, OPEN, preprocessing=how)
    records.halves = {name: party._half for name, party in sealed.federation.parties.items()}
    return Attacked(table, sums, diaries, sealed, records)


def total_scores(party, phase, message, opened):
    seen = of_subspace(party, phase, message, opened)
    if "z" in seen:
        seen["z"] = seen["z"] + party._half.features.products
    return seen


def table_with(labels, block):
    names = np.array([f"c{n}" for n in range(COLUMNS)], object)
    ids = np.array([f"s{n}" for n in range(ROWS)], object)
    return Table(ids, names, block, labels, "classification", "made up")


def cells():
    return np.random.default_rng(2).normal(size=(ROWS, COLUMNS))


@pytest.fixture(scope="module")
def balanced():
    """As many samples of each class; one column is not zero in a single sample of the others."""
    block = cells()
    block[HALF:, -1] = 0.0
    block[LONE, -1] = 0.25
    scores = block @ np.array([1.0, -0.7, 0.5, 1.5, 0.3])
    labels = (scores > np.median(scores)).astype(np.int64)
    return attacked(table_with(labels, block), "none")


@pytest.fixture(scope="module")
def lopsided():
    """Of the second half, one sample is of the first class."""
    labels = np.ones(ROWS, np.int64)
    labels[: HALF // 2] = 0
    labels[LONE] = 0
    with pytest.MonkeyPatch.context() as patch:
        without_fix(patch)
        return attacked(table_with(labels, cells()), "standard")


# ── the attacks: how much of a secret is found, from 0 to 1 ───────────────────────────────────


def labels_from_slopes(scene, run_, seen):
    """Signs of α are labels (15)."""
    truth = 2 * scene.table.labels[run_.rows_of("rest", scene.table)] - 1
    # All but the first are near it; whoever guesses may have the classes the wrong way round.
    right = (np.sign(seen["alpha"]) == truth[:, None]).mean(axis=0)
    return float(2 * np.abs(right - 0.5).mean())


def columns_from_scores(scene, run_, seen):
    """z of all samples, own columns and a few known rows give the others' columns (4, 21)."""
    table, rows = scene.table, run_.rows_of("some", scene.table)
    truth = table.block[rows]
    z = seen["z"][:, np.abs(seen["z"]).max(axis=0) > 0][:, :12]
    sums = np.hstack([z / np.abs(z).max(axis=0), truth[:, :OWN]])
    found = from_known_rows(sums, KNOWN, truth[KNOWN])
    off = errors(found[:, OWN:], truth[:, OWN:])
    return float((off[len(KNOWN) :] < 0.01).mean())


def scores_of_the_model(scene, run_, seen):
    """Scores of the finished model lie in the span of all z that were seen: R² (2b, 21)."""
    table, rows = scene.table, run_.rows_of("some", scene.table)
    model = run_.trained.model
    place = [table.features.tolist().index(name) for name in model.features.tolist()]
    truth = table.block[rows][:, place] @ model.coef[0]
    z = seen["z"][:, :12]
    found = z @ np.linalg.lstsq(z, truth, rcond=None)[0]
    return float(1.0 - ((truth - found) ** 2).sum() / (truth**2).sum())


def lone_row_from_first_vector(scene, run_, seen):
    """The first vector, and that columns sum to zero, give the only row of a class (18, 20)."""
    table, party = scene.table, run_.party("all")
    own = party.data.table.products(None, np.eye(party.view.n_columns))
    labels = 2 * table.labels[run_.rows_of("all", table)] - 1
    rest = seen["v"][:, 0] - 0.5 * labels @ own
    found = (-own.sum(axis=0) - rest / 0.5) / 2
    units, columns = party.data.units, run_.columns_of("all", table)
    truth = (table.block[LONE] - units.shift) * units.factor
    return float(np.abs(found - truth[columns]).max() < 1e-3)


def cell_of_a_rare_column(scene, run_, seen):
    """Where one sample alone has a column, the first vector is its cell (19)."""
    table, party = scene.table, run_.party("all")
    column = int(np.flatnonzero(run_.columns_of("all", table) == COLUMNS - 1)[0])
    own = party.data.table.products(None, np.eye(party.view.n_columns))[:, column]
    labels = 2 * table.labels[run_.rows_of("all", table)] - 1
    rest = seen["v"][column, 0] - 0.5 * labels @ own
    return float(abs(abs(rest) / 0.5 - table.block[LONE, -1]) < 1e-3)


#: By name: on which table, by whose records, and how much chance alone may find.
ATTACKS = {
    "labels from α": ("balanced", "rest", labels_from_slopes, 0.5),
    "columns from z": ("balanced", "some", columns_from_scores, 0.0),
    "scores of the model": ("balanced", "some", scores_of_the_model, 0.6),
    "cell of a rare column": ("balanced", "all", cell_of_a_rare_column, 0.0),
    "row of a rare class": ("lopsided", "all", lone_row_from_first_vector, 0.0),
}


def of_sums(scene, name):
    """What a party has seen of the run in sums."""
    diary = scene.diaries[name]
    seen = {kind: np.hstack(diary.all(kind)) for kind in ("z",) if diary.all(kind)}
    if name == "rest":
        seen["alpha"] = np.stack(diary.all("alpha"), axis=1)
    if name == "all":
        own = scene.sums.party("all").data.table.products(None, np.eye(COLUMNS))
        labels = 2 * scene.table.labels[scene.sums.rows_of("all", scene.table)] - 1
        first = diary.moments[0].seen["rest"][:, :1]
        seen["v"] = first + (0.5 * labels @ own)[:, None]
    return seen


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_sums_tell_no_record_of_a_sealed_run_does(attack, request, record):
    fixture, name, find, chance = ATTACKS[attack]
    scene = request.getfixturevalue(fixture)
    in_sums = find(scene, scene.sums, of_sums(scene, name))
    assert in_sums > 0.9
    apart = scene.view(scene.records.everything(), name)
    assert find(scene, scene.sealed, apart) > 0.9
    found = {
        who: find(scene, scene.sealed, scene.view(seen, name))
        for who, seen in scene.records.adversaries().items()
    }
    assert len(found) == 7
    assert max(found.values()) <= chance, found
    record("50", "unguarded", f"in sums, {attack}: {in_sums:.0%} right")
    record("50", "guarded", f"{attack}: {'as by chance' if chance else 'nothing'}")
