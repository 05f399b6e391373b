"""Noise in feature sums: how it is drawn, what it costs, and what certificates are worth then."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from guarded import table_of, tile_of, watched

from weft.crypto.discrete_gaussian import discrete_gaussian
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation
from weft.guards import OPEN, Terms
from weft.guards.sum_noise_size import SumNoise, epsilon_of, longest_noise, parts_of
from weft.privacy.agreement import Consent
from weft.privacy.agreement.limits_and_site_policy import Limits, SitePolicy
from weft.privacy.ledger.ledger_file import Book
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

SETTINGS = Settings(
    lam=0.1,
    loss="logistic",
    solver="lbfgs",
    gap=1e-6,
    iterations=4,
    cipher="plain",
    sum_noise=SumNoise(multiplier=1.0),
)
#: Three in every sum, and nothing held back.
THREE = Terms(ciphers=("plain", "pad"), min_batch=1, min_contributors=3)


@pytest.fixture(scope="module")
def table():
    return table_of("digits", 300)


def tiles_of(table):
    parts = np.array_split(np.arange(table.n), 3)
    return {f"p{k + 1}": (tile_of(table, part),) for k, part in enumerate(parts)}


def trained(table, settings, terms=THREE, **options):
    return Federation(tiles_of(table), terms=terms, **options).train(settings)


# ── the distribution ──────────────────────────────────────────────────────────────────────────


def test_integers_have_the_discrete_normal_distribution():
    drawn = discrete_gaussian(b"seed", 4, (20_000,))
    at = np.arange(-60, 61)
    weight = np.exp(-(at**2) / 8.0)
    expected = 20_000 * weight / weight.sum()
    seen = np.bincount(np.clip(drawn, -60, 60) + 60, minlength=121)
    often = expected > 20
    square = ((seen - expected)[often] ** 2 / expected[often]).sum()
    # χ² with some 12 degrees of freedom: above 40 once in 14,000 times, and the seed is fixed.
    assert square < 40
    one, again, other = (discrete_gaussian(name, 4, (200,)) for name in (b"a", b"a", b"b"))
    assert np.array_equal(one, again)
    assert (one != other).any()
    assert not discrete_gaussian(b"seed", 0, (5,)).any()


def test_large_integers_have_the_variance_asked_for():
    drawn = discrete_gaussian(b"large", 10**26, (4000,)) / 1e13
    assert abs(drawn.mean()) < 4 / math.sqrt(4000)
    assert drawn.var() == pytest.approx(1.0, abs=4 * math.sqrt(2 / 4000))


def test_every_sum_has_the_noise_of_all_its_holders(table):
    """Three holders with half of σ² each: two of them make σ², whoever reads the total."""
    totals, partials = {}, []

    def look(party, phase, message, reply):
        if phase == "subspace.spread":
            half = party._half
            totals[len(half.features.vectors)] = np.hstack(half.features.fresh)
            partials.append((len(half.features.vectors), half.samples.partial))

    with watched(look):
        trained(table, SETTINGS)
    noise = []
    for number, total in totals.items():
        exact = sum(part for k, part in partials if k == number) / table.n
        noise.append((total - exact).ravel())
    values = np.concatenate(noise)
    sigma = SETTINGS.sum_noise.sigma(lipschitz=1.0, rows=1.0, samples=table.n)
    assert len(values) > 200
    assert values.var() == pytest.approx(1.5 * sigma**2, rel=5 * math.sqrt(2 / len(values)))


# ── the account ───────────────────────────────────────────────────────────────────────────────


def test_the_account_is_that_of_the_formulas():
    noise = SumNoise(multiplier=5.0)
    assert noise.rho == pytest.approx(0.02)
    assert noise.sigma(lipschitz=1.0, rows=2.0, samples=100) == pytest.approx(5 * 2 * 2.0 / 100)
    assert epsilon_of(0.5, 1e-6) == pytest.approx(0.5 + 2 * math.sqrt(0.5 * math.log(1e6)))
    assert [parts_of(count) for count in (1, 2, 3, 5)] == [1, 1, 2, 4]
    assert longest_noise(2.0, 100, 4) > 2.0 * math.sqrt(400)
    with pytest.raises(ConfigError, match="multiplier is 0"):
        SumNoise(multiplier=0.0)
    for row_norm in (0.0, -1.0, math.inf):
        with pytest.raises(ConfigError, match="row_norm is"):
            SumNoise(multiplier=1.0, row_norm=row_norm)


def test_ledgers_book_every_sum_and_refuse_beyond_a_budget(table, tmp_path):
    ledger, tiles = Ledger(tmp_path / "ledger"), tiles_of(table)
    policy = SitePolicy(OPEN, Limits(most_rho=4.9))

    def train(settings):
        consents = {name: Consent(name, policy=policy) for name in tiles}
        return Federation(tiles, consents=consents, ledger=ledger).train(settings)

    train(SETTINGS)
    spent = {Book(ledger.folder, name).read().rho_spent() for name in tiles}
    assert len(spent) == 1
    # One for the first vector, and one or two in each of four iterations; ρ = 1/2 for each.
    assert 0.5 * 5 <= next(iter(spent)) <= 0.5 * 9
    with pytest.raises(WeftError, match=r"of ρ = 4\.9 are spent by its ledger"):
        train(SETTINGS)
    assert Book(ledger.folder, "p1").read().rho_spent() <= 4.9
    with pytest.raises(WeftError, match="refuses feature sums without noise"):
        train(msgspec.structs.replace(SETTINGS, sum_noise=None))


# ── runs ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "changes", [{}, {"solver": "cutting-planes", "loss": "hinge"}], ids=["lbfgs", "cutting planes"]
)
def test_the_certificate_is_true_with_noise(table, changes):
    """P is measured at the model that there is; D allows for the longest noise."""
    settings = msgspec.structs.replace(SETTINGS, **changes)
    exact = msgspec.structs.replace(settings, sum_noise=None, iterations=200)
    best = trained(table, exact).result.certificate
    noisy = trained(table, settings)
    proof = noisy.result.certificate
    assert proof.primal[0] > best.dual[0]
    assert proof.dual[0] <= best.primal[0]
    assert 0 < proof.gap < math.inf
    assert any("holds but for a chance of 1e-9" in note for note in noisy.result.notes)


def test_noise_is_the_same_under_every_cipher_and_fresh_in_every_run(table, monkeypatch):
    free = [trained(table, SETTINGS).model.coef for _ in range(2)]
    assert (free[0] != free[1]).any()
    random = RandomnessLog.random

    def known(self, name, length):
        if name != "sum noise":
            return random(self, name, length)
        return self.take(name, lambda: str(self._taken[name]).encode().ljust(length))

    monkeypatch.setattr(RandomnessLog, "random", known)
    # Seeds that are the same in all runs: what is left are ciphers.
    under = [
        trained(table, msgspec.structs.replace(SETTINGS, cipher=cipher)).model.coef
        for cipher in ("plain", "pad")
    ]
    assert np.array_equal(*under)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "squared_hinge"}, "bounded"),
        ({"solver": "newton-cg"}, "sum_noise is for lbfgs and cutting-planes"),
        ({"solver": "hyfdca"}, "sum_noise is for lbfgs and cutting-planes"),
        ({"when_missing": "hyfdca"}, "without a stand-in"),
    ],
)
def test_noise_is_refused_where_nothing_bounds_the_sums(changes, words):
    with pytest.raises(ConfigError, match=words):
        msgspec.structs.replace(SETTINGS, **changes)


def test_noise_that_does_not_fit_is_refused(table):
    loud = msgspec.structs.replace(SETTINGS, sum_noise=SumNoise(multiplier=1e6))
    with pytest.raises(WeftError, match="too large to be summed"):
        trained(table, loud)
