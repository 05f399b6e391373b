"""Guards hold for every method in rounds: none shows sums of a few samples, and all train."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from weft.algorithms.catalogue import ALGORITHMS
from weft.algorithms.rounds.coordinator import RoundCoordinator
from weft.algorithms.settings import Settings
from weft.data import SPLITS, Table, load
from weft.federation import Federation, Preparation
from weft.guards import Terms

METHODS = {
    name: algorithm
    for name, algorithm in ALGORITHMS.items()
    if issubclass(algorithm.coordinator, RoundCoordinator)
}
#: Methods whose messages depend on samples that they draw.
DRAWING = {
    "fedavg": {},
    "fedprox": {},
    "hyfem": {},
    "cocoa": {},
    "cocoa+": {},
    "d3ca": {},
}


def table(n=240):
    whole = load("breast_cancer")
    block = (whole.block - whole.block.mean(axis=0)) / whole.block.std(axis=0)
    block = block[:n] / np.linalg.norm(block, axis=1).max()
    return Table(whole.ids[:n], whole.features, block, whole.labels[:n], whole.task)


def split_of(cut):
    if cut == "any":
        return SPLITS["grid"](table(), k=3, q=3)
    if cut == "whole":
        return SPLITS["rows"](table(), parties=1)
    return SPLITS[cut](table(), parties=3)


def train(name, **changes):
    split = split_of(METHODS[name].cut)
    federation = Federation(split.parties, Preparation(overlap=split.overlap), terms=Terms())
    how = {"loss": "logistic", "lam": 1e-2, "gap": None, "iterations": 12, "certify_every": 4}
    trained = federation.train(Settings(**{**how, "solver": name, **changes}))
    return federation, trained


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_under_careful_terms(name):
    _, trained = train(name)
    assert trained.result.certificate.gap < 1.0
    assert np.abs(trained.model.coef).max() > 0


@pytest.mark.parametrize("name", DRAWING)
def test_draws_of_a_few_samples_change_nothing_that_others_see(name):
    """Two samples an iteration and party: any sum that moved would be theirs."""
    federation, trained = train(name, iic=2 * len(split_of(METHODS[name].cut).parties) / 240)
    assert any("held back" in note for note in trained.result.notes)
    assert not trained.model.coef.any()
    for party in federation.parties.values():
        assert not party._half.w.any()


@pytest.mark.parametrize("name", DRAWING)
def test_draws_of_enough_samples_are_let_through(name):
    _, trained = train(name, iic=1.0)
    assert np.abs(trained.model.coef).max() > 0


def test_hinge_slopes_in_certificates_change_together_or_not_at_all():
    """a_i = −l'(z_i) of a hinge jumps for single samples; what others see of it must not."""
    seen = {}

    def look(record):
        for name, party in federation.parties.items():
            seen.setdefault(name, []).append(party._half.measured._alpha.copy())

    split = SPLITS["rows"](table(), parties=3)
    federation = Federation(split.parties, Preparation(), terms=Terms())
    how = {"loss": "hinge", "lam": 1e-2, "gap": None, "iterations": 120, "certify_every": 4}
    options = {"gradient": "full", "a": 0.5}
    federation.train(Settings(solver="fedavg", options=options, **how), progress=look)
    changes = set()
    for name, alphas in seen.items():
        assert federation.parties[name].seat.exposed.all()
        for old, new in pairwise(alphas):
            changes.add(int((old != new).sum()))
    assert changes - {0}, "nothing ever changed: this shows nothing"
    assert all(count == 0 or count >= 10 for count in changes)
