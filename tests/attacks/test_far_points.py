"""Scores of samples, from losses at points that are very far off: what the threat model admits.

Three parties by rows, breast cancer, logistic loss, careful terms, a coordinator alone. At large
multiples of its scores a sample's logistic loss is zero or a straight line. Along z + t·z', the sum
of all has a kink where a score is zero: where it is tells z over z', and how far the slope turns
tells z'. Which sample it is, nothing tells.
"""

from __future__ import annotations

import numpy as np
from scene import by_rows, table_of
from staging import FastStage, scalars

from weft.solvers.settings import Settings

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
