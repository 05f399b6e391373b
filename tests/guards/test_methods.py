"""Guards hold for every method in rounds: none shows sums of a few samples, and all train."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from covering import before_release, some_of
from weft.data import SPLITS, Table, Tile, load
from weft.errors import ProtocolError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.fedavg_fedprox_hyfem import FedavgCoordinator
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState
from weft.solvers.rounds.party import RoundParty
from weft.solvers.rounds.point_certificate import PointParty
from weft.solvers.run_settings import Settings

METHODS = {
    name: algorithm
    for name, algorithm in ALGORITHMS.items()
    if isinstance(algorithm.coordinator(), RoundCoordinator)
}
#: Methods whose messages depend on samples that they draw.
DRAWING = {
    "fedavg": {},
    "fedprox": {},
    "hyfem": {},
    "cocoa": {},
    "cocoa+": {},
    "d3ca": {},
}


def table(n=240):
    whole = load("breast_cancer")
    block = (whole.block - whole.block.mean(axis=0)) / whole.block.std(axis=0)
    block = block[:n] / np.linalg.norm(block, axis=1).max()
    return Table(whole.ids[:n], whole.features, block, whole.labels[:n], whole.task)


def split_of(cut):
    if cut == "any":
        return SPLITS["grid"](table(), k=3, q=3)
    if cut == "whole":
        return SPLITS["rows"](table(), parties=1)
    return SPLITS[cut](table(), parties=3)


def train(name, **changes):
    split = split_of(METHODS[name].cut)
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap), terms=Terms())
    how = {"loss": "logistic", "lam": 1e-2, "gap": None, "iterations": 8, "certify_every": 4}
    trained = federation.train(Settings(**{**how, "solver": name, **changes}))
    return federation, trained


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_under_careful_terms(name):
    _, trained = train(name)
    assert trained.result.certificate.gap < 1.0
    assert np.abs(trained.model.coef).max() > 0


@pytest.mark.parametrize("name", some_of(DRAWING, "fedavg", "cocoa", "d3ca"))
def test_draws_of_a_few_samples_change_nothing_that_others_see(name):
    """Two samples an iteration and party: any sum that moved would be theirs."""
    federation, trained = train(name, iic=2 * len(split_of(METHODS[name].cut).parties) / 240)
    assert any("held back" in note for note in trained.result.notes)
    assert not trained.model.coef.any()
    for party in federation.parties.values():
        assert not party._half.w.any()


def test_a_run_counts_what_parties_hold_back_of_points_that_are_certified(monkeypatch):
    """Between points, few samples pass the kink of their loss."""
    answer, told = PointParty.losses, []

    def heard(party, message):
        reply = answer(party, message)
        told.append(reply.held)
        return reply

    monkeypatch.setattr(PointParty, "losses", heard)
    _, trained = train("fedavg", loss="hinge", iterations=25, certify_every=1)
    (note,) = [note for note in trained.result.notes if "held back" in note]
    assert sum(told) > 0
    assert f"min_batch = 10 held back or spread {sum(told)} changes" in note


def test_a_point_that_comes_too_close_to_one_that_was_given_up_ends_the_run(monkeypatch):
    """Parties have told of a point that the coordinator forgets, so that the next is compared."""
    accept, points = RoundsState._accept, []

    def forgetful(state, point):
        points.append(point)
        if len(points) == 6:
            state.point = None
        else:
            accept(state, point)

    monkeypatch.setattr(RoundsState, "_accept", forgetful)
    with pytest.raises(ProtocolError, match="too close to one that was given up; start again"):
        train("fedavg", loss="hinge", iterations=25, certify_every=1)
    assert len(points) >= 6


@pytest.mark.parametrize("name", some_of(DRAWING, "fedavg", "cocoa", "d3ca"))
def test_draws_of_enough_samples_are_let_through(name):
    _, trained = train(name, iic=1.0)
    assert np.abs(trained.model.coef).max() > 0


def test_hinge_slopes_in_certificates_change_together_or_not_at_all():
    """a_i = −l'(z_i) of a hinge jumps for single samples; what others see of it must not."""
    seen = {}

    def look(record):
        for name, party in federation.parties.items():
            seen.setdefault(name, []).append(party._half.measured._alpha.copy())

    split = SPLITS["rows"](table(), parties=3)
    federation = Federation(split.parties, Preprocessing(), terms=Terms())
    how = {"loss": "hinge", "lam": 1e-2, "gap": None, "iterations": 120, "certify_every": 4}
    options = {"gradient": "full", "a": 0.5}
    federation.train(Settings(solver="fedavg", options=options, **how), progress=look)
    changes = set()
    for name, alphas in seen.items():
        assert federation.parties[name].view.exposed.all()
        for old, new in pairwise(alphas):
            changes.add(int((old != new).sum()))
    assert changes - {0}, "nothing ever changed: this shows nothing"
    assert all(count == 0 or count >= 10 for count in changes)


