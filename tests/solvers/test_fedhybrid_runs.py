"""FedHybrid as a federation runs it: Algorithm 1 in plain numpy, closed forms, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit

from covering import every_value
from weft.data import Tile
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.solvers.fedhybrid import method as party_module
from weft.solvers.fedhybrid.step_sizes import Safeguard
from weft.solvers.run_settings import Settings
from weft_papers.data.synthetic import scaled_squares

LAM = 0.1


def blocks(seed=0, columns=3, scale=1.5):
    """Rows of four parties that differ in number and size; labels of three classes."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(4):
        x = rng.normal(size=(8 + 3 * i, columns)) * scale ** rng.normal()
        made.append((x, rng.integers(0, 3, len(x))))
    return made


def tiles(made):
    return {
        f"p{k}": (
            Tile.make(
                [f"{97 * i + k}" for i in range(len(y))], [f"x{j}" for j in range(x.shape[1])], x, y
            ),
        )
        for k, (x, y) in enumerate(made)
    }


def run(parties, loss, options, iterations, watch=lambda halves: None, **changes):
    """Train; ``watch`` sees the parties' halves after every iteration."""
    # Parties with tables of very different sizes are meant.
    federation = Federation(parties, Preprocessing(confirmed=("units",)))
    told = {
        "lam": LAM,
        "loss": loss,
        "solver": "fedhybrid",
        "options": options,
        "weigh": "parties",
        "cipher": "plain",
        "gap": None,
        "iterations": iterations,
        "certify_every": 10**9,
        **changes,
    }
    trained = federation.train(
        Settings(**told),
        progress=lambda record: watch([party._half for party in federation.parties.values()]),
    )
    return federation, trained


def variables(federation):
    """x_i and λ_i of all parties, in the order of their columns: (parties, columns, classes)."""
    halves = [(p._half.local, p.view.tile_columns[0]) for p in federation.parties.values()]
    return (
        np.array([state.x[at] for state, at in halves]),
        np.array([state.multiplier[at] for state, at in halves]),
    )


def derivatives(loss, x, y, w):
    """Gradient and Hessian of a party's mean loss + λ/2‖w‖², written out."""
    z = x @ w
    if loss == "squared":
        slope, bend = z - y, np.ones_like(z)
    else:
        slope, bend = -y * expit(-y * z), expit(z) * expit(-z)
    return x.T @ slope / len(y) + LAM * w, (x.T * bend) @ x / len(y) + LAM * np.eye(len(w))


