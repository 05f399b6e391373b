"""A party answers no more points and vectors than the settings of a run can need."""

from __future__ import annotations

import numpy as np
import pytest
from sealed_runs import CUTS, cut, table, train

from weft.errors import ProtocolError
from weft.solvers.sealed.coordinator import SealedCoordinator
from weft.solvers.sealed.exchange import SealedExchange
from weft.solvers.sealed.phase_limit import MOST_GRADIENTS, SPARE_POINTS, PhaseLimit
from weft.solvers.sealed.widths import largest_noise
from weft.solvers.settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems


def test_the_limit_follows_from_iterations_lambdas_and_folds():
    def limit(**settings):
        return PhaseLimit.of(Settings(lam=1e-2, loss="logistic", solver="sealed", **settings), 1)

    assert limit().gradients == MOST_GRADIENTS + 2
    assert limit(iterations=5).gradients == 5 + 2
    assert limit(iterations=5, path=(1e-1,), folds=2).gradients == 2 * 5 + 3 + 3
    assert limit(path=(1e-1,)).spare == 2 * SPARE_POINTS + 2


class Insatiable(SealedCoordinator):
    """Asks for the same point without end."""

    def run(self, channel, holdings, settings, adder, **others):
        exchange = SealedExchange(channel, holdings, settings, adder, Problems(1))
        exchange.first()
        errors = exchange.errors
        exchange.vector(np.array([largest_noise(errors.widths, errors.columns)]))
        for Insatiable.asked in range(1000):
            exchange.point(np.arange(1), np.zeros((1, 1), np.int64))
            exchange.slopes(0, 0)


def test_a_coordinator_that_asks_on_is_refused(monkeypatch):
    block, labels = table(rows=30)
    monkeypatch.setattr(SealedCoordinator, "run", Insatiable.run)
    with pytest.raises(ProtocolError, match="more points than"):
        train(cut(block, labels, CUTS["vertical"]), iterations=5)
    assert Insatiable.asked < SPARE_POINTS + 6


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_run_that_uses_all_its_iterations_is_answered(loss):
    block, labels = table(rows=30, classes=2 if loss == "logistic" else 0)
    tiles = cut(block, labels, CUTS["vertical"])
    settings = {"iterations": 2, "gap": 1e-12, "path": (1e-1,), "folds": 2}
    _, trained = train(tiles, loss=loss, **settings)
    assert len(trained.result.stages) == 2
