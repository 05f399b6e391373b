"""All ciphers give the same bits: encryption changes what can be read, and nothing else."""

from __future__ import annotations

from functools import cache
from itertools import product

import msgspec
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from covering import before_release, cover, every_value
from interposed import (
    CIPHERS,
    HIDING,
    LOCALS,
    PARTICIPATIONS,
    Middle,
    cut,
    interpose,
    outcome,
    quick,
    table_of,
    train,
)
from weft.data import SPLITS, Table, load, pool
from weft.errors import ConfigError, WeftError
from weft.federation import local_joint_prediction as joint
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.party import Party
from weft.guards import OPEN, Terms
from weft.solvers.run_settings import Settings

CUTS = (
    "hybrid 2×2",
    "hybrid 3×3",
    "horizontal",
    "vertical",
    "overlap",
    "multi-class",
    "regression",
)


def settings_of(name, **changes):
    loss = "squared" if name == "regression" else "hinge"
    return quick(loss=loss, **changes)


@cache
def in_the_clear(name, local, participation, **changes):
    where = PARTICIPATIONS[participation]
    settings = settings_of(name, local=local, participation=where, cipher="plain", **changes)
    return outcome(train(cut(name), settings))


# ── training ──────────────────────────────────────────────────────────────────────────────────


@every_value(name=CUTS, local=LOCALS, participation=range(3))
def test_pads_change_no_bit_of_model_and_history(name, local, participation):
    where = PARTICIPATIONS[participation]
    settings = settings_of(name, local=local, participation=where, cipher="pad")
    assert outcome(train(cut(name), settings)) == in_the_clear(name, local, participation)


# Every local method meets every participation, and every cut is met by several of them.
CHOSEN = [
    ("hybrid 2×2", "safe", 0),
    ("hybrid 2×2", "safe", 1),
    ("hybrid 2×2", "practical", 1),
    ("hybrid 3×3", "practical", 2),
    ("horizontal", "safe", 2),
    ("horizontal", "theory", 0),
    ("vertical", "theory", 1),
    ("vertical", "practical", 0),
    ("overlap", "theory", 2),
    ("overlap", "practical", 1),
    ("multi-class", "practical", 0),
    ("multi-class", "theory", 1),
    ("regression", "theory", 0),
    ("regression", "safe", 2),
]


@cover(
    ("cipher", "name", "local", "participation"),
    # Under lattices: the run with exchanged slots in ``test_malformed.py``, and ``test_rounds.py``.
    [("paillier", *CHOSEN[2])],
    others=[(cipher, *chosen) for cipher in ("bfv", "paillier") for chosen in CHOSEN],
)
def test_lattices_and_paillier_change_no_bit_either(cipher, name, local, participation):
    where = PARTICIPATIONS[participation]
    settings = settings_of(name, local=local, participation=where, cipher=cipher)
    assert outcome(train(cut(name), settings)) == in_the_clear(name, local, participation)


@pytest.mark.parametrize("cipher", ["pad", *before_release("bfv", "paillier")])
def test_parties_without_labels_get_the_same_bits_under_every_cipher(cipher):
    """α goes down to them in a phase of its own."""
    split = cut("labels at first")
    how = {"participation": 0.5, "iterations": 2}
    runs = [train(split, quick(cipher=c, **how)) for c in ("plain", cipher)]
    assert outcome(runs[0]) == outcome(runs[1])


@cover(
    ("cipher", "scaling"),
    [("pad", "standard")],
    others=product(HIDING, ["standard", "minmax"]),
)
def test_scaling_agreed_on_under_encryption_has_the_same_bits(scaling, cipher):
    how = Preprocessing(scaling=scaling, unit_rows=True, intercept=True)
    table = table_of("breast_cancer", 20, 4)
    # Far from scaled: columns of very different size, and one that is constant.
    block = table.block * np.array([1e-3, 1.0, 50.0, 0.0]) + np.array([5.0, 0.0, -300.0, 2.0])
    table = Table(table.ids, table.features, block, table.labels, table.task)
    split = SPLITS["grid"](table, k=2, q=2)
    one, other = (
        train(split, quick(cipher=c, iterations=2, local="practical"), how)
        for c in ("plain", cipher)
    )
    assert outcome(one) == outcome(other)
    for a, b in zip(one.model.scaling, other.model.scaling, strict=True):
        assert a.tobytes() == b.tobytes()


