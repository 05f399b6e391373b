"""Parties tell what the iterations that were agreed on can need, whatever a coordinator asks."""

from __future__ import annotations

import pytest

from covering import some_of
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.privacy.agreement.limits_and_site_policy import Limits
from weft.solvers.run_settings import Settings
from weft.solvers.subspace import coordinator_of_lambda_path
from weft.solvers.subspace.told_losses_and_vectors_limit import MeasurementLimit

RUNS = [
    {"solver": "cutting-planes", "loss": "hinge"},
    {"solver": "cutting-planes", "loss": "hinge", "path": (0.5,), "folds": 2},
    {"solver": "lbfgs", "loss": "logistic"},
    {"solver": "newton-cg", "loss": "logistic"},
    {"solver": "span-newton", "loss": "hinge"},
]


# Cutting planes with folds and a path are among them: without, before a release.
@pytest.mark.parametrize(
    "run", some_of(RUNS, *RUNS[1:]), ids=lambda run: f"{run['solver']} {len(run)}"
)
def test_a_coordinator_that_goes_on_is_refused(run, patchwork, monkeypatch):
    settings = Settings(lam=1e-3, gap=None, iterations=1, **run)
    honest = Federation(patchwork(), Preprocessing(unit_rows=True)).train(settings)
    assert honest.result.stopped == "1 iterations"
    monkeypatch.setattr(coordinator_of_lambda_path, "why_stop", lambda *told: "")
    monkeypatch.setattr(coordinator_of_lambda_path.GuardStall, "watch", lambda *told: "")
    with pytest.raises(ProtocolError, match="more than the iterations of this run can need"):
        Federation(patchwork(), Preprocessing(unit_rows=True)).train(settings)


def test_without_a_number_of_iterations_there_is_no_limit():
    limit = MeasurementLimit.of(Settings(lam=0.1, iterations=None, gap=1e-3))
    limit.tell_vectors(10**6)
    limit = MeasurementLimit.of(Settings(lam=0.1, iterations=1, gap=1e-3))
    for _ in range(4):
        limit.tell_table()
    with pytest.raises(ProtocolError, match="can need"):
        limit.tell_table()


@pytest.mark.parametrize("asked", [None, 301])
def test_a_roster_binds_the_number_of_iterations(asked):
    limits = Limits(most_iterations=300)
    assert not list(limits.objections(Settings(lam=0.1, iterations=300)))
    ((what, why, mend),) = limits.objections(Settings(lam=0.1, iterations=asked, gap=1e-3))
    assert what.startswith("iterations = ")
    assert "at most 300" in why
    assert "300" in mend


def test_a_policy_binds_the_number_of_problems():
    limits = Limits(most_problems=6)
    path = {"lam": 0.1, "path": (1.0, 0.3), "iterations": 9}
    assert not list(limits.objections(Settings(**path)))
    ((what, why, mend),) = limits.objections(Settings(**path, folds=2))
    assert what == "9 problems (3 λ × 3)"
    assert "at most 6" in why
    assert "fewer" in mend
