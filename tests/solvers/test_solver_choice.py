"""Which solver runs, what each refuses, and starting from a model."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from covering import cover
from weft.data import SPLITS
from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Preprocessing
from weft.losses import LOSSES
from weft.solvers.algorithm_choice import ALGORITHMS, resolve
from weft.solvers.run_settings import Settings

KINKS = ("hinge", "absolute", "epsilon_insensitive")


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("participation", ["everyone", 0.5, {"cyclic": 2}])
def test_the_loss_chooses_whoever_comes(loss, participation):
    settings, reason = resolve(
        Settings(lam=1e-2, loss=loss, solver="auto", participation=participation)
    )
    assert settings.solver == ("cutting-planes" if loss in KINKS else "lbfgs")
    assert settings.solver in reason
    assert loss in reason
    assert ("wait until every party has come by" in reason) == (participation != "everyone")


@pytest.mark.parametrize(
    "changed",
    [
        {"local": "practical"},
        {"local": "practical", "participation": 0.5},
        {"iic": 0.1},
        {"norms": "cohort"},
        {"certify_every": 5},
        {"coordinator_sees": "papers"},
    ],
)
def test_hyfdca_is_chosen_where_only_it_can(changed):
    settings, reason = resolve(Settings(lam=1e-2, solver="auto", **changed))
    assert settings.solver == "hyfdca"
    assert "hyfdca" in reason


def test_checkpoints_choose_hyfdca():
    assert resolve(Settings(lam=1e-2, solver="auto"), saves=True)[0].solver == "hyfdca"


@pytest.mark.parametrize("solver", sorted(ALGORITHMS))
def test_a_named_solver_stays(solver):
    loss = "hinge" if solver == "cutting-planes" else "logistic"
    settings = Settings(lam=1e-2, solver=solver, loss=loss)
    assert resolve(settings) == (settings, "")


@pytest.mark.parametrize(
    ("settings", "saves", "warm", "words"),
    [
        ({"solver": "lbfgs", "loss": "hinge"}, False, False, "cutting-planes"),
        ({"solver": "newton-cg", "loss": "absolute"}, False, False, "cutting-planes"),
        ({"solver": "cutting-planes", "loss": "logistic"}, False, False, "lbfgs"),
        ({"solver": "disco", "participation": 0.5, "loss": "logistic"}, False, False, "hyfdca"),
        ({"solver": "cutting-planes", "coordinator_sees": "papers"}, False, False, "hyfdca"),
        ({"solver": "cutting-planes"}, True, False, "hyfdca"),
        ({"solver": "hyfdca", "path": (1e-1,)}, False, False, "auto"),
        ({"solver": "hyfdca", "folds": 3}, False, False, "auto"),
        ({"solver": "hyfdca"}, False, True, "auto"),
        ({"solver": "auto", "iic": 0.5, "folds": 3}, False, False, "auto"),
        ({"solver": "lbgfs"}, False, False, "lbfgs"),
    ],
)
def test_what_a_solver_cannot_do_is_refused_and_another_named(settings, saves, warm, words):
    with pytest.raises(ConfigError, match=words):
        resolve(Settings(lam=1e-2, **settings), saves=saves, warm=warm)


@cover(
    ("loss", "scaling"),
    [("logistic", "standard")],
    others=product(["hinge", "logistic"], ["none", "standard"]),
)
def test_a_run_that_starts_from_its_own_model_begins_where_it_ended(loss, scaling, tables):
    """A smooth loss is certified at once; one with kinks has to find its cuts again."""
    split = SPLITS["grid"](tables.digits(200), k=2, q=2)
    how = Preprocessing(scaling=scaling, unit_rows=scaling != "none", intercept=True)
    settings = Settings(lam=1e-3, loss=loss, solver="auto", cipher="plain", gap=1e-4)
    cold = Federation(split.parties, how).train(settings)
    warm = Federation(split.parties, how).train(settings, start=cold.model)
    longest = 2 if loss == "logistic" else len(cold.result.history)
    assert len(warm.result.history) <= longest
    assert warm.result.history[0].primal <= cold.result.history[-1].primal * (1 + 1e-9)
    assert warm.result.certificate.gap <= 1e-4
    (before,), (after,) = cold.result.certificate.primal, warm.result.certificate.primal
    assert after <= before * (1 + 1e-12)


def test_a_start_is_only_a_start(tables, judge):
    """From the model of another λ and half of the features, the optimum is the same."""
    split = SPLITS["grid"](tables.digits(200), k=2, q=2)
    tile = tables.digits(200).to_tile().columns(np.arange(32))
    settings = Settings(lam=1e-2, solver="auto", cipher="plain", gap=1e-4)
    start = Federation({"alone": (tile,)}).train(Settings(lam=1e-1, solver="auto", cipher="plain"))
    trained = Federation(split.parties).train(settings, start=start.model)
    best = judge.optimum(judge.problem("hinge", split, 1e-2))
    (primal,) = trained.result.certificate.primal
    assert best <= primal * (1 + 1e-9)
    assert primal <= best * (1 + 1.1e-4)


def test_a_model_of_other_classes_is_no_start(tables):
    split = SPLITS["grid"](tables.digits(200), k=2, q=2)
    settings = Settings(lam=1e-2, solver="auto", cipher="plain")
    model = Federation(split.parties).train(settings).model
    many = np.vstack([model.coef] * 3)
    wrong = type(model)(**{**vars_of(model), "coef": many, "intercept": np.zeros(3)})
    with pytest.raises(Exception, match="start from has weights for 3 class"):
        Federation(split.parties).train(settings, start=wrong)


def vars_of(model):
    from dataclasses import fields

    return {field.name: getattr(model, field.name) for field in fields(model) if field.init}