@cover(
    ("solver", "cipher"),
    [("hyfdca", "pad"), ("cutting-planes", "pad")],
    others=product(["hyfdca", "lbfgs"], HIDING),
)
def test_parties_that_compute_at_once_have_the_same_bits(solver, cipher):
    settings = quick(
        solver=solver, cipher=cipher, loss="logistic" if solver == "lbfgs" else "hinge"
    )
    alone, together = (train(cut("hybrid 3×3"), settings, threads=n) for n in (1, 4))
    assert outcome(alone) == outcome(together)


def test_parties_compute_on_one_thread_at_least():
    with pytest.raises(ConfigError, match="cannot compute on 0 threads"):
        train(cut("hybrid 2×2"), quick(), threads=0)


@pytest.mark.parametrize("cipher", ["bfv", *before_release("pad", "paillier")])
def test_messages_that_travel_as_bytes_give_the_same_bits(cipher):
    settings = quick(cipher=cipher, local="practical", participation=0.5)
    trained = train(cut("hybrid 2×2"), settings, packed=True)
    assert outcome(trained) == in_the_clear("hybrid 2×2", "practical", 1)


@pytest.mark.parametrize("cipher", ["pad", *before_release("bfv", "paillier")])
def test_the_same_seed_gives_the_same_bits_again_under_new_keys(cipher):
    settings = quick(cipher=cipher, participation=0.5, iterations=3)
    one, other = (train(cut("hybrid 2×2"), settings) for _ in range(2))
    assert outcome(one) == outcome(other)


# ── prediction ────────────────────────────────────────────────────────────────────────────────


@every_value(name=["hybrid 2×2", "vertical", "overlap", "multi-class"], cipher=HIDING)
def test_joint_predictions_have_the_same_bits(name, cipher):
    split = cut(name)
    model = train(split, quick(cipher="plain", local="practical")).model
    with interpose(Middle()):
        ids, clear = joint.predict_scores(model, split.parties, cipher="plain")
        again, hidden = joint.predict_scores(model, split.parties, cipher=cipher)
    assert ids.tolist() == again.tolist()
    assert clear.tobytes() == hidden.tobytes()
    pooled = pool(split)
    place = {sample: i for i, sample in enumerate(ids.tolist())}
    order = [place[sample] for sample in pooled.ids.tolist()]
    columns = [pooled.features.tolist().index(f) for f in model.features.tolist()]
    expected = pooled.block[:, columns] @ model.coef.T + model.intercept
    np.testing.assert_allclose(hidden[order], expected, atol=1e-9)


# ── what the coordinator may see ──────────────────────────────────────────────────────────────


@cover(("local", "participation"), [("safe", 0.5)], others=product(LOCALS, ["everyone", 0.5]))
def test_what_the_coordinator_sees_changes_no_bit_of_the_model(local, participation):
    split = cut("hybrid 3×3")
    how = {"local": local, "participation": participation, "iterations": 2}
    runs = [
        train(split, quick(**how, coordinator_sees=sees))
        for sees in ("nothing", "weights", "papers")
    ]
    assert runs[0].result.weights is None
    for other in runs[1:]:
        assert outcome(other) == outcome(runs[0])


@pytest.mark.parametrize("cipher", ["bfv", *before_release("pad", "paillier")])
def test_the_weights_that_the_coordinator_saw_are_those_of_the_model(cipher):
    split = cut("hybrid 3×3")
    trained = train(
        split, quick(cipher=cipher, local="practical", coordinator_sees="weights", iterations=1)
    )
    seen = trained.result.weights
    assert seen is not None
    # By column slots, which have no names at the coordinator: compare as sets of weights.
    np.testing.assert_array_equal(np.sort(seen.ravel()), np.sort(trained.model.coef.ravel()))
    assert np.unique(seen).size == seen.size


