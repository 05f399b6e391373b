"""Bad guesses of losses without a steepest slope: whole cohorts are left out of a dual vector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import xlogy
from sklearn.linear_model import PoissonRegressor

from weft.data import Tile
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide
from weft.solvers.subspace.told_losses_and_vectors_limit import MeasurementLimit

LAM = 1e-3


def limit(**more: Any) -> MeasurementLimit:
    return MeasurementLimit.of(Settings(lam=LAM, loss="squared", solver="lbfgs", **more))


def side(cohorts: list[int], limit: MeasurementLimit) -> Any:
    view = SimpleNamespace(row_cohort=np.array(cohorts), sizes=np.zeros(max(cohorts) + 1))
    return SimpleNamespace(
        _largest_dual=1.0, _problems=SimpleNamespace(width=2), _limit=limit, _view=view
    )


def test_whole_cohorts_are_left_out() -> None:
    """So that no sum bends where one sample comes to the bound, and all holders do alike."""
    duals = np.full((5, 4), 0.5)
    duals[1, 2], duals[4, 1], duals[3, 3] = -1.1, np.nan, 1.0
    found, some = SampleSide._within(side([0, 0, 1, 1, 1], limit()), duals)
    expected = np.full((5, 4), 0.5)
    expected[3, 3] = 1.0
    expected[:2, 2] = 0.0
    expected[2:, 1] = 0.0
    np.testing.assert_array_equal(found, expected)
    assert some.tolist() == [False, True, True, False]


def test_it_is_told_of_few_vectors_in_a_run() -> None:
    few = limit()
    for _ in range(16):
        # Two steps, of two problems each.
        SampleSide._within(side([0], few), np.full((1, 4), 2.0))
    with pytest.raises(ProtocolError, match="again and again"):
        SampleSide._within(side([0], few), np.full((1, 2), 2.0))
    more = limit(path=(1e-1, 1e-2))
    more.leave_out(96)
    with pytest.raises(ProtocolError, match="again and again"):
        more.leave_out(1)


def test_bounds_hold_where_parties_leave_out_different_cohorts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows overlap: a cohort that two parties hold is left out by both, or by none."""
    random = np.random.default_rng(3)
    block = random.standard_normal((450, 6))
    y = random.poisson(np.exp(np.minimum(block @ np.full(6, 0.6), 4.0))).astype(float)
    ids = np.array([f"i{i}" for i in range(450)], dtype=object)
    names = np.array([f"x{j}" for j in range(6)], dtype=object)
    places = (
        (slice(0, 250), slice(0, 3)),
        (slice(150, 350), slice(3, 6)),
        (slice(0, 150), slice(3, 6)),
        (slice(250, 450), slice(0, 3)),
        (slice(350, 450), slice(3, 6)),
    )
    parties = {
        f"p{k}": (Tile(ids[rows], names[columns], block[rows, columns].copy(), y[rows]),)
        for k, (rows, columns) in enumerate(places)
    }
    told: list[int] = []
    leave_out = MeasurementLimit.leave_out

    def note(self: MeasurementLimit, count: int) -> None:
        told.append(count)
        leave_out(self, count)

    monkeypatch.setattr(MeasurementLimit, "leave_out", note)
    run = Federation(
        parties,
        Preprocessing(intercept=False),
        terms=Terms(ciphers=("plain",), allow_pairs=True, min_batch=1),
    ).train(Settings(lam=LAM, loss="poisson", solver="lbfgs", gap=1e-4, cipher="plain"))
    assert told
    judge = PoissonRegressor(alpha=LAM, fit_intercept=False, tol=1e-10, max_iter=10_000)
    w = judge.fit(block, y).coef_
    z = block @ w
    best = float((np.exp(z) - y * z - y + xlogy(y, y)).mean() + 0.5 * LAM * w @ w)
    for record in run.result.history:
        assert record.dual is not None
        assert record.primal is not None
        assert record.dual <= best * (1 + 1e-7)
        assert best <= record.primal * (1 + 1e-7)
    assert run.result.certificate.gap <= 1e-4