def algorithm_1(loss, data, newton, mu, steps, iterations):
    """Line by line, for one class: x and λ, a row a party."""
    n, d = len(data), data[0][0].shape[1]
    x, lam, x0 = np.zeros((n, d)), np.zeros((n, d)), np.zeros(d)
    for _ in range(iterations):
        x_new, lam_new = x.copy(), lam.copy()
        for i, (block, y) in enumerate(data):
            slope, hessian = derivatives(loss, block, y, x[i])
            d_i = hessian + mu * np.eye(d) if i in newton else np.eye(d)
            a, b = steps[int(i in newton)]
            x_new[i] = x[i] - a * np.linalg.solve(d_i, slope - lam[i] + mu * (x[i] - x0))
            lam_new[i] = lam[i] + b * d_i @ (x0 - x[i])
        x, lam = x_new, lam_new
        x0 = x.sum(axis=0) / n - lam.sum(axis=0) / (mu * n)
    return x, lam


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("newton", [[], [0, 2], [0, 1, 2, 3]])
def test_a_federation_runs_algorithm_1(loss, newton):
    made, mu, steps = blocks(), 0.7, [(0.05, 0.2), (0.8, 0.1)]
    options = {
        "steps": "fixed",
        "newton": [f"p{i}" for i in newton],
        "mu": mu,
        "a": [steps[0][0], steps[1][0]],
        "b": [steps[0][1], steps[1][1]],
    }
    federation, _ = run(tiles(made), loss, options, 7)
    x, lam = variables(federation)
    # Classes are problems of their own: each against the rest, or the numbers as they are.
    for c in range(x.shape[2]):
        data = [(b, np.where(y == c, 1.0, -1.0) if loss == "logistic" else y) for b, y in made]
        expected = algorithm_1(loss, data, newton, mu, steps, 7)
        # Sums travel in fixed point.
        np.testing.assert_allclose(x[:, :, c], expected[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(lam[:, :, c], expected[1], rtol=1e-9, atol=1e-9)
    assert x.shape[2] == (3 if loss == "logistic" else 1)


def logistic_optimum(data):
    """The minimiser of the mean over parties of f_i, by scipy."""

    def value(w):
        losses = [np.logaddexp(0, -y * (x @ w)).mean() for x, y in data]
        slopes = [derivatives("logistic", x, y, w)[0] for x, y in data]
        return np.mean(losses) + LAM / 2 * w @ w, np.mean(slopes, axis=0)

    return scipy.optimize.minimize(value, np.zeros(3), jac=True, options={"gtol": 1e-10}).x


def two_sided():
    return [(x, np.where(y == 0, -1, 1)) for x, y in blocks()]


@every_value(newton=["all", ["p1", "p3"], "none"], share=["everyone", 0.5])
def test_at_the_end_everybody_has_the_optimum_and_its_own_gradient_there(newton, share):
    """x_i = x₀ = w*, λ_i = ∇f_i(w*): also where only half of the parties take part at a time."""
    data = two_sided()
    iterations = 80 if share == "everyone" else 160
    federation, trained = run(
        tiles(data), "logistic", {"newton": newton}, iterations, participation=share
    )
    best = logistic_optimum(data)
    slopes = np.array([derivatives("logistic", x, y, best)[0] for x, y in data])
    assert np.linalg.norm(slopes) > 0.1  # the parties do not agree by themselves
    x, lam = variables(federation)
    np.testing.assert_allclose(x[:, :, 0], np.tile(best, (4, 1)), atol=1e-7)
    np.testing.assert_allclose(lam[:, :, 0], slopes, atol=1e-7)
    assert any("come and go" in note for note in trained.result.notes) == (share == 0.5)


@pytest.mark.release
def test_ten_newton_parties_reach_two_billionths_within_300_iterations():
    split = scaled_squares(10)
    held = [tiles[0] for tiles in split.parties.values()]
    x, y = np.vstack([t.block for t in held]), np.concatenate([t.labels for t in held])
    lam = 1e-2

    def primal(w):
        return lam / 2 * w @ w + ((x @ w - y) ** 2).mean() / 2

    best = primal(np.linalg.solve(x.T @ x / len(y) + lam * np.eye(30), x.T @ y / len(y)))
    _, trained = run(split.parties, "squared", {}, 300, lam=lam, weigh="samples")
    assert trained.model.features.tolist() == held[0].features.tolist()
    assert abs(primal(trained.model.coef[0]) - best) <= 2e-9


def test_factors_on_the_automatic_steps_are_factors():
    made, seen = blocks(), {}
    for name, changes in {"plain": {}, "scaled": {"primal": 0.5, "dual": 0.25}}.items():
        federation, _ = run(tiles(made), "squared", {"newton": "none", **changes}, 1)
        seen[name] = variables(federation)[0]
    # Of the first step from zero; the second factor acts on λ, which stays zero until then.
    np.testing.assert_allclose(seen["scaled"], 0.5 * seen["plain"], rtol=1e-9)
    federations = [run(tiles(made), "squared", {"dual": dual}, 2)[0] for dual in (1.0, 0.25)]
    (_, whole), (_, quarter) = map(variables, federations)
    np.testing.assert_allclose(quarter, 0.25 * whole, rtol=1e-9)
    assert np.abs(whole).max() > 1e-3


def test_the_safeguard_brings_back_steps_that_are_too_long(monkeypatch):
    made, options = blocks(), {"newton": 2, "primal": 4.0, "dual": 8.0}
    federation, _ = run(tiles(made), "squared", options, 120)
    hessian = sum(x.T @ x / len(y) + LAM * np.eye(3) for x, y in made)
    best = np.linalg.solve(hessian, sum(x.T @ y / len(y) for x, y in made))
    np.testing.assert_allclose(variables(federation)[0][:, :, 0], np.tile(best, (4, 1)), atol=1e-6)
    monkeypatch.setattr(Safeguard, "GROWTH", 1e300)
    with pytest.raises(ProtocolError, match="grow without end"):
        run(tiles(made), "squared", options, 250)


def flags(monkeypatch, costs, seconds=0.1):
    """Who is of Newton's type when trying it out costs so much, and μ."""
    clock = (value for cost in costs for value in (0.0, cost))
    monkeypatch.setattr(party_module, "perf_counter", lambda: next(clock))
    federation, _ = run(tiles(blocks()), "squared", {"newton": "auto", "seconds": seconds}, 1)
    halves = [party._half for party in federation.parties.values()]
    return [half.newton for half in halves], {half._facts.mu for half in halves}


def test_each_party_finds_out_for_itself_whether_it_can_afford_newton_steps(monkeypatch):
    all_newton, (mu,) = flags(monkeypatch, [0.01, 0.02, 0.1, 0.0])
    some, (larger,) = flags(monkeypatch, [0.01, 0.5, 0.1, 9.0])
    longer, _ = flags(monkeypatch, [0.01, 0.5, 0.1, 9.0], seconds=1.0)
    assert all_newton == [True] * 4
    assert some == [True, False, True, False]
    assert longer == [True, True, True, False]
    # Where somebody is of the gradient's type, μ is doubled.
    assert larger == pytest.approx(2 * mu)


def test_a_real_clock_decides_too():
    for seconds, expected in ((1e-12, False), (1e3, True)):
        federation, _ = run(tiles(blocks()), "squared", {"newton": "auto", "seconds": seconds}, 1)
        assert [p._half.newton for p in federation.parties.values()] == [expected] * 4


REFUSALS = {
    "use 'all', 'none', 'auto'": {"newton": "most"},
    "at least 0": {"newton": -1},
    "newton names 'p9'": {"newton": ["p0", "p9"]},
    "there are 4 parties": {"newton": 5},
    "seconds is 0": {"newton": "auto", "seconds": 0.0},
    "mu is -1": {"mu": -1.0},
    "primal is 0": {"primal": 0.0},
    "dual is inf": {"dual": float("inf")},
    "factors on steps = 'auto', but steps = 'theory'": {"steps": "theory", "dual": 2.0},
    "all three of mu, a and b": {"steps": "fixed", "a": 0.1, "b": 0.1},
    "leave them out": {"a": 0.1},
    "two numbers": {"steps": "fixed", "mu": 1.0, "a": [0.1], "b": 0.1},
    "positive numbers": {"steps": "fixed", "mu": 1.0, "a": 0.1, "b": 0.0},
    "it knows newton, seconds": {"penalty": 1.0},
}


@pytest.mark.parametrize("says", REFUSALS)
def test_options_that_cannot_be_meant_are_refused(says):
    with pytest.raises(ConfigError, match=says):
        run(tiles(blocks()), "squared", REFUSALS[says], 1)


def test_theory_needs_terms_under_which_parties_may_tell_their_curvature():
    settings = Settings(
        lam=LAM, loss="squared", solver="fedhybrid", options={"steps": "theory"}, iterations=1
    )
    with pytest.raises(ProtocolError, match="bounds on the curvature of a single party"):
        Federation(tiles(blocks()), terms=Terms(min_batch=2)).train(settings)
