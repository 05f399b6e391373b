"""A sealed run that starts from a model takes fewer gradients, and ends in the same optimum."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from sealed_runs import CUTS, cut, held, optimum, table, weights

from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.solvers.settings import Settings


@pytest.mark.parametrize(
    ("how", "loss", "classes"),
    [("overlapping", "logistic", 2), ("vertical", "logistic", 3), ("grid", "squared", 0)],
)
def test_a_start_near_the_optimum_saves_gradients_and_changes_no_optimum(how, loss, classes):
    block, labels = table(classes=classes)
    tiles = cut(block, labels, CUTS[how])
    asked = Settings(lam=1e-2, loss=loss, solver="sealed", gap=1e-4)

    def run(settings, start=None):
        return Federation(tiles, Preprocessing(intercept=False)).train(settings, start=start)

    cold = run(asked)
    near = msgspec.structs.replace(asked, lam=9e-3)
    warm, again = run(near, cold.model), run(near)
    assert len(warm.result.history) < len(again.result.history)
    assert warm.result.certificate.gap <= 1e-4
    targets = [labels] if not classes else [2.0 * labels - 1]
    if classes == 3:
        targets = [np.where(labels == c, 1.0, -1.0) for c in range(3)]
    for w, target, dual in zip(
        weights(warm.model), targets, warm.result.certificate.dual, strict=True
    ):
        best, value = optimum(held(block, CUTS[how]), target, 9e-3, loss)
        assert dual <= best <= value(w) <= best / (1 - 1e-4)


@pytest.mark.parametrize("far", [1e3, 0.0])
def test_a_start_that_is_far_off_is_left(far):
    block, labels = table()
    tiles = cut(block, labels, CUTS["vertical"])
    asked = Settings(lam=1e-2, loss="logistic", solver="sealed")
    cold = Federation(tiles, Preprocessing(intercept=False)).train(asked)
    model = cold.model
    model.coef[:] = far * model.coef
    warm = Federation(tiles, Preprocessing(intercept=False)).train(asked, start=model)
    assert warm.result.certificate.gap <= 1e-3
    best, value = optimum(block, 2.0 * labels - 1, 1e-2, "logistic")
    assert value(weights(warm.model)[0]) - best <= 1e-3 * value(weights(warm.model)[0])
