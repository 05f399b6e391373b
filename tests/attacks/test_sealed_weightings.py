"""The row of one sample from two matrices over the same samples, which weigh them otherwise.

A Hessian weighs a sample by σ'(z). Whoever makes up a column chooses who is decided: between two
Hessians, or a Hessian and the Gram matrix of one run, that can be one sample of its choice.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.release import reader_join_second_moments
from weft.guards import Terms
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import party_second_moments

ROWS, ONE = 300, 17
BLOCK = np.random.default_rng(1).normal(size=(ROWS, 4))
CAREFUL = Terms(allow_second_moments=True)
EXPOSING = Terms(allow_second_moments=True, allow_exposure=True)


def opened(made_up, labels, terms, lam, matrices, ledger=None, gap=1e-4):
    """The matrices over a's four columns, and the weight of what b made up."""
    ids = [f"i{n}" for n in range(ROWS)]
    tiles = {
        "a": [Tile.make(ids, ["a0", "a1", "a2", "a3"], BLOCK, None)],
        "b": [Tile.make(ids, ["m"], made_up[:, None], labels)],
    }
    asked = Settings(lam=lam, loss="logistic", solver="sealed", gap=gap, second_moments=matrices)
    how = Preprocessing(intercept=False, scaling="none")
    trained = Federation(tiles, how, terms=terms, ledger=ledger).train(asked)
    moments, model = trained.second_moments, trained.model
    place = [list(moments.names).index(f"a{n}") for n in range(4)]
    hessian = moments.hessian[0][np.ix_(place, place)] * moments.samples
    gram = None if moments.gram is None else moments.gram[np.ix_(place, place)]
    return hessian, gram, model.coef[0][list(model.features).index("m")]


def curvature(score):
    """Of a sample, as a part of the most that it can be."""
    return 4 * expit(score) * expit(-score)


def cosine(difference):
    """Of the row that a matrix is made of, up to its sign, with the one that it should be."""
    row = np.linalg.eigh(difference)[1][:, -1]
    return abs(row @ BLOCK[ONE]) / np.linalg.norm(BLOCK[ONE])


def of_two_runs(terms, ledger):
    """60 samples are decided in the first run, all of them but one in the second."""
    number, large = np.arange(ROWS), 45.0
    decided = number < 60
    labels = np.where(decided, number // 2 % 2, number % 2)
    found = []
    for seed in range(2):
        noise = np.random.default_rng(seed).normal(size=ROWS) * 1e-3
        made_up = np.where(decided, np.where(labels > 0, large, -large), noise)
        found.append(opened(made_up, labels, terms, 3.0, ("hessian",), ledger))
        decided = decided & (number != ONE)
    (first, _, weight), (second, *_) = found
    return cosine(4 * (second - first) / (1 - curvature(weight * large)))


def of_one_run(terms, ledger):
    """Everybody is as decided as everybody else, but one sample, which is more so."""
    number, rng, size = np.arange(ROWS), np.random.default_rng(0), 30.0
    labels = number % 2
    made_up = np.where(number // 2 % 2 == labels, size, -size) * (1 + 1e-4 * rng.normal(size=ROWS))
    made_up[ONE] = 15 * size * (1 if labels[ONE] else -1)
    hessian, gram, weight = opened(made_up, labels, terms, 3.0, ("hessian", "gram"), ledger)
    usual, of_one = curvature(size * weight), curvature(made_up[ONE] * weight)
    return cosine((usual * gram - 4 * hessian) / (usual - of_one))


@pytest.mark.release
@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (of_two_runs, "over samples of which an earlier run opened some, one of the two a Hessian"),
        (of_one_run, "a Hessian beside another matrix of the same samples"),
    ],
)
def test_two_weightings_of_the_same_samples_tell_a_row_of_a_readers_choice(
    attack, why, tmp_path, record
):
    found = attack(EXPOSING, Ledger(tmp_path / "exposing"))
    assert found > 0.9
    record("71", "unguarded", f"4 cells of a chosen sample, cosine {found:.2f}")
    with pytest.raises(WeftError, match=why):
        attack(CAREFUL, Ledger(tmp_path / "careful"))
    record("71", "guarded", "refused")


@pytest.fixture
def lawless(monkeypatch):
    """b asks itself nothing; what readers get of a Hessian: leading digits, and the rest."""
    checks, adds, read = party_second_moments.check_moments, reader_join_second_moments._added, []

    def check(view, *told, **how):
        if view.party == 0:
            checks(view, *told, **how)

    def add(parts, order):
        matrices, off = adds(parts, order)
        if matrices is not None:
            read.append(matrices[0][:4, :4])
        return matrices, off

    monkeypatch.setattr(party_second_moments, "check_moments", check)
    monkeypatch.setattr(reader_join_second_moments, "_added", add)
    return read


def of_digits():
    """All samples are undecided, one a little less so: by half a unit of the leading digits."""
    number = np.arange(ROWS)
    labels = number % 2
    made_up = np.where(number // 2 % 2 == labels, 1.0, -1.0)
    made_up[ONE] = 200.0 if labels[ONE] else -200.0
    return opened(made_up, labels, CAREFUL, 1000.0, ("hessian",), gap=1e-8)[0]


def test_the_last_digits_of_a_hessian_are_no_second_matrix(lawless, monkeypatch, record):
    hessian = of_digits()
    hidden = lawless[1]
    lawless.clear()
    monkeypatch.setattr(party_second_moments, "carry_noise", lambda *_: 1)
    assert np.allclose(of_digits(), hessian, rtol=0, atol=1e-3)
    rest = lawless[1]
    found = cosine(rest * np.sign(np.trace(rest)))
    assert found > 0.999
    record("71", "unguarded", f"the same by digits of one matrix, cosine {found:.2f}")
    assert np.median(np.abs(hidden)) > 1000 * np.abs(rest).max()
    record("71", "guarded", "digits apart: noise")