# ── what attacks found ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", [7, *before_release(23, 17, 33)])
def test_a_point_that_is_given_up_leaves_no_bound_that_is_wrong(seed):
    """Some holders have a new dual vector then and others not; the next must be the same at all."""
    split = split_of("any")
    terms = {"allow_pairs": True, "allow_crossed_cells": True, "allow_one_column": True}
    ciphers = Terms(min_contributors=2, ciphers=("plain",), **terms)
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap), terms=ciphers)
    how = {"loss": "hinge", "lam": 1e-2, "gap": None, "cipher": "plain"}
    best = Federation(split.parties, Preprocessing(overlap=split.overlap)).train(
        Settings(solver="cutting-planes", **{**how, "gap": 1e-6})
    )
    how |= {"iterations": 67, "certify_every": 1, "participation": 0.6, "seed": seed}
    options = {"gradient": "full", "a": 1.0}
    trained = federation.train(Settings(solver="fedavg", options=options, **how))
    assert trained.result.certificate.dual[0] <= best.result.certificate.primal[0]
    seen = {}
    for party in federation.parties.values():
        for ids, slots in zip(party._matching.ids, party.view.tile_rows, strict=True):
            for sample, slot in zip(ids.tolist(), slots.tolist(), strict=True):
                alpha = party._half.measured._alpha[slot, 0]
                assert seen.setdefault(sample, alpha) == alpha


def totals_at(name, tiles, settings):
    """The totals by feature that a party opens in a run under careful terms, less its own part."""
    found = []
    federation = Federation(tiles, Preprocessing(), terms=Terms())
    opened = RoundParty.opened

    def spy(self, kind, totals, own):
        total = opened(self, kind, totals, own)
        if kind == "v" and self is federation.parties[name]._half:
            sent = self.sums["v"].sent / self.sums["v"]._scale
            # In the order of the table's columns, not of slots.
            found.append((total[: len(sent)] - sent)[self.view.tile_columns[0], 0])
        return total

    with patch.object(RoundParty, "opened", spy):
        federation.train(settings)
    return np.array(found)


def nearest(vectors, rows):
    """The largest cosine of any vector with any row."""
    norms = np.linalg.norm(vectors, axis=1)
    vectors = vectors[norms > 1e-9] / norms[norms > 1e-9][:, None]
    if not len(vectors):
        return 0.0
    return float(np.abs(vectors @ (rows / np.linalg.norm(rows, axis=1)[:, None]).T).max())


