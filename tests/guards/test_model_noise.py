"""Noise in the released model: as much as the formula says, and enough to hide one sample."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from covering import every_value
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.data import Tile
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.messages import ReleaseRequest
from weft.federation.release.noised_weights import NoiseSize
from weft.guards.model_noise_size import (
    ModelNoise,
    gaussian,
    gaussian_delta,
    gaussian_sigma,
    row_bound,
    sensitivity,
)
from weft.guards.privacy_terms import OPEN
from weft.privacy.agreement import Consent, Limits, SitePolicy
from weft.privacy.ledger.ledger_file import Book
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

N, M = 60, 4
NOISE = ModelNoise(epsilon=1.0, delta=1e-5, row_norm=1.0)
SETTINGS = Settings(lam=0.1, loss="logistic", gap=1e-9, solver="lbfgs", noise=NOISE, cipher="plain")
RAW = Preprocessing(intercept=True, scaling="none")


def quiet(settings=SETTINGS):
    """The same without noise to speak of: what is released is what was trained."""
    return msgspec.structs.replace(
        settings, noise=msgspec.structs.replace(settings.noise, epsilon=1e12)
    )


def table(seed=0, outlier=None):
    """A table whose first sample may be another one, as far out as it likes."""
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(N, M))
    labels = np.where(block[:, 0] + 0.3 * rng.normal(size=N) > 0, 1, -1)
    if outlier is not None:
        block[0], labels[0] = outlier
    ids = np.array([f"s{number}" for number in range(N)], dtype=object)
    return Tile.make(ids, [f"x{j}" for j in range(M)], block, labels)


def parties(tile, cut):
    if cut == "rows":
        return {f"p{k}": (tile.rows(np.arange(k, N, 3)),) for k in range(3)}
    return {f"p{k}": (tile.columns(np.arange(2 * k, 2 * k + 2)),) for k in range(2)}


def weights(trained):
    model = trained.model
    return np.concatenate([model.coef.ravel(), model.intercept])


# ── how much ──────────────────────────────────────────────────────────────────────────────────


@given(st.floats(0.01, 20), st.floats(1e-12, 0.4), st.floats(1e-6, 1e3))
def test_the_noise_is_the_least_that_the_formula_allows(epsilon, delta, moves):
    sigma = gaussian_sigma(moves, epsilon, delta)
    assert gaussian_delta(epsilon, moves / sigma) <= delta * (1 + 1e-6)
    assert gaussian_delta(epsilon, moves / (0.999 * sigma)) > delta
    # Never more than the classical bound, which holds for ε up to 1 only.
    if epsilon <= 1:
        assert sigma <= moves * math.sqrt(2 * math.log(1.25 / delta)) / epsilon * (1 + 1e-9)


def test_delta_is_that_of_two_gaussians():
    """Against its definition: sup over events of P − e^ε Q, an integral over a half-line."""
    for epsilon, ratio in ((0.5, 0.3), (1.0, 1.0), (3.0, 2.0)):
        x = np.linspace(-12, 12, 400_001)
        gain = norm.pdf(x, ratio) - math.exp(epsilon) * norm.pdf(x)
        assert gaussian_delta(epsilon, ratio) == pytest.approx(
            np.clip(gain, 0, None).sum() * (x[1] - x[0]), rel=1e-4
        )


def test_drawn_numbers_are_normal_and_follow_from_the_seed_alone():
    drawn = gaussian(b"a" * 32, (200, 100))
    assert kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert np.array_equal(drawn, gaussian(b"a" * 32, (200, 100)))
    assert abs(np.corrcoef(drawn.ravel(), gaussian(b"b" * 32, (200, 100)).ravel())[0, 1]) < 0.03


@every_value(cut=["rows", "columns"], loss=["logistic", "hinge", "smoothed_hinge"])
def test_no_pair_of_neighbours_moves_the_model_by_more_than_the_sensitivity(cut, loss):
    """One sample is replaced by one far out, with the other label: the worst that there is."""
    solver = "lbfgs" if loss != "hinge" else "cutting-planes"
    gap = 1e-9 if loss != "hinge" else 1e-4
    settings = quiet(msgspec.structs.replace(SETTINGS, loss=loss, solver=solver, gap=gap))
    size = NoiseSize.of(settings, samples=N, classes=1, holders=1 if cut == "rows" else 2, bias=1.0)
    first = weights(Federation(parties(table(), cut), RAW).train(settings))
    moved = []
    for outlier in (([50.0, 0, 0, 0], -1), ([-50.0, 9, 9, 9], 1)):
        other = Federation(parties(table(outlier=outlier), cut), RAW).train(settings)
        moved.append(float(np.linalg.norm(weights(other) - first)))
    assert max(moved) <= size.moves
    # Not by orders of magnitude: the bound is of use.
    assert max(moved) > size.moves / 20


def test_the_second_term_is_that_of_the_certificate():
    exact = sensitivity(lipschitz=1, rows=1, lam=0.1, samples=100, classes=1, gap=0)
    assert exact == pytest.approx(2 / (0.1 * 100))
    both = sensitivity(lipschitz=1, rows=1, lam=0.1, samples=100, classes=1, gap=1e-4)
    assert both - exact == pytest.approx(2 * math.sqrt(2 * 1e-4 / 0.1))
    many = sensitivity(lipschitz=1, rows=1, lam=0.1, samples=100, classes=9, gap=0)
    assert many == pytest.approx(3 * exact)
    assert row_bound(2.0, 3, 1.0) == pytest.approx(math.sqrt(13))


# ── in a run ──────────────────────────────────────────────────────────────────────────────────


def test_the_released_model_has_noise_of_that_size_and_no_exact_loss(monkeypatch):
    """Seeds are fixed: of fresh ones one in a thousand would seem of another distribution."""
    seeds, random = count(), RandomnessLog.random

    def known(self, name, length):
        if name != "model noise":
            return random(self, name, length)
        return self.take(name, lambda: str(next(seeds)).encode().ljust(length))

    monkeypatch.setattr(RandomnessLog, "random", known)
    tiles = parties(table(), "columns")
    calm = weights(Federation(tiles, RAW).train(quiet()))
    size = NoiseSize.of(SETTINGS, samples=N, classes=1, holders=2, bias=1.0)
    found = []
    for _ in range(6):
        trained = Federation(tiles, RAW).train(SETTINGS)
        found.append((weights(trained) - calm) / size.sigma)
        assert trained.model.certificate == {}
        assert trained.model.info["noise"]["epsilon"] == 1.0
        assert any("has noise of standard deviation" in note for note in trained.result.notes)
    assert next(seeds) == 14, "every party drew, in each of seven runs"
    assert kstest(np.concatenate(found), "norm").pvalue > 1e-3


def test_two_neighbours_cannot_be_told_apart_more_often_than_epsilon_allows():
    """An attacker with both tables, who knows all but which of them was trained on."""
    near, far = table(), table(outlier=([50.0, 0, 0, 0], -1))
    models = [weights(Federation(parties(t, "rows"), RAW).train(quiet())) for t in (near, far)]
    apart = models[1] - models[0]
    length = float(np.linalg.norm(apart))
    size = NoiseSize.of(SETTINGS, samples=N, classes=1, holders=1, bias=1.0)
    seeds = iter(range(1000))

    def share(sigma, cut):
        """How often the best test, along the line between the models, says the second of each."""
        drawn = [gaussian(str(next(seeds)).encode(), (40_000, M + 1)) @ apart for _ in range(2)]
        return [
            float((mean + sigma * lot / length > cut).mean())
            for mean, lot in zip((0.0, length), drawn, strict=True)
        ]

    # Without noise the last digit tells.
    wrong, right = share(1e-12, length / 2)
    assert (wrong, right) == (0.0, 1.0)
    for cut in np.linspace(-2, 4, 13) * size.sigma:
        wrong, right = share(size.sigma, cut)
        assert right <= math.e * wrong + NOISE.delta + 0.02


@pytest.mark.parametrize("cut", ["rows", "columns"])
def test_long_rows_are_shortened_and_short_ones_are_not(cut):
    tile = table(outlier=([300.0, -40.0, 0.1, 0.1], 1))
    short = replace(tile, block=tile.block * 1e-3)
    for given_tile, longest in ((tile, 1.0), (short, None)):
        federation = Federation(parties(given_tile, cut), RAW)
        federation.train(quiet())
        for party in federation.parties.values():
            lengths = np.sqrt(party.data.table.squares[:, 0])
            own = [np.linalg.norm(t.block, axis=1) for t in party.data.tiles]
            assert max(part.max() for part in own) <= 1 + 1e-12
            assert lengths.max() <= math.sqrt(2) + 1e-12
            if longest is None:
                before = parties(short, cut)[party.name]
                assert np.array_equal(party.data.tiles[0].block, before[0].block)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "squared_hinge"}, "whose slope is bounded"),
        ({"loss": "squared"}, "whose slope is bounded"),
        ({"gap": None, "iterations": 5}, "gap is not set"),
        ({"path": (1.0,), "folds": 2, "solver": "lbfgs"}, "one lambda and no folds"),
        ({"coordinator_sees": "weights"}, "shows the weights without noise"),
    ],
)
def test_noise_is_refused_where_nothing_bounds_the_model(changes, words):
    with pytest.raises(ConfigError, match=words):
        msgspec.structs.replace(SETTINGS, **changes)


@pytest.mark.parametrize(
    "scaled", [{"scaling": "standard"}, {"scaling": "none", "unit_rows": True}]
)
def test_a_table_that_is_scaled_by_what_it_holds_gets_no_noise(scaled):
    federation = Federation(parties(table(), "rows"), Preprocessing(intercept=True, **scaled))
    with pytest.raises(WeftError, match="refuses noise in a model of scaled columns or rows"):
        federation.train(SETTINGS)


def test_a_model_that_is_not_certified_closely_enough_is_not_released():
    loose = msgspec.structs.replace(SETTINGS, iterations=1)
    with pytest.raises(WeftError, match="nothing is released"):
        Federation(parties(table(), "rows"), RAW).train(loose)


# ── the budget ────────────────────────────────────────────────────────────────────────────────


def test_models_spend_a_budget_that_is_refused_beyond(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    policy = SitePolicy(OPEN, Limits(most_epsilon=2.0))
    tiles = parties(table(), "columns")

    def train(settings):
        consents = {name: Consent(name, policy=policy) for name in tiles}
        return Federation(tiles, RAW, consents=consents, ledger=ledger).train(settings)

    train(SETTINGS)
    train(SETTINGS)
    for name in tiles:
        assert Book(ledger.folder, name).read().spent() == (2.0, 2e-5)
    with pytest.raises(WeftError, match="2 of 2 are spent by its ledger"):
        train(SETTINGS)
    with pytest.raises(WeftError, match="refuses a model without noise"):
        train(msgspec.structs.replace(SETTINGS, noise=None))
    # What was refused is not spent.
    assert Book(ledger.folder, "p0").read().spent() == (2.0, 2e-5)


def test_limits_are_read_and_the_strictest_counts():
    wide, narrow = Limits(most_epsilon=9.0), Limits(most_epsilon=1.0, most_delta=1e-6)
    assert Consent("a", policy=SitePolicy(OPEN, wide)).budget == (9.0, math.inf)
    assert Consent("a", policy=SitePolicy(OPEN, narrow)).budget == (1.0, 1e-6)
    with pytest.raises(ConfigError, match="most_epsilon is 0"):
        Limits(most_epsilon=0.0)


def test_a_second_model_of_a_run_is_not_released(monkeypatch):
    """Its noise would cancel in the difference; the same model gets the same noise."""
    federation = Federation(parties(table(), "columns"), RAW)
    federation.train(SETTINGS)
    party = federation.parties["p0"]
    asked = ReleaseRequest(model=party.training._noise._released[0], suboptimality=0.0)
    first, again = (party.training.slice_of_model(asked).weights for _ in range(2))
    assert np.array_equal(first, again)
    # Weights that were trained further after the release stay where they are.
    later = party._half.weights(asked.model) + 1.0
    monkeypatch.setattr(party._half, "weights", lambda model: later)
    assert np.array_equal(party.training.slice_of_model(asked).weights, first)
    for forged in (
        ReleaseRequest(model=None if asked.model is not None else 77, suboptimality=0.0),
        ReleaseRequest(model=asked.model, suboptimality=0.0, everything=True),
        ReleaseRequest(model=asked.model, suboptimality=0.1),
        ReleaseRequest(model=asked.model),
    ):
        with pytest.raises(WeftError):
            party.training.slice_of_model(forged)
