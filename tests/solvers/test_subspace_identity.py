"""The fast solvers give the same bits under every cipher, as bytes, and when they run again."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from itertools import product

import msgspec
import pytest

from covering import before_release, cover
from interposed import cut, outcome, quick, train
from weft.federation.local_federation import Preprocessing

#: Solver, loss and what else the run is told, by name; each is short, and each different.
RUNS = {
    "cutting planes": {"solver": "cutting-planes", "loss": "hinge"},
    "groups": {"solver": "cutting-planes", "loss": "hinge", "groups": 3},
    "lbfgs": {"solver": "lbfgs", "loss": "logistic"},
    "newton": {"solver": "newton-cg", "loss": "squared_hinge", "iterations": 2},
    "path and folds": {
        "solver": "cutting-planes",
        "loss": "hinge",
        "iterations": 2,
        "path": (0.5, 0.005),
        "folds": 2,
    },
}
some_runs = pytest.mark.parametrize(
    "run", ["cutting planes", "lbfgs", *before_release("groups", "newton", "path and folds")]
)
CUTS = ("hybrid 2×2", "horizontal", "vertical", "overlap", "multi-class", "labels at first")


def settings_of(run, **changes):
    return quick(**{"iterations": 4, "lam": 0.02, **RUNS[run], **changes})


def result_of(trained):
    """Model, history and stages, but for costs."""
    stages = [asdict(stage) for stage in trained.result.stages]
    return {**outcome(trained), "stages": stages}


@cache
def in_the_clear(name, run):
    return result_of(train(cut(name), settings_of(run, cipher="plain")))


@cover(
    ("name", "run"),
    [("labels at first", "groups"), ("multi-class", "lbfgs")],
    others=product(CUTS, RUNS),
)
def test_pads_change_no_bit_of_models_and_history(name, run):
    trained = train(cut(name), settings_of(run, cipher="pad"))
    assert result_of(trained) == in_the_clear(name, run)


CHOSEN = [
    ("hybrid 2×2", "cutting planes"),
    ("labels at first", "groups"),
    ("multi-class", "lbfgs"),
    ("labels at first", "lbfgs"),
    ("vertical", "newton"),
    ("overlap", "path and folds"),
]


@cover(
    ("cipher", "name", "run"),
    # Lattices meet these solvers in ``test_subspace_faults.py``, where answers are lost besides.
    [("paillier", *CHOSEN[3])],
    others=[(cipher, *chosen) for cipher in ("bfv", "paillier") for chosen in CHOSEN],
)
def test_lattices_and_paillier_change_no_bit_either(cipher, name, run):
    trained = train(cut(name), settings_of(run, cipher=cipher))
    assert result_of(trained) == in_the_clear(name, run)


@pytest.mark.parametrize("how", ["bytes", *before_release("pad", "bfv", "paillier")])
@pytest.mark.parametrize("penalize", [False, *before_release(True)])
def test_a_loss_of_all_classes_has_the_same_bits_too(how, penalize):
    settings = quick(
        solver="lbfgs", loss="softmax", penalize_intercept=penalize, iterations=4, lam=0.02
    )
    plain = msgspec.structs.replace(settings, cipher="plain")
    hidden = msgspec.structs.replace(settings, cipher="pad" if how == "bytes" else how)
    constant = Preprocessing(intercept=True)
    trained = train(cut("multi-class"), hidden, constant, packed=how == "bytes")
    assert result_of(trained) == result_of(train(cut("multi-class"), plain, constant))
    assert len(trained.result.certificate.primal) == 1


@pytest.mark.parametrize("loss", ["absolute", *before_release("epsilon_insensitive")])
def test_regressions_have_the_same_bits_under_pads(loss):
    settings = {"solver": "cutting-planes", "loss": loss, "iterations": 8, "lam": 0.02}
    plain, pad = (train(cut("regression"), quick(cipher=c, **settings)) for c in ("plain", "pad"))
    assert result_of(plain) == result_of(pad)


@pytest.mark.parametrize(
    ("solver", "loss", "iterations"),
    [
        ("lbfgs", "logistic", 12),
        pytest.param("newton-cg", "logistic", 6, marks=pytest.mark.release),
        pytest.param("cutting-planes", "hinge", 60, marks=pytest.mark.release),
    ],
)
def test_long_runs_that_drop_vectors_have_the_same_bits_under_pads(solver, loss, iterations):
    how = {"solver": solver, "loss": loss, "iterations": iterations, "lam": 0.001}
    plain, pad = (train(cut("overlap"), quick(cipher=c, **how)) for c in ("plain", "pad"))
    assert len(plain.result.history) == iterations
    assert result_of(plain) == result_of(pad)


@cover(
    ("run", "cipher"),
    [("groups", "pad"), ("path and folds", "plain")],
    others=product(RUNS, ["plain", "pad"]),
)
def test_messages_that_travel_as_bytes_give_the_same_bits(cipher, run):
    trained = train(cut("labels at first"), settings_of(run, cipher=cipher), packed=True)
    assert result_of(trained) == in_the_clear("labels at first", run)


@some_runs
def test_the_same_seed_gives_the_same_bits_again_under_new_keys(run):
    one, other = (train(cut("hybrid 2×2"), settings_of(run, cipher="pad")) for _ in range(2))
    assert result_of(one) == result_of(other)


@cover(
    ("cipher", "run"),
    # Under lattices: ``test_cipher_identity.py``.
    [("pad", "path and folds")],
    others=[*(("pad", run) for run in RUNS), ("bfv", "lbfgs"), ("paillier", "lbfgs")],
)
def test_the_weights_that_the_coordinator_saw_are_those_of_the_model(cipher, run):
    settings = settings_of(run, cipher=cipher, coordinator_sees="weights", iterations=1)
    trained = train(cut("hybrid 3×3"), settings)
    seen = trained.result.weights
    assert seen is not None
    # By column slots, which have no names at the coordinator: compare as sets of weights.
    assert sorted(seen.ravel().tolist()) == sorted(trained.model.coef.ravel().tolist())


def test_the_weights_that_the_coordinator_saw_are_of_the_lambda_that_is_released():
    for lam in (0.5, 0.05):
        settings = quick(
            lam=lam,
            iterations=2,
            path=(0.5, 0.05, 0.005),
            coordinator_sees="weights",
            solver="lbfgs",
            loss="logistic",
        )
        trained = train(cut("hybrid 3×3"), settings)
        assert trained.model.lam == lam
        seen = trained.result.weights
        assert sorted(seen.ravel().tolist()) == sorted(trained.model.coef.ravel().tolist())


@some_runs
def test_what_the_coordinator_sees_changes_no_bit_of_the_model(run):
    nothing, weights = (
        train(cut("hybrid 3×3"), settings_of(run, cipher="plain", coordinator_sees=sees))
        for sees in ("nothing", "weights")
    )
    assert nothing.result.weights is None
    assert result_of(nothing) == result_of(weights)
