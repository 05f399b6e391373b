"""Inner products of single samples, from steps of the coordinator's choice.

Three parties by columns, breast cancer, logistic loss, careful terms, ``pad``. Nobody shares a
feature, so that no party gets feature sums of another's samples; but the coordinator gets inner
products of all of them. At a point that is very far off, slopes of the logistic loss are steps:
along a line, dual vectors differ in the samples whose scores change sign in between.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scene import by_columns, table_of
from staging import FastStage, Total, scalars

from weft.crypto.ciphers.block_format import read_block
from weft.solvers.run_settings import Settings
from weft.solvers.subspace import min_batch_between_dual_vectors

SAMPLES, FAR = 44, 1e9
FAST = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=None, iterations=200)
STAY, GO = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])


class Line:
    """Dual vectors along a line between two points that are far off, and their inner products."""

    def __init__(self, stage):
        self.stage, self.steps, self.gram = stage, [], np.zeros((0, 0))
        #: For the judge: dual variables of all samples.
        self.duals = []
        self._aim(STAY, 1)
        self._aim(GO, 2)
        self._before = len(stage.half("p1").features.vectors)

    def _aim(self, moved, which):
        """Measure vectors once more, and make a huge multiple of one the target."""
        stage = self.stage
        stage.ask("gather", moved=STAY, by_rows=False, at=np.zeros((1, 1)))
        chain = {"z_pads.chain": np.zeros(1, np.uint64)}
        told = stage.ask("spread", by_rows=False, products=True, **chain)
        blocks = {name: reply["z"] for name, reply in told.items()}
        z = Total.of(blocks, stage.round, len(blocks) - 1)
        target = np.zeros((len(stage.half("p1").rows.vectors) + 1, 1))
        target[which] = FAR
        packed = z.packed("z", read_block(blocks["p1"], "z").key, stage.round + 1)
        point = {"of": "vectors", "z": packed, "point": target, "at": np.zeros((0, 1))}
        stage.ask("search", moved=moved, by_rows=False, steps=np.zeros((3, 2, 1)), **point)

    def take(self, steps):
        """Vectors at some steps, up to 32 in a request."""
        for some in np.array_split(np.asarray(steps), -(-len(steps) // 32)):
            self.stage.ask("gather", moved=STAY, by_rows=False, at=some[:, None])
            self.duals.append(self.stage.half("p1").samples.duals.copy())
            told = scalars(self.stage.ask("spread", by_rows=False), "gram")
            new = told.reshape(-1, len(some))[self._before :]
            kept = len(self.steps)
            self.gram = np.pad(self.gram, (0, len(some)))
            self.gram[:, kept:], self.gram[kept:, :] = new, new.T
            self.steps.extend(some.tolist())

    def pieces(self):
        """Neighbours on the line whose vectors differ."""
        order, gram = np.argsort(self.steps), self.gram
        return [(a, b) for a, b in pairwise(order) if self._apart(gram, a, b) > 1e-6]

    def _apart(self, gram, a, b):
        return (gram[a, a] + gram[b, b] - 2 * gram[a, b]) * self.stage.n_samples**2

    def differences(self, pieces):
        """Inner products of the differences of neighbours, each ±x_i where it is of one sample."""
        chosen = np.zeros((len(pieces), len(self.steps)))
        for row, (a, b) in enumerate(pieces):
            chosen[row, b], chosen[row, a] = 1.0, -1.0
        return chosen @ self.gram @ chosen.T * self.stage.n_samples**2


def crossings(stage):
    """For the judge: at which step the score of each sample changes its sign."""
    rows = stage.half("p1").rows
    z, target = rows._z[:, 0], rows._target[:, 0]
    with np.errstate(all="ignore"):
        return z / (z - target)


def fewest_changed(line, rows):
    """For the judge: in how many of these samples those two vectors differ that differ least."""
    duals = np.concatenate(line.duals, axis=1)[rows]
    changed = (duals[:, :, None] != duals[:, None, :]).sum(axis=0)
    return int(changed[changed > 0].min())


def bisected(samples, levels):
    """Dual vectors along a line, most where they change."""
    tiles = by_columns(table_of("breast_cancer", samples), 3)
    line = Line(FastStage(tiles, FAST, "subspace.search"))
    line.take(np.tan(np.linspace(-1.5, 1.5, 32)))
    for _ in range(levels):
        line.take([(line.steps[a] + line.steps[b]) / 2 for a, b in line.pieces()])
    return line


def single_samples(line):
    """How many samples stand alone in a difference, and errors of all their inner products."""
    stage, pieces = line.stage, line.pieces()
    place = crossings(stage)
    within = [np.flatnonzero((line.steps[a] < place) & (place < line.steps[b])) for a, b in pieces]
    alone = [k for k, samples in enumerate(within) if len(samples) == 1]
    samples = [int(within[k][0]) for k in alone]
    table = np.concatenate([stage.half(n)._context.table.dense() for n in stage.names], axis=1)
    true = np.abs(table[samples] @ table[samples].T)
    return len(samples), np.abs(np.abs(line.differences(pieces)[np.ix_(alone, alone)]) - true)


def test_inner_products_of_single_samples_follow_from_chosen_steps(monkeypatch, record):
    monkeypatch.setattr(
        min_batch_between_dual_vectors, "_large_enough", lambda atom, *how: np.full_like(atom, -1)
    )
    found, error = single_samples(bisected(60, 6))
    assert found > 30
    assert error.max() < 1e-9
    record("46", "unguarded", f"all of {found} of 60 samples, error {error.max():.0e}")


# In the second table one class has four samples: these are not kept together, all others are.
@pytest.mark.parametrize(("samples", "rare"), [(60, 0), (44, 4)])
def test_vectors_keep_apart_where_the_coordinator_alone_has_their_products(samples, rare, record):
    line = bisected(samples, 3)
    labels = line.stage.half("p1")._context.labels[:, 0]
    kinds, count = np.unique(labels, return_counts=True)
    common = np.isin(labels, kinds[count >= 10])
    assert (~common).sum() == rare
    fewest = fewest_changed(line, common)
    assert fewest >= 10
    if not rare:
        record("46", "guarded", f"no two vectors differ in fewer than {fewest} samples")
