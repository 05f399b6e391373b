"""Inner products of gradients, which the coordinator of a sealed run reads: noise must be in them.

Gradients on shares are vectors of whole numbers. From exact inner products a lattice gives every
gradient, up to order and signs of columns; so every party adds noise to its share.
"""

from __future__ import annotations

import numpy as np
from gram_lattice import vectors_from_gram
from scene import run

from weft.data import Tile
from weft.federation.local_federation import Preprocessing
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import coordinator_round_trips, party
from weft.solvers.secret_sharing.wide_ring import numbers_of, plus

COLUMNS = 2


def tiles():
    rng = np.random.default_rng(5)
    block = rng.normal(size=(50, COLUMNS))
    labels = (block @ rng.normal(size=COLUMNS) > 0).astype(int)
    ids = [f"s{n}" for n in range(50)]
    return {
        "p1": (Tile.make(ids, ["a"], block[:, :1], labels),),
        "p2": (Tile.make(ids, ["b"], block[:, 1:]),),
    }


def gradients_by_a_lattice(monkeypatch):
    """What the coordinator finds from all inner products of a run, and the true gradients."""
    told, add = [], coordinator_round_trips.add_shares

    def adding(replies, field, count, bits):
        found = add(replies, field, count, bits)
        if field == "products":
            told.append(found)
        return found

    monkeypatch.setattr(coordinator_round_trips, "add_shares", adding)
    how = Settings(lam=1e-3, loss="logistic", solver="sealed", gap=1e-6)
    seen = run(tiles(), how, preprocessing=Preprocessing(intercept=False))
    halves = [p._half for p in seen.federation.parties.values()]
    truth = []
    for number in range(len(told)):
        ours, theirs = (h._vectors[number].share(h._first)[0] for h in halves)
        truth.append(numbers_of(plus(ours, theirs)))
    size = len(told)
    assert size > COLUMNS + 2
    gram = [[told[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)]
    return vectors_from_gram(gram, COLUMNS), truth


def test_exact_inner_products_give_all_gradients_and_noisy_ones_none(monkeypatch, record):
    with monkeypatch.context() as patch:
        patch.setattr(party, "noise", lambda seed, label, bits: np.zeros((len(bits), 2), "u8"))
        found, truth = gradients_by_a_lattice(patch)
    assert found is not None
    for one, other in zip(found, truth, strict=True):
        assert sorted(map(abs, one)) == sorted(map(abs, other))
    # One order and one choice of signs fit all of them.
    lines = {tuple(column) for column in zip(*truth, strict=True)}
    lines |= {tuple(-v for v in column) for column in lines}
    assert all(tuple(column) in lines for column in zip(*found, strict=True))
    record("51", "unguarded", f"all {len(truth)} gradients exactly, up to order and signs")
    found, _ = gradients_by_a_lattice(monkeypatch)
    assert found is None
    record("51", "guarded", "no lattice fits")