def one_sample_that_counts():
    """Rows at three parties; of the first two, a single sample has a label other than zero."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(240, 8))
    labels = np.zeros(240)
    labels[7] = 3.0
    labels[160:] = block[160:] @ rng.normal(size=8)
    parts = {f"p{i}": slice(80 * i, 80 * i + 80) for i in range(3)}
    ids, names = [f"s{i}" for i in range(240)], [f"f{j}" for j in range(8)]
    tiles = {
        name: (Tile.make(ids[part], names, block[part], labels[part]),)
        for name, part in parts.items()
    }
    return tiles, block[:160]


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedhybrid", {"newton": "none"}), ("fedhybrid", {})],
    ids=str,
)
@pytest.mark.parametrize("min_batch", [1, 10])
def test_a_single_sample_with_a_slope_does_not_show(name, options, min_batch, monkeypatch):
    tiles, rows = one_sample_that_counts()
    if min_batch == 1:
        monkeypatch.setattr(RoundParty, "enough", lambda self, used: np.ones(used.shape[1], bool))
    how = {"loss": "squared", "lam": 1e-2, "gap": None, "iterations": 3, "certify_every": 100}
    found = nearest(totals_at("p2", tiles, Settings(solver=name, options=options, **how)), rows)
    if min_batch == 1:
        assert found > 0.98, "the attack must work without the guard"
    else:
        assert found < 0.95


def test_a_diagonal_shows_no_single_sample(monkeypatch):
    """With a rounded hinge few samples have curvature; the diagonal is Σ l'' x²."""
    rng = np.random.default_rng(1)
    block = rng.normal(size=(240, 8))
    labels = np.where(block[:, 0] + 0.3 * rng.normal(size=240) > 0, 1, -1)
    ids, names = [f"s{i}" for i in range(240)], [f"f{j}" for j in range(8)]
    tiles = {
        f"p{i}": (
            Tile.make(
                ids[80 * i : 80 * i + 80],
                names,
                block[80 * i : 80 * i + 80],
                labels[80 * i : 80 * i + 80],
            ),
        )
        for i in range(3)
    }
    how = {"loss": "smoothed_hinge", "loss_parameters": {"g": 0.01}, "lam": 1e-2, "gap": None}
    settings = Settings(solver="disco", iterations=60, certify_every=1000, **how)
    squares = block[:160] ** 2
    assert nearest(totals_at("p2", tiles, settings), squares) < 0.999
    monkeypatch.setattr(RoundParty, "enough", lambda self, used: np.ones(used.shape[1], bool))
    assert nearest(totals_at("p2", tiles, settings), squares) > 0.999999


def test_every_class_has_enough_samples_or_none():
    """One sample of a third class: its own problem's gradient must not be that row."""
    split = SPLITS["rows"](table(), parties=3)
    federation = Federation(split.parties, Preprocessing(), terms=Terms())
    how = {"loss": "logistic", "lam": 1e-2, "gap": None, "iterations": 1}
    federation.train(Settings(solver="fedavg", **how))
    half = next(iter(federation.parties.values()))._half
    used = np.zeros((half.view.n_rows, 3), bool)
    used[:, 0], used[:10, 1], used[0, 2] = True, True, True
    assert half.enough(used).tolist() == [True, True, False]


def test_full_gradients_of_a_hinge_show_no_single_row():
    """w_t, w_{t+1}, w_{t+2} give differences of gradients, in which single samples come and go."""
    split = SPLITS["rows"](table(), parties=3)
    told = {name: [] for name in split.parties}

    def look(record):
        for name, party in federation.parties.items():
            told[name].append(party._half._told[:, 0].copy())

    federation = Federation(split.parties, Preprocessing(), terms=Terms())
    how = {"loss": "hinge", "lam": 1e-3, "gap": None, "iterations": 60, "certify_every": 1000}
    options = {"gradient": "full", "a": 30.0}
    federation.train(Settings(solver="fedavg", options=options, **how), progress=look)
    changes = {int((a != b).sum()) for vectors in told.values() for a, b in pairwise(vectors)}
    assert changes - {0}
    assert all(count == 0 or count >= 10 for count in changes)


@pytest.mark.parametrize(
    ("weight", "weights"),
    [(1, [1]), (1, [4]), (1, [10**9]), (2, [3]), (1, [3, 3]), (0, [3]), (80, [79]), (80, [10**6])],
    ids=str,
)
def test_shares_of_a_mean_that_nobody_has_are_refused(weight, weights):
    """Else a coordinator could let one party's update stand alone in the sum."""
    split = SPLITS["rows"](table(), parties=3)
    federation = Federation(split.parties, Preprocessing(), terms=Terms())
    first = next(iter(split.parties))
    tell = FedavgCoordinator.tell

    def forged(self, run, step, messages):
        tell(self, run, step, messages)
        messages[first].weight, messages[first].weights = weight, np.array(weights)

    how = {"loss": "logistic", "lam": 1e-2, "gap": None, "iterations": 1}
    with (
        patch.object(FedavgCoordinator, "tell", forged),
        pytest.raises(ProtocolError, match=f"party {first}: a message is malformed: 'weight"),
    ):
        federation.train(Settings(solver="fedavg", **how))


@pytest.mark.parametrize(
    ("solver", "options"),
    [("disco", {"precondition": "first"}), ("fedhybrid", {"steps": "theory"})],
    ids=str,
)
@pytest.mark.parametrize("terms", [{}, {"allow_lone_labels": True}], ids=str)
def test_what_shows_a_single_party_is_refused_by_every_party(solver, options, terms):
    split = SPLITS["rows"](table(), parties=3)
    federation = Federation(split.parties, Preprocessing(), terms=Terms(**terms))
    settings = Settings(solver=solver, options=options, loss="logistic", lam=1e-2, iterations=1)
    with pytest.raises(WeftError, match="of a single party; change the options"):
        federation.train(settings)
