"""Records of sealed runs with a squared loss, three classes or folds hold nothing to attack.

`test_sealed_records` has the two classes of a logistic loss, and shows each attack to succeed in
sums. Here every attack is shown to succeed for the dealer together with a party, and to find no
more than chance does for every party, every set of all parties but one, and the dealer:

- labels, from slopes (b3: from those of any class);
- columns that others hold, from scores and a few known rows (d1, b0: however few sums there are);
- what a fold leaves out, from the difference of two vectors (b1, b2), and so the row of a rare
  class or a rare word, where it is the only one that is left out (c1, b3r, e1);
- samples up to a rotation, from inner products of what is opened. Those that the dealer is told,
  of gradients and with noise, are attacked in `test_sealed_scalars`.

a1 to a6 forge requests of runs in sums (`test_forged_requests` and others), which no sealed party
answers; g1 needs letters of sums, of which there are none.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sealed_views import Records
from solving import errors, from_known_rows

from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.run_settings import Settings

ROWS, COLUMNS, OWN, KNOWN = 120, 5, 2, np.arange(24)
KINDS = {
    "squared": {"loss": "squared"},
    "three classes": {"loss": "logistic"},
    "folds": {"loss": "logistic", "folds": 2},
}


class Attacked:
    """A sealed run of three parties by columns, of which the first has labels, and its records."""

    def __init__(self, kind):
        rng = np.random.default_rng(5)
        self.block = rng.normal(size=(ROWS, COLUMNS))
        scores = self.block @ rng.normal(size=(COLUMNS, 3))
        self.labels = {
            "squared": scores[:, 0],
            "three classes": scores.argmax(axis=1),
            "folds": (scores[:, 0] > 0).astype(int),
        }[kind]
        ids, names = [f"s{n}" for n in range(ROWS)], [f"c{n}" for n in range(COLUMNS)]
        parts = {"a": slice(0, OWN), "b": slice(OWN, 4), "c": slice(4, None)}
        tiles = {
            name: [Tile.make(ids, names[part], self.block[:, part], self._given(name))]
            for name, part in parts.items()
        }
        self.records = Records()
        federation = Federation(tiles, Preprocessing(intercept=False))
        told = Settings(lam=1e-2, solver="sealed", gap=1e-2, **KINDS[kind])
        with self.records.watching():
            federation.train(told)
        halves = {name: party._half for name, party in federation.parties.items()}
        self.records.halves = halves
        # Rows and columns in the order in which they are opened.
        party = federation.parties["a"]
        rows = [int(name[1:]) for name in party._matching.ids[0]]
        order = np.argsort(halves["a"]._place.rows[party.view.tile_rows[0]])
        self.rows = np.array(rows)[order]
        at = np.concatenate(
            [
                halves[name]._place.columns[p.view.tile_columns[0]]
                for name, p in federation.parties.items()
            ]
        )
        self.x = self.block[self.rows][:, np.argsort(at)]
        self.own = at[:OWN]
        self.y = self.labels[self.rows]
        self.fold = halves["a"]._fold_rows.fold

    def _given(self, name):
        return self.labels if name == "a" else None


attacked = cache(Attacked)


# ── the attacks: how much of a secret is found, from 0 to 1 ───────────────────────────────────


def likeness(some, others):
    """The largest correlation of any column of one with any of the other."""
    some, others = (a[:, a.std(axis=0) > 0] for a in (some, others))
    return float(np.abs(np.corrcoef(some.T, others.T)[: some.shape[1], some.shape[1] :]).max())


def labels_from_slopes(scene, seen):
    of = np.unique(scene.y) if scene.y.dtype.kind == "i" else [None]
    truth = np.stack([scene.y if c is None else scene.y == c for c in of], axis=1).astype(float)
    return likeness(seen["slopes"], truth)


def columns_from_scores(scene, seen):
    z = seen["scores"][:, np.abs(seen["scores"]).max(axis=0) > 0]
    own = scene.x[:, scene.own]
    sums = np.hstack([z / np.abs(z).max(axis=0), own])
    foreign = np.setdiff1d(np.arange(COLUMNS), scene.own)
    found = from_known_rows(sums, KNOWN, scene.x[KNOWN])
    off = errors(found[:, foreign], scene.x[:, foreign])
    return float((off[len(KNOWN) :] < 0.05).mean())


def left_out_from_vectors(scene, seen):
    """Vectors at w = 0 of all samples, and without the first fold: their difference is its rows."""
    found = seen["vector"][:, 0] - seen["vector"][:, 1]
    there = scene.fold == 0
    true = scene.x[there].T @ (0.5 - scene.y[there])
    return float(np.abs(found - true).max() < 1e-3 * np.abs(true).max())


def products_of_slopes(scene, seen):
    """Which inner products of openings are true: a Gram matrix gives rows up to a rotation."""
    found, true = (cosines(of["slopes"]) for of in (seen, scene.records.everything()))
    return float((np.abs(found - true) < 0.02).mean())


def cosines(vectors):
    # What folds leave out of all samples is nothing.
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=0), 1e-9)
    return (unit.T @ unit)[np.triu_indices(unit.shape[1], 1)]


#: With how much chance alone may find.
ATTACKS = {labels_from_slopes: 0.5, columns_from_scores: 0.05, products_of_slopes: 0.4}
CASES = [
    *((kind, attack, chance) for kind in KINDS for attack, chance in ATTACKS.items()),
    ("folds", left_out_from_vectors, 0.0),
]


@pytest.mark.parametrize(("kind", "attack", "chance"), CASES)
def test_no_record_tells_what_dealer_and_party_together_know(kind, attack, chance):
    scene = attacked(kind)
    assert attack(scene, scene.records.everything()) > 0.9
    found = {who: attack(scene, seen) for who, seen in scene.records.adversaries().items()}
    assert len(found) == 7
    assert max(found.values()) <= chance, found
