"""A party answers no more points and vectors than the settings of a run can need."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from sealed_runs import CUTS, cut, table, train

from weft.errors import ProtocolError
from weft.privacy.agreement.limits_and_site_policy import Limits
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.catalogue_entry import why_not_sealed
from weft.solvers.secret_sharing.coordinator import SealedCoordinator
from weft.solvers.secret_sharing.coordinator_round_trips import SealedExchange
from weft.solvers.secret_sharing.digit_widths import largest_noise
from weft.solvers.secret_sharing.point_and_vector_limit import (
    MOST_GRADIENTS,
    SPARE_POINTS,
    PointAndVectorLimit,
)
from weft.solvers.subspace.class_fold_problems import Problems


def test_the_limit_follows_from_iterations_lambdas_and_folds():
    def limit(**settings):
        return PointAndVectorLimit.of(
            Settings(lam=1e-2, loss="logistic", solver="sealed", **settings), 1
        )

    assert limit().gradients == MOST_GRADIENTS + 1
    assert limit(iterations=5).gradients == 5 + 1
    assert limit(iterations=5, path=(1e-1,), folds=2).gradients == 2 * 5 + 1 + 1
    assert limit(path=(1e-1,)).spare == 2 * SPARE_POINTS + 2


def test_long_paths_are_asked_for_no_more_than_a_roster_lets_iterations_be():
    """A limit on iterations that each λ has anew is none."""
    path = tuple(np.geomspace(1e-3, 1, 99).tolist())
    long = Settings(lam=1e-4, loss="logistic", solver="sealed", iterations=1, path=path)
    limits = Limits(most_iterations=20)
    ((what, why, mend),) = limits.objections(long)
    assert what == "iterations = 1 for each of 100 λ"
    assert (why, mend) == ("a run has at most 20", "list fewer values of lambda")
    assert not list(limits.objections(msgspec.structs.replace(long, path=path[:19])))
    # Without a roster, no path takes more than some hundred points and gradients.
    limit = PointAndVectorLimit.of(msgspec.structs.replace(long, iterations=10_000), 1)
    assert limit.gradients + limit.spare < 500
    too_long = msgspec.structs.replace(long, path=tuple(np.geomspace(1e-3, 1, 300).tolist()))
    assert "at most 200 values of λ" in why_not_sealed(too_long)


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
