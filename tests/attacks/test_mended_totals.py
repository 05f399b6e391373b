"""A party's own feature sums, from masks taken off under a sum of everyone.

Four parties by rows, careful terms, ``pad``, all of them there. Where a party falls silent, HyFDCA
goes on with what the others told, whose masks they take off then. Fast solvers and scaling ask
everyone again: of their sums there is no total of three.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import by_rows, table_of
from staging import FastStage, Stage, Total, scalars
from without_rings import NEWEST

from weft.crypto.ciphers import contribution_masks
from weft.crypto.ciphers.block_format import KIND_CODES, Carried, read_block
from weft.errors import ProtocolError
from weft.federation.local_federation import Preprocessing
from weft.solvers.run_settings import Settings

NAMES = ["p1", "p2", "p3", "p4"]
LEFT, ALL = 2, 3
FAST = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=None, iterations=6)


class Ordinary(contribution_masks.Contributed):
    """What was told for any sum, as if others were to be had of those who are left."""

    alone = property(lambda told: False)


def mend_anything(monkeypatch):
    monkeypatch.setattr("weft.crypto.ciphers.party_cipher.Contributed", Ordinary)


def opened_by(party, total: Total) -> np.ndarray:
    """What a holder's keys make of a total."""
    streams = party._cipher._streams["v"]
    carried = Carried(None, None, np.full(streams.cohorts, total.pad, np.uint64))
    code = KIND_CODES["v"]
    return streams.show(code, None, total.words, total.tags, carried, (0, NEWEST), "a total")


class Vectors(FastStage):
    """Feature sums of four parties, and of three of them."""

    def __init__(self):
        super().__init__(by_rows(table_of("breast_cancer", 120), 4), FAST, "subspace.spread")
        products = self.last("subspace.spread", "p1")[0].get("products")
        self.full = self.gathered(**({"of": "vectors"} if products else {}))
        half = self.half("p4")
        self.own = half.samples.partial[:, 0] / self.n_samples
        self.round += 1
        self.three = self.mend("v", self.round, self.full, NAMES[:3])

    def gathered(self, **more):
        told = self.ask(
            "gather", moved=np.array([[1.0], [0.0]]), by_rows=False, at=np.zeros((1, 1)),
            **{"v_pads.chain": np.zeros(1, np.uint64)}, **more,
        )  # fmt: skip
        self.key = read_block(told["p1"]["v"], "v").key
        return Total.of({name: reply["v"] for name, reply in told.items()}, self.round, ALL)

    def products(self, totals):
        """Inner products of the vector that each party takes, with all before."""
        at = self.round + 1
        told = self.ask(
            "spread", by_rows=False, v=lambda name: totals[name].packed("v", self.key, at)
        )
        return scalars(told, "gram")


def test_a_partys_feature_sums_follow_from_masks_taken_off(monkeypatch, record):
    mend_anything(monkeypatch)
    stage = Vectors()
    # With one party's keys: the sum itself.
    unit = stage.half("p1")._wires.vectors.units
    p1 = stage.parties["p1"]
    found = (opened_by(p1, stage.full) - opened_by(p1, stage.three))[:, 0] / unit
    error = np.abs(found - stage.own[: len(found)]).max()
    assert error < 1e-12
    # Alone: its length, at features that the other three count.
    others = stage.products({name: stage.full if name == "p4" else stage.three for name in NAMES})
    again = stage.gathered()
    both = stage.products(dict.fromkeys(NAMES, again))
    square = others[-1] - 2 * both[-2] + both[-1]
    counted = sum(stage.parties[name].view.owned[: len(found)] for name in NAMES[:3])
    assert square == pytest.approx((counted * stage.own[: len(found)] ** 2).sum(), rel=1e-9)
    record(
        "49", "unguarded", f"with p1: p4's own feature sums, error {error:.0e}; alone: their length"
    )


def test_masks_under_a_vector_of_everyone_are_not_taken_off(record):
    with pytest.raises(ProtocolError, match="masks taken off under a sum of everyone"):
        Vectors()
    record("49", "guarded", "refused")


def raw_means():
    """p4's own means of raw columns, as the coordinator and p1 have them, and what they are."""
    how = Preprocessing(scaling="standard", intercept=False)
    tiles = by_rows(table_of("breast_cancer", 120, scaled=False), 4)
    stage = Stage(tiles, FAST, "scale.sums", preprocessing=how)
    asked, _ = stage.last("scale.sums", "p1")
    blocks = {name: stage.last("scale.sums", name)[1]["v"] for name in NAMES}
    full = Total.of(blocks, asked["round"], ALL)
    three = stage.mend("v", asked["round"] + 1, full, NAMES[:3])
    p1, p4 = stage.parties["p1"], stage.parties["p4"]
    own = opened_by(p1, full) - opened_by(p1, three)
    found = own[:, 1] / own[:, 0] * p1.data._scaler._unit[: len(own)]
    true = np.zeros(len(own))
    rows = p4.view.tile_rows[0] >= 0
    true[p4.view.tile_columns[0]] = p4.data.tiles[0].block[rows].mean(axis=0)
    return found, true


def test_a_partys_means_follow_from_masks_taken_off_in_scaling(monkeypatch, record):
    mend_anything(monkeypatch)
    found, true = raw_means()
    assert found == pytest.approx(true, rel=1e-9)
    record("49", "unguarded", f"with p1: p4's own means of {len(true)} raw columns")


def test_masks_under_sums_for_scaling_are_not_taken_off():
    with pytest.raises(ProtocolError, match="masks taken off under a sum of everyone"):
        raw_means()
