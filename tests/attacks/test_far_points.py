"""Scores of samples, from losses at points that are very far off: what the threat model admits.

Three parties by rows, breast cancer, logistic loss, careful terms, a coordinator alone. At large
multiples of its scores a sample's logistic loss is zero or a straight line. Along z + t·z', the sum
of all has a kink where a score is zero: where it is tells z over z', and how far the slope turns
tells z'. Which sample it is, nothing tells.
"""

from __future__ import annotations

import msgspec
import numpy as np
from scene import by_rows, table_of
from staging import FastStage, scalars

from weft.data import Table
from weft.solvers.run_settings import Settings

SETTINGS = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=None, iterations=200)
FAR, AT_ONCE = 1e9, 3
STAY, GO = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
NOWHERE = np.zeros((AT_ONCE, 2, 1))


class FarPoints(FastStage):
    """Stands at one vector, and looks into the direction of another."""

    def __init__(self):
        super().__init__(by_rows(table_of("breast_cancer", 120), 3), SETTINGS, "subspace.search")
        self._by_rows = self.last("subspace.search", "p1")[0]["by_rows"]
        held = len(self.half("p1").features.vectors)
        here, self._there = np.zeros((held, 1)), np.zeros((held, 1))
        here[-1], self._there[1] = 1.0, 1.0
        self._search(STAY, NOWHERE, here)
        self._search(GO, NOWHERE)
        self.z = self._scores(lambda half: half.rows._z)
        self.direction = self._scores(lambda half: half.features.products)

    def _search(self, moved, steps, point=None):
        self.ask("point", point=self._there if point is None else point)
        fields = {"moved": moved, "steps": steps, "at": np.zeros((0, 1)), "of": "point"}
        return scalars(self.ask("search", by_rows=self._by_rows, **fields), "losses")

    def _scores(self, of):
        return np.concatenate([of(self.half(name))[:, 0] for name in self.names])

    def losses(self, at):
        """Σ max(0, −y(z + t·z')) at some t."""
        found = []
        for some in np.split(at, len(at) // AT_ONCE):
            steps = np.zeros((AT_ONCE, 2, 1))
            steps[:, 0, 0], steps[:, 1, 0] = FAR, FAR * some
            found.append(self._search(STAY, steps) * self.n_samples / FAR)
        return np.concatenate(found)


def kinks(at, values):
    """Where the slope turns once between straight pieces, and by how much."""
    slope = np.diff(values) / np.diff(at)
    bent = np.abs(np.diff(slope)) > 1e-6 * np.abs(slope).max()
    found = []
    for i in range(2, len(slope) - 2):
        if (bent[i - 2 : i + 2] == [False, True, True, False]).all():
            left, right = slope[i - 1], slope[i + 1]
            at_zero = (values[i] - left * at[i]) - (values[i + 1] - right * at[i + 1])
            found.append((at_zero / (right - left), right - left))
    return np.array(found)


def test_scores_of_samples_follow_from_losses_at_far_points(record):
    stage = FarPoints()
    at = np.linspace(-0.66, -0.49, 150)
    found = kinks(at, stage.losses(at))
    some = stage.direction != 0
    z, direction = stage.z[some], stage.direction[some]
    true = np.stack([-z / direction, np.abs(direction)], axis=1)
    off = np.abs(found[:, None] / true - 1).max(axis=2).min(axis=1)
    right = int((off < 1e-3).sum())
    assert right > 3
    record("56", "guarded", f"admitted: two scores each of {right} of {len(z)} samples, not whose")


class FarRows(FastStage):
    """Finds one kink on the way between two points, and how far it moves when these do."""

    def __init__(self):
        random = np.random.default_rng(1)
        block = random.standard_normal((1200, 20)) * np.geomspace(0.05, 1.0, 20)
        labels = (block.sum(axis=1) + random.logistic(size=1200) > 0).astype(np.int64)
        ids = np.array([f"s{i}" for i in range(1200)], dtype=object)
        names = np.array([f"x{j}" for j in range(20)], dtype=object)
        table = Table(ids, names, block, labels, "classification", "normal")
        settings = msgspec.structs.replace(SETTINGS, lam=1e-5)
        super().__init__(by_rows(table, 3), settings, "subspace.search", 10)
        self._by_rows = self.last("subspace.search", "p1")[0]["by_rows"]
        self.tables = 0
        rows = [self.half(name).rows for name in self.names]
        #: For the judge: Z of all samples.
        self.z = np.vstack([half.vectors.columns(0, np.arange(400)) for half in rows])

    def _losses(self, point, moved, steps):
        self.ask("point", point=point)
        self.tables += 1
        fields = {"moved": moved, "steps": steps, "at": np.zeros((0, 1)), "of": "point"}
        return scalars(self.ask("search", by_rows=self._by_rows, **fields), "losses")

    def along(self, here, way, at):
        """Σ max(0, −y(z + t·z')) at some t."""
        self._losses(way, STAY, NOWHERE)
        steps = FAR * np.stack([at, np.ones_like(at)], axis=1)[:, :, None]
        return self._losses(here, GO, steps) * self.n_samples / FAR

    def first(self, here, way, at, near):
        """Where the slope first turns, looked at more and more closely."""
        while at[-1] - at[0] > near:
            slope = np.diff(self.along(here, way, at)) / np.diff(at)
            turns = np.flatnonzero(np.abs(np.diff(slope)) > 1e-6 * np.abs(slope).max())[0]
            at = np.linspace(at[max(turns - 1, 0)], at[min(turns + 3, len(at) - 1)], len(at))
        return at[len(at) // 2]

    def kink(self, here, way, at, near):
        """Where two straight pieces meet, and by how much the slope turns there."""
        there = at + near * np.array([-2.0, -1.9, 1.9, 2.0])
        found = self.along(here, way, there)
        left, right = np.diff(found)[[0, 2]] / np.diff(there)[[0, 2]]
        meet = (found[2] - found[1] + left * there[1] - right * there[2]) / (left - right)
        return meet, right - left


def test_a_row_in_the_coordinates_of_all_vectors(record):
    """From where the same kink is when the point has a little more of a vector."""
    stage = FarRows()
    # In units in which samples are spread alike in all directions.
    _, lengths, ways = np.linalg.svd(stage.z, full_matrices=False)
    some = lengths > 1e-3 * lengths[0]
    units = np.sqrt(len(stage.z)) * ways[some].T / lengths[some]
    random = np.random.default_rng(2)
    here, way = units @ random.standard_normal((2, units.shape[1], 1))
    near = 1e-5
    at, turn = stage.kink(here, way, stage.first(here, way, np.linspace(0.0, 0.1, 32), near), near)
    row = np.zeros(units.shape[1])
    for j, unit in enumerate(units.T[:, :, None]):
        moved = at - stage.kink(here + 0.1 * near * unit, way, at, near)[0]
        row[j] = moved * turn / (0.1 * near)
    rows = stage.z @ units
    cosines = np.abs(rows @ row) / np.linalg.norm(rows, axis=1) / np.linalg.norm(row)
    assert len(row) >= 8
    assert np.sort(cosines)[-2] < 0.99 < 0.999 < cosines.max()
    assert stage.tables < 100
    what = f"in {stage.tables} tables, a row in {len(row)} directions, cosine {cosines.max():.3f}"
    record("56", "guarded", f"admitted: {what}")
