"""Products of the Hessian and dual vectors never stand for each other."""

from __future__ import annotations

import numpy as np
import pytest

from covering import before_release
from weft.data import SPLITS, load
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.guards.min_batch_between_sums import SeenBatches
from weft.solvers.run_settings import Settings


def test_a_dual_vector_that_is_held_back_takes_values_of_a_dual_vector():
    batches = SeenBatches(np.zeros(30, np.int64), 10, 1)
    first = np.linspace(0.5, 1.0, 30)[:, None]
    products = -np.linspace(1.0, 3.0, 30)[:, None]
    assert not batches.admit(first.copy()).any()
    assert not batches.admit(products.copy(), dual=False).any()
    few = first.copy()
    few[:3] = 0.0
    assert batches.admit(few).all()
    assert np.array_equal(few, first)
    few = products.copy()
    few[:3] = 0.0
    assert batches.admit(few, dual=False).all()
    assert np.array_equal(few, products)


@pytest.mark.parametrize("loss", ["squared_hinge", *before_release("logistic")])
def test_newton_bounds_the_optimum_where_a_guard_restrains_it(loss):
    """Small parties, little regularisation: some samples carry nearly all of the loss."""
    table = load("breast_cancer").rows(np.arange(0, 569, 6))
    split = SPLITS["rows"](table, parties=4)
    how = Preprocessing(scaling="standard", unit_rows=True, intercept=True)

    def certificate(solver, terms, gap):
        settings = Settings(
            lam=1e-4, loss=loss, solver=solver, gap=gap, iterations=60, cipher="plain"
        )
        return Federation(split.parties, how, terms=terms).train(settings).result

    free = certificate(
        "lbfgs", Terms(min_batch=1, allow_sample_norms=True, ciphers=("plain",)), 1e-7
    )
    bound = certificate(
        "newton-cg", Terms(min_batch=8, allow_sample_norms=True, ciphers=("plain",)), 1e-6
    )
    # Norms of samples are allowed, so that both have the same scaling and the same optimum.
    optimum = free.certificate
    assert max(record.dual for record in bound.history) <= optimum.primal[0] * (1 + 1e-9)
    assert bound.certificate.primal[0] >= optimum.dual[0] * (1 - 1e-9)