def test_under_the_papers_protocol_the_feature_sums_lie_open_and_nothing_else(tmp_path):
    trained = train(cut("hybrid 2×2"), quick(coordinator_sees="papers"), record=True)
    codes = {
        (kind, recorded.reply[kind][3])
        for recorded in trained.channel.transcript
        if recorded.phase.startswith("hyfdca.") and recorded.phase not in SETTING_UP
        for kind in ("z", "v", "alpha")
        if kind in recorded.reply
    }
    plain, pad = 1, 2
    assert codes == {("v", plain), ("z", pad), ("alpha", pad)}


SETTING_UP = ("hyfdca.norms", "hyfdca.spread", "hyfdca.gather", "hyfdca.begin")


@pytest.mark.parametrize("name", ["hybrid 2×2", "vertical", "overlap"])
def test_weights_are_not_shown_where_a_feature_has_fewer_than_three_holders(name):
    with pytest.raises(ConfigError, match="needs 3 holders of every feature") as caught:
        train(cut(name), quick(coordinator_sees="weights"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sees", ["papers", "weights", "nothing"])
def test_a_party_with_real_data_refuses_the_papers_protocol(sees, monkeypatch):
    split = cut("hybrid 3×3")

    class Real(Party):
        def __init__(self, *arguments, consent, **options):
            terms = msgspec.structs.replace(OPEN, coordinator_sees="weights")
            super().__init__(*arguments, terms=terms, **options)

    monkeypatch.setattr("weft.federation.local_federation.Party", Real)
    if sees != "papers":
        train(split, quick(coordinator_sees=sees, iterations=1))
        return
    with pytest.raises(
        WeftError, match=r"party r1c1 refuses coordinator_sees = 'papers'"
    ) as caught:
        train(split, quick(coordinator_sees=sees))
    assert "\n" not in str(caught.value)


def test_parties_insist_on_the_careful_terms_unless_they_are_told_otherwise(monkeypatch):
    class Real(Party):
        def __init__(self, *arguments, consent, **options):
            super().__init__(*arguments, **options)

    monkeypatch.setattr("weft.federation.local_federation.Party", Real)
    assert train(cut("hybrid 3×3"), quick(iterations=1)).holdings.terms == Terms()
    # Also where a coordinator does not listen.
    monkeypatch.setattr(
        "weft.federation.participation_terms_and_classes.coordinator._terms",
        lambda party, reply: OPEN,
    )
    with pytest.raises(WeftError, match="r1c1 refuses a run with min_batch = 1"):
        train(cut("hybrid 3×3"), quick())


# ── the outside judge ─────────────────────────────────────────────────────────────────────────


def test_the_certificate_on_digits_reaches_one_in_a_million_under_pads():
    """And sklearn, which sees the pooled table, finds no better model than the bound allows."""
    table = load("digits")
    block = np.asarray(table.block) / np.linalg.norm(np.asarray(table.block), axis=1).max()
    labels = np.where(table.labels % 2 == 0, 1, -1)
    table = Table(table.ids, table.features, block, labels, table.task)
    split, lam = SPLITS["grid"](table, k=2, q=2), 0.1
    settings = Settings(lam=lam, loss="logistic", gap=1e-6, iterations=2000, cipher="pad")
    trained = Federation(split.parties).train(settings)
    certificate = trained.result.certificate
    assert certificate is not None
    assert certificate.gap <= 1e-6

    def primal(w):
        return lam / 2 * w @ w + np.logaddexp(0, -labels * (block @ w)).mean()

    judge = LogisticRegression(
        C=1 / (lam * len(labels)), fit_intercept=False, tol=1e-10, max_iter=10_000
    )
    best = primal(judge.fit(block, labels).coef_[0])
    place = {name: i for i, name in enumerate(trained.model.features.tolist())}
    mine = primal(trained.model.coef[0, [place[name] for name in table.features.tolist()]])
    assert mine == pytest.approx(certificate.primal[0], rel=1e-9)
    assert best <= mine <= best * (1 + 1.1e-6)
    assert certificate.dual[0] <= best * (1 + 1e-9)


def test_every_cipher_is_tested_here():
    from weft.crypto.ciphers.block_format import CIPHERS as known

    assert set(known) == set(CIPHERS)
